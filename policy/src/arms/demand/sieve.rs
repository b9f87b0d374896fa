//! SIEVE (Zhang et al., NSDI 2024): a queue in order of arrival and a hand that moves from old to new; who was used
//! since the hand last came by stays where it is.

use super::{Eviction, ListId, Lists, Queues, one_list_each};
use crate::geometry::Geometry;
use crate::view::View;
use rudder_topology::{BlockId, TableId};

/// Oldest at the front of each queue.
pub(in super::super) struct Sieve {
    queues: Vec<ListId>,
    /// The next slot that each hand looks at; `None`: the oldest.
    hands: Vec<Option<u32>>,
    visited: Vec<bool>,
}

impl Sieve {
    pub fn new(geometry: &Geometry, lists: &mut Lists) -> Self {
        Sieve {
            queues: one_list_each(geometry, lists),
            hands: vec![None; geometry.classes()],
            visited: vec![false; geometry.slots() as usize],
        }
    }
}

impl Eviction for Sieve {
    fn used(&mut self, _: BlockId, slot: Option<u32>, _: &mut Queues) {
        if let Some(slot) = slot {
            self.visited[slot as usize] = true;
        }
    }

    fn enter(&mut self, table: TableId, slot: u32, _: BlockId, queues: &mut Queues) {
        self.visited[slot as usize] = false;
        queues.lists.push_back(self.queues[table.index()], slot);
    }

    fn victim(&mut self, table: TableId, queues: &mut Queues, view: &View) -> Option<u32> {
        let queue = *self.queues.get(table.index())?;
        let hand = &mut self.hands[table.index()];
        for _ in 0..2 * queues.lists.len(queue) {
            let slot = hand.or_else(|| queues.lists.first(queue))?;
            *hand = queues.lists.next(slot);
            if queues.may_go(slot, view) && !std::mem::take(&mut self.visited[slot as usize]) {
                queues.lists.remove(slot);
                return Some(slot);
            }
        }
        None
    }

    fn reenter(&mut self, table: TableId, slot: u32, queues: &mut Queues) {
        queues.lists.push_front(self.queues[table.index()], slot);
    }

    fn forget(&mut self, slot: u32, queues: &mut Queues) {
        for hand in &mut self.hands {
            if *hand == Some(slot) {
                *hand = queues.lists.next(slot);
            }
        }
        queues.lists.remove(slot);
    }

    fn clear(&mut self) {
        self.hands.fill(None);
        self.visited.fill(false);
    }

    fn memory_bytes(&self) -> usize {
        self.visited.capacity()
    }
}
