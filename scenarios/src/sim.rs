//! A whole cluster in one thread and in virtual time: the product's engines, queues and rate limiters, between
//! simulated trainers, storage services and links. Deterministic: the same specification and rows give the same run.
//!
//! ```text
//! trainer: sample | announce -> engine -> transfer -> latency -> storage queue -> service -> flow -> latency
//!          wait, gather, release | compute | all-reduce: flows on the same links            -> engine -> ready
//! ```
//!
//! No feature bytes exist here. What is not simulated: the control plane (there are no actors), packets, CPUs that
//! are shared (work takes what [`Costs`] says, whoever else works), and requests' few bytes on links.
//!
//! Reading order: costs, spec, clock, network, storage, ring, trainer, usage, steer, simulation, watch,
//! scenario.

mod clock;
mod costs;
mod network;
mod ring;
pub mod scenario;
mod simulation;
mod spec;
mod steer;
mod storage;
mod trainer;
mod usage;
mod watch;

pub use costs::Costs;
pub use network::Sharing;
pub use simulation::Simulation;
pub use spec::{
    Change, Join, Load, OnStep, Rows, STAGING, SimCompute, SimError, SimNode, SimSpec, TimedEvent, Variation,
};
pub use steer::{Steer, Steering};
pub use usage::{LinkUse, Way};
pub use watch::{UntilStopped, Watch};

use crate::arm::Arm;
use crate::record::{Run, TrainerRun};

/// Simulates one run. `arm` names it in the record; without one, trainers need no data and it is the bound.
pub fn run(spec: &SimSpec, arm: Option<Arm>, rows: &dyn Rows) -> Result<Run, SimError> {
    run_watched(spec, arm, rows, &mut |_| {}, None)
}

/// As [`run`], telling of every step, under the eye of a judge.
pub fn run_watched(
    spec: &SimSpec,
    arm: Option<Arm>,
    rows: &dyn Rows,
    on_step: OnStep<'_>,
    watch: Option<&mut dyn Watch>,
) -> Result<Run, SimError> {
    run_measured(spec, arm, rows, on_step, watch).map(|(run, _)| run)
}

/// As [`run_watched`], and how busy every link was.
pub fn run_measured(
    spec: &SimSpec,
    arm: Option<Arm>,
    rows: &dyn Rows,
    on_step: OnStep<'_>,
    watch: Option<&mut dyn Watch>,
) -> Result<(Run, Vec<LinkUse>), SimError> {
    let mut simulation = Simulation::new(spec, rows, arm.is_some())?;
    simulation.play(on_step, watch)?;
    Ok(recorded(simulation, arm))
}

/// As [`run`], with somebody who is told what observers measure and changes parameters.
pub fn run_steered(
    spec: &SimSpec,
    arm: Arm,
    rows: &dyn Rows,
    on_step: OnStep<'_>,
    steer: &mut dyn Steer,
) -> Result<Run, SimError> {
    let mut simulation = Simulation::new(spec, rows, true)?;
    simulation.steered_by(steer);
    simulation.play(on_step, None)?;
    Ok(recorded(simulation, Some(arm)).0)
}

fn recorded(simulation: Simulation<'_>, arm: Option<Arm>) -> (Run, Vec<LinkUse>) {
    let counters = simulation.counters();
    let links = simulation.link_uses();
    let trainers = simulation.into_trainers().into_iter().map(|trainer| TrainerRun {
        rank: trainer.rank,
        compute_node: trainer.place,
        started_ns: 0,
        steps: trainer.steps,
        bytes_wrong: 0,
        trace_digest: String::new(),
    });
    let run = Run { arm, trainers: trainers.collect(), counters, ..Run::default() };
    (run, links)
}

#[cfg(test)]
mod tests;
