//! From the rows that a minibatch names to the (block, mask) pairs that move.

use crate::book::{BlockPlace, PartitionBook};
use crate::rows::BlockRows;
use rudder_topology::{BlockId, TableId, VertexId};

/// Blocks and rows that a list of rows touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Distinct, ascending by block.
    pub blocks: Vec<BlockRows>,
    /// For each row asked for, in the order of the request (repeats included), where it is found.
    pub places: Vec<Place>,
}

/// A row of a [`Demand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index into [`Demand::blocks`].
    pub block: u32,
    /// Row within the block.
    pub row: u8,
}

/// A row that its table does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row}, at position {position} of the request, does not exist: table {table} has {rows} rows")]
pub struct UnknownRow {
    pub table: TableId,
    pub row: u64,
    pub position: usize,
    /// Rows of the table; 0 if there is no such table.
    pub rows: u64,
}

/// A row number of a table. Rows of vertex tables are dataset ids.
pub trait RowNumber: Copy {
    fn row_number(self) -> u64;
}

impl RowNumber for u64 {
    fn row_number(self) -> u64 {
        self
    }
}

impl RowNumber for u32 {
    fn row_number(self) -> u64 {
        u64::from(self)
    }
}

impl RowNumber for VertexId {
    fn row_number(self) -> u64 {
        u64::from(self.0)
    }
}

/// Maps rows to blocks, in time linear in the rows. Its scratch grows with the largest request, not with the
/// dataset: keep one wherever demands are made, for any number of datasets.
#[derive(Clone, Debug, Default)]
pub struct DemandMapper {
    /// Block in the high half, position in the request in the low half.
    keys: Vec<u64>,
    sorted: Vec<u64>,
}

/// Bits that one pass of the radix sort looks at.
const RADIX_BITS: u32 = 10;

/// Below this many keys a comparison sort is quicker.
const RADIX_MIN: usize = 512;

impl DemandMapper {
    /// The demand of some rows of one table.
    pub fn map<R: RowNumber>(
        &mut self,
        book: &PartitionBook,
        table: TableId,
        rows: &[R],
    ) -> Result<Demand, UnknownRow> {
        let mut demand = Demand::default();
        self.map_into(book, table, rows, &mut demand)?;
        Ok(demand)
    }

    /// As [`DemandMapper::map`], into a demand whose memory is used again. After an error the demand is empty.
    ///
    /// # Panics
    /// If there are 2^32 rows or more.
    pub fn map_into<R: RowNumber>(
        &mut self,
        book: &PartitionBook,
        table: TableId,
        rows: &[R],
        demand: &mut Demand,
    ) -> Result<(), UnknownRow> {
        assert!(u32::try_from(rows.len()).is_ok(), "a minibatch of 2^32 rows");
        demand.blocks.clear();
        demand.places.clear();
        self.keys.clear();
        demand.places.reserve(rows.len());
        self.keys.reserve(rows.len());
        let (mut first, mut last) = (u32::MAX, 0);
        for (position, row) in rows.iter().enumerate() {
            let row = row.row_number();
            let Some(place) = book.locate(table, row) else {
                demand.places.clear();
                return Err(UnknownRow { table, row, position, rows: book.rows(table) });
            };
            let block = place.block.0;
            (first, last) = (first.min(block), last.max(block));
            self.keys.push(u64::from(block) << 32 | position as u64);
            demand.places.push(Place { block, row: place.row });
        }
        self.sort(first, last);
        demand.collect(&self.keys);
        Ok(())
    }

    /// Sorts the keys, whose blocks lie in `first..=last`.
    fn sort(&mut self, first: u32, last: u32) {
        if self.keys.len() < RADIX_MIN {
            self.keys.sort_unstable();
            return;
        }
        // Positions ascend already and each pass is stable, so only blocks are sorted by, less what all share.
        self.sorted.resize(self.keys.len(), 0);
        let bits = u32::BITS - (last - first).leading_zeros();
        for low in (0..bits).step_by(RADIX_BITS as usize) {
            let digit = |key: u64| (((key >> 32) as u32 - first) >> low) as usize & ((1 << RADIX_BITS) - 1);
            let mut ends = [0_u32; 1 << RADIX_BITS];
            self.keys.iter().for_each(|&key| ends[digit(key)] += 1);
            let mut sum = 0;
            for end in &mut ends {
                sum += std::mem::replace(end, sum);
            }
            for &key in &self.keys {
                let next = &mut ends[digit(key)];
                self.sorted[*next as usize] = key;
                *next += 1;
            }
            std::mem::swap(&mut self.keys, &mut self.sorted);
        }
    }
}

/// The demand of some rows, with scratch of its own: for single calls. See [`DemandMapper`] for many.
pub fn rows_to_blocks<R: RowNumber>(
    book: &PartitionBook,
    table: TableId,
    rows: &[R],
) -> Result<Demand, UnknownRow> {
    DemandMapper::default().map(book, table, rows)
}

impl Demand {
    /// Fills the blocks, and turns the places' block ids into indices. `keys` are sorted.
    fn collect(&mut self, keys: &[u64]) {
        for &key in keys {
            let block = BlockId((key >> 32) as u32);
            let place = &mut self.places[key as u32 as usize];
            let mask = 1 << place.row;
            match self.blocks.last_mut() {
                Some(last) if last.block == block => last.mask |= mask,
                _ => self.blocks.push(BlockRows { block, mask }),
            }
            place.block = self.blocks.len() as u32 - 1;
        }
    }

    /// Distinct rows asked for.
    #[must_use]
    pub fn distinct_rows(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.rows())).sum()
    }

    /// The block of a place with its shape, `None` if the place is of another demand or book.
    #[must_use]
    pub fn block_of(&self, book: &PartitionBook, place: Place) -> Option<(BlockId, BlockPlace)> {
        let block = self.blocks.get(place.block as usize)?.block;
        Some((block, book.block(block)?))
    }
}

#[cfg(test)]
mod tests;
