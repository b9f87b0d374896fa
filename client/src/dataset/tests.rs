use super::*;
use proptest::prelude::*;
use rudder_graph::manifest::FORMAT_VERSION;
use rudder_graph::npy::{Padding, header};
use rudder_graph::{Dtype, FileSpec, GraphSpec, TableSpec, crc};
use rudder_topology::DatasetName;
use std::fs;

const DIM: u32 = 3;
/// Part 1 is empty.
const OFFSETS: [u64; 4] = [0, 6, 6, 10];

fn name(text: &str) -> TableName {
    TableName::new(text).unwrap()
}

/// Row r is `[r * 10, r * 10 + 1, r * 10 + 2]` as i32.
fn row_bytes(row: u64) -> Vec<u8> {
    (0..DIM).flat_map(|column| (row as i32 * 10 + column as i32).to_le_bytes()).collect()
}

fn array(element: NpyType, shape: &[u64], data: &[u8], padding: Padding) -> Vec<u8> {
    [header(element, shape, padding), data.to_vec()].concat()
}

fn numbers<const N: usize>(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(|n| n.to_le_bytes()[..N].to_vec()).collect()
}

/// A ring of ten vertices in three parts, with everything that a dataset can have.
fn write_dataset(directory: &Path) -> Manifest {
    let mut manifest = Manifest {
        format: FORMAT_VERSION,
        name: DatasetName::new("ring").unwrap(),
        vertices: 10,
        edges: 10,
        digest: String::new(),
        part_offsets: OFFSETS.to_vec(),
        graphs: vec![GraphSpec { name: name("ring"), edges: 10 }],
        tables: vec![TableSpec {
            name: name("x"),
            dim: DIM,
            dtype: Dtype::I32,
            rows_per_block: 4,
            row_offsets: OFFSETS.to_vec(),
        }],
        files: Vec::new(),
        notes: Vec::new(),
    };
    let wide = |element, data: Vec<u8>| {
        array(element, &[data.len() as u64 / element.size()], &data, Padding::Aligned)
    };
    let mut files = vec![
        (layout::indptr(&name("ring")), wide(NpyType::U64, numbers::<8>(0..=10))),
        (layout::indices(&name("ring")), wide(NpyType::U32, numbers::<4>((0..10).map(|v| (v + 1) % 10)))),
        (layout::LABELS.into(), wide(NpyType::I64, numbers::<8>((0..10).map(|v| v % 3)))),
        (layout::split(Split::Train), wide(NpyType::U32, numbers::<4>([3, 1, 9]))),
        (layout::ORIGINAL_ID.into(), wide(NpyType::U64, numbers::<8>((0..10).rev()))),
        (layout::DATASET_ID.into(), wide(NpyType::U32, numbers::<4>((0..10).rev()))),
    ];
    for (part, rows) in OFFSETS.windows(2).enumerate() {
        let part = PartId(part as u16);
        let data: Vec<u8> = (rows[0]..rows[1]).flat_map(row_bytes).collect();
        let checksums = crc::checksums(&data, 4 * DIM as usize * 4).map(u64::from);
        files.push((layout::checksums(part, &name("x")), wide(NpyType::U32, numbers::<4>(checksums))));
        let shape = [rows[1] - rows[0], u64::from(DIM)];
        let features = array(NpyType::I32, &shape, &data, Padding::To(FEATURE_DATA_OFFSET));
        write(directory, &layout::features(part, &name("x")), &features);
    }
    for (path, bytes) in files {
        write(directory, &path, &bytes);
        let digest = blake3::hash(&bytes).to_hex().to_string();
        manifest.files.push(FileSpec { path, bytes: bytes.len() as u64, digest });
    }
    manifest.seal();
    write(directory, layout::MANIFEST, manifest.to_toml().as_bytes());
    manifest
}

fn write(directory: &Path, relative: &str, bytes: &[u8]) {
    let path = directory.join(relative);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn dataset() -> (tempfile::TempDir, Dataset) {
    let directory = tempfile::tempdir().unwrap();
    write_dataset(directory.path());
    let dataset = Dataset::open(directory.path()).unwrap();
    (directory, dataset)
}

#[test]
fn everything_is_read_back() {
    let (_directory, dataset) = dataset();
    for row in 0..10 {
        assert_eq!(dataset.row(TableId(0), row).unwrap(), row_bytes(row));
    }
    assert_eq!(dataset.row(TableId(0), 10), Err(RowError::UnknownRow { table: TableId(0), row: 10 }));
    assert_eq!(dataset.row(TableId(1), 0), Err(RowError::UnknownRow { table: TableId(1), row: 0 }));
    assert_eq!(dataset.block(BlockId(1)).unwrap(), [row_bytes(4), row_bytes(5)].concat());
    assert_eq!(dataset.block(BlockId(3)), Err(RowError::UnknownBlock(BlockId(3))));
    let checksum = crc::block_checksum(dataset.block(BlockId(2)).unwrap());
    assert_eq!(dataset.block_checksum(BlockId(2)), Ok(checksum));
    let csc = dataset.csc(&name("ring")).unwrap();
    assert_eq!((csc.vertices(), csc.in_neighbours(VertexId(9))), (10, &[0][..]));
    assert!(dataset.csc(&name("other")).is_none());
    assert_eq!(dataset.split(Split::Train).unwrap(), [VertexId(3), VertexId(1), VertexId(9)]);
    assert_eq!(dataset.split(Split::Test), None);
    assert_eq!(dataset.labels().unwrap()[..4], [0, 1, 2, 0]);
    assert_eq!((dataset.original_id(VertexId(0)), dataset.dataset_id(9)), (Some(9), Some(VertexId(0))));
    assert_eq!((dataset.original_id(VertexId(10)), dataset.dataset_id(10)), (None, None));
    assert_eq!(dataset.parts().collect::<Vec<_>>(), [PartId(0), PartId(1), PartId(2)]);
    assert_eq!(dataset.features(TableId(0), PartId(1)), Some(&[][..]));
    assert_eq!(dataset.table(&name("x")), Some(TableId(0)));
}

#[test]
fn a_directory_may_hold_only_some_parts() {
    let (directory, _) = dataset();
    fs::remove_dir_all(directory.path().join("parts/0")).unwrap();
    fs::remove_dir_all(directory.path().join("graph")).unwrap();
    // A part without its checksum table is not a part.
    fs::remove_file(directory.path().join("parts/1/x.crc.npy")).unwrap();
    let dataset = Dataset::open(directory.path()).unwrap();
    assert_eq!(dataset.parts().collect::<Vec<_>>(), [PartId(2)]);
    assert!(dataset.first_csc().is_none() && !dataset.has_part(PartId(0)));
    assert_eq!(dataset.row(TableId(0), 2), Err(RowError::AbsentPart(PartId(0))));
    assert_eq!(dataset.row(TableId(0), 9).unwrap(), row_bytes(9));
    let verified = dataset.verify(VerifyScope::Everything, |_| ()).unwrap();
    assert_eq!((verified.absent.len(), verified.damage.len(), verified.blocks), (4, 0, 1));
}

#[test]
fn every_misfit_is_refused() {
    type Case = (&'static str, fn(&Path), fn(&DatasetError) -> bool);
    let cases: [Case; 9] = [
        ("dataset.toml", |p| fs::remove_file(p).unwrap(), |e| matches!(e, DatasetError::Read { .. })),
        ("dataset.toml", |p| fs::write(p, [0xff]).unwrap(), |e| matches!(e, DatasetError::Read { .. })),
        ("dataset.toml", |p| append(p, b"x = 1"), |e| matches!(e, DatasetError::Manifest { .. })),
        ("labels.npy", |p| append(p, b"x"), |e| matches!(e, DatasetError::Npy { .. })),
        (
            "labels.npy",
            |p| fs::write(p, b"").unwrap(),
            |e| matches!(e, DatasetError::Npy { .. } | DatasetError::Read { .. }),
        ),
        (
            "split_train.npy",
            |p| replace_array(p, NpyType::U32, &[1], &[200, 0, 0, 0]),
            |e| matches!(e, DatasetError::FileBytes { .. }),
        ),
        (
            "original_id.npy",
            |p| replace_array(p, NpyType::I64, &[10], &[0; 80]),
            |e| matches!(e, DatasetError::Array { .. }),
        ),
        (
            "parts/2/x.npy",
            |p| replace_array(p, NpyType::I32, &[4, 3], &[0; 48]),
            |e| matches!(e, DatasetError::DataOffset { .. }),
        ),
        (
            "graph/ring.indptr.npy",
            |p| replace_array(p, NpyType::U64, &[11], &[0; 88]),
            |e| matches!(e, DatasetError::Graph { .. }),
        ),
    ];
    for (file, spoil, expected) in cases {
        let (directory, _) = dataset();
        spoil(&directory.path().join(file));
        let error = Dataset::open(directory.path()).unwrap_err();
        assert!(expected(&error), "{file}: {error:?}");
        assert!(error.to_string().contains(file), "{error}");
    }
}

fn append(path: &Path, bytes: &[u8]) {
    let old = fs::read(path).unwrap();
    fs::write(path, [&old, bytes].concat()).unwrap();
}

fn replace_array(path: &Path, element: NpyType, shape: &[u64], data: &[u8]) {
    fs::write(path, array(element, shape, data, Padding::Aligned)).unwrap();
}

#[test]
fn pipes_and_directories_are_no_files() {
    for file in ["labels.npy", "parts/0/x.npy", layout::MANIFEST] {
        let (directory, _) = dataset();
        let path = directory.path().join(file);
        fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(matches!(Dataset::open(directory.path()), Err(DatasetError::Read { .. })), "{file}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(Dataset::open(directory.path()), Err(DatasetError::Read { .. })), "{file}");
    }
}

#[test]
fn split_vertices_exist() {
    let directory = tempfile::tempdir().unwrap();
    let mut manifest = write_dataset(directory.path());
    let bytes = array(NpyType::U32, &[1], &10_u32.to_le_bytes(), Padding::Aligned);
    write(directory.path(), &layout::split(Split::Train), &bytes);
    let split = manifest.files.iter_mut().find(|file| file.path == layout::split(Split::Train)).unwrap();
    split.bytes = bytes.len() as u64;
    manifest.seal();
    write(directory.path(), layout::MANIFEST, manifest.to_toml().as_bytes());
    let error = Dataset::open(directory.path()).unwrap_err();
    assert!(matches!(error, DatasetError::SplitVertex { vertex: 10, .. }), "{error}");
}

#[test]
fn verification_finds_one_wrong_byte() {
    let (directory, clean) = dataset();
    let mut calls = Vec::new();
    let verified = clean
        .verify(VerifyScope::Everything, |progress| {
            calls.push((progress.bytes_done, progress.bytes_total));
        })
        .unwrap();
    assert_eq!((verified.damage.len(), verified.blocks, verified.absent.len()), (0, 3, 0));
    assert_eq!(verified.files, clean.manifest().files.len() as u64 + 3);
    let total = calls[0].1;
    assert_eq!(calls.last(), Some(&(total, total)));
    drop(clean);

    for (file, in_part) in
        [("parts/2/x.npy", true), ("parts/2/x.crc.npy", true), ("graph/ring.indices.npy", false)]
    {
        let (directory, _) = dataset();
        let path = directory.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
        let damaged = Dataset::open(directory.path()).unwrap();
        let damage = |scope| damaged.verify(scope, |_| ()).unwrap().damage;
        assert!(!damage(VerifyScope::Everything).is_empty(), "{file}");
        assert_eq!(!damage(VerifyScope::Part(PartId(2))).is_empty(), in_part, "{file}");
        assert!(damage(VerifyScope::Part(PartId(0))).is_empty(), "{file}");
    }
    drop(directory);
}

#[test]
fn damage_names_the_block() {
    let (directory, _) = dataset();
    let path = directory.path().join("parts/0/x.npy");
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096 + 4 * 12] ^= 0x80;
    fs::write(path, bytes).unwrap();
    let dataset = Dataset::open(directory.path()).unwrap();
    let damage = dataset.verify(VerifyScope::Part(PartId(0)), |_| ()).unwrap().damage;
    let [Damage::Block(block)] = &damage[..] else { panic!("{damage:?}") };
    assert_eq!((block.part, block.index), (PartId(0), 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn spoiled_files_never_panic(file in 0_usize..11, at: prop::sample::Index, cut: bool, byte: u8) {
        let directory = tempfile::tempdir().unwrap();
        let manifest = write_dataset(directory.path());
        let mut paths: Vec<_> = manifest.files.iter().map(|file| file.path.clone()).collect();
        paths.extend(["parts/0/x.npy".to_owned(), layout::MANIFEST.to_owned()]);
        let path = directory.path().join(&paths[file % paths.len()]);
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        fs::write(&path, bytes).unwrap();
        if let Ok(dataset) = Dataset::open(directory.path()) {
            let _ = dataset.verify(VerifyScope::Everything, |_| ()).unwrap();
            for row in 0..11 {
                let _ = dataset.row(TableId(0), row);
                let _ = dataset.original_id(VertexId(row as u32));
                let _ = dataset.dataset_id(row);
            }
        }
    }
}
