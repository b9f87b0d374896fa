//! A scenario file, simulated: the same cluster as the processes', from the same topology files, and the same report.

use super::{Change, Costs, Join, Load, SimError, SimSpec};
use crate::arm::Arm;
use crate::compile::{JoinPlan, Scenario};
use crate::decide::{self, DecideError, Decided, Played};
use crate::parallel::in_parallel;
use crate::progress::steps_bar;
use crate::record::Run;
use crate::report::{Report, summarise};
use crate::run::files::{Place, Places, Role};
use crate::run::{LinkFacts, block, burst, cache, circumstances, oracle_row};
use crate::stop::Stop;
use crate::workload::Workload;
use rudder_client::dataset::Dataset;
use rudder_graph::{PartitionBook, Split};
use rudder_policy::prior;
use rudder_topology::{Bytes, BytesPerSecond, NodeName};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Why a scenario was not simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedError {
    #[error("{arm}: {source}")]
    Arm { arm: &'static str, source: SimError },
    #[error("the scenario's cluster is no cluster: {reason}")]
    Topology { reason: String },
    #[error(transparent)]
    Decide(#[from] DecideError),
    #[error("stopped on request")]
    Stopped,
}

/// The cluster that a scenario's processes would be, with an arm's policy.
pub fn spec(
    scenario: &Scenario,
    book: &PartitionBook,
    arm: Arm,
    cache: Bytes,
) -> Result<SimSpec, SimulatedError> {
    let topology = |reason: String| SimulatedError::Topology { reason };
    let places = places(scenario, book, cache);
    let text =
        places.spec(scenario, arm, None, &places.nodes).to_toml().map_err(|e| topology(e.to_string()))?;
    let cluster = rudder_topology::compile(&text, Path::new("simulated.toml"))
        .map_err(|errors| topology(errors.to_string()))?;
    let Some(found) = cluster.datasets.first() else { return Err(topology("it has no dataset".to_owned())) };
    let load = Load {
        trainers_per_node: scenario.cluster.trainers_per_node,
        window: scenario.trainer.window,
        minibatches: u64::from(scenario.trainer.minibatches),
        replay: scenario.trainer.replay,
        compute: scenario.trainer.compute,
        variation: scenario.variation,
        allreduce: scenario.trainer.allreduce,
    };
    let of_arm = |source| SimulatedError::Arm { arm: arm.name(), source };
    let mut spec = SimSpec::of_cluster(&cluster, found, book.clone(), load, scenario.seed).map_err(of_arm)?;
    spec.latency = scenario.cluster.latency;
    spec.events.extend(scenario.events.iter().cloned());
    spec.joins = scenario.joins.iter().map(|join| joined(join, &spec.load)).collect();
    let windows = scenario.joins.iter().map(|join| join.window.saturating_add(2));
    for compute in spec.nodes.iter_mut().filter_map(|node| node.compute.as_mut()) {
        compute.credits = windows.clone().fold(compute.credits, u32::max);
    }
    Ok(spec)
}

/// Jobs that join have no all-reduce of their own.
fn joined(plan: &JoinPlan, first: &Load) -> Join {
    let load = Load {
        trainers_per_node: plan.trainers_per_node,
        window: plan.window,
        minibatches: u64::from(plan.minibatches),
        compute: plan.compute,
        allreduce: Bytes(0),
        ..first.clone()
    };
    Join { at: plan.at, load }
}

/// Where the policy needs a prior: from the dataset's graph.
pub(crate) fn prior_of(spec: &SimSpec, dataset: &Dataset) -> Option<Arc<[f32]>> {
    let fetched = |part: usize| {
        spec.compute_nodes().any(|(_, compute)| compute.replicas.get(part).is_some_and(|all| !all.is_empty()))
    };
    let remote: Vec<bool> = (0..dataset.book().parts()).map(fetched).collect();
    let train_ids = dataset.split(Split::Train).unwrap_or_default();
    prior::of(spec.policy, dataset.first_csc()?, dataset.book(), train_ids, &remote)
}

/// Nodes as the runner names them; nobody binds their addresses.
fn places(scenario: &Scenario, book: &PartitionBook, cache: Bytes) -> Places {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let storage = (0..scenario.cluster.storage_nodes).map(|n| (format!("s{n}"), Role::Storage));
    let compute = (0..scenario.cluster.compute_nodes).map(|n| (format!("c{n}"), Role::Compute));
    let place = |(name, role)| Place {
        name: NodeName::new(name).expect("letters and digits"),
        role,
        control: nowhere,
        data: nowhere,
    };
    Places {
        nodes: storage.chain(compute).map(place).collect(),
        folder: "simulated".into(),
        keys: None,
        dataset_name: "simulated".to_owned(),
        dataset: "simulated".into(),
        parts: book.parts() as u32,
        cache,
    }
}

/// Simulates the bound and every arm, once each: the same seed gives the same run.
pub fn report(
    scenario: &Scenario,
    dataset: &Dataset,
    workload: &Workload,
    stop: &Stop,
) -> Result<Report, SimulatedError> {
    let cache = cache(scenario, dataset.book());
    let runs = runs(scenario, dataset, workload, cache, stop)?;
    let reached =
        [BytesPerSecond((scenario.cluster.bandwidth.0 as f64 / Costs::default().wire_factor) as u64)];
    let slots = cache.0 / block(dataset.book()).0.max(1);
    // It is known for one job whose sampler and caches stay.
    let resized = scenario.events.iter().any(|event| matches!(event.what, Change::Cache { .. }));
    let plain = scenario.joins.is_empty() && scenario.fanouts.is_empty() && !resized;
    let oracle =
        plain.then(|| oracle_row(scenario, dataset, workload, &runs, &reached, slots as usize)).flatten();
    let facts = LinkFacts {
        mode: "simulated",
        bandwidth: scenario.cluster.bandwidth,
        burst: burst(workload),
        latency: scenario.cluster.latency,
        reached: &reached,
    };
    let mut circumstances = circumstances(scenario, dataset, workload, &facts, cache);
    circumstances.trace_digest = workload.digest(rudder_topology::TrainerRank(0));
    circumstances.notes.push(format!(
        "simulated: no processes, actors or feature bytes; the same policies, in virtual time; seed {} (--seed {} plays it again)",
        scenario.seed, scenario.seed
    ));
    circumstances.notes.extend(runs.iter().flat_map(Run::notes));
    let names = (scenario.name.clone(), dataset.manifest().name.to_string());
    let decisions = decisions(scenario, dataset, workload, cache, stop)?;
    Ok(Report { decisions, ..summarise(names, &runs, &scenario.arms, oracle, circumstances) })
}

/// What advice is worth in this scenario, where it names advisors.
fn decisions(
    scenario: &Scenario,
    dataset: &Dataset,
    workload: &Workload,
    cache: Bytes,
    stop: &Stop,
) -> Result<Option<Decided>, SimulatedError> {
    if scenario.advisors.is_empty() {
        return Ok(None);
    }
    let mut spec = spec(scenario, dataset.book(), Arm::Rudder, cache)?;
    spec.prior = prior_of(&spec, dataset);
    spec.burst = burst(workload);
    let timed = spec.events.iter().map(|event| event.at).filter(|at| at.0 > 0);
    let change = timed.chain(spec.joins.iter().map(|join| join.at)).min().unwrap_or_default();
    let played = Played { seed: scenario.seed, kind: None, change, spec: &spec, rows: workload };
    let trials = decide::trials(&played, &scenario.advisors, true, stop)?;
    Ok(Some(Decided::of(vec![trials])))
}

/// The runs of the bound and all arms, in this order.
pub fn runs(
    scenario: &Scenario,
    dataset: &Dataset,
    workload: &Workload,
    cache: Bytes,
    stop: &Stop,
) -> Result<Vec<Run>, SimulatedError> {
    let arms: Vec<Option<Arm>> =
        std::iter::once(None).chain(scenario.arms.iter().copied().map(Some)).collect();
    let steps = u64::from(scenario.trainers()) * u64::from(scenario.trainer.minibatches);
    let bar = steps_bar(scenario.name.clone(), steps * arms.len() as u64);
    let one = |&arm: &Option<Arm>| {
        if stop.is_raised() {
            return Err(SimulatedError::Stopped);
        }
        let mut spec = spec(scenario, dataset.book(), arm.unwrap_or(Arm::None), cache)?;
        spec.prior = prior_of(&spec, dataset);
        // As the links of the scenario's processes are shaped.
        spec.burst = burst(workload);
        let mut on_step = |_: &_| bar.inc(1);
        let name = arm.map_or("bound", Arm::name);
        let mut run = super::run_watched(&spec, arm, workload, &mut on_step, None)
            .map_err(|source| SimulatedError::Arm { arm: name, source })?;
        for trainer in run.trainers.iter_mut().filter(|_| arm.is_some()) {
            trainer.trace_digest = workload.digest(trainer.rank);
        }
        Ok(run)
    };
    let runs = in_parallel(&arms, one);
    bar.finish_and_clear();
    runs.into_iter().collect()
}
