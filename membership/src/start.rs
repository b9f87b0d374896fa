//! What nodes and operators share: identity, keeper, gate, orderly end.

use crate::keeper::{Keeper, KeeperMessage};
use crate::listen::Gate;
use crate::peer::{Peer, PeerEvent, PeerTable};
use crate::transport::Tls;
use ractor::{Actor, ActorCell, ActorRef, SpawnErr};
use rudder_client::identity::{Identity, IdentityError, PeerName};
use rudder_topology::{Cluster, NodeId};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Each step of a shutdown takes at most this.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Why the process is not a member.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the topology has no node {0}")]
    UnknownNode(NodeId),
    #[error("{0} is not loopback and there are no keys; run `rudder keys init` or bind 127.0.0.1")]
    OpenWithoutKeys(SocketAddr),
    #[error("cannot listen at {address} for the control plane: {source}{}", hint(source))]
    Bind { address: SocketAddr, source: std::io::Error },
    #[error("the control plane did not start: {0}")]
    Start(#[from] SpawnErr),
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "; another process has this port: stop it, or choose another `control` address"
        }
        _ => "",
    }
}

/// The running part. Ends with `shutdown`, or abruptly when dropped.
pub(crate) struct Core {
    pub(crate) gate: Arc<Gate>,
    table: watch::Receiver<PeerTable>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Core {
    pub(crate) async fn start(
        cluster: Arc<Cluster>,
        me: Peer,
        supervisor: Option<ActorCell>,
    ) -> Result<Core, MembershipError> {
        let tls = match &cluster.keys {
            Some(directory) => Some(Tls::new(&Identity::load(directory, &me.name)?)?),
            None => None,
        };
        let timeout = cluster.limits.heartbeat_timeout;
        let (sender, table) = watch::channel(PeerTable::new());
        let keeper = Keeper { me: me.clone(), timeout, table: sender };
        let (keeper, _) = match supervisor {
            Some(supervisor) => Actor::spawn_linked(None, keeper, (), supervisor).await?,
            None => Actor::spawn(None, keeper, ()).await?,
        };
        let silence = Duration::from_nanos(timeout.0);
        let gate = Arc::new(Gate { me, cluster, tls, keeper, silence });
        Ok(Core { gate, table, tasks: Mutex::new(Vec::new()) })
    }

    pub(crate) fn keeper(&self) -> &ActorRef<KeeperMessage> {
        &self.gate.keeper
    }

    /// A task that ends with the membership.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(tokio::spawn(task));
    }

    pub(crate) fn peers(&self) -> watch::Receiver<PeerTable> {
        self.table.clone()
    }

    pub(crate) fn subscribe(&self) -> mpsc::UnboundedReceiver<PeerEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        // Without a keeper the sender is dropped, which ends the receiver.
        let _ = self.keeper().cast(KeeperMessage::Subscribe(sender));
        receiver
    }

    fn abort_tasks(&self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }

    pub(crate) async fn shutdown(&self) {
        self.abort_tasks();
        // A keeper that is gone or stuck is killed below; both calls are bounded.
        let _ = self.keeper().call(KeeperMessage::Stop, Some(STOP_TIMEOUT)).await;
        if self.keeper().stop_and_wait(None, Some(STOP_TIMEOUT)).await.is_err() {
            self.keeper().kill();
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.abort_tasks();
        self.keeper().stop(None);
    }
}

/// The address and name to dial a node by; `stated` goes before the topology's.
pub(crate) fn target(
    cluster: &Cluster,
    node: NodeId,
    stated: Option<SocketAddr>,
) -> Result<(SocketAddr, PeerName), MembershipError> {
    let node = cluster.nodes.get(node.index()).ok_or(MembershipError::UnknownNode(node))?;
    Ok((stated.unwrap_or(node.control_address), PeerName::Node(node.name.clone())))
}
