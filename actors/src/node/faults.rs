//! Panics on order, so that restarts can be tested in a real process. Reached only through a node that was started
//! for it; nothing that comes over a socket leads here.

use crate::dataset::Dataset;
use crate::director;
use crate::mailbox::Mailbox;
use rudder_messages::{
    AcceptorMessage, ActorKind, AdvisorMessage, DirectorMessage, GatewayMessage, MoverMessage,
    ObserverMessage, PlannerMessage, PredictorMessage, ValidatorMessage,
};
use std::sync::Arc;

/// Where to send panics.
#[derive(Default)]
pub(super) struct Faults {
    datasets: Vec<Arc<Dataset>>,
    gateway: Option<Mailbox<GatewayMessage>>,
    acceptor: Option<Mailbox<AcceptorMessage>>,
    observer: Option<Mailbox<ObserverMessage>>,
    advisor: Option<Mailbox<AdvisorMessage>>,
    directs: bool,
}

/// Why nobody panics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultRefused {
    #[error(
        "say `panic KIND [DATASET]`, with KIND one of gateway, predictor, planner, validator, mover, acceptor, observer, \
         advisor, director"
    )]
    Unknown,
    #[error("this node has no such actor")]
    Absent,
}

impl Faults {
    pub(super) fn dataset(&mut self, dataset: Arc<Dataset>) {
        self.datasets.push(dataset);
    }

    pub(super) fn gateway(&mut self, mailbox: Mailbox<GatewayMessage>) {
        self.gateway = Some(mailbox);
    }

    pub(super) fn acceptor(&mut self, mailbox: Mailbox<AcceptorMessage>) {
        self.acceptor = Some(mailbox);
    }

    pub(super) fn observer(&mut self, mailbox: Mailbox<ObserverMessage>) {
        self.observer = Some(mailbox);
    }

    pub(super) fn advisor(&mut self, mailbox: Mailbox<AdvisorMessage>) {
        self.advisor = Some(mailbox);
    }

    /// The node has a director.
    pub(super) fn directs(&mut self) {
        self.directs = true;
    }

    pub(super) fn inject(&self, order: &str) -> Result<(), FaultRefused> {
        let mut words = order.split_ascii_whitespace();
        let (Some("panic"), Some(kind)) = (words.next(), words.next()) else {
            return Err(FaultRefused::Unknown);
        };
        let wanted = words.next();
        let dataset = || {
            let found = self.datasets.iter().find(|d| wanted.is_none_or(|name| d.name.as_str() == name));
            found.ok_or(FaultRefused::Absent)
        };
        let kinds = [
            ActorKind::Gateway,
            ActorKind::Acceptor,
            ActorKind::Observer,
            ActorKind::Predictor,
            ActorKind::Planner,
            ActorKind::Validator,
            ActorKind::Mover,
            ActorKind::Advisor,
            ActorKind::Director,
        ];
        match kinds.into_iter().find(|known| known.as_str() == kind).ok_or(FaultRefused::Unknown)? {
            ActorKind::Predictor => dataset()?.predictor.send(PredictorMessage::Fault),
            ActorKind::Planner => dataset()?.planner.send(PlannerMessage::Fault),
            ActorKind::Validator => dataset()?.validator.send(ValidatorMessage::Fault),
            ActorKind::Mover => dataset()?.mover.send(MoverMessage::Fault),
            ActorKind::Gateway => {
                self.gateway.as_ref().ok_or(FaultRefused::Absent)?.send(GatewayMessage::Fault);
            }
            ActorKind::Acceptor => {
                self.acceptor.as_ref().ok_or(FaultRefused::Absent)?.send(AcceptorMessage::Fault);
            }
            ActorKind::Observer => {
                self.observer.as_ref().ok_or(FaultRefused::Absent)?.send(ObserverMessage::Fault);
            }
            ActorKind::Advisor => {
                self.advisor.as_ref().ok_or(FaultRefused::Absent)?.send(AdvisorMessage::Fault);
            }
            ActorKind::Director if self.directs => director::tell_local(&DirectorMessage::Fault),
            ActorKind::Director => return Err(FaultRefused::Absent),
            _ => return Err(FaultRefused::Unknown),
        }
        Ok(())
    }
}
