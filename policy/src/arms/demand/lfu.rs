//! LFU: the block that was used least often goes first, of those the one that was used least recently.

use super::{Eviction, ListId, Lists, Queues};
use crate::geometry::Geometry;
use crate::view::View;
use rudder_topology::{BlockId, TableId};
use std::collections::BTreeMap;

/// Counts survive eviction (often called perfect LFU): 4 bytes a block. Per table one queue for each count that occurs,
/// least recently used at the front.
pub(in super::super) struct Lfu {
    counts: Vec<u32>,
    by_count: Vec<BTreeMap<u32, ListId>>,
    /// Table and count whose queue each slot is in.
    homes: Vec<(TableId, u32)>,
}

impl Lfu {
    pub fn new(geometry: &Geometry, _: &mut Lists) -> Self {
        Lfu {
            counts: vec![0; geometry.blocks() as usize],
            by_count: vec![BTreeMap::new(); geometry.classes()],
            homes: vec![(TableId(0), 0); geometry.slots() as usize],
        }
    }

    fn home(&mut self, table: TableId, slot: u32, queues: &mut Queues) -> ListId {
        let count = self.counts[queues.block(slot).index()];
        self.homes[slot as usize] = (table, count);
        *self.by_count[table.index()].entry(count).or_insert_with(|| queues.lists.add_list())
    }

    /// Takes the slot out; a queue that is empty then is given back.
    fn unlink(&mut self, slot: u32, queues: &mut Queues) -> Option<TableId> {
        let list = queues.lists.remove(slot)?;
        let (table, count) = self.homes[slot as usize];
        if queues.lists.len(list) == 0 {
            self.by_count[table.index()].remove(&count);
            queues.lists.drop_list(list);
        }
        Some(table)
    }
}

impl Eviction for Lfu {
    fn used(&mut self, block: BlockId, slot: Option<u32>, queues: &mut Queues) {
        self.counts[block.index()] = self.counts[block.index()].saturating_add(1);
        if let Some(slot) = slot
            && let Some(table) = self.unlink(slot, queues)
        {
            let list = self.home(table, slot, queues);
            queues.lists.push_back(list, slot);
        }
    }

    fn enter(&mut self, table: TableId, slot: u32, _: BlockId, queues: &mut Queues) {
        let list = self.home(table, slot, queues);
        queues.lists.push_back(list, slot);
    }

    fn victim(&mut self, table: TableId, queues: &mut Queues, view: &View) -> Option<u32> {
        let lists = &queues.lists;
        let queued = |&list: &ListId| std::iter::successors(lists.first(list), |&slot| lists.next(slot));
        let mut slots = self.by_count.get(table.index())?.values().flat_map(queued);
        let slot = slots.find(|&slot| queues.may_go(slot, view))?;
        self.unlink(slot, queues);
        Some(slot)
    }

    fn reenter(&mut self, table: TableId, slot: u32, queues: &mut Queues) {
        let list = self.home(table, slot, queues);
        queues.lists.push_front(list, slot);
    }

    fn forget(&mut self, slot: u32, queues: &mut Queues) {
        self.unlink(slot, queues);
    }

    fn clear(&mut self) {}

    fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u32>() + self.homes.capacity() * size_of::<(TableId, u32)>()
    }
}
