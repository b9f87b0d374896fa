//! The compiled cluster: names resolved, numbers checked, ready to be asked.

use crate::ids::{DatasetName, MachineName, NodeId, NodeName, PartId};
use crate::policy::PolicySpec;
use crate::units::{Bytes, BytesPerSecond, Nanos};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A cluster that passed every check. Made by [`crate::compile`].
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The topology file, for error messages.
    pub file: PathBuf,
    pub nodes: Vec<Node>,
    pub datasets: Vec<Dataset>,
    pub limits: Limits,
    pub advisor: crate::advisor::Advisor,
    /// Directory with `ca.pem`, `<node>.pem`, `<node>.key`, `operator.pem`, `operator.key`.
    /// `None`: no keys, so every node binds loopback only and talks in the clear.
    pub keys: Option<PathBuf>,
    pub(crate) routes: crate::routes::Routes,
}

/// One node process.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    pub name: NodeName,
    pub machine: MachineName,
    pub roles: Roles,
    /// Where the control plane listens. Port 0 is allowed: the ready line tells which it got.
    pub control_address: SocketAddr,
    /// Where the data port listens; storage nodes only.
    pub data_address: Option<SocketAddr>,
    /// Where trainers connect; compute nodes only.
    pub trainer_socket: Option<PathBuf>,
    pub compute: Option<Compute>,
    pub storage: Option<Storage>,
    pub cores: Cores,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    pub compute: bool,
    pub storage: bool,
    pub scheduler: bool,
}

/// What a compute node needs to know of itself.
#[derive(Clone, Debug)]
pub struct Compute {
    /// Budget of the shared-memory cache, all datasets of the node together.
    pub cache_bytes: Bytes,
    pub policy: PolicySpec,
    /// Pinned minibatches a trainer may hold beyond the one in use.
    pub ready_ahead: u32,
    /// Announced, unreleased minibatches a trainer may have.
    pub credits: u32,
}

/// What a storage node needs to know of itself.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Directory that holds the node's datasets, one directory each.
    pub directory: PathBuf,
    pub mode: StorageMode,
    /// Bound of the hot cache in `direct` mode.
    pub hot_cache_bytes: Bytes,
    /// Memory for copies of blocks that other storage nodes own, all datasets of the node together; zero: it keeps none
    /// and serves none.
    pub staging_bytes: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageMode {
    /// Mapped into memory.
    Memory,
    /// `O_DIRECT`, 4 KiB-aligned supersets.
    Direct,
    /// `Memory` while the parts fit in a quarter of the machine's memory, else `Direct`.
    Auto,
}

/// Where movers may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cores {
    /// No binding: movers share cores with training. Reports say so.
    Shared,
    Reserved {
        mover: Vec<CoreSpec>,
        training: Vec<CoreSpec>,
    },
}

/// A set of cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreSpec {
    /// Operating system cpu numbers, inclusive.
    CpuRange { first: u32, last: u32 },
    /// An hwloc object, such as `core:3` or `numa:0`.
    Object { kind: CoreObject, index: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreObject {
    Package,
    NumaNode,
    L3,
    Core,
    Pu,
}

/// A dataset of the cluster and who stores its parts.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub name: DatasetName,
    /// Where trainers and compute nodes find manifest and graph (a dataset directory).
    pub directory: PathBuf,
    /// `replicas[part]`: the storage nodes that hold it, in the order of the file.
    pub replicas: Vec<Vec<NodeId>>,
}

/// A directed link's cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    pub bandwidth: BytesPerSecond,
    pub latency: Nanos,
}

/// Hard limits, all with defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Payload bytes in flight towards one compute node from one storage node, at most: what the link carries in a few
    /// milliseconds counts where that is less.
    pub link_in_flight_bytes: Bytes,
    /// Payload bytes in flight towards one compute node, at most; likewise.
    pub node_in_flight_bytes: Bytes,
    /// Payload of one transfer at most; smaller on slow links.
    pub transfer_bytes_max: Bytes,
    /// A transfer that has not ended after this is given up and its permit returns.
    pub transfer_timeout: Nanos,
    /// A peer that is silent for this long is lost.
    pub heartbeat_timeout: Nanos,
    /// The product's own rate limiter per link; `None` does not pace.
    pub link_rate_max: Option<BytesPerSecond>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            link_in_flight_bytes: Bytes(64 << 20),
            node_in_flight_bytes: Bytes(64 << 20),
            transfer_bytes_max: Bytes(2 << 20),
            transfer_timeout: Nanos::from_secs(10),
            heartbeat_timeout: Nanos::from_secs(3),
            link_rate_max: None,
        }
    }
}

impl Cluster {
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    #[must_use]
    pub fn node_named(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == *name)
    }

    #[must_use]
    pub fn dataset_named(&self, name: &DatasetName) -> Option<&Dataset> {
        self.datasets.iter().find(|dataset| dataset.name == *name)
    }

    #[must_use]
    pub fn scheduler(&self) -> Option<&Node> {
        self.nodes.iter().find(|node| node.roles.scheduler)
    }

    /// The replicas of a part with what reaching them costs from `from`, cheapest first. Costs only: the planner chooses.
    #[must_use]
    pub fn replicas_by_cost(&self, dataset: &Dataset, part: PartId, from: NodeId) -> Vec<(NodeId, LinkCost)> {
        let mut replicas: Vec<_> = dataset.replicas[part.index()]
            .iter()
            .filter_map(|&node| Some((node, self.link_cost(node, from)?)))
            .collect();
        replicas.sort_by_key(|&(node, cost)| (cost.bandwidth.time_for(Bytes::MIB), cost.latency, node));
        replicas
    }

    /// The cheapest route's cost between two nodes, `None` where no link leads.
    #[must_use]
    pub fn link_cost(&self, from: NodeId, to: NodeId) -> Option<LinkCost> {
        self.routes.cost(from, to)
    }

    /// The links the file states, directed. The default link is not among them.
    pub fn stated_links(&self) -> impl Iterator<Item = (NodeId, NodeId, LinkCost)> + '_ {
        self.routes.stated()
    }

    /// What links every pair of nodes that has no link of its own.
    #[must_use]
    pub fn default_link(&self) -> Option<LinkCost> {
        self.routes.default_link()
    }
}
