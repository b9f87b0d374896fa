//! The slow loop's decisions: when to consult, what is on trial, when to take it back. One for a cluster (the advisor
//! actor), or for one node that hears no advisor, or for a simulation: whoever drives it carries out its orders.

use super::coalesce::{Coalescer, focus};
use super::directive::{Action, Directive};
use super::evaluate::Evaluator;
use super::labels::Labels;
use super::lever::Vocabulary;
use super::options::{About, options};
use super::report::Past;
use super::state::ClusterState;
use super::trial::{Move, Outcome, Trial, TrialConfig, TrialVerdict};
use super::trigger::{Edge, Trigger, TriggerConfig};
use rudder_graph::random::Key;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Stall shares whose mean is what a trial compares with.
const BEFORE_VALUES: usize = 5;
/// What did not help is not tried again for this long.
const USELESS_FOR_NS: u64 = 600_000_000_000;
/// Actions that did not help, remembered.
const USELESS_MAX: usize = 64;
/// Past decisions remembered.
const PAST_MAX: usize = 8;

/// Settings of a slow loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowConfig {
    pub trigger: TriggerConfig,
    pub trial: TrialConfig,
    /// Edges within this are one consult.
    pub window_ns: u64,
    /// Edges wait so long for a state in which anything is expected to help; where there is none nobody is asked.
    pub patience_ns: u64,
    /// A consult that has not answered after this is given up: whoever made it is dead.
    pub lost_after_ns: u64,
}

impl Default for SlowConfig {
    fn default() -> Self {
        SlowConfig {
            trigger: TriggerConfig::default(),
            trial: TrialConfig::default(),
            window_ns: 3_000_000_000,
            patience_ns: 20_000_000_000,
            lost_after_ns: 120_000_000_000,
        }
    }
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Ask, and call [`SlowLoop::answered`].
    Consult(Vec<Edge>),
    /// The former parameters come back.
    Revert(Directive),
    /// What was taken back comes into force again.
    Enact(Directive),
}

/// What a slow loop counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCounts {
    pub states: u64,
    pub edges: u64,
    pub consults: u64,
    /// Edges, taken together, about which nobody was asked, since nothing was expected to help.
    pub unasked: u64,
    /// Consults that never answered.
    pub lost: u64,
    /// Directives that were put on trial.
    pub directives: u64,
    pub kept: u64,
    pub reverted: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct SlowLoop {
    config: SlowConfig,
    labels: Labels,
    evaluator: Evaluator,
    trigger: Trigger,
    coalescer: Coalescer,
    trial: Option<Trial>,
    recent: VecDeque<f32>,
    past: VecDeque<Past>,
    outcomes: VecDeque<(Directive, Outcome)>,
    /// Actions that did not help, and until when nothing like them is tried again.
    useless: VecDeque<(Action, u64)>,
    /// Edges to consult about, and until when.
    due: Option<(Vec<Edge>, u64)>,
    asked_ns: Option<u64>,
    counts: SlowCounts,
}

impl SlowLoop {
    #[must_use]
    pub fn new(config: SlowConfig, labels: Labels) -> Self {
        SlowLoop {
            config,
            labels,
            evaluator: Evaluator::default(),
            trigger: Trigger::new(config.trigger),
            coalescer: Coalescer::new(config.window_ns),
            trial: None,
            recent: VecDeque::new(),
            past: VecDeque::new(),
            outcomes: VecDeque::new(),
            useless: VecDeque::new(),
            due: None,
            asked_ns: None,
            counts: SlowCounts::default(),
        }
    }

    /// With an evaluator that was learned from experience: it says what is worth asking about.
    #[must_use]
    pub fn with_evaluator(mut self, evaluator: Evaluator) -> Self {
        self.evaluator = evaluator;
        self
    }

    #[must_use]
    pub fn counts(&self) -> SlowCounts {
        self.counts
    }

    /// The last decisions and what came of them, oldest first.
    #[must_use]
    pub fn past(&self) -> Vec<Past> {
        self.past.iter().cloned().collect()
    }

    /// Directives that have been judged since the last call, with what was predicted and measured.
    pub fn take_outcomes(&mut self) -> Vec<(Directive, Outcome)> {
        self.outcomes.drain(..).collect()
    }

    /// Takes in a state.
    pub fn observe(&mut self, state: &ClusterState) -> Vec<Order> {
        self.counts.states += 1;
        let stall = mean_stall(state);
        let mut orders = self.judge(stall, state);
        self.recent.push_back(stall);
        if self.recent.len() > BEFORE_VALUES {
            self.recent.pop_front();
        }
        let edges = self.trigger.observe(state);
        if !edges.is_empty() && self.trial.is_none() && self.asked_ns.is_none() {
            // What was before the change is not what a directive is compared with.
            self.recent.clear();
            self.recent.push_back(stall);
        }
        self.counts.edges += edges.len() as u64;
        self.coalescer.add(edges, state);
        if self.asked_ns.is_some_and(|at| state.at_ns >= at.saturating_add(self.config.lost_after_ns)) {
            self.counts.lost += 1;
            self.ended();
        }
        // One thing at a time: while a directive is being judged, edges wait.
        if self.trial.is_none()
            && let Some(edges) = self.coalescer.take(state.at_ns)
        {
            self.due = Some((edges, state.at_ns.saturating_add(self.config.patience_ns)));
        }
        if let Some((edges, until_ns)) = self.due.take() {
            if self.is_promising(&edges, state) {
                self.counts.consults += 1;
                self.asked_ns = Some(state.at_ns);
                orders.push(Order::Consult(edges));
            } else if state.at_ns >= until_ns {
                self.counts.unasked += 1;
                self.coalescer.ended();
            } else {
                self.due = Some((edges, until_ns));
            }
        }
        orders
    }

    /// Whether there is anything to choose from.
    fn is_promising(&self, edges: &[Edge], state: &ClusterState) -> bool {
        let about = self.about(edges, state);
        let vocabulary = Vocabulary::about(state, &self.labels, &about.focus);
        !options(state, &vocabulary, &about, &self.evaluator, Key::new(0)).shown.is_empty()
    }

    /// What a consult about these edges is about.
    #[must_use]
    pub fn about(&self, edges: &[Edge], state: &ClusterState) -> About {
        About { focus: focus(edges, state), useless: self.useless(state.at_ns).copied().collect() }
    }

    /// What did not help not long ago.
    fn useless(&self, now_ns: u64) -> impl Iterator<Item = &Action> {
        let known = self.useless.iter().filter(move |&&(_, until_ns)| now_ns < until_ns);
        known.map(|(action, _)| action)
    }

    /// The consult's answer, and what of it has to be put in force: it is on trial from now on. An answer that comes after
    /// its consult was given up changes nothing; nor does what did not help not long ago.
    pub fn answered(
        &mut self,
        directive: &Directive,
        predicted: f32,
        state: &ClusterState,
        now_ns: u64,
    ) -> Option<Directive> {
        self.asked_ns?;
        self.ended();
        let mut directive = directive.clone();
        directive.actions.retain(|action| !self.useless(now_ns).any(|known| known.is_like(action)));
        if directive.actions.is_empty() {
            return None;
        }
        self.counts.directives += 1;
        let before = self.recent.iter().sum::<f32>() / self.recent.len().max(1) as f32;
        for action in &directive.actions {
            if self.past.len() == PAST_MAX {
                self.past.pop_front();
            }
            let action = action.describe(&self.labels);
            let minibatch = state.minibatch;
            self.past.push_back(Past { action, minibatch, predicted, measured: None, reverted: false });
        }
        self.trial = Some(Trial::begin(self.config.trial, directive.clone(), predicted, before, now_ns));
        Some(directive)
    }

    fn ended(&mut self) {
        self.asked_ns = None;
        self.coalescer.ended();
    }

    /// Goes on with the trial, if there is one.
    fn judge(&mut self, stall: f32, state: &ClusterState) -> Vec<Order> {
        let others = self.coalescer.due_ns().is_some();
        let Some(trial) = &mut self.trial else { return vec![] };
        let moved = trial.observe(stall, others, state.at_ns);
        let (outcome, directive, over) = (trial.outcome(), trial.directive.clone(), trial.is_over());
        for past in self.past.iter_mut().rev().take(directive.actions.len()) {
            past.measured = outcome.measured;
            past.reverted = outcome.verdict == TrialVerdict::Reverted;
        }
        let orders = moved.map(|moved| match moved {
            Move::Revert => Order::Revert(directive.clone()),
            Move::Enact => Order::Enact(directive.clone()),
        });
        if over {
            self.trial = None;
            if outcome.verdict == TrialVerdict::Reverted {
                self.counts.reverted += 1;
                let until_ns = state.at_ns.saturating_add(USELESS_FOR_NS);
                self.useless.extend(directive.actions.iter().map(|&action| (action, until_ns)));
                while self.useless.len() > USELESS_MAX {
                    self.useless.pop_front();
                }
            }
            self.counts.kept += u64::from(outcome.verdict == TrialVerdict::Kept);
            if self.outcomes.len() == PAST_MAX {
                self.outcomes.pop_front();
            }
            self.outcomes.push_back((directive, outcome));
        }
        orders.into_iter().collect()
    }
}

/// The stall of the whole cluster, per compute node.
fn mean_stall(state: &ClusterState) -> f32 {
    let sum: f32 = state.compute.iter().map(|compute| compute.stall_share).sum();
    sum / state.compute.len().max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::directive::{Action, Change};
    use crate::advice::parse::tests::{labels, state};
    use crate::advice::state::StorageState;
    use crate::parameters::Posture;
    use crate::testing::storage_state;
    use rudder_topology::NodeId;

    const SECOND: u64 = 1_000_000_000;

    fn slow_loop() -> SlowLoop {
        SlowLoop::new(SlowConfig::default(), labels())
    }

    fn at(n: u64, wait_share: f32) -> ClusterState {
        let mut state = state();
        state.at_ns = n * 2 * SECOND;
        state.minibatch = n;
        // A link that is slow, to what that storage node alone has.
        state.storage =
            [2, 3].map(|node| StorageState { replicated: 0.0, ..storage_state(NodeId(node)) }).into();
        state.links[0].slowed = 0.55;
        for compute in &mut state.compute {
            (compute.wait_share, compute.hit_rate) = (wait_share, 0.9);
            compute.stall_share = wait_share;
        }
        state
    }

    fn directive() -> Directive {
        let change = Change::Posture(Posture::DemandFirst);
        Directive { actions: vec![Action { compute: NodeId(0), change, ttl_s: 120 }] }
    }

    /// Plays a cluster that waits so much at a time, without the directive and with it, one state every 2 s; answers each
    /// consult at once. Gives what was ordered when.
    fn play(slow: &mut SlowLoop, states: u64, wait: impl Fn(u64, bool) -> f32) -> Vec<(u64, Order)> {
        let (mut all, mut until) = (vec![], 0);
        for n in 0..states {
            let state = at(n, wait(n, n < until));
            for order in slow.observe(&state) {
                match &order {
                    Order::Consult(_) => {
                        let given = slow.answered(&directive(), -0.1, &state, state.at_ns);
                        until = if given.is_some() { n + 60 } else { 0 };
                    }
                    Order::Revert(_) => until = n,
                    Order::Enact(directive) => until = n + directive.ttl_ns() / (2 * SECOND),
                }
                all.push((n, order));
            }
        }
        all
    }

    fn name(order: &Order) -> &'static str {
        match order {
            Order::Consult(_) => "consult",
            Order::Revert(_) => "revert",
            Order::Enact(_) => "enact",
        }
    }

    #[test]
    fn what_did_not_help_is_not_tried_again_soon() {
        let mut slow = slow_loop();
        // Waits come and go, and the directive hurts each time.
        let wait = |n: u64, on| {
            if n % 100 < 40 {
                0.05
            } else if on {
                0.9
            } else {
                0.4
            }
        };
        let orders = play(&mut slow, 280, wait);
        let reverts = orders.iter().filter(|(_, order)| matches!(order, Order::Revert(_))).count();
        assert_eq!((reverts, slow.counts().directives), (1, 1), "{orders:?}");
        assert!(slow.counts().consults > 1, "others may be tried: {orders:?}");
    }

    #[test]
    fn a_steady_cluster_is_never_asked_about() {
        let mut slow = slow_loop();
        assert_eq!(play(&mut slow, 500, |_, _| 0.05), []);
        assert_eq!((slow.counts().states, slow.counts().consults), (500, 0));
    }

    #[test]
    fn an_edge_is_one_consult_whose_directive_is_kept_where_it_helps() {
        let mut slow = slow_loop();
        let orders = play(&mut slow, 160, |n, on| match (n, on) {
            (40..90, false) => 0.5,
            (40..90, true) => 0.2,
            _ => 0.05,
        });
        let names: Vec<_> = orders.iter().map(|(_, order)| name(order)).collect();
        assert_eq!(names, ["consult", "revert", "enact"], "{orders:?}");
        assert!((40..46).contains(&orders[0].0), "{orders:?}");
        let outcomes = slow.take_outcomes();
        assert!(matches!(&outcomes[..], [(d, o)] if d.actions.len() == 1 && o.verdict == TrialVerdict::Kept));
        assert_eq!((slow.counts().kept, slow.counts().reverted), (1, 0));
    }

    /// Trainers wait for nothing, and each step takes longer: that, too, is what a directive is judged by.
    #[test]
    fn steps_that_are_stretched_count_as_waiting_does() {
        let mut slow = slow_loop();
        let (mut orders, mut on) = (vec![], false);
        for n in 0..70 {
            let mut state = at(n, 0.1);
            for compute in &mut state.compute {
                compute.stretched = if n >= 40 && !on { 0.4 } else { 0.0 };
                compute.stall_share = 0.1 + 0.9 * compute.stretched;
            }
            for order in slow.observe(&state) {
                on = match &order {
                    Order::Consult(_) => slow.answered(&directive(), -0.1, &state, state.at_ns).is_some(),
                    Order::Revert(_) => false,
                    Order::Enact(_) => true,
                };
                orders.push(name(&order));
            }
        }
        assert_eq!(orders, ["consult", "revert", "enact"]);
        let outcomes = slow.past();
        assert!(outcomes[0].measured.is_some_and(|measured| measured < -0.3), "{outcomes:?}");
    }

    #[test]
    fn what_goes_on_helping_comes_into_force_again() {
        let mut slow = slow_loop();
        let orders = play(&mut slow, 160, |n, on| match (n, on) {
            (0..40, _) => 0.05,
            (_, true) => 0.2,
            (_, false) => 0.5,
        });
        let names: Vec<_> = orders.iter().map(|(_, order)| name(order)).collect();
        // What was looked at without it, when it was new and when its time was over.
        assert_eq!(names, ["consult", "revert", "enact", "enact"], "{orders:?}");
    }

    #[test]
    fn what_hurts_is_taken_back_once_and_told() {
        let mut slow = slow_loop();
        let orders = play(&mut slow, 90, |n, on| match (n, on) {
            (0..40, _) => 0.05,
            (_, true) => 0.9,
            (_, false) => 0.4,
        });
        assert!(matches!(orders[..], [(_, Order::Consult(_)), (_, Order::Revert(_))]), "{orders:?}");
        assert_eq!(slow.counts().reverted, 1);
        assert!(slow.past().iter().any(|past| past.reverted && past.measured.is_some_and(|m| m > 0.1)));
    }

    #[test]
    fn where_nothing_would_help_nobody_is_asked() {
        let mut slow = slow_loop();
        for n in 0..200 {
            let mut state = at(n, if n < 40 { 0.05 } else { 0.5 });
            state.links.iter_mut().for_each(|link| link.slowed = 0.0);
            assert_eq!(slow.observe(&state), []);
        }
        assert!(slow.counts().edges > 0 && slow.counts().unasked > 0, "{:?}", slow.counts());
    }

    #[test]
    fn a_consult_that_never_answers_is_given_up() {
        let mut slow = slow_loop();
        let mut consults = 0;
        for (n, wait) in (0..).zip([vec![0.05; 40], vec![0.3; 60], vec![0.05; 60], vec![0.4; 60]].concat()) {
            consults += slow.observe(&at(n, wait)).len();
        }
        assert_eq!((consults, slow.counts().lost), (2, 1));
        assert_eq!(slow_loop().answered(&directive(), 0.0, &at(0, 0.0), 0), None, "nobody asked");
    }
}
