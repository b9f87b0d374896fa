//! Furthest next use first (Belady 1966, on what is announced); where no use is announced, least likely first.
//!
//! One queue for each minibatch of the window (blocks that it needs next), and one for each step of the decayed use
//! count (blocks that no announced minibatch needs). A resident block is in one of them, and not always in the right
//! one: it is put right when its turn to go comes. So announcing, pinning and releasing cost nothing here, and what a
//! block costs between its arrival and its eviction does not depend on how often it is used.

use super::block_set::BlockSet;
use super::frequency::Frequency;
use super::order::Order;
use super::queues::{Pool, Queue};
use crate::geometry::Geometry;
use crate::view::View;
use crate::window::{EntryId, Phase, Ranks};
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, TableId};
use std::collections::VecDeque;

pub(super) struct NextUse {
    pool: Pool,
    tables: Vec<Table>,
    /// Blocks that are in a queue.
    listed: BlockSet,
    ranks: Ranks,
    frequency: Frequency,
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
    Nowhere,
    /// Another minibatch needs it as well: `more`.
    Entry {
        id: EntryId,
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
    fn push(&mut self, home: Home, block: BlockId, pool: &mut Pool) {
        match home {
            Home::Nowhere => {}
            Home::Step(step) => self.steps.push(step, block, pool),
            Home::Entry { id, more } => {
                let at = id.index as usize;
                while self.entries.len() <= at {
                    self.entries.push(Needed { by: None, once: Queue::new(), more: Queue::new() });
                }
                let needed = &mut self.entries[at];
                needed.by = Some(id);
                if more { &mut needed.more } else { &mut needed.once }.push(block, pool);
            }
        }
    }

    /// A block that a minibatch needs next, or needed when it was put there, and whether others did as well.
    fn pop(&mut self, id: EntryId, pool: &mut Pool) -> Option<(BlockId, bool)> {
        let needed = self.entries.get_mut(id.index as usize)?;
        let once = needed.once.pop(pool).map(|block| (block, false));
        once.or_else(|| needed.more.pop(pool).map(|block| (block, true)))
    }
}

impl NextUse {
    pub fn new(geometry: &Geometry) -> Self {
        let table = |_| Table { steps: Steps { first: 0, queues: VecDeque::new() }, entries: vec![] };
        NextUse {
            pool: Pool::new(),
            tables: (0..geometry.classes()).map(table).collect(),
            listed: BlockSet::new(geometry.blocks()),
            ranks: Ranks::default(),
            frequency: Frequency::new(geometry.blocks()),
        }
    }

    /// Where a block with uses belongs: to the minibatch that needs it first, or to one that holds it.
    fn next_use(&self, block: BlockId, view: &View) -> Option<Home> {
        let mut uses = view.window.uses(block).map(|user| user.entry);
        let first = uses.next()?;
        let Some(second) = uses.next() else { return Some(Home::Entry { id: first, more: false }) };
        let rank = |id: &EntryId| (!is_held(*id, view), self.ranks.rank(*id));
        let id = [first, second].into_iter().chain(uses).min_by_key(rank)?;
        Some(Home::Entry { id, more: true })
    }

    fn home(&self, block: BlockId, view: &View) -> Home {
        if !view.cache.has_slot(block) {
            return Home::Nowhere;
        }
        self.next_use(block, view).unwrap_or_else(|| Home::Step(self.frequency.step(block)))
    }

    fn list(&mut self, block: BlockId, view: &View) {
        if view.cache.has_slot(block) && self.listed.insert(block) {
            let home = self.home(block, view);
            self.tables[view.cache.table_of(block).index()].push(home, block, &mut self.pool);
        }
    }

    /// The least likely block that nobody in the window needs.
    fn unlikely(&mut self, table: TableId, view: &View) -> Option<BlockId> {
        while let Some((step, block)) = self.tables[table.index()].steps.pop(&mut self.pool) {
            match self.home(block, view) {
                Home::Step(now) if now <= step => {
                    self.listed.remove(block);
                    if view.cache.is_evictable(block) {
                        return Some(block);
                    }
                    // In flight: its arrival brings it back.
                }
                Home::Nowhere => self.listed.remove(block),
                home => self.tables[table.index()].push(home, block, &mut self.pool),
            }
        }
        None
    }

    /// A block of the minibatch that is used last, if later than `sooner_than`. `Err`: one that nobody needs any more
    /// was found.
    fn furthest(&mut self, table: TableId, sooner_than: u32, view: &View) -> Result<Option<BlockId>, ()> {
        for rank in (sooner_than.saturating_add(1)..self.ranks.len()).rev() {
            let Some(id) = self.ranks.at(rank) else { continue };
            if is_held(id, view) {
                continue;
            }
            while let Some((block, more)) = self.tables[table.index()].pop(id, &mut self.pool) {
                match self.home(block, view) {
                    Home::Entry { id: next, more: now } if next == id && (more || !now) => {
                        self.listed.remove(block);
                        if view.cache.is_evictable(block) {
                            return Ok(Some(block));
                        }
                    }
                    Home::Nowhere => self.listed.remove(block),
                    home => {
                        self.tables[table.index()].push(home, block, &mut self.pool);
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

/// Its blocks are pinned.
fn is_held(id: EntryId, view: &View) -> bool {
    view.window.entry(id).is_some_and(|entry| matches!(entry.phase, Phase::Reserved | Phase::Ready))
}

impl Order for NextUse {
    fn prepare(&mut self, view: &View) {
        self.ranks = Ranks::new(&view.window.by_time_of_use());
        // Blocks of minibatches that are gone: likely by their count, until their turn shows otherwise.
        for table in &mut self.tables {
            for at in 0..table.entries.len() {
                let Some(id) = table.entries[at].by.filter(|&id| view.window.entry(id).is_none()) else {
                    continue;
                };
                while let Some((block, _)) = table.pop(id, &mut self.pool) {
                    table.steps.push(self.frequency.step(block), block, &mut self.pool);
                }
                table.entries[at].by = None;
            }
        }
    }

    fn announced(&mut self, blocks: &[BlockRows], view: &View) {
        self.frequency.record(blocks, view.parameters.half_life_minibatches);
    }

    fn arrived(&mut self, rows: &[BlockRows], view: &View) {
        for rows in rows {
            self.list(rows.block, view);
        }
    }

    fn released(&mut self, _: EntryId, _: &[BlockRows], _: &View) {}

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
        self.ranks = Ranks::new(&view.window.by_time_of_use());
        for block in view.cache.resident() {
            self.list(block, view);
        }
    }

    fn likelihood(&self, block: BlockId) -> f32 {
        self.frequency.score(block)
    }

    fn memory_bytes(&self) -> usize {
        self.pool.memory_bytes() + self.listed.memory_bytes() + self.frequency.memory_bytes()
    }
}
