//! Least recently used first.

use super::frequency::Frequency;
use super::lists::{ListId, Lists};
use super::order::Order;
use crate::geometry::Geometry;
use crate::view::View;
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, SlotId, TableId};

/// One list a table, least recently used at the front.
pub(super) struct Recency {
    lists: Lists,
    tables: Vec<ListId>,
    frequency: Frequency,
    slots: u32,
}

impl Recency {
    pub fn new(geometry: &Geometry) -> Self {
        let mut lists = Lists::new(geometry.slots());
        let tables = (0..geometry.classes()).map(|_| lists.add_list()).collect();
        Recency { lists, tables, frequency: Frequency::new(geometry.blocks()), slots: geometry.slots() }
    }
}

fn table_of(block: BlockId, view: &View) -> Option<TableId> {
    view.book.block(block).map(|place| place.table)
}

impl Order for Recency {
    fn prepare(&mut self, _: &View) {}

    fn place(&mut self, block: BlockId, view: &View) {
        let (Some(slot), Some(table)) = (view.cache.slot_of(block), table_of(block, view)) else { return };
        if self.lists.list_of(slot.0).is_none() {
            self.lists.push_back(self.tables[table.index()], slot.0);
        }
    }

    fn place_used(&mut self, block: BlockId, view: &View) {
        self.remove(block, view);
        self.place(block, view);
    }

    fn remove(&mut self, block: BlockId, view: &View) {
        if let Some(slot) = view.cache.slot_of(block) {
            self.lists.remove(slot.0);
        }
    }

    fn len(&self, table: TableId) -> usize {
        self.tables.get(table.index()).map_or(0, |&list| self.lists.len(list))
    }

    fn contains(&self, block: BlockId, view: &View) -> bool {
        view.cache.slot_of(block).is_some_and(|slot| self.lists.list_of(slot.0).is_some())
    }

    fn victim(&mut self, table: TableId, _: u32, view: &View) -> Option<BlockId> {
        let list = *self.tables.get(table.index())?;
        let slot = self.lists.first(list)?;
        self.lists.remove(slot);
        view.cache.block_in(SlotId(slot))
    }

    fn clear(&mut self) {
        for slot in 0..self.slots {
            self.lists.remove(slot);
        }
    }

    fn record(&mut self, blocks: &[BlockRows], half_life_minibatches: f32) {
        self.frequency.record(blocks, half_life_minibatches);
    }

    fn likelihood(&self, block: BlockId) -> f32 {
        self.frequency.score(block)
    }
}
