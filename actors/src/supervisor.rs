//! Supervision: starts children in order, restarts them by [`rudder_policy::restart`], gives up by failing itself.

use crate::clock::NodeClock;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use rudder_messages::{
    ActorEntry, ActorKind, ActorName, ActorState, RestartCause, SupervisorMessage, SupervisorSnapshot, tree,
};
use rudder_policy::restart::{ChildIndex, RestartIntensity, RestartVerdict, Restarts, Strategy};
use rudder_topology::{DatasetName, Nanos};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A child on its way.
pub type Started = Pin<Box<dyn Future<Output = Result<ActorCell, SpawnErr>> + Send>>;
/// Starts a child under a supervisor; called for every life of it.
pub type Start = Arc<dyn Fn(ActorCell) -> Started + Send + Sync>;

/// Hears why a supervisor gives up.
pub type OnEscalation = Arc<dyn Fn(&str) + Send + Sync>;

/// A child stops within this, or is killed.
const STOP_WITHIN: Duration = Duration::from_secs(1);
/// A supervisor below answers within this, or its children are left out of the snapshot.
const SNAPSHOT_WITHIN: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Worker,
    Supervisor,
}

/// How to start a child, and what it is.
#[derive(Clone)]
pub struct ChildSpec {
    kind: ActorKind,
    dataset: Option<DatasetName>,
    role: Role,
    start: Start,
}

impl ChildSpec {
    #[must_use]
    pub fn worker(kind: ActorKind, dataset: Option<DatasetName>, start: Start) -> Self {
        ChildSpec { kind, dataset, role: Role::Worker, start }
    }

    /// A supervisor below.
    #[must_use]
    pub fn supervisor(spec: SupervisorSpec) -> Self {
        let spec = Arc::new(spec);
        let (kind, dataset) = (spec.name.kind, spec.name.dataset.clone());
        let start = move |supervisor: ActorCell| -> Started {
            let spec = spec.clone();
            Box::pin(async move {
                let name = spec.name.to_string();
                let (actor, _) = Actor::spawn_linked(Some(name), Supervisor, spec, supervisor).await?;
                Ok(actor.get_cell())
            })
        };
        ChildSpec { kind, dataset, role: Role::Supervisor, start: Arc::new(start) }
    }
}

/// A supervisor and its children, in the order of starting.
pub struct SupervisorSpec {
    pub name: ActorName,
    pub strategy: Strategy,
    pub intensity: RestartIntensity,
    pub children: Vec<ChildSpec>,
    pub clock: NodeClock,
    /// Told why this supervisor gives up, before it fails. The root's is what ends the node.
    pub on_escalation: Option<OnEscalation>,
}

/// The actor.
#[derive(Debug)]
pub struct Supervisor;

struct Child {
    /// `None` while it does not run.
    cell: Option<ActorCell>,
    started_at: Nanos,
    restarts: u32,
    causes: Vec<RestartCause>,
}

/// A supervisor's memory.
pub struct SupervisorState {
    spec: Arc<SupervisorSpec>,
    restarts: Restarts,
    children: Vec<Child>,
}

impl Actor for Supervisor {
    type Msg = SupervisorMessage;
    type State = SupervisorState;
    type Arguments = Arc<SupervisorSpec>;

    async fn pre_start(
        &self,
        _myself: ActorRef<SupervisorMessage>,
        spec: Arc<SupervisorSpec>,
    ) -> Result<SupervisorState, ActorProcessingErr> {
        let restarts = Restarts::new(spec.strategy, spec.intensity, spec.children.len());
        let child = || Child { cell: None, started_at: Nanos(0), restarts: 0, causes: Vec::new() };
        let children = spec.children.iter().map(|_| child()).collect();
        Ok(SupervisorState { spec, restarts, children })
    }

    async fn post_start(
        &self,
        myself: ActorRef<SupervisorMessage>,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        for index in 0..state.children.len() {
            if let Err(error) = state.start(index, &myself).await {
                state.recover(index, &format!("it did not start: {error}"), &myself).await?;
            }
        }
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMessage>,
        message: SupervisorMessage,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::Snapshot(reply) => {
                // Whoever asked may have gone; then nobody needs the answer.
                let _ = reply.send(state.snapshot().await);
            }
            SupervisorMessage::Shutdown => {
                state.stop(0).await;
                myself.stop(Some("shut down".to_owned()));
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMessage>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let (id, cause) = match event {
            SupervisionEvent::ActorFailed(cell, error) => {
                if state.index_of(cell.get_id()).is_none() {
                    let name = cell.get_name().unwrap_or_default();
                    tracing::error!(supervisor = %state.spec.name, %name, %error, "an actor beside the tree failed");
                }
                (cell.get_id(), error.to_string())
            }
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                let reason = reason.unwrap_or_else(|| "no reason given".to_owned());
                (cell.get_id(), format!("it stopped unasked: {reason}"))
            }
            _ => return Ok(()),
        };
        // Whom we stopped ourselves is not ours any more, and its last word needs no answer.
        match state.index_of(id) {
            Some(index) => {
                state.children[index].cell = None;
                state.recover(index, &cause, &myself).await
            }
            None => Ok(()),
        }
    }
}

impl SupervisorState {
    fn index_of(&self, id: ActorId) -> Option<usize> {
        self.children.iter().position(|child| child.cell.as_ref().is_some_and(|cell| cell.get_id() == id))
    }

    async fn start(&mut self, index: usize, myself: &ActorRef<SupervisorMessage>) -> Result<(), SpawnErr> {
        let cell = (self.spec.children[index].start)(myself.get_cell()).await?;
        let child = &mut self.children[index];
        child.cell = Some(cell);
        child.started_at = self.spec.clock.now();
        Ok(())
    }

    /// Restarts whom the failure of a child concerns, until all run or the intensity is exhausted.
    async fn recover(
        &mut self,
        failed: usize,
        cause: &str,
        myself: &ActorRef<SupervisorMessage>,
    ) -> Result<(), ActorProcessingErr> {
        let (mut failed, mut cause) = (failed, cause.to_owned());
        loop {
            let kind = self.spec.children[failed].kind;
            let now = self.spec.clock.now();
            let range = match self.restarts.failed(ChildIndex(failed), now) {
                RestartVerdict::Restart(range) => range,
                RestartVerdict::Escalate => return Err(self.escalate(kind, &cause).await),
            };
            tracing::warn!(supervisor = %self.spec.name, actor = %kind, %cause, "an actor failed; restarting it");
            self.stop_range(range.clone()).await;
            let mut next_failure = None;
            for index in range {
                let why = if index == failed { cause.clone() } else { format!("restarted with {kind}") };
                self.children[index].note(now, &why);
                if let Err(error) = self.start(index, myself).await {
                    next_failure = Some((index, format!("it did not start: {error}")));
                    break;
                }
            }
            match next_failure {
                None => return Ok(()),
                Some(next) => (failed, cause) = next,
            }
        }
    }

    async fn escalate(&mut self, kind: ActorKind, cause: &str) -> ActorProcessingErr {
        let reason = format!("{kind} failed more often than its supervisor bears: {cause}");
        tracing::error!(supervisor = %self.spec.name, %reason, "giving up");
        self.stop(0).await;
        if let Some(told) = &self.spec.on_escalation {
            told(&reason);
        }
        ActorProcessingErr::from(reason)
    }

    /// Stops all children from `first` on, last first.
    async fn stop(&mut self, first: usize) {
        self.stop_range(first..self.children.len()).await;
    }

    async fn stop_range(&mut self, range: std::ops::Range<usize>) {
        for index in range.rev() {
            let Some(cell) = self.children[index].cell.take() else { continue };
            let stopped = match self.spec.children[index].role {
                Role::Worker => cell.stop_and_wait(None, Some(STOP_WITHIN)).await.is_ok(),
                Role::Supervisor => {
                    cell.send_message(SupervisorMessage::Shutdown).is_err()
                        || cell.wait(Some(STOP_WITHIN * 2)).await.is_ok()
                }
            };
            if !stopped {
                tracing::warn!(actor = %self.spec.children[index].kind, "an actor did not stop in time; killing it");
                // Its name must be free before a successor starts; a kill takes effect at its next await.
                let _ = cell.kill_and_wait(Some(STOP_WITHIN)).await;
            }
        }
    }

    async fn snapshot(&self) -> SupervisorSnapshot {
        let now = self.spec.clock.now();
        let mut entries = Vec::new();
        for (spec, child) in self.spec.children.iter().zip(&self.children) {
            entries.push(ActorEntry {
                depth: 0,
                actor: spec.kind,
                dataset: spec.dataset.clone(),
                state: if child.cell.is_some() { ActorState::Running } else { ActorState::Restarting },
                uptime: Nanos(now.0.saturating_sub(child.started_at.0)),
                restarts: child.restarts,
                causes: child.causes.clone(),
            });
            let Some(cell) = child.cell.as_ref().filter(|_| spec.role == Role::Supervisor) else { continue };
            let supervisor = ActorRef::<SupervisorMessage>::from(cell.clone());
            if let Ok(ractor::rpc::CallResult::Success(below)) =
                supervisor.call(SupervisorMessage::Snapshot, Some(SNAPSHOT_WITHIN)).await
            {
                entries.extend(below.into_iter().map(|entry| ActorEntry { depth: entry.depth + 1, ..entry }));
            }
        }
        entries
    }
}

impl Child {
    fn note(&mut self, at: Nanos, cause: &str) {
        self.restarts = self.restarts.saturating_add(1);
        if self.causes.len() == tree::CAUSES_MAX {
            self.causes.remove(0);
        }
        self.causes.push(RestartCause::new(at, cause));
    }
}

#[cfg(test)]
mod tests;
