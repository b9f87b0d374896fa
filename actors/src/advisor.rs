//! The advisor, on scheduler nodes: one for all compute nodes and all jobs. The actor looks at the reports and decides
//! when to ask and what to take back; asking itself, which may take as long as it likes, happens on a thread of its own
//! ([`thread`]), so that no LLM and no HTTP is ever near a mailbox or a mover.

mod thread;

use crate::clock::NodeClock;
use crate::collector::Collection;
use crate::mailbox::Mailbox;
use crate::supervisor::ChildSpec;
use crate::worker::{self, Work};
use ractor::ActorRef;
use rudder_messages::{
    ActorKind, ActorName, AdvisorMessage, Decisions, DirectorMessage, LoopKind, REPORT_PERIOD, names,
};
use rudder_policy::advice::cost::CostMeter;
use rudder_policy::advice::coverage::LoopCoverage;
use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::evaluate::Evaluator;
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::observe::Observed;
use rudder_policy::advice::slow_loop::{Order, SlowConfig, SlowLoop};
use rudder_policy::advice::state::ClusterState;
use rudder_topology::{Cluster, Cores, Nanos, NodeName};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thread::{AdvisorThread, Asked};

/// A node whose last report is older says nothing any more.
const STALE_AFTER: Nanos = Nanos::from_secs(10);

/// What an advisor works with, over all its lives.
pub struct Advice {
    name: NodeName,
    collection: Arc<Collection>,
    cluster: Arc<Cluster>,
    clock: NodeClock,
    labels: Labels,
    thread: AdvisorThread,
    mailbox: Mailbox<AdvisorMessage>,
    memory: Mutex<Memory>,
    coverage: Mutex<LoopCoverage>,
}

struct Memory {
    observed: Observed,
    slow: SlowLoop,
    state: ClusterState,
    cost: CostMeter,
}

impl Advice {
    /// Starts the thread that asks.
    pub fn start(
        name: NodeName,
        cluster: Arc<Cluster>,
        clock: NodeClock,
        collection: Arc<Collection>,
    ) -> std::io::Result<Advice> {
        let labels = Labels::of(&cluster);
        // A consult that has not answered by then never will: it has a deadline of its own.
        let lost_after_ns = cluster.advisor.deadline.0 * 2 + 10_000_000_000;
        let evaluator = evaluator(&cluster.advisor);
        let slow = SlowLoop::new(SlowConfig { lost_after_ns, ..SlowConfig::default() }, labels.clone())
            .with_evaluator(evaluator.clone());
        let memory = Memory {
            observed: Observed::new(&cluster),
            slow,
            state: ClusterState::default(),
            cost: CostMeter::default(),
        };
        let mailbox = Mailbox::default();
        let cores = cluster.node_named(&name).map_or(Cores::Shared, |node| node.cores.clone());
        let thread =
            AdvisorThread::start(&cluster.advisor, cores, labels.clone(), evaluator, mailbox.clone())?;
        let (memory, coverage) = (Mutex::new(memory), Mutex::default());
        Ok(Advice { name, collection, cluster, clock, labels, thread, mailbox, memory, coverage })
    }

    #[must_use]
    pub fn mailbox(&self) -> Mailbox<AdvisorMessage> {
        self.mailbox.clone()
    }

    /// Who decides here, and whether every decision was made.
    #[must_use]
    pub fn decisions(&self) -> Decisions {
        let told = self.thread.told();
        let who = told.who.unwrap_or_else(|| self.cluster.advisor.backend.name().to_owned());
        let consults = self.memory.lock().unwrap_or_else(PoisonError::into_inner).slow.counts();
        Decisions {
            coverage: self.coverage().counts(),
            consults,
            answers: told.answers,
            breaker: told.breaker,
            ..Decisions::new(LoopKind::Advisor, &who, told.why.as_deref())
        }
    }

    fn coverage(&self) -> MutexGuard<'_, LoopCoverage> {
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) {
        self.coverage().begin();
        let minibatches = self.look();
        self.coverage().decided(minibatches);
        tell(&DirectorMessage::Alive);
    }

    /// Looks at the reports and decides. Says how many minibatches were released since this began to look.
    fn look(&self) -> u64 {
        let now = self.clock.now();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Memory { observed, slow, state, cost } = &mut *memory;
        for (came, report) in self.collection.last() {
            let Some(node) = self.cluster.node_named(&report.node) else { continue };
            match report.sample {
                Some(sample) if now.0.saturating_sub(came.0) < STALE_AFTER.0 => {
                    observed.take_once(node.id, report.at.0, sample);
                }
                _ => observed.forget(node.id),
            }
        }
        *state = observed.state(now.0);
        cost.observe(observed.totals());
        for order in slow.observe(state) {
            match order {
                Order::Consult(edges) => {
                    tracing::info!(?edges, "consulting the advisor");
                    let (state, past) = (state.clone(), slow.past());
                    let about = slow.about(&edges, &state);
                    self.thread.ask(Asked::Consult { state: Box::new(state), past, about });
                }
                Order::Revert(directive) => {
                    tracing::info!(?directive, "a directive is taken back");
                    cost.pause();
                    tell(&DirectorMessage::Revert);
                }
                Order::Enact(directive) => {
                    tracing::info!(?directive, "a directive helped: it comes into force again");
                    cost.begin();
                    tell(&DirectorMessage::Enact(Box::new(directive)));
                }
            }
        }
        for (directive, outcome) in slow.take_outcomes() {
            let actions: Vec<_> = directive.actions.iter().map(|a| a.describe(&self.labels)).collect();
            let cost = cost.end();
            tracing::info!(?actions, ?outcome, ?cost, counts = ?slow.counts(), "a directive was judged");
            self.thread.ask(Asked::Judged { directive, outcome, cost });
        }
        observed.totals().minibatches
    }

    fn answered(&self, directive: &Directive, predicted: f32) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Memory { slow, state, cost, .. } = &mut *memory;
        if let Some(directive) = slow.answered(directive, predicted, state, self.clock.now().0) {
            cost.begin();
            tell(&DirectorMessage::Enact(Box::new(directive)));
        }
    }
}

/// The evaluator that was learned, where the topology names one that can be read.
fn evaluator(advisor: &rudder_topology::Advisor) -> Evaluator {
    match advisor.evaluator.as_deref().map(rudder_advisor::train::read) {
        Some(Ok(evaluator)) => evaluator,
        Some(Err(error)) => {
            tracing::warn!(%error, "the closed form evaluates");
            Evaluator::ClosedForm
        }
        None => Evaluator::ClosedForm,
    }
}

/// Tells the directors of all nodes.
fn tell(message: &DirectorMessage) {
    for director in ractor::pg::get_members(&names::director_group()) {
        // A node that has just gone has no parameters to change.
        let _ = ActorRef::<DirectorMessage>::from(director).send_message(message.clone());
    }
}

struct Advisor(Arc<Advice>);

impl Work for Advisor {
    type Item = AdvisorMessage;

    async fn handle(&mut self, message: AdvisorMessage) {
        match message {
            AdvisorMessage::Tick => self.0.tick(),
            AdvisorMessage::Answered { directive, predicted } => self.0.answered(&directive, predicted),
            AdvisorMessage::Fault => panic!("a fault was asked for"),
        }
    }
}

/// The child specification.
#[must_use]
pub fn child(advice: Arc<Advice>) -> ChildSpec {
    let name = ActorName::of_node(&advice.name, ActorKind::Advisor);
    worker::child(name, advice.mailbox(), move || Advisor(advice.clone()))
}

/// Tells the advisor that a decision is due, every [`REPORT_PERIOD`], until aborted.
pub async fn pulse(advice: Arc<Advice>) {
    let mut at = advice.clock.now();
    loop {
        at = Nanos(at.0 + REPORT_PERIOD.0);
        tokio::time::sleep_until(advice.clock.instant(at)).await;
        if advice.coverage().due() {
            tracing::error!("the advisor missed a decision");
        }
        // One that waits already says as much as two.
        if advice.mailbox.waiting() == 0 {
            advice.mailbox.send(AdvisorMessage::Tick);
        }
    }
}
