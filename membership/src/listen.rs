//! The accept loop: every connection shakes hands on a task of its own, within a time limit, and only then reaches
//! ractor.

use crate::greet::{self, GreetError, Refusal};
use crate::heartbeat::{ConnectionId, Event};
use crate::keeper::{KeeperMessage, Offer};
use crate::peer::Peer;
use crate::transport::{BoxStream, Tls, certified_name, prepare};
use ractor::ActorRef;
use ractor::rpc::CallResult;
use rudder_client::identity::PeerName;
use rudder_topology::Cluster;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// TLS and hello together.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that shake hands at one time; more are dropped.
const HANDSHAKES_MAX: usize = 512;
/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The keeper answers within this, or is gone.
const KEEPER_TIMEOUT: Duration = Duration::from_secs(2);

/// What both accepting and dialing need.
pub(crate) struct Gate {
    pub(crate) me: Peer,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) tls: Option<Tls>,
    pub(crate) keeper: ActorRef<KeeperMessage>,
    pub(crate) silence: Duration,
}

impl Gate {
    fn knows(&self, name: &PeerName) -> bool {
        match name {
            PeerName::Operator => true,
            PeerName::Node(node) => *name != self.me.name && self.cluster.node_named(node).is_some(),
        }
    }

    pub(crate) async fn admit(&self, peer: &Peer) -> Result<Result<ConnectionId, Refusal>, GreetError> {
        let ask = |reply| KeeperMessage::Admit { peer: peer.clone(), reply };
        match self.keeper.call(ask, Some(KEEPER_TIMEOUT)).await {
            Ok(CallResult::Success(answer)) => Ok(answer),
            Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => Err(GreetError::Stopped),
        }
    }

    pub(crate) fn offer(&self, offer: Offer) -> Result<(), GreetError> {
        self.keeper.cast(KeeperMessage::Offer(offer)).map_err(|_| GreetError::Stopped)
    }

    async fn receive(&self, tcp: TcpStream) -> Result<(), GreetError> {
        let socket = prepare(&tcp, self.silence)?;
        let (mut stream, certified): (BoxStream, Option<PeerName>) = match &self.tls {
            Some(tls) => {
                let stream = tokio_rustls::TlsStream::Server(tls.acceptor.accept(tcp).await?);
                let name = certified_name(&stream)?;
                (Box::new(stream), Some(name))
            }
            None => (Box::new(tcp), None),
        };
        let peer = greet::hear(&mut stream, certified.as_ref(), |name| self.knows(name)).await?;
        let connection = match self.admit(&peer).await? {
            Ok(connection) => connection,
            Err(refusal) => return greet::refuse(&mut stream, refusal).await,
        };
        if let Err(error) = greet::welcome(&mut stream, &self.me).await {
            // Without the keeper there is nothing to give back.
            let _ = self.keeper.cast(KeeperMessage::Event(Event::Abandoned(connection)));
            return Err(error);
        }
        self.offer(Offer { connection, stream, socket, is_server: true, progress: None })
    }
}

/// Accepts until the task is aborted.
pub(crate) async fn accept(listener: TcpListener, gate: Arc<Gate>) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let (tcp, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: accepting again at once would only spin.
                tracing::warn!(%error, "cannot accept a control connection");
                tokio::time::sleep_until(Instant::now() + ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = handshakes.clone().try_acquire_owned() else {
            tracing::debug!(%from, "dropped: too many handshakes at one time");
            continue;
        };
        let gate = gate.clone();
        tokio::spawn(async move {
            let done = timeout(HANDSHAKE_TIMEOUT, gate.receive(tcp)).await;
            drop(permit);
            if let Err(error) = done.unwrap_or(Err(GreetError::Timeout)) {
                tracing::info!(%from, %error, "dropped a control connection");
            }
        });
    }
}
