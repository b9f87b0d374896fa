//! Directives that were tried alone, as experience: the evaluator and the distilled advisor learn from it as from what
//! nodes write down.

use super::exhaustive::Tried;
use rudder_advisor::Source;
use rudder_advisor::experience::Experience;
use rudder_graph::random::Key;
use rudder_policy::advice::options::{Choice, Options};
use rudder_policy::advice::state::ClusterState;
use rudder_policy::advice::trial::{Outcome, TrialVerdict};

/// What they call themselves.
const BACKEND: &str = "tried";

/// One entry for each directive that changes something; whatever is tried alone counts as an option, so that what the
/// evaluator does not expect to help is learned from as well. Stalls are in seconds, `scale_s` is what changes are shares of.
pub(super) fn of(
    state: &ClusterState,
    tried: &[Tried],
    (never_s, scale_s, bound_s): (f64, f64, f64),
    seed: u64,
) -> Vec<Experience> {
    let options = options(tried).shuffled(Key::new(seed));
    let stall_share = |stall_s: f64| stall_s / (stall_s + bound_s).max(1e-9);
    let entry = |tried: &Tried| {
        let change = stall_share(never_s + tried.measured * scale_s) - stall_share(never_s);
        let verdict = if change > 0.0 { TrialVerdict::Reverted } else { TrialVerdict::Kept };
        Experience {
            backend: BACKEND.to_owned(),
            source: Source::Backend,
            state: state.clone(),
            options: options.clone(),
            directive: tried.directive.clone(),
            refusals: vec![],
            dropped: vec![],
            outcome: Outcome { predicted: tried.predicted, measured: Some(change as f32), verdict },
            cost: None,
        }
    };
    tried.iter().filter(|tried| tried.changes).map(entry).collect()
}

/// Every action that was tried alone, best first by what was expected of it.
fn options(tried: &[Tried]) -> Options {
    let single = |tried: &Tried| match tried.directive.actions[..] {
        [action] if tried.changes => Some(Choice { action, predicted: tried.predicted }),
        _ => None,
    };
    let mut shown: Vec<Choice> = tried.iter().filter_map(single).collect();
    shown.sort_by(|a, b| a.predicted.total_cmp(&b.predicted).then(a.action.cmp(&b.action)));
    let ranks = (0..shown.len()).collect();
    Options { shown, ranks }
}
