//! What came of one scenario, and of many.

use super::draw::Kind;
use rudder_advisor::experience::Experience;
use rudder_policy::advice::state::ClusterState;
use serde::Serialize;

/// A directive can help where the best single one cuts the stall by at least this share, and by that more than chance
/// does ([`Trials::chance`]).
pub const HELPS: f64 = 0.05;
/// Changes are shares of the stall under `never`, which counts as at least this share of what steps take without any
/// stall: less is no bottleneck, and no trigger fires on it.
pub const STALLED: f64 = 0.05;
/// An advisor did harm where the stall grew by more than this share.
pub const HARM: f64 = 0.02;
/// A directive changed something where the stall changed by at least this share.
const CHANGED: f64 = 0.005;

/// One advisor in one scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    pub advisor: String,
    pub stall_s: f64,
    /// Of the stall, as a share of what it is under `never`; negative is better.
    pub change: f64,
    pub minibatches: u64,
    pub edges: u64,
    pub consults: u64,
    pub directives: u64,
    pub reverted: u64,
    pub asked: u64,
    pub answered: u64,
    pub valid: u64,
    pub repeated: u64,
    pub agreed: u64,
    pub latency_ms: f64,
    /// Feature bytes that storage nodes sent, and their change as a share of those under `never`.
    pub bytes: u64,
    pub traffic: f64,
    /// Of the node groups (a compute node, or the cluster as a whole) the most consults per edge, and in all.
    pub per_group_most: f64,
    pub group_consults_most: u64,
    /// Minibatches that the loop knows of, and those of them while no decision was missing.
    pub minibatches_seen: u64,
    pub minibatches_covered: u64,
    /// Whether the first consult led to any action.
    pub acted: bool,
    /// Of each judged directive the expected and the measured change of the stall share.
    pub outcomes: Vec<(f32, Option<f32>)>,
}

/// A directive that was tried alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TriedAction {
    pub action: String,
    /// `false`: a control that changes nothing.
    pub changes: bool,
    /// Expected change of the stall share.
    pub predicted: f32,
    /// Measured change of the stall, as a share of what it is under `never`.
    pub measured: f64,
}

/// One scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trials {
    pub seed: u64,
    /// Of a drawn scenario.
    pub kind: Option<Kind>,
    pub run_s: f64,
    /// What all trainers' steps take where no data is waited for.
    pub bound_s: f64,
    pub never_s: f64,
    /// When every single directive was tried: at the first consult, else five reports after the change.
    pub tried_at_s: f64,
    pub tried: Vec<TriedAction>,
    /// The state in which they were.
    pub state: Option<ClusterState>,
    /// What was tried, as experience to learn from.
    #[serde(skip)]
    pub experience: Vec<Experience>,
    pub decisions: Vec<Decision>,
}

impl Trials {
    /// The best single directive.
    #[must_use]
    pub fn best(&self) -> Option<&TriedAction> {
        self.tried.iter().filter(|tried| tried.changes).min_by(|a, b| a.measured.total_cmp(&b.measured))
    }

    /// How much a directive that changes nothing changed: planning at another moment is enough to fetch in another
    /// order.
    #[must_use]
    pub fn chance(&self) -> f64 {
        let controls = self.tried.iter().filter(|tried| !tried.changes);
        controls.map(|tried| tried.measured.abs()).fold(0.0, f64::max)
    }

    #[must_use]
    pub fn can_be_helped(&self) -> bool {
        let needed = HELPS + self.chance();
        self.never_s >= STALLED * self.bound_s && self.best().is_some_and(|best| best.measured <= -needed)
    }
}

/// An advisor over all scenarios.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    pub advisor: String,
    /// Over the scenarios where a directive can help: the median change of the stall.
    pub change_median: Option<f64>,
    /// There, the change of all stalls together, and in how many scenarios the stall was cut by [`HELPS`] at least.
    pub change_sum: Option<f64>,
    pub cut: u64,
    /// Of what the best single directive gains there, what was gained: the median.
    pub gained_median: Option<f64>,
    /// Over all scenarios.
    pub change_worst: Option<f64>,
    /// Share of all scenarios with more than [`HARM`].
    pub harmed: f64,
    /// Over the scenarios with a directive: the median change of the bytes moved.
    pub traffic_median: Option<f64>,
    pub consults_per_edge: Option<f64>,
    /// The most consults per edge about one node group, and in all, of any scenario.
    pub per_group_most: f64,
    pub group_consults_most: u64,
    /// Share of the minibatches while no decision of the loop was missing.
    pub covered: Option<f64>,
    pub consults_per_1000: f64,
    /// In scenarios where nothing changes.
    pub consults_steady: u64,
    pub directives: u64,
    /// Share of the directives.
    pub reverted: Option<f64>,
    /// Of the consults that were asked for, those answered in time; of these, those that were taken whole.
    pub answered: Option<f64>,
    pub valid: Option<f64>,
    /// Share of the repeated consults.
    pub agreed: Option<f64>,
    pub latency_ms: Option<f64>,
    /// Share of the scenarios in which the first consult led to an action exactly where a directive can help.
    pub right: f64,
    /// Of the judged directives, those whose stall share changed in the direction that was expected.
    pub signs: Option<f64>,
    /// The same of who always expects the more frequent direction.
    pub signs_constant: Option<f64>,
    /// Of the judged directives the median change of the stall share that was expected, and that was measured.
    pub expected_median: Option<f64>,
    pub measured_median: Option<f64>,
}

/// How well the evaluator tells what helps, over every directive that was tried and changed something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Evaluation {
    pub tried: u64,
    /// Changed the stall by half a per cent at least.
    pub changed: u64,
    pub right: f64,
    /// Who always says that it helps, and that it hurts.
    pub always: f64,
    pub never: f64,
}

/// The evaluator's over all scenarios.
#[must_use]
pub fn evaluation(all: &[Trials]) -> Evaluation {
    let tried = || all.iter().flat_map(|trials| &trials.tried).filter(|tried| tried.changes);
    let changed: Vec<&TriedAction> = tried().filter(|tried| tried.measured.abs() >= CHANGED).collect();
    let of = |right: usize| right as f64 / changed.len().max(1) as f64;
    let helped = changed.iter().filter(|tried| tried.measured < 0.0).count();
    let right = changed.iter().filter(|tried| (tried.measured < 0.0) == (tried.predicted < 0.0)).count();
    Evaluation {
        tried: tried().count() as u64,
        changed: changed.len() as u64,
        right: of(right),
        always: of(helped),
        never: of(changed.len() - helped),
    }
}

/// The rows, in the order of the scenarios' decisions.
#[must_use]
pub fn rows(all: &[Trials]) -> Vec<Row> {
    let count = all.first().map_or(0, |trials| trials.decisions.len());
    (0..count).map(|at| row(all, at)).collect()
}

fn row(all: &[Trials], at: usize) -> Row {
    let pairs: Vec<(&Trials, &Decision)> =
        all.iter().filter_map(|trials| Some((trials, trials.decisions.get(at)?))).collect();
    let sum = |of: fn(&Decision) -> u64| pairs.iter().map(|(_, decision)| of(decision)).sum::<u64>();
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let helpable = || pairs.iter().filter(|(trials, _)| trials.can_be_helped());
    let stall = |of: fn(&(&Trials, &Decision)) -> f64| helpable().map(of).sum::<f64>();
    let never_s = stall(|(trials, _)| trials.never_s);
    let of_all = |count: usize| count as f64 / pairs.len().max(1) as f64;
    let gained = |(trials, decision): &(&Trials, &Decision)| {
        trials.best().map(|best| decision.change / best.measured.min(-HELPS))
    };
    let signs =
        pairs.iter().flat_map(|(_, decision)| &decision.outcomes).filter_map(|&(predicted, measured)| {
            measured.filter(|measured| measured.abs() >= CHANGED as f32).map(|measured| (predicted, measured))
        });
    let (mut signed, mut right, mut helped) = (0, 0, 0);
    for (predicted, measured) in signs {
        signed += 1;
        right += u64::from((predicted < 0.0) == (measured < 0.0));
        helped += u64::from(measured < 0.0);
    }
    let judged = || pairs.iter().flat_map(|(_, decision)| &decision.outcomes);
    let judged = || judged().filter_map(|&(predicted, measured)| Some((predicted, measured?)));
    let directed = pairs.iter().filter(|(_, decision)| decision.directives > 0);
    let (consults, asked) = (sum(|d| d.consults), sum(|d| d.asked));
    let steady = pairs.iter().filter(|(trials, _)| trials.kind == Some(Kind::Steady));
    Row {
        advisor: pairs.first().map(|(_, decision)| decision.advisor.clone()).unwrap_or_default(),
        change_median: median(helpable().map(|(_, decision)| decision.change).collect()),
        change_sum: (never_s > 0.0).then(|| stall(|(_, decision)| decision.stall_s) / never_s - 1.0),
        cut: helpable().filter(|(_, decision)| decision.change <= -HELPS).count() as u64,
        gained_median: median(helpable().filter_map(gained).collect()),
        change_worst: pairs.iter().map(|(_, decision)| decision.change).max_by(f64::total_cmp),
        harmed: of_all(pairs.iter().filter(|(_, decision)| decision.change > HARM).count()),
        traffic_median: median(directed.map(|(_, decision)| decision.traffic).collect()),
        consults_per_edge: share(consults, sum(|d| d.edges)),
        per_group_most: pairs.iter().map(|(_, decision)| decision.per_group_most).fold(0.0, f64::max),
        group_consults_most: pairs.iter().map(|(_, d)| d.group_consults_most).max().unwrap_or(0),
        covered: share(sum(|d| d.minibatches_covered), sum(|d| d.minibatches_seen)),
        consults_per_1000: consults as f64 * 1000.0 / sum(|d| d.minibatches).max(1) as f64,
        consults_steady: steady.map(|(_, decision)| decision.consults).sum(),
        directives: sum(|d| d.directives),
        reverted: share(sum(|d| d.reverted), sum(|d| d.directives)),
        answered: share(sum(|d| d.answered), asked),
        valid: share(sum(|d| d.valid), sum(|d| d.answered)),
        agreed: share(sum(|d| d.agreed), sum(|d| d.repeated)),
        latency_ms: (consults > 0)
            .then(|| pairs.iter().map(|(_, d)| d.latency_ms).sum::<f64>() / consults as f64),
        right: of_all(pairs.iter().filter(|(trials, d)| d.acted == trials.can_be_helped()).count()),
        signs: share(right, signed),
        signs_constant: share(helped.max(signed - helped), signed),
        expected_median: median(judged().map(|(predicted, _)| f64::from(predicted)).collect()),
        measured_median: median(judged().map(|(_, measured)| f64::from(measured)).collect()),
    }
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}
