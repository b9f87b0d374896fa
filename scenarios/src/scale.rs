//! Clusters of a thousand nodes on the statistics of a graph that no test machine could hold: how throughput, waiting
//! and the control plane's messages grow with the cluster. Storage nodes grow with the compute nodes, and so does the
//! job: each trainer does the same work in every size.
//!
//! Reading order: statistics, control.

pub mod control;
pub mod statistics;

use crate::arm::Arm;
use crate::compile::Scenario;
use crate::parallel::in_parallel;
use crate::progress::steps_bar;
use crate::record::Run;
use crate::run::{block, cache};
use crate::sim::scenario::{SimulatedError, spec};
use crate::sim::{Sharing, run_watched};
use crate::stop::Stop;
use crate::workload::Workload;
use control::{ControlLoad, control};
use rudder_topology::{Bytes, TrainerRank};
use serde::Serialize;
use statistics::{Minibatches, Statistics};
use std::fmt::Write;
use std::time::Instant;

/// How a scenario behaves as its cluster grows.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleReport {
    pub scenario: String,
    pub about: String,
    pub seed: u64,
    pub vertices: u64,
    /// One vertex in so many was looked at.
    pub sampling_rate: u32,
    pub cache_bytes: u64,
    pub link_bandwidth_mbit: f64,
    pub rows_per_minibatch: f64,
    pub sizes: Vec<Size>,
    /// Of this process, all sizes together.
    pub peak_memory_bytes: u64,
    pub wall_s: f64,
    pub notes: Vec<String>,
}

/// One arm on one size of cluster.
#[derive(Clone, Debug, Serialize)]
pub struct Size {
    pub arm: Arm,
    pub compute_nodes: u32,
    pub storage_nodes: u32,
    /// Of all trainers together.
    pub minibatches_per_s: f64,
    /// Throughput of a trainer over that in the smallest cluster.
    pub parallel_efficiency: f64,
    pub wait_share: f64,
    pub hit_rate: f64,
    pub bytes_moved: u64,
    pub control: ControlLoad,
    /// What was simulated, and how long that took.
    pub simulated_s: f64,
    pub wall_s: f64,
}

/// Each size has four times the nodes of the one before.
const GROWTH: u32 = 4;
/// Sizes at most.
const SIZES: u32 = 4;
/// Rates are found anew this often.
const SHARING: Sharing = Sharing::EqualShares { quantum_ns: 2_000_000 };
/// Simulates every arm of the scenario on its cluster and on a quarter, a sixteenth and a 64th of it.
pub fn run(scenario: &Scenario, statistics: &Statistics, stop: &Stop) -> Result<ScaleReport, SimulatedError> {
    let started = Instant::now();
    let sizes = sizes(scenario);
    let jobs: Vec<(Arm, (u32, u32))> =
        sizes.iter().flat_map(|&size| scenario.arms.iter().map(move |&arm| (arm, size))).collect();
    let minibatches = u64::from(scenario.trainer.minibatches);
    let steps = |&(_, (compute, _)): &(Arm, (u32, u32))| {
        u64::from(compute * scenario.cluster.trainers_per_node) * minibatches
    };
    let bar = steps_bar(scenario.name.clone(), jobs.iter().map(steps).sum());
    let drawing = Minibatches::new(statistics, scenario.trainer.seeds, &scenario.trainer.fanout);
    // The largest first, on both threads at once only if there are two arms.
    let done = in_parallel(&jobs, |&(arm, size)| {
        if stop.is_raised() {
            return Err(SimulatedError::Stopped);
        }
        one(scenario, statistics, &drawing, arm, size, &mut |_: &_| bar.inc(1))
    });
    bar.finish_and_clear();
    let mut done = done.into_iter().collect::<Result<Vec<(Size, f64)>, _>>()?;
    done.sort_by_key(|(size, _)| (scenario.arms.iter().position(|&arm| arm == size.arm), size.compute_nodes));
    let rows_per_minibatch = done.first().map_or(0.0, |(_, rows)| *rows);
    let mut sizes: Vec<Size> = done.into_iter().map(|(size, _)| size).collect();
    fill_efficiency(&mut sizes);
    let book = statistics.book(scenario.cluster.storage_nodes);
    Ok(ScaleReport {
        scenario: scenario.name.clone(),
        about: scenario.about.clone(),
        seed: scenario.seed,
        vertices: statistics.vertices,
        sampling_rate: statistics.rate,
        cache_bytes: cache(scenario, &book).0,
        link_bandwidth_mbit: scenario.cluster.bandwidth.0 as f64 * 8.0 / 1e6,
        rows_per_minibatch: rows_per_minibatch * f64::from(statistics.rate),
        sizes,
        peak_memory_bytes: peak_memory_bytes(),
        wall_s: started.elapsed().as_secs_f64(),
        notes: vec![
            "simulated, without actors: engines, queues and links are; the control plane's messages are counted by playing its heartbeat machine, and reports at their period".to_owned(),
            format!("spatial sampling: one vertex in {} is looked at and stands for all of them; links share by equal shares every 2 ms", statistics.rate),
            format!("seed {} (--seed {} plays it again)", scenario.seed, scenario.seed),
        ],
    })
}

/// (compute, storage) nodes, largest first.
fn sizes(scenario: &Scenario) -> Vec<(u32, u32)> {
    let cluster = &scenario.cluster;
    (0..SIZES)
        .map(|step| GROWTH.pow(step))
        .take_while(|&less| cluster.compute_nodes / less > 0)
        .map(|less| (cluster.compute_nodes / less, (cluster.storage_nodes / less).max(1)))
        .collect()
}

/// One run; also the sampled rows of a minibatch.
fn one(
    scenario: &Scenario,
    statistics: &Statistics,
    drawing: &Minibatches,
    arm: Arm,
    (compute_nodes, storage_nodes): (u32, u32),
    on_step: crate::sim::OnStep<'_>,
) -> Result<(Size, f64), SimulatedError> {
    let started = Instant::now();
    let mut scenario = scenario.clone();
    (scenario.cluster.compute_nodes, scenario.cluster.storage_nodes) = (compute_nodes, storage_nodes);
    let book = statistics.book(storage_nodes);
    let minibatches = (0..scenario.trainers())
        .map(TrainerRank)
        .map(|rank| {
            let draw = |minibatch| drawing.draw(scenario.seed, rank, minibatch);
            (0..u64::from(scenario.trainer.minibatches)).map(draw).collect()
        })
        .collect();
    let workload = Workload::new(minibatches, &book);
    let mut spec = spec(&scenario, &book, arm, cache(&scenario, &book))?;
    spec.sharing = SHARING;
    spec.costs = spec.costs.of_sampled_rows(statistics.rate);
    let failed = |source| SimulatedError::Arm { arm: arm.name(), source };
    let run = run_watched(&spec, Some(arm), &workload, on_step, None).map_err(failed)?;
    let nodes = compute_nodes + storage_nodes;
    let size = Size {
        arm,
        compute_nodes,
        storage_nodes,
        minibatches_per_s: run.minibatches_per_s() * run.trainers.len() as f64,
        parallel_efficiency: 1.0,
        wait_share: run.wait_share(),
        hit_rate: run.counters.rows_resident as f64 / run.counters.rows_wanted.max(1) as f64,
        bytes_moved: run.counters.bytes_moved(),
        control: control(nodes, spec.limits.heartbeat_timeout),
        simulated_s: simulated_s(&run),
        wall_s: started.elapsed().as_secs_f64(),
    };
    debug_assert!(block(&book).0 > 0);
    Ok((size, workload.rows_per_minibatch))
}

fn simulated_s(run: &Run) -> f64 {
    let ends = run.trainers.iter().filter_map(|trainer| trainer.steps.last());
    ends.map(|step| step.at_ns).max().unwrap_or(0) as f64 / 1e9
}

fn fill_efficiency(sizes: &mut [Size]) {
    let of_trainer = |size: &Size| size.minibatches_per_s / f64::from(size.compute_nodes);
    let smallest: Vec<(Arm, f64)> = sizes.iter().map(|size| (size.arm, of_trainer(size))).collect();
    for size in sizes {
        // The sizes of an arm stand in order.
        let first = smallest.iter().find(|(arm, _)| *arm == size.arm).map_or(1.0, |(_, rate)| *rate);
        size.parallel_efficiency = of_trainer(size) / first;
    }
}

/// The most memory that this process had.
fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// For a terminal.
#[must_use]
pub fn render(report: &ScaleReport) -> String {
    let mut text = format!("scenario {}: {}\n", report.scenario, report.about);
    let _ = writeln!(
        text,
        "  {} vertices as statistics, one in {} looked at; a minibatch touches about {:.0} rows; cache {} a node; links of {:.0} Mbit/s",
        report.vertices,
        report.sampling_rate,
        report.rows_per_minibatch,
        Bytes(report.cache_bytes),
        report.link_bandwidth_mbit
    );
    for note in &report.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    let _ = writeln!(
        text,
        "\n{:<14}{:>8}{:>9}{:>15}{:>12}{:>9}{:>8}{:>13}{:>17}{:>12}{:>12}{:>9}",
        "arm",
        "compute",
        "storage",
        "minibatches/s",
        "efficiency",
        "wait",
        "hits",
        "moved",
        "control msg/s",
        "scheduler",
        "simulated",
        "wall"
    );
    let _ = writeln!(text, "{}", "-".repeat(138));
    for size in &report.sizes {
        let _ = writeln!(
            text,
            "{:<14}{:>8}{:>9}{:>15.1}{:>12.3}{:>7.1} %{:>6.1} %{:>13}{:>12.3}/node{:>10.0}/s{:>10.1} s{:>7.1} s",
            size.arm.name(),
            size.compute_nodes,
            size.storage_nodes,
            size.minibatches_per_s,
            size.parallel_efficiency,
            size.wait_share * 100.0,
            size.hit_rate * 100.0,
            Bytes(size.bytes_moved).to_string(),
            size.control.messages_per_node_per_s,
            size.control.scheduler_messages_per_s,
            size.simulated_s,
            size.wall_s
        );
    }
    let _ =
        writeln!(text, "\npeak memory {}, wall time {:.1} s", Bytes(report.peak_memory_bytes), report.wall_s);
    text
}
