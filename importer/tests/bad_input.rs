//! Input that is cut, too long, out of range, hostile or random: a clear error, and nothing left behind.

#[path = "small/inputs.rs"]
mod inputs;

use inputs::{Home, f32s, features, gzip, i32s, i64s, npy, npz};
use proptest::prelude::*;
use rudder_graph::npy::NpyType;
use rudder_importer::{Cancel, ImportError, ReadError};
use zip::CompressionMethod::{Deflated, Stored};

/// A whole input of 4 vertices and 3 edges: each case spoils some of it.
fn whole() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("edges.npy", i64s(&[2, 3], &[0, 1, 2, 1, 2, 3])),
        ("features.npy", features(4)),
        ("labels.npy", i64s(&[4], &[0, 1, -1, 2])),
        ("split.npy", i32s(&[4], &[1, 2, 0, 3])),
    ]
}

fn home(files: &[(&str, Vec<u8>)]) -> Home {
    let home = Home::new();
    files.iter().for_each(|(name, bytes)| home.put(name, bytes));
    home
}

/// The whole input with some files replaced; empty files are removed.
fn spoiled(changes: Vec<(&'static str, Vec<u8>)>) -> Home {
    let mut files: std::collections::BTreeMap<_, _> = whole().into_iter().collect();
    files.extend(changes);
    files.retain(|_, bytes| !bytes.is_empty());
    home(&files.into_iter().collect::<Vec<_>>())
}

fn cut(mut bytes: Vec<u8>, by: usize) -> Vec<u8> {
    bytes.truncate(bytes.len() - by);
    bytes
}

fn descr(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()
}

fn sparse(data: &[f32], indices: &[i32], indptr: &[i64], shape: &[i64]) -> Vec<u8> {
    let members = [
        ("data", f32s(&[data.len() as u64], data)),
        ("indices", i32s(&[indices.len() as u64], indices)),
        ("indptr", i64s(&[indptr.len() as u64], indptr)),
        ("shape", i64s(&[shape.len() as u64], shape)),
    ];
    npz(Deflated, &members)
}

#[test]
fn the_unspoiled_input_is_fine() {
    spoiled(vec![]).import().unwrap();
    let npz = sparse(&[1.0, 2.0], &[2, 0], &[0, 1, 1, 2, 2], &[4, 3]);
    spoiled(vec![("features.npy", vec![]), ("features.npz", npz)]).import().unwrap();
    spoiled(vec![("features.npy", f32s(&[4, 1], &[f32::NAN, f32::INFINITY, -0.0, 1.0]))]).import().unwrap();
}

#[test]
fn spoiled_arrays_are_named() {
    let edges = || i64s(&[2, 3], &[0, 1, 2, 1, 2, 3]);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("edges.npy", cut(edges(), 1), "edges.npy: the array should hold 48 data bytes, the file has 47"),
        ("edges.npy", cut(edges(), 48 + 20), "edges.npy"),
        ("edges.npy", [edges(), vec![0]].concat(), "the file has 49"),
        ("edges.npy", i64s(&[2, 3], &[0, 1, 2, 1, 2, 4]), "edges.npy, element 5: vertex 4 does not exist"),
        ("edges.npy", i64s(&[2, 3], &[0, -1, 2, 1, 2, 3]), "edges.npy, element 1: vertex -1 does not exist"),
        ("edges.npy", i64s(&[2, 3], &[0, i64::MAX, 2, 1, 2, 3]), "vertex 9223372036854775807 does not"),
        ("edges.npy", i64s(&[3, 2], &[0, 1, 2, 1, 2, 3]), "an array of shape [3, 2], but whole numbers"),
        ("edges.npy", i64s(&[6], &[0, 1, 2, 1, 2, 3]), "shape [2, edges]"),
        ("edges.npy", f32s(&[2, 3], &[0.0; 6]), "`<f4`, but whole numbers"),
        ("edges.npy", b"not an array".to_vec(), "magic"),
        ("edges.npy", descr(&edges(), "(2, 3)", "(2, 3"), "malformed"),
        ("edges.npy", descr(&edges(), "'<i8'", "'>i8'"), "big-endian"),
        ("features.npy", descr(&features(4), "'<f4'", "'|O' "), "Python objects"),
        ("features.npy", descr(&features(4), "False", "True "), "Fortran"),
        ("features.npy", f32s(&[12], &[0.0; 12]), "shape [vertices, columns]"),
        ("features.npy", f32s(&[4, 0], &[]), "0 columns"),
        ("features.npy", f32s(&[0, 3], &[]), "labels.npy"),
        ("features.npy", npy(NpyType::U32, &[4, 1], &[0; 16]), "nothing is converted"),
        (
            "features.npy",
            descr(&features(4), "(4, 3)", "(9999999999999999999, 9)"),
            "more bytes than 64 bits",
        ),
        ("features.npy", descr(&features(4), "(4, 3)", "(99999999999, 3)"), "data bytes"),
        ("features.npy", vec![], "the feature array is missing"),
        ("labels.npy", i64s(&[3], &[0, 1, 2]), "labels.npy: an array of shape [3], but labels of shape [4]"),
        ("labels.npy", f32s(&[4], &[0.0, 0.5, f32::NAN, 1.0]), "labels.npy, element 1: label 0.5"),
        ("split.npy", i32s(&[4], &[1, 2, 0, 4]), "split.npy, element 3: code 4"),
        ("split.npy", i32s(&[5], &[1, 2, 0, 3, 1]), "codes of shape [4]"),
        ("edges.npy", vec![], "the edge array is missing"),
    ];
    for (name, bytes, message) in cases {
        let error = spoiled(vec![(name, bytes)]).import().unwrap_err().to_string();
        assert!(error.contains(message), "{name}: `{error}` does not say `{message}`");
    }
}

#[test]
fn an_empty_graph_is_refused_and_an_edgeless_one_is_not() {
    let none: Vec<(&str, Vec<u8>)> = vec![
        ("edges.npy", i64s(&[2, 0], &[])),
        ("features.npy", f32s(&[0, 3], &[])),
        ("labels.npy", vec![]),
        ("split.npy", vec![]),
    ];
    assert!(spoiled(none).import().unwrap_err().to_string().contains("0 vertices"));
    spoiled(vec![("edges.npy", i64s(&[2, 0], &[]))]).import().unwrap();
}

#[test]
fn spoiled_splits_are_named() {
    for (bytes, message) in [
        (i64s(&[2], &[0, 4]), "split_train.npy, element 1: vertex 4"),
        (i64s(&[1], &[-1]), "split_train.npy, element 0: vertex -1"),
        (i64s(&[5], &[0, 1, 2, 3, 0]), "at most 4 vertex ids"),
        (npy(NpyType::Bool, &[3], &[1, 0, 1]), "flags of shape [4]"),
    ] {
        let error = spoiled(vec![("split.npy", vec![]), ("split_train.npy", bytes)]).import().unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn spoiled_sparse_features_are_named() {
    for (bytes, message) in [
        (sparse(&[1.0, 2.0], &[2, 3], &[0, 1, 1, 2, 2], &[4, 3]), "[indices], element 1: column 3 of 3"),
        (sparse(&[1.0, 2.0], &[2, -1], &[0, 1, 1, 2, 2], &[4, 3]), "column -1 of 3"),
        (sparse(&[1.0, 2.0], &[1, 1], &[0, 2, 2, 2, 2], &[4, 3]), "column 1 of row 0 is set twice"),
        (sparse(&[1.0, 2.0], &[1, 1], &[0, 2, 1, 2, 2], &[4, 3]), "[indptr], element 2: offset 1 after 2"),
        (sparse(&[1.0, 2.0], &[1, 1], &[1, 2, 2, 2, 2], &[4, 3]), "[indptr], element 0"),
        (sparse(&[1.0, 2.0], &[1, 1], &[0, 1, 1, 1, 1], &[4, 3]), "the last offset is 1"),
        (sparse(&[1.0, 2.0], &[1, 1], &[0, 1, 2], &[4, 3]), "4 + 1 offsets"),
        (sparse(&[1.0], &[1, 1], &[0, 1, 1, 2, 2], &[4, 3]), "2 values"),
        (sparse(&[1.0], &[1], &[0, 1, 1, 1, 1], &[-4, 3]), "-4 is no size"),
        (sparse(&[1.0], &[1], &[0, 1, 1, 1, 1], &[i64::MAX, 3]), "offsets, as `shape` says"),
        (sparse(&[1.0], &[1], &[0, 1, 1, 1, 1], &[4, 1 << 40]), "columns"),
        (sparse(&[1.0], &[1], &[0, 1, 1, 1, 1], &[4]), "two sizes"),
    ] {
        let error = spoiled(vec![("features.npy", vec![]), ("features.npz", bytes)]).import().unwrap_err();
        assert!(error.to_string().contains(message), "`{error}` does not say `{message}`");
    }
}

#[test]
fn spoiled_lists_are_named() {
    for (indptr, indices, message) in [
        (vec![0, 1, 2, 2], vec![0, 1], "5 offsets for 4 rows"),
        (vec![0, 1, 0, 2, 2], vec![0, 1], "indptr.npy, element 2: offset 0 after 1"),
        (vec![0, 1, 1, 2, 3], vec![0, 1], "the last offset is 3"),
        (vec![0, 1, 1, 2, 2], vec![0, 4], "indices.npy, element 1: vertex 4"),
    ] {
        let lists = [(indptr.len() as u64, indptr), (indices.len() as u64, indices)];
        let [indptr, indices] = lists.map(|(len, values)| i64s(&[len], &values));
        let files = vec![("edges.npy", vec![]), ("indptr.npy", indptr), ("indices.npy", indices)];
        let error = spoiled(files).import().unwrap_err();
        assert!(error.to_string().contains(message), "`{error}` does not say `{message}`");
    }
}

/// Overwrites the uncompressed size that both headers of an archive with one member state.
fn claim_size(mut archive: Vec<u8>, size: u32) -> Vec<u8> {
    let find = |bytes: &[u8], magic: &[u8]| bytes.windows(4).position(|window| window == magic).unwrap();
    let (local, central) = (find(&archive, b"PK\x03\x04"), find(&archive, b"PK\x01\x02"));
    archive[local + 22..local + 26].copy_from_slice(&size.to_le_bytes());
    archive[central + 24..central + 28].copy_from_slice(&size.to_le_bytes());
    archive
}

#[test]
fn archives_that_lie_about_their_size_are_refused() {
    // 16 MiB of zeros behind a header of 48 bytes of data.
    let bomb = [i64s(&[2, 3], &[0; 6]), vec![0; 16 << 20]].concat();
    let honest = npz(Deflated, &[("edges", bomb)]);
    assert!(honest.len() < 1 << 16);
    let small = i64s(&[2, 3], &[0; 6]).len() as u32;
    // The archive says how long it is: refused by the header. It lies: refused when more comes out.
    for archive in [honest.clone(), claim_size(honest, small)] {
        let error = spoiled(vec![("edges.npy", vec![]), ("edges.npz", archive)]).import().unwrap_err();
        let read = matches!(error, ImportError::Read(ReadError::Length { .. } | ReadError::Io { .. }));
        assert!(read, "{error}");
    }
    // A header that claims more than any disk holds.
    let huge = descr(&i64s(&[2, 3], &[0; 6]), "(2, 3)", "(2, 300000000000000)");
    for method in [Deflated, Stored] {
        let archive = npz(method, &[("edges", huge.clone())]);
        let error = spoiled(vec![("edges.npy", vec![]), ("edges.npz", archive)]).import().unwrap_err();
        assert!(error.to_string().contains("edges.npz[edges]"), "{error}");
    }
}

#[test]
fn broken_archives_are_named() {
    let whole = npz(Deflated, &[("edges", i64s(&[2, 3], &[0, 1, 2, 1, 2, 3]))]);
    let mut flipped = whole.clone();
    flipped[60] ^= 0x55;
    for archive in [b"PK".to_vec(), cut(whole.clone(), 10), whole[20..].to_vec(), flipped, vec![7; 100]] {
        let error = spoiled(vec![("edges.npy", vec![]), ("edges.npz", archive)]).import().unwrap_err();
        assert!(error.to_string().contains("edges.npz"), "{error}");
    }
}

fn ogb() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("raw/edge.csv.gz", gzip("0,1\n1,2\n2,0\n")),
        ("raw/num-node-list.csv.gz", gzip("3\n")),
        ("raw/node-feat.csv.gz", gzip("1,2\n3,4\n5,6\n")),
        ("raw/node-label.csv.gz", gzip("1\nnan\n0\n")),
        ("split/time/train.csv.gz", gzip("0\n2\n")),
    ]
}

#[test]
fn spoiled_ogb_files_are_named() {
    home(&ogb()).import().unwrap();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("raw/edge.csv.gz", gzip("0,1\n1\n"), "edge.csv.gz, line 2: 1 fields where 2 belong"),
        ("raw/edge.csv.gz", gzip("0,1\n1,3\n"), "line 2: vertex 3 does not exist; the graph has 3"),
        ("raw/edge.csv.gz", gzip("src,dst\n"), "`src` is not a vertex id"),
        ("raw/edge.csv.gz", cut(gzip("0,1\n1,2\n"), 6), "edge.csv.gz"),
        ("raw/num-node-list.csv.gz", gzip(""), "num-node-list.csv.gz, line 1"),
        ("raw/num-node-list.csv.gz", gzip("3\n4\n"), "several graphs"),
        ("raw/num-node-list.csv.gz", gzip("-3\n"), "`-3` is not a number"),
        ("raw/num-node-list.csv.gz", gzip("99999999999\n"), "3 rows, but 99999999999"),
        ("raw/node-feat.csv.gz", gzip("1,2\n3\n5,6\n"), "line 2: 1 fields where 2 belong"),
        ("raw/node-feat.csv.gz", gzip("1,2\n3,x\n5,6\n"), "line 2: `x` is not a number"),
        ("raw/node-feat.csv.gz", gzip("1,2\n3,4\n"), "2 rows, but 3"),
        ("raw/node-feat.csv.gz", gzip("1,2\n3,4\n5,6\n7,8\n"), "more rows, but 3"),
        ("raw/node-feat.csv.gz", gzip("\n\n\n"), "line 1: 0 fields"),
        ("raw/node-label.csv.gz", gzip("1\n2\n"), "2 labels, but 3"),
        ("raw/node-label.csv.gz", gzip("1\n2\n3\n4\n"), "more labels"),
        ("raw/node-label.csv.gz", gzip("1\nred\n3\n"), "line 2: `red` is not a number"),
        ("split/time/train.csv.gz", gzip("0\n3\n"), "line 2: vertex 3"),
        ("split/time/train.csv.gz", gzip("0\n0\n1\n2\n"), "line 4"),
    ];
    for (name, bytes, message) in cases {
        let mut files: std::collections::BTreeMap<_, _> = ogb().into_iter().collect();
        files.insert(name, bytes);
        let error = home(&files.into_iter().collect::<Vec<_>>()).import().unwrap_err().to_string();
        assert!(error.contains(message), "{name}: `{error}` does not say `{message}`");
    }
}

#[test]
fn pipes_and_directories_are_no_arrays() {
    for name in ["edges.npy", "features.npz", "edges.tsv"] {
        let home = spoiled(vec![("edges.npy", vec![])]);
        std::fs::create_dir(home.input().join(name)).unwrap();
        assert!(home.import().is_err(), "{name}");
        std::fs::remove_dir(home.input().join(name)).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            home.input().join(name),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert!(home.import().is_err(), "{name}");
    }
}

#[test]
fn a_cancelled_import_leaves_nothing() {
    let home = spoiled(vec![]);
    let mut options = home.options();
    options.cancel = Cancel::default();
    options.cancel.cancel();
    assert!(matches!(home.import_with(&options), Err(ImportError::Cancelled(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Bytes changed or cut anywhere: a dataset or an error, nothing else.
    #[test]
    fn damaged_files_are_read_or_refused(
        which in 0_usize..5, at in any::<prop::sample::Index>(), byte: u8, cut_there: bool,
    ) {
        let mut files = whole();
        files.remove(0);
        files.push(("edges.npz", npz(Deflated, &[("edges", i64s(&[2, 3], &[0, 1, 2, 1, 2, 3]))])));
        if which == 4 {
            files.retain(|(name, _)| *name != "features.npy");
            files.push(("features.npz", sparse(&[1.0, 2.0], &[2, 0], &[0, 1, 1, 2, 2], &[4, 3])));
        }
        let last = files.len() - 1;
        let file = &mut files[which.min(last)].1;
        let at = at.index(file.len());
        if cut_there { file.truncate(at) } else { file[at] = byte }
        let _ = home(&files).import();
    }

    #[test]
    fn random_files_are_read_or_refused(which in 0_usize..4, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut files = whole();
        files[which].1 = bytes;
        prop_assert!(home(&files).import().is_err());
    }
}
