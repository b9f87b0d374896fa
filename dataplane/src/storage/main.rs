//! The thread of a storage mover: takes connections, and decides what is served next.

use super::connection::{self, ConnectionId, Reply};
use super::serve::Shelf;
use super::upstream::{Heard, Upstream};
use super::{Command, Counters, StorageConfig, push};
use crate::backend::{Io, ThreadMain};
use crate::block_files::BlockFiles;
use rudder_client::handshake::{Scope, Session, Verbs};
use rudder_client::identity::PeerName;
use rudder_graph::BlockRows;
use rudder_policy::pacing::TokenBucket;
use rudder_policy::queue::{ClassQueue, QUANTUM, Queued};
use rudder_topology::{Bytes, BytesPerSecond, DatasetName, Nanos, NodeName, TransferId};
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
    pub(super) shelves: RefCell<HashMap<DatasetName, Rc<Shelf<I>>>>,
    pub(super) connections: RefCell<HashMap<ConnectionId, Connection>>,
    pub(super) queue: RefCell<ClassQueue<ConnectionId, Work>>,
    rates: RefCell<HashMap<NodeName, Option<BytesPerSecond>>>,
    /// Something changed that may let the next transfer go.
    pub(super) changed: Notify,
    start: Instant,
    next_connection: Cell<u64>,
    /// What sessions with owners say.
    pub(super) heard: mpsc::UnboundedSender<Heard>,
    pub(super) next_relay: Cell<u64>,
    spare: RefCell<Vec<Vec<u8>>>,
}

pub(super) struct Connection {
    peer: PeerName,
    pub(super) scope: Scope,
    replies: mpsc::UnboundedSender<Reply>,
    close: Box<dyn Fn()>,
    pub(super) bucket: Option<TokenBucket>,
    /// Payload bytes between queue and socket.
    pub(super) ahead_bytes: u64,
    /// Frames without rows that wait to be sent: rows are bounded by `ahead_bytes`, these by their number.
    short_waiting: u32,
}

/// An authorised, checked Fetch.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) items: Vec<BlockRows>,
    pub(super) source: Source,
}

/// Where the rows of a Fetch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Files,
    /// Other nodes' blocks.
    Copies,
}

impl ThreadMain for Main {
    async fn run<I: Io>(self, io: I) {
        let Main { mut config, mut commands, counters } = self;
        let quantum = config.transfer_bytes_max.min(QUANTUM);
        let datasets = std::mem::take(&mut config.datasets);
        let (hear, mut heard) = mpsc::unbounded_channel();
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
            heard: hear,
            next_relay: Cell::new(0),
            spare: RefCell::default(),
        });
        for files in datasets {
            server.shelve(files);
        }
        let mut tasks = JoinSet::new();
        loop {
            server.expire();
            server.serve_what_may_go(&mut tasks);
            let wake = server.next_wake();
            tokio::select! {
                command = commands.recv() => match command {
                    None | Some(Command::Stop) => break,
                    Some(command) => server.command(command, &mut tasks),
                },
                Some(heard) = heard.recv() => server.heard(heard),
                () = server.changed.notified() => {}
                Some(ended) = tasks.join_next() => drop(ended),
                () = sleep_until(wake) => {}
            }
        }
        commands.close();
        for connection in server.connections.borrow().values() {
            (connection.close)();
        }
        server.shelves.borrow().values().filter_map(|shelf| shelf.upstream()).for_each(Upstream::detach_all);
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
            Command::OwnerUp(relay, session) => self.owner_up(relay, *session, tasks),
            Command::OwnerDown(relay, node) => self.owner_down(relay, node),
            Command::Stop => {}
        }
    }

    fn shelve(&self, files: BlockFiles) {
        let name = files.dataset().clone();
        let upstream = self.upstream_of(&files);
        match Shelf::new(files, upstream, &self.io, self.counters.clone()) {
            Ok(shelf) => {
                let shelf = Rc::new(shelf);
                let former = self.shelves.borrow_mut().insert(name, shelf.clone());
                if let Some(former) = former {
                    self.replaced(&former, &shelf);
                }
            }
            Err(error) => tracing::error!(dataset = %name, %error, "cannot serve the dataset"),
        }
    }

    /// A dataset was pushed anew. Sessions of another version of it end: their peers dial again, and learn of it.
    fn replaced(&self, former: &Shelf<I>, shelf: &Shelf<I>) {
        if let Some(upstream) = former.upstream() {
            self.retire(upstream);
        }
        if former.files().digest() != shelf.files().digest() {
            let connections = self.connections.borrow();
            let of_it = |connection: &&Connection| connection.scope.dataset == *shelf.files().dataset();
            connections.values().filter(of_it).for_each(|connection| (connection.close)());
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
        if let Some(upstream) = self.shelf_of(id).as_deref().and_then(Shelf::upstream) {
            upstream.relay.borrow_mut().end_connection(id);
        }
        if let Some(connection) = self.connections.borrow_mut().remove(&id) {
            (connection.close)();
        }
        self.queue.borrow_mut().remove_link(id);
        self.count();
        self.changed.notify_one();
    }

    pub(super) fn count(&self) {
        let queue = self.queue.borrow();
        let (mut queued, mut queued_bytes) = (queue.len() as u64, queue.bytes().0);
        let (mut blocks, mut bytes) = (0, 0);
        for upstream in self.shelves.borrow().values().filter_map(|shelf| shelf.upstream()) {
            let relay = upstream.relay.borrow();
            let (waiting, waiting_bytes) = relay.waiting();
            (queued, queued_bytes) = (queued + waiting, queued_bytes + waiting_bytes);
            (blocks, bytes) = (blocks + relay.blocks(), bytes + relay.bytes());
        }
        self.counters.queued.store(queued, Relaxed);
        self.counters.queued_bytes.store(queued_bytes, Relaxed);
        self.counters.staged_blocks.store(blocks, Relaxed);
        self.counters.staged_bytes.store(bytes, Relaxed);
        self.counters.connections.store(self.connections.borrow().len() as u64, Relaxed);
    }

    pub(super) fn shelf(&self, dataset: &DatasetName) -> Option<Rc<Shelf<I>>> {
        self.shelves.borrow().get(dataset).cloned()
    }

    /// What a connection is about.
    pub(super) fn shelf_of(&self, id: ConnectionId) -> Option<Rc<Shelf<I>>> {
        self.shelf(&self.connections.borrow().get(&id)?.scope.dataset)
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

    /// Payload bytes that a connection has asked for and that are not on their way to it.
    pub(super) fn queued_bytes(&self, id: ConnectionId, shelf: &Shelf<I>) -> Bytes {
        let relayed = shelf.upstream().map_or(0, |upstream| upstream.relay.borrow().waiting_bytes(id));
        Bytes(self.queue.borrow().link_bytes(id).0 + relayed)
    }

    pub(super) fn enqueue(&self, queued: Queued<ConnectionId, Work>) {
        self.queue.borrow_mut().push(queued);
        self.count();
        self.changed.notify_one();
    }

    pub(super) fn cancel(&self, id: ConnectionId, transfer: TransferId) {
        self.queue.borrow_mut().cancel(id, transfer);
        if let Some(upstream) = self.shelf_of(id).as_deref().and_then(Shelf::upstream) {
            upstream.relay.borrow_mut().end((id, transfer));
        }
        self.count();
    }
}
