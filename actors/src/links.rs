//! Connections to storage nodes: dials, hands the session to the mover, dials again when it is lost. One task per
//! storage node and dataset, on the supervisor's side.

use crate::clock::NodeClock;
use crate::mailbox::Mailbox;
use rudder_client::handshake::{self, Credential, Dialed, HandshakeError, Hello, Security, Verbs};
use rudder_dataplane::{ComputeHandle, PeerLost, Stopped};
use rudder_messages::MoverMessage;
use rudder_policy::restart::Backoff;
use rudder_topology::{Cluster, DatasetName, Generation, Nanos, NodeId, NodeName, PartId};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A storage node is dialed this long at most.
const DIAL_TIME_MAX: Duration = Duration::from_secs(3);
const RETRY_BASE: Nanos = Nanos::from_millis(50);
/// A storage node that comes back serves again well within two seconds.
const RETRY_MAX: Nanos = Nanos::from_millis(800);

/// Who dials.
#[derive(Clone, Debug)]
pub struct Dialer {
    pub cluster: Arc<Cluster>,
    pub name: NodeName,
    pub generation: Generation,
    pub security: Security,
}

/// A storage node as it is dialed for one dataset.
#[derive(Clone, Debug)]
pub struct Link {
    pub node: NodeId,
    pub name: NodeName,
    pub address: SocketAddr,
    pub hello: Hello,
    pub security: Security,
    /// The manifest's digest; another one there is another dataset.
    pub digest: String,
    /// What the node must store before it is of use.
    pub parts: Vec<PartId>,
}

impl Dialer {
    /// `Err`: the node's name; it has no data port.
    pub fn link(
        &self,
        node: NodeId,
        dataset: DatasetName,
        digest: String,
        parts: Vec<PartId>,
    ) -> Result<Link, NodeName> {
        let storage = self.cluster.node(node);
        let name = storage.name.clone();
        let address = storage.data_address.ok_or_else(|| name.clone())?;
        let credential = Credential::Node { name: self.name.clone(), generation: self.generation };
        let hello = Hello::new(credential, dataset, Verbs::FETCH);
        Ok(Link { node, name, address, hello, security: self.security.clone(), digest, parts })
    }
}

/// What a link is for: who is told of its ups and downs.
pub trait LinkEnd: Send + Sync + 'static {
    /// A fresh session.
    fn up(&self, node: NodeId, dialed: Dialed) -> Result<(), Stopped>;

    /// The session was lost.
    fn down(&self, node: NodeId);

    /// There is none yet, and dialing failed.
    fn unreachable(&self, node: NodeId);
}

/// A compute node's end.
#[derive(Clone, Debug)]
pub struct ComputeEnd {
    pub handle: ComputeHandle,
    pub mover: Mailbox<MoverMessage>,
}

impl LinkEnd for ComputeEnd {
    fn up(&self, node: NodeId, dialed: Dialed) -> Result<(), Stopped> {
        let generation = dialed.welcome.generation;
        self.handle.attach(node, generation, dialed.stream, dialed.session)?;
        self.mover.send(MoverMessage::LinkUp { node, generation });
        Ok(())
    }

    fn down(&self, node: NodeId) {
        self.mover.send(MoverMessage::LinkDown { node });
    }

    /// The engine asks nothing of a node that never was up.
    fn unreachable(&self, _: NodeId) {}
}

/// Why a node that answered is not used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(
        "it stores another version of the dataset (digest {theirs}, ours is {ours}): push the dataset again"
    )]
    Digest { theirs: String, ours: String },
    #[error("it does not have {0} yet: `rudder dataset push` brings it there")]
    MissingPart(PartId),
    #[error("the dialing thread failed")]
    Thread,
}

/// Tells each link's task that its connection was lost.
#[derive(Clone, Debug, Default)]
pub struct LossRouter {
    tasks: HashMap<NodeId, mpsc::UnboundedSender<PeerLost>>,
}

impl LossRouter {
    /// The receiver of one node's losses.
    pub fn route(&mut self, node: NodeId) -> mpsc::UnboundedReceiver<PeerLost> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.tasks.insert(node, sender);
        receiver
    }

    pub fn lost(&self, lost: PeerLost) {
        if let Some(task) = self.tasks.get(&lost.node) {
            // The task ends only when the node does.
            let _ = task.send(lost);
        }
    }
}

/// Keeps a link up until the mover stops.
pub async fn keep(
    link: Link,
    end: impl LinkEnd,
    mut lost: mpsc::UnboundedReceiver<PeerLost>,
    clock: NodeClock,
) {
    let mut backoff = Backoff::new(RETRY_BASE, RETRY_MAX, u64::from(link.node.0) ^ clock.now().0);
    loop {
        match dial(&link).await {
            Ok(dialed) => {
                backoff.reset();
                if end.up(link.node, dialed).is_err() {
                    return;
                }
                tracing::info!(storage = %link.name, address = %link.address, "storage node connected");
                let Some(loss) = lost.recv().await else { return };
                end.down(link.node);
                tracing::warn!(storage = %link.name, reason = %loss.reason, "storage node lost; dialing again");
            }
            Err(reason) => {
                end.unreachable(link.node);
                if backoff.attempts() == 0 {
                    tracing::warn!(storage = %link.name, address = %link.address, %reason, "storage node cannot be used; trying again until it can");
                } else {
                    tracing::debug!(storage = %link.name, address = %link.address, %reason, "storage node cannot be used");
                }
            }
        }
        let again = Nanos(clock.now().0 + backoff.next_delay().0);
        tokio::time::sleep_until(clock.instant(again)).await;
    }
}

async fn dial(link: &Link) -> Result<Dialed, Unusable> {
    let task = {
        let Link { name, address, hello, security, .. } = link.clone();
        move || handshake::dial(address, &name, &hello, &security, DIAL_TIME_MAX)
    };
    let dialed = tokio::task::spawn_blocking(task).await.map_err(|_| Unusable::Thread)??;
    if dialed.welcome.digest != link.digest {
        return Err(Unusable::Digest { theirs: dialed.welcome.digest, ours: link.digest.clone() });
    }
    match link.parts.iter().find(|part| !dialed.welcome.parts.contains(part)) {
        Some(&part) => Err(Unusable::MissingPart(part)),
        None => Ok(dialed),
    }
}
