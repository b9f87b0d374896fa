//! What is asked of a compute mover, and what comes of it.

use rudder_client::frames::{FailReason, FrameError};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{ChunkId, Generation, NodeId, TransferId};

/// A batch of rows from one storage node, of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferRequest {
    /// Unique within this node's incarnation; never reused.
    pub id: TransferId,
    /// The storage node that is asked.
    pub node: NodeId,
    pub class: Class,
    pub items: Vec<TransferItem>,
}

/// Some rows of a block and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferItem {
    pub rows: BlockRows,
    pub to: Destination,
}

/// Where rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A slot of the cache: row r of the block is written at `offset + r * row_bytes` of the chunk. The slot must
    /// be reserved for this transfer, and no reader may be told of these rows, until the completion says so.
    Slot { chunk: ChunkId, offset: u64 },
    /// Appended, rows in ascending order, to the buffer that comes back with the completion.
    Private,
}

/// The end of a transfer. Every accepted request has exactly one, in any order, and after it no slot of the
/// transfer is written any more.
#[derive(Debug)]
pub struct Completion {
    pub transfer: TransferId,
    pub node: NodeId,
    /// The storage node's generation; `None` if it was not attached.
    pub generation: Option<Generation>,
    pub result: Result<Arrived, TransferError>,
    /// Payload bytes that were received for it, also when it failed.
    pub bytes: u64,
}

/// What a successful transfer brought besides the slots it filled.
#[derive(Debug, Default)]
pub struct Arrived {
    /// The rows of all `Private` items in the order of the request; `None` if there were none.
    pub private: Option<Vec<u8>>,
}

/// Why a transfer ended without its rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    #[error("the storage node is not connected")]
    NotAttached,
    #[error("the connection to the storage node was lost")]
    PeerLost,
    /// Not to be asked of the same replica again.
    #[error("the bytes of item {item} do not match their checksum at the storage node")]
    Corrupt { item: u32 },
    #[error("the storage node refused item {item}: {reason}")]
    Refused { item: u32, reason: FailReason },
    /// The peer broke the protocol; its connection is closed.
    #[error("the storage node broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    #[error("cancelled")]
    Cancelled,
    /// The request itself cannot be carried out: nothing was sent.
    #[error("the request is not valid: {0}")]
    Invalid(#[from] InvalidRequest),
}

/// What a peer did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("rows came out of order or beyond the request")]
    RowsOutOfOrder,
    #[error("a frame's payload is not as long as the rows it claims to hold")]
    RowsLength,
    #[error("a frame that this end never expects")]
    UnexpectedFrame,
}

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    #[error("it names no rows")]
    Empty,
    #[error("item {item} names a block or rows that the dataset does not have")]
    UnknownRows { item: u32 },
    #[error("the slot of item {item} is not within the cache")]
    SlotOutside { item: u32 },
    #[error("it is over the limit of {bytes_max} payload bytes")]
    TooLarge { bytes_max: u64 },
    #[error("its id is in flight already")]
    DuplicateId,
}

/// A storage node's connection ended, for whatever reason. Its transfers have been completed with an error before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLost {
    pub node: NodeId,
    pub generation: Generation,
    pub reason: LossReason,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LossReason {
    #[error("the peer closed the connection")]
    Closed,
    #[error("nothing was heard of the peer for too long")]
    Silent,
    #[error("the socket failed: {0:?}")]
    Socket(std::io::ErrorKind),
    #[error("the peer broke the protocol: {0}")]
    Protocol(ProtocolError),
    /// [`crate::ComputeHandle::detach`], or a newer connection of the same node took its place.
    #[error("it was detached")]
    Detached,
}

/// The mover's thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the mover has stopped")]
pub struct Stopped;
