//! The gateway: trainers connect to a Unix socket; each gets a task of its own, which outlives the actor.
//!
//! ```text
//! accept task --Accepted--> gateway actor --spawns--> connection task <--frames--> trainer
//!                                                        | announce, want, release (acknowledged)
//!                                                        v
//!                                                     predictor .. validator, mover --ready--> outbox
//! ```

pub mod connection;
pub mod descriptors;
pub mod listener;

use crate::dataset::Dataset;
use crate::worker::Work;
use rudder_messages::GatewayMessage;
use rudder_topology::{DatasetName, Generation};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, watch};

/// Trainers that may be connected at a time.
pub const CONNECTIONS_MAX: usize = 1024;

/// What connections work with. Lives on the supervisor's side.
pub struct Gate {
    pub generation: Generation,
    pub datasets: HashMap<DatasetName, Arc<Dataset>>,
    /// Becomes `true` when the node stops.
    pub stopping: watch::Receiver<bool>,
    connections: Arc<Semaphore>,
}

impl Gate {
    #[must_use]
    pub fn new(
        generation: Generation,
        datasets: HashMap<DatasetName, Arc<Dataset>>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Gate { generation, datasets, stopping, connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }
}

/// The actor's work.
pub struct Gateway {
    gate: Arc<Gate>,
}

impl Gateway {
    #[must_use]
    pub fn new(gate: Arc<Gate>) -> Self {
        Gateway { gate }
    }

    fn accepted(&self, socket: OwnedFd) {
        let Ok(permit) = self.gate.connections.clone().try_acquire_owned() else {
            tracing::warn!("{CONNECTIONS_MAX} trainers are connected; one more was turned away");
            return;
        };
        let stream = std::os::unix::net::UnixStream::from(socket);
        let stream = match stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a trainer's socket cannot be used");
                return;
            }
        };
        let gate = self.gate.clone();
        tokio::spawn(async move {
            let _permit = permit;
            connection::serve(stream, &gate).await;
        });
    }
}

impl Work for Gateway {
    type Item = GatewayMessage;

    async fn handle(&mut self, message: GatewayMessage) {
        match message {
            GatewayMessage::Accepted(socket) => self.accepted(socket),
            GatewayMessage::Fault => panic!("a fault was asked for"),
        }
    }
}
