//! CLOCK (Corbató 1968): a circle with a hand; who was used since the hand last came by gets another turn.

use super::{Eviction, ListId, Lists, Queues, one_list_each};
use crate::geometry::Geometry;
use crate::view::View;
use rudder_topology::{BlockId, TableId};

/// The hand stands before the first of each queue. A block enters behind the hand with its bit clear, as in
/// GraphBolt's CLOCK: only a second use sets it.
pub(in super::super) struct Clock {
    circles: Vec<ListId>,
    used: Vec<bool>,
}

impl Clock {
    pub fn new(geometry: &Geometry, lists: &mut Lists) -> Self {
        Clock { circles: one_list_each(geometry, lists), used: vec![false; geometry.slots() as usize] }
    }
}

impl Eviction for Clock {
    fn used(&mut self, _: BlockId, slot: Option<u32>, _: &mut Queues) {
        if let Some(slot) = slot {
            self.used[slot as usize] = true;
        }
    }

    fn enter(&mut self, table: TableId, slot: u32, _: BlockId, queues: &mut Queues) {
        self.used[slot as usize] = false;
        queues.lists.push_back(self.circles[table.index()], slot);
    }

    fn victim(&mut self, table: TableId, queues: &mut Queues, view: &View) -> Option<u32> {
        let circle = *self.circles.get(table.index())?;
        // Once round clears every bit, so the second round finds one that may go, if there is one.
        for _ in 0..2 * queues.lists.len(circle) {
            let slot = queues.lists.first(circle)?;
            queues.lists.remove(slot);
            if queues.may_go(slot, view) && !std::mem::take(&mut self.used[slot as usize]) {
                return Some(slot);
            }
            queues.lists.push_back(circle, slot);
        }
        None
    }

    fn reenter(&mut self, table: TableId, slot: u32, queues: &mut Queues) {
        queues.lists.push_front(self.circles[table.index()], slot);
    }

    fn clear(&mut self) {
        self.used.fill(false);
    }

    fn memory_bytes(&self) -> usize {
        self.used.capacity()
    }
}
