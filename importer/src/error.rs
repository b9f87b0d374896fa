//! What can go wrong, one enum an operation. Every message names the file, and the line, member or element in it.

use crate::progress::Cancelled;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A file, or a member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: PathBuf,
    pub member: Option<String>,
}

impl Place {
    #[must_use]
    pub fn file(file: &Path) -> Self {
        Place { file: file.to_owned(), member: None }
    }

    #[must_use]
    pub fn member(file: &Path, member: &str) -> Self {
        Place { file: file.to_owned(), member: Some(member.to_owned()) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.member {
            Some(member) => write!(f, "{}[{member}]", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

/// Where in a place a value stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Line(u64),
    Element(u64),
    Byte(u64),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Line(line) => write!(f, "line {line}"),
            At::Element(element) => write!(f, "element {element}"),
            At::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// What is wrong with a line of text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    #[error("{found} fields where {expected} belong")]
    Fields { expected: usize, found: usize },
    #[error("`{0}` is not a vertex id (a whole number from 0)")]
    VertexId(String),
    #[error("`{0}` is not a number")]
    Number(String),
    #[error("the line is longer than {0} bytes")]
    TooLong(usize),
    #[error("the line is not UTF-8 text")]
    Encoding,
}

/// Why an input was not understood.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {place}: {source}")]
    Io { place: Place, source: io::Error },
    #[error("{directory}: {what} is missing; looked for {tried}", directory = .directory.display())]
    Missing { directory: PathBuf, what: &'static str, tried: String },
    #[error("{place}: {source}")]
    Array { place: Place, source: rudder_graph::npy::NpyError },
    #[error("{place}: {problem}")]
    Format { place: Place, problem: String },
    #[error("{place}: {problem}")]
    Archive { place: Place, problem: String },
    #[error("{place}: {found}, but {expected} belong here")]
    Shape { place: Place, found: String, expected: String },
    #[error("{place}: {found} bytes of data where the header says {expected}")]
    Length { place: Place, found: u64, expected: u64 },
    #[error("{place}, {at}: vertex {found} does not exist; the graph has {vertices}, counted from 0")]
    Vertex { place: Place, at: At, found: i128, vertices: u64 },
    #[error("{place}, {at}: {problem}")]
    Value { place: Place, at: At, problem: String },
    #[error("{file}, line {line}: {problem}", file = .file.display())]
    Line { file: PathBuf, line: u64, problem: LineProblem },
    #[error("cannot write the scratch file {file}: {source}", file = .file.display())]
    Scratch { file: PathBuf, source: io::Error },
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl ReadError {
    pub(crate) fn io(place: &Place) -> impl FnOnce(io::Error) -> ReadError + use<> {
        let place = place.clone();
        move |source| ReadError::Io { place, source }
    }

    pub(crate) fn line(file: &Path, line: u64, problem: LineProblem) -> ReadError {
        ReadError::Line { file: file.to_owned(), line, problem }
    }

    pub(crate) fn shape(place: &Place, found: impl Into<String>, expected: impl Into<String>) -> ReadError {
        ReadError::Shape { place: place.clone(), found: found.into(), expected: expected.into() }
    }
}

/// Why an import ended without a dataset. Nothing stands under the target's name that was not there before.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    Read(ReadError),
    #[error(transparent)]
    Generate(#[from] GenerateError),
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error("{} exists; `--force` replaces a dataset", .0.display())]
    TargetExists(PathBuf),
    #[error("{} exists and is no dataset (it has no dataset.toml): it is not replaced", .0.display())]
    TargetForeign(PathBuf),
    #[error("cannot write {file}: {source}", file = .file.display())]
    Write { file: PathBuf, source: io::Error },
    #[error("{what} needs {bytes} of memory, which the machine refuses")]
    Memory { what: &'static str, bytes: rudder_topology::Bytes },
    #[error("METIS failed: {0}; `--partitioner streaming` does without it")]
    Metis(String),
    #[error("the input changed while it was read: {0}")]
    Unstable(&'static str),
    #[error("the dataset would not be valid: {0}")]
    Manifest(#[from] rudder_graph::manifest::ManifestErrors),
    #[error(transparent)]
    Cancelled(Cancelled),
}

impl From<Cancelled> for ImportError {
    fn from(cancelled: Cancelled) -> Self {
        ImportError::Cancelled(cancelled)
    }
}

impl From<ReadError> for ImportError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Cancelled(cancelled) => ImportError::Cancelled(cancelled),
            error => ImportError::Read(error),
        }
    }
}

impl ImportError {
    pub(crate) fn write(file: &Path) -> impl FnOnce(io::Error) -> ImportError + use<> {
        let file = file.to_owned();
        move |source| ImportError::Write { file, source }
    }
}

/// Why a `generate:` specification was refused.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    #[error(transparent)]
    Graph(#[from] rudder_graph::generate::GeneratorError),
    #[error("`{key}={value}`: {reason}")]
    Setting { key: String, value: String, reason: &'static str },
}

/// Why the options do not fit each other or the input.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("{parts} parts: give 1 to {max}")]
    Parts { parts: u32, max: u32 },
    #[error("{0} rows a block: give a power of two from 1 to 64, or auto")]
    RowsPerBlock(u32),
    #[error("the graph has {0} vertices; a dataset holds 1 to {max}", max = u32::MAX)]
    Vertices(u64),
    #[error(
        "the input is cut into {found} parts already, not {asked}: leave `--parts` out, or name a `--partitioner` to cut it anew"
    )]
    Placed { asked: u32, found: u32 },
    #[error("fanouts and seeds are at least 1, and there is at least one fanout")]
    Sampling,
    #[error("{0} has no name to write a dataset under")]
    Target(String),
    #[error(transparent)]
    Name(rudder_topology::NameError),
}

/// Why a dataset directory was refused.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("cannot read {file}: {source}", file = .file.display())]
    Io { file: PathBuf, source: io::Error },
    #[error("{file}: {problem}", file = .file.display())]
    Syntax { file: PathBuf, problem: String },
    #[error("{file}: {source}", file = .file.display())]
    Manifest { file: PathBuf, source: rudder_graph::manifest::ManifestErrors },
    #[error("{file}: {source}", file = .file.display())]
    Array { file: PathBuf, source: rudder_graph::npy::NpyError },
    #[error("{file}: {found}, but {expected} belong here", file = .file.display())]
    Shape { file: PathBuf, found: String, expected: String },
    #[error("{file}: {problem}", file = .file.display())]
    Value { file: PathBuf, problem: String },
    #[error("{file}: block {block} has checksum {found:08x}, the table says {expected:08x} ({bad} bad blocks in this file)", file = .file.display())]
    Checksum { file: PathBuf, block: u32, found: u32, expected: u32, bad: u64 },
    #[error("{file}: the digest says {expected}, the files give {found}", file = .file.display())]
    Digest { file: PathBuf, expected: String, found: String },
}
