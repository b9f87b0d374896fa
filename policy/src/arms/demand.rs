//! Demand caching: an order that is one of the published eviction algorithms.
//!
//! Those are defined for single requests. Here a minibatch is one request for all of its blocks: on a miss victims
//! are chosen for all missing blocks at once, none of them its own; on its release, in ascending order of ids, each
//! block that was resident counts a hit and each other one enters. A pinned block keeps its place in its queue and is
//! passed over.

use super::lists::{ListId, Lists};
use super::order::Order;
use crate::geometry::Geometry;
use crate::view::View;
use crate::window::EntryId;
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, SlotId, TableId};

mod clock;
mod lfu;
mod s3fifo;
mod sieve;

pub(super) use clock::Clock;
pub(super) use lfu::Lfu;
pub(super) use s3fifo::S3Fifo;
pub(super) use sieve::Sieve;

const NONE: u32 = u32::MAX;

/// An eviction algorithm over slots.
pub(super) trait Eviction: Send {
    /// A minibatch used the block, which has a place in `slot`, or `None` if it enters after this.
    fn used(&mut self, block: BlockId, slot: Option<u32>, queues: &mut Queues);

    /// The block gets a place.
    fn enter(&mut self, table: TableId, slot: u32, block: BlockId, queues: &mut Queues);

    /// Takes the slot of the block that goes next out of its queue.
    fn victim(&mut self, table: TableId, queues: &mut Queues, view: &View) -> Option<u32>;

    /// A victim that stays after all gets its place back.
    fn reenter(&mut self, table: TableId, slot: u32, queues: &mut Queues);

    /// The slot, whose block is gone without having been a victim, is taken out of its queue.
    fn forget(&mut self, slot: u32, queues: &mut Queues) {
        queues.lists.remove(slot);
    }

    fn clear(&mut self);

    /// Bytes beyond the queues.
    fn memory_bytes(&self) -> usize;
}

/// Queues of slots, and which of them may go. 17 bytes a slot.
pub(super) struct Queues {
    pub lists: Lists,
    /// The block that each slot's place belongs to.
    blocks: Vec<u32>,
    /// Blocks of a reservation that is being planned.
    spared: Vec<bool>,
}

impl Queues {
    /// Whether its block may be evicted. A place whose block is gone may go as well: a failed transfer frees slots
    /// without a word.
    pub fn may_go(&self, slot: u32, view: &View) -> bool {
        let block = self.block(slot);
        let gone = || view.cache.slot_of(block) != Some(SlotId(slot));
        !self.spared[slot as usize] && view.cache.is_evictable(block) || gone()
    }

    pub fn block(&self, slot: u32) -> BlockId {
        BlockId(self.blocks[slot as usize])
    }
}

/// The order of an eviction algorithm.
pub(super) struct Demand<E> {
    eviction: E,
    queues: Queues,
    spared: Vec<u32>,
    /// Victims of this batch of events, which may come back.
    taken: Vec<(u32, BlockId)>,
}

impl<E: Eviction> Demand<E> {
    /// `eviction` makes the algorithm with a queue factory.
    pub fn new(geometry: &Geometry, eviction: impl FnOnce(&Geometry, &mut Lists) -> E) -> Self {
        let slots = geometry.slots() as usize;
        let mut lists = Lists::new(geometry.slots());
        let eviction = eviction(geometry, &mut lists);
        let queues = Queues { lists, blocks: vec![NONE; slots], spared: vec![false; slots] };
        Demand { eviction, queues, spared: vec![], taken: vec![] }
    }

    /// The slot in which the block has a place.
    fn placed(&self, block: BlockId, view: &View) -> Option<u32> {
        let slot = view.cache.slot_of(block)?.0;
        (self.queues.blocks[slot as usize] == block.0).then_some(slot)
    }

    /// Lets the block enter, or a victim come back, where it has no place.
    fn give_place(&mut self, block: BlockId, slot: u32, table: TableId) {
        if self.queues.blocks[slot as usize] == block.0 {
            return;
        }
        self.eviction.forget(slot, &mut self.queues);
        self.queues.blocks[slot as usize] = block.0;
        match self.taken.iter().position(|&victim| victim == (slot, block)) {
            Some(victim) => {
                self.taken.swap_remove(victim);
                self.eviction.reenter(table, slot, &mut self.queues);
            }
            None => self.eviction.enter(table, slot, block, &mut self.queues),
        }
    }

    /// Where the block may go: a place for it, if it has none.
    fn place(&mut self, block: BlockId, view: &View) {
        if let Some(slot) = view.cache.slot_of(block).filter(|_| view.cache.is_evictable(block)) {
            self.give_place(block, slot.0, view.cache.table_of(block));
        }
    }
}

impl<E: Eviction> Order for Demand<E> {
    fn prepare(&mut self, _: &View) {
        self.taken.clear();
        for slot in self.spared.drain(..) {
            self.queues.spared[slot as usize] = false;
        }
    }

    fn arrived(&mut self, rows: &[BlockRows], view: &View) {
        for rows in rows {
            self.place(rows.block, view);
        }
    }

    fn released(&mut self, _: EntryId, blocks: &[BlockRows], view: &View) {
        for rows in blocks {
            let placed = self.placed(rows.block, view);
            self.eviction.used(rows.block, placed, &mut self.queues);
            if placed.is_none()
                && let Some(slot) = view.cache.slot_of(rows.block)
            {
                self.give_place(rows.block, slot.0, view.cache.table_of(rows.block));
            }
        }
    }

    fn victim(&mut self, table: TableId, _: u32, view: &View) -> Option<BlockId> {
        if view.cache.evictable_slots(table) == 0 {
            return None;
        }
        loop {
            let slot = self.eviction.victim(table, &mut self.queues, view)?;
            let block = self.queues.block(slot);
            self.queues.blocks[slot as usize] = NONE;
            if view.cache.block_in(SlotId(slot)) == Some(block) {
                self.taken.push((slot, block));
                return Some(block);
            }
        }
    }

    fn spare(&mut self, blocks: &[BlockRows], view: &View) {
        for slot in blocks.iter().filter_map(|rows| view.cache.slot_of(rows.block)) {
            self.queues.spared[slot.index()] = true;
            self.spared.push(slot.0);
        }
    }

    fn unspare(&mut self, blocks: &[BlockRows], view: &View) {
        for slot in blocks.iter().filter_map(|rows| view.cache.slot_of(rows.block)) {
            self.queues.spared[slot.index()] = false;
        }
    }

    fn restore(&mut self, block: BlockId, view: &View) {
        self.place(block, view);
    }

    fn rebuild(&mut self, view: &View) {
        for slot in 0..self.queues.blocks.len() as u32 {
            self.eviction.forget(slot, &mut self.queues);
        }
        self.queues.blocks.fill(NONE);
        self.queues.spared.fill(false);
        self.spared.clear();
        self.eviction.clear();
        for block in view.cache.resident() {
            self.place(block, view);
        }
    }

    fn memory_bytes(&self) -> usize {
        let blocks = self.queues.blocks.capacity() * size_of::<u32>();
        self.queues.lists.memory_bytes()
            + blocks
            + self.queues.spared.capacity()
            + self.eviction.memory_bytes()
    }
}

/// One queue a table.
fn one_list_each(geometry: &Geometry, lists: &mut Lists) -> Vec<ListId> {
    (0..geometry.classes()).map(|_| lists.add_list()).collect()
}
