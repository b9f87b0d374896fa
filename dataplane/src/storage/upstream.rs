//! The way to the owners of what is relayed: sessions with them on this mover's own thread, and what its actor is told.

use super::connection::{self, ConnectionId};
use super::main::{Server, Source, Work};
use super::relay::{Act, Relay};
use super::serve::Shelf;
use super::staging::{OnOwner, Owner, OwnerEvent, RelayId, StagingConfig};
use crate::backend::Io;
use crate::block_files::BlockFiles;
use crate::cache_memory::{CacheMemory, CacheMemoryError, PageChoice};
use crate::compute::{Attachment, Counters, Mover, Table};
use crate::transfer::{Completion, PeerLost};
use rudder_client::frames::FailReason;
use rudder_policy::queue::Queued;
use rudder_topology::{Bytes, DatasetName, Nanos, NodeId, PartId};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What a dataset's sessions with owners say, in the order in which it happened.
#[derive(Debug)]
pub(super) enum Heard {
    Answered(RelayId, Completion),
    Lost(RelayId, PeerLost),
}

/// Relayed requests of one dataset as it is served now, and the sessions that carry them.
pub(super) struct Upstream {
    pub(super) id: RelayId,
    dataset: DatasetName,
    digest: String,
    pub(super) relay: RefCell<Relay>,
    mover: Rc<Mover>,
}

impl Upstream {
    /// `None` where nothing of the dataset is relayed.
    pub(super) fn new(
        id: RelayId,
        files: &BlockFiles,
        config: &StagingConfig,
        transfer_bytes_max: Bytes,
        counters: Arc<Counters>,
        heard: mpsc::UnboundedSender<Heard>,
    ) -> Result<Option<Self>, CacheMemoryError> {
        let owners = config.owners.get(files.dataset()).cloned().unwrap_or_default();
        if config.bytes_max == Bytes(0) || owners.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        let book = files.book().clone();
        // All rows come back with the completion: no slots.
        let nothing = Arc::new(CacheMemory::create_chunks(&[], PageChoice::Normal)?);
        let table = Table::new(nothing, book.clone(), transfer_bytes_max, counters);
        let lost = heard.clone();
        // Whoever listens is this very thread: when it is gone, so is the mover.
        let mover = Mover::new(
            table,
            config.peer_timeout,
            Box::new(move |completion| drop(heard.send(Heard::Answered(id, completion)))),
            Box::new(move |peer| drop(lost.send(Heard::Lost(id, peer)))),
        );
        let time_out = Nanos(u64::try_from(config.request_timeout.as_nanos()).unwrap_or(u64::MAX));
        let relay = RefCell::new(Relay::new(book, owners, config.bytes_max, time_out));
        let (dataset, digest) = (files.dataset().clone(), files.digest().to_owned());
        Ok(Some(Upstream { id, dataset, digest, relay, mover }))
    }

    pub(super) fn relays(&self, part: PartId) -> bool {
        self.relay.borrow().relays(part)
    }

    fn owner(&self, node: NodeId) -> Owner {
        Owner {
            relay: self.id,
            node,
            dataset: self.dataset.clone(),
            digest: self.digest.clone(),
            parts: self.relay.borrow().parts_of(node),
        }
    }

    /// Ends all sessions.
    pub(super) fn detach_all(&self) {
        self.mover.detach_all();
    }
}

impl<I: Io> Server<I> {
    pub(super) fn upstream_of(&self, files: &BlockFiles) -> Option<Upstream> {
        let config = self.config.staging.as_ref()?;
        let id = RelayId(self.next_relay.get());
        self.next_relay.set(id.0 + 1);
        let counters = self.counters.upstream.clone();
        let bytes_max = self.config.transfer_bytes_max;
        match Upstream::new(id, files, config, bytes_max, counters, self.heard.clone()) {
            Ok(upstream) => upstream,
            Err(error) => {
                tracing::error!(dataset = %files.dataset(), %error, "blocks of other nodes are not served");
                None
            }
        }
    }

    fn relaying(&self, id: RelayId) -> Option<Rc<Shelf<I>>> {
        let shelves = self.shelves.borrow();
        shelves.values().find(|shelf| shelf.upstream().is_some_and(|upstream| upstream.id == id)).cloned()
    }

    /// Takes a checked request for blocks of other nodes.
    pub(super) fn relay(&self, upstream: &Upstream, queued: Queued<ConnectionId, Work>) {
        let Queued { link, transfer, class, bytes, work } = queued;
        let asked = upstream.relay.borrow_mut().ask((link, transfer), class, bytes, work.items, self.now());
        match asked {
            Ok(acts) => self.act(upstream, acts),
            Err(reason) => connection::fail(self, link, transfer, 0, reason),
        }
        self.changed.notify_one();
    }

    fn act(&self, upstream: &Upstream, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Enqueue { request: (link, transfer), class, bytes, items } => {
                    let work = Work { items, source: Source::Copies };
                    self.enqueue(Queued { link, transfer, class, bytes, work });
                }
                Act::Fail { request: (link, transfer), item, reason } => {
                    connection::fail(self, link, transfer, item, reason);
                }
                Act::Dial(node) => self.tell(OwnerEvent::Wanted(upstream.owner(node))),
                Act::Submit(request) => upstream.mover.submit(request),
                Act::Cancel(transfer) => upstream.mover.cancel(transfer),
            }
        }
    }

    fn tell(&self, event: OwnerEvent) {
        if let Some(StagingConfig { on_owner: OnOwner(tell), .. }) = &self.config.staging {
            tell(event);
        }
    }

    pub(super) fn heard(&self, heard: Heard) {
        match heard {
            Heard::Answered(id, completion) => {
                self.with_relay(id, |relay| {
                    if completion.result.is_ok() {
                        let rows = relay.rows_of(completion.transfer);
                        self.counters.rows_relayed.fetch_add(rows, Relaxed);
                    }
                    relay.answered(completion)
                });
            }
            Heard::Lost(id, lost) => {
                if self.with_relay(id, |relay| relay.connected(lost.node, false)) {
                    self.tell(OwnerEvent::Lost(id, lost));
                }
            }
        }
    }

    fn with_relay(&self, id: RelayId, change: impl FnOnce(&mut Relay) -> Vec<Act>) -> bool {
        let shelf = self.relaying(id);
        let Some(upstream) = shelf.as_deref().and_then(Shelf::upstream) else { return false };
        let acts = change(&mut upstream.relay.borrow_mut());
        self.act(upstream, acts);
        true
    }

    pub(super) fn owner_up(&self, id: RelayId, session: Attachment, tasks: &mut JoinSet<()>) {
        let shelf = self.relaying(id);
        let Some(upstream) = shelf.as_deref().and_then(Shelf::upstream) else { return };
        let node = session.node;
        upstream.mover.attach(session, &self.io, tasks);
        self.with_relay(id, |relay| relay.connected(node, true));
    }

    pub(super) fn owner_down(&self, id: RelayId, node: NodeId) {
        self.with_relay(id, |relay| relay.connected(node, false));
    }

    /// Gives up what has taken too long.
    pub(super) fn expire(&self) {
        let now = self.now();
        let is_due =
            |upstream: &Upstream| upstream.relay.borrow().next_deadline().is_some_and(|at| at <= now);
        let due = |shelf: &&Rc<Shelf<I>>| shelf.upstream().is_some_and(is_due);
        let due: Vec<_> = self.shelves.borrow().values().filter(due).cloned().collect();
        for upstream in due.iter().filter_map(|shelf| shelf.upstream()) {
            let acts = upstream.relay.borrow_mut().expire(now);
            self.act(upstream, acts);
        }
    }

    /// A dataset that is served anew: what was asked of the former one fails, its copies go.
    pub(super) fn retire(&self, upstream: &Upstream) {
        let over = upstream.relay.borrow_mut().clear();
        for (link, transfer) in over {
            self.queue.borrow_mut().cancel(link, transfer);
            connection::fail(self, link, transfer, 0, FailReason::Upstream);
        }
        upstream.detach_all();
        self.tell(OwnerEvent::Ended(upstream.id));
    }
}
