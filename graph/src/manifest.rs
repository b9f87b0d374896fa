//! `dataset.toml`: what a dataset directory holds.
//!
//! ```text
//! DIR/dataset.toml
//! DIR/graph/<name>.indptr.npy      u64 [vertices + 1]   CSC: in-neighbours of each vertex
//! DIR/graph/<name>.indices.npy     u32 [edges]
//! DIR/labels.npy                   i64 [vertices]       -1: none (file absent: no labels)
//! DIR/split_{train,valid,test}.npy u32 [n]              dataset ids (absent: no split)
//! DIR/original_id.npy              u64 [vertices]       dataset id -> original id
//! DIR/dataset_id.npy               u32 [vertices]       original id -> dataset id
//! DIR/parts/<p>/<table>.npy        [rows, dim]          rows of the part; data starts at byte 4096
//! DIR/parts/<p>/<table>.crc.npy    u32 [blocks]         CRC32C of each block's bytes
//! ```
//!
//! All vertex ids inside are dataset ids: import numbers vertices part by part. The manifest lists every file
//! but the feature files with its size and digest (the checksum tables vouch for those), and its own digest
//! covers that list: a directory that holds only some parts can check what it holds.

use crate::dtype::Dtype;
use crate::layout::{self, Split};
use rudder_topology::{DatasetName, PartId, TableName};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt;

/// Feature data starts here in its `.npy` file, so that blocks can be read with `O_DIRECT`.
pub const FEATURE_DATA_OFFSET: u64 = 4096;

/// The layout's version; a reader refuses others.
pub const FORMAT_VERSION: u32 = 1;

/// The parsed manifest. [`Manifest::check`] has passed on every value that a reader returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub name: DatasetName,
    pub vertices: u64,
    pub edges: u64,
    /// BLAKE3 of [`Manifest::to_toml`] with this field empty; 64 hex digits. [`Manifest::seal`] sets it.
    pub digest: String,
    /// `part_offsets[p] .. part_offsets[p + 1]` are the vertices of part p. At least two entries; empty parts are valid.
    pub part_offsets: Vec<u64>,
    pub graphs: Vec<GraphSpec>,
    pub tables: Vec<TableSpec>,
    /// Every file of the layout but the manifest and the feature files: graph files, id maps and checksum tables
    /// always, labels and splits where the dataset has them.
    pub files: Vec<FileSpec>,
    /// What import weighed, for `rudder inspect`. Free text, one line each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A file of the dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// Relative to the dataset directory, as [`crate::layout`] names it.
    pub path: String,
    pub bytes: u64,
    /// BLAKE3 of the file's bytes; 64 hex digits.
    pub digest: String,
}

/// A typed graph in CSC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSpec {
    pub name: TableName,
    pub edges: u64,
}

/// A feature table. Vertex tables have one row a vertex; other tables state their own part offsets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    pub name: TableName,
    pub dim: u32,
    pub dtype: Dtype,
    /// A power of two, 1 to 64.
    pub rows_per_block: u32,
    /// `row_offsets[p] .. row_offsets[p + 1]` are the rows of part p.
    pub row_offsets: Vec<u64>,
}

impl TableSpec {
    /// Bytes of one row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.dim as usize * self.dtype.size()
    }

    /// Bytes of one full block, which is also its slot's size class.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.row_bytes() * self.rows_per_block as usize
    }
}

/// Longest manifest text that is read, in bytes.
pub const MANIFEST_BYTES_MAX: usize = 16 << 20;

/// Bytes of one block at most: it has to fit a slot.
pub const BLOCK_BYTES_MAX: u64 = 1 << 30;

/// Everything that is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestErrors(pub Vec<ManifestError>);

impl std::error::Error for ManifestErrors {}

impl fmt::Display for ManifestErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

/// One thing that is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest has {0} bytes; at most {MANIFEST_BYTES_MAX} are read")]
    TooLong(usize),
    #[error("the manifest is not valid: {0}")]
    Syntax(String),
    #[error("the manifest has format {0}; this program reads format {FORMAT_VERSION}")]
    Format(u32),
    #[error("{count} vertices: there are 1 to {max}", max = u32::MAX)]
    Vertices { count: u64 },
    #[error("{what}: offsets are 0 first, ascend, and end at the number of rows, with 1 to {max} parts", max = u16::MAX)]
    Offsets { what: String },
    #[error("table `{table}` has {found} offsets where the parts need {expected}")]
    OffsetCount { table: TableName, found: usize, expected: usize },
    #[error("table `{table}`: rows_per_block is a power of two from 1 to 64, not {found}")]
    RowsPerBlock { table: TableName, found: u32 },
    #[error(
        "table `{table}`: rows of {dim} columns in blocks of {rows} make blocks of 0 or over {BLOCK_BYTES_MAX} bytes"
    )]
    BlockBytes { table: TableName, dim: u32, rows: u32 },
    #[error("the tables have {0} blocks; block ids are 32 bits wide")]
    Blocks(u64),
    #[error("a dataset has 1 to {max} feature tables, not {0}", max = u16::MAX)]
    Tables(usize),
    #[error("the name `{0}` is used twice")]
    NameTwice(TableName),
    #[error("a table may not be named `{0}`: `.crc` at the end is taken by checksum tables")]
    NameTaken(TableName),
    #[error("the graphs have {found} edges in all, the dataset says {expected}")]
    Edges { found: u64, expected: u64 },
    #[error("`{what}` has no digest of 64 hex digits")]
    Digest { what: String },
    #[error("the manifest's digest is {stated}, but its text gives {found}")]
    DigestDiffers { stated: String, found: String },
    #[error("`{0}` is no file of this dataset")]
    UnknownFile(String),
    #[error("`{0}` is listed twice")]
    FileTwice(String),
    #[error("`{0}` is not listed among the files")]
    FileMissing(String),
}

impl Manifest {
    /// Reads and checks a manifest.
    pub fn parse(text: &str) -> Result<Manifest, ManifestErrors> {
        if text.len() > MANIFEST_BYTES_MAX {
            return Err(ManifestErrors(vec![ManifestError::TooLong(text.len())]));
        }
        let manifest: Manifest = toml::from_str(text)
            .map_err(|error| ManifestErrors(vec![ManifestError::Syntax(error.to_string())]))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The text of `dataset.toml`.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a manifest has only tables, strings and numbers")
    }

    /// Sets the digest: the last thing a writer does.
    pub fn seal(&mut self) {
        self.digest = self.computed_digest();
    }

    /// What the digest should be.
    #[must_use]
    pub fn computed_digest(&self) -> String {
        let unsealed = Manifest { digest: String::new(), ..self.clone() };
        blake3::hash(unsealed.to_toml().as_bytes()).to_hex().to_string()
    }

    /// Number of parts.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.part_offsets.len().saturating_sub(1)
    }

    /// The listed file at a path of the layout.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&FileSpec> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Every error at once. A manifest that passes cannot make [`crate::PartitionBook::new`] panic.
    pub fn check(&self) -> Result<(), ManifestErrors> {
        let mut errors = Vec::new();
        self.check_shape(&mut errors);
        self.check_tables(&mut errors);
        self.check_names(&mut errors);
        // File names follow from names and parts; with those wrong, their errors would only repeat.
        if errors.is_empty() {
            self.check_files(&mut errors);
        }
        if errors.is_empty() { Ok(()) } else { Err(ManifestErrors(errors)) }
    }

    fn check_shape(&self, errors: &mut Vec<ManifestError>) {
        if self.format != FORMAT_VERSION {
            errors.push(ManifestError::Format(self.format));
        }
        if self.vertices == 0 || self.vertices > u64::from(u32::MAX) {
            errors.push(ManifestError::Vertices { count: self.vertices });
        }
        if !offsets_ascend(&self.part_offsets) || self.part_offsets.last() != Some(&self.vertices) {
            errors.push(ManifestError::Offsets { what: "part_offsets".into() });
        }
        let edges = self.graphs.iter().fold(0_u64, |sum, graph| sum.saturating_add(graph.edges));
        if edges != self.edges {
            errors.push(ManifestError::Edges { found: edges, expected: self.edges });
        }
        // A digest that is no digest is one error, one that differs another.
        if !is_digest(&self.digest) {
            errors.push(ManifestError::Digest { what: layout::MANIFEST.into() });
        } else if self.digest != self.computed_digest() {
            let (stated, found) = (self.digest.clone(), self.computed_digest());
            errors.push(ManifestError::DigestDiffers { stated, found });
        }
    }

    fn check_tables(&self, errors: &mut Vec<ManifestError>) {
        if self.tables.is_empty() || self.tables.len() > usize::from(u16::MAX) {
            errors.push(ManifestError::Tables(self.tables.len()));
        }
        let mut blocks = 0_u64;
        for spec in &self.tables {
            let table = spec.name.clone();
            let rows = spec.rows_per_block;
            if !rows.is_power_of_two() || rows > 64 {
                errors.push(ManifestError::RowsPerBlock { table, found: rows });
                continue;
            }
            let bytes = u64::from(spec.dim) * spec.dtype.size() as u64 * u64::from(rows);
            if bytes == 0 || bytes > BLOCK_BYTES_MAX {
                errors.push(ManifestError::BlockBytes { table: table.clone(), dim: spec.dim, rows });
            }
            let (found, expected) = (spec.row_offsets.len(), self.part_offsets.len());
            if found != expected {
                errors.push(ManifestError::OffsetCount { table, found, expected });
            } else if !offsets_ascend(&spec.row_offsets) {
                errors.push(ManifestError::Offsets { what: format!("table `{table}`") });
            } else {
                let of_table = spec.row_offsets.windows(2).map(|w| (w[1] - w[0]).div_ceil(u64::from(rows)));
                blocks = of_table.fold(blocks, u64::saturating_add);
            }
        }
        if blocks > u64::from(u32::MAX) {
            errors.push(ManifestError::Blocks(blocks));
        }
    }

    fn check_names(&self, errors: &mut Vec<ManifestError>) {
        let tables: Vec<_> = self.tables.iter().map(|table| &table.name).collect();
        let graphs: Vec<_> = self.graphs.iter().map(|graph| &graph.name).collect();
        for names in [&tables, &graphs] {
            let mut seen = HashSet::new();
            let twice = names.iter().filter(|&&name| !seen.insert(name));
            errors.extend(twice.map(|&name| ManifestError::NameTwice(name.clone())));
        }
        let taken = tables.iter().filter(|name| name.as_str().ends_with(".crc"));
        errors.extend(taken.map(|&name| ManifestError::NameTaken(name.clone())));
    }

    fn check_files(&self, errors: &mut Vec<ManifestError>) {
        let required = self.required_files();
        let optional: Vec<String> =
            Split::ALL.into_iter().map(layout::split).chain([layout::LABELS.to_owned()]).collect();
        let known: HashSet<&str> = required.iter().chain(&optional).map(String::as_str).collect();
        let mut listed = HashSet::new();
        for file in &self.files {
            if !known.contains(file.path.as_str()) {
                errors.push(ManifestError::UnknownFile(file.path.chars().take(200).collect()));
            } else if !listed.insert(file.path.as_str()) {
                errors.push(ManifestError::FileTwice(file.path.clone()));
            } else if !is_digest(&file.digest) {
                errors.push(ManifestError::Digest { what: file.path.clone() });
            }
        }
        let missing = required.iter().filter(|path| !listed.contains(path.as_str()));
        errors.extend(missing.map(|path| ManifestError::FileMissing(path.clone())));
    }

    /// Paths of the files that every manifest lists, in the order of the layout.
    #[must_use]
    pub fn required_files(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for graph in &self.graphs {
            paths.extend([layout::indptr(&graph.name), layout::indices(&graph.name)]);
        }
        paths.extend([layout::ORIGINAL_ID.to_owned(), layout::DATASET_ID.to_owned()]);
        for part in 0..self.parts() {
            let of_part = |table: &TableSpec| layout::checksums(PartId(part as u16), &table.name);
            paths.extend(self.tables.iter().map(of_part));
        }
        paths
    }
}

fn offsets_ascend(offsets: &[u64]) -> bool {
    let parts = offsets.len().saturating_sub(1);
    (1..=usize::from(u16::MAX)).contains(&parts)
        && offsets[0] == 0
        && offsets.windows(2).all(|pair| pair[0] <= pair[1])
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests;
