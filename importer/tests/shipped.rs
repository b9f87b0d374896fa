//! The shipped graphs, imported and compared with their sources row by row.

#[path = "small/inputs.rs"]
mod inputs;

use inputs::{Dataset, words};
use rudder_graph::layout;
use rudder_graph::npy::NpyHeader;
use rudder_importer::{BlockSize, ImportOptions, Input, Silent, Summary, Verify, import, inspect};
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

fn imported(source: &str, parts: u32, block_size: BlockSize) -> (tempfile::TempDir, Dataset, Summary) {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("set");
    let mut options = ImportOptions::new(Input::Path(shipped(source)), &target);
    (options.parts, options.block_size) = (Some(parts), block_size);
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
        assert!(dataset.labels() == labels, "labels in {parts} parts");
        let inverse = words(&dataset.array(layout::DATASET_ID), u32::from_le_bytes);
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
    for (code, split) in (1..).zip(layout::Split::ALL) {
        let expected: Vec<u64> = (0..2708).filter(|&v| codes[v as usize] == code).collect();
        assert_eq!(dataset.split(split), expected);
    }
}

#[test]
fn the_same_import_gives_the_same_digest() {
    let digest = |parts| imported("cora", parts, BlockSize::Auto).2.digest;
    let (one, again, other) = (digest(2), digest(2), digest(3));
    assert_eq!(one, again);
    assert_ne!(one, other);
}
