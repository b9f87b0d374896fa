//! What is simulated, as plain data: a cluster, a load, a seed.

use super::costs::Costs;
use super::network::Sharing;
use crate::trainer::event::Step;
use rudder_graph::PartitionBook;
use rudder_graph::random::Key;
use rudder_topology::{
    Bytes, BytesPerSecond, Cluster, Dataset, Limits, LinkCost, Nanos, NodeId, PartId, PolicySpec, TableId,
    TrainerRank,
};
use std::sync::Arc;

/// Memory for copies of other nodes' blocks, where nothing else is said.
pub const STAGING: Bytes = Bytes(256 << 20);

/// One cluster under one load. Nodes are named by [`NodeId`]: their position in `nodes`.
#[derive(Clone, Debug)]
pub struct SimSpec {
    /// Jitter, stragglers, and whatever else is drawn. The trace has a seed of its own.
    pub seed: u64,
    pub nodes: Vec<SimNode>,
    /// One way, between any two nodes.
    pub latency: Nanos,
    /// What an interface lets through at once after it was idle; 0 but where links are shaped by token buckets.
    pub burst: Bytes,
    /// Of the dataset that trainers read.
    pub book: PartitionBook,
    pub limits: Limits,
    /// Of each storage node's memory, what holds copies of other nodes' blocks; where a topology says several, the least.
    pub staging: Bytes,
    pub policy: PolicySpec,
    /// Expected uses of each block, for policies that decide by it.
    pub prior: Option<Arc<[f32]>>,
    /// Of the first job, which is there from the start.
    pub load: Load,
    /// Further jobs, in the order of their numbers.
    pub joins: Vec<Join>,
    pub events: Vec<TimedEvent>,
    pub sharing: Sharing,
    pub costs: Costs,
}

/// A node: its interface, and its compute side where it has one. A node serves the parts that others' `replicas` name.
#[derive(Clone, Debug)]
pub struct SimNode {
    pub name: String,
    pub up: BytesPerSecond,
    pub down: BytesPerSecond,
    pub compute: Option<SimCompute>,
}

#[derive(Clone, Debug)]
pub struct SimCompute {
    pub cache: Bytes,
    pub credits: u32,
    pub ready_ahead: u32,
    /// Per part its replicas with their costs, cheapest first; empty for a co-located part.
    pub replicas: Vec<Vec<(NodeId, LinkCost)>>,
}

/// What trainers do.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    pub trainers_per_node: u32,
    /// Minibatches announced ahead of the one in use.
    pub window: u32,
    pub minibatches: u64,
    /// Nodes are told how trainers sample, and sample ahead of them.
    pub replay: bool,
    pub compute: Nanos,
    pub variation: Variation,
    /// Summed over all trainers every minibatch; without it trainers do not wait for each other.
    pub allreduce: Bytes,
}

/// Another job whose trainers come to the same compute nodes while the first one trains.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    pub at: Nanos,
    pub load: Load,
}

/// How compute times vary. The mean of the jitter is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variation {
    /// Standard deviation of the logarithm of a step's compute time.
    pub jitter: f64,
    /// Share of the steps that take `straggler_factor` times as long.
    pub stragglers: f64,
    pub straggler_factor: f64,
}

impl Default for Variation {
    fn default() -> Self {
        Variation { jitter: 0.0, stragglers: 0.0, straggler_factor: 1.0 }
    }
}

/// Something happens to the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedEvent {
    pub at: Nanos,
    pub what: Change,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Both directions between two nodes carry at most this, beside what their interfaces carry.
    Link { between: (NodeId, NodeId), rate: BytesPerSecond },
    /// Both directions of a node's interface.
    Interface { node: NodeId, rate: BytesPerSecond },
    /// A compute node's cache keeps this share of the bytes that it began with.
    Cache { node: NodeId, left: f64 },
    /// A storage node is gone.
    Down { node: NodeId },
    /// It is back, as another generation.
    Up { node: NodeId },
}

/// The rows that every trainer asks for, sampled once and shared by all arms.
pub trait Rows: Sync {
    /// Of one minibatch: distinct rows of each table, in the order in which the trainer names them.
    fn of(&self, rank: TrainerRank, minibatch: u64) -> &[(TableId, Vec<u32>)];
}

/// A cluster cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    #[error("node {0}: {1}")]
    Engine(String, rudder_policy::engine::EngineRefusal),
    #[error("the cache of {0} cannot change: {1}")]
    Cache(String, rudder_policy::engine::ResizeRefusal),
    #[error("no node has trainers")]
    NoTrainers,
    #[error("{node} has no route to a storage node with part {part}")]
    NoRoute { node: String, part: PartId },
    #[error("the rows announced by trainer {rank} were refused: {reason}")]
    Announce { rank: TrainerRank, reason: String },
    #[error("minibatch {minibatch} of trainer {rank} failed: {reason}")]
    Failed { rank: TrainerRank, minibatch: u64, reason: String },
    #[error("at {at_ns} ns nothing can happen any more, and {unfinished} trainers are not done:\n{state}")]
    Stuck { at_ns: u64, unfinished: usize, state: String },
    #[error("{0}")]
    Violation(String),
}

impl SimSpec {
    /// The cluster of a topology file. An interface carries what the fastest link of its node carries; a stated link
    /// between two nodes that is slower bounds what passes between them.
    pub fn of_cluster(
        cluster: &Cluster,
        dataset: &Dataset,
        book: PartitionBook,
        load: Load,
        seed: u64,
    ) -> Result<SimSpec, SimError> {
        let mut policy = PolicySpec::RUDDER;
        let mut nodes = Vec::with_capacity(cluster.nodes.len());
        let storage: std::collections::BTreeSet<NodeId> =
            dataset.replicas.iter().flatten().copied().collect();
        for node in &cluster.nodes {
            let compute = match &node.compute {
                None => None,
                Some(compute) => {
                    policy = compute.policy;
                    let mut replicas = Vec::with_capacity(dataset.replicas.len());
                    for part in (0..dataset.replicas.len()).map(|part| PartId(part as u16)) {
                        let here = dataset.replicas[part.index()]
                            .iter()
                            .any(|&id| id == node.id || cluster.node(id).machine == node.machine);
                        let remote =
                            if here { Vec::new() } else { cluster.replicas_by_cost(dataset, part, node.id) };
                        if !here && remote.is_empty() {
                            return Err(SimError::NoRoute { node: node.name.to_string(), part });
                        }
                        replicas.push(remote);
                    }
                    Some(SimCompute {
                        cache: compute.cache_bytes,
                        credits: compute.credits,
                        ready_ahead: compute.ready_ahead,
                        replicas,
                    })
                }
            };
            let (up, down) = interface(cluster, node.id, &storage);
            nodes.push(SimNode { name: node.name.to_string(), up, down, compute });
        }
        let stages = cluster.nodes.iter().filter_map(|node| node.storage.as_ref());
        let staging = stages.map(|storage| storage.staging_bytes).min().unwrap_or(STAGING);
        let latency = cluster.default_link().map(|link| link.latency);
        let stated = cluster.stated_links().map(|(_, _, cost)| cost.latency).min();
        let mut spec = SimSpec {
            seed,
            nodes,
            latency: latency.or(stated).unwrap_or_default(),
            burst: Bytes(0),
            book,
            limits: cluster.limits,
            staging,
            policy,
            prior: None,
            load,
            joins: Vec::new(),
            events: Vec::new(),
            sharing: Sharing::MaxMin,
            costs: Costs::default(),
        };
        for (from, to, cost) in cluster.stated_links() {
            let interface = spec.nodes[from.index()].up.min(spec.nodes[to.index()].down);
            if cost.bandwidth < interface {
                let what = Change::Link { between: (from, to), rate: cost.bandwidth };
                spec.events.push(TimedEvent { at: Nanos(0), what });
            }
        }
        if !spec.nodes.iter().any(|node| node.compute.is_some()) || spec.load.trainers_per_node == 0 {
            return Err(SimError::NoTrainers);
        }
        Ok(spec)
    }

    /// Nodes with trainers.
    pub fn compute_nodes(&self) -> impl Iterator<Item = (NodeId, &SimCompute)> {
        self.nodes
            .iter()
            .enumerate()
            .filter_map(|(at, node)| Some((NodeId(at as u16), node.compute.as_ref()?)))
    }

    /// Loads by job, the first job's first.
    pub fn loads(&self) -> impl Iterator<Item = &Load> {
        std::iter::once(&self.load).chain(self.joins.iter().map(|join| &join.load))
    }

    /// Trainers of all jobs. Their ranks go through the jobs in order.
    #[must_use]
    pub fn trainers(&self) -> u32 {
        let nodes = self.compute_nodes().count() as u32;
        self.loads().map(|load| nodes * load.trainers_per_node).sum()
    }

    /// What a step of a job's trainer computes, jitter and stragglers drawn.
    #[must_use]
    pub fn compute_ns(&self, load: &Load, rank: TrainerRank, minibatch: u64) -> u64 {
        let Variation { jitter, stragglers, straggler_factor } = load.variation;
        let draws = Key::new(self.seed).with(0xC0).with(u64::from(rank.0)).with(minibatch);
        let mut factor = 1.0;
        if jitter > 0.0 {
            // Box and Muller (1958); the mean of exp(jitter z - jitter^2 / 2) is 1.
            let radius = (-2.0 * (1.0 - draws.unit(0)).ln()).sqrt();
            let normal = radius * (std::f64::consts::TAU * draws.unit(1)).cos();
            factor = (jitter * normal - jitter * jitter / 2.0).exp();
        }
        if stragglers > 0.0 && draws.unit(2) < stragglers {
            factor *= straggler_factor.max(1.0);
        }
        (load.compute.0 as f64 * factor) as u64
    }
}

/// The fastest links out of and into a node.
fn interface(
    cluster: &Cluster,
    node: NodeId,
    storage: &std::collections::BTreeSet<NodeId>,
) -> (BytesPerSecond, BytesPerSecond) {
    let stated = |from: bool| {
        cluster
            .stated_links()
            .filter(move |&(a, b, _)| if from { a == node } else { b == node })
            .map(|(_, _, cost)| cost.bandwidth)
            .max()
    };
    let default = cluster.default_link().map(|link| link.bandwidth);
    // Nodes of one machine, where the file says nothing: memory.
    let reached = storage
        .iter()
        .filter(|&&other| other != node)
        .filter_map(|&other| cluster.link_cost(other, node))
        .map(|cost| cost.bandwidth)
        .max();
    let or_else = default.or(reached).unwrap_or(BytesPerSecond::from_mbit(10_000));
    (stated(true).max(default).unwrap_or(or_else), stated(false).max(default).unwrap_or(or_else))
}

/// A step that ended.
pub type OnStep<'a> = &'a mut dyn FnMut(&Step);
