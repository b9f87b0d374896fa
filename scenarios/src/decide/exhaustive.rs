//! Every candidate action alone, and the same on every compute node, given at one moment and left in force to the end.

use super::campaign::{DecideError, Played};
use super::slow::{labels, observed};
use crate::arm::Arm;
use crate::record::Run;
use crate::sim::{SimError, SimSpec, Steer, Steering, run_steered};
use crate::stop::Stop;
use rudder_policy::advice::directive::{Action, Change, Directive};
use rudder_policy::advice::evaluate::predict;
use rudder_policy::advice::lever::{ACTIONS_MAX, Kind, TTL_S_MAX, Value, Vocabulary};
use rudder_policy::advice::observe::Observed;
use rudder_policy::advice::options::candidates;
use rudder_policy::advice::sample::ComputeSample;
use rudder_policy::advice::state::ClusterState;
use rudder_topology::NodeId;

/// A directive, what was expected of it, and what came.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tried {
    pub directive: Directive,
    /// `false`: a control that changes nothing.
    pub changes: bool,
    /// Of the stall share, its actions' together; negative is better.
    pub predicted: f32,
    /// Of the stall, as a share of what it was without; negative is better.
    pub measured: f64,
}

/// Gives one directive when the time has come, and remembers the state before.
struct Given<'a> {
    observed: Observed,
    period_ns: u64,
    at_ns: u64,
    directive: Option<&'a Directive>,
    state: Option<ClusterState>,
}

impl Steer for Given<'_> {
    fn period_ns(&self) -> u64 {
        self.period_ns
    }

    fn observe(&mut self, now_ns: u64, samples: Vec<(NodeId, ComputeSample)>) -> Vec<Steering> {
        if self.state.is_some() {
            return vec![];
        }
        for (node, sample) in samples {
            self.observed.take(node, now_ns, sample);
        }
        if now_ns < self.at_ns {
            return vec![];
        }
        self.state = Some(self.observed.state(now_ns));
        self.directive.map(|directive| Steering::Enact(directive.clone())).into_iter().collect()
    }

    fn answer(&mut self, _: u64) -> Vec<Steering> {
        vec![]
    }
}

fn given<'a>(spec: &SimSpec, at_ns: u64, directive: Option<&'a Directive>) -> Given<'a> {
    let period_ns = rudder_messages::REPORT_PERIOD.0;
    Given { observed: observed(spec), period_ns, at_ns, directive, state: None }
}

/// The state at a time, where nobody steers; `None` if the run was over by then.
pub(super) fn state_at(played: &Played<'_>, at_ns: u64) -> Result<Option<ClusterState>, SimError> {
    let mut given = given(played.spec, at_ns, None);
    run_steered(played.spec, Arm::Rudder, played.rows, &mut |_| {}, &mut given)?;
    Ok(given.state)
}

/// The directives that are tried in a state: the candidates of the options, thinned out.
pub(super) fn grid(spec: &SimSpec, state: &ClusterState) -> Vec<Directive> {
    let vocabulary = Vocabulary::of(state, &labels(spec));
    let mut actions = candidates(state, &vocabulary);
    let mut blocks: Vec<NodeId> = vec![];
    actions.retain(|action| match action.change {
        // Beside 1, 2 and 4 minibatches, and three shares, the ends say enough.
        Change::JobHorizon { minibatches, .. } => minibatches != 2,
        Change::LinkShare { percent, .. } => percent != 75,
        Change::WarmBlock(_) if blocks.contains(&action.compute) => false,
        Change::WarmBlock(_) => {
            blocks.push(action.compute);
            true
        }
        _ => true,
    });
    // One that changes nothing is no directive; two of them show what chance does to a run.
    actions.retain(|action| !changes_nothing(action));
    let links = vocabulary.entries(Kind::Link).iter().filter_map(|&(_, value)| match value {
        Value::Link { storage, compute } => {
            Some(Action { compute, change: Change::LinkShare { storage, percent: 100 }, ttl_s: TTL_S_MAX })
        }
        _ => None,
    });
    actions.extend(links.take(2));
    actions.sort();
    actions.dedup();
    let actions: Vec<Action> = actions.iter().map(|action| Action { ttl_s: TTL_S_MAX, ..*action }).collect();
    let single = actions.iter().map(|&action| Directive { actions: vec![action] });
    single.chain(everywhere(&actions)).collect()
}

/// What may be said of a compute node, said of all that it may be said of.
fn everywhere(actions: &[Action]) -> Vec<Directive> {
    let mut alike: Vec<Vec<Action>> = vec![];
    for &action in actions {
        let same = |known: &Action| known.change == action.change && known.compute != action.compute;
        match alike.iter_mut().find(|group| group.iter().all(same)) {
            Some(group) => group.push(action),
            None => alike.push(vec![action]),
        }
    }
    let all = alike.into_iter().filter(|group| (2..=ACTIONS_MAX).contains(&group.len()));
    all.filter(|group| !changes_nothing(&group[0])).map(|actions| Directive { actions }).collect()
}

fn changes_nothing(action: &Action) -> bool {
    matches!(action.change, Change::LinkShare { percent: 100, .. })
}

/// Tries each.
pub(super) fn tried(
    played: &Played<'_>,
    state: &ClusterState,
    stall_s: impl Fn(&Run) -> f64,
    (never_s, scale_s): (f64, f64),
    stop: &Stop,
) -> Result<Vec<Tried>, DecideError> {
    let one = |directive: Directive| {
        if stop.is_raised() {
            return Err(DecideError::Stopped);
        }
        let mut given = given(played.spec, state.at_ns, Some(&directive));
        let run = run_steered(played.spec, Arm::Rudder, played.rows, &mut |_| {}, &mut given)
            .map_err(|source| DecideError::Simulation { seed: played.seed, source })?;
        let measured = (stall_s(&run) - never_s) / scale_s.max(1e-9);
        let changes = !directive.actions.iter().all(changes_nothing);
        let predicted = directive.actions.iter().map(|action| predict(action, state)).sum();
        Ok(Tried { directive, changes, predicted, measured })
    };
    grid(played.spec, state).into_iter().map(one).collect()
}
