//! One trainer's minibatches through the engine.

use proptest::prelude::*;
use rudder_graph::BlockRows;
use rudder_policy::testing::{World, book, trainer};
use rudder_topology::{PolicySpec, TableId};
use std::collections::BTreeMap;

/// Rows by block.
pub type Rows = BTreeMap<u32, u64>;

pub const PARTS: u64 = 3;
const ROW_BYTES: u64 = 8;

/// A case: blocks of table 0, slots, and the rows of each minibatch.
#[derive(Clone, Debug)]
pub struct Case {
    pub blocks: u32,
    pub rows_per_block: u32,
    pub slots: u32,
    pub trace: Vec<Rows>,
    /// Of the blocks of table 0.
    pub prior: Vec<f32>,
}

impl Case {
    pub fn full_mask(&self) -> u64 {
        u64::MAX >> (64 - self.rows_per_block)
    }
}

/// Small caches, minibatches that fit them, some blocks hotter than others.
pub fn case(rows_per_block: u32) -> impl Strategy<Value = Case> {
    case_with(rows_per_block, 3..14, |slots| slots.min(6))
}

/// Minibatches of at most `most(slots)` blocks.
pub fn case_with(
    rows_per_block: u32,
    slots: std::ops::Range<u32>,
    most: fn(usize) -> usize,
) -> impl Strategy<Value = Case> {
    (4_u32..14, slots).prop_flat_map(move |(blocks, slots)| {
        let blocks = blocks * PARTS as u32;
        let block = prop_oneof![0..blocks, 0..blocks / 4];
        let mask = 1_u64..1 << rows_per_block;
        let minibatch = proptest::collection::btree_map(block, mask, 0..=most(slots as usize));
        let prior = proptest::collection::vec((0_u32..9).prop_map(|uses| uses as f32), blocks as usize);
        (proptest::collection::vec(minibatch, 0..60), prior).prop_map(move |(trace, prior)| Case {
            blocks,
            rows_per_block,
            slots,
            trace,
            prior,
        })
    })
}

/// The naive side.
pub trait Twin {
    /// What is fetched before the first minibatch.
    fn begin(&mut self) -> Rows {
        Rows::new()
    }

    /// Serves a minibatch: the rows that had to be fetched for it. What is resident is asked afterwards.
    fn minibatch(&mut self, wanted: &Rows) -> Rows;

    /// Rows that can be read, by block.
    fn resident(&self) -> Rows;
}

/// An engine with one trainer.
pub struct Play {
    pub world: World,
    rows_per_block: u32,
    announced: u64,
    /// Announced or foreseen.
    known: u64,
    released: u64,
}

/// How an arm that looks ahead knows what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    Announced,
    Foreseen,
}

impl Play {
    pub fn new(case: &Case, policy: PolicySpec) -> Play {
        let rows = u64::from(case.blocks * case.rows_per_block);
        let book = book(rows, PARTS, case.rows_per_block);
        // Two tables share the cache evenly.
        let cache_bytes = 2 * u64::from(case.slots * case.rows_per_block) * ROW_BYTES;
        let prior = case.prior.iter().copied().chain(std::iter::repeat(0.0)).take(book.blocks() as usize);
        let mut world = World::with_prior(book, cache_bytes, policy, &[], prior.collect());
        // Who overlaps minibatches does it in the schedules at random; here each comes when its turn comes.
        world.set_parameters(|parameters| parameters.horizon_minibatches = Some(0));
        world.connect(trainer(0));
        Play { world, rows_per_block: case.rows_per_block, announced: 0, known: 0, released: 0 }
    }

    /// Everything in flight arrives, and what that sets off.
    pub fn arrive(&mut self) -> Rows {
        let mut fetched = Rows::new();
        while !self.world.in_flight.is_empty() {
            for item in &self.world.in_flight[0].items {
                let BlockRows { block, mask } = item.rows;
                let rows = fetched.entry(block.0).or_default();
                assert_eq!(*rows & mask, 0, "a row is fetched twice for one minibatch");
                *rows |= mask;
            }
            self.world.arrive(0);
        }
        fetched
    }

    fn tables(&self, wanted: &Rows) -> Vec<(TableId, Vec<u32>)> {
        let rows = wanted.iter().flat_map(|(block, mask)| {
            (0..self.rows_per_block).filter(move |row| mask >> row & 1 == 1).map(move |row| (block, row))
        });
        vec![(TableId(0), rows.map(|(block, row)| block * self.rows_per_block + row).collect())]
    }

    pub fn announce(&mut self, wanted: &Rows) {
        self.world.announce(trainer(0), self.announced, self.tables(wanted));
        self.announced += 1;
        self.known = self.known.max(self.announced);
    }

    /// Lets the arm know the trace up to `end` minibatches: announces them, or announces the next and foresees the rest.
    pub fn look_ahead(&mut self, trace: &[Rows], end: usize, how: Known) {
        let end = trace.len().min(end) as u64;
        let announced = if how == Known::Announced { end } else { end.min(self.released + 1) };
        while self.announced < announced {
            self.announce(&trace[self.announced as usize]);
        }
        while self.known < end {
            let tables = self.tables(&trace[self.known as usize]);
            self.world.foresee(trainer(0), self.known, &tables);
            self.known += 1;
        }
    }

    /// The trainer takes and releases its next minibatch; returns what was fetched meanwhile.
    pub fn serve(&mut self) -> Rows {
        self.world.want(trainer(0), self.released);
        let mut fetched = self.arrive();
        assert_eq!(self.world.ready.len(), 1, "served");
        self.world.release(trainer(0), self.released);
        self.released += 1;
        add(&mut fetched, &self.arrive());
        fetched
    }

    pub fn resident(&self) -> Rows {
        let view = self.world.engine.view();
        view.cache.resident().map(|block| (block.0, view.cache.valid(block))).collect()
    }
}

/// Adds rows of which none was there.
pub fn add(rows: &mut Rows, more: &Rows) {
    for (&block, &mask) in more {
        let held = rows.entry(block).or_default();
        assert_eq!(*held & mask, 0, "a row is fetched twice");
        *held |= mask;
    }
}

/// Plays a case on both sides, each minibatch announced just before it is wanted.
pub fn agree(case: &Case, policy: PolicySpec, twin: &mut dyn Twin) -> Result<(), TestCaseError> {
    let mut play = Play::new(case, policy);
    let (fetched, expected) = (play.arrive(), twin.begin());
    prop_assert_eq!(fetched, expected, "fetched before training");
    for (n, wanted) in case.trace.iter().enumerate() {
        play.announce(wanted);
        let (fetched, expected) = (play.serve(), twin.minibatch(wanted));
        prop_assert_eq!(fetched, expected, "fetched for minibatch {}", n);
        prop_assert_eq!(play.resident(), twin.resident(), "resident after minibatch {}", n);
    }
    prop_assert_eq!(play.world.refusals(), 0);
    Ok(())
}
