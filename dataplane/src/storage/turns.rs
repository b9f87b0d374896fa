//! Which waiting transfer is sent next, and when.

use super::connection::ConnectionId;
use super::main::{Server, Source, Work};
use super::serve;
use crate::backend::Io;
use crate::block_files::ReadMode;
use rudder_policy::pacing::NotBefore;
use rudder_policy::queue::Queued;
use rudder_topology::Nanos;
use std::rc::Rc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Payload bytes that may be read ahead of a connection's socket: one transfer on its way out and the next one ready.
/// More would only put prefetched bytes in front of a demand fetch.
const AHEAD_BYTES: u64 = 128 << 10;

impl<I: Io> Server<I> {
    /// Bytes of a transfer that have left for the socket, or never will.
    pub(super) fn sent_ahead(&self, id: ConnectionId, bytes: u64) {
        if let Some(connection) = self.connections.borrow_mut().get_mut(&id) {
            connection.ahead_bytes = connection.ahead_bytes.saturating_sub(bytes);
        }
        self.changed.notify_one();
    }

    pub(super) fn serve_what_may_go(self: &Rc<Self>, tasks: &mut JoinSet<()>) {
        while let Some(queued) = self.pop() {
            let Some(shelf) = self.shelf_of(queued.link) else { continue };
            match (queued.work.source, shelf.files().mode()) {
                (Source::Copies, _) => serve::copies(self, &shelf, &queued),
                (Source::Files, ReadMode::Memory) => serve::mapped(self, &shelf, &queued),
                (Source::Files, ReadMode::Direct) => {
                    tasks.spawn_local(serve::direct(self.clone(), shelf, queued));
                }
            }
        }
        self.count();
    }

    fn pop(&self) -> Option<Queued<ConnectionId, Work>> {
        let now = self.now();
        let mut connections = self.connections.borrow_mut();
        let next = self.queue.borrow_mut().pop(|queued| {
            connections.get_mut(&queued.link).is_some_and(|connection| {
                let paced =
                    connection.bucket.as_mut().map_or(Ok(()), |bucket| bucket.ready(queued.bytes, now));
                connection.ahead_bytes < AHEAD_BYTES && paced.is_ok()
            })
        })?;
        if let Some(connection) = connections.get_mut(&next.link) {
            connection.ahead_bytes += next.bytes.0;
            if let Some(bucket) = &mut connection.bucket {
                let taken = bucket.take(next.bytes, now);
                debug_assert!(taken.is_ok(), "it was ready a moment ago");
            }
        }
        Some(next)
    }

    /// When the rate limiters let the next waiting transfer go, or a relayed one has taken too long.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let now = self.now();
        let mut wake: Option<Nanos> = None;
        let mut connections = self.connections.borrow_mut();
        let nothing = self.queue.borrow_mut().pop(|queued| {
            if let Some(connection) = connections.get_mut(&queued.link)
                && connection.ahead_bytes < AHEAD_BYTES
                && let Some(bucket) = &mut connection.bucket
                && let Err(NotBefore(at)) = bucket.ready(queued.bytes, now)
            {
                wake = Some(wake.map_or(at, |other| other.min(at)));
            }
            false
        });
        debug_assert!(nothing.is_none());
        let shelves = self.shelves.borrow();
        let relays = shelves.values().filter_map(|shelf| shelf.upstream());
        let expiry = relays.filter_map(|upstream| upstream.relay.borrow().next_deadline()).min();
        let wake = wake.into_iter().chain(expiry).min();
        let wait = wake?.0.saturating_sub(now.0);
        // A link with a rate of zero waits for another rate, not for the end of time.
        (wait < u64::MAX / 2).then(|| Instant::now() + std::time::Duration::from_nanos(wait))
    }
}
