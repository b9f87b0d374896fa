//! The collector, on scheduler nodes: keeps every node's last report.

use crate::clock::NodeClock;
use crate::supervisor::{ChildSpec, Started};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use rudder_messages::{ActorKind, ActorName, CollectorMessage, Report, names};
use rudder_topology::{Cluster, Nanos, NodeName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What a collector works with, over all its lives.
#[derive(Debug)]
pub struct Collection {
    pub node: NodeName,
    pub cluster: Arc<Cluster>,
    pub clock: NodeClock,
    last: Mutex<BTreeMap<NodeName, (Nanos, Report)>>,
}

impl Collection {
    #[must_use]
    pub fn new(node: NodeName, cluster: Arc<Cluster>, clock: NodeClock) -> Self {
        Collection { node, cluster, clock, last: Mutex::default() }
    }

    /// Keeps a report, unless it is of a node that is not in the topology or older than what is there.
    fn keep(&self, report: Report) {
        if self.cluster.node_named(&report.node).is_none() {
            tracing::warn!(node = %report.node, "a report of an unknown node was dropped");
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let age = |report: &Report| (report.generation, report.at);
        if last.get(&report.node).is_none_or(|(_, former)| age(former) <= age(&report)) {
            tracing::debug!(node = %report.node, cores = report.process.cores_used, "a report came");
            last.insert(report.node.clone(), (self.clock.now(), report));
        }
    }

    /// The last reports, and when each came.
    #[must_use]
    pub fn last(&self) -> Vec<(Nanos, Report)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

struct Collector;

impl Actor for Collector {
    type Msg = CollectorMessage;
    type State = Arc<Collection>;
    type Arguments = Arc<Collection>;

    async fn pre_start(
        &self,
        myself: ActorRef<CollectorMessage>,
        collection: Arc<Collection>,
    ) -> Result<Arc<Collection>, ActorProcessingErr> {
        ractor::pg::join(names::collector_group(), vec![myself.get_cell()]);
        Ok(collection)
    }

    async fn handle(
        &self,
        _myself: ActorRef<CollectorMessage>,
        message: CollectorMessage,
        collection: &mut Arc<Collection>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CollectorMessage::Report(report) => collection.keep(*report),
            // Whoever asked may have gone; then nobody needs the answer.
            CollectorMessage::Last(reply) => drop(reply.send(collection.last())),
            CollectorMessage::Malformed(error) => tracing::warn!(%error, "a malformed report was dropped"),
            CollectorMessage::Fault => panic!("a fault was asked for"),
        }
        Ok(())
    }
}

/// The child specification.
#[must_use]
pub fn child(collection: Arc<Collection>) -> ChildSpec {
    let start = move |supervisor: ActorCell| -> Started {
        let collection = collection.clone();
        Box::pin(async move {
            let name = ActorName::of_node(&collection.node, ActorKind::Collector).to_string();
            let (actor, _) = Actor::spawn_linked(Some(name), Collector, collection, supervisor).await?;
            Ok(actor.get_cell())
        })
    };
    ChildSpec::worker(ActorKind::Collector, None, Arc::new(start))
}
