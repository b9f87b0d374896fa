//! The comparison: what every arm reached, beside what is possible.
//!
//! Shares are fractions, bytes are payload sent by storage nodes over the whole run, values are medians over
//! repeats, `_low` and `_high` the extremes over repeats, and what does not apply is null.
//!
//! Reading order: statistics, oracle, advised, table, svg, html.

pub mod advised;
pub mod html;
pub mod oracle;
mod statistics;
pub(crate) mod svg;
pub mod table;

use crate::arm::Arm;
use crate::decide::Decided;
use crate::record::Run;
use advised::Advised;
use serde::Serialize;
use statistics::{Spread, median, median_of, spread};

/// Everything that is printed and written.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// The dataset's name.
    pub dataset: String,
    pub arms: Vec<ArmReport>,
    pub bound: Option<Reference>,
    pub oracle: Option<Reference>,
    pub circumstances: Circumstances,
    /// What advice is worth, of real processes under each advisor that the scenario names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advised: Option<Advised>,
    /// The same, of a simulated scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions: Option<Decided>,
}

/// One arm.
#[derive(Clone, Debug, Serialize)]
pub struct ArmReport {
    pub arm: Arm,
    /// Of one trainer.
    pub minibatches_per_s: f64,
    pub minibatches_per_s_low: f64,
    pub minibatches_per_s_high: f64,
    pub wait_share: f64,
    pub wait_share_low: f64,
    pub wait_share_high: f64,
    /// Share of the run's time beyond the bound's: (total - bound) / total, as the oracle's share is taken. It holds
    /// what waiting does not, such as gradient traffic slowed by prefetching.
    pub beyond_bound_share: Option<f64>,
    /// Prefetched rows that were used, over prefetched rows; unused at the end counts as unused.
    pub prefetch_accuracy: Option<f64>,
    /// Share of the rows that demand caching (`lru`) had to fetch on demand and this arm had not.
    pub coverage: Option<f64>,
    /// Remote rows found resident when their minibatch's turn came, over those wanted.
    pub hit_rate: Option<f64>,
    pub bytes_moved: u64,
    pub bytes_demand: u64,
    pub bytes_prefetch: u64,
    /// The most over repeats, not the median.
    pub bytes_wrong: u64,
    /// Bytes moved over bytes of distinct remote rows asked for, minibatch by minibatch.
    pub amplification: Option<f64>,
    pub bytes_protocol: u64,
    /// Of all trainers, in one repeat.
    pub minibatches: u64,
    /// Seconds that a trainer waited.
    pub stall_s: f64,
    pub repeats: u32,
    /// Minibatches that came past the cache, in pieces.
    pub bypasses: u64,
    /// Bytes on the storage nodes' interfaces, headers and acknowledgements included.
    pub interface_bytes: Option<u64>,
    /// Seconds waited up to the end of each minibatch, in the first repeat.
    pub stall_over_time: Vec<f64>,
}

/// Bound and oracle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reference {
    pub minibatches_per_s: f64,
    /// Of the bound: measured. Of the oracle: (total - bound) / total, comparable with an arm's `beyond_bound_share`.
    pub wait_share: f64,
    pub bytes_moved: u64,
}

/// Under what the numbers were taken.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Circumstances {
    pub about: String,
    pub cpu: String,
    pub cores: u32,
    /// How nodes and trainers shared the cores.
    pub core_use: String,
    pub memory_bytes: u64,
    pub kernel: String,
    /// How links were shaped.
    pub mode: String,
    pub link_bandwidth_mbit: f64,
    pub link_burst_bytes: u64,
    /// Measured before the arms ran, payload of one TCP connection; one for each compute node.
    pub link_reached_mbit: Vec<f64>,
    pub link_latency_ms: f64,
    pub allreduce_bytes: u64,
    /// Emulated: trainers sleep; not where they are a command of their own.
    pub compute_ms: f64,
    /// The program of trainers that are not the reference trainer. They compute, and reduce, as they like.
    pub trainer_program: Option<String>,
    pub compute_nodes: u32,
    pub storage_nodes: u32,
    pub trainers_per_node: u32,
    pub seeds: u32,
    pub fanout: Vec<u32>,
    pub window: u32,
    pub vertices: u64,
    pub edges: u64,
    pub row_bytes: u64,
    pub rows_per_block: u32,
    pub cache_bytes: u64,
    pub cache_share: f64,
    /// Distinct rows of a minibatch: the mean, and its share of the vertices.
    pub rows_per_minibatch: f64,
    pub vertex_share: f64,
    pub trace_digest: String,
    pub notes: Vec<String>,
}

/// Boils all runs down. `oracle` is computed elsewhere, since it needs the trace.
#[must_use]
pub fn summarise(
    names: (String, String),
    runs: &[Run],
    arms: &[Arm],
    oracle: Option<Reference>,
    circumstances: Circumstances,
) -> Report {
    let compared = || runs.iter().filter(|run| run.advised.is_none());
    let of = |arm: Option<Arm>| compared().filter(|run| run.arm == arm).collect::<Vec<_>>();
    let demand_arm = of(Some(Arm::Lru));
    let bound = bound(&of(None));
    let arms = arms
        .iter()
        .map(|&arm| (arm, of(Some(arm))))
        .filter(|(_, runs)| !runs.is_empty())
        .map(|(arm, runs)| arm_report(arm, &runs, &demand_arm, bound.as_ref()))
        .collect();
    let (scenario, dataset) = names;
    Report { scenario, dataset, arms, bound, oracle, circumstances, advised: None, decisions: None }
}

/// The bound of runs without data.
#[must_use]
pub fn bound(runs: &[&Run]) -> Option<Reference> {
    let minibatches_per_s = median(runs.iter().map(|run| run.minibatches_per_s()).collect())?;
    let wait_share = median(runs.iter().map(|run| run.wait_share()).collect())?;
    Some(Reference { minibatches_per_s, wait_share, bytes_moved: 0 })
}

fn arm_report(arm: Arm, runs: &[&Run], demand_arm: &[&Run], bound: Option<&Reference>) -> ArmReport {
    let counts = |count: fn(&Run) -> u64| median_of(runs.iter().map(|run| count(run)).collect());
    let ratio =
        |ratio: &dyn Fn(&Run) -> Option<f64>| median(runs.iter().filter_map(|run| ratio(run)).collect());
    let Spread { middle: minibatches_per_s, low: per_s_low, high: per_s_high } =
        spread(runs.iter().map(|run| run.minibatches_per_s()).collect());
    let Spread { middle: wait_share, low: wait_low, high: wait_high } =
        spread(runs.iter().map(|run| run.wait_share()).collect());
    let bytes_demand = counts(|run| run.counters.bytes_demand);
    let bytes_prefetch = counts(|run| run.counters.bytes_prefetch);
    let has_cache = !matches!(arm, Arm::None | Arm::NoneOverlap);
    ArmReport {
        arm,
        minibatches_per_s,
        minibatches_per_s_low: per_s_low,
        minibatches_per_s_high: per_s_high,
        wait_share,
        wait_share_low: wait_low,
        wait_share_high: wait_high,
        // Times are the inverse of rates: (1/r - 1/b) / (1/r) = 1 - r/b. A run that beat the bound by noise has 0.
        beyond_bound_share: bound
            .filter(|bound| bound.minibatches_per_s > 0.0)
            .map(|bound| (1.0 - minibatches_per_s / bound.minibatches_per_s).max(0.0)),
        prefetch_accuracy: ratio(&|run| {
            let used = run.counters.prefetched_used;
            arm.prefetches().then(|| share(used, run.counters.rows_prefetched)).flatten()
        }),
        coverage: ratio(&|run| arm.prefetches().then(|| coverage(run, demand_arm)).flatten()),
        hit_rate: ratio(&|run| {
            has_cache.then(|| share(run.counters.rows_resident, run.counters.rows_wanted)).flatten()
        }),
        bytes_moved: bytes_demand + bytes_prefetch,
        bytes_demand,
        bytes_prefetch,
        bytes_wrong: runs.iter().map(|run| run.bytes_wrong()).max().unwrap_or(0),
        amplification: ratio(&|run| share(run.counters.bytes_moved(), run.counters.distinct_bytes_wanted)),
        bytes_protocol: counts(|run| run.counters.bytes_protocol),
        minibatches: counts(Run::minibatches),
        stall_s: median(runs.iter().map(|run| run.stall_s()).collect()).unwrap_or(0.0),
        repeats: runs.len() as u32,
        bypasses: counts(|run| run.counters.bypasses),
        interface_bytes: runs
            .iter()
            .map(|run| run.interface_bytes)
            .collect::<Option<Vec<u64>>>()
            .map(median_of),
        stall_over_time: runs.first().map(|run| run.stall_over_time()).unwrap_or_default(),
    }
}

/// Against the demand arm's run of the same repeat.
fn coverage(run: &Run, demand_arm: &[&Run]) -> Option<f64> {
    let twin = demand_arm.iter().find(|twin| twin.repeat == run.repeat).or(demand_arm.first())?;
    let left = share(run.counters.rows_demand, twin.counters.rows_demand)?;
    Some((1.0 - left).clamp(0.0, 1.0))
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
pub(crate) mod tests;
