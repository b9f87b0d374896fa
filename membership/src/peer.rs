//! Who is at the other end, and what others are told of it.

use rudder_client::identity::PeerName;
use rudder_topology::{Generation, NodeName};
use std::collections::BTreeMap;
use std::fmt;

/// A process of the cluster: a name and its incarnation. Shown as `name:generation`, which is also its name within
/// ractor's sessions and groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    pub name: PeerName,
    pub generation: Generation,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.generation.0)
    }
}

impl Peer {
    /// The name a ractor node server gives itself: `name@host`. Its host part must differ from process to process,
    /// because a session between equal hosts and ports is taken for a session with oneself.
    pub(crate) fn session_name(&self) -> String {
        format!("{}@{self}", self.name)
    }

    /// The process group that holds this process's heartbeat actor, and nothing else.
    pub(crate) fn pulse_group(&self) -> String {
        format!("rudder/pulse/{self}")
    }
}

/// What happened to a peer. Operators are not reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEvent {
    pub node: NodeName,
    pub generation: Generation,
    pub change: PeerChange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerChange {
    Up,
    Lost(LostReason),
}

/// Why a peer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostReason {
    #[error("its connection ended")]
    Closed,
    #[error("it was silent for longer than the heartbeat time-out")]
    Silent,
    #[error("it came back on another connection")]
    Replaced,
    #[error("it did not finish the handshake in time")]
    Unfinished,
    #[error("its session's name is not the one it said hello with")]
    Misnamed,
    #[error("this process is stopping")]
    Stopping,
}

/// The peers that are up, by name.
pub type PeerTable = BTreeMap<NodeName, Generation>;
