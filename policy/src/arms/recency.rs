//! Least recently used first.

use super::frequency::Frequency;
use super::lists::{ListId, Lists};
use super::order::Order;
use crate::geometry::Geometry;
use crate::view::View;
use crate::window::EntryId;
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, SlotId, TableId};

/// One list a table, least recently used at the front. A block that is pinned keeps its place until its turn comes;
/// then it leaves, and its release brings it back.
pub(super) struct Recency {
    lists: Lists,
    tables: Vec<ListId>,
    /// Only for arms that speculate.
    frequency: Option<Frequency>,
    slots: u32,
}

impl Recency {
    /// `counts` makes it keep counts of use, for arms that ask for likelihoods.
    pub fn new(geometry: &Geometry, counts: bool) -> Self {
        let mut lists = Lists::new(geometry.slots());
        let tables = (0..geometry.classes()).map(|_| lists.add_list()).collect();
        let frequency = counts.then(|| Frequency::new(geometry.blocks()));
        Recency { lists, tables, frequency, slots: geometry.slots() }
    }

    fn place(&mut self, block: BlockId, view: &View) {
        let Some(slot) = view.cache.slot_of(block) else { return };
        if self.lists.list_of(slot.0).is_none() {
            self.lists.push_back(self.tables[view.cache.table_of(block).index()], slot.0);
        }
    }
}

impl Order for Recency {
    fn announced(&mut self, blocks: &[BlockRows], view: &View) {
        if let Some(frequency) = &mut self.frequency {
            frequency.record(blocks, view.parameters.half_life_minibatches);
        }
    }

    fn arrived(&mut self, rows: &[BlockRows], view: &View) {
        for rows in rows {
            self.place(rows.block, view);
        }
    }

    fn released(&mut self, _: EntryId, blocks: &[BlockRows], view: &View) {
        for rows in blocks {
            if let Some(slot) = view.cache.slot_of(rows.block)
                && view.cache.is_evictable(rows.block)
            {
                self.lists.remove(slot.0);
                self.place(rows.block, view);
            }
        }
    }

    fn victim(&mut self, table: TableId, _: u32, view: &View) -> Option<BlockId> {
        let list = *self.tables.get(table.index())?;
        while let Some(slot) = self.lists.first(list) {
            self.lists.remove(slot);
            let block = view.cache.block_in(SlotId(slot));
            if let Some(block) = block.filter(|&block| view.cache.is_evictable(block)) {
                return Some(block);
            }
        }
        None
    }

    fn restore(&mut self, block: BlockId, view: &View) {
        self.place(block, view);
    }

    fn rebuild(&mut self, view: &View) {
        for slot in 0..self.slots {
            self.lists.remove(slot);
        }
        for block in view.cache.resident() {
            self.place(block, view);
        }
    }

    fn likelihood(&self, block: BlockId) -> f32 {
        self.frequency.as_ref().map_or(f32::NEG_INFINITY, |frequency| frequency.score(block))
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes() + self.frequency.as_ref().map_or(0, Frequency::memory_bytes)
    }
}
