use super::*;
use crate::dtype::Dtype;
use crate::manifest::{FORMAT_VERSION, TableSpec};
use proptest::prelude::*;
use rudder_topology::{DatasetName, TableName};

/// A book of f32 tables of 2 columns with these row offsets and rows per block.
pub(crate) fn book(tables: &[(&[u64], u32)]) -> PartitionBook {
    let table = |(index, &(offsets, rows_per_block)): (usize, &(&[u64], u32))| TableSpec {
        name: TableName::new(format!("t{index}")).unwrap(),
        dim: 2,
        dtype: Dtype::F32,
        rows_per_block,
        row_offsets: offsets.to_vec(),
    };
    let part_offsets = tables[0].0.to_vec();
    PartitionBook::new(&Manifest {
        format: FORMAT_VERSION,
        name: DatasetName::new("test").unwrap(),
        vertices: *part_offsets.last().unwrap(),
        edges: 0,
        digest: String::new(),
        part_offsets,
        graphs: Vec::new(),
        tables: tables.iter().enumerate().map(table).collect(),
        files: Vec::new(),
        notes: Vec::new(),
    })
}

#[test]
fn blocks_count_over_tables_and_parts() {
    let book = book(&[(&[0, 5, 5, 12], 4), (&[0, 0, 64, 65], 64)]);
    assert_eq!((book.blocks(), book.tables(), book.parts()), (6, 2, 3));
    let place = |table, row| book.locate(TableId(table), row);
    assert_eq!(place(0, 5), Some(RowPlace { part: PartId(2), block: BlockId(2), row: 0 }));
    assert_eq!(place(1, 63), Some(RowPlace { part: PartId(1), block: BlockId(4), row: 63 }));
    assert_eq!(place(1, 64), Some(RowPlace { part: PartId(2), block: BlockId(5), row: 0 }));
    assert_eq!((place(0, 12), place(1, 65), place(2, 0)), (None, None, None));
    let last = book.block(BlockId(3)).unwrap();
    assert_eq!((last.table, last.part, last.index, last.rows), (TableId(0), PartId(2), 1, 3));
    assert_eq!(last.full_mask(), 0b111);
    assert_eq!(book.block(BlockId(4)).unwrap().full_mask(), u64::MAX);
    assert_eq!(book.block(BlockId(6)), None);
    assert_eq!(book.part_blocks(TableId(0), PartId(1)), 2..2);
    assert_eq!(book.part_blocks(TableId(1), PartId(2)), 5..6);
    assert_eq!(book.part_blocks(TableId(1), PartId(3)), 0..0);
}

proptest! {
    #[test]
    fn the_guide_finds_the_part_that_a_search_finds(
        sizes in prop::collection::vec(prop_oneof![Just(0_u64), 1..20_u64, Just(5_000), Just(3_000_000)], 1..40),
        rows in prop::collection::vec(any::<u64>(), 50),
    ) {
        let ends = sizes.iter().scan(0, |sum, size| { *sum += size; Some(*sum) });
        let offsets: Vec<u64> = std::iter::once(0).chain(ends).collect();
        let all = *offsets.last().unwrap();
        let guide = Guide::new(&offsets);
        let edges = offsets.iter().flat_map(|&start| [start, start.saturating_sub(1), start + 1]);
        for row in edges.chain(rows.iter().map(|row| row % (all + 2))) {
            let searched = offsets.partition_point(|&start| start <= row) - 1;
            let expected = (row < all).then_some(searched);
            prop_assert_eq!(guide.part(&offsets, row), expected, "row {} of {:?}", row, offsets);
        }
    }
}
