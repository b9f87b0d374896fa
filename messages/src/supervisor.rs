//! A supervisor's mailbox. Failures of children reach it as supervision events, not as messages.

use crate::tree::ActorEntry;
use ractor::{Message, RpcReplyPort};

/// What a supervisor remembers of its children, and theirs; preorder, its own children at depth 0.
pub type SupervisorSnapshot = Vec<ActorEntry>;

/// What a supervisor is asked.
#[derive(Debug)]
pub enum SupervisorMessage {
    /// Its children, in the order of starting.
    Snapshot(RpcReplyPort<SupervisorSnapshot>),
    /// Stop the children, last first, then itself.
    Shutdown,
}

impl Message for SupervisorMessage {}
