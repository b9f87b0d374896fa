//! The shipped graphs, imported and compared with their sources row by row.

use rudder_graph::npy::NpyHeader;
use rudder_graph::{Manifest, layout};
use rudder_importer::{BlockSize, ImportOptions, Input, Silent, Summary, Verify, import, inspect};
use rudder_topology::PartId;
use std::io::Read;
use std::path::{Path, PathBuf};

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets").join(name)
}

/// The data of an `.npy` file and its shape.
fn array(path: &Path) -> (Vec<u8>, Vec<u64>) {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (header, data) = NpyHeader::parse_file(&bytes).unwrap();
    (data.to_vec(), header.shape)
}

fn member(path: &Path, name: &str) -> (Vec<u8>, Vec<u64>) {
    let mut archive = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    archive.by_name(name).unwrap().read_to_end(&mut bytes).unwrap();
    let (header, data) = NpyHeader::parse_file(&bytes).unwrap();
    (data.to_vec(), header.shape)
}

fn words<const N: usize, T>(bytes: &[u8], read: fn([u8; N]) -> T) -> Vec<T> {
    bytes.chunks_exact(N).map(|word| read(word.try_into().unwrap())).collect()
}

/// A dataset as read back from its directory.
struct Dataset {
    directory: PathBuf,
    manifest: Manifest,
    original: Vec<u64>,
}

impl Dataset {
    fn open(directory: &Path) -> Dataset {
        let text = std::fs::read_to_string(directory.join(layout::MANIFEST)).unwrap();
        let original = words(&array(&directory.join(layout::ORIGINAL_ID)).0, u64::from_le_bytes);
        Dataset { directory: directory.to_owned(), manifest: Manifest::parse(&text).unwrap(), original }
    }

    /// Feature rows in the order of original ids.
    fn rows(&self) -> Vec<Vec<u8>> {
        let table = &self.manifest.tables[0];
        let mut rows = vec![Vec::new(); self.original.len()];
        let mut id = 0;
        for part in 0..self.manifest.parts() {
            let path = self.directory.join(layout::features(PartId(part as u16), &table.name));
            let bytes = std::fs::read(&path).unwrap();
            for row in bytes[4096..].chunks_exact(table.row_bytes()) {
                rows[self.original[id] as usize] = row.to_vec();
                id += 1;
            }
        }
        assert_eq!(id, self.original.len());
        rows
    }

    /// Edges in original ids, ascending.
    fn edges(&self) -> Vec<(u64, u64)> {
        let name = &self.manifest.graphs[0].name;
        let indptr = words(&array(&self.directory.join(layout::indptr(name))).0, u64::from_le_bytes);
        let indices = words(&array(&self.directory.join(layout::indices(name))).0, u32::from_le_bytes);
        let mut edges = Vec::new();
        for (id, range) in indptr.windows(2).enumerate() {
            let sources = &indices[range[0] as usize..range[1] as usize];
            assert!(sources.is_sorted());
            edges.extend(sources.iter().map(|&s| (self.original[s as usize], self.original[id])));
        }
        edges.sort_unstable();
        edges
    }
}

fn imported(source: &str, parts: u32, block_size: BlockSize) -> (tempfile::TempDir, Dataset, Summary) {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("set");
    let mut options = ImportOptions::new(Input::Path(shipped(source)), &target);
    (options.parts, options.block_size) = (parts, block_size);
    let summary = import(&options, &mut Silent).unwrap();
    let names: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["set"], "nothing is left beside the target");
    let dataset = Dataset::open(&target);
    (home, dataset, summary)
}

#[test]
fn debian_keeps_every_row_edge_and_label() {
    let source = shipped("debian");
    let (features, shape) = member(&source.join("features.npz"), "x.npy");
    assert_eq!(shape, [64_533, 128]);
    let (ends, shape) = array(&source.join("edges.npy"));
    let ends = words(&ends, i32::from_le_bytes);
    let count = shape[1] as usize;
    let mut edges: Vec<(u64, u64)> = (0..count).map(|e| (ends[e] as u64, ends[count + e] as u64)).collect();
    edges.sort_unstable();
    let labels = words(&array(&source.join("labels.npy")).0, i64::from_le_bytes);

    for (parts, block_size) in [(2, BlockSize::Auto), (4, BlockSize::Rows(4))] {
        let (_home, dataset, summary) = imported("debian", parts, block_size);
        assert_eq!(dataset.manifest.parts() as u32, parts);
        let rows = dataset.rows();
        for (v, (found, expected)) in rows.iter().zip(features.chunks_exact(512)).enumerate() {
            assert!(found == expected, "row of vertex {v} in {parts} parts");
        }
        assert!(dataset.edges() == edges, "edges in {parts} parts");
        let found = words(&array(&dataset.directory.join(layout::LABELS)).0, i64::from_le_bytes);
        assert!(found.iter().zip(&dataset.original).all(|(&label, &v)| label == labels[v as usize]));
        let inverse = words(&array(&dataset.directory.join(layout::DATASET_ID)).0, u32::from_le_bytes);
        assert!(dataset.original.iter().zip(0..).all(|(&v, id)| inverse[v as usize] == id));
        assert!(summary.balance < 1.1, "{}", summary.balance);
        // A random cut of two parts cuts half the edges, of four three quarters.
        assert!(summary.edge_cut_share < 0.4, "{}", summary.edge_cut_share);

        let again = inspect(&dataset.directory, Verify::Checksums, &mut Silent).unwrap();
        assert_eq!(
            (again.edge_cut, &again.digest, again.split),
            (summary.edge_cut, &summary.digest, summary.split)
        );
        assert_eq!(
            (again.labels, &again.parts, &again.tables),
            (summary.labels, &summary.parts, &summary.tables)
        );
        let blocks: u64 = summary.tables.iter().map(|table| table.blocks).sum();
        assert_eq!(again.verified.unwrap().blocks, blocks);
    }
}

#[test]
fn cora_unfolds_its_sparse_rows_and_keeps_its_split() {
    let source = shipped("cora").join("features.npz");
    let part = |name: &str| member(&source, name).0;
    let indptr = words(&part("indptr.npy"), i64::from_le_bytes);
    let columns = words(&part("indices.npy"), i32::from_le_bytes);
    let values = words(&part("data.npy"), f32::from_le_bytes);
    let (_home, dataset, summary) = imported("cora", 3, BlockSize::Auto);
    for (v, row) in dataset.rows().iter().enumerate() {
        let mut expected = vec![0.0; 1433];
        for at in indptr[v] as usize..indptr[v + 1] as usize {
            expected[columns[at] as usize] = values[at];
        }
        assert!(words(row, f32::from_le_bytes) == expected, "row of vertex {v}");
    }
    let split = summary.split.unwrap();
    assert_eq!((split.train, split.valid, split.test), (140, 500, 1000));
    let codes = array(&shipped("cora").join("split.npy")).0;
    let ids = words(&array(&dataset.directory.join("split_train.npy")).0, u32::from_le_bytes);
    assert!(ids.is_sorted());
    assert!(ids.iter().all(|&id| codes[dataset.original[id as usize] as usize] == 1));
}

#[test]
fn the_same_import_gives_the_same_digest() {
    let digest = |parts| imported("cora", parts, BlockSize::Auto).2.digest;
    let (one, again, other) = (digest(2), digest(2), digest(3));
    assert_eq!(one, again);
    assert_ne!(one, other);
}
