//! A folder of arrays. What each is, its name says:
//!
//! | what | names | shape |
//! |---|---|---|
//! | edges | `edges`, `edge_index` | `[2, E]`, row 0 sources, row 1 destinations |
//! | or lists | `indptr` + `indices` (CSC), `csc_*`, `csr_*` | `[N + 1]` and `[E]` |
//! | or text | `edges.tsv`, `.csv`, `.txt`, each also `.gz` | a source and a destination a line |
//! | features | `features`, `x`, `feat`, `node_feat` | `[N, D]`, or a scipy CSR archive |
//! | labels | `labels`, `y`, `node_label` | `[N]` or `[N, 1]`, whole numbers, negative for none |
//! | splits | `split` | `[N]` of 0 unused, 1 train, 2 valid, 3 test |
//! | or | `split_train`, `split_valid`, `split_test` (or `train_idx`, ..., `train_mask`, ...) | ids, or `[N]` of bools |
//!
//! A name is a `.npy` file, an `.npz` file with one array, or an array in any other `.npz` file.

use crate::error::{Place, ReadError};
use crate::options::ImportOptions;
use crate::progress::Run;
use crate::read::archive::Archive;
use crate::read::array::Array;
use crate::read::edge_list::{self, Header};
use crate::read::edges::{Compressed, EdgeIndex, Lists};
use crate::read::rows::{self, SparseArrays};
use crate::read::scratch::Scratch;
use crate::read::vertices::{self, SPLIT_CODES};
use crate::source::{EdgeSource, Features, Source};
use rudder_graph::Dtype;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const EDGES: [&str; 2] = ["edges", "edge_index"];
/// Names of features.
pub(crate) const FEATURES: [&str; 4] = ["features", "x", "feat", "node_feat"];
const LABELS: [&str; 3] = ["labels", "y", "node_label"];
const LISTS: [(&str, &str, Compressed); 3] = [
    ("csc_indptr", "csc_indices", Compressed::Columns),
    ("csr_indptr", "csr_indices", Compressed::Rows),
    ("indptr", "indices", Compressed::Columns),
];
const TEXT: [&str; 6] =
    ["edges.tsv", "edges.csv", "edges.txt", "edges.tsv.gz", "edges.csv.gz", "edges.txt.gz"];
const SPLITS: [[&str; 6]; 3] = [
    ["split_train", "train_idx", "train_mask", "train", "idx_train", "train_index"],
    ["split_valid", "split_val", "valid_idx", "val_idx", "valid_mask", "val_mask"],
    ["split_test", "test_idx", "test_mask", "test", "idx_test", "test_index"],
];

/// Reads a folder, or an edge list file and the arrays beside it.
pub(crate) fn open(
    path: &Path,
    options: &ImportOptions,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<Source, ReadError> {
    let is_file = path.is_file();
    let directory = if is_file { path.parent().unwrap_or(Path::new(".")) } else { path };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let folder = Folder::open(directory)?;
    let mut reader = Reader { folder, scratch, run, notes: Vec::new() };
    let (vertices, features) = reader.features(options)?;
    if features.dtype == Dtype::Bf16 {
        reader.notes.push("features of type uint16 are declared bf16".to_owned());
    }
    let edges = if is_file { reader.text(path, vertices)? } else { reader.edges(vertices)? };
    let labels = reader.labels(vertices)?;
    let split = reader.split(vertices)?;
    Ok(Source { vertices, edges, features, labels, split, placement: None, notes: reader.notes })
}

/// The arrays of a folder by name.
struct Folder {
    directory: PathBuf,
    arrays: BTreeMap<String, PathBuf>,
    archives: BTreeMap<String, Archive>,
}

/// Where an array is.
enum Found<'a> {
    File(&'a Path),
    Member(&'a Archive, &'a str),
}

impl Folder {
    fn open(directory: &Path) -> Result<Folder, ReadError> {
        let place = Place::file(directory);
        let (mut arrays, mut archives) = (BTreeMap::new(), BTreeMap::new());
        for entry in std::fs::read_dir(directory).map_err(ReadError::io(&place))? {
            let path = entry.map_err(ReadError::io(&place))?.path();
            let Some(stem) = path.file_stem().and_then(OsStr::to_str).map(str::to_owned) else { continue };
            match path.extension().and_then(OsStr::to_str) {
                Some("npy") => drop(arrays.insert(stem, path)),
                Some("npz") => drop(archives.insert(stem, Archive::open(&path)?)),
                _ => {}
            }
        }
        Ok(Folder { directory: directory.to_owned(), arrays, archives })
    }

    fn find<'a>(&'a self, names: &[&'a str]) -> Option<Found<'a>> {
        let file = names.iter().find_map(|&name| Some(Found::File(self.arrays.get(name)?)));
        let alone = || {
            let archive = |name: &&str| self.archives.get(*name);
            names.iter().filter_map(archive).find_map(|archive| Some(Found::Member(archive, archive.sole()?)))
        };
        let member = || {
            // A sparse feature archive holds `indices` and `indptr` of its own.
            let shared = self.archives.iter().filter(|(stem, archive)| {
                names.contains(&stem.as_str()) || !(FEATURES.contains(&stem.as_str()) || is_sparse(archive))
            });
            shared
                .flat_map(|(_, archive)| names.iter().map(move |&name| (archive, name)))
                .find(|(archive, name)| archive.has(name))
                .map(|(archive, name)| Found::Member(archive, name))
        };
        file.or_else(alone).or_else(member)
    }
}

fn is_sparse(archive: &Archive) -> bool {
    ["data", "indices", "indptr", "shape"].iter().all(|name| archive.has(name))
}

struct Reader<'a, 'r> {
    folder: Folder,
    scratch: &'a mut Scratch,
    run: &'a mut Run<'r>,
    notes: Vec<String>,
}

impl Reader<'_, '_> {
    fn array(&mut self, names: &[&str]) -> Result<Option<Array>, ReadError> {
        match self.folder.find(names) {
            None => Ok(None),
            Some(Found::File(path)) => Array::file(path).map(Some),
            Some(Found::Member(archive, name)) => archive.array(name, self.scratch, self.run).map(Some),
        }
    }

    fn missing(&self, what: &'static str, names: &[&str], also: &str) -> ReadError {
        let tried = format!("{} (.npy or .npz){also}", names.join(", "));
        ReadError::Missing { directory: self.folder.directory.clone(), what, tried }
    }

    fn features(&mut self, options: &ImportOptions) -> Result<(u64, Features), ReadError> {
        if let Some(file) = &options.features {
            return open_features(file, self.scratch, self.run);
        }
        let archives = FEATURES.iter().filter_map(|name| self.folder.archives.get(*name));
        if let Some(archive) = archives.into_iter().find(|archive| is_sparse(archive)).cloned() {
            return open_sparse(&archive, self.scratch, self.run);
        }
        match self.array(&FEATURES)? {
            Some(array) => rows::dense(array),
            None => Err(self.missing("the feature array", &FEATURES, "; `--features FILE` names another")),
        }
    }

    fn edges(&mut self, vertices: u64) -> Result<Box<dyn EdgeSource>, ReadError> {
        if let Some(array) = self.array(&EDGES)? {
            return Ok(Box::new(EdgeIndex::new(array, vertices)?));
        }
        for (indptr, indices, compressed) in LISTS {
            if let Some(indptr) = self.array(&[indptr])? {
                let indices = self.array(&[indices])?;
                let indices =
                    indices.ok_or_else(|| self.missing("the array of neighbours", &["indices"], ""))?;
                return Ok(Box::new(Lists::new(indptr, indices, compressed, vertices, self.run)?));
            }
        }
        for name in TEXT {
            let path = self.folder.directory.join(name);
            if path.is_file() {
                return self.text(&path, vertices);
            }
        }
        let names = ["edges", "edge_index", "indptr", "csc_indptr", "csr_indptr"];
        Err(self.missing("the edge array", &names, ", edges.tsv, edges.csv"))
    }

    fn text(&mut self, file: &Path, vertices: u64) -> Result<Box<dyn EdgeSource>, ReadError> {
        let list = edge_list::read(file, vertices, Header::Allowed, self.scratch, self.run)?;
        if let Some(header) = list.header {
            self.notes.push(format!("`{header}` was taken for the header of the edge list"));
        }
        Ok(Box::new(list.edges))
    }

    fn labels(&mut self, vertices: u64) -> Result<Option<Vec<i64>>, ReadError> {
        let Some(array) = self.array(&LABELS)? else { return Ok(None) };
        let labels = vertices::labels(&array, vertices, self.run)?;
        if labels.is_none() {
            self.notes.push(format!("labels left out: {} has more than one a vertex", array.shape_text()));
        }
        Ok(labels)
    }

    fn split(&mut self, vertices: u64) -> Result<Option<crate::source::Split>, ReadError> {
        if let Some(codes) = self.array(&["split"])? {
            return vertices::split_codes(&codes, vertices, self.run).map(Some);
        }
        let mut lists = [const { None }; SPLIT_CODES];
        for (list, names) in lists.iter_mut().zip(&SPLITS) {
            if let Some(array) = self.array(names)? {
                *list = Some(vertices::members(&array, vertices, self.run)?);
            }
        }
        let [train, valid, test] = lists;
        let Some(train) = train else {
            if valid.is_some() || test.is_some() {
                self.notes.push("a split without a training set was left out".to_owned());
            }
            return Ok(None);
        };
        let split =
            crate::source::Split { train, valid: valid.unwrap_or_default(), test: test.unwrap_or_default() };
        Ok(Some(split))
    }
}

/// Features from a file of their own.
pub(crate) fn open_features(
    file: &Path,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<(u64, Features), ReadError> {
    if file.extension().is_none_or(|extension| extension != "npz") {
        return rows::dense(Array::file(file)?);
    }
    let archive = Archive::open(file)?;
    if is_sparse(&archive) {
        return open_sparse(&archive, scratch, run);
    }
    let named = || FEATURES.into_iter().find(|name| archive.has(name));
    match archive.sole().or_else(named) {
        Some(name) => rows::dense(archive.array(name, scratch, run)?),
        None => {
            let problem = "neither one array, nor one named features, x, feat or node_feat".to_owned();
            Err(ReadError::Archive { place: Place::file(file), problem })
        }
    }
}

fn open_sparse(
    archive: &Archive,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<(u64, Features), ReadError> {
    if let Some(format) = archive.small("format")? {
        let format = format.strip_suffix(b"\0").unwrap_or(&format);
        if !format.ends_with(b"csr") {
            let problem = "the sparse matrix is not in CSR format".to_owned();
            return Err(ReadError::Archive { place: Place::member(&archive.file, "format"), problem });
        }
    }
    let mut array = |name| archive.array(name, scratch, run);
    let arrays = SparseArrays {
        shape: array("shape")?,
        indptr: array("indptr")?,
        indices: array("indices")?,
        data: array("data")?,
    };
    rows::sparse(arrays, run)
}
