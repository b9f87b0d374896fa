//! A node: everything it holds, put together and taken apart.
//!
//! What must outlive actors is made here first: keys, sockets, memory, engines, movers' threads, connections. Then
//! the supervision tree starts over it. Stopping goes the other way round.

mod compute;
mod config;
mod faults;
mod prior;
mod ready;
mod storage;

pub use config::{NodeConfig, NodeError};
pub use faults::FaultRefused;
pub use ready::{Parts, Ready, StoppedStatistics};

use crate::advisor::Advice;
use crate::clock::NodeClock;
use crate::collector::Collection;
use crate::counters::Counters;
use crate::director::Direction;
use crate::links::Dialer;
use crate::mailbox::Mailbox;
use crate::observer::gpu::Gpus;
use crate::observer::{self, Observation, Observer};
use crate::responder::{self, Respondent, SlowLoops};
use crate::supervisor::{ChildSpec, Supervisor, SupervisorSpec};
use crate::{advisor, collector, director, worker};
use compute::ComputeSide;
use faults::Faults;
use ractor::{Actor, ActorRef};
use rudder_client::handshake::Security;
use rudder_client::identity::{Identity, PeerName};
use rudder_membership::{Membership, MembershipConfig};
use rudder_messages::{ActorKind, ActorName, ObserverMessage, SupervisorMessage};
use rudder_policy::restart::{RestartIntensity, Strategy};
use rudder_topology::{Cluster, Generation, Node};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use storage::StorageSide;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A stopping node's threads and actors have this long, each group of them.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// Movers and the control plane together: with the actors' time, a stop is over within five seconds.
const STOP_ALL_WITHIN: Duration = Duration::from_secs(3);

/// What all sides of a node are made with.
struct Base {
    cluster: Arc<Cluster>,
    node: Node,
    generation: Generation,
    clock: NodeClock,
    security: Security,
    config: NodeConfig,
}

/// A node that runs.
pub struct RunningNode {
    ready: Ready,
    root: ActorRef<SupervisorMessage>,
    root_task: JoinHandle<()>,
    escalation: watch::Receiver<Option<String>>,
    stopping: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    membership: Membership,
    compute: Option<ComputeSide>,
    storage: Option<StorageSide>,
    counters: Counters,
    loops: Arc<SlowLoops>,
    faults: Faults,
}

impl RunningNode {
    /// Returns when the node serves.
    pub async fn start(mut config: NodeConfig) -> Result<RunningNode, NodeError> {
        let (cluster, node) = config.resolve()?;
        let base = Base::new(cluster, node, config)?;
        let (stopping, stopped) = watch::channel(false);
        let mut tasks = Vec::new();
        let mut children = Vec::new();
        let mut faults = Faults::default();

        let root_cell = Arc::new(OnceLock::new());
        let loops = Arc::new(SlowLoops::default());
        children.push(responder::child(Arc::new(base.respondent(root_cell.clone(), loops.clone()))));
        if base.node.roles.scheduler {
            let name = base.node.name.clone();
            let collection = Arc::new(Collection::new(name.clone(), base.cluster.clone(), base.clock));
            children.push(collector::child(collection.clone()));
            let advice = Advice::start(name, base.cluster.clone(), base.clock, collection);
            let advice = Arc::new(advice.map_err(NodeError::Serve)?);
            children.push(advisor::child(advice.clone()));
            faults.advisor(advice.mailbox());
            tasks.push(tokio::spawn(advisor::pulse(advice.clone())));
            loops.advice(advice);
        }
        let storage = match &base.node.storage {
            Some(spec) => Some(StorageSide::start(&base, spec, &mut children, &mut tasks, &mut faults)?),
            None => None,
        };
        let compute = match &base.node.compute {
            Some(spec) => {
                let side = ComputeSide::start(&base, spec, stopped, &mut children, &mut tasks, &mut faults);
                Some(side.await?)
            }
            None => None,
        };
        let counters = Counters {
            datasets: compute.as_ref().map_or_else(Vec::new, ComputeSide::datasets),
            storage: storage.as_ref().map(|side| side.handle.clone()),
            computes: compute.is_some(),
            gpus: Some(base.gpus()),
        };
        if counters.computes {
            let identity = (base.node.id, base.node.name.clone());
            let direction = Direction::new(identity, base.cluster.clone(), base.clock, counters.clone());
            let direction = Arc::new(direction);
            children.push(director::child(direction.clone()));
            faults.directs();
            tasks.push(tokio::spawn(director::pulse(direction.clone())));
            loops.direction(direction);
        }
        let observer = Mailbox::default();
        children.push(base.observer(counters.clone(), observer.clone()));
        faults.observer(observer.clone());
        tasks.push(tokio::spawn(observer::pulse(base.clock, observer)));

        let (told, escalation) = watch::channel(None);
        let (root, root_task) = base.start_root(children, told).await?;
        // Set once: the root never changes.
        let _ = root_cell.set(root.clone());
        let membership = Membership::start(MembershipConfig {
            cluster: base.cluster.clone(),
            node: base.node.id,
            generation: base.generation,
            scheduler_address: base.config.scheduler_address,
            supervisor: Some(root.get_cell()),
        })
        .await?;
        let ready = base.ready(&membership, compute.as_ref(), storage.as_ref());
        Ok(RunningNode {
            ready,
            root,
            root_task,
            escalation,
            stopping,
            tasks,
            membership,
            compute,
            storage,
            counters,
            loops,
            faults,
        })
    }

    #[must_use]
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Returns with the reason when the root supervisor gives up; never otherwise.
    pub async fn gave_up(&mut self) -> String {
        match self.escalation.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            // The root ended without a word, which only a stop does.
            Err(_) => std::future::pending().await,
        }
    }

    /// Makes an actor panic, for tests: `<kind>` or `<kind> <dataset>`.
    pub fn fault(&self, order: &str) -> Result<(), FaultRefused> {
        self.faults.inject(order)
    }

    /// Stops within five seconds whatever hangs, and releases everything.
    pub async fn stop(self) -> StoppedStatistics {
        // Nobody listens on a node without trainers.
        let _ = self.stopping.send(true);
        let decisions = self.loops.decisions();
        for task in &self.tasks {
            task.abort();
        }
        let _ = self.root.send_message(SupervisorMessage::Shutdown);
        if tokio::time::timeout(STOP_WITHIN, self.root_task).await.is_err() {
            tracing::warn!("the actors did not stop in time; killing them");
            self.root.kill();
        }
        let (compute, storage) = (self.compute, self.storage);
        let movers = tokio::task::spawn_blocking(move || {
            if let Some(compute) = compute {
                compute.stop(STOP_WITHIN);
            }
            if let Some(storage) = storage {
                storage.stop(STOP_WITHIN);
            }
        });
        let ends = async { tokio::join!(self.membership.shutdown(), movers).1.is_ok() };
        if !tokio::time::timeout(STOP_ALL_WITHIN, ends).await.unwrap_or(false) {
            tracing::error!("the movers or the control plane did not stop in time; leaving them behind");
        }
        StoppedStatistics::of(&self.counters, decisions)
    }
}

impl Base {
    fn new(cluster: Arc<Cluster>, node: Node, config: NodeConfig) -> Result<Base, NodeError> {
        let name = PeerName::Node(node.name.clone());
        let security = match &cluster.keys {
            Some(directory) => Security::Tls(Arc::new(Identity::load(directory, &name)?)),
            None => Security::LoopbackClear(name),
        };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let generation = Generation(since_1970.as_millis() as u64);
        Ok(Base { cluster, node, generation, clock: NodeClock::start(), security, config })
    }

    fn name(&self, kind: ActorKind) -> ActorName {
        ActorName::of_node(&self.node.name, kind)
    }

    fn dialer(&self) -> Dialer {
        Dialer {
            cluster: self.cluster.clone(),
            name: self.node.name.clone(),
            generation: self.generation,
            security: self.security.clone(),
        }
    }

    fn respondent(
        &self,
        root: Arc<OnceLock<ActorRef<SupervisorMessage>>>,
        loops: Arc<SlowLoops>,
    ) -> Respondent {
        let (node, generation, clock) = (self.node.name.clone(), self.generation, self.clock);
        Respondent { node, generation, clock, root, loops }
    }

    fn gpus(&self) -> Arc<Gpus> {
        let gpus = Gpus::open(self.config.nvml_library.as_deref());
        tracing::info!(gpus = %gpus.summary(), "observer");
        Arc::new(gpus)
    }

    fn observer(&self, counters: Counters, mailbox: Mailbox<ObserverMessage>) -> ChildSpec {
        let observation = Arc::new(Observation {
            node: self.node.name.clone(),
            generation: self.generation,
            clock: self.clock,
            counters,
        });
        worker::child(self.name(ActorKind::Observer), mailbox, move || Observer::new(observation.clone()))
    }

    async fn start_root(
        &self,
        children: Vec<ChildSpec>,
        told: watch::Sender<Option<String>>,
    ) -> Result<(ActorRef<SupervisorMessage>, JoinHandle<()>), NodeError> {
        let spec = SupervisorSpec {
            name: self.name(ActorKind::Node),
            strategy: Strategy::OneForOne,
            intensity: RestartIntensity::default(),
            children,
            clock: self.clock,
            on_escalation: Some(Arc::new(move |reason: &str| {
                // Whoever waits for this is the process itself.
                let _ = told.send(Some(reason.to_owned()));
            })),
        };
        let name = spec.name.to_string();
        Ok(Actor::spawn(Some(name), Supervisor, Arc::new(spec)).await?)
    }

    fn ready(
        &self,
        membership: &Membership,
        compute: Option<&ComputeSide>,
        storage: Option<&StorageSide>,
    ) -> Ready {
        let backend = storage.map(|side| side.handle.backend().clone());
        Ready {
            node: self.node.name.clone(),
            generation: self.generation,
            control: membership.bound_address(),
            data: storage.map(|side| side.address),
            trainer_socket: compute.map(|side| side.socket_path().to_owned()),
            backend: backend.or_else(|| compute.and_then(ComputeSide::backend)),
            placement: storage
                .map(|side| side.handle.placement().clone())
                .or_else(|| compute.and_then(ComputeSide::placement)),
            parts: storage.map(|side| side.parts.clone()),
        }
    }
}
