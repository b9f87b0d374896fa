//! S3-FIFO (Yang et al., SOSP 2023): a small queue of newcomers that filters out what is used once, a main queue, and
//! a ghost queue of the ids that the small one let go.

use super::{Eviction, ListId, Lists, Queues, one_list_each};
use crate::geometry::Geometry;
use crate::view::View;
use rudder_topology::{BlockId, TableId};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// The small queue's share of the slots is one in this many.
const SMALL_DIVISOR: usize = 10;
/// Uses are counted up to this.
const USES_MAX: u8 = 3;

/// Oldest at the front of each queue. As published: newcomers go to the small queue, those that its ghost remembers to
/// the main one. While the small queue holds at least a tenth of the slots, its oldest goes: to the main queue if it
/// was used more than once since it entered, else out. Otherwise the main queue's oldest goes, unless it was used
/// since: then it is put back with one use less. The ghost remembers as many ids as the main queue has slots.
pub(in super::super) struct S3Fifo {
    tables: Vec<Table>,
    uses: Vec<u8>,
}

struct Table {
    small: ListId,
    main: ListId,
    ghost: Ghost,
}

/// Slots of the small queue and of the main one.
fn shares(table: TableId, view: &View) -> (usize, usize) {
    let slots = view.cache.slots(table);
    let small = (slots / SMALL_DIVISOR).max(1);
    (small, slots - small.min(slots))
}

/// Ids in order of departure, the number of each one's latest entry beside it.
#[derive(Default)]
struct Ghost {
    queue: VecDeque<(BlockId, u64)>,
    latest: FxHashMap<BlockId, u64>,
    entries: u64,
}

impl Ghost {
    fn push(&mut self, block: BlockId, most: usize) {
        self.entries += 1;
        self.queue.push_back((block, self.entries));
        self.latest.insert(block, self.entries);
        while self.latest.len() > most {
            let Some((block, entry)) = self.queue.pop_front() else { return };
            if self.latest.get(&block) == Some(&entry) {
                self.latest.remove(&block);
            }
        }
        // Who came back left an entry behind.
        if self.queue.len() > 2 * most + 16 {
            let Ghost { queue, latest, .. } = self;
            queue.retain(|(block, entry)| latest.get(block) == Some(entry));
        }
    }

    fn memory_bytes(&self) -> usize {
        self.queue.capacity() * size_of::<(BlockId, u64)>()
            + self.latest.capacity() * (size_of::<(BlockId, u64)>() + 1)
    }

    fn take(&mut self, block: BlockId) -> bool {
        self.latest.remove(&block).is_some()
    }
}

impl S3Fifo {
    pub fn new(geometry: &Geometry, lists: &mut Lists) -> Self {
        let (small, main) = (one_list_each(geometry, lists), one_list_each(geometry, lists));
        let table = |(small, main)| Table { small, main, ghost: Ghost::default() };
        let tables = small.into_iter().zip(main).map(table).collect();
        S3Fifo { tables, uses: vec![0; geometry.slots() as usize] }
    }
}

impl Table {
    /// The oldest of the small queue that may go, after those that were used often have moved to the main queue.
    fn small_victim(
        &mut self,
        main_slots: usize,
        uses: &mut [u8],
        queues: &mut Queues,
        view: &View,
    ) -> Option<u32> {
        let mut next = queues.lists.first(self.small);
        while let Some(slot) = next {
            next = queues.lists.next(slot);
            if !queues.may_go(slot, view) {
                continue;
            }
            queues.lists.remove(slot);
            if uses[slot as usize] <= 1 {
                self.ghost.push(queues.block(slot), main_slots);
                return Some(slot);
            }
            uses[slot as usize] = 0;
            queues.lists.push_back(self.main, slot);
            if queues.lists.len(self.main) > main_slots
                && let Some(slot) = self.main_victim(uses, queues, view)
            {
                return Some(slot);
            }
        }
        None
    }

    fn main_victim(&mut self, uses: &mut [u8], queues: &mut Queues, view: &View) -> Option<u32> {
        // Each round takes one use from every slot that may go.
        for _ in 0..=USES_MAX {
            let mut next = queues.lists.first(self.main);
            for _ in 0..queues.lists.len(self.main) {
                let slot = next?;
                next = queues.lists.next(slot);
                if !queues.may_go(slot, view) {
                    continue;
                }
                queues.lists.remove(slot);
                if uses[slot as usize] == 0 {
                    return Some(slot);
                }
                uses[slot as usize] -= 1;
                queues.lists.push_back(self.main, slot);
                next = next.or(Some(slot));
            }
        }
        None
    }
}

impl Eviction for S3Fifo {
    fn used(&mut self, _: BlockId, slot: Option<u32>, _: &mut Queues) {
        if let Some(slot) = slot {
            let uses = &mut self.uses[slot as usize];
            *uses = (*uses + 1).min(USES_MAX);
        }
    }

    fn enter(&mut self, table: TableId, slot: u32, block: BlockId, queues: &mut Queues) {
        let table = &mut self.tables[table.index()];
        self.uses[slot as usize] = 0;
        let list = if table.ghost.take(block) { table.main } else { table.small };
        queues.lists.push_back(list, slot);
    }

    fn victim(&mut self, table: TableId, queues: &mut Queues, view: &View) -> Option<u32> {
        let (small_slots, main_slots) = shares(table, view);
        let table = self.tables.get_mut(table.index())?;
        let uses = &mut self.uses;
        if queues.lists.len(table.small) >= small_slots {
            let small = table.small_victim(main_slots, uses, queues, view);
            small.or_else(|| table.main_victim(uses, queues, view))
        } else {
            let main = table.main_victim(uses, queues, view);
            main.or_else(|| table.small_victim(main_slots, uses, queues, view))
        }
    }

    fn reenter(&mut self, table: TableId, slot: u32, queues: &mut Queues) {
        let table = &mut self.tables[table.index()];
        let list = if table.ghost.take(queues.block(slot)) { table.small } else { table.main };
        queues.lists.push_front(list, slot);
    }

    fn clear(&mut self) {
        self.uses.fill(0);
    }

    fn memory_bytes(&self) -> usize {
        let ghosts = self.tables.iter().map(|table| table.ghost.memory_bytes());
        self.uses.capacity() + ghosts.sum::<usize>()
    }
}
