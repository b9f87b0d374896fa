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
            let lately = next.state.wait_lately;
            next.state = compute(node, &before.sample, &sample, passed_ns, &mut next.steps);
            next.state.wait_lately = lately + LATELY_WEIGHT * (next.state.wait_share - lately);
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
        wait_lately: 0.0,
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
        wait_lately: 0.0,
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
mod tests {
    use super::*;
    use crate::advice::lever::hot;
    use crate::advice::sample::JobSample;
    use crate::advice::state::DatasetIndex;
    use proptest::prelude::*;
    use rudder_topology::{JobId, PartId};

    const SECOND: u64 = 1_000_000_000;
    /// 1 Gbit/s in two seconds.
    const FULL_BYTES: u64 = 250_000_000;

    fn cluster() -> Cluster {
        let text = "[defaults]\ncontrol = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\nstorage_directory = \"/s\"\n\
            cache = \"1MiB\"\ntrainer_socket = \"/t/{name}.sock\"\n\
            [[nodes]]\nname = \"c0\"\nroles = [\"compute\"]\n\
            [[nodes]]\nname = \"s0\"\nroles = [\"storage\"]\n[[nodes]]\nname = \"s1\"\nroles = [\"storage\"]\n\
            [[datasets]]\nname = \"d\"\ndirectory = \"/d\"\nparts = 2\nplacement = \"round_robin\"\nreplicas = 2\n\
            [default_link]\nbandwidth = \"1Gbit/s\"\n";
        rudder_topology::compile(text, std::path::Path::new("t.toml")).unwrap()
    }

    /// The n-th sample of a node that waits a quarter of the time and finds half of its rows.
    fn sample(n: u64, bytes: u64, permits_used: f32) -> ComputeSample {
        ComputeSample {
            jobs: vec![JobSample {
                job: JobId(1),
                trainers: 2,
                wait_ns: n * SECOND,
                used_ns: n * 3 * SECOND,
                used_minibatches: n * 10,
                ahead: 3,
            }],
            links: vec![LinkSample {
                storage: NodeId(1),
                up: true,
                arrived_bytes: n * bytes,
                rate_bytes_s: 0,
                permits_used,
            }],
            rows_wanted: n * 100,
            rows_resident: n * 50,
            bytes_wanted: n * 80,
            bytes_demand: n * 10,
            bytes_prefetch: n * 30,
            minibatches_released: n,
            cache_free: 0.1,
            minibatch_share: 0.1,
            holds_share: 0.1,
            window_share: 0.4,
            gpu_use: None,
            ready: 1,
            wants: vec![(hot(DatasetIndex(0), PartId((n % 40 / 20) as u16)), 10)],
            next: vec![],
        }
    }

    fn after(samples: u64, bytes: u64, permits_used: f32) -> ClusterState {
        let mut observed = Observed::new(&cluster());
        for n in 0..samples {
            observed.take(NodeId(0), n * 2 * SECOND, sample(n, bytes, permits_used));
        }
        observed.state(7)
    }

    #[test]
    fn two_samples_say_what_happened_between_them() {
        let state = after(2, FULL_BYTES / 2, 0.2);
        let node = &state.compute[0];
        assert_eq!((node.wait_share, node.hit_rate, node.prefetch_share), (0.25, 0.5, 0.75));
        assert_eq!((node.moved_share, node.window_share), (0.5, 0.4));
        assert_eq!(node.jobs, [JobState { job: JobId(1), wait_share: 0.25, stretched: 0.0, ahead: 3 }]);
        let link = state.links[0];
        assert_eq!((link.storage, link.compute, link.rate_share), (NodeId(1), NodeId(0), 1.0));
        assert!((link.bandwidth_use - 0.5).abs() < 1e-3);
        assert_eq!((state.minibatch, state.at_ns, state.storage.len()), (1, 7, 2));
        assert!((state.storage[0].load - 0.5).abs() < 1e-3 && state.storage[0].replicated == 1.0);
        assert_eq!(after(1, 1, 0.0).compute[0].wait_share, 0.0, "one sample says nothing");
    }

    #[test]
    fn devices_are_told_where_they_say_something() {
        let with = |gpu_use| {
            let mut observed = Observed::new(&cluster());
            for n in 0..2 {
                observed.take(NodeId(0), n * 2 * SECOND, ComputeSample { gpu_use, ..sample(n, 1, 0.0) });
            }
            observed.state(0).compute[0].gpu_use
        };
        assert_eq!(
            [None, Some(0.7), Some(7.0), Some(f32::NAN)].map(with),
            [None, Some(0.7), Some(1.0), None]
        );
    }

    #[test]
    fn totals_grow_over_restarts_of_nodes() {
        let mut observed = Observed::new(&cluster());
        for n in [5, 6, 0, 1] {
            observed.take(NodeId(0), n * 2 * SECOND, sample(n, 1, 0.0));
        }
        let expected = Totals { minibatches: 2, demand_bytes: 20, wait_ns: 2 * SECOND };
        assert_eq!(observed.totals(), expected);
    }

    #[test]
    fn a_full_link_shows_what_it_can_carry() {
        let slow = after(10, FULL_BYTES / 5, 1.0).links[0];
        assert!((slow.rate_share - 0.2).abs() < 0.02 && slow.bandwidth_use == 1.0, "{slow:?}");
        let idle = after(10, FULL_BYTES / 5, 0.1).links[0];
        assert!(idle.rate_share == 1.0 && (idle.bandwidth_use - 0.2).abs() < 0.01, "{idle:?}");
    }

    #[test]
    fn a_link_that_slows_down_shows_it_and_one_that_says_nothing_does_not() {
        let slowed = |rates: &[u64]| {
            let mut observed = Observed::new(&cluster());
            for (n, &rate) in (0..).zip(rates) {
                let mut sample = sample(n, 1, 0.0);
                sample.links[0].rate_bytes_s = rate;
                observed.take(NodeId(0), n * 2 * SECOND, sample);
            }
            observed.state(0).links[0].slowed
        };
        assert_eq!((slowed(&[0, 0, 0]), slowed(&[5, 1000, 1000])), (0.0, 0.0));
        assert!((slowed(&[0, 1000, 1000, 250]) - 0.75).abs() < 0.01);
        assert_eq!(slowed(&[0, 1000, 250, 0]), 0.0, "nothing is known any more");
    }

    /// What is told of steps that take so long, in milliseconds, ten a period.
    fn stretched(steps_ms: impl IntoIterator<Item = u64>) -> Vec<(f32, f32)> {
        let (mut observed, mut used_ms) = (Observed::new(&cluster()), 0);
        let of = |(n, step_ms): (u64, u64)| {
            used_ms += 10 * step_ms;
            let mut sample = sample(n, 1, 0.0);
            sample.jobs[0].used_ns = used_ms * 1_000_000;
            observed.take(NodeId(0), n * 2 * SECOND, sample);
            let compute = &observed.state(0).compute[0];
            assert!(compute.jobs.iter().all(|job| job.stretched == compute.stretched));
            (compute.stretched, compute.stall_share)
        };
        (0..).zip(steps_ms).map(of).collect()
    }

    #[test]
    fn steps_that_take_longer_than_they_once_did_are_stretched() {
        let told = stretched([vec![100; 20], vec![125; 20], vec![100; 5]].concat());
        let near = |value: f32, expected: f32| (value - expected).abs() < 0.02;
        assert!(
            told[2..20].iter().all(|&(smooth, stall)| near(smooth, 0.0) && near(stall, 0.25)),
            "{told:?}"
        );
        // A quarter is waited, and of the rest a fifth is beyond the least; what is told of it follows slowly.
        assert!(told[20..40].iter().all(|&(_, stall)| near(stall, 0.25 + 0.75 * 0.19)), "{told:?}");
        assert!(told[20].0 < 0.06 && near(told[39].0, 0.18), "{told:?}");
        assert!(told[40..].iter().all(|&(_, stall)| near(stall, 0.25)), "{told:?}");
        // What was long ago is forgotten.
        let (smooth, _) = *stretched([vec![100; 20], vec![125; 2000]].concat()).last().unwrap();
        assert!(near(smooth, 0.0), "{smooth}");
    }

    #[test]
    fn steps_that_vary_are_not_stretched() {
        let varied = |n: u64| 90 + rudder_graph::random::Key::new(n).below(0, 21);
        let told = stretched((0..500).map(varied));
        assert!(told.iter().all(|&(smooth, _)| smooth < 0.08), "{told:?}");
    }

    #[test]
    fn who_says_nothing_of_steps_is_not_stretched() {
        let text = r#"{"job": 1, "trainers": 2, "wait_ns": 3, "ahead": 4}"#;
        let old: JobSample = serde_json::from_str(text).unwrap();
        assert_eq!((old.used_ns, old.used_minibatches), (0, 0));
        assert_eq!(Steps::default().observe(old.used_ns, old.used_minibatches), (0.0, 0.0));
    }

    #[test]
    fn other_parts_are_drift_until_they_are_usual() {
        assert!(after(20, 1, 0.0).compute[0].drift < 0.01);
        assert!(after(21, 1, 0.0).compute[0].drift > 0.9);
    }

    #[test]
    fn a_restarted_node_starts_anew() {
        let mut observed = Observed::new(&cluster());
        for n in [5, 6, 0, 1] {
            observed.take(NodeId(0), n * 2 * SECOND, sample(n, 1, 0.0));
        }
        assert_eq!(observed.state(0).compute[0].wait_share, 0.25);
        observed.forget(NodeId(0));
        assert!(observed.state(0).compute.is_empty());
    }

    proptest! {
        #[test]
        fn any_sample_gives_finite_shares(
            values in prop::array::uniform6(any::<u64>()), permits in prop::num::f32::ANY, node: u16, at: u64,
        ) {
            let mut observed = Observed::new(&cluster());
            observed.take(NodeId(node), 0, sample(0, 1, 0.0));
            let mut wild = sample(1, 1, permits);
            [wild.rows_wanted, wild.rows_resident, wild.bytes_demand, wild.bytes_prefetch] =
                [values[0], values[1], values[2] / 2, values[3] / 2];
            wild.jobs[0].wait_ns = values[4];
            (wild.jobs[0].used_ns, wild.jobs[0].used_minibatches) = (values[5], values[4]);
            wild.links[0].arrived_bytes = values[5];
            observed.take(NodeId(node), at, wild);
            let labels = crate::advice::labels::Labels::of(&cluster());
            let state = observed.state(0);
            prop_assert!(state.metrics(&labels).iter().all(|m| (0.0..=1.0).contains(m)));
            prop_assert!(state.compute.iter().all(|of| (0.0..=1.0).contains(&of.stall_share)));
        }
    }
}
