//! How a process joins the control plane.
//!
//! Nodes form a star: each dials the scheduler node and keeps dialing; where a topology has none, nodes only listen.
//! Operators dial any node. A connection is TCP with mutual TLS (without keys: loopback only, in the clear), then a
//! hello that binds name and generation to the certificate, then a ractor_cluster session in isolated mode. This
//! crate's own heartbeats decide who is alive, because ractor would notice a vanished machine after a quarter of an
//! hour and a stopped process never.
//!
//! # Reaching actors of another process
//!
//! Groups, never registered names: an actor that others may reach joins a process group whose name carries its node
//! (`rudder_messages::names`). Once a peer is up, its groups are known:
//!
//! ```ignore
//! let session = connect_operator(cluster, node).await?;
//! let responder = session.member::<ResponderMessage>(&responder_group(&name));
//! let answer = responder?.call(ResponderMessage::Tree, Some(timeout)).await?;
//! ```
//!
//! The message type decodes explicitly, as `rudder_messages::responder` does: what is malformed is a value.
//!
//! One process has one membership: ractor's tables are process-wide. Never log `ractor_cluster=debug`: it prints
//! payloads.
//!
//! Reading order: peer, heartbeat, transport, greet, pulse, keeper, listen, dial, start, operator, keys.

#![forbid(unsafe_code)]

mod peer;

pub mod heartbeat;

mod transport;

mod greet;
mod pulse;

mod keeper;

mod listen;

mod dial;

mod start;

mod operator;

pub mod keys;

pub use dial::DialError;
pub use greet::{GreetError, Refusal};
pub use operator::{OperatorError, OperatorSession, connect_operator, member};
pub use peer::{LostReason, Peer, PeerChange, PeerEvent, PeerTable};
pub use rudder_client::identity::PeerName;
pub use start::MembershipError;

use ractor::ActorCell;
use rudder_topology::{Cluster, Generation, NodeId};
use start::{Core, target};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

/// How a node joins.
pub struct MembershipConfig {
    pub cluster: Arc<Cluster>,
    pub node: NodeId,
    /// Must grow with every start of the node, such as the time of its start: peers refuse an older one.
    pub generation: Generation,
    /// Where the scheduler listens, if not where the topology says (its port may be 0 there).
    pub scheduler_address: Option<SocketAddr>,
    /// Who hears if the control plane fails; without one the process goes on without it.
    pub supervisor: Option<ActorCell>,
}

/// A node's membership: listens, dials the scheduler, watches peers.
pub struct Membership {
    core: Core,
    address: SocketAddr,
}

impl Membership {
    /// Returns when the node listens; peers come later.
    pub async fn start(config: MembershipConfig) -> Result<Membership, MembershipError> {
        let cluster = config.cluster;
        let (address, name) = target(&cluster, config.node, None)?;
        if cluster.keys.is_none() && !address.ip().is_loopback() {
            return Err(MembershipError::OpenWithoutKeys(address));
        }
        let failed = |source| MembershipError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let me = Peer { name, generation: config.generation };
        let core = Core::start(cluster.clone(), me, config.supervisor).await?;
        core.spawn(listen::accept(listener, core.gate.clone()));
        if let Some(scheduler) = cluster.scheduler().filter(|scheduler| scheduler.id != config.node) {
            let (address, name) = target(&cluster, scheduler.id, config.scheduler_address)?;
            if address.port() == 0 {
                tracing::warn!(scheduler = %name, "its control port is 0 in the topology, so it is not dialed");
            } else {
                core.spawn(dial::keep_dialing(core.gate.clone(), address, name));
            }
        }
        Ok(Membership { core, address })
    }

    /// Where the control plane listens.
    #[must_use]
    pub fn bound_address(&self) -> SocketAddr {
        self.address
    }

    /// The peers that are up, always the latest.
    #[must_use]
    pub fn peers(&self) -> watch::Receiver<PeerTable> {
        self.core.peers()
    }

    /// Every change from now on, after an `Up` for each peer that is up already.
    #[must_use]
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<PeerEvent> {
        self.core.subscribe()
    }

    /// Ends all connections and stops listening, within two seconds. Calling it again does nothing.
    pub async fn shutdown(&self) {
        self.core.shutdown().await;
    }
}
