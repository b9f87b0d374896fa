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

/// Maps rows to blocks, in time linear in the rows (plus a sweep over one bit per 4096 blocks). Keeps scratch of
/// 12 bytes a block of the dataset, so make one for each dataset and keep it.
#[derive(Clone, Debug)]
pub struct DemandMapper {
    /// Mask of each block; all zero between calls.
    masks: Vec<u64>,
    /// Index in the demand of each touched block; stale otherwise.
    indices: Vec<u32>,
    /// A bit a block, and a bit a word of those: sweeping them gives touched blocks in order without a sort.
    touched: Vec<u64>,
    touched_words: Vec<u64>,
}

impl DemandMapper {
    #[must_use]
    pub fn new(book: &PartitionBook) -> Self {
        let blocks = book.blocks() as usize;
        let words = blocks.div_ceil(64);
        DemandMapper {
            masks: vec![0; blocks],
            indices: vec![0; blocks],
            touched: vec![0; words],
            touched_words: vec![0; words.div_ceil(64)],
        }
    }

    /// The demand of some rows of one table.
    ///
    /// # Panics
    /// If `book` has more blocks than the one that this mapper was made with.
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
    pub fn map_into<R: RowNumber>(
        &mut self,
        book: &PartitionBook,
        table: TableId,
        rows: &[R],
        demand: &mut Demand,
    ) -> Result<(), UnknownRow> {
        demand.blocks.clear();
        demand.places.clear();
        demand.places.reserve(rows.len());
        let mut unknown = None;
        for (position, row) in rows.iter().enumerate() {
            let row = row.row_number();
            let Some(place) = book.locate(table, row) else {
                unknown = Some(UnknownRow { table, row, position, rows: book.rows(table) });
                break;
            };
            let block = place.block.index();
            self.masks[block] |= 1 << place.row;
            self.touched[block / 64] |= 1 << (block % 64);
            demand.places.push(Place { block: place.block.0, row: place.row });
        }
        self.touch_words(&demand.places);
        self.sweep(&mut demand.blocks);
        match unknown {
            Some(unknown) => {
                demand.blocks.clear();
                demand.places.clear();
                Err(unknown)
            }
            None => {
                for place in &mut demand.places {
                    place.block = self.indices[place.block as usize];
                }
                Ok(())
            }
        }
    }

    fn touch_words(&mut self, places: &[Place]) {
        for place in places {
            let word = place.block as usize / 64;
            self.touched_words[word / 64] |= 1 << (word % 64);
        }
    }

    /// Lists the touched blocks in order and clears what marks them.
    fn sweep(&mut self, blocks: &mut Vec<BlockRows>) {
        for (outer, words) in self.touched_words.iter_mut().enumerate() {
            for word in take_bits(words) {
                let word = outer * 64 + word;
                for bit in take_bits(&mut self.touched[word]) {
                    let block = word * 64 + bit;
                    self.indices[block] = blocks.len() as u32;
                    let mask = std::mem::take(&mut self.masks[block]);
                    blocks.push(BlockRows { block: BlockId(block as u32), mask });
                }
            }
        }
    }
}

/// The set bits in order; the word is zero at once.
fn take_bits(word: &mut u64) -> impl Iterator<Item = usize> + use<> {
    let mut bits = std::mem::take(word);
    std::iter::from_fn(move || {
        let bit = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

/// The demand of some rows, with scratch of its own: for single calls. See [`DemandMapper`] for many.
pub fn rows_to_blocks<R: RowNumber>(
    book: &PartitionBook,
    table: TableId,
    rows: &[R],
) -> Result<Demand, UnknownRow> {
    DemandMapper::new(book).map(book, table, rows)
}

impl Demand {
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
