//! Connections to storage nodes: dials, hands the session to the mover, dials again when it is lost. One task per
//! storage node and dataset, on the supervisor's side.

use crate::clock::NodeClock;
use crate::mailbox::Mailbox;
use rudder_client::handshake::{self, Dialed, HandshakeError, Hello, Security};
use rudder_dataplane::{ComputeHandle, PeerLost};
use rudder_messages::MoverMessage;
use rudder_policy::restart::Backoff;
use rudder_topology::{Nanos, NodeId, NodeName, PartId};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;

/// A storage node is dialed this long at most.
const DIAL_TIME_MAX: Duration = Duration::from_secs(3);
const RETRY_BASE: Nanos = Nanos::from_millis(50);
/// A storage node that comes back serves again well within two seconds.
const RETRY_MAX: Nanos = Nanos::from_millis(800);

/// A storage node as a compute node dials it for one dataset.
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
    handle: ComputeHandle,
    mover: Mailbox<MoverMessage>,
    mut lost: mpsc::UnboundedReceiver<PeerLost>,
    clock: NodeClock,
) {
    let mut backoff = Backoff::new(RETRY_BASE, RETRY_MAX, u64::from(link.node.0) ^ clock.now().0);
    loop {
        match dial(&link).await {
            Ok(dialed) => {
                backoff.reset();
                let generation = dialed.welcome.generation;
                if handle.attach(link.node, generation, dialed.stream, dialed.session).is_err() {
                    return;
                }
                tracing::info!(storage = %link.name, address = %link.address, "storage node connected");
                mover.send(MoverMessage::LinkUp { node: link.node, generation });
                let Some(loss) = lost.recv().await else { return };
                mover.send(MoverMessage::LinkDown { node: link.node });
                tracing::warn!(storage = %link.name, reason = %loss.reason, "storage node lost; dialing again");
            }
            Err(reason) if backoff.attempts() == 0 => {
                tracing::warn!(storage = %link.name, address = %link.address, %reason, "storage node cannot be used; trying again until it can");
            }
            Err(reason) => {
                tracing::debug!(storage = %link.name, address = %link.address, %reason, "storage node cannot be used");
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
