//! The partition book: row -> (part, block, row in block), by a search in the offsets and a shift.

use crate::manifest::Manifest;
use rudder_topology::{BlockId, PartId, TableId};

/// Where every row and block of a dataset lies. Block ids count table by table, part by part, so that the
/// blocks of a part in a table are consecutive.
#[derive(Clone, Debug)]
pub struct PartitionBook {
    tables: Vec<Table>,
    parts: usize,
}

#[derive(Clone, Debug)]
struct Table {
    row_offsets: Vec<u64>,
    guide: Guide,
    /// First block of each part, and one past the last; ascending over all tables.
    block_offsets: Vec<u32>,
    shift: u32,
    row_bytes: u32,
}

/// Narrows the search for a row's part: rows fall into equal ranges, and for each it is known which part its
/// first row is in. With parts of similar size that leaves one or two candidates, however many parts there are.
#[derive(Clone, Debug)]
struct Guide {
    shift: u32,
    /// The part of the first row of each range, and the last part at the end.
    first_parts: Vec<u16>,
}

/// Ranges of a guide at most, less one.
const GUIDE_RANGES: u64 = 4096;

impl Guide {
    fn new(row_offsets: &[u64]) -> Self {
        let rows = *row_offsets.last().expect("never empty");
        let shift = (rows / GUIDE_RANGES).checked_ilog2().map_or(0, |log| log + 1);
        let ranges = rows.div_ceil(1 << shift);
        let part_of = |row: u64| row_offsets.partition_point(|&start| start <= row).max(1) - 1;
        let last = row_offsets.len().saturating_sub(2) as u16;
        let first_parts = (0..ranges).map(|range| part_of(range << shift) as u16).chain([last]).collect();
        Guide { shift, first_parts }
    }

    fn part(&self, row_offsets: &[u64], row: u64) -> Option<usize> {
        if row >= *row_offsets.last()? {
            return None;
        }
        let range = (row >> self.shift) as usize;
        let (first, last) = (usize::from(self.first_parts[range]), usize::from(self.first_parts[range + 1]));
        if first == last {
            return Some(first);
        }
        // Empty parts share an offset: the last part that starts at or before the row owns it.
        Some(first + row_offsets[first + 1..=last].partition_point(|&start| start <= row))
    }
}

/// A row's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlace {
    pub part: PartId,
    pub block: BlockId,
    /// Row within the block, below `rows_per_block`.
    pub row: u8,
}

/// A block's place and shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    pub table: TableId,
    pub part: PartId,
    /// Block within the part's feature file.
    pub index: u32,
    /// Rows that exist; the last block of a part may be short.
    pub rows: u8,
    /// Bytes of one row.
    pub row_bytes: u32,
}

impl BlockPlace {
    /// The mask with a bit for every row that exists.
    #[must_use]
    pub fn full_mask(&self) -> u64 {
        u64::MAX >> (64 - u32::from(self.rows))
    }
}

impl PartitionBook {
    /// The book of a checked manifest.
    ///
    /// # Panics
    /// If the manifest did not pass [`Manifest::check`].
    #[must_use]
    pub fn new(manifest: &Manifest) -> Self {
        let parts = manifest.part_offsets.len() - 1;
        let mut next_block = 0_u32;
        let tables = manifest
            .tables
            .iter()
            .map(|spec| {
                let mut block_offsets = vec![next_block];
                for range in spec.row_offsets.windows(2) {
                    let blocks = (range[1] - range[0]).div_ceil(u64::from(spec.rows_per_block));
                    next_block += u32::try_from(blocks).expect("checked manifest: block ids fit u32");
                    block_offsets.push(next_block);
                }
                Table {
                    guide: Guide::new(&spec.row_offsets),
                    row_offsets: spec.row_offsets.clone(),
                    block_offsets,
                    shift: spec.rows_per_block.trailing_zeros(),
                    row_bytes: u32::try_from(spec.row_bytes()).expect("checked manifest: row fits u32"),
                }
            })
            .collect();
        PartitionBook { tables, parts }
    }

    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts
    }

    #[must_use]
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    /// Blocks of all tables; block ids are below.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.tables.last().map_or(0, |table| *table.block_offsets.last().expect("never empty"))
    }

    /// Rows of a table.
    #[must_use]
    pub fn rows(&self, table: TableId) -> u64 {
        self.tables.get(table.index()).map_or(0, |t| *t.row_offsets.last().expect("never empty"))
    }

    /// Bytes of one row, `None` for an unknown table.
    #[must_use]
    pub fn row_bytes(&self, table: TableId) -> Option<u32> {
        self.tables.get(table.index()).map(|t| t.row_bytes)
    }

    #[must_use]
    pub fn rows_per_block(&self, table: TableId) -> Option<u32> {
        self.tables.get(table.index()).map(|t| 1 << t.shift)
    }

    /// Bytes of a full block of the table: its slot's size class.
    #[must_use]
    pub fn block_bytes(&self, table: TableId) -> Option<u32> {
        self.tables.get(table.index()).map(|t| t.row_bytes << t.shift)
    }

    /// Where a row lies; `None` if the table or row does not exist.
    #[must_use]
    pub fn locate(&self, table: TableId, row: u64) -> Option<RowPlace> {
        let t = self.tables.get(table.index())?;
        let part = t.guide.part(&t.row_offsets, row)?;
        let row_in_part = row - t.row_offsets[part];
        let block = BlockId(t.block_offsets[part] + (row_in_part >> t.shift) as u32);
        let row = (row_in_part & ((1 << t.shift) - 1)) as u8;
        Some(RowPlace { part: PartId(part as u16), block, row })
    }

    /// Where a block lies; `None` for an unknown id.
    #[must_use]
    pub fn block(&self, block: BlockId) -> Option<BlockPlace> {
        let table = self.tables.partition_point(|t| *t.block_offsets.last().expect("never empty") <= block.0);
        let t = self.tables.get(table)?;
        let part = t.block_offsets.partition_point(|&first| first <= block.0).checked_sub(1)?;
        let index = block.0 - t.block_offsets[part];
        let rows_in_part = t.row_offsets[part + 1] - t.row_offsets[part];
        let rows = (rows_in_part - (u64::from(index) << t.shift)).min(1 << t.shift);
        Some(BlockPlace {
            table: TableId(table as u16),
            part: PartId(part as u16),
            index,
            rows: rows as u8,
            row_bytes: t.row_bytes,
        })
    }

    /// The blocks of a part in a table, as a range of ids.
    #[must_use]
    pub fn part_blocks(&self, table: TableId, part: PartId) -> std::ops::Range<u32> {
        self.tables
            .get(table.index())
            .and_then(|t| Some(*t.block_offsets.get(part.index())?..*t.block_offsets.get(part.index() + 1)?))
            .unwrap_or(0..0)
    }
}

#[cfg(test)]
pub(crate) mod tests;
