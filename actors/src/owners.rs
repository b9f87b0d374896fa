//! Connections of a storage node to owners of what it relays. One is made when the mover first wants it, and kept from
//! then on as compute nodes keep theirs.

use crate::clock::NodeClock;
use crate::links::{self, Dialer, LinkEnd};
use rudder_client::handshake::Dialed;
use rudder_dataplane::{Owner, OwnerEvent, PeerLost, RelayId, Stopped, StorageHandle};
use rudder_topology::NodeId;
use std::collections::HashMap;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// A storage node's end of a link.
struct OwnerEnd {
    handle: StorageHandle,
    relay: RelayId,
}

impl LinkEnd for OwnerEnd {
    fn up(&self, node: NodeId, dialed: Dialed) -> Result<(), Stopped> {
        self.handle.owner_up(self.relay, node, dialed.welcome.generation, dialed.stream, dialed.session)
    }

    /// The mover was the first to know.
    fn down(&self, _: NodeId) {}

    fn unreachable(&self, node: NodeId) {
        // A mover that has stopped waits for nobody.
        let _ = self.handle.owner_down(self.relay, node);
    }
}

/// A link that is kept.
struct Kept {
    lost: mpsc::UnboundedSender<PeerLost>,
    task: AbortHandle,
}

/// Keeps the connections that the mover wants, until its task is aborted.
pub async fn keep(
    mut events: mpsc::UnboundedReceiver<OwnerEvent>,
    dialer: Dialer,
    handle: StorageHandle,
    clock: NodeClock,
) {
    let mut tasks = JoinSet::new();
    let mut kept: HashMap<(RelayId, NodeId), Kept> = HashMap::new();
    while let Some(event) = events.recv().await {
        while tasks.try_join_next().is_some() {}
        match event {
            OwnerEvent::Wanted(Owner { relay, node, dataset, digest, parts }) => {
                let end = OwnerEnd { handle: handle.clone(), relay };
                match dialer.link(node, dataset, digest, parts) {
                    Ok(link) => {
                        let (lost, losses) = mpsc::unbounded_channel();
                        let task = tasks.spawn(links::keep(link, end, losses, clock));
                        kept.insert((relay, node), Kept { lost, task });
                    }
                    Err(name) => {
                        tracing::error!(owner = %name, "a storage node without a data port");
                        end.unreachable(node);
                    }
                }
            }
            OwnerEvent::Lost(relay, lost) => {
                if let Some(link) = kept.get(&(relay, lost.node)) {
                    // A task that has ended has found the mover stopped.
                    let _ = link.lost.send(lost);
                }
            }
            OwnerEvent::Ended(relay) => kept.retain(|&(of, _), link| {
                let stays = of != relay;
                if !stays {
                    link.task.abort();
                }
                stays
            }),
        }
    }
}
