//! One direction of one connection through the relay.

use crate::relay::shaper::Shaper;
use rudder_topology::{Bytes, BytesPerSecond, Nanos};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A node's way out and way in, shared by all its connections.
#[derive(Debug)]
pub(super) struct Ways {
    out: Mutex<Shaper>,
    into: Mutex<Shaper>,
}

impl Ways {
    pub(super) fn new(rate: BytesPerSecond, burst: Bytes) -> Self {
        let shaper = || Mutex::new(Shaper::new(rate, burst));
        Ways { out: shaper(), into: shaper() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Pipe {
    pub from: Arc<Ways>,
    pub to: Arc<Ways>,
    pub latency: Nanos,
    pub chunk_bytes: usize,
    pub start: Instant,
}

/// Chunks that are on their way: enough for a second's latency at the chunk rate, and a bound on memory.
const ON_THE_WAY_MAX: usize = 256;

/// What a connection may have queued before its ways: several ticks of the timer, which would otherwise limit the
/// rate, and little enough that connections which share a way take turns.
const QUEUE: Duration = Duration::from_millis(5);

impl Pipe {
    /// Carries bytes until either side closes. A full way pushes back on the sender.
    pub(super) async fn carry(self, mut read: OwnedReadHalf, mut write: OwnedWriteHalf) {
        let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY_MAX);
        let reader = async move {
            let mut chunk = vec![0; self.chunk_bytes];
            while let Ok(bytes @ 1..) = read.read(&mut chunk).await {
                let left = self.accept(bytes);
                let due = left + Duration::from_nanos(self.latency.0);
                if sender.send((due, chunk[..bytes].to_vec())).await.is_err() {
                    break;
                }
                tokio::time::sleep_until(left.checked_sub(QUEUE).unwrap_or(left)).await;
            }
        };
        let writer = async move {
            while let Some((due, chunk)) = receiver.recv().await {
                tokio::time::sleep_until(due).await;
                if write.write_all(&chunk).await.is_err() {
                    break;
                }
            }
            let _ = write.shutdown().await;
        };
        tokio::join!(reader, writer);
    }

    /// When this many bytes have passed both ways.
    fn accept(&self, bytes: usize) -> Instant {
        let bytes = Bytes(bytes as u64);
        let now = Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let mut out = self.from.out.lock().unwrap_or_else(PoisonError::into_inner);
        let mut into = self.to.into.lock().unwrap_or_else(PoisonError::into_inner);
        let left = out.accept(bytes, now).max(into.accept(bytes, now));
        // A link without rate never delivers: a century is never.
        let left = Duration::from_nanos(left.0).min(Duration::from_secs(100 * 365 * 86_400));
        self.start + left
    }
}
