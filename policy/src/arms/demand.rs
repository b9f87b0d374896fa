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
    fn victim(&mut self, table: TableId, queues: &mut Queues) -> Option<u32>;

    /// A victim that stays after all gets its place back.
    fn reenter(&mut self, table: TableId, slot: u32, queues: &mut Queues);

    /// The slot, whose block is gone without having been a victim, is taken out of its queue.
    fn forget(&mut self, slot: u32, queues: &mut Queues) {
        queues.lists.remove(slot);
    }

    fn clear(&mut self);
}

/// Queues of slots, and which of them may go. 17 bytes a slot.
pub(super) struct Queues {
    pub lists: Lists,
    /// The block that each slot's place belongs to.
    blocks: Vec<u32>,
    may_go: Vec<bool>,
}

impl Queues {
    pub fn may_go(&self, slot: u32) -> bool {
        self.may_go[slot as usize]
    }

    pub fn block(&self, slot: u32) -> BlockId {
        BlockId(self.blocks[slot as usize])
    }
}

/// The order of an eviction algorithm.
pub(super) struct Demand<E> {
    eviction: E,
    queues: Queues,
    /// Blocks of each table that may go.
    lengths: Vec<usize>,
    /// Victims of this batch of events, which may come back.
    taken: Vec<(u32, BlockId)>,
}

impl<E: Eviction> Demand<E> {
    /// `eviction` makes the algorithm with a queue factory.
    pub fn new(geometry: &Geometry, eviction: impl FnOnce(&Geometry, &mut Lists) -> E) -> Self {
        let slots = geometry.slots() as usize;
        let mut lists = Lists::new(geometry.slots());
        let eviction = eviction(geometry, &mut lists);
        let queues = Queues { lists, blocks: vec![NONE; slots], may_go: vec![false; slots] };
        Demand { eviction, queues, lengths: vec![0; geometry.classes()], taken: vec![] }
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

    /// Whether the slot may go, with the table's count kept.
    fn set(&mut self, slot: u32, table: TableId, may_go: bool) {
        let was = std::mem::replace(&mut self.queues.may_go[slot as usize], may_go);
        let length = &mut self.lengths[table.index()];
        *length = *length + usize::from(may_go) - usize::from(was);
    }
}

impl<E: Eviction> Order for Demand<E> {
    fn prepare(&mut self, _: &View) {
        self.taken.clear();
    }

    fn place(&mut self, block: BlockId, view: &View) {
        let (Some(SlotId(slot)), Some(place)) = (view.cache.slot_of(block), view.book.block(block)) else {
            return;
        };
        self.give_place(block, slot, place.table);
        self.set(slot, place.table, true);
    }

    fn used(&mut self, blocks: &[BlockRows], view: &View) {
        for rows in blocks {
            let placed = self.placed(rows.block, view);
            self.eviction.used(rows.block, placed, &mut self.queues);
            if placed.is_none()
                && let (Some(slot), Some(place)) =
                    (view.cache.slot_of(rows.block), view.book.block(rows.block))
            {
                self.give_place(rows.block, slot.0, place.table);
            }
        }
    }

    fn remove(&mut self, block: BlockId, view: &View) {
        if let (Some(slot), Some(place)) = (self.placed(block, view), view.book.block(block)) {
            self.set(slot, place.table, false);
        }
    }

    fn len(&self, table: TableId) -> usize {
        self.lengths.get(table.index()).copied().unwrap_or(0)
    }

    fn contains(&self, block: BlockId, view: &View) -> bool {
        self.placed(block, view).is_some_and(|slot| self.queues.may_go(slot))
    }

    fn victim(&mut self, table: TableId, _: u32, view: &View) -> Option<BlockId> {
        if self.len(table) == 0 {
            return None;
        }
        loop {
            let slot = self.eviction.victim(table, &mut self.queues)?;
            let block = self.queues.block(slot);
            self.set(slot, table, false);
            self.queues.blocks[slot as usize] = NONE;
            // A failed transfer frees slots without a word.
            if view.cache.block_in(SlotId(slot)) == Some(block) {
                self.taken.push((slot, block));
                return Some(block);
            }
        }
    }

    fn clear(&mut self) {
        for slot in 0..self.queues.blocks.len() as u32 {
            self.eviction.forget(slot, &mut self.queues);
        }
        self.queues.blocks.fill(NONE);
        self.queues.may_go.fill(false);
        self.lengths.fill(0);
        self.eviction.clear();
    }
}

/// One queue a table.
fn one_list_each(geometry: &Geometry, lists: &mut Lists) -> Vec<ListId> {
    (0..geometry.classes()).map(|_| lists.add_list()).collect()
}
