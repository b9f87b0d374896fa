//! Which direct reads bring which blocks. Pure.

use super::Located;
use crate::backend::READ_BYTES_MAX;
use rudder_topology::{PartId, TableId};

/// Direct reads start and end at multiples of this.
pub(crate) const ALIGNMENT: u64 = 4096;

/// One read of a feature file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AlignedRead {
    pub(crate) table: TableId,
    pub(crate) part: PartId,
    /// Aligned start in the file.
    pub(crate) offset: u64,
    /// Aligned length; the file may end before.
    pub(crate) bytes: usize,
    /// Bytes that must come for the blocks to be whole.
    pub(crate) bytes_needed: usize,
    /// Positions in the list of wanted blocks.
    pub(crate) wanted: Vec<usize>,
}

/// Aligned supersets of the wanted blocks; neighbours, and blocks that share a page, come in one read of at most
/// [`READ_BYTES_MAX`]. Gaps are not read through.
pub(crate) fn plan(wanted: &[Located]) -> Vec<AlignedRead> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&at| {
        let located = &wanted[at];
        (located.place.table, located.place.part, located.offset)
    });
    let mut reads: Vec<AlignedRead> = Vec::new();
    for at in order {
        let Located { place, offset, bytes } = wanted[at];
        let start = offset / ALIGNMENT * ALIGNMENT;
        let needed_end = offset + bytes as u64;
        let end = needed_end.next_multiple_of(ALIGNMENT);
        if let Some(read) = reads.last_mut()
            && (read.table, read.part) == (place.table, place.part)
            && start <= read.offset + read.bytes as u64
            && end - read.offset <= READ_BYTES_MAX as u64
        {
            read.bytes = read.bytes.max((end - read.offset) as usize);
            read.bytes_needed = read.bytes_needed.max((needed_end - read.offset) as usize);
            read.wanted.push(at);
            continue;
        }
        reads.push(AlignedRead {
            table: place.table,
            part: place.part,
            offset: start,
            bytes: (end - start) as usize,
            bytes_needed: (needed_end - start) as usize,
            wanted: vec![at],
        });
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rudder_graph::BlockPlace;

    fn located(part: u16, index: u32, block_bytes: u32) -> Located {
        let place =
            BlockPlace { table: TableId(0), part: PartId(part), index, rows: 1, row_bytes: block_bytes };
        Located {
            place,
            offset: 4096 + u64::from(index) * u64::from(block_bytes),
            bytes: block_bytes as usize,
        }
    }

    #[test]
    fn neighbours_come_together_and_gaps_do_not() {
        let wanted = [located(0, 5, 4096), located(0, 0, 4096), located(0, 1, 4096), located(1, 2, 4096)];
        let reads = plan(&wanted);
        let summary: Vec<_> = reads.iter().map(|r| (r.part.0, r.offset, r.bytes, r.wanted.clone())).collect();
        assert_eq!(
            summary,
            [
                (0, 4096, 8192, vec![1, 2]),
                (0, 4096 + 5 * 4096, 4096, vec![0]),
                (1, 4096 + 2 * 4096, 4096, vec![3])
            ]
        );
    }

    proptest! {
        #[test]
        fn every_block_lies_in_exactly_one_aligned_bounded_read(
            indices in proptest::collection::vec((0_u16..2, 0_u32..2000), 1..80),
            block_bytes in prop::sample::select(vec![12_u32, 400, 4096, 5000, 65536, 500_000]),
        ) {
            let wanted: Vec<Located> =
                indices.iter().map(|&(part, index)| located(part, index, block_bytes)).collect();
            let reads = plan(&wanted);
            let mut seen = vec![0; wanted.len()];
            for read in &reads {
                prop_assert_eq!(read.offset % ALIGNMENT, 0);
                prop_assert_eq!(read.bytes as u64 % ALIGNMENT, 0);
                prop_assert!(read.bytes <= READ_BYTES_MAX);
                for &at in &read.wanted {
                    seen[at] += 1;
                    let block = &wanted[at];
                    prop_assert_eq!(block.place.part, read.part);
                    prop_assert!(block.offset >= read.offset);
                    prop_assert!(block.offset + block.bytes as u64 <= read.offset + read.bytes_needed as u64);
                    prop_assert!(read.bytes_needed <= read.bytes);
                }
            }
            prop_assert!(seen.iter().all(|&count| count == 1));
        }
    }
}
