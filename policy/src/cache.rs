//! The cache index: which rows of which block are resident, in flight, pinned, and in which slot.
//!
//! 6 bytes a block and 4 a slot, and 16 more a slot where blocks have several rows. What most questions need stands
//! in the 2 bytes of a block's state: asked in ascending order of blocks, as minibatches name them, they are answered
//! at the speed of memory. It states facts; what to bring in and what to evict is the policies' business.

use crate::geometry::Geometry;
use rudder_graph::{BlockRows, PartitionBook};
use rudder_topology::{BlockId, SlotId, TableId};
use rustc_hash::FxHashMap;

mod resize;

const NONE: u32 = u32::MAX;

// A block's state: flags above, pins below.
const HAS_SLOT: u16 = 1 << 15;
/// Some rows can be read.
const VALID: u16 = 1 << 14;
/// Some rows are on their way.
const IN_FLIGHT: u16 = 1 << 13;
/// Some rows came by prefetch and were not used since.
const UNUSED: u16 = 1 << 12;
/// Its slot is beyond what the cache may use now: it goes as soon as nothing holds it.
const STRANDED: u16 = 1 << 11;
/// Also the most that a block can have at once.
const PINS: u16 = STRANDED - 1;

/// Rows of a slot whose blocks have several.
#[derive(Clone, Copy, Debug, Default)]
struct Masks {
    valid: u64,
    unused: u64,
}

/// What the blocks of a minibatch have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub without_slot: usize,
    pub pinned: usize,
    pub evictable: usize,
    /// Some block cannot be pinned once more.
    pub unpinnable: bool,
}

/// Slots of one table.
#[derive(Clone, Copy, Debug)]
struct Class {
    /// First block of the next table.
    blocks_end: u32,
    first_slot: u32,
    /// Slots that may be used, from the first on.
    usable: u32,
    first_free: u32,
    free: u32,
    pinned: u32,
    evictable: u32,
}

/// Facts about residency. Mutated only by the engine.
#[derive(Clone, Debug)]
pub struct CacheIndex {
    slot_of: Vec<u32>,
    state: Vec<u16>,
    /// Per slot its block; of a free slot, the next free one of its class.
    block_in: Vec<u32>,
    /// Empty where every block has one row: then the flags say it all.
    masks: Vec<Masks>,
    /// Rows on their way, by slot, where blocks have several.
    in_flight: FxHashMap<u32, u64>,
    classes: Vec<Class>,
    /// Blocks that were held in slots beyond the limit when it was set; some may be gone by now.
    stranded: Vec<BlockId>,
    geometry: Geometry,
}

impl CacheIndex {
    #[must_use]
    pub fn new(book: &PartitionBook, geometry: Geometry) -> Self {
        let tables = || (0..geometry.classes()).map(|t| TableId(t as u16));
        let slots = geometry.slots();
        let mut block_in: Vec<u32> = (1..=slots).collect();
        let mut blocks_end = 0;
        let mut classes = vec![];
        for table in tables() {
            let blocks: u32 = (0..book.parts())
                .map(|part| book.part_blocks(table, rudder_topology::PartId(part as u16)).len() as u32)
                .sum();
            blocks_end += blocks;
            let range = geometry.class_slots(table);
            if let Some(last) = range.clone().last() {
                block_in[last as usize] = NONE;
            }
            let free = range.len() as u32;
            let first_free = if free == 0 { NONE } else { range.start };
            let (first_slot, usable) = (range.start, free);
            classes.push(Class { blocks_end, first_slot, usable, first_free, free, pinned: 0, evictable: 0 });
        }
        let single = tables().all(|table| book.rows_per_block(table) == Some(1));
        CacheIndex {
            slot_of: vec![NONE; book.blocks() as usize],
            state: vec![0; book.blocks() as usize],
            block_in,
            masks: if single { vec![] } else { vec![Masks::default(); slots as usize] },
            in_flight: FxHashMap::default(),
            classes,
            stranded: vec![],
            geometry,
        }
    }

    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    fn state(&self, block: BlockId) -> u16 {
        self.state.get(block.index()).copied().unwrap_or(0)
    }

    #[inline]
    fn class_mut(&mut self, block: BlockId) -> &mut Class {
        let class = self.classes.iter().take_while(|class| class.blocks_end <= block.0).count();
        &mut self.classes[class]
    }

    /// The table of a block, which exists.
    #[inline]
    pub(crate) fn table_of(&self, block: BlockId) -> TableId {
        TableId(self.classes.iter().take_while(|class| class.blocks_end <= block.0).count() as u16)
    }

    /// The block's slot, if it has one.
    #[must_use]
    #[inline]
    pub fn slot_of(&self, block: BlockId) -> Option<SlotId> {
        self.slot_of.get(block.index()).copied().filter(|&slot| slot != NONE).map(SlotId)
    }

    #[must_use]
    #[inline]
    pub fn has_slot(&self, block: BlockId) -> bool {
        self.state(block) & HAS_SLOT != 0
    }

    /// The block in a slot.
    #[must_use]
    pub fn block_in(&self, slot: SlotId) -> Option<BlockId> {
        let block = BlockId(*self.block_in.get(slot.index())?);
        // A free slot's entry names another slot, and no block is in it.
        (self.slot_of(block) == Some(slot)).then_some(block)
    }

    /// Whether every block has one row.
    #[must_use]
    pub(crate) fn has_single_rows(&self) -> bool {
        self.masks.is_empty()
    }

    /// Rows that can be read.
    #[must_use]
    #[inline]
    pub fn valid(&self, block: BlockId) -> u64 {
        if self.state(block) & VALID == 0 {
            0
        } else if self.masks.is_empty() {
            1
        } else {
            self.masks[self.slot_of[block.index()] as usize].valid
        }
    }

    #[must_use]
    #[inline]
    pub fn in_flight(&self, block: BlockId) -> u64 {
        if self.state(block) & IN_FLIGHT == 0 {
            0
        } else if self.masks.is_empty() {
            1
        } else {
            self.in_flight.get(&self.slot_of[block.index()]).copied().unwrap_or(0)
        }
    }

    /// Rows that are resident or on their way.
    #[must_use]
    #[inline]
    pub fn held(&self, block: BlockId) -> u64 {
        if self.masks.is_empty() {
            u64::from(self.state(block) & (VALID | IN_FLIGHT) != 0)
        } else {
            self.valid(block) | self.in_flight(block)
        }
    }

    #[must_use]
    #[inline]
    pub fn is_pinned(&self, block: BlockId) -> bool {
        self.state(block) & PINS != 0
    }

    /// Resident, not pinned, nothing in flight: may be evicted.
    #[must_use]
    #[inline]
    pub fn is_evictable(&self, block: BlockId) -> bool {
        evictable(self.state(block))
    }

    /// Slots of a table's class that may be used: fewer than there are, after the cache was made smaller.
    #[must_use]
    #[inline]
    pub fn slots(&self, table: TableId) -> usize {
        self.classes.get(table.index()).map_or(0, |class| class.usable as usize)
    }

    /// Free slots of a table's class.
    #[must_use]
    pub fn free_slots(&self, table: TableId) -> usize {
        self.classes.get(table.index()).map_or(0, |class| class.free as usize)
    }

    /// Pinned slots of a table's class.
    #[must_use]
    pub fn pinned_slots(&self, table: TableId) -> usize {
        self.classes.get(table.index()).map_or(0, |class| class.pinned as usize)
    }

    /// Slots of a table's class whose blocks may be evicted.
    #[must_use]
    pub fn evictable_slots(&self, table: TableId) -> usize {
        self.classes.get(table.index()).map_or(0, |class| class.evictable as usize)
    }

    /// Every block that has a slot.
    pub fn resident(&self) -> impl Iterator<Item = BlockId> {
        (0..self.block_in.len() as u32).filter_map(|slot| self.block_in(SlotId(slot)))
    }

    /// Bytes of slots in use, and of all slots that may be used. Those that blocks have still to leave count as neither.
    #[must_use]
    pub fn occupancy_bytes(&self) -> (u64, u64) {
        let tables = (0..self.geometry.classes()).map(|t| TableId(t as u16));
        tables.fold((0, 0), |(used, all), table| {
            let slots = self.slots(table);
            let bytes = self.geometry.slot_bytes(table);
            (used + (slots - self.free_slots(table)) as u64 * bytes, all + slots as u64 * bytes)
        })
    }

    /// Bytes of the index itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let in_flight = self.in_flight.capacity() * (size_of::<(u32, u64)>() + 1);
        self.slot_of.capacity() * size_of::<u32>()
            + self.state.capacity() * size_of::<u16>()
            + self.block_in.capacity() * size_of::<u32>()
            + self.masks.capacity() * size_of::<Masks>()
            + in_flight
    }

    /// Brings what is known of these blocks near, as [`crate::window::Window::touch`] does.
    #[inline]
    pub(crate) fn touch(&self, blocks: impl Iterator<Item = u32>) {
        let read = |block: u32| {
            let at = block as usize;
            self.slot_of.get(at).copied().unwrap_or(0) | u32::from(self.state.get(at).copied().unwrap_or(0))
        };
        std::hint::black_box(blocks.map(read).fold(0, |all, fact| all | fact));
    }

    /// Brings what is known of these blocks' states near.
    #[inline]
    pub(crate) fn touch_states(&self, blocks: impl Iterator<Item = u32>) {
        let read = |block: u32| self.state.get(block as usize).copied().unwrap_or(0);
        std::hint::black_box(blocks.map(read).fold(0, |all, fact| all | fact));
    }

    /// Gives the block a free slot; `false` if none is free. A block that has one keeps it.
    #[inline]
    pub(crate) fn allocate(&mut self, block: BlockId) -> bool {
        if self.state[block.index()] & HAS_SLOT != 0 {
            return true;
        }
        let class = self.class_mut(block);
        if class.free == 0 {
            return false;
        }
        class.free -= 1;
        class.evictable += 1;
        let slot = class.first_free;
        let next = std::mem::replace(&mut self.block_in[slot as usize], block.0);
        self.class_mut(block).first_free = next;
        self.slot_of[block.index()] = slot;
        self.state[block.index()] = HAS_SLOT;
        true
    }

    /// Frees the block's slot. The caller has checked that it is evictable. Returns the rows that were prefetched
    /// and never used.
    #[inline]
    pub(crate) fn evict(&mut self, block: BlockId) -> u64 {
        let state = std::mem::replace(&mut self.state[block.index()], 0);
        debug_assert!(evictable(state & !STRANDED));
        let slot = std::mem::replace(&mut self.slot_of[block.index()], NONE);
        let unused = match self.masks.get_mut(slot as usize) {
            Some(masks) => std::mem::take(masks).unused,
            None => u64::from(state & UNUSED != 0),
        };
        let class = self.class_mut(block);
        class.evictable -= u32::from(evictable(state));
        self.block_in[slot as usize] = if slot - class.first_slot < class.usable {
            class.free += 1;
            std::mem::replace(&mut class.first_free, slot)
        } else {
            NONE
        };
        unused
    }

    /// Gives an evictable block's slot to one of the same table that has none: as [`CacheIndex::evict`] and
    /// [`CacheIndex::allocate`] do one after the other, in half of their accesses.
    #[inline]
    pub(crate) fn replace(&mut self, victim: BlockId, block: BlockId) -> u64 {
        if self.has_slot(block) {
            return self.evict(victim);
        }
        let state = std::mem::replace(&mut self.state[victim.index()], 0);
        debug_assert!(evictable(state));
        let slot = std::mem::replace(&mut self.slot_of[victim.index()], NONE);
        self.slot_of[block.index()] = slot;
        self.state[block.index()] = HAS_SLOT;
        self.block_in[slot as usize] = block.0;
        match self.masks.get_mut(slot as usize) {
            Some(masks) => std::mem::take(masks).unused,
            None => u64::from(state & UNUSED != 0),
        }
    }

    /// Changes a block's flags and pins, and the counts that depend on them.
    #[inline]
    fn set_state(&mut self, block: BlockId, next: u16) {
        let former = std::mem::replace(&mut self.state[block.index()], next);
        let class = self.class_mut(block);
        class.pinned += u32::from(next & PINS != 0);
        class.pinned -= u32::from(former & PINS != 0);
        class.evictable += u32::from(evictable(next));
        class.evictable -= u32::from(evictable(former));
    }

    /// Rows of a block that has a slot are on their way.
    pub(crate) fn depart(&mut self, block: BlockId, mask: u64) {
        let state = self.state(block);
        if state & HAS_SLOT == 0 || mask == 0 {
            return;
        }
        if !self.masks.is_empty() {
            *self.in_flight.entry(self.slot_of[block.index()]).or_default() |= mask;
        }
        self.set_state(block, state | IN_FLIGHT);
    }

    /// Rows are on their way no more; the state that leaves.
    fn land(&mut self, block: BlockId, mask: u64) -> u16 {
        let state = self.state(block);
        if self.masks.is_empty() {
            return if mask & 1 == 1 { state & !IN_FLIGHT } else { state };
        }
        let slot = self.slot_of[block.index()];
        let Some(moving) = self.in_flight.get_mut(&slot) else { return state & !IN_FLIGHT };
        *moving &= !mask;
        if *moving != 0 {
            return state;
        }
        self.in_flight.remove(&slot);
        state & !IN_FLIGHT
    }

    /// Rows arrived. Returns (valid before, valid now).
    pub(crate) fn arrive(&mut self, block: BlockId, mask: u64, prefetched: u64) -> (u64, u64) {
        if !self.has_slot(block) {
            return (0, 0);
        }
        let before = self.valid(block);
        let mut state = self.land(block, mask);
        let unused = prefetched & mask;
        let now = match self.masks.get_mut(self.slot_of[block.index()] as usize) {
            Some(masks) => {
                masks.valid |= mask;
                masks.unused |= unused;
                masks.valid
            }
            None => before | mask & 1,
        };
        state |= if now != 0 { VALID } else { 0 };
        state |= if unused != 0 { UNUSED } else { 0 };
        self.set_state(block, state);
        (before, now)
    }

    /// Rows did not arrive. A slot that holds nothing then, and that nobody pins, is freed.
    pub(crate) fn abandon(&mut self, block: BlockId, mask: u64) {
        if !self.has_slot(block) {
            return;
        }
        let state = self.land(block, mask);
        self.set_state(block, state);
        if state & (VALID | IN_FLIGHT | PINS) == 0 {
            self.evict(block);
        }
    }

    /// What these blocks have.
    #[must_use]
    pub(crate) fn standing(&self, blocks: &[BlockRows]) -> Standing {
        let mut standing = Standing::default();
        for rows in blocks {
            let state = self.state(rows.block);
            standing.without_slot += usize::from(state & HAS_SLOT == 0);
            standing.pinned += usize::from(state & PINS != 0);
            standing.evictable += usize::from(evictable(state));
            standing.unpinnable |= state & PINS == PINS || state & STRANDED != 0;
        }
        standing
    }

    /// Pins these blocks of a table, each with a slot: the caller has checked that there are enough. Returns how many
    /// lack rows.
    pub(crate) fn pin_all(&mut self, blocks: &[BlockRows], table: TableId) -> u32 {
        let (mut lacking, mut pinned, mut unevictable) = (0, 0, 0);
        for &BlockRows { block, mask } in blocks {
            let allocated = self.allocate(block);
            debug_assert!(allocated, "the validator checked capacity");
            let state = self.state[block.index()];
            pinned += u32::from(state & PINS == 0);
            unevictable += u32::from(evictable(state));
            self.state[block.index()] = state + u16::from(state & PINS < PINS);
            lacking += u32::from(mask & !self.valid(block) != 0);
        }
        let class = &mut self.classes[table.index()];
        class.pinned += pinned;
        class.evictable -= unevictable;
        lacking
    }

    /// Whether all of these rows are resident, and the block can be pinned once more.
    #[inline]
    pub(crate) fn can_pin(&self, rows: BlockRows) -> bool {
        let state = self.state(rows.block);
        state & (HAS_SLOT | STRANDED) == HAS_SLOT
            && state & PINS != PINS
            && rows.mask & !self.valid(rows.block) == 0
    }

    /// Drops a pin of each of these blocks of a table. A slot that holds nothing, and nothing on its way, is freed.
    pub(crate) fn unpin_all(&mut self, blocks: &[BlockRows], table: TableId) {
        let (mut unpinned, mut freed) = (0, 0);
        for &BlockRows { block, .. } in blocks {
            let former = self.state(block);
            if former & PINS == 0 {
                continue;
            }
            let state = former - 1;
            self.state[block.index()] = state;
            unpinned += u32::from(state & PINS == 0);
            freed += u32::from(evictable(state));
        }
        let class = &mut self.classes[table.index()];
        class.pinned -= unpinned;
        class.evictable += freed;
        for &BlockRows { block, .. } in blocks {
            if self.state(block) & (HAS_SLOT | VALID | IN_FLIGHT | PINS) == HAS_SLOT {
                self.evict(block);
            }
        }
    }

    /// Marks rows as used; returns those that had come by prefetch and were not used before.
    #[inline]
    pub(crate) fn mark_used(&mut self, block: BlockId, mask: u64) -> u64 {
        let state = self.state(block);
        if state & UNUSED == 0 {
            return 0;
        }
        let (first, left) = match self.masks.get_mut(self.slot_of[block.index()] as usize) {
            Some(masks) => {
                let first = masks.unused & mask;
                masks.unused &= !mask;
                (first, masks.unused)
            }
            None => (mask & 1, !mask & 1),
        };
        if left == 0 {
            self.state[block.index()] = state & !UNUSED;
        }
        first
    }
}

#[inline]
fn evictable(state: u16) -> bool {
    state & (HAS_SLOT | IN_FLIGHT | PINS | STRANDED) == HAS_SLOT
}
