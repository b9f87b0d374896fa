//! Every advisor in every scenario.

use super::draw::{Kind, draw, draw_kind};
use super::exhaustive::{state_at, tried};
use super::experience;
use super::judged::{Decision, Evaluation, Row, STALLED, Trials, TriedAction, evaluation, rows};
use super::slow::Slow;
use crate::arm::Arm;
use crate::parallel::in_parallel;
use crate::record::Run;
use crate::sim::{Rows, SimError, SimSpec, run, run_steered};
use crate::stop::Stop;
use rudder_advisor::blocking::AskerError;
use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::slow_loop::SlowConfig;
use rudder_topology::{Advisor, AdvisorBackend, Nanos};
use serde::Serialize;
use std::ops::Range;

/// Reports after a change in which it shows.
const SEEN_AFTER: u64 = 5;

/// What to decide.
#[derive(Clone, Debug)]
pub struct DecideOptions {
    pub seeds: Range<u64>,
    /// In place of a drawn one.
    pub kind: Option<Kind>,
    /// Beside `never`, which is always there.
    pub advisors: Vec<Advisor>,
    /// Whether every single directive is tried.
    pub is_exhaustive: bool,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Decided {
    pub rows: Vec<Row>,
    pub evaluation: Evaluation,
    pub scenarios: Vec<Trials>,
}

impl Decided {
    /// Sums up.
    #[must_use]
    pub fn of(scenarios: Vec<Trials>) -> Decided {
        Decided { rows: rows(&scenarios), evaluation: evaluation(&scenarios), scenarios }
    }
}

/// A scenario that is played under every advisor.
#[derive(Clone, Copy)]
pub struct Played<'a> {
    pub seed: u64,
    pub kind: Option<Kind>,
    /// When it changes, for the first time.
    pub change: Nanos,
    pub spec: &'a SimSpec,
    pub rows: &'a dyn Rows,
}

#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    #[error("seed {seed}: {source}")]
    Simulation { seed: u64, source: SimError },
    #[error("{advisor}: {source}")]
    Asker { advisor: &'static str, source: AskerError },
    #[error("stopped on request")]
    Stopped,
}

/// Plays all seeds; calls back after each. When it is stopped, what was done until then is the answer.
pub fn decide(
    options: &DecideOptions,
    stop: &Stop,
    on_scenario: &(dyn Fn() + Sync),
) -> Result<Decided, DecideError> {
    let seeds: Vec<u64> = options.seeds.clone().collect();
    let one = |&seed: &u64| {
        if stop.is_raised() {
            return Err(DecideError::Stopped);
        }
        let drawn = options.kind.map_or_else(|| draw(seed), |kind| draw_kind(seed, kind));
        let (kind, change) = (Some(drawn.kind), drawn.change);
        let played = Played { seed, kind, change, spec: &drawn.spec, rows: &drawn.rows };
        let trials = trials(&played, &options.advisors, options.is_exhaustive, stop);
        on_scenario();
        trials
    };
    // A server that answers one question after the other would be timed while it answers another.
    let is_served = options.advisors.iter().any(|advisor| is_served(advisor.backend));
    let scenarios: Vec<_> =
        if is_served { seeds.iter().map(one).collect() } else { in_parallel(&seeds, one) };
    let stopped = |played: &Result<Trials, DecideError>| matches!(played, Err(DecideError::Stopped));
    // What was done is worth something.
    let scenarios: Vec<_> = scenarios.into_iter().filter(|played| !stopped(played)).collect();
    if scenarios.is_empty() {
        return Err(DecideError::Stopped);
    }
    Ok(Decided::of(scenarios.into_iter().collect::<Result<Vec<Trials>, _>>()?))
}

/// Whether a server is asked, so that answers take real time.
#[must_use]
pub fn is_served(backend: AdvisorBackend) -> bool {
    matches!(backend, AdvisorBackend::Auto | AdvisorBackend::Ollama | AdvisorBackend::OpenAi)
}

/// What all trainers' steps took, summed, in seconds.
fn steps_s(run: &Run) -> f64 {
    run.trainers.iter().flat_map(|trainer| &trainer.steps).map(|step| step.step_ns as f64 / 1e9).sum()
}

/// Plays one scenario under `never` and these advisors, and tries every single directive where that is asked for.
pub fn trials(
    played: &Played<'_>,
    advisors: &[Advisor],
    is_exhaustive: bool,
    stop: &Stop,
) -> Result<Trials, DecideError> {
    let seed = played.seed;
    let failed = |source| DecideError::Simulation { seed, source };
    let bound = steps_s(&run(played.spec, None, played.rows).map_err(failed)?);
    let stall = |run: &Run| steps_s(run) - bound;
    let never = Advisor { backend: AdvisorBackend::Never, ..Advisor::default() };
    let mut decisions: Vec<Decision> = Vec::new();
    let mut first = None;
    let mut run_s = 0.0;
    for advisor in std::iter::once(&never).chain(advisors) {
        if stop.is_raised() {
            return Err(DecideError::Stopped);
        }
        let fail = |source| DecideError::Asker { advisor: advisor.backend.name(), source };
        let mut slow = Slow::new(played.spec, advisor, SlowConfig::default()).map_err(fail)?;
        let run =
            run_steered(played.spec, Arm::Rudder, played.rows, &mut |_| {}, &mut slow).map_err(failed)?;
        if decisions.is_empty() {
            first = slow.first.as_ref().map(|(state, _)| state.clone());
            let ends = run.trainers.iter().filter_map(|trainer| trainer.steps.last());
            run_s = ends.map(|step| step.at_ns).max().unwrap_or(0) as f64 / 1e9;
        }
        let never_s = decisions.first().map_or_else(|| stall(&run), |never| never.stall_s);
        decisions.push(decision(advisor, &slow, &run, (stall(&run), never_s, bound)));
    }
    let never_s = decisions[0].stall_s;
    let never_bytes = decisions[0].bytes.max(1) as f64;
    for decision in &mut decisions {
        decision.traffic = decision.bytes as f64 / never_bytes - 1.0;
    }
    let mut trials = Trials {
        seed,
        kind: played.kind,
        run_s,
        bound_s: bound,
        never_s,
        tried_at_s: 0.0,
        tried: vec![],
        state: None,
        experience: vec![],
        decisions,
    };
    if is_exhaustive {
        let later_ns = played.change.0 + SEEN_AFTER * rudder_messages::REPORT_PERIOD.0;
        let state = match first {
            Some(state) => Some(state),
            None => state_at(played, later_ns).map_err(failed)?,
        };
        if let Some(state) = state {
            let labels = super::slow::labels(played.spec);
            trials.tried_at_s = state.at_ns as f64 / 1e9;
            let scale_s = never_s.max(STALLED * bound);
            let tried = tried(played, &state, stall, (never_s, scale_s), stop)?;
            trials.experience = experience::of(&state, &tried, (never_s, scale_s, bound), seed);
            trials.tried = tried
                .into_iter()
                .map(|tried| TriedAction {
                    action: describe(&tried.directive, &labels),
                    changes: tried.changes,
                    predicted: tried.predicted,
                    measured: tried.measured,
                })
                .collect();
            trials.state = Some(state);
        }
    }
    Ok(trials)
}

fn describe(directive: &Directive, labels: &Labels) -> String {
    let actions: Vec<String> = directive.actions.iter().map(|action| action.describe(labels)).collect();
    actions.join(", ")
}

fn decision(
    advisor: &Advisor,
    slow: &Slow,
    run: &Run,
    (stall_s, never_s, bound_s): (f64, f64, f64),
) -> Decision {
    let counts = slow.counts();
    let consults = &slow.consults;
    Decision {
        advisor: advisor.backend.name().to_owned(),
        stall_s,
        change: (stall_s - never_s) / never_s.max(STALLED * bound_s),
        minibatches: run.minibatches(),
        edges: counts.edges,
        consults: counts.consults,
        directives: counts.directives,
        reverted: counts.reverted,
        asked: consults.asked,
        answered: consults.answered,
        valid: consults.valid,
        repeated: consults.repeated,
        agreed: consults.agreed,
        latency_ms: consults.latency_ns as f64 / 1e6,
        bytes: run.counters.bytes_moved(),
        traffic: 0.0,
        per_group_most: slow
            .groups
            .values()
            .map(|group| group.consults as f64 / group.edges.max(1) as f64)
            .fold(0.0, f64::max),
        group_consults_most: slow.groups.values().map(|group| group.consults).max().unwrap_or(0),
        minibatches_seen: slow.coverage().minibatches,
        minibatches_covered: slow.coverage().minibatches_covered,
        acted: slow.first.as_ref().is_some_and(|(_, actions)| !actions.is_empty()),
        outcomes: slow.outcomes.iter().map(|(_, o)| (o.predicted, o.measured)).collect(),
    }
}
