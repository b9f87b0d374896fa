//! Furthest next use first (Belady 1966, on what is announced); where no use is announced, the least worth first: how
//! likely a block comes again, times what it costs to bring it (Cao and Irani 1997; see `dearness`).
//!
//! One queue for each minibatch of the window (blocks that it needs next), and one for each step of the decayed use
//! count (blocks that no announced minibatch needs). A resident block is in one of them, and not always in the right
//! one: it is put right when its turn to go comes. So announcing, pinning and releasing cost nothing here, and what a
//! block costs between its arrival and its eviction does not depend on how often it is used.

use super::block_set::BlockSet;
use super::dearness::Dearness;
use super::frequency::Frequency;
use super::order::Order;
use super::queues::{Pool, Queue};
use crate::geometry::Geometry;
use crate::view::View;
use crate::window::{EntryId, Ranks};
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, TableId};
use std::collections::VecDeque;

/// Minibatches that a prior weighs as much as: it is an expectation, where each of them is one draw.
const PRIOR_MINIBATCHES: f32 = 256.0;

pub(super) struct NextUse {
    pool: Pool,
    tables: Vec<Table>,
    /// Blocks that are in a queue.
    listed: BlockSet,
    /// In order of time of use.
    ranks: Ranks,
    /// The same, after those that hold their blocks: with them their blocks belong.
    owners: Ranks,
    frequency: Frequency,
    dearness: Dearness,
    /// Blocks that are in no queue since a minibatch that passes by the cache has them pinned: at most so many.
    pinned_in_passing: usize,
}

/// The queues of one table.
struct Table {
    steps: Steps,
    /// By index of the minibatch.
    entries: Vec<Needed>,
}

/// Blocks that a minibatch needs next.
struct Needed {
    by: Option<EntryId>,
    /// Those that no other minibatch needs after it go first.
    once: Queue,
    more: Queue,
}

/// A queue for each step of the use count.
struct Steps {
    /// The step of the first queue.
    first: u32,
    queues: VecDeque<Queue>,
}

/// Where a block belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// With the minibatch of this index. Another one needs it as well: `more`.
    Entry {
        index: u32,
        more: bool,
    },
    Step(u32),
}

impl Steps {
    fn push(&mut self, step: u32, block: BlockId, pool: &mut Pool) {
        if self.queues.is_empty() {
            self.first = step;
        }
        while step < self.first {
            self.queues.push_front(Queue::new());
            self.first -= 1;
        }
        let at = (step - self.first) as usize;
        while self.queues.len() <= at {
            self.queues.push_back(Queue::new());
        }
        self.queues[at].push(block, pool);
    }

    /// A block of the lowest step that has any.
    fn pop(&mut self, pool: &mut Pool) -> Option<(u32, BlockId)> {
        while let Some(queue) = self.queues.front_mut() {
            if let Some(block) = queue.pop(pool) {
                return Some((self.first, block));
            }
            self.queues.pop_front();
            self.first += 1;
        }
        None
    }
}

impl Table {
    #[inline]
    fn push(&mut self, home: Home, block: BlockId, owners: &Ranks, pool: &mut Pool) {
        match home {
            Home::Step(step) => self.steps.push(step, block, pool),
            Home::Entry { index, more } => {
                while self.entries.len() <= index as usize {
                    self.entries.push(Needed { by: None, once: Queue::new(), more: Queue::new() });
                }
                let needed = &mut self.entries[index as usize];
                if needed.by.is_none() {
                    needed.by = owners.at(owners.of_index(index));
                }
                if more { &mut needed.more } else { &mut needed.once }.push(block, pool);
            }
        }
    }

    /// A block that a minibatch needs next, or needed when it was put there, and whether others did as well.
    #[inline]
    fn pop(&mut self, index: u32, pool: &mut Pool) -> Option<(BlockId, bool)> {
        let needed = self.entries.get_mut(index as usize)?;
        let once = needed.once.pop(pool).map(|block| (block, false));
        once.or_else(|| needed.more.pop(pool).map(|block| (block, true)))
    }
}

impl NextUse {
    /// `prior`: expected uses per minibatch of each block; empty where nothing is known.
    pub fn new(geometry: &Geometry, prior: &[f32]) -> Self {
        let weight = if prior.is_empty() { 0.0 } else { PRIOR_MINIBATCHES };
        let table = |_| Table { steps: Steps { first: 0, queues: VecDeque::new() }, entries: vec![] };
        NextUse {
            pool: Pool::new(),
            tables: (0..geometry.classes()).map(table).collect(),
            listed: BlockSet::new(geometry.blocks()),
            ranks: Ranks::default(),
            owners: Ranks::default(),
            frequency: Frequency::with_prior(geometry.blocks(), prior, weight),
            dearness: Dearness::default(),
            pinned_in_passing: 0,
        }
    }

    /// With the minibatch that needs it first, or with one that holds it; where nobody needs it, by its count.
    #[inline]
    fn home(&self, block: BlockId, view: &View) -> Home {
        let mut uses = view.window.indices(block);
        let Some(first) = uses.next() else {
            return Home::Step(self.frequency.step(block) + self.dearness.steps(block));
        };
        let (mut index, mut rank, mut more) = (first, self.owners.of_index(first), false);
        for other in uses {
            more = true;
            let other_rank = self.owners.of_index(other);
            if other_rank < rank {
                (index, rank) = (other, other_rank);
            }
        }
        Home::Entry { index, more }
    }

    fn list(&mut self, block: BlockId, view: &View) {
        if view.cache.has_slot(block) && self.listed.insert(block) {
            let home = self.home(block, view);
            let table = &mut self.tables[view.cache.table_of(block).index()];
            table.push(home, block, &self.owners, &mut self.pool);
        }
    }

    /// Takes a block that was found where it belongs out of the order, if it may go now. One that is in flight comes
    /// back with its arrival, one that is pinned in passing with the release, and one that is gone does not matter.
    #[inline]
    fn take(&mut self, block: BlockId, view: &View) -> Option<BlockId> {
        self.listed.remove(block);
        let taken = view.cache.is_evictable(block).then_some(block);
        self.pinned_in_passing += usize::from(taken.is_none() && view.cache.is_pinned(block));
        taken
    }

    /// The least likely block that nobody in the window needs.
    fn unlikely(&mut self, table: TableId, view: &View) -> Option<BlockId> {
        loop {
            let steps = &mut self.tables[table.index()].steps;
            let begun = steps.queues.front().map_or(&[][..], |queue| queue.begun(&self.pool));
            view.cache.touch_states(begun.iter().copied());
            view.window.touch(begun.iter().copied());
            self.frequency.touch(begun.iter().copied());
            let (step, block) = steps.pop(&mut self.pool)?;
            match self.home(block, view) {
                Home::Step(now) if now <= step => {
                    let taken = self.take(block, view);
                    if taken.is_some() {
                        return taken;
                    }
                }
                home => self.tables[table.index()].push(home, block, &self.owners, &mut self.pool),
            }
        }
    }

    /// Brings what is known of these blocks near.
    #[inline]
    fn touch(&self, blocks: &[u32], view: &View) {
        view.window.touch(blocks.iter().copied());
        self.frequency.touch(blocks.iter().copied());
    }

    /// A block of the minibatch that is used last, if later than `sooner_than`. `Err`: one that nobody needs any more
    /// was found.
    fn furthest(&mut self, table: TableId, sooner_than: u32, view: &View) -> Result<Option<BlockId>, ()> {
        for rank in (sooner_than.saturating_add(1)..self.ranks.len()).rev() {
            let Some(id) = self.ranks.at(rank).filter(|&id| !view.window.is_held(id)) else { continue };
            while let Some((block, more)) = self.tables[table.index()].pop(id.index, &mut self.pool) {
                match self.home(block, view) {
                    Home::Entry { index, more: now } if index == id.index && (more || !now) => {
                        let taken = self.take(block, view);
                        if taken.is_some() {
                            return Ok(taken);
                        }
                    }
                    home => {
                        self.tables[table.index()].push(home, block, &self.owners, &mut self.pool);
                        if matches!(home, Home::Step(_)) {
                            return Err(());
                        }
                    }
                }
            }
        }
        Ok(None)
    }
}

impl Order for NextUse {
    fn prepare(&mut self, view: &View) {
        self.ranks = Ranks::new(&view.window.by_time_of_use());
        self.owners = Ranks::held_first(view.window);
        // Blocks of minibatches that are gone.
        for table in 0..self.tables.len() {
            for index in 0..self.tables[table].entries.len() {
                let by = self.tables[table].entries[index].by;
                if by.is_none_or(|id| view.window.entry(id).is_some()) {
                    continue;
                }
                let mut left = std::mem::replace(
                    &mut self.tables[table].entries[index],
                    Needed { by: None, once: Queue::new(), more: Queue::new() },
                );
                for queue in [&mut left.once, &mut left.more] {
                    loop {
                        self.touch(queue.begun(&self.pool), view);
                        let Some(block) = queue.pop(&mut self.pool) else { break };
                        let home = self.home(block, view);
                        self.tables[table].push(home, block, &self.owners, &mut self.pool);
                    }
                }
            }
        }
    }

    fn announced(&mut self, blocks: &[BlockRows], view: &View) {
        self.frequency.record(blocks, view.parameters.half_life_minibatches);
        self.dearness.renew(view);
    }

    fn arrived(&mut self, rows: &[BlockRows], view: &View) {
        for rows in rows {
            self.list(rows.block, view);
        }
    }

    fn released(&mut self, _: EntryId, blocks: &[BlockRows], view: &View) {
        if self.pinned_in_passing == 0 {
            return;
        }
        for rows in blocks.iter().filter(|rows| view.cache.is_evictable(rows.block)) {
            let was_listed = self.listed.contains(rows.block);
            self.list(rows.block, view);
            self.pinned_in_passing = self.pinned_in_passing.saturating_sub(usize::from(!was_listed));
        }
    }

    fn victim(&mut self, table: TableId, sooner_than: u32, view: &View) -> Option<BlockId> {
        loop {
            if let Some(block) = self.unlikely(table, view) {
                return Some(block);
            }
            if let Ok(found) = self.furthest(table, sooner_than, view) {
                return found;
            }
        }
    }

    fn restore(&mut self, block: BlockId, view: &View) {
        self.list(block, view);
    }

    fn foresees(&self) -> bool {
        true
    }

    fn rebuild(&mut self, view: &View) {
        let empty = |_| Table { steps: Steps { first: 0, queues: VecDeque::new() }, entries: vec![] };
        self.tables = (0..self.tables.len()).map(empty).collect();
        self.pool = Pool::new();
        self.listed.clear();
        self.pinned_in_passing = 0;
        self.ranks = Ranks::new(&view.window.by_time_of_use());
        self.owners = Ranks::held_first(view.window);
        for block in view.cache.resident() {
            self.list(block, view);
        }
    }

    fn expected_uses(&self, block: BlockId) -> f32 {
        self.frequency.expected_uses(block)
    }

    fn likelihood(&self, block: BlockId) -> f32 {
        self.frequency.score(block)
    }

    fn memory_bytes(&self) -> usize {
        self.pool.memory_bytes() + self.listed.memory_bytes() + self.frequency.memory_bytes()
    }
}
