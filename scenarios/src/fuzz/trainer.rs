//! Simulated trainers: announce ahead, wait, hold, release, in any interleaving.

use super::dataset::Dataset;
use super::random::Random;
use rudder_graph::location::Location;
use rudder_policy::step::TrainerId;
use rudder_topology::{MinibatchId, TableId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The rows of one minibatch, table by table.
pub type Rows = Vec<(TableId, Vec<u32>)>;

/// What a trainer was told about a minibatch.
#[derive(Clone, Debug)]
pub struct Served {
    pub tables: Vec<(TableId, Vec<Location>)>,
    pub private: Vec<u8>,
}

/// One trainer.
#[derive(Clone, Debug)]
pub struct Trainer {
    pub id: TrainerId,
    pub minibatches: Vec<Rows>,
    /// Minibatches that it keeps announced.
    pub window: usize,
    pub next_announce: usize,
    /// Announced and not released, oldest first.
    pub queue: VecDeque<usize>,
    /// It waits for its oldest.
    pub waits: bool,
    pub ready: BTreeMap<usize, Served>,
    pub private: BTreeMap<usize, Vec<u8>>,
    /// Minibatches that it was told it cannot have.
    pub given_up: BTreeSet<usize>,
    pub released: usize,
    pub failed: usize,
}

impl Trainer {
    #[must_use]
    pub fn new(id: TrainerId, minibatches: Vec<Rows>, window: usize) -> Self {
        Trainer {
            id,
            minibatches,
            window,
            next_announce: 0,
            queue: VecDeque::new(),
            waits: false,
            ready: BTreeMap::new(),
            private: BTreeMap::new(),
            given_up: BTreeSet::new(),
            released: 0,
            failed: 0,
        }
    }

    #[must_use]
    pub fn may_announce(&self) -> bool {
        self.next_announce < self.minibatches.len() && self.queue.len() < self.window
    }

    #[must_use]
    pub fn may_want(&self) -> bool {
        !self.waits && !self.queue.is_empty()
    }

    /// Its oldest minibatch is there and it asked for it: a step is being computed.
    #[must_use]
    pub fn computes(&self) -> bool {
        self.waits && self.queue.front().is_some_and(|front| self.ready.contains_key(front))
    }

    /// Its oldest minibatch cannot be had.
    #[must_use]
    pub fn must_give_back(&self) -> bool {
        self.queue.front().is_some_and(|front| self.given_up.contains(front))
    }

    #[must_use]
    pub fn is_done(&self) -> bool {
        self.next_announce == self.minibatches.len() && self.queue.is_empty()
    }

    /// Steps finished so far, for barriers.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.released + self.failed
    }

    /// Takes the oldest out; the next one is not waited for yet.
    pub fn pop(&mut self) -> Option<usize> {
        let front = self.queue.pop_front()?;
        self.waits = false;
        self.ready.remove(&front);
        self.private.remove(&front);
        Some(front)
    }

    /// It dies and comes back: what was not released is announced again.
    pub fn restart(&mut self) {
        self.next_announce = self.queue.front().copied().unwrap_or(self.next_announce);
        self.queue.clear();
        self.waits = false;
        self.ready.clear();
        self.private.clear();
        self.given_up.clear();
    }
}

/// The id under which the n-th minibatch is announced.
#[must_use]
pub fn minibatch_id(n: usize) -> MinibatchId {
    MinibatchId(n as u64)
}

/// Rows with favourites: half of them come from the first tenth of the table, repeats included.
#[must_use]
pub fn draw_rows(random: &mut Random, dataset: &Dataset, rows_max: u64) -> Rows {
    let mut all = Vec::new();
    for table in dataset.tables() {
        let rows = dataset.book.rows(table);
        if rows == 0 || (table.0 > 0 && random.one_in(3)) {
            continue;
        }
        let count = random.between(u64::from(table.0 == 0), rows_max);
        let draw = |_| {
            let end = if random.one_in(2) { rows.div_ceil(10) } else { rows };
            random.below(end) as u32
        };
        all.push((table, (0..count).map(draw).collect()));
    }
    all
}
