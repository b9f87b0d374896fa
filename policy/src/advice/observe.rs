//! From nodes' samples to the state of the cluster.

use super::cost::Totals;
use super::sample::{ComputeSample, JobSample, LinkSample};
use super::state::{ClusterState, ComputeState, Group, JobState, LinkState, StorageState};
use rudder_topology::{BytesPerSecond, Cluster, JobId, NodeId};
use std::collections::BTreeMap;

/// A link with so much of its permits out is full: what it carries then is what it can.
const FULL: f32 = 0.75;
/// Weight of a new distribution in the usual one.
const USUAL_WEIGHT: f32 = 0.05;
/// What is left of the fastest rate after each sample: what was half a day ago is no measure.
const FADES: f32 = 0.999;
/// Weight of a new wait share in the mean of the last ones.
const LATELY_WEIGHT: f32 = 0.25;
/// Weight of a new rate of a full link.
const RATE_WEIGHT: f32 = 0.5;
/// Weight of a period's mean time of a step in the smoothed one: what varies from step to step is no least.
const STEPS_WEIGHT: f32 = 0.2;
/// Means before the least is known: at first steps are long, since the cache is cold.
const STEPS_VALUES: u32 = 5;

/// What is known of a node.
#[derive(Clone, Debug)]
struct Known {
    at_ns: u64,
    sample: ComputeSample,
    state: ComputeState,
    links: Vec<LinkState>,
    /// The fastest that rows came from each storage node; it fades.
    fastest: BTreeMap<NodeId, f32>,
    usual: BTreeMap<Group, f32>,
    steps: BTreeMap<JobId, Steps>,
}

/// What steps of a job's trainers take beside waiting, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    values: u32,
    smooth_ns: f32,
    /// The least that the smoothed time was; it fades.
    least_ns: f32,
}

/// What is known of a storage node beforehand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stored {
    /// Of its parts, those that others store as well, 0 to 1.
    pub replicated: f32,
    /// Whether it keeps copies of what others own.
    pub stages: bool,
}

/// Keeps the last sample of each compute node, and what two in a row say.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Stated rate of each link, storage node first.
    rates: BTreeMap<(NodeId, NodeId), BytesPerSecond>,
    /// Storage nodes and how much of their parts others store as well.
    storage: BTreeMap<NodeId, Stored>,
    nodes: BTreeMap<NodeId, Known>,
    totals: Totals,
}

impl Observed {
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        let with = |role: fn(&rudder_topology::Node) -> bool| {
            cluster.nodes.iter().filter(move |node| role(node)).map(|node| node.id)
        };
        let mut rates = BTreeMap::new();
        for storage in with(|node| node.roles.storage) {
            for compute in with(|node| node.roles.compute) {
                if let Some(cost) = cluster.link_cost(storage, compute) {
                    rates.insert((storage, compute), cost.bandwidth);
                }
            }
        }
        let parts = || cluster.datasets.iter().flat_map(|dataset| &dataset.replicas);
        let replicated = |node| {
            let own = parts().filter(|replicas| replicas.contains(&node)).count();
            let more = parts().filter(|replicas| replicas.contains(&node) && replicas.len() > 1).count();
            more as f32 / own.max(1) as f32
        };
        let stages =
            |id: NodeId| cluster.node(id).storage.as_ref().is_some_and(|storage| storage.staging_bytes.0 > 0);
        let storage = with(|node| node.roles.storage)
            .map(|node| (node, Stored { replicated: replicated(node), stages: stages(node) }))
            .collect();
        Observed::of(rates, storage)
    }

    /// Of a cluster that no topology file describes: the stated rate of each link, storage node first, and of each
    /// storage node what it stores.
    #[must_use]
    pub fn of(rates: BTreeMap<(NodeId, NodeId), BytesPerSecond>, storage: BTreeMap<NodeId, Stored>) -> Self {
        Observed { rates, storage, nodes: BTreeMap::new(), totals: Totals::default() }
    }

    /// Takes in a sample that a node made when its own clock said so. The first of an incarnation says nothing yet.
    pub fn take(&mut self, node: NodeId, at_ns: u64, sample: ComputeSample) {
        let known = self.nodes.remove(&node);
        let passed_ns = known.as_ref().map_or(0, |known| at_ns.saturating_sub(known.at_ns));
        let grew = known.as_ref().is_some_and(|known| grew(&known.sample, &sample));
        let mut next = known.as_ref().map_or_else(|| Known::new(node), |known| known.clone());
        if let Some(before) = known.as_ref().filter(|_| grew && passed_ns > 0) {
            self.totals.add(&before.sample, &sample);
            let lately = next.state.stall_lately;
            next.state = compute(node, &before.sample, &sample, passed_ns, &mut next.steps);
            next.state.stall_lately = lately + LATELY_WEIGHT * (next.state.stall_share - lately);
            next.state.drift = drift(&mut next.usual, &sample);
            let rate = |link: &LinkSample| self.rates.get(&(link.storage, node)).copied();
            let measured = sample.links.iter().filter_map(|link| {
                let former = before.links.iter().find(|former| former.storage == link.storage);
                let slowed = slowed(next.fastest.entry(link.storage).or_default(), link);
                let state = link_state(node, link, &before.sample, former, rate(link)?, passed_ns);
                Some(LinkState { slowed, ..state })
            });
            next.links = measured.collect();
        }
        self.nodes.insert(node, Known { at_ns, sample, ..next });
    }

    /// Takes in a sample unless it was taken already.
    pub fn take_once(&mut self, node: NodeId, at_ns: u64, sample: ComputeSample) {
        if self.nodes.get(&node).is_none_or(|known| known.at_ns != at_ns) {
            self.take(node, at_ns, sample);
        }
    }

    /// A node that is gone says nothing any more.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// What all nodes together did since this began to watch.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The cluster as the last samples show it.
    #[must_use]
    pub fn state(&self, now_ns: u64) -> ClusterState {
        let compute: Vec<_> = self.nodes.values().map(|known| known.state.clone()).collect();
        let links: Vec<_> = self.nodes.values().flat_map(|known| known.links.iter().copied()).collect();
        let storage = self.storage.iter().map(|(&node, &stored)| self.storage_state(node, stored, &links));
        ClusterState {
            at_ns: now_ns,
            minibatch: self.nodes.values().map(|k| k.sample.minibatches_released).max().unwrap_or(0),
            storage: storage.collect(),
            compute,
            links,
            ..ClusterState::default()
        }
    }

    fn storage_state(&self, node: NodeId, stored: Stored, links: &[LinkState]) -> StorageState {
        let Stored { replicated, stages } = stored;
        let own = links.iter().filter(|link| link.storage == node);
        let rate = |link: &LinkState| {
            let stated = self.rates.get(&(node, link.compute)).map_or(0.0, |rate| rate.0 as f32);
            stated * link.rate_share * link.bandwidth_use
        };
        // Its uplink is taken to carry what its fastest link does.
        let uplink = self.rates.iter().filter(|((storage, _), _)| *storage == node).map(|(_, rate)| rate.0);
        let load = own.map(rate).sum::<f32>() / uplink.max().unwrap_or(0).max(1) as f32;
        let seen = self.nodes.values().flat_map(|known| &known.sample.links).filter(|l| l.storage == node);
        let up = seen.map(|link| link.up).reduce(|a, b| a || b).unwrap_or(true);
        StorageState { node, up, load: load.min(1.0), replicated, stages, cached: vec![] }
    }
}

impl Known {
    /// Nothing is known yet.
    fn new(node: NodeId) -> Self {
        Known {
            at_ns: 0,
            sample: ComputeSample::default(),
            state: unknown(node),
            links: vec![],
            fastest: BTreeMap::new(),
            usual: BTreeMap::new(),
            steps: BTreeMap::new(),
        }
    }
}

impl Steps {
    /// Takes in how long so many minibatches were used; says which part of it is beyond the least, now and smoothed.
    /// Without any, nothing new is known.
    fn observe(&mut self, used_ns: u64, minibatches: u64) -> (f32, f32) {
        if minibatches == 0 || used_ns == 0 {
            return (self.beyond(self.smooth_ns), self.beyond(self.smooth_ns));
        }
        let mean_ns = (used_ns as f64 / minibatches as f64) as f32;
        self.values = self.values.saturating_add(1);
        let weight = STEPS_WEIGHT.max(1.0 / self.values as f32);
        self.smooth_ns += weight * (mean_ns - self.smooth_ns);
        let is_known = self.values > STEPS_VALUES;
        self.least_ns = if is_known { self.smooth_ns.min(self.least_ns / FADES) } else { self.smooth_ns };
        (self.beyond(mean_ns), self.beyond(self.smooth_ns))
    }

    fn beyond(&self, ns: f32) -> f32 {
        if ns > 0.0 { (1.0 - self.least_ns / ns).max(0.0) } else { 0.0 }
    }
}

fn unknown(node: NodeId) -> ComputeState {
    ComputeState {
        node,
        gpu_use: None,
        wait_share: 0.0,
        stretched: 0.0,
        stall_share: 0.0,
        stall_lately: 0.0,
        hit_rate: 1.0,
        drift: 0.0,
        prefetch_share: 0.0,
        cache_free: 1.0,
        minibatch_share: 0.0,
        holds_share: 0.1,
        window_share: 0.0,
        moved_share: 0.0,
        ready: 0,
        waiting: vec![],
        next: vec![],
        wants: vec![],
        jobs: vec![],
    }
}

/// Counters only grow while a node lives.
fn grew(before: &ComputeSample, now: &ComputeSample) -> bool {
    now.rows_wanted >= before.rows_wanted
        && now.minibatches_released >= before.minibatches_released
        && now.bytes_demand >= before.bytes_demand
}

fn share(part: u64, all: u64, of_none: f32) -> f32 {
    if all == 0 { of_none } else { (part as f64 / all as f64).min(1.0) as f32 }
}

fn compute(
    node: NodeId,
    before: &ComputeSample,
    now: &ComputeSample,
    passed_ns: u64,
    steps: &mut BTreeMap<JobId, Steps>,
) -> ComputeState {
    let wanted = now.rows_wanted - before.rows_wanted;
    let resident = now.rows_resident.saturating_sub(before.rows_resident);
    let read = now.bytes_wanted.saturating_sub(before.bytes_wanted);
    let demand = now.bytes_demand - before.bytes_demand;
    let prefetch = now.bytes_prefetch.saturating_sub(before.bytes_prefetch);
    steps.retain(|job, _| now.jobs.iter().any(|known| known.job == *job));
    let jobs: Vec<_> = now.jobs.iter().map(|job| job_state(job, before, passed_ns, steps)).collect();
    let trainers = now.jobs.iter().map(|job| u64::from(job.trainers)).sum::<u64>().max(1) as f32;
    let mean = |of: fn(&(JobState, f32)) -> f32| {
        let weighted = jobs.iter().zip(&now.jobs).map(|(state, job)| of(state) * job.trainers as f32);
        weighted.sum::<f32>() / trainers
    };
    // It came from another process.
    let gpu_use = now.gpu_use.filter(|used| used.is_finite()).map(|used| used.clamp(0.0, 1.0));
    ComputeState {
        node,
        gpu_use,
        wait_share: mean(|(job, _)| job.wait_share),
        stretched: mean(|(job, _)| job.stretched),
        stall_share: mean(|&(_, stall_share)| stall_share),
        stall_lately: 0.0,
        hit_rate: share(resident, wanted, 1.0),
        drift: 0.0,
        prefetch_share: share(prefetch, prefetch.saturating_add(demand), 0.0),
        cache_free: now.cache_free,
        minibatch_share: now.minibatch_share,
        holds_share: if now.holds_share.is_finite() { now.holds_share.clamp(0.0, 1.0) } else { 0.0 },
        window_share: now.window_share,
        moved_share: if read == 0 {
            0.0
        } else {
            (prefetch.saturating_add(demand) as f64 / read as f64) as f32
        },
        ready: now.ready,
        waiting: vec![],
        next: now.next.clone(),
        wants: now.wants.clone(),
        jobs: jobs.iter().map(|&(job, _)| job).collect(),
    }
}

/// And which part of the time its trainers lost.
fn job_state(
    job: &JobSample,
    before: &ComputeSample,
    passed_ns: u64,
    steps: &mut BTreeMap<JobId, Steps>,
) -> (JobState, f32) {
    let former = before.jobs.iter().find(|former| former.job == job.job);
    let more = |of: fn(&JobSample) -> u64| of(job).saturating_sub(former.map_or(0, of));
    let time = passed_ns.saturating_mul(u64::from(job.trainers));
    let steps = steps.entry(job.job).or_default();
    let wait_share = share(more(|job| job.wait_ns), time, 0.0);
    let (now, stretched) = steps.observe(more(|job| job.used_ns), more(|job| job.used_minibatches));
    let state = JobState { job: job.job, wait_share, stretched, ahead: job.ahead };
    (state, wait_share + (1.0 - wait_share) * now)
}

fn link_state(
    node: NodeId,
    link: &LinkSample,
    before: &ComputeSample,
    former: Option<&LinkState>,
    stated: BytesPerSecond,
    passed_ns: u64,
) -> LinkState {
    let arrived = before.links.iter().find(|known| known.storage == link.storage);
    let bytes = link.arrived_bytes.saturating_sub(arrived.map_or(link.arrived_bytes, |l| l.arrived_bytes));
    let carried = share(bytes, stated.time_bytes(passed_ns), 0.0);
    let known = former.map_or(1.0, |former| former.rate_share);
    let full = link.permits_used >= FULL && arrived.is_some_and(|l| l.permits_used >= FULL);
    // What is carried shows what can be: more than was thought at any time, less only when the link is full.
    let rate_share = match full {
        true => known + RATE_WEIGHT * (carried - known),
        false => known.max(carried),
    };
    let rate_share = rate_share.clamp(0.01, 1.0);
    let bandwidth_use = if full { 1.0 } else { (carried / rate_share).min(1.0) };
    LinkState {
        storage: link.storage,
        compute: node,
        bandwidth_use,
        rate_share,
        slowed: 0.0,
        latency_ms: None,
    }
}

/// How much slower rows come than they once did.
fn slowed(fastest: &mut f32, link: &LinkSample) -> f32 {
    let rate = link.rate_bytes_s as f32;
    if rate <= 0.0 {
        return 0.0;
    }
    *fastest = rate.max(*fastest * FADES);
    1.0 - rate / *fastest
}

/// How far the groups that are wanted have moved from what is usual, which follows slowly.
fn drift(usual: &mut BTreeMap<Group, f32>, now: &ComputeSample) -> f32 {
    let all: u64 = now.wants.iter().map(|&(_, rows)| rows).sum();
    if all == 0 {
        return 0.0;
    }
    let present: BTreeMap<_, _> = now.wants.iter().map(|&(g, rows)| (g, share(rows, all, 0.0))).collect();
    if usual.is_empty() {
        usual.clone_from(&present);
    }
    let groups: std::collections::BTreeSet<_> = usual.keys().chain(present.keys()).copied().collect();
    let mut moved = 0.0;
    for group in groups {
        let was = usual.entry(group).or_insert(0.0);
        let is = present.get(&group).copied().unwrap_or(0.0);
        moved += (is - *was).abs() / 2.0;
        *was += USUAL_WEIGHT * (is - *was);
    }
    usual.retain(|_, share| *share > 1e-4);
    moved
}

/// Bytes that a rate carries in a time.
trait TimeBytes {
    fn time_bytes(self, ns: u64) -> u64;
}

impl TimeBytes for BytesPerSecond {
    fn time_bytes(self, ns: u64) -> u64 {
        u64::try_from(u128::from(self.0) * u128::from(ns) / 1_000_000_000).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
