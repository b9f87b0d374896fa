//! The predictor's mailbox: what trainers tell. Every fact about a trainer is acknowledged, so that a connection
//! never runs ahead of the loop, and can repeat what an actor took down with it.

use ractor::RpcReplyPort;
use rudder_graph::trace::TraceSpec;
use rudder_policy::step::{AnnounceRefusal, TrainerId};
use rudder_topology::{MinibatchId, TableId};
use std::sync::Arc;

/// The minibatch is not in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the minibatch was not announced")]
pub struct NotAnnounced;

/// What the predictor is told.
#[derive(Debug)]
pub enum PredictorMessage {
    Connect {
        trainer: TrainerId,
        reply: RpcReplyPort<()>,
    },
    /// The trainer is gone: its window and pins go with it.
    Disconnect {
        trainer: TrainerId,
        reply: RpcReplyPort<()>,
    },
    Announce {
        trainer: TrainerId,
        minibatch: MinibatchId,
        /// Shared with the connection, which may have to say it again.
        tables: Arc<[(TableId, Vec<u32>)]>,
        reply: RpcReplyPort<Result<(), AnnounceRefusal>>,
    },
    Want {
        trainer: TrainerId,
        minibatch: MinibatchId,
        reply: RpcReplyPort<Result<(), NotAnnounced>>,
    },
    Release {
        trainer: TrainerId,
        minibatch: MinibatchId,
        reply: RpcReplyPort<Result<(), NotAnnounced>>,
    },
    /// The trainer lets the node sample ahead of it, `first` to before `end`.
    Declare {
        trainer: TrainerId,
        spec: TraceSpec,
        first: MinibatchId,
        end: u64,
        reply: RpcReplyPort<()>,
    },
    /// With test faults enabled: panic.
    Fault,
}
