//! The thread of a storage mover: takes connections, and decides what is served next.

use super::connection::{self, ConnectionId, Reply};
use super::serve::{self, Shelf};
use super::{Command, Counters, StorageConfig, push};
use crate::backend::{Io, ThreadMain};
use crate::block_files::BlockFiles;
use rudder_client::handshake::{Scope, Session, Verbs};
use rudder_client::identity::PeerName;
use rudder_graph::BlockRows;
use rudder_policy::pacing::{NotBefore, TokenBucket};
use rudder_policy::queue::{ClassQueue, QUANTUM, Queued};
use rudder_topology::{Bytes, BytesPerSecond, DatasetName, Nanos, NodeName};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(super) struct Main {
    pub(super) config: StorageConfig,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) counters: Arc<Counters>,
}

/// Payload bytes that may be read ahead of a connection's socket: one transfer on its way out and the next one ready.
/// More would only put prefetched bytes in front of a demand fetch.
const AHEAD_BYTES: u64 = 128 << 10;
/// What the rate limiter lets through at once.
const BURST: Bytes = Bytes(64 << 10);

/// Refusals and pongs that may wait for one connection.
const SHORT_REPLIES_MAX: u32 = 4096;
/// Frame buffers that are kept for the next frames.
const SPARE_BUFFERS: usize = 8;

/// What all tasks of the thread share.
pub(super) struct Server<I: Io> {
    pub(super) io: I,
    pub(super) config: StorageConfig,
    pub(super) counters: Arc<Counters>,
    shelves: RefCell<HashMap<DatasetName, Rc<Shelf<I>>>>,
    connections: RefCell<HashMap<ConnectionId, Connection>>,
    queue: RefCell<ClassQueue<ConnectionId, Work>>,
    rates: RefCell<HashMap<NodeName, Option<BytesPerSecond>>>,
    /// Something changed that may let the next transfer go.
    changed: Notify,
    start: Instant,
    next_connection: Cell<u64>,
    spare: RefCell<Vec<Vec<u8>>>,
}

struct Connection {
    peer: PeerName,
    scope: Scope,
    replies: mpsc::UnboundedSender<Reply>,
    close: Box<dyn Fn()>,
    bucket: Option<TokenBucket>,
    /// Payload bytes between queue and socket.
    ahead_bytes: u64,
    /// Frames without rows that wait to be sent: rows are bounded by `ahead_bytes`, these by their number.
    short_waiting: u32,
}

/// An authorised, checked Fetch.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) items: Vec<BlockRows>,
}

impl ThreadMain for Main {
    async fn run<I: Io>(self, io: I) {
        let Main { mut config, mut commands, counters } = self;
        let quantum = config.transfer_bytes_max.min(QUANTUM);
        let datasets = std::mem::take(&mut config.datasets);
        let server = Rc::new(Server {
            io,
            config,
            counters,
            shelves: RefCell::default(),
            connections: RefCell::default(),
            queue: RefCell::new(ClassQueue::new(quantum)),
            rates: RefCell::default(),
            changed: Notify::new(),
            start: Instant::now(),
            next_connection: Cell::new(0),
            spare: RefCell::default(),
        });
        for files in datasets {
            server.shelve(files);
        }
        let mut tasks = JoinSet::new();
        loop {
            server.serve_what_may_go(&mut tasks);
            let wake = server.next_wake();
            tokio::select! {
                command = commands.recv() => match command {
                    None | Some(Command::Stop) => break,
                    Some(command) => server.command(command, &mut tasks),
                },
                () = server.changed.notified() => {}
                Some(ended) = tasks.join_next() => drop(ended),
                () = sleep_until(wake) => {}
            }
        }
        commands.close();
        for connection in server.connections.borrow().values() {
            (connection.close)();
        }
        while tasks.join_next().await.is_some() {}
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl<I: Io> Server<I> {
    fn command(self: &Rc<Self>, command: Command, tasks: &mut JoinSet<()>) {
        match command {
            Command::Accept(accepted) => {
                let (stream, session) = *accepted;
                self.accept(stream, session, tasks);
            }
            Command::Serve(files) => self.shelve(*files),
            Command::Pace { peer, rate } => self.pace(peer, rate),
            Command::Stop => {}
        }
    }

    fn shelve(&self, files: BlockFiles) {
        let name = files.dataset().clone();
        match Shelf::new(files, &self.io, self.counters.clone()) {
            Ok(shelf) => {
                self.shelves.borrow_mut().insert(name, Rc::new(shelf));
            }
            Err(error) => tracing::error!(dataset = %name, %error, "cannot serve the dataset"),
        }
    }

    fn pace(&self, peer: NodeName, rate: Option<BytesPerSecond>) {
        let now = self.now();
        for connection in self.connections.borrow_mut().values_mut() {
            if connection.peer != PeerName::Node(peer.clone()) {
                continue;
            }
            match (&mut connection.bucket, rate) {
                (Some(bucket), Some(rate)) => bucket.set_rate(rate, now),
                (bucket, rate) => *bucket = rate.map(|rate| TokenBucket::new(rate, BURST, now)),
            }
        }
        self.rates.borrow_mut().insert(peer, rate);
        self.changed.notify_one();
    }

    /// A frame buffer, used before where there is one.
    pub(super) fn spare(&self) -> Vec<u8> {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn recycle(&self, buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_BUFFERS {
            spare.push(buffer);
        }
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn accept(self: &Rc<Self>, stream: TcpStream, session: Session, tasks: &mut JoinSet<()>) {
        if session.scope.verbs.permits(Verbs::PUSH) {
            return push::start(
                self.config.directory.clone(),
                self.config.on_pushed.clone(),
                stream,
                session,
            );
        }
        if self.connections.borrow().len() >= self.config.connections_max {
            tracing::warn!(peer = %session.peer.name, "refused: as many connections as are taken");
            return;
        }
        if let Err(error) = self.open(stream, session, tasks) {
            tracing::warn!(%error, "cannot use an accepted connection");
        }
    }

    fn open(
        self: &Rc<Self>,
        stream: TcpStream,
        session: Session,
        tasks: &mut JoinSet<()>,
    ) -> std::io::Result<()> {
        connection::tune(&stream)?;
        let wire = self.io.wire(stream)?;
        let number = self.next_connection.get();
        self.next_connection.set(number + 1);
        let id = ConnectionId(number);
        let rate = match &session.peer.name {
            PeerName::Node(name) => self.rates.borrow().get(name).copied(),
            PeerName::Operator => None,
        };
        let rate = rate.unwrap_or(self.config.link_rate_max);
        let (replies, to_send) = mpsc::unbounded_channel();
        let closer = wire.clone();
        let connection = Connection {
            peer: session.peer.name.clone(),
            scope: session.scope.clone(),
            replies,
            close: Box::new(move || crate::backend::Wire::shutdown(&closer)),
            bucket: rate.map(|rate| TokenBucket::new(rate, BURST, self.now())),
            ahead_bytes: 0,
            short_waiting: 0,
        };
        self.connections.borrow_mut().insert(id, connection);
        self.count();
        tasks.spawn_local(connection::run(self.clone(), id, wire, session, to_send));
        Ok(())
    }

    /// Forgets a connection: what it asked for is not served any more.
    pub(super) fn close(&self, id: ConnectionId) {
        if let Some(connection) = self.connections.borrow_mut().remove(&id) {
            (connection.close)();
        }
        self.queue.borrow_mut().remove_link(id);
        self.count();
        self.changed.notify_one();
    }

    fn count(&self) {
        let queue = self.queue.borrow();
        self.counters.queued.store(queue.len() as u64, Relaxed);
        self.counters.queued_bytes.store(queue.bytes().0, Relaxed);
        self.counters.connections.store(self.connections.borrow().len() as u64, Relaxed);
    }

    pub(super) fn shelf(&self, dataset: &DatasetName) -> Option<Rc<Shelf<I>>> {
        self.shelves.borrow().get(dataset).cloned()
    }

    pub(super) fn reply(&self, id: ConnectionId, reply: Reply) {
        let mut connections = self.connections.borrow_mut();
        let Some(connection) = connections.get_mut(&id) else { return };
        connection.short_waiting += u32::from(matches!(reply, Reply::Short(_)));
        // A writer that is gone takes its connection with it soon.
        let _ = connection.replies.send(reply);
        if connection.short_waiting > SHORT_REPLIES_MAX {
            tracing::warn!(peer = %connection.peer, "asks and does not read the answers: dropped");
            (connection.close)();
        }
    }

    pub(super) fn short_sent(&self, id: ConnectionId) {
        if let Some(connection) = self.connections.borrow_mut().get_mut(&id) {
            connection.short_waiting -= 1;
        }
    }

    pub(super) fn queued_bytes(&self, id: ConnectionId) -> Bytes {
        self.queue.borrow().link_bytes(id)
    }

    pub(super) fn enqueue(&self, queued: Queued<ConnectionId, Work>) {
        self.queue.borrow_mut().push(queued);
        self.count();
        self.changed.notify_one();
    }

    pub(super) fn cancel(&self, id: ConnectionId, transfer: rudder_topology::TransferId) {
        self.queue.borrow_mut().cancel(id, transfer);
        self.count();
    }

    /// Bytes of a transfer that have left for the socket, or never will.
    pub(super) fn sent_ahead(&self, id: ConnectionId, bytes: u64) {
        if let Some(connection) = self.connections.borrow_mut().get_mut(&id) {
            connection.ahead_bytes = connection.ahead_bytes.saturating_sub(bytes);
        }
        self.changed.notify_one();
    }

    fn serve_what_may_go(self: &Rc<Self>, tasks: &mut JoinSet<()>) {
        while let Some(queued) = self.pop() {
            let dataset = self
                .connections
                .borrow()
                .get(&queued.link)
                .map(|connection| connection.scope.dataset.clone());
            let Some(shelf) = dataset.and_then(|dataset| self.shelf(&dataset)) else { continue };
            match serve::mapped(self, &shelf, queued) {
                None => {}
                Some(queued) => {
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

    /// When the rate limiters let the next waiting transfer go.
    fn next_wake(&self) -> Option<Instant> {
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
        let wait = wake?.0.saturating_sub(now.0);
        // A link with a rate of zero waits for another rate, not for the end of time.
        (wait < u64::MAX / 2).then(|| Instant::now() + std::time::Duration::from_nanos(wait))
    }
}
