//! The director, on compute nodes: puts directives in force, takes them back. Where no advisor is heard it advises
//! itself, by the rules and by what this node alone can see; training does not notice either.

use crate::clock::NodeClock;
use crate::counters::Counters;
use crate::supervisor::{ChildSpec, Started};
use ractor::pg::GroupChangeMessage;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use rudder_graph::random::Key;
use rudder_messages::{ActorKind, ActorName, Decisions, DirectorMessage, LoopKind, REPORT_PERIOD, names};
use rudder_policy::advice::choose::rules;
use rudder_policy::advice::coverage::LoopCoverage;
use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::enact::enact;
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::observe::Observed;
use rudder_policy::advice::slow_loop::{Order, SlowConfig, SlowLoop};
use rudder_policy::advice::state::DatasetIndex;
use rudder_policy::step::Reaction;
use rudder_topology::{Cluster, Nanos, NodeId, NodeName};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An advisor that was not heard for so long is gone.
const SILENT_AFTER: Nanos = Nanos::from_secs(7);

/// What a director works with, over all its lives.
pub struct Direction {
    pub node: NodeId,
    pub name: NodeName,
    pub cluster: Arc<Cluster>,
    pub clock: NodeClock,
    pub counters: Counters,
    memory: Mutex<Memory>,
    coverage: Mutex<LoopCoverage>,
}

#[derive(Default)]
struct Memory {
    heard: Option<Nanos>,
    /// The control plane lost the scheduler node, which had been heard.
    cut: bool,
    /// While no advisor is heard.
    own: Option<Own>,
}

/// This node's own slow loop.
struct Own {
    observed: Observed,
    slow: SlowLoop,
    consults: u64,
}

impl Direction {
    #[must_use]
    pub fn new(
        (node, name): (NodeId, NodeName),
        cluster: Arc<Cluster>,
        clock: NodeClock,
        counters: Counters,
    ) -> Self {
        let (memory, coverage) = (Mutex::default(), Mutex::default());
        Direction { node, name, cluster, clock, counters, memory, coverage }
    }

    /// Who decides here, and whether every decision was made.
    #[must_use]
    pub fn decisions(&self) -> Decisions {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let coverage = self.coverage().counts();
        match &memory.own {
            None => Decisions { coverage, ..Decisions::new(LoopKind::Director, "the advisor", None) },
            Some(own) => Decisions {
                coverage,
                consults: own.slow.counts(),
                ..Decisions::new(LoopKind::Director, "its own rules", Some("no advisor is heard"))
            },
        }
    }

    fn coverage(&self) -> MutexGuard<'_, LoopCoverage> {
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A decision is due: it is made by the advisor where one is heard, else here.
    fn tick(&self) {
        self.coverage().begin();
        self.look();
        let released = self.counters.statistics().map_or(0, |sum| sum.minibatches_released);
        self.coverage().decided(released);
    }

    /// The scheduler node's end of the control plane is gone: nobody advises until somebody is heard again.
    fn gone(&self) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.cut = true;
        drop(memory);
        self.look();
    }

    fn heard(&self) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.heard = Some(self.clock.now());
        memory.cut = false;
        if memory.own.take().is_some() {
            tracing::info!("an advisor is heard: it advises");
        }
    }

    /// Puts a directive in force on every dataset that it concerns.
    fn enact(&self, directive: &Directive) {
        for (index, dataset) in self.counters.datasets.iter().enumerate() {
            let place = (self.node, DatasetIndex(index as u16));
            dataset.stage(|engine, now_ns| {
                let parameters = (engine.lasting_parameters(), engine.parameters());
                let next = enact(directive, place, engine.view().book, parameters, now_ns);
                let Some(next) = next else { return Reaction::default() };
                tracing::info!(dataset = %dataset.name, version = next.version, ?directive, "a directive");
                engine.set_parameters(next).unwrap_or_else(|refusal| {
                    tracing::warn!(%refusal, "a directive was refused by the engine");
                    Reaction::default()
                })
            });
        }
    }

    fn revert(&self) {
        for dataset in &self.counters.datasets {
            dataset.stage(|engine, _| engine.revert_parameters());
        }
    }

    /// Advises itself where nobody else does.
    fn look(&self) {
        let now = self.clock.now();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the first word there is time for it to come; after the last one, too, unless the way is known to be
        // cut.
        let last = memory.heard.unwrap_or(Nanos(0));
        if now.0.saturating_sub(last.0) < SILENT_AFTER.0 && !memory.cut {
            return;
        }
        let Some(sample) = self.counters.sample() else { return };
        let labels = Labels::of(&self.cluster);
        let own = memory.own.get_or_insert_with(|| {
            tracing::info!("no advisor is heard: this node follows its own rules");
            let slow = SlowLoop::new(SlowConfig::default(), labels.clone());
            Own { observed: Observed::new(&self.cluster), slow, consults: 0 }
        });
        own.observed.take(self.node, now.0, sample);
        let state = own.observed.state(now.0);
        for order in own.slow.observe(&state) {
            match order {
                Order::Consult(edges) => {
                    own.consults += 1;
                    let key = Key::new(u64::from(self.node.0)).with(own.consults);
                    let about = own.slow.about(&edges, &state);
                    let (directive, predicted) = rules(&state, &labels, &about, key);
                    tracing::info!(?edges, actions = directive.actions.len(), "this node's own rules");
                    if let Some(directive) = own.slow.answered(&directive, predicted, &state, now.0) {
                        self.enact(&directive);
                    }
                }
                Order::Revert(_) => self.revert(),
                Order::Enact(directive) => self.enact(&directive),
            }
        }
    }
}

struct Director;

impl Actor for Director {
    type Msg = DirectorMessage;
    type State = Arc<Direction>;
    type Arguments = Arc<Direction>;

    async fn pre_start(
        &self,
        myself: ActorRef<DirectorMessage>,
        direction: Arc<Direction>,
    ) -> Result<Arc<Direction>, ActorProcessingErr> {
        ractor::pg::join(names::director_group(), vec![myself.get_cell()]);
        ractor::pg::monitor(names::collector_group(), myself.get_cell());
        Ok(direction)
    }

    async fn post_start(
        &self,
        _myself: ActorRef<DirectorMessage>,
        direction: &mut Arc<Direction>,
    ) -> Result<(), ActorProcessingErr> {
        // What waited for its predecessor is lost; a decision that was due is not.
        if direction.coverage().is_owed() {
            direction.tick();
        }
        Ok(())
    }

    /// The collector lives where the advisor does. When the last one leaves, whatever came from there ends with it.
    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<DirectorMessage>,
        event: SupervisionEvent,
        direction: &mut Arc<Direction>,
    ) -> Result<(), ActorProcessingErr> {
        let left = matches!(event, SupervisionEvent::ProcessGroupChanged(GroupChangeMessage::Leave(..)));
        if left && ractor::pg::get_members(&names::collector_group()).is_empty() {
            direction.gone();
        }
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<DirectorMessage>,
        message: DirectorMessage,
        direction: &mut Arc<Direction>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DirectorMessage::Enact(directive) => direction.enact(&directive),
            DirectorMessage::Revert => direction.revert(),
            DirectorMessage::Alive => direction.heard(),
            DirectorMessage::Tick => direction.tick(),
            DirectorMessage::Fault => panic!("a fault was asked for"),
            DirectorMessage::Malformed(error) => tracing::warn!(%error, "a malformed directive was dropped"),
        }
        Ok(())
    }
}

/// The child specification.
#[must_use]
pub fn child(direction: Arc<Direction>) -> ChildSpec {
    let start = move |supervisor: ActorCell| -> Started {
        let direction = direction.clone();
        Box::pin(async move {
            let name = ActorName::of_node(&direction.name, ActorKind::Director).to_string();
            let (actor, _) = Actor::spawn_linked(Some(name), Director, direction, supervisor).await?;
            Ok(actor.get_cell())
        })
    };
    ChildSpec::worker(ActorKind::Director, None, Arc::new(start))
}

/// Tells the director of this process that a decision is due, every [`REPORT_PERIOD`], until aborted.
pub async fn pulse(direction: Arc<Direction>) {
    let mut at = direction.clock.now();
    loop {
        at = Nanos(at.0 + REPORT_PERIOD.0);
        tokio::time::sleep_until(direction.clock.instant(at)).await;
        if direction.coverage().due() {
            tracing::error!("the director missed a decision");
        }
        tell_local(&DirectorMessage::Tick);
    }
}

/// Tells the director of this process. One that has just failed looks for what is due when it is started again.
pub fn tell_local(message: &DirectorMessage) {
    for director in ractor::pg::get_local_members(&names::director_group()) {
        let _ = ActorRef::<DirectorMessage>::from(director).send_message(message.clone());
    }
}
