//! The operator's side: dials any nodes, listens nowhere.

use crate::dial::{DialError, dial};
use crate::keeper::Progress;
use crate::peer::{Peer, PeerEvent, PeerTable};
use crate::start::{Core, MembershipError, target};
use ractor::{ActorRef, Message};
use rudder_client::identity::PeerName;
use rudder_topology::{Cluster, Generation, NodeId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};

/// ractor's handshake and synchronisation, after ours.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an operator has no session with a node.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error(transparent)]
    Membership(#[from] MembershipError),
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// An operator's connections to any number of nodes; one per process.
pub struct OperatorSession {
    core: Core,
}

/// Connects an operator to one node, at its address in the topology.
pub async fn connect_operator(cluster: Arc<Cluster>, node: NodeId) -> Result<OperatorSession, OperatorError> {
    let session = OperatorSession::start(cluster).await?;
    session.connect(node, None).await?;
    Ok(session)
}

impl OperatorSession {
    /// Loads the identity `operator` where the cluster has keys. Dials nobody yet.
    pub async fn start(cluster: Arc<Cluster>) -> Result<OperatorSession, MembershipError> {
        // Distinguishes operators that are connected at the same time; the process id breaks ties of the clock.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unique = (since.as_nanos() as u64).rotate_left(16) ^ u64::from(std::process::id());
        let me = Peer { name: PeerName::Operator, generation: Generation(unique) };
        Ok(OperatorSession { core: Core::start(cluster, me, None).await? })
    }

    /// Returns when the node's groups are known here. `address` goes before the topology's, for nodes with port 0.
    /// There is no reconnection: call again when the node is lost.
    pub async fn connect(&self, node: NodeId, address: Option<SocketAddr>) -> Result<(), OperatorError> {
        let (address, name) = target(&self.core.gate.cluster, node, address)?;
        let mut progress = dial(&self.core.gate, address, &name).await?;
        match tokio::time::timeout(READY_TIMEOUT, progress.recv()).await {
            Ok(Some(Progress::Ready)) => Ok(()),
            Ok(None) => Err(DialError::NotReady { address }.into()),
            Err(_) => Err(DialError::Timeout { address }.into()),
        }
    }

    /// A remote actor of a process group, such as `rudder_messages::names::responder_group`. Send it messages and
    /// nothing else: to stop or to supervise it would end the node's whole session.
    #[must_use]
    pub fn member<M: Message>(&self, group: &str) -> Option<ActorRef<M>> {
        member(group)
    }

    /// The nodes that are connected.
    #[must_use]
    pub fn peers(&self) -> watch::Receiver<PeerTable> {
        self.core.peers()
    }

    #[must_use]
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<PeerEvent> {
        self.core.subscribe()
    }

    /// Ends all connections, within two seconds. Calling it again does nothing.
    pub async fn shutdown(&self) {
        self.core.shutdown().await;
    }
}

/// Any remote actor of a process group; see [`OperatorSession::member`] for what not to do with it.
#[must_use]
pub fn member<M: Message>(group: &str) -> Option<ActorRef<M>> {
    let members = ractor::pg::get_members(&group.to_owned());
    members.into_iter().find(|cell| !cell.get_id().is_local()).map(ActorRef::from)
}
