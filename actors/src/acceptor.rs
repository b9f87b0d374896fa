//! The data port of a storage node: takes connections in, lets them shake hands, hands them to the mover's thread.

use crate::worker::Work;
use rudder_client::handshake::{self, HandshakeError, Hello, Peer, Refusal, Security, Welcome};
use rudder_client::identity::PeerName;
use rudder_dataplane::{BlockFiles, StorageHandle};
use rudder_messages::AcceptorMessage;
use rudder_topology::{Bytes, Cluster, DatasetName, Storage};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// A peer has this long to say who it is.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(3);
/// Handshakes at a time; each holds a thread. Others are dropped, honest ones come again.
const HANDSHAKES_MAX: usize = 64;

/// What an acceptor works with, over all its lives.
#[derive(Debug)]
pub struct DataPort {
    pub handle: StorageHandle,
    pub security: Security,
    pub cluster: Arc<Cluster>,
    pub storage: Storage,
    handshakes: Arc<Semaphore>,
}

impl DataPort {
    #[must_use]
    pub fn new(handle: StorageHandle, security: Security, cluster: Arc<Cluster>, storage: Storage) -> Self {
        DataPort { handle, security, cluster, storage, handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)) }
    }

    /// Only nodes of the topology and the operator are welcome, whatever else a certificate may say.
    fn welcome(&self, hello: &Hello, peer: &Peer) -> Result<Welcome, Refusal> {
        match &peer.name {
            PeerName::Node(name) if self.cluster.node_named(name).is_none() => Err(Refusal::NotPermitted),
            _ => self.handle.welcome(hello, peer),
        }
    }
}

/// The actor's work.
pub struct Acceptor {
    port: Arc<DataPort>,
}

impl Acceptor {
    #[must_use]
    pub fn new(port: Arc<DataPort>) -> Self {
        Acceptor { port }
    }

    fn accepted(&self, stream: TcpStream) {
        let Ok(permit) = self.port.handshakes.clone().try_acquire_owned() else {
            tracing::warn!("too many handshakes at a time at the data port; a connection was dropped");
            return;
        };
        let port = self.port.clone();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let from =
                stream.peer_addr().map_or_else(|_| "unknown".to_owned(), |address| address.to_string());
            match handshake::accept(stream, &port.security, HANDSHAKE_TIME_MAX, |hello, peer| {
                port.welcome(hello, peer)
            }) {
                Ok((stream, session)) => {
                    tracing::info!(peer = %session.peer.name, dataset = %session.scope.dataset, %from, "data port: connected");
                    // A stopped mover closes the connection by dropping it.
                    let _ = port.handle.accept(stream, session);
                }
                // A compute node that waits for a push, or a probe: told often, and no news.
                Err(
                    error @ (HandshakeError::Closed
                    | HandshakeError::WasRefused(Refusal::UnknownDataset | Refusal::Stopping)),
                ) => tracing::debug!(%from, %error, "data port: no session"),
                Err(error) => tracing::warn!(%from, %error, "data port: a connection was refused"),
            }
        });
    }

    fn pushed(&self, dataset: DatasetName) {
        let port = self.port.clone();
        tokio::task::spawn_blocking(move || {
            let directory = port.storage.directory.join(dataset.as_str());
            match open(&directory, &port.storage) {
                Ok(files) => {
                    tracing::info!(%dataset, parts = files.parts().len(), "a pushed dataset is being served");
                    // A stopped mover serves nothing any more.
                    let _ = port.handle.serve(files);
                }
                Err(error) => tracing::error!(%dataset, %error, "a pushed dataset cannot be served"),
            }
        });
    }
}

/// Opens a dataset directory of this node.
pub fn open(
    directory: &std::path::Path,
    storage: &Storage,
) -> Result<BlockFiles, rudder_dataplane::OpenError> {
    let Storage { mode, hot_cache_bytes: Bytes(hot), .. } = storage;
    BlockFiles::open(directory, *mode, Bytes(*hot))
}

impl Work for Acceptor {
    type Item = AcceptorMessage;

    async fn handle(&mut self, message: AcceptorMessage) {
        match message {
            AcceptorMessage::Accepted(stream) => self.accepted(stream),
            AcceptorMessage::Pushed(dataset) => self.pushed(dataset),
            AcceptorMessage::Fault => panic!("a fault was asked for"),
        }
    }
}
