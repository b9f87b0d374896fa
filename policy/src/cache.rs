//! The cache index: which rows of which block are resident, in flight, pinned, and in which slot.
//!
//! 4 bytes a block and 32 a slot. It states facts; what to bring in and what to evict is the policies' business.

use crate::geometry::Geometry;
use rudder_graph::PartitionBook;
use rudder_topology::{BlockId, SlotId, TableId};

const NONE: u32 = u32::MAX;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    block: u32,
    pins: u32,
    /// Rows that can be read.
    valid: u64,
    in_flight: u64,
    /// Rows that came by prefetch and were not used since.
    unused: u64,
}

const FREE: Slot = Slot { block: NONE, pins: 0, valid: 0, in_flight: 0, unused: 0 };

/// Facts about residency. Mutated only by the engine.
#[derive(Clone, Debug)]
pub struct CacheIndex {
    slot_of: Vec<u32>,
    slots: Vec<Slot>,
    free: Vec<Vec<u32>>,
    pinned: Vec<u32>,
    geometry: Geometry,
}

impl CacheIndex {
    #[must_use]
    pub fn new(book: &PartitionBook, geometry: Geometry) -> Self {
        let tables = (0..geometry.classes()).map(|t| TableId(t as u16));
        CacheIndex {
            slot_of: vec![NONE; book.blocks() as usize],
            slots: vec![FREE; geometry.slots() as usize],
            free: tables.map(|t| geometry.class_slots(t).rev().collect()).collect(),
            pinned: vec![0; geometry.classes()],
            geometry,
        }
    }

    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The block's slot, if it has one.
    #[must_use]
    pub fn slot_of(&self, block: BlockId) -> Option<SlotId> {
        self.slot_of.get(block.index()).copied().filter(|&slot| slot != NONE).map(SlotId)
    }

    fn slot(&self, block: BlockId) -> Option<&Slot> {
        self.slot_of(block).map(|slot| &self.slots[slot.index()])
    }

    /// The block's slot with the rows that are resident or in flight in it.
    #[must_use]
    pub fn held(&self, block: BlockId) -> Option<(SlotId, u64)> {
        let slot = self.slot_of(block)?;
        let held = &self.slots[slot.index()];
        Some((slot, held.valid | held.in_flight))
    }

    /// The block in a slot.
    #[must_use]
    pub fn block_in(&self, slot: SlotId) -> Option<BlockId> {
        self.slots.get(slot.index()).filter(|slot| slot.block != NONE).map(|slot| BlockId(slot.block))
    }

    /// Rows that can be read.
    #[must_use]
    pub fn valid(&self, block: BlockId) -> u64 {
        self.slot(block).map_or(0, |slot| slot.valid)
    }

    #[must_use]
    pub fn in_flight(&self, block: BlockId) -> u64 {
        self.slot(block).map_or(0, |slot| slot.in_flight)
    }

    #[must_use]
    pub fn is_pinned(&self, block: BlockId) -> bool {
        self.slot(block).is_some_and(|slot| slot.pins > 0)
    }

    /// Resident, not pinned, nothing in flight: may be evicted.
    #[must_use]
    pub fn is_evictable(&self, block: BlockId) -> bool {
        self.slot(block).is_some_and(|slot| slot.pins == 0 && slot.in_flight == 0)
    }

    /// Free slots of a table's class.
    #[must_use]
    pub fn free_slots(&self, table: TableId) -> usize {
        self.free.get(table.index()).map_or(0, Vec::len)
    }

    /// Pinned slots of a table's class.
    #[must_use]
    pub fn pinned_slots(&self, table: TableId) -> usize {
        self.pinned.get(table.index()).map_or(0, |&pinned| pinned as usize)
    }

    /// Every block that has a slot.
    pub fn resident(&self) -> impl Iterator<Item = BlockId> {
        self.slots.iter().filter(|slot| slot.block != NONE).map(|slot| BlockId(slot.block))
    }

    /// Bytes of slots in use, and of all slots.
    #[must_use]
    pub fn occupancy_bytes(&self) -> (u64, u64) {
        let tables = (0..self.geometry.classes()).map(|t| TableId(t as u16));
        tables.fold((0, 0), |(used, all), table| {
            let slots = self.geometry.class_slots(table).len();
            let bytes = self.geometry.slot_bytes(table);
            (used + (slots - self.free_slots(table)) as u64 * bytes, all + slots as u64 * bytes)
        })
    }

    /// Gives the block a free slot; `false` if none is free. A block that has one keeps it.
    pub(crate) fn allocate(&mut self, block: BlockId, table: TableId) -> bool {
        if self.slot_of[block.index()] != NONE {
            return true;
        }
        let Some(slot) = self.free[table.index()].pop() else { return false };
        self.slots[slot as usize] = Slot { block: block.0, ..FREE };
        self.slot_of[block.index()] = slot;
        true
    }

    /// Frees the block's slot. The caller has checked that it is evictable. Returns the rows that were prefetched
    /// and never used.
    pub(crate) fn evict(&mut self, block: BlockId, table: TableId) -> u64 {
        let slot = std::mem::replace(&mut self.slot_of[block.index()], NONE);
        let held = std::mem::replace(&mut self.slots[slot as usize], FREE);
        debug_assert!(held.pins == 0 && held.in_flight == 0);
        self.free[table.index()].push(slot);
        held.unused
    }

    fn slot_mut(&mut self, block: BlockId) -> Option<&mut Slot> {
        match self.slot_of.get(block.index()) {
            Some(&slot) if slot != NONE => Some(&mut self.slots[slot as usize]),
            _ => None,
        }
    }

    pub(crate) fn depart(&mut self, block: BlockId, mask: u64) {
        if let Some(slot) = self.slot_mut(block) {
            slot.in_flight |= mask;
        }
    }

    /// Rows arrived. Returns (valid before, valid now).
    pub(crate) fn arrive(&mut self, block: BlockId, mask: u64, prefetched: u64) -> (u64, u64) {
        self.slot_mut(block).map_or((0, 0), |slot| {
            let before = slot.valid;
            slot.in_flight &= !mask;
            slot.valid |= mask;
            slot.unused |= prefetched & mask;
            (before, slot.valid)
        })
    }

    /// Rows did not arrive. A slot that holds nothing then, and that nobody pins, is freed.
    pub(crate) fn abandon(&mut self, block: BlockId, mask: u64, table: TableId) {
        let Some(slot) = self.slot_mut(block) else { return };
        slot.in_flight &= !mask;
        if slot.pins == 0 && slot.valid == 0 && slot.in_flight == 0 {
            self.evict(block, table);
        }
    }

    pub(crate) fn pin(&mut self, block: BlockId, table: TableId) {
        if let Some(slot) = self.slot_mut(block) {
            slot.pins += 1;
            if slot.pins == 1 {
                self.pinned[table.index()] += 1;
            }
        }
    }

    /// Drops a pin. A slot that holds nothing, and nothing on its way, is freed.
    pub(crate) fn unpin(&mut self, block: BlockId, table: TableId) {
        let Some(slot) = self.slot_mut(block) else { return };
        slot.pins -= 1;
        let (last, empty) = (slot.pins == 0, slot.valid == 0 && slot.in_flight == 0);
        if last {
            self.pinned[table.index()] -= 1;
            if empty {
                self.evict(block, table);
            }
        }
    }

    /// Marks rows as used; returns those that had come by prefetch and were not used before.
    pub(crate) fn mark_used(&mut self, block: BlockId, mask: u64) -> u64 {
        self.slot_mut(block).map_or(0, |slot| {
            let first = slot.unused & mask;
            slot.unused &= !mask;
            first
        })
    }
}
