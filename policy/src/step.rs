//! What goes in and out of the pure code: events, steps, refusals, commands.

use crate::links::LinkId;
use crate::window::EntryId;
use rudder_graph::location::Location;
use rudder_graph::{BlockRows, Class};
use rudder_topology::{
    BlockId, ChunkId, Generation, JobId, MinibatchId, NodeId, TableId, TrainerRank, TransferId,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A trainer of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TrainerId {
    pub job: JobId,
    pub rank: TrainerRank,
}

impl fmt::Display for TrainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job, self.rank)
    }
}

/// What a policy reacts to. The window and the cache index already show it when the policy sees it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A minibatch entered the window.
    Announced(EntryId),
    /// A minibatch entered the window that its trainer is going to announce.
    Foreseen(EntryId),
    /// Its trainer waits for it.
    Wanted(EntryId),
    /// Rows became resident.
    Arrived(Vec<BlockRows>),
    /// A minibatch left the window, its pins are gone.
    Released {
        entry: EntryId,
        trainer: TrainerId,
        blocks: Arc<[BlockRows]>,
    },
    /// Rows did not arrive and are in flight no more.
    Failed(Vec<BlockRows>),
    /// Blocks went since the cache is smaller now, and none of the policy's steps let them go.
    Withdrawn(Vec<BlockId>),
    /// The validator refused a step that the policy proposed, or these parts of it.
    Refused(Step, Refusal),
    /// A storage node can be reached again, or no more.
    LinkChanged(NodeId),
    Tick,
    ParametersChanged,
}

/// Who wanted a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    Forecast,
    Demand,
    Directive,
}

/// One line of a plan. Nothing happens before the validator has accepted it.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Bring rows in from a storage node. Judged admission by admission, in order.
    Fetch(Fetch),
    /// Pin every block of a minibatch and give each missing one a slot: all of it or nothing.
    Reserve { entry: EntryId, evict: Vec<BlockId> },
    /// Let blocks go. Judged block by block, in order.
    Evict { blocks: Vec<BlockId>, origin: Origin },
    /// Serve a minibatch in pieces past the cache, since pins of others leave it no room.
    Bypass { entry: EntryId },
}

/// Rows that one storage node is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    pub node: NodeId,
    /// Copies of what others own: see [`LinkId::staged`].
    pub staged: bool,
    pub generation: Generation,
    pub class: Class,
    pub origin: Origin,
    pub admissions: Vec<Admission>,
}

/// Rows of a block that come in. Takes a free slot, or that of `evict`, where the block has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    pub rows: BlockRows,
    pub evict: Option<BlockId>,
}

impl Fetch {
    #[must_use]
    pub fn link(&self) -> LinkId {
        LinkId { node: self.node, staged: self.staged }
    }
}

impl Step {
    /// The parts of a step that are judged alone, in order, each as a step.
    #[must_use]
    pub fn singles(&self) -> Vec<Step> {
        match self {
            Step::Fetch(fetch) => {
                let single = |&admission| Step::Fetch(Fetch { admissions: vec![admission], ..fetch.clone() });
                fetch.admissions.iter().map(single).collect()
            }
            Step::Evict { blocks, origin } => {
                blocks.iter().map(|&block| Step::Evict { blocks: vec![block], origin: *origin }).collect()
            }
            Step::Reserve { .. } | Step::Bypass { .. } => vec![self.clone()],
        }
    }
}

/// Why the validator refused a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("the block does not exist")]
    UnknownBlock,
    #[error("the mask names rows that the block does not have, or none")]
    UnknownRows,
    #[error("all of these rows are resident")]
    AlreadyResident,
    #[error("some of these rows are in flight")]
    AlreadyInFlight,
    #[error("the block is pinned")]
    Pinned,
    #[error("the block to evict is not resident")]
    NotResident,
    #[error("no free slot")]
    Capacity,
    #[error("the link's permits are used up")]
    LinkBudget,
    #[error("the node's permits are used up")]
    NodeBudget,
    #[error("the node does not store this block")]
    NotAReplica,
    #[error("the node is another incarnation by now")]
    StaleGeneration,
    #[error("the node is not connected")]
    DeadNode,
    #[error("the minibatch left the window")]
    UnknownMinibatch,
    #[error("the minibatch is reserved already")]
    AlreadyReserved,
    #[error("the trainer holds as many pinned minibatches as it may")]
    ReadyAhead,
    #[error("the trainer has earlier minibatches that were not served yet")]
    NotNext,
    #[error("the part is co-located: its rows are read in place")]
    Local,
}

/// A planner's output: steps in the order in which they are to be judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proposal {
    pub steps: Vec<Step>,
}

/// Where a transfer's item goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Row r of the block goes to `offset + r * row_bytes` of the chunk.
    Slot { chunk: ChunkId, offset: u64 },
    /// Appended to a buffer that comes back with the completion.
    Private,
}

/// Rows of one block within a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub rows: BlockRows,
    pub to: Destination,
}

/// One request to one storage node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub id: TransferId,
    pub node: NodeId,
    /// Copies of what others own: see [`LinkId::staged`].
    pub staged: bool,
    pub generation: Generation,
    pub class: Class,
    pub items: Vec<Item>,
    /// Payload bytes, which are also what its permit is worth.
    pub bytes: u64,
}

impl Transfer {
    #[must_use]
    pub fn link(&self) -> LinkId {
        LinkId { node: self.node, staged: self.staged }
    }
}

/// Why a minibatch cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Corrupt,
    StorageRefused,
}

/// What the pure code asks its driver to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Fetch(Transfer),
    /// The answer of this transfer is not wanted any more.
    Cancel {
        transfer: TransferId,
        node: NodeId,
    },
    /// Tell the trainer where its rows are.
    Ready {
        trainer: TrainerId,
        minibatch: MinibatchId,
        tables: Vec<(TableId, Vec<Location>)>,
    },
    /// Send the next bytes of the trainer's private buffer.
    Piece {
        trainer: TrainerId,
        minibatch: MinibatchId,
        bytes: Vec<u8>,
    },
    Fail {
        trainer: TrainerId,
        minibatch: MinibatchId,
        failure: Failure,
    },
    /// Call `tick` at this time.
    WakeAt {
        at_ns: u64,
    },
}

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All rows are where they should be; bytes of private items in order.
    Arrived { private: Vec<u8> },
    /// The connection broke, or nothing came in time.
    Lost,
    /// The storage node's copy of this item's block is corrupt.
    Corrupt { item: u32 },
    /// The storage node does not serve this item's block.
    Refused { item: u32 },
}

/// What a stage hands on: events for the planner, commands for the drivers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reaction {
    pub events: Vec<Event>,
    pub commands: Vec<Command>,
}

/// The validator's answer to a proposal. What is judged alone counts alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdicts {
    pub accepted: usize,
    pub refused: usize,
    /// For the planner: what was refused and why.
    pub events: Vec<Event>,
    pub commands: Vec<Command>,
}

/// Why an announcement was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnounceRefusal {
    #[error("the trainer is not connected")]
    UnknownTrainer,
    #[error("{0} has no row {1}")]
    UnknownRow(TableId, u64),
    #[error("minibatch ids must rise: {0} is not above {1}")]
    StaleMinibatch(MinibatchId, MinibatchId),
    #[error("no credit left")]
    NoCredit,
    #[error("{0} is named twice")]
    RepeatedTable(TableId),
}
