//! The compute mover's mailbox: transfers to start, and what became of them. Never bytes of rows.

use rudder_policy::step::Transfer;
use rudder_topology::{Generation, NodeId, TransferId};

/// How a transfer ended. Rows that do not go to the cache wait in the mover's private buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferEnd {
    Arrived,
    /// The connection broke, or the transfer was cancelled.
    Lost,
    /// The storage node's copy of this item's block is corrupt.
    Corrupt {
        item: u32,
    },
    /// The storage node does not serve this item.
    Refused {
        item: u32,
    },
}

/// What the mover is told.
#[derive(Clone, Debug, PartialEq)]
pub enum MoverMessage {
    Fetch(Transfer),
    Cancel(TransferId),
    /// A transfer ended. `generation`: the storage node's, `None` if it was not attached.
    Ended {
        transfer: TransferId,
        node: NodeId,
        generation: Option<Generation>,
        end: TransferEnd,
    },
    /// A storage node can be reached.
    LinkUp {
        node: NodeId,
        generation: Generation,
    },
    LinkDown {
        node: NodeId,
    },
    /// A time that the engine asked for has come.
    Tick,
    /// With test faults enabled: panic.
    Fault,
}
