//! Dialing: once, or for ever with back-off.

use crate::greet::{self, GreetError};
use crate::keeper::{Offer, Progress};
use crate::listen::{Gate, HANDSHAKE_TIMEOUT};
use crate::transport::{BoxStream, certified_name, prepare};
use rudder_client::identity::{IdentityError, PeerName, server_name};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// Why a peer could not be dialed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("cannot connect to {address}: {source}")]
    Connect { address: SocketAddr, source: std::io::Error },
    #[error("{address} did not answer within {} s", HANDSHAKE_TIMEOUT.as_secs())]
    Timeout { address: SocketAddr },
    #[error("{address}: {source}")]
    Greet { address: SocketAddr, source: GreetError },
    #[error(transparent)]
    Name(#[from] IdentityError),
    #[error("the control port of `{0}` is 0 in the topology, so its address is only in its ready line")]
    UnknownAddress(PeerName),
    #[error("{address}: the connection ended before it was ready")]
    NotReady { address: SocketAddr },
}

/// Connects, shakes hands, and gives the stream to the keeper. The channel says when it is ready and ends with it.
pub(crate) async fn dial(
    gate: &Gate,
    address: SocketAddr,
    peer: &PeerName,
) -> Result<mpsc::UnboundedReceiver<Progress>, DialError> {
    match timeout(HANDSHAKE_TIMEOUT, dial_unbounded(gate, address, peer)).await {
        Ok(result) => result,
        Err(_) => Err(DialError::Timeout { address }),
    }
}

async fn dial_unbounded(
    gate: &Gate,
    address: SocketAddr,
    expected: &PeerName,
) -> Result<mpsc::UnboundedReceiver<Progress>, DialError> {
    if address.port() == 0 {
        return Err(DialError::UnknownAddress(expected.clone()));
    }
    let tcp = TcpStream::connect(address).await.map_err(|source| DialError::Connect { address, source })?;
    let name = server_name(expected)?;
    let (progress, watched) = mpsc::unbounded_channel();
    let shake = async {
        let socket = prepare(&tcp, gate.silence)?;
        let mut stream: BoxStream = match &gate.tls {
            Some(tls) => {
                let stream = tokio_rustls::TlsStream::Client(tls.connector.connect(name, tcp).await?);
                let found = certified_name(&stream)?;
                if found != *expected {
                    return Err(GreetError::Unexpected { expected: expected.clone(), found });
                }
                Box::new(stream)
            }
            None => Box::new(tcp),
        };
        let peer = greet::greet(&mut stream, &gate.me, expected).await?;
        let connection = gate.admit(&peer).await?.map_err(GreetError::Refusing)?;
        gate.offer(Offer { connection, stream, socket, is_server: false, progress: Some(progress) })
    };
    shake.await.map_err(|source| DialError::Greet { address, source })?;
    Ok(watched)
}

/// Keeps one connection to `peer` until the task is aborted.
pub(crate) async fn keep_dialing(gate: Arc<Gate>, address: SocketAddr, peer: PeerName) {
    let mut backoff = Backoff::new(&gate.me.to_string());
    loop {
        match dial(&gate, address, &peer).await {
            Ok(mut progress) => {
                while let Some(Progress::Ready) = progress.recv().await {
                    backoff.reset();
                }
                tracing::info!(%peer, "connection ended, dialing again");
            }
            Err(error) => {
                // Once per outage, not once per attempt.
                if backoff.attempts() == 0 {
                    tracing::warn!(%peer, %error, "cannot reach it, trying on");
                } else {
                    tracing::debug!(%peer, %error, "cannot reach it, trying on");
                }
            }
        }
        tokio::time::sleep_until(Instant::now() + backoff.next_wait()).await;
    }
}

/// Waits double from 50 ms to 5 s. Half of each is spread by the process's own name, so that a thousand nodes do not
/// come back in one instant.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    spread: u64,
    attempts: u32,
}

const WAIT_MS_FIRST: u64 = 50;
const WAIT_MS_MAX: u64 = 5000;

impl Backoff {
    pub(crate) fn new(name: &str) -> Backoff {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Backoff { spread: hasher.finish(), attempts: 0 }
    }

    fn attempts(&self) -> u32 {
        self.attempts
    }

    fn reset(&mut self) {
        self.attempts = 0;
    }

    fn next_wait(&mut self) -> Duration {
        let full = WAIT_MS_FIRST.saturating_mul(1 << self.attempts.min(16)).min(WAIT_MS_MAX);
        let spread = self.spread.rotate_left(self.attempts) % (full / 2 + 1);
        self.attempts = self.attempts.saturating_add(1);
        Duration::from_millis(full - spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_start_anew() {
        let mut backoff = Backoff::new("c0:1");
        let waits: Vec<Duration> = (0..40).map(|_| backoff.next_wait()).collect();
        for (n, wait) in waits.iter().enumerate() {
            let full = (50u128 << n.min(20)).min(5000);
            assert!((full / 2..=full).contains(&wait.as_millis()), "{n}: {wait:?}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Duration::from_millis(50));
        assert_ne!(waits, (0..40).scan(Backoff::new("c1:1"), |b, _| Some(b.next_wait())).collect::<Vec<_>>());
    }
}
