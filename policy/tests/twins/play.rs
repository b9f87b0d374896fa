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
}

/// Small caches, minibatches that fit them, some blocks hotter than others.
pub fn case(rows_per_block: u32) -> impl Strategy<Value = Case> {
    (12_u32..40, 3_u32..14).prop_flat_map(move |(blocks, slots)| {
        let block = prop_oneof![0..blocks, 0..blocks / 4];
        let mask = 1_u64..1 << rows_per_block;
        let minibatch = proptest::collection::btree_map(block, mask, 0..=(slots as usize).min(6));
        proptest::collection::vec(minibatch, 0..60).prop_map(move |trace| {
            let blocks = blocks.next_multiple_of(PARTS as u32);
            Case { blocks, rows_per_block, slots, trace }
        })
    })
}

/// The naive side.
pub trait Twin {
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
    released: u64,
}

impl Play {
    pub fn new(case: &Case, policy: PolicySpec) -> Play {
        let rows = u64::from(case.blocks * case.rows_per_block);
        let book = book(rows, PARTS, case.rows_per_block);
        // Two tables share the cache evenly.
        let cache_bytes = 2 * u64::from(case.slots * case.rows_per_block) * ROW_BYTES;
        let mut world = World::new(book, cache_bytes, policy, &[]);
        world.connect(trainer(0));
        Play { world, rows_per_block: case.rows_per_block, announced: 0, released: 0 }
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

    pub fn announce(&mut self, wanted: &Rows) {
        let rows = wanted.iter().flat_map(|(block, mask)| {
            (0..self.rows_per_block).filter(move |row| mask >> row & 1 == 1).map(move |row| (block, row))
        });
        let rows = rows.map(|(block, row)| block * self.rows_per_block + row).collect();
        self.world.announce(trainer(0), self.announced, vec![(TableId(0), rows)]);
        self.announced += 1;
    }

    /// The trainer takes and releases its next minibatch; returns what was fetched meanwhile.
    pub fn serve(&mut self) -> Rows {
        self.world.want(trainer(0), self.released);
        let mut fetched = self.arrive();
        assert_eq!(self.world.ready.len(), 1, "served");
        self.world.release(trainer(0), self.released);
        self.released += 1;
        fetched.append(&mut self.arrive());
        fetched
    }

    pub fn resident(&self) -> Rows {
        let view = self.world.engine.view();
        view.cache.resident().map(|block| (block.0, view.cache.valid(block))).collect()
    }
}

/// Plays a case on both sides, each minibatch announced just before it is wanted.
pub fn agree(case: &Case, policy: PolicySpec, twin: &mut dyn Twin) -> Result<(), TestCaseError> {
    let mut play = Play::new(case, policy);
    for (n, wanted) in case.trace.iter().enumerate() {
        play.announce(wanted);
        let (fetched, expected) = (play.serve(), twin.minibatch(wanted));
        prop_assert_eq!(fetched, expected, "fetched for minibatch {}", n);
        prop_assert_eq!(play.resident(), twin.resident(), "resident after minibatch {}", n);
    }
    prop_assert_eq!(play.world.refusals(), 0);
    Ok(())
}
