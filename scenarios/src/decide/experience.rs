//! Directives that were tried alone, as experience: the evaluator and the distilled advisor learn from it as from what
//! nodes write down.

use super::exhaustive::Tried;
use rudder_advisor::Source;
use rudder_advisor::experience::Experience;
use rudder_graph::random::Key;
use rudder_policy::advice::directive::{Action, Directive};
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::lever::Vocabulary;
use rudder_policy::advice::options::options;
use rudder_policy::advice::state::ClusterState;
use rudder_policy::advice::trial::{Outcome, TrialVerdict};

/// What they call themselves.
const BACKEND: &str = "tried";

/// One entry for each directive that could have been chosen in the state: all of its actions are among the options.
/// Stalls are in seconds, `scale_s` is what changes are shares of.
pub(super) fn of(
    state: &ClusterState,
    labels: &Labels,
    tried: &[Tried],
    (never_s, scale_s, bound_s): (f64, f64, f64),
    seed: u64,
) -> Vec<Experience> {
    let options = options(state, &Vocabulary::of(state, labels), Key::new(seed));
    let shown = |action: &Action| options.shown.iter().any(|choice| same(&choice.action, action));
    let wait_share = |stall_s: f64| stall_s / (stall_s + bound_s).max(1e-9);
    let entry = |tried: &Tried| {
        let change = wait_share(never_s + tried.measured * scale_s) - wait_share(never_s);
        let verdict = if change > 0.0 { TrialVerdict::Reverted } else { TrialVerdict::Kept };
        Experience {
            backend: BACKEND.to_owned(),
            source: Source::Backend,
            state: state.clone(),
            options: options.clone(),
            directive: Directive { actions: vec![tried.action] },
            refusals: vec![],
            dropped: vec![],
            outcome: Outcome { predicted: tried.predicted, measured: Some(change as f32), verdict },
            cost: None,
        }
    };
    tried.iter().filter(|tried| shown(&tried.action)).map(entry).collect()
}

/// The time to live does not count.
fn same(a: &Action, b: &Action) -> bool {
    (a.compute, a.change) == (b.compute, b.change)
}
