//! What actors say to each other: one small enum per mailbox, and the envelope of what crosses nodes.
//!
//! Local mailboxes carry plain values and never leave the process. Three mailboxes can be reached from other nodes:
//! the responder's ([`responder`]: "show me your tree"), the collector's ([`collector`]: state reports) and the
//! director's ([`director`]: directives). Their bytes are decoded explicitly: what cannot be understood becomes the variant `Malformed`, never a panic.
//!
//! Reading order: codec, names, decisions, tree, report, responder, collector, director, then the local mailboxes in the order of the
//! fast loop.

#![forbid(unsafe_code)]

pub mod codec;
pub mod names;

pub mod decisions;
pub mod tree;

pub mod report;

pub mod collector;
pub mod director;
pub mod responder;

pub mod nudge;
pub mod supervisor;

pub mod gateway;
pub mod predictor;

pub mod planner;
pub mod validator;

pub mod mover;

pub mod acceptor;
pub mod observer;

pub mod advisor;

pub use acceptor::AcceptorMessage;
pub use advisor::AdvisorMessage;
pub use collector::CollectorMessage;
pub use decisions::{Decisions, LoopKind};
pub use director::DirectorMessage;
pub use gateway::GatewayMessage;
pub use mover::{MoverMessage, TransferEnd};
pub use names::{ActorKind, ActorName};
pub use nudge::Nudge;
pub use observer::ObserverMessage;
pub use planner::PlannerMessage;
pub use predictor::{NotAnnounced, PredictorMessage};
pub use report::{REPORT_PERIOD, Report};
pub use responder::ResponderMessage;
pub use supervisor::{SupervisorMessage, SupervisorSnapshot};
pub use tree::{ActorEntry, ActorState, Answer, NodeStatus, NodeTree, RestartCause};
pub use validator::ValidatorMessage;
