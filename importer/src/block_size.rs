//! Choosing `rows_per_block`: a big block wastes slot bytes on rows nobody asked for, a small one costs an index
//! entry and a wire item more often. Sampled minibatches weigh one against the other.

use serde::Serialize;
use std::fmt;

/// Bytes of bookkeeping a compute node holds for a resident block: index entry, next use, pins, slot.
pub const METADATA_BYTES: u64 = 64;
/// Bytes on the wire for a block asked for: id and row mask in the request and again in the answer.
pub const WIRE_BYTES: u64 = 24;
/// Minibatches that are resident together: what trainers look ahead by default.
pub const WINDOW: usize = 8;

/// What one block size costs over the sampled windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    pub rows_per_block: u32,
    /// Distinct blocks touched, summed over windows.
    pub blocks: u64,
    /// Bytes of slots that hold no wanted row.
    pub slot_waste_bytes: u64,
    /// Block ids and masks sent.
    pub wire_bytes: u64,
    pub metadata_bytes: u64,
}

impl Candidate {
    #[must_use]
    pub fn total(&self) -> u64 {
        self.slot_waste_bytes + self.wire_bytes + self.metadata_bytes
    }
}

/// The costs of all block sizes, and the rows they were weighed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TradeOff {
    pub minibatches: u64,
    /// Distinct rows wanted, summed over windows of [`WINDOW`] minibatches.
    pub rows: u64,
    pub row_bytes: u64,
    pub candidates: Vec<Candidate>,
}

impl TradeOff {
    pub(crate) fn new(row_bytes: u64) -> Self {
        let candidates = (0..7).map(|shift| Candidate {
            rows_per_block: 1 << shift,
            blocks: 0,
            slot_waste_bytes: 0,
            wire_bytes: 0,
            metadata_bytes: 0,
        });
        TradeOff { minibatches: 0, rows: 0, row_bytes, candidates: candidates.collect() }
    }

    /// Adds a window: its distinct rows as ascending dataset ids.
    pub(crate) fn add(&mut self, minibatches: u64, rows: &[u32], part_offsets: &[u64]) {
        self.minibatches += minibatches;
        self.rows += rows.len() as u64;
        for candidate in &mut self.candidates {
            let blocks = blocks_touched(rows, part_offsets, candidate.rows_per_block);
            candidate.blocks += blocks;
            let held = blocks * u64::from(candidate.rows_per_block);
            candidate.slot_waste_bytes += (held - rows.len() as u64) * self.row_bytes;
            candidate.wire_bytes += blocks * WIRE_BYTES;
            candidate.metadata_bytes += blocks * METADATA_BYTES;
        }
    }

    /// The cheapest block size; of equally cheap ones the smallest.
    #[must_use]
    pub fn best(&self) -> u32 {
        self.candidates.iter().min_by_key(|c| (c.total(), c.rows_per_block)).map_or(1, |c| c.rows_per_block)
    }
}

fn blocks_touched(rows: &[u32], part_offsets: &[u64], rows_per_block: u32) -> u64 {
    let (mut part, mut blocks, mut last) = (0, 0, None);
    for &row in rows {
        while part + 1 < part_offsets.len() && part_offsets[part + 1] <= u64::from(row) {
            part += 1;
        }
        let block = (part, (u64::from(row) - part_offsets[part]) / u64::from(rows_per_block));
        if last != Some(block) {
            blocks += 1;
            last = Some(block);
        }
    }
    blocks
}

impl fmt::Display for TradeOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "block sizes over {} sampled minibatches in windows of {WINDOW}; bytes for each wanted row of {} bytes:",
            self.minibatches, self.row_bytes
        )?;
        write!(f, "{:>6} {:>12} {:>12} {:>12} {:>12}", "rows", "slot waste", "wire", "metadata", "total")?;
        let per_row = |bytes: u64| bytes as f64 / self.rows.max(1) as f64;
        for c in &self.candidates {
            write!(
                f,
                "\n{:>6} {:>12.1} {:>12.1} {:>12.1} {:>12.1}{}",
                c.rows_per_block,
                per_row(c.slot_waste_bytes),
                per_row(c.wire_bytes),
                per_row(c.metadata_bytes),
                per_row(c.total()),
                if c.rows_per_block == self.best() { "  <- least" } else { "" }
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_part_by_part() {
        // Parts 0..5 and 5..9 (and an empty one between them): rows 4 and 5 never share a block.
        let offsets = [0, 5, 5, 9];
        for (rows_per_block, blocks) in [(1, 4), (2, 3), (4, 2), (64, 2)] {
            assert_eq!(blocks_touched(&[4, 5, 6, 8], &offsets, rows_per_block), blocks, "{rows_per_block}");
        }
    }

    #[test]
    fn scattered_rows_ask_for_small_blocks_and_dense_small_ones_for_big() {
        let mut scattered = TradeOff::new(512);
        scattered.add(8, &(0..1000).map(|i| i * 97).collect::<Vec<_>>(), &[0, 100_000]);
        assert_eq!(scattered.best(), 1);
        let mut dense = TradeOff::new(4);
        dense.add(8, &(0..1000).collect::<Vec<_>>(), &[0, 100_000]);
        assert_eq!(dense.best(), 64);
        let text = dense.to_string();
        assert_eq!(text.matches("<- least").count(), 1);
        assert_eq!(text.lines().count(), 9);
    }

    #[test]
    fn costs_add_up() {
        let mut weighed = TradeOff::new(10);
        weighed.add(1, &[0, 1, 7], &[0, 8]);
        let four = weighed.candidates[2];
        let expected = Candidate {
            rows_per_block: 4,
            blocks: 2,
            slot_waste_bytes: 50,
            wire_bytes: 2 * WIRE_BYTES,
            metadata_bytes: 2 * METADATA_BYTES,
        };
        assert_eq!(four, expected);
        assert_eq!(TradeOff::new(10).best(), 1);
    }
}
