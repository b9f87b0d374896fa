//! What a trainer and the compute node on its machine say to each other over a Unix stream socket.
//!
//! Both directions: `u32` length of what follows (little endian), `u8` kind, body. Integers are little endian.
//! The node's welcome carries the descriptors of the cache chunks and co-located feature files (`SCM_RIGHTS`, in
//! groups of at most [`DESCRIPTORS_PER_MESSAGE`], each group on a `Mapping` frame of its own).
//!
//! ```text
//! trainer -> node: Hello, then any of Announce, Want, Release, StatisticsRequest, Declare
//! node -> trainer: Welcome, Mapping*, WelcomeEnd | Refused; then any of Ready, Piece, Failed, Statistics
//! ```
//!
//! Everything decoded here is untrusted: lengths are checked before anything is allocated, and a malformed
//! frame is an error that ends the connection, never a panic.

use rudder_graph::location::Location;
use rudder_graph::trace::TraceSpec;
use rudder_topology::{DatasetName, Generation, JobId, MinibatchId, TableId, TrainerRank};
use serde::{Deserialize, Serialize};

mod reader;

use reader::Reader;

/// Raised with every incompatible change.
pub const PROTOCOL_VERSION: u32 = 2;
/// Rows that one minibatch may ask for, all tables together.
pub const ROWS_MAX: usize = 4 << 20;
/// Bytes of one frame after its length field: the largest ready message fits.
pub const FRAME_BYTES_MAX: usize = ROWS_MAX * 8 + 4096;
/// Tables that one minibatch may name.
pub const TABLES_MAX: usize = 64;
/// Payload of a piece at most.
pub const PIECE_BYTES_MAX: usize = 1 << 20;
/// Descriptors sent with one message; Linux allows 253.
pub const DESCRIPTORS_PER_MESSAGE: usize = 64;
/// Hops of a declared sampler at most.
pub const HOPS_MAX: usize = 16;
const TEXT_BYTES_MAX: usize = 1024;

/// A trainer introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub job: JobId,
    pub rank: TrainerRank,
    pub dataset: DatasetName,
    /// The digest in the trainer's manifest; empty where the trainer has none to compare.
    pub digest: String,
}

/// Rows of one feature table, in the order in which they will be gathered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    pub table: TableId,
    pub rows: Vec<u32>,
}

/// What a trainer samples with, where it lets the node sample ahead of it. Optional, and only a promise: the node
/// compares it with every announcement. The graph is the dataset's first, the training vertices its training split
/// (every vertex where it has none), the rows those of table 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub spec: TraceSpec,
    /// The next minibatch that will be announced.
    pub first: MinibatchId,
    /// One past the last one.
    pub end: u64,
}

/// Trainer to node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToNode {
    Hello(Hello),
    Announce { minibatch: MinibatchId, tables: Vec<Rows> },
    Want { minibatch: MinibatchId },
    Release { minibatch: MinibatchId },
    StatisticsRequest,
    Declare(Declared),
}

/// The node's answer to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    pub generation: Generation,
    /// Announced, unreleased minibatches that this trainer may have.
    pub credits: u32,
    /// Pinned minibatches that this trainer may hold beyond the one in use.
    pub ready_ahead: u32,
    /// Bytes of a row, per table.
    pub row_bytes: Vec<u32>,
    /// `Mapping` frames that follow.
    pub mappings: u32,
}

/// What a passed descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingSpec {
    /// The mapping index of [`Location`].
    pub index: u16,
    /// Bytes that can be mapped read-only, from offset 0.
    pub bytes: u64,
}

/// Why a minibatch failed or a trainer was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("the node speaks protocol {node}, the trainer {trainer}: use the same release on both")]
    Protocol { node: u32, trainer: u32 },
    #[error("the node does not serve this dataset")]
    UnknownDataset,
    #[error(
        "the node serves another version of this dataset: vertex ids would not mean the same rows; use the import that was pushed to the storage nodes"
    )]
    OtherVersion,
    #[error("another connection already trains as this job and rank: end it first")]
    RankInUse,
    #[error("table {0} has no such row")]
    UnknownRow(u16),
    #[error("minibatch ids must rise; this one was announced before or is too old")]
    StaleMinibatch,
    #[error("this minibatch was not announced")]
    NotAnnounced,
    #[error("no credit left: release a minibatch first")]
    NoCredit,
    #[error("a block is corrupt on every replica")]
    Corrupt,
    #[error("a storage node refused to serve a block")]
    StorageRefused,
    #[error("the node is stopping")]
    Stopping,
}

/// Node to trainer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToTrainer {
    Welcome(Welcome),
    Refused(Refusal),
    /// One descriptor comes with it for each entry.
    Mapping(Vec<MappingSpec>),
    WelcomeEnd,
    /// Every row can be read at its location until the minibatch is released. Locations in the private buffer
    /// count over the pieces sent before, in order.
    Ready {
        minibatch: MinibatchId,
        tables: Vec<(TableId, Vec<Location>)>,
    },
    /// The next bytes of the private buffer of a minibatch that does not fit in the cache.
    Piece {
        minibatch: MinibatchId,
        bytes: Vec<u8>,
    },
    Failed {
        minibatch: MinibatchId,
        refusal: Refusal,
    },
    /// Counters as JSON text: their set may grow.
    Statistics(String),
}

/// Why a frame was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes is longer than {FRAME_BYTES_MAX}")]
    TooLong(usize),
    #[error("an empty frame")]
    Empty,
    #[error("unknown kind {0}")]
    UnknownKind(u8),
    #[error("the frame ends too early")]
    Truncated,
    #[error("{0} bytes too many in the frame")]
    Trailing(usize),
    #[error("a count of {0} is out of range")]
    Count(u64),
    #[error("a text is not valid")]
    Text,
}

/// Length of the frame whose length field this is.
pub fn frame_length(field: [u8; 4]) -> Result<usize, FrameError> {
    match u32::from_le_bytes(field) as usize {
        0 => Err(FrameError::Empty),
        length if length > FRAME_BYTES_MAX => Err(FrameError::TooLong(length)),
        length => Ok(length),
    }
}

/// Starts a frame in `out`; [`end_frame`] fills in the length.
fn begin_frame(out: &mut Vec<u8>, kind: u8) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    start
}

fn end_frame(out: &mut [u8], start: usize) {
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

fn put_u32s(out: &mut Vec<u8>, values: &[u32]) {
    put_all(out, values, |value| value.to_le_bytes());
}

/// Appends the bytes of every value. Room is made once, so that the loop over a minibatch's rows is one of plain stores.
fn put_all<T: Copy, const N: usize>(out: &mut Vec<u8>, values: &[T], bytes: impl Fn(T) -> [u8; N]) {
    let start = out.len();
    out.resize(start + values.len() * N, 0);
    for (to, &value) in out[start..].as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *to = bytes(value);
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text);
}

/// Appends an announce frame without copying the rows into a message first.
pub fn encode_announce<'a>(
    out: &mut Vec<u8>,
    minibatch: MinibatchId,
    tables: impl ExactSizeIterator<Item = (TableId, &'a [u32])>,
) {
    let start = begin_frame(out, 2);
    out.extend_from_slice(&minibatch.0.to_le_bytes());
    out.extend_from_slice(&(tables.len() as u16).to_le_bytes());
    for (table, rows) in tables {
        out.extend_from_slice(&table.0.to_le_bytes());
        out.extend_from_slice(&(rows.len() as u32).to_le_bytes());
        put_u32s(out, rows);
    }
    end_frame(out, start);
}

impl ToNode {
    /// Appends the frame, length field included.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ToNode::Announce { minibatch, tables } => {
                encode_announce(out, *minibatch, tables.iter().map(|t| (t.table, t.rows.as_slice())));
            }
            ToNode::Hello(hello) => {
                let start = begin_frame(out, 1);
                put_u32s(out, &[PROTOCOL_VERSION, hello.job.0, hello.rank.0]);
                put_text(out, hello.dataset.as_str());
                put_text(out, &hello.digest);
                end_frame(out, start);
            }
            ToNode::Want { minibatch } => put_minibatch(out, 3, *minibatch),
            ToNode::Release { minibatch } => put_minibatch(out, 4, *minibatch),
            ToNode::StatisticsRequest => {
                let start = begin_frame(out, 5);
                end_frame(out, start);
            }
            ToNode::Declare(declared) => put_declared(out, declared),
        }
    }

    /// Decodes what follows a length field. A hello of another protocol version is `Ok(Err(refusal))`.
    pub fn decode(frame: &[u8]) -> Result<Result<Self, Refusal>, FrameError> {
        let mut r = Reader::new(frame);
        let message = match r.u8()? {
            1 => {
                let version = r.u32()?;
                if version != PROTOCOL_VERSION {
                    return Ok(Err(Refusal::Protocol { node: PROTOCOL_VERSION, trainer: version }));
                }
                let (job, rank) = (JobId(r.u32()?), TrainerRank(r.u32()?));
                let dataset = DatasetName::new(r.text()?).map_err(|_| FrameError::Text)?;
                ToNode::Hello(Hello { job, rank, dataset, digest: r.text()? })
            }
            2 => {
                let minibatch = MinibatchId(r.u64()?);
                let tables = r.tables(u32::from_le_bytes)?;
                let tables = tables.into_iter().map(|(table, rows)| Rows { table, rows }).collect();
                ToNode::Announce { minibatch, tables }
            }
            3 => ToNode::Want { minibatch: MinibatchId(r.u64()?) },
            4 => ToNode::Release { minibatch: MinibatchId(r.u64()?) },
            5 => ToNode::StatisticsRequest,
            6 => ToNode::Declare(read_declared(&mut r)?),
            kind => return Err(FrameError::UnknownKind(kind)),
        };
        r.end()?;
        Ok(Ok(message))
    }
}

fn put_declared(out: &mut Vec<u8>, Declared { spec, first, end }: &Declared) {
    let start = begin_frame(out, 6);
    for wide in [spec.seed, first.0, *end] {
        out.extend_from_slice(&wide.to_le_bytes());
    }
    put_u32s(out, &[spec.rank.0, spec.world, spec.seeds]);
    let fanout = &spec.fanout[..spec.fanout.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&(fanout.len() as u16).to_le_bytes());
    put_u32s(out, fanout);
    end_frame(out, start);
}

/// Ranges are the node's to check: they depend on the graph.
fn read_declared(r: &mut Reader) -> Result<Declared, FrameError> {
    let (seed, first, end) = (r.u64()?, MinibatchId(r.u64()?), r.u64()?);
    let (rank, world, seeds) = (TrainerRank(r.u32()?), r.u32()?, r.u32()?);
    let hops = r.count16(HOPS_MAX)?;
    let fanout = (0..hops).map(|_| r.u32()).collect::<Result<_, _>>()?;
    Ok(Declared { spec: TraceSpec { seed, rank, world, seeds, fanout }, first, end })
}

fn put_minibatch(out: &mut Vec<u8>, kind: u8, minibatch: MinibatchId) {
    let start = begin_frame(out, kind);
    out.extend_from_slice(&minibatch.0.to_le_bytes());
    end_frame(out, start);
}

impl ToTrainer {
    /// The byte after the length field.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            ToTrainer::Welcome(_) => 1,
            ToTrainer::Refused(_) => 2,
            ToTrainer::Mapping(_) => 3,
            ToTrainer::WelcomeEnd => 4,
            ToTrainer::Ready { .. } => 5,
            ToTrainer::Piece { .. } => 6,
            ToTrainer::Failed { .. } => 7,
            ToTrainer::Statistics(_) => 8,
        }
    }

    /// Appends the frame, length field included. The caller sends descriptors with a `Mapping`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = begin_frame(out, self.kind());
        match self {
            ToTrainer::Welcome(welcome) => put_welcome(out, welcome),
            ToTrainer::Refused(refusal) => put_refusal(out, refusal),
            ToTrainer::Mapping(specs) => {
                out.extend_from_slice(&(specs.len() as u16).to_le_bytes());
                for spec in specs {
                    out.extend_from_slice(&spec.index.to_le_bytes());
                    out.extend_from_slice(&spec.bytes.to_le_bytes());
                }
            }
            ToTrainer::WelcomeEnd => {}
            ToTrainer::Ready { minibatch, tables } => {
                out.extend_from_slice(&minibatch.0.to_le_bytes());
                out.extend_from_slice(&(tables.len() as u16).to_le_bytes());
                for (table, locations) in tables {
                    out.extend_from_slice(&table.0.to_le_bytes());
                    out.extend_from_slice(&(locations.len() as u32).to_le_bytes());
                    put_all(out, locations, |location| location.0.to_le_bytes());
                }
            }
            ToTrainer::Piece { minibatch, bytes } => {
                out.extend_from_slice(&minibatch.0.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            ToTrainer::Failed { minibatch, refusal } => {
                out.extend_from_slice(&minibatch.0.to_le_bytes());
                put_refusal(out, refusal);
            }
            ToTrainer::Statistics(text) => out.extend_from_slice(text.as_bytes()),
        }
        end_frame(out, start);
    }

    /// Decodes what follows a length field.
    pub fn decode(frame: &[u8]) -> Result<Self, FrameError> {
        let mut r = Reader::new(frame);
        let message = match r.u8()? {
            1 => ToTrainer::Welcome(read_welcome(&mut r)?),
            2 => ToTrainer::Refused(r.refusal()?),
            3 => {
                let count = r.count16(DESCRIPTORS_PER_MESSAGE)?;
                let specs = (0..count).map(|_| Ok(MappingSpec { index: r.u16()?, bytes: r.u64()? }));
                ToTrainer::Mapping(specs.collect::<Result<_, FrameError>>()?)
            }
            4 => ToTrainer::WelcomeEnd,
            5 => {
                let minibatch = MinibatchId(r.u64()?);
                ToTrainer::Ready { minibatch, tables: r.tables(|item| Location(u64::from_le_bytes(item)))? }
            }
            6 => {
                let minibatch = MinibatchId(r.u64()?);
                let bytes = r.rest();
                if bytes.len() > PIECE_BYTES_MAX {
                    return Err(FrameError::Count(bytes.len() as u64));
                }
                ToTrainer::Piece { minibatch, bytes: bytes.to_vec() }
            }
            7 => ToTrainer::Failed { minibatch: MinibatchId(r.u64()?), refusal: r.refusal()? },
            8 => {
                let text = String::from_utf8(r.rest().to_vec()).map_err(|_| FrameError::Text)?;
                ToTrainer::Statistics(text)
            }
            kind => return Err(FrameError::UnknownKind(kind)),
        };
        r.end()?;
        Ok(message)
    }
}

fn put_welcome(out: &mut Vec<u8>, welcome: &Welcome) {
    out.extend_from_slice(&welcome.generation.0.to_le_bytes());
    put_u32s(out, &[welcome.credits, welcome.ready_ahead, welcome.mappings]);
    out.extend_from_slice(&(welcome.row_bytes.len() as u16).to_le_bytes());
    put_u32s(out, &welcome.row_bytes);
}

fn read_welcome(r: &mut Reader) -> Result<Welcome, FrameError> {
    let generation = Generation(r.u64()?);
    let (credits, ready_ahead, mappings) = (r.u32()?, r.u32()?, r.u32()?);
    let tables = r.count16(usize::from(u16::MAX))?;
    let row_bytes = (0..tables).map(|_| r.u32()).collect::<Result<_, _>>()?;
    Ok(Welcome { generation, credits, ready_ahead, row_bytes, mappings })
}

fn put_refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    let (code, a, b) = match *refusal {
        Refusal::Protocol { node, trainer } => (0, node, trainer),
        Refusal::UnknownDataset => (1, 0, 0),
        Refusal::RankInUse => (2, 0, 0),
        Refusal::UnknownRow(table) => (3, u32::from(table), 0),
        Refusal::StaleMinibatch => (4, 0, 0),
        Refusal::NotAnnounced => (5, 0, 0),
        Refusal::NoCredit => (6, 0, 0),
        Refusal::Corrupt => (7, 0, 0),
        Refusal::StorageRefused => (8, 0, 0),
        Refusal::Stopping => (9, 0, 0),
        Refusal::OtherVersion => (10, 0, 0),
    };
    put_u32s(out, &[code, a, b]);
}

#[cfg(test)]
mod tests;
