//! The advisor, on scheduler nodes: one for all compute nodes and all jobs. The actor looks at the reports and decides
//! when to ask and what to take back; asking itself, which may take as long as it likes, happens on a thread of its own
//! ([`thread`]), so that no LLM and no HTTP is ever near a mailbox or a mover.

mod thread;

use crate::clock::NodeClock;
use crate::collector::Collection;
use crate::supervisor::{ChildSpec, Started};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use rudder_messages::{ActorKind, ActorName, AdvisorMessage, DirectorMessage, names};
use rudder_policy::advice::cost::CostMeter;
use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::observe::Observed;
use rudder_policy::advice::slow_loop::{Order, SlowConfig, SlowCounts, SlowLoop};
use rudder_policy::advice::state::ClusterState;
use rudder_topology::{Cluster, Nanos, NodeName};
use std::sync::{Arc, Mutex, PoisonError};
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
    memory: Mutex<Memory>,
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
        let slow = SlowLoop::new(SlowConfig { lost_after_ns, ..SlowConfig::default() }, labels.clone());
        let memory = Memory {
            observed: Observed::new(&cluster),
            slow,
            state: ClusterState::default(),
            cost: CostMeter::default(),
        };
        let thread = AdvisorThread::start(&cluster.advisor, labels.clone())?;
        Ok(Advice { name, collection, cluster, clock, labels, thread, memory: Mutex::new(memory) })
    }

    /// What the slow loop counted so far.
    #[must_use]
    pub fn counts(&self) -> SlowCounts {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).slow.counts()
    }

    fn tick(&self) {
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
                    self.thread.ask(Asked::Consult { state: Box::new(state), past });
                }
                Order::Revert(directive) => {
                    tracing::info!(?directive, "a directive hurt: it is taken back");
                    tell(&DirectorMessage::Revert);
                }
            }
        }
        for (directive, outcome) in slow.take_outcomes() {
            let actions: Vec<_> = directive.actions.iter().map(|a| a.describe(&self.labels)).collect();
            let cost = cost.end();
            tracing::info!(?actions, ?outcome, ?cost, counts = ?slow.counts(), "a directive was judged");
            self.thread.ask(Asked::Judged { directive, outcome, cost });
        }
        tell(&DirectorMessage::Alive);
    }

    fn answered(&self, directive: &Directive, predicted: f32) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Memory { slow, state, cost, .. } = &mut *memory;
        if slow.answered(directive, predicted, state, self.clock.now().0) {
            cost.begin();
            tell(&DirectorMessage::Enact(Box::new(directive.clone())));
        }
    }
}

/// Tells the directors of all nodes.
fn tell(message: &DirectorMessage) {
    for director in ractor::pg::get_members(&names::director_group()) {
        // A node that has just gone has no parameters to change.
        let _ = ActorRef::<DirectorMessage>::from(director).send_message(message.clone());
    }
}

struct Advisor;

impl Actor for Advisor {
    type Msg = AdvisorMessage;
    type State = Arc<Advice>;
    type Arguments = Arc<Advice>;

    async fn pre_start(
        &self,
        myself: ActorRef<AdvisorMessage>,
        advice: Arc<Advice>,
    ) -> Result<Arc<Advice>, ActorProcessingErr> {
        ractor::pg::join(names::advisor_group(&advice.name), vec![myself.get_cell()]);
        advice.thread.answer_to(myself);
        Ok(advice)
    }

    async fn handle(
        &self,
        _myself: ActorRef<AdvisorMessage>,
        message: AdvisorMessage,
        advice: &mut Arc<Advice>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AdvisorMessage::Tick => advice.tick(),
            AdvisorMessage::Answered { directive, predicted } => advice.answered(&directive, predicted),
        }
        Ok(())
    }
}

/// The child specification.
#[must_use]
pub fn child(advice: Arc<Advice>) -> ChildSpec {
    let start = move |supervisor: ActorCell| -> Started {
        let advice = advice.clone();
        Box::pin(async move {
            let name = ActorName::of_node(&advice.name, ActorKind::Advisor).to_string();
            let (actor, _) = Actor::spawn_linked(Some(name), Advisor, advice, supervisor).await?;
            Ok(actor.get_cell())
        })
    };
    ChildSpec::worker(ActorKind::Advisor, None, Arc::new(start))
}

/// Tells the advisor of this process that time passed, every `period`, until aborted.
pub async fn pulse(clock: NodeClock, period: Nanos, node: NodeName) {
    let mut at = clock.now();
    loop {
        at = Nanos(at.0 + period.0);
        tokio::time::sleep_until(clock.instant(at)).await;
        for advisor in ractor::pg::get_local_members(&names::advisor_group(&node)) {
            // One that has just failed is started again before the next pulse.
            let _ = ActorRef::<AdvisorMessage>::from(advisor).send_message(AdvisorMessage::Tick);
        }
    }
}
