//! Small inputs in every format, for tests.

#![allow(dead_code, reason = "each test file uses some of it")]

use flate2::write::GzEncoder;
use rudder_graph::npy::{NpyHeader, NpyType, Padding, header};
use rudder_graph::{Manifest, layout};
use rudder_importer::{BlockSize, ImportError, ImportOptions, Input, Silent, Summary, import};
use rudder_topology::PartId;
use std::io::Write;
use std::path::{Path, PathBuf};
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// A folder for an input and a place for its dataset.
pub struct Home(tempfile::TempDir);

impl Home {
    pub fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        std::fs::create_dir(home.input()).unwrap();
        home
    }

    pub fn input(&self) -> PathBuf {
        self.0.path().join("input")
    }

    pub fn target(&self) -> PathBuf {
        self.0.path().join("out/set")
    }

    pub fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.input().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub fn options(&self) -> ImportOptions {
        let mut options = ImportOptions::new(Input::Path(self.input()), self.target());
        options.block_size = BlockSize::Rows(2);
        options
    }

    pub fn import(&self) -> Result<Summary, ImportError> {
        self.import_with(&self.options())
    }

    /// Imports, and checks that nothing but a whole dataset stands beside or under the target's name.
    pub fn import_with(&self, options: &ImportOptions) -> Result<Summary, ImportError> {
        let result = import(options, &mut Silent);
        let left: Vec<_> = match std::fs::read_dir(self.0.path().join("out")) {
            Ok(entries) => entries.map(|entry| entry.unwrap().file_name()).collect(),
            Err(_) => Vec::new(),
        };
        match &result {
            Ok(_) => assert_eq!(left, ["set"]),
            Err(error) => assert!(left.is_empty(), "{error} left {left:?}"),
        }
        result
    }

    pub fn dataset(&self) -> Dataset {
        Dataset::open(&self.target())
    }
}

/// An `.npy` file.
pub fn npy(element: NpyType, shape: &[u64], data: &[u8]) -> Vec<u8> {
    let mut bytes = header(element, shape, Padding::Aligned);
    bytes.extend(data);
    bytes
}

pub fn i64s(shape: &[u64], values: &[i64]) -> Vec<u8> {
    npy(NpyType::I64, shape, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
}

pub fn i32s(shape: &[u64], values: &[i32]) -> Vec<u8> {
    npy(NpyType::I32, shape, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
}

pub fn f32s(shape: &[u64], values: &[f32]) -> Vec<u8> {
    npy(NpyType::F32, shape, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
}

/// Features of `vertices` rows of 3 columns, each element different.
pub fn features(vertices: u64) -> Vec<u8> {
    f32s(&[vertices, 3], &(0..vertices * 3).map(|i| i as f32 / 2.0).collect::<Vec<_>>())
}

/// An `.npz` file.
pub fn npz(method: CompressionMethod, members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        writer.start_file(format!("{name}.npy"), options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

pub fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// A dataset as read back from its directory.
pub struct Dataset {
    pub directory: PathBuf,
    pub manifest: Manifest,
    /// Dataset id -> original id.
    pub original: Vec<u64>,
}

impl Dataset {
    pub fn open(directory: &Path) -> Dataset {
        let text = std::fs::read_to_string(directory.join(layout::MANIFEST)).unwrap();
        let manifest = Manifest::parse(&text).unwrap();
        let mut dataset = Dataset { directory: directory.to_owned(), manifest, original: Vec::new() };
        dataset.original = words(&dataset.array(layout::ORIGINAL_ID), u64::from_le_bytes);
        dataset
    }

    /// The data of an array.
    pub fn array(&self, relative: &str) -> Vec<u8> {
        let path = self.directory.join(relative);
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        NpyHeader::parse_file(&bytes).unwrap().1.to_vec()
    }

    /// Feature rows in the order of original ids.
    pub fn rows(&self) -> Vec<Vec<u8>> {
        let table = &self.manifest.tables[0];
        let mut rows = vec![Vec::new(); self.original.len()];
        let mut id = 0;
        for part in 0..self.manifest.parts() {
            let data = self.array(&layout::features(PartId(part as u16), &table.name));
            for row in data.chunks_exact(table.row_bytes()) {
                rows[self.original[id] as usize] = row.to_vec();
                id += 1;
            }
        }
        assert_eq!(id, self.original.len());
        rows
    }

    /// Edges (source, destination) in original ids, ascending.
    pub fn edges(&self) -> Vec<(u64, u64)> {
        let name = &self.manifest.graphs[0].name;
        let indptr = words(&self.array(&layout::indptr(name)), u64::from_le_bytes);
        let indices = words(&self.array(&layout::indices(name)), u32::from_le_bytes);
        let mut edges = Vec::new();
        for (id, range) in indptr.windows(2).enumerate() {
            let sources = &indices[range[0] as usize..range[1] as usize];
            assert!(sources.is_sorted());
            edges.extend(sources.iter().map(|&s| (self.original[s as usize], self.original[id])));
        }
        edges.sort_unstable();
        edges
    }

    /// A split's members in original ids, ascending.
    pub fn split(&self, split: layout::Split) -> Vec<u64> {
        let ids = words(&self.array(&layout::split(split)), u32::from_le_bytes);
        assert!(ids.is_sorted());
        let mut members: Vec<u64> = ids.iter().map(|&id| self.original[id as usize]).collect();
        members.sort_unstable();
        members
    }

    /// Labels in the order of original ids.
    pub fn labels(&self) -> Vec<i64> {
        let stored = words(&self.array(layout::LABELS), i64::from_le_bytes);
        let mut labels = vec![0; stored.len()];
        stored.iter().zip(&self.original).for_each(|(&label, &v)| labels[v as usize] = label);
        labels
    }
}

/// Little-endian words of an array's data.
pub fn words<const N: usize, T>(bytes: &[u8], read: fn([u8; N]) -> T) -> Vec<T> {
    bytes.chunks_exact(N).map(|word| read(word.try_into().unwrap())).collect()
}
