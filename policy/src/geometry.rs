//! How the shared memory is cut into slots: one size class per feature table, whole slots per chunk.

use rudder_graph::PartitionBook;
use rudder_topology::{Bytes, ChunkId, SlotId, TableId};

/// The slots of a cache. Slot ids count class by class.
#[derive(Clone, Debug)]
pub struct Geometry {
    classes: Vec<SlotClass>,
    chunk_bytes: u64,
    chunks: u16,
    blocks: u32,
}

#[derive(Clone, Copy, Debug)]
struct SlotClass {
    slot_bytes: u64,
    first_slot: u32,
    slots: u32,
    first_chunk: u16,
    slots_per_chunk: u32,
    /// 2^64 / slots_per_chunk, rounded up; 0 stands for 2^64. Every slot of every minibatch is divided by it.
    reciprocal: u64,
}

/// The budget cannot hold one slot of every table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a cache of {budget} cannot hold one block of {slot} of {table}; raise `cache` or lower rows_per_block"
)]
pub struct CacheTooSmall {
    pub budget: Bytes,
    pub slot: Bytes,
    pub table: TableId,
}

/// Chunks are this large unless the budget is smaller: few enough to pass, small enough to free one at a time.
pub const CHUNK_BYTES: u64 = 64 << 20;

fn slot_bytes(book: &PartitionBook, table: TableId) -> u64 {
    u64::from(book.block_bytes(table).unwrap_or(0)).max(1)
}

/// Divides a budget over the tables by their bytes: the slots that each of them gets.
pub(crate) fn slots_within(book: &PartitionBook, budget: Bytes) -> Result<Vec<u32>, CacheTooSmall> {
    let tables = (0..book.tables()).map(|t| TableId(t as u16));
    let bytes_of = |t: TableId| book.rows(t) * u64::from(book.row_bytes(t).unwrap_or(0));
    let total: u128 = tables.clone().map(|t| u128::from(bytes_of(t))).sum::<u128>().max(1);
    let slots = |table| {
        let slot_bytes = slot_bytes(book, table);
        let share = (u128::from(budget.0) * u128::from(bytes_of(table)) / total) as u64;
        let slots = (share / slot_bytes).min(u64::from(book.blocks())) as u32;
        if slots == 0 && bytes_of(table) > 0 {
            return Err(CacheTooSmall { budget, slot: Bytes(slot_bytes), table });
        }
        Ok(slots)
    };
    tables.map(slots).collect()
}

impl Geometry {
    /// Slots start at multiples of their row's size within a chunk, chunks hold whole slots.
    pub fn new(book: &PartitionBook, budget: Bytes) -> Result<Self, CacheTooSmall> {
        let tables = (0..book.tables()).map(|t| TableId(t as u16));
        let largest = tables.clone().map(|t| u64::from(book.block_bytes(t).unwrap_or(0))).max().unwrap_or(0);
        let chunk_bytes = CHUNK_BYTES.max(largest).min(budget.0.max(largest)).next_multiple_of(4096);
        let mut geometry = Geometry { classes: vec![], chunk_bytes, chunks: 0, blocks: book.blocks() };
        let mut next_slot = 0_u32;
        for (table, slots) in tables.zip(slots_within(book, budget)?) {
            let slot_bytes = slot_bytes(book, table);
            let slots_per_chunk = (chunk_bytes / slot_bytes).max(1) as u32;
            geometry.classes.push(SlotClass {
                slot_bytes,
                first_slot: next_slot,
                slots,
                first_chunk: geometry.chunks,
                slots_per_chunk,
                reciprocal: (u64::MAX / u64::from(slots_per_chunk)).wrapping_add(1),
            });
            geometry.chunks += slots.div_ceil(slots_per_chunk) as u16;
            next_slot += slots;
        }
        Ok(geometry)
    }

    /// Blocks of the dataset.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Bytes of each chunk: a class's last one holds only what its slots need, in whole pages.
    #[must_use]
    pub fn chunks(&self) -> Vec<u64> {
        let mut bytes = vec![];
        for class in &self.classes {
            let mut left = class.slots;
            while left > 0 {
                let here = left.min(class.slots_per_chunk);
                bytes.push((u64::from(here) * class.slot_bytes).next_multiple_of(4096));
                left -= here;
            }
        }
        bytes
    }

    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Slots of all classes.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.classes.iter().map(|class| class.slots).sum()
    }

    /// The slots of a table's class.
    #[must_use]
    pub fn class_slots(&self, table: TableId) -> std::ops::Range<u32> {
        self.classes.get(table.index()).map_or(0..0, |class| class.first_slot..class.first_slot + class.slots)
    }

    /// Bytes of one slot of the class.
    #[must_use]
    pub fn slot_bytes(&self, table: TableId) -> u64 {
        self.classes.get(table.index()).map_or(0, |class| class.slot_bytes)
    }

    /// Where a slot begins.
    ///
    /// # Panics
    /// If the slot does not exist.
    #[must_use]
    pub fn place(&self, slot: SlotId) -> (ChunkId, u64) {
        let class = self.classes.iter().take_while(|class| class.first_slot + class.slots <= slot.0).count();
        let class = &self.classes[class];
        let within = slot.0 - class.first_slot;
        // Exact for 32-bit numbers (Lemire, Kaser, Kurz 2019).
        let chunk = match class.reciprocal {
            0 => within,
            reciprocal => ((u128::from(within) * u128::from(reciprocal)) >> 64) as u32,
        };
        let in_chunk = within - chunk * class.slots_per_chunk;
        (ChunkId(class.first_chunk + chunk as u16), u64::from(in_chunk) * class.slot_bytes)
    }
}
