//! The responder: answers "show me your tree" from any node of the cluster and from the operator.

use crate::advisor::Advice;
use crate::clock::NodeClock;
use crate::director::Direction;
use crate::supervisor::{ChildSpec, Started};
use ractor::rpc::CallResult;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort};
use rudder_messages::{
    ActorEntry, ActorKind, ActorName, ActorState, Decisions, NodeStatus, ResponderMessage, SupervisorMessage,
    codec, names,
};
use rudder_topology::{Generation, NodeName};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The root has this long to tell of its children.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(1);

/// What a responder works with, over all its lives.
pub struct Respondent {
    pub node: NodeName,
    pub generation: Generation,
    pub clock: NodeClock,
    /// Set once the root runs, before anybody can ask.
    pub root: Arc<OnceLock<ActorRef<SupervisorMessage>>>,
    pub loops: Arc<SlowLoops>,
}

/// The slow loops of this node, each set before anybody can ask.
#[derive(Default)]
pub struct SlowLoops {
    advice: OnceLock<Arc<Advice>>,
    direction: OnceLock<Arc<Direction>>,
}

impl SlowLoops {
    pub fn advice(&self, advice: Arc<Advice>) {
        // There is one in a node's life.
        let _ = self.advice.set(advice);
    }

    pub fn direction(&self, direction: Arc<Direction>) {
        let _ = self.direction.set(direction);
    }

    /// What each of them says of itself.
    #[must_use]
    pub fn decisions(&self) -> Vec<Decisions> {
        let advice = self.advice.get().map(|advice| advice.decisions());
        advice.into_iter().chain(self.direction.get().map(|direction| direction.decisions())).collect()
    }
}

struct Responder;

impl Actor for Responder {
    type Msg = ResponderMessage;
    type State = Arc<Respondent>;
    type Arguments = Arc<Respondent>;

    async fn pre_start(
        &self,
        myself: ActorRef<ResponderMessage>,
        respondent: Arc<Respondent>,
    ) -> Result<Arc<Respondent>, ActorProcessingErr> {
        ractor::pg::join(names::responder_group(&respondent.node), vec![myself.get_cell()]);
        Ok(respondent)
    }

    async fn handle(
        &self,
        _myself: ActorRef<ResponderMessage>,
        message: ResponderMessage,
        respondent: &mut Arc<Respondent>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            // In a task of its own: the root may be waiting for this very actor.
            ResponderMessage::Tree(reply) => drop(tokio::spawn(answer(respondent.clone(), reply))),
            ResponderMessage::Malformed(error) => tracing::warn!(%error, "a malformed question was dropped"),
            ResponderMessage::Fault => panic!("a fault was asked for"),
        }
        Ok(())
    }
}

async fn answer(respondent: Arc<Respondent>, reply: RpcReplyPort<Vec<u8>>) {
    match codec::encode(&status(&respondent).await) {
        // Whoever asked may have gone; then nobody needs the answer.
        Ok(bytes) => drop(reply.send(bytes)),
        Err(error) => tracing::error!(%error, "the tree cannot be told"),
    }
}

/// The node's tree as it is now.
pub async fn status(respondent: &Respondent) -> NodeStatus {
    let uptime = respondent.clock.now();
    let root = ActorEntry {
        depth: 0,
        actor: ActorKind::Node,
        dataset: None,
        state: ActorState::Running,
        uptime,
        restarts: 0,
        causes: Vec::new(),
    };
    let mut actors = vec![root];
    if let Some(root) = respondent.root.get()
        && let Ok(CallResult::Success(below)) =
            root.call(SupervisorMessage::Snapshot, Some(SNAPSHOT_WITHIN)).await
    {
        actors.extend(below.into_iter().map(|entry| ActorEntry { depth: entry.depth + 1, ..entry }));
    }
    let decisions = respondent.loops.decisions();
    NodeStatus { generation: respondent.generation, uptime, actors, decisions }
}

/// The child specification.
#[must_use]
pub fn child(respondent: Arc<Respondent>) -> ChildSpec {
    let start = move |supervisor: ActorCell| -> Started {
        let respondent = respondent.clone();
        Box::pin(async move {
            let name = ActorName::of_node(&respondent.node, ActorKind::Responder).to_string();
            let (actor, _) = Actor::spawn_linked(Some(name), Responder, respondent, supervisor).await?;
            Ok(actor.get_cell())
        })
    };
    ChildSpec::worker(ActorKind::Responder, None, Arc::new(start))
}
