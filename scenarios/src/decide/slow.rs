//! The slow loop in virtual time: the product's own parts, driven by a simulation.

use super::campaign::is_served;
use crate::sim::{SimSpec, Steer, Steering};
use rudder_advisor::blocking::{Asker, AskerError};
use rudder_advisor::{Consulted, Source};
use rudder_policy::advice::coalesce::node_of;
use rudder_policy::advice::coverage::{Coverage, LoopCoverage};
use rudder_policy::advice::directive::{Action, Directive};
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::observe::{Observed, Stored};
use rudder_policy::advice::sample::ComputeSample;
use rudder_policy::advice::slow_loop::{Order, SlowConfig, SlowCounts, SlowLoop};
use rudder_policy::advice::state::ClusterState;
use rudder_policy::advice::trial::{Outcome, TrialVerdict};
use rudder_policy::advice::trigger::Edge;
use rudder_topology::{Advisor, Nanos, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Time between two reports: the product's.
const PERIOD: Nanos = rudder_messages::REPORT_PERIOD;
/// What an answer takes that is there at once: it travels from the advisor to the directors.
const LATENCY: Nanos = Nanos::from_millis(500);
/// Where the options of repeated consults stand in another order.
const ANOTHER_ORDER: u64 = 0x5EED;

/// Edges and consults about one compute node, or about the cluster as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    pub edges: u64,
    pub consults: u64,
}

/// What was counted of the consults themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consults {
    /// The back end was asked, it answered in time, and what it said could be taken whole.
    pub asked: u64,
    pub answered: u64,
    pub valid: u64,
    /// Consults that were repeated with their options in another order, and those with the same answer.
    pub repeated: u64,
    pub agreed: u64,
    /// Nanoseconds that answers took, summed.
    pub latency_ns: u64,
    /// Actions that were proposed and left out, since they were expected to hurt.
    pub dropped: u64,
}

/// A cluster's slow loop.
pub struct Slow {
    labels: Labels,
    observed: Observed,
    slow: SlowLoop,
    asker: Asker,
    /// The same back end, asked with the options in another order.
    again: Asker,
    is_served: bool,
    state: ClusterState,
    answer: Option<(Directive, f32)>,
    pub consults: Consults,
    coverage: LoopCoverage,
    /// By the compute node that edges are about.
    pub groups: BTreeMap<Option<NodeId>, GroupCounts>,
    /// The state at the first consult, and what was then decided.
    pub first: Option<(ClusterState, Vec<Action>)>,
    pub outcomes: Vec<(Directive, Outcome)>,
}

/// The labels of a simulated cluster.
#[must_use]
pub fn labels(spec: &SimSpec) -> Labels {
    let compute: Vec<NodeId> = spec.compute_nodes().map(|(node, _)| node).collect();
    let replicas = spec.compute_nodes().flat_map(|(_, side)| side.replicas.iter().flatten());
    let storage: BTreeSet<NodeId> = replicas.map(|&(node, _)| node).collect();
    Labels::new(compute, storage.into_iter().collect())
}

/// What observers of a simulated cluster know beforehand.
#[must_use]
pub fn observed(spec: &SimSpec) -> Observed {
    let mut rates = BTreeMap::new();
    let mut parts: BTreeMap<NodeId, (u32, u32)> = BTreeMap::new();
    for (compute, side) in spec.compute_nodes() {
        for replicas in &side.replicas {
            for &(storage, cost) in replicas {
                rates.insert((storage, compute), cost.bandwidth);
                let (all, more) = parts.entry(storage).or_default();
                *all += 1;
                *more += u32::from(replicas.len() > 1);
            }
        }
    }
    let replicated = |(all, more): (u32, u32)| more as f32 / all.max(1) as f32;
    let stages = spec.staging.0 > 0;
    let stored = |counted| Stored { replicated: replicated(counted), stages };
    Observed::of(rates, parts.into_iter().map(|(node, counted)| (node, stored(counted))).collect())
}

impl Slow {
    pub fn new(spec: &SimSpec, advisor: &Advisor, config: SlowConfig) -> Result<Slow, AskerError> {
        let labels = labels(spec);
        // Whoever is asked a second time has nothing to remember.
        let forgetful = Advisor { similarity_percent: 101, ..advisor.clone() };
        let asker = Asker::open(advisor, labels.clone(), spec.seed)?;
        Ok(Slow {
            observed: observed(spec),
            slow: SlowLoop::new(config, labels.clone()).with_evaluator(asker.evaluator().clone()),
            asker,
            again: Asker::open(&forgetful, labels.clone(), spec.seed ^ ANOTHER_ORDER)?,
            is_served: is_served(advisor.backend),
            labels,
            state: ClusterState::default(),
            answer: None,
            consults: Consults::default(),
            coverage: LoopCoverage::default(),
            groups: BTreeMap::new(),
            first: None,
            outcomes: Vec::new(),
        })
    }

    #[must_use]
    pub fn counts(&self) -> SlowCounts {
        self.slow.counts()
    }

    /// Of the decisions that were due, and of the minibatches, how many had a loop that lives.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        self.coverage.counts()
    }

    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Asks, and says after how long the answer is there.
    fn consult(&mut self, edges: &[Edge]) -> u64 {
        for edge in edges {
            self.groups.entry(node_of(edge.signal)).or_default().edges += 1;
        }
        let about: BTreeSet<Option<NodeId>> = edges.iter().map(|edge| node_of(edge.signal)).collect();
        for group in about {
            self.groups.entry(group).or_default().consults += 1;
        }
        let (past, about) = (self.slow.past(), self.slow.about(edges, &self.state));
        let consulted = self.asker.consult(&self.state, &past, &about);
        self.note(&consulted);
        if consulted.source != Source::Cache {
            let again = self.again.consult(&self.state, &past, &about);
            self.consults.repeated += 1;
            self.consults.agreed += u64::from(actions(&again) == actions(&consulted));
        }
        let took: u128 = consulted.attempts.iter().map(|attempt| attempt.took.as_nanos()).sum();
        // What a control takes to answer depends on the machine that simulates, and is next to nothing.
        let served_ns = if self.is_served { u64::try_from(took).unwrap_or(u64::MAX) } else { 0 };
        let latency_ns = LATENCY.0.saturating_add(served_ns);
        self.consults.latency_ns += latency_ns;
        self.first.get_or_insert_with(|| (self.state.clone(), consulted.directive.actions.clone()));
        self.answer = Some((consulted.directive, consulted.predicted));
        latency_ns
    }

    fn note(&mut self, consulted: &Consulted) {
        self.consults.dropped += consulted.dropped.len() as u64;
        if consulted.source == Source::Cache {
            return;
        }
        self.consults.asked += 1;
        let answered = consulted.source == Source::Backend;
        self.consults.answered += u64::from(answered);
        self.consults.valid += u64::from(answered && consulted.refusals.is_empty());
    }

    fn judged(&mut self) {
        for (directive, outcome) in self.slow.take_outcomes() {
            if outcome.verdict == TrialVerdict::Reverted {
                self.asker.hurt(&directive);
            }
            self.outcomes.push((directive, outcome));
        }
    }
}

/// What an answer comes down to, whatever its order.
fn actions(consulted: &Consulted) -> BTreeSet<Action> {
    consulted.directive.actions.iter().copied().collect()
}

impl Steer for Slow {
    fn period_ns(&self) -> u64 {
        PERIOD.0
    }

    fn observe(&mut self, now_ns: u64, samples: Vec<(NodeId, ComputeSample)>) -> Vec<Steering> {
        let released = samples.iter().map(|(_, sample)| sample.minibatches_released).sum();
        for (node, sample) in samples {
            self.observed.take(node, now_ns, sample);
        }
        self.coverage.due();
        self.coverage.begin();
        self.state = self.observed.state(now_ns);
        let orders = self.slow.observe(&self.state);
        let steering = orders.into_iter().map(|order| match order {
            Order::Consult(edges) => Steering::AnswerAfter(self.consult(&edges)),
            Order::Revert(_) => Steering::Revert,
            Order::Enact(directive) => Steering::Enact(directive),
        });
        let steering = steering.collect();
        self.judged();
        self.coverage.decided(released);
        steering
    }

    fn answer(&mut self, now_ns: u64) -> Vec<Steering> {
        let Some((directive, predicted)) = self.answer.take() else { return vec![] };
        let given = self.slow.answered(&directive, predicted, &self.state, now_ns);
        given.map(Steering::Enact).into_iter().collect()
    }
}
