use super::*;
use crate::book::tests::book;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn rows_become_blocks_in_order() {
    // Blocks of the parts: rows 0..5 -> B0 B1, none, rows 5..12 -> B2 B3.
    let book = book(&[(&[0, 5, 5, 12], 4)]);
    let demand = rows_to_blocks(&book, TableId(0), &[9_u32, 0, 4, 5, 0, 6]).unwrap();
    let expected = [(0, 0b1), (1, 0b1), (2, 0b11), (3, 0b1)];
    assert_eq!(demand.blocks, expected.map(|(block, mask)| BlockRows { block: BlockId(block), mask }));
    let places = [(3, 0), (0, 0), (1, 0), (2, 0), (0, 0), (2, 1)];
    assert_eq!(demand.places, places.map(|(block, row)| Place { block, row }));
    assert_eq!(demand.distinct_rows(), 5);
}

#[test]
fn unknown_rows_are_named_and_leave_no_trace() {
    let book = book(&[(&[0, 5], 4), (&[0, 9], 8)]);
    let mut mapper = DemandMapper::default();
    let error = mapper.map(&book, TableId(0), &[1_u64, 5, 7]).unwrap_err();
    assert_eq!(error, UnknownRow { table: TableId(0), row: 5, position: 1, rows: 5 });
    let error = mapper.map(&book, TableId(2), &[0_u64]).unwrap_err();
    assert_eq!(error, UnknownRow { table: TableId(2), row: 0, position: 0, rows: 0 });
    assert!(mapper.map(&book, TableId(0), &[u64::MAX]).is_err());
    let after = mapper.map(&book, TableId(0), &[2_u64]).unwrap();
    assert_eq!(after, rows_to_blocks(&book, TableId(0), &[VertexId(2)]).unwrap());
    assert_eq!(mapper.map::<u32>(&book, TableId(0), &[]).unwrap(), Demand::default());
}

proptest! {
    #[test]
    fn demand_is_what_a_map_of_masks_gives(
        sizes in prop::collection::vec(0_u64..3000, 1..5),
        shift in 0_u32..7,
        picks in prop::collection::vec(any::<u64>(), 0..1500),
    ) {
        let ends = sizes.iter().scan(0, |sum, size| { *sum += size; Some(*sum) });
        let offsets: Vec<u64> = std::iter::once(0).chain(ends).collect();
        let rows = *offsets.last().unwrap();
        prop_assume!(rows > 0);
        let book = book(&[(&offsets, 1 << shift), (&offsets, 64 >> shift)]);
        let mut mapper = DemandMapper::default();
        for table in [TableId(0), TableId(1), TableId(0)] {
            let rows: Vec<u64> = picks.iter().map(|pick| pick % rows).collect();
            let demand = mapper.map(&book, table, &rows).unwrap();
            let mut expected: BTreeMap<BlockId, u64> = BTreeMap::new();
            for &row in &rows {
                let place = book.locate(table, row).unwrap();
                *expected.entry(place.block).or_default() |= 1 << place.row;
            }
            let found: Vec<_> = demand.blocks.iter().map(|b| (b.block, b.mask)).collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
            for (&row, &place) in rows.iter().zip(&demand.places) {
                let located = book.locate(table, row).unwrap();
                let (block, shape) = demand.block_of(&book, place).unwrap();
                prop_assert_eq!((block, shape.part, place.row), (located.block, located.part, located.row));
            }
        }
    }
}
