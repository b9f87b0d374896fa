//! What observers measured of the whole cluster over one period.

use super::labels::Labels;
use rudder_topology::{BlockId, JobId, NodeId, PartId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A dataset of the cluster: its position in the topology file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DatasetIndex(pub u16);

impl DatasetIndex {
    /// `D1.` before what belongs to another dataset than the first. Never the dataset's name: a name is a text from
    /// outside, and a text from outside does not enter a prompt.
    fn prefix(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, "D{}.", self.0) }
    }
}

/// A block of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockOf {
    pub dataset: DatasetIndex,
    pub block: BlockId,
}

impl fmt::Display for BlockOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dataset.prefix(f)?;
        write!(f, "{}", self.block)
    }
}

/// Which blocks of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupSet {
    All,
    /// The first tenth of the part's blocks: import orders a part by expected use.
    Hot,
}

/// A named set of blocks that can be talked about without ids: `P1`, `P1.hot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Group {
    pub dataset: DatasetIndex,
    pub part: PartId,
    pub set: GroupSet,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dataset.prefix(f)?;
        let suffix = match self.set {
            GroupSet::All => "",
            GroupSet::Hot => ".hot",
        };
        write!(f, "{}{suffix}", self.part)
    }
}

/// One job's trainers on one compute node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobState {
    pub job: JobId,
    pub wait_share: f32,
    /// See [`ComputeState::stretched`].
    #[serde(default)]
    pub stretched: f32,
    /// Minibatches that its trainers have announced and not released, the most of any.
    pub ahead: u32,
}

/// A compute node. Shares and rates are fractions, 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComputeState {
    pub node: NodeId,
    /// Where a device says it.
    pub gpu_use: Option<f32>,
    pub wait_share: f32,
    /// Of what steps take beside waiting, the part beyond the least that it was, over the last ten periods or so:
    /// computing does not change, but gradients share the links with rows.
    #[serde(default)]
    pub stretched: f32,
    /// Of the time, what was lost: by waiting for data, or since steps were stretched.
    #[serde(default)]
    pub stall_share: f32,
    /// The stall share as a moving mean over some ten seconds.
    #[serde(default)]
    pub stall_lately: f32,
    pub hit_rate: f32,
    /// How far the parts that rows come from have moved from what is usual: half the sum of absolute differences of
    /// the two distributions.
    pub drift: f32,
    /// Of the bytes that arrived, those fetched ahead of use.
    pub prefetch_share: f32,
    /// Of the cache's slots, the free ones.
    pub cache_free: f32,
    /// Of the cache's slots, those that an announced minibatch takes, on average.
    #[serde(default)]
    pub minibatch_share: f32,
    /// Of the blocks that other nodes store, those that the cache can hold.
    #[serde(default)]
    pub holds_share: f32,
    /// Of the cache's slots, those that all announced minibatches take, each for itself: may be more than 1.
    #[serde(default)]
    pub window_share: f32,
    /// Bytes that arrived over the bytes of the remote rows that minibatches read: 1 where each was fetched for it.
    #[serde(default)]
    pub moved_share: f32,
    /// Minibatches that are ready, of the trainer that is furthest.
    pub ready: u32,
    /// Blocks that trainers wait for now; a bounded list.
    pub waiting: Vec<BlockOf>,
    /// Blocks of the next minibatches that are not resident; a bounded list.
    pub next: Vec<BlockOf>,
    /// Remote groups by the rows wanted of them, most wanted first; a bounded list.
    pub wants: Vec<(Group, u64)>,
    pub jobs: Vec<JobState>,
}

/// A storage node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StorageState {
    pub node: NodeId,
    pub up: bool,
    /// Of its device's or uplink's rate, the part used.
    pub load: f32,
    /// Of its parts, those that another node that is up stores as well.
    pub replicated: f32,
    /// Whether it keeps copies of what others own.
    #[serde(default = "stages")]
    pub stages: bool,
    /// Blocks in its memory; a bounded list.
    pub cached: Vec<BlockOf>,
}

/// Where experience of an older version does not say it.
fn stages() -> bool {
    true
}

/// From a storage node to a compute node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkState {
    pub storage: NodeId,
    pub compute: NodeId,
    pub bandwidth_use: f32,
    /// What the link was seen to carry when it was full, as a fraction of what the topology states. 1 where it was
    /// never full.
    pub rate_share: f32,
    /// How much slower rows come over it, while any are under way, than they once did: 0 as fast, 1 not at all.
    #[serde(default)]
    pub slowed: f32,
    pub latency_ms: Option<f32>,
}

impl LinkState {
    /// Of its rate, what the link brings: of the stated one where it was full, of what it once brought in any case.
    #[must_use]
    pub fn brings(&self) -> f32 {
        self.rate_share.min(1.0 - self.slowed)
    }
}

/// The cluster, measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterState {
    pub at_ns: u64,
    /// The highest number of a released minibatch.
    pub minibatch: u64,
    pub compute: Vec<ComputeState>,
    pub storage: Vec<StorageState>,
    pub links: Vec<LinkState>,
    /// Minibatches that `ahead` looks forward.
    pub ahead_minibatches: u32,
    /// Blocks likely to be hot within them; a bounded list.
    pub ahead: Vec<BlockOf>,
}

impl ClusterState {
    #[must_use]
    pub fn compute_node(&self, node: NodeId) -> Option<&ComputeState> {
        self.compute.iter().find(|compute| compute.node == node)
    }

    #[must_use]
    pub fn storage_node(&self, node: NodeId) -> Option<&StorageState> {
        self.storage.iter().find(|storage| storage.node == node)
    }

    #[must_use]
    pub fn link(&self, storage: NodeId, compute: NodeId) -> Option<&LinkState> {
        self.links.iter().find(|link| link.storage == storage && link.compute == compute)
    }

    /// The largest wait share of any compute node: in synchronous training every trainer waits for the slowest.
    #[must_use]
    pub fn wait_share_max(&self) -> f32 {
        self.compute.iter().map(|compute| compute.wait_share).fold(0.0, f32::max)
    }

    /// The busiest storage node's load over the mean of all; 1 where they are equal, 0 without any load.
    #[must_use]
    pub fn storage_imbalance(&self) -> f32 {
        let loads = || self.storage.iter().map(|storage| storage.load);
        let mean = loads().sum::<f32>() / self.storage.len().max(1) as f32;
        if mean <= 0.0 { 0.0 } else { loads().fold(0.0, f32::max) / mean }
    }

    /// Every metric in the order of the labels, each 0 to 1: the same place means the same node in every state of one
    /// topology. Nodes that sent nothing count as idle.
    #[must_use]
    pub fn metrics(&self, labels: &Labels) -> Vec<f32> {
        let mut metrics = vec![];
        for &node in labels.compute() {
            let measured = self.compute_node(node);
            metrics.extend(
                measured.map_or([0.0; 4], |c| [c.wait_share, 1.0 - c.hit_rate, c.drift, c.stretched]),
            );
        }
        for &node in labels.storage() {
            let measured = self.storage_node(node);
            metrics.extend(measured.map_or([0.0; 2], |s| [s.load, f32::from(u8::from(!s.up))]));
        }
        for &compute in labels.compute() {
            for &storage in labels.storage() {
                let measured = self.link(storage, compute);
                metrics.extend(measured.map_or([0.0; 2], |l| [l.bandwidth_use, 1.0 - l.brings()]));
            }
        }
        metrics
    }
}
