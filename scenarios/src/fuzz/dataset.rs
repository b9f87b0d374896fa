//! A small dataset whose every byte follows from its place, so that delivered bytes can be judged without files.

use super::random::{Random, mix};
use rudder_graph::manifest::FEATURE_DATA_OFFSET;
use rudder_graph::{BlockRows, Dtype, Manifest, PartitionBook, TableSpec};
use rudder_topology::{BlockId, DatasetName, PartId, TableId, TableName};

/// The rows of some tables in some parts.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub book: PartitionBook,
    row_offsets: Vec<Vec<u64>>,
}

impl Dataset {
    /// One or two tables in `parts` parts, some of which may be empty.
    #[must_use]
    pub fn draw(random: &mut Random, parts: u64) -> Self {
        let tables = (0..random.between(1, 2)).map(|_| draw_table(random, parts)).collect();
        Dataset::new(tables)
    }

    /// One table of one-row blocks in one part.
    #[must_use]
    pub fn plain(rows: u64) -> Self {
        Dataset::new(vec![table(1, 4, vec![0, rows])])
    }

    fn new(mut tables: Vec<TableSpec>) -> Self {
        for (number, table) in tables.iter_mut().enumerate() {
            table.name = TableName::new(format!("t{number}")).expect("a name");
        }
        let manifest = Manifest {
            format: rudder_graph::manifest::FORMAT_VERSION,
            name: DatasetName::new("simulated").expect("a name"),
            vertices: *tables[0].row_offsets.last().expect("offsets"),
            edges: 0,
            digest: String::new(),
            part_offsets: tables[0].row_offsets.clone(),
            graphs: Vec::new(),
            tables: tables.clone(),
            files: Vec::new(),
            notes: Vec::new(),
        };
        let row_offsets = tables.into_iter().map(|table| table.row_offsets).collect();
        Dataset { book: PartitionBook::new(&manifest), row_offsets }
    }

    pub fn tables(&self) -> impl Iterator<Item = TableId> + use<> {
        (0..self.row_offsets.len()).map(|table| TableId(table as u16))
    }

    /// Bytes of all rows.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tables().map(|t| self.book.rows(t) * u64::from(self.book.row_bytes(t).expect("known"))).sum()
    }

    /// Bytes of one block of each table: no smaller cache works.
    #[must_use]
    pub fn one_block_each(&self) -> u64 {
        self.tables().map(|t| u64::from(self.book.block_bytes(t).expect("known"))).sum()
    }

    /// The true bytes of a row.
    #[must_use]
    pub fn row(&self, table: TableId, row: u64) -> Vec<u8> {
        let bytes = self.book.row_bytes(table).expect("a known table");
        (0..u64::from(bytes))
            .map(|at| mix(mix(row << 16 | u64::from(table.0)) ^ (at / 8)).to_le_bytes()[at as usize % 8])
            .collect()
    }

    /// The rows that a mask names, ascending: (row within the block, row of the table).
    #[must_use]
    pub fn rows_of(&self, rows: BlockRows) -> (TableId, Vec<(u8, u64)>) {
        let place = self.book.block(rows.block).expect("a known block");
        let first = self.first_row(rows.block);
        let named = (0..place.rows).filter(|row| rows.mask >> row & 1 == 1);
        (place.table, named.map(|row| (row, first + u64::from(row))).collect())
    }

    /// The row of the table with which a block begins.
    fn first_row(&self, block: BlockId) -> u64 {
        let place = self.book.block(block).expect("a known block");
        let rows_per_block = u64::from(self.book.rows_per_block(place.table).expect("known"));
        self.row_offsets[place.table.index()][place.part.index()] + u64::from(place.index) * rows_per_block
    }

    /// The bytes at `offset` of a co-located part's feature file.
    #[must_use]
    pub fn local_row(&self, table: TableId, part: PartId, offset: u64) -> Option<Vec<u8>> {
        let bytes = u64::from(self.book.row_bytes(table)?);
        let within = offset.checked_sub(FEATURE_DATA_OFFSET)?;
        let offsets = self.row_offsets.get(table.index())?;
        let row = *offsets.get(part.index())? + within / bytes;
        (within % bytes == 0 && row < *offsets.get(part.index() + 1)?).then(|| self.row(table, row))
    }
}

fn draw_table(random: &mut Random, parts: u64) -> TableSpec {
    let mut offsets = vec![0];
    for _ in 0..parts {
        let rows = if random.one_in(8) { 0 } else { random.between(1, 120) };
        offsets.push(offsets[offsets.len() - 1] + rows);
    }
    if offsets.last() == Some(&0) {
        *offsets.last_mut().expect("not empty") = 10;
    }
    table(1 << random.between(0, 6), random.between(1, 9) as u32, offsets)
}

fn table(rows_per_block: u32, dim: u32, row_offsets: Vec<u64>) -> TableSpec {
    let name = TableName::new("t").expect("a name");
    TableSpec { name, dim, dtype: Dtype::F16, rows_per_block, row_offsets }
}
