//! Small dataset directories for tests.

use rudder_graph::npy::{NpyType, Padding, header};
use rudder_graph::{
    BlockRows, Dtype, GraphSpec, Manifest, PartitionBook, TableSpec, crc, layout,
    manifest::FEATURE_DATA_OFFSET, manifest::FORMAT_VERSION, manifest::FileSpec,
};
use rudder_topology::{BlockId, DatasetName, PartId, TableId, TableName};
use std::path::{Path, PathBuf};

/// A dataset whose bytes are a function of the row.
#[derive(Clone, Debug)]
pub struct TestData {
    pub directory: PathBuf,
    pub manifest: Manifest,
    pub book: PartitionBook,
}

/// Shape of a dataset of one u8 table.
#[derive(Clone, Debug)]
pub struct Shape {
    pub rows_of_parts: Vec<u64>,
    pub row_bytes: u32,
    pub rows_per_block: u32,
}

fn byte(row: u64, column: u32) -> u8 {
    (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8 ^ (column.wrapping_mul(31) >> 2) as u8
}

/// The bytes of a row.
pub fn row(row: u64, row_bytes: u32) -> Vec<u8> {
    (0..row_bytes).map(|column| byte(row, column)).collect()
}

impl TestData {
    /// Writes manifest, features and checksums below `root`.
    pub fn write(root: &Path, name: &str, shape: &Shape) -> TestData {
        let directory = root.join(name);
        let mut row_offsets = vec![0];
        for rows in &shape.rows_of_parts {
            row_offsets.push(row_offsets[row_offsets.len() - 1] + rows);
        }
        let table = TableName::new("feat").expect("a name");
        let mut files = Vec::new();
        for (part, &rows) in shape.rows_of_parts.iter().enumerate() {
            let part = PartId(part as u16);
            std::fs::create_dir_all(directory.join(layout::part(part))).expect("a directory");
            let first = row_offsets[part.index()];
            let data: Vec<u8> = (first..first + rows).flat_map(|at| row(at, shape.row_bytes)).collect();
            let dims = [rows, u64::from(shape.row_bytes)];
            let mut features = header(NpyType::U8, &dims, Padding::To(FEATURE_DATA_OFFSET));
            features.extend_from_slice(&data);
            std::fs::write(directory.join(layout::features(part, &table)), features).expect("written");
            let block_bytes = (shape.row_bytes * shape.rows_per_block) as usize;
            let sums: Vec<u8> = crc::checksums(&data, block_bytes).flat_map(u32::to_le_bytes).collect();
            let mut bytes = header(NpyType::U32, &[sums.len() as u64 / 4], Padding::Aligned);
            bytes.extend_from_slice(&sums);
            files.push(file(&layout::checksums(part, &table), &bytes));
            std::fs::write(directory.join(layout::checksums(part, &table)), bytes).expect("written");
        }
        let graph = TableName::new("graph").expect("a name");
        for path in [
            layout::indptr(&graph),
            layout::indices(&graph),
            layout::ORIGINAL_ID.to_owned(),
            layout::DATASET_ID.to_owned(),
        ] {
            files.push(file(&path, b""));
        }
        let mut manifest = Manifest {
            format: FORMAT_VERSION,
            name: DatasetName::new(name).expect("a name"),
            vertices: row_offsets[row_offsets.len() - 1],
            edges: 0,
            digest: String::new(),
            part_offsets: row_offsets.clone(),
            graphs: vec![GraphSpec { name: graph, edges: 0 }],
            tables: vec![TableSpec {
                name: table,
                dim: shape.row_bytes,
                dtype: Dtype::U8,
                rows_per_block: shape.rows_per_block,
                row_offsets,
            }],
            files,
            notes: Vec::new(),
        };
        manifest.seal();
        std::fs::write(directory.join(layout::MANIFEST), manifest.to_toml()).expect("written");
        let book = PartitionBook::new(&manifest);
        TestData { directory, manifest, book }
    }

    /// The rows that an item names, packed.
    pub fn expected(&self, item: BlockRows) -> Vec<u8> {
        let place = self.book.block(item.block).expect("a block");
        let table = &self.manifest.tables[0];
        let first =
            table.row_offsets[place.part.index()] + u64::from(place.index) * u64::from(table.rows_per_block);
        (0..64)
            .filter(|bit| item.mask >> bit & 1 == 1)
            .flat_map(|bit| row(first + bit, place.row_bytes))
            .collect()
    }

    /// All blocks of a part, whole.
    pub fn whole_blocks(&self, part: PartId) -> Vec<BlockRows> {
        self.book
            .part_blocks(TableId(0), part)
            .map(|block| {
                let block = BlockId(block);
                BlockRows { block, mask: self.book.block(block).expect("a block").full_mask() }
            })
            .collect()
    }

    /// Changes one byte of a block in its feature file.
    pub fn corrupt(&self, block: BlockId) {
        let place = self.book.block(block).expect("a block");
        let table = &self.manifest.tables[0];
        let path = self.directory.join(layout::features(place.part, &table.name));
        let mut bytes = std::fs::read(&path).expect("read");
        let at = FEATURE_DATA_OFFSET as usize + place.index as usize * table.block_bytes();
        bytes[at] ^= 0x40;
        std::fs::write(&path, bytes).expect("written");
    }

    /// Takes a part away, as on a node that stores only others.
    pub fn remove_part(&self, part: PartId) {
        std::fs::remove_dir_all(self.directory.join(layout::part(part))).expect("removed");
    }
}

fn file(path: &str, bytes: &[u8]) -> FileSpec {
    FileSpec {
        path: path.to_owned(),
        bytes: bytes.len() as u64,
        digest: blake3::hash(bytes).to_hex().to_string(),
    }
}
