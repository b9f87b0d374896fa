//! The storage mover: serves rows of the node's parts to compute nodes.
//!
//! One thread reads and sends. Requests wait in one class queue (demand ahead of prefetch, fair over connections in
//! bytes), so that what is sent next is decided as late as possible: little is read ahead of a connection's socket.
//! Pushes of datasets are the operator's and rare; each runs on a thread of its own.

//!
//! Blocks of other nodes are relayed ([`StagingConfig`]): asked of an owner on the same thread, kept, and then served as
//! own ones are.

mod connection;
mod main;
mod owners;
mod push;
mod relay;
mod serve;
mod staging;
mod turns;
mod upstream;

pub use staging::{OnOwner, Owner, OwnerEvent, RelayId, StagingConfig};

use crate::backend::{Backend, BackendChoice, MoverThread, StartError, StopTimeout};
use crate::block_files::BlockFiles;
use crate::compute::{self, Attachment};
use crate::cores::Placement;
use crate::transfer::Stopped;
use rudder_client::handshake::{Hello, Peer, Refusal, Session, Verbs, Welcome};
use rudder_topology::{Bytes, BytesPerSecond, Cores, DatasetName, Generation, NodeId, NodeName, PartId};
use std::collections::HashMap;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// What a storage mover needs.
#[derive(Debug)]
pub struct StorageConfig {
    pub node: NodeName,
    pub generation: Generation,
    /// Holds one directory per dataset; pushes land here.
    pub directory: PathBuf,
    pub datasets: Vec<BlockFiles>,
    pub backend: BackendChoice,
    /// Where the thread may run.
    pub cores: Cores,
    /// The rate limiter of every link; `None` does not pace. See also [`StorageHandle::pace`].
    pub link_rate_max: Option<BytesPerSecond>,
    /// Payload bytes of one request at most.
    pub transfer_bytes_max: Bytes,
    /// Payload bytes that one connection may have queued; requests beyond are refused as `Overloaded`.
    pub queue_bytes_max: Bytes,
    /// A connection from which nothing comes for so long is closed.
    pub idle_timeout: Duration,
    pub connections_max: usize,
    /// Called on a thread of the mover when a pushed manifest completes a dataset directory: open it and
    /// [`StorageHandle::serve`] it.
    pub on_pushed: Option<OnPushed>,
    /// `None`: blocks of other nodes are not served.
    pub staging: Option<StagingConfig>,
}

/// What is called when a dataset has been pushed.
#[derive(Clone)]
pub struct OnPushed(pub Arc<dyn Fn(DatasetName) + Send + Sync>);

impl std::fmt::Debug for OnPushed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnPushed(..)")
    }
}

/// The mover before it runs.
#[derive(Debug)]
pub struct StorageMover;

/// A running storage mover. The thread ends when [`StorageHandle::stop`] is called or the last handle is dropped.
#[derive(Clone, Debug)]
pub struct StorageHandle {
    commands: mpsc::UnboundedSender<Command>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    thread: MoverThread,
    counters: Arc<Counters>,
    node: NodeName,
    generation: Generation,
    transfer_bytes_max: Bytes,
    connections_max: usize,
    /// What a welcome says of each dataset.
    served: Mutex<HashMap<DatasetName, Served>>,
}

#[derive(Clone, Debug)]
struct Served {
    parts: Vec<PartId>,
    digest: String,
}

#[derive(Debug)]
enum Command {
    Accept(Box<(TcpStream, Session)>),
    Serve(Box<BlockFiles>),
    Pace { peer: NodeName, rate: Option<BytesPerSecond> },
    OwnerUp(RelayId, Box<Attachment>),
    OwnerDown(RelayId, NodeId),
    Stop,
}

/// How full the hot cache of `direct` mode is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HotLevel {
    /// No hot cache: memory mode, or a bound of zero.
    #[default]
    None,
    /// Under a third of its bound.
    Low,
    Medium,
    /// Over two thirds.
    High,
}

/// What a storage mover has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageStats {
    /// Payload bytes of rows sent, by class.
    pub bytes_demand: u64,
    pub bytes_prefetch: u64,
    /// Headers and everything else, both directions.
    pub bytes_protocol: u64,
    /// Reads of the device in `direct` mode, and their bytes; blocks coalesced into one count once.
    pub reads: u64,
    pub read_bytes: u64,
    /// Blocks served without reading the device in `direct` mode.
    pub hot_hits: u64,
    pub hot_level: HotLevel,
    pub transfers_served: u64,
    pub transfers_refused: u64,
    pub blocks_corrupt: u64,
    /// Requests and their payload bytes that wait now.
    pub queued: u64,
    pub queued_bytes: u64,
    pub connections: u64,
    /// Blocks of other nodes that are kept or on their way here, and their bytes.
    pub staged_blocks: u64,
    pub staged_bytes: u64,
    /// Rows that owners sent here to be passed on.
    pub rows_relayed: u64,
    /// Rows of other nodes' blocks that were sent, each time they were.
    pub staged_rows_served: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    bytes_demand: AtomicU64,
    bytes_prefetch: AtomicU64,
    bytes_protocol: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) hot_hits: AtomicU64,
    pub(crate) hot_bytes: AtomicU64,
    pub(crate) hot_bytes_max: AtomicU64,
    transfers_served: AtomicU64,
    transfers_refused: AtomicU64,
    blocks_corrupt: AtomicU64,
    queued: AtomicU64,
    queued_bytes: AtomicU64,
    connections: AtomicU64,
    staged_blocks: AtomicU64,
    staged_bytes: AtomicU64,
    rows_relayed: AtomicU64,
    staged_rows_served: AtomicU64,
    /// Of the sessions with owners.
    upstream: Arc<compute::Counters>,
}

impl Counters {
    fn snapshot(&self) -> StorageStats {
        let (hot, hot_max) = (self.hot_bytes.load(Relaxed), self.hot_bytes_max.load(Relaxed));
        let hot_level = match (hot * 3).checked_div(hot_max) {
            None => HotLevel::None,
            Some(0) => HotLevel::Low,
            Some(1) => HotLevel::Medium,
            Some(_) => HotLevel::High,
        };
        StorageStats {
            bytes_demand: self.bytes_demand.load(Relaxed),
            bytes_prefetch: self.bytes_prefetch.load(Relaxed),
            bytes_protocol: self.bytes_protocol.load(Relaxed) + self.upstream.snapshot().bytes_protocol,
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            hot_hits: self.hot_hits.load(Relaxed),
            hot_level,
            transfers_served: self.transfers_served.load(Relaxed),
            transfers_refused: self.transfers_refused.load(Relaxed),
            blocks_corrupt: self.blocks_corrupt.load(Relaxed),
            queued: self.queued.load(Relaxed),
            queued_bytes: self.queued_bytes.load(Relaxed),
            connections: self.connections.load(Relaxed),
            staged_blocks: self.staged_blocks.load(Relaxed),
            staged_bytes: self.staged_bytes.load(Relaxed),
            rows_relayed: self.rows_relayed.load(Relaxed),
            staged_rows_served: self.staged_rows_served.load(Relaxed),
        }
    }
}

impl StorageMover {
    /// Starts the thread; returns when it is bound to its cores and its backend runs.
    pub fn start(config: StorageConfig) -> Result<StorageHandle, StartError> {
        let (commands, receiver) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let served = config.datasets.iter().map(served_entry).collect();
        let (node, generation) = (config.node.clone(), config.generation);
        let (transfer_bytes_max, connections_max) = (config.transfer_bytes_max, config.connections_max);
        let choice = config.backend;
        let cores = config.cores.clone();
        let main = main::Main { config, commands: receiver, counters: counters.clone() };
        let thread = MoverThread::start("storage-mover", choice, &cores, main)?;
        let shared = Shared {
            thread,
            counters,
            node,
            generation,
            transfer_bytes_max,
            connections_max,
            served: Mutex::new(served),
        };
        Ok(StorageHandle { commands, shared: Arc::new(shared) })
    }
}

fn served_entry(files: &BlockFiles) -> (DatasetName, Served) {
    (files.dataset().clone(), Served { parts: files.parts().to_vec(), digest: files.digest().to_owned() })
}

impl StorageHandle {
    /// What this node answers to a hello: for the `decide` of [`rudder_client::handshake::accept`].
    pub fn welcome(&self, hello: &Hello, _peer: &Peer) -> Result<Welcome, Refusal> {
        if self.commands.is_closed() {
            return Err(Refusal::Stopping);
        }
        if self.shared.counters.connections.load(Relaxed) >= self.shared.connections_max as u64 {
            return Err(Refusal::TooManyConnections);
        }
        let served = self.shared.served.lock().unwrap_or_else(PoisonError::into_inner);
        let dataset = match served.get(&hello.dataset) {
            Some(dataset) => dataset.clone(),
            None if hello.verbs == Verbs::PUSH => Served { parts: Vec::new(), digest: String::new() },
            None => return Err(Refusal::UnknownDataset),
        };
        Ok(Welcome {
            node: self.shared.node.clone(),
            generation: self.shared.generation,
            parts: dataset.parts,
            digest: dataset.digest,
            transfer_bytes_max: self.shared.transfer_bytes_max.0,
        })
    }

    /// Serves a session until its peer leaves.
    pub fn accept(&self, stream: TcpStream, session: Session) -> Result<(), Stopped> {
        self.send(Command::Accept(Box::new((stream, session))))
    }

    /// Adds a dataset, or replaces the files of one.
    pub fn serve(&self, files: BlockFiles) -> Result<(), Stopped> {
        let (name, entry) = served_entry(&files);
        self.send(Command::Serve(Box::new(files)))?;
        self.shared.served.lock().unwrap_or_else(PoisonError::into_inner).insert(name, entry);
        Ok(())
    }

    /// Sets the rate limit of the links to one node; `None` lifts it.
    pub fn pace(&self, peer: NodeName, rate: Option<BytesPerSecond>) -> Result<(), Stopped> {
        self.send(Command::Pace { peer, rate })
    }

    /// An owner that was wanted is connected. A session that comes too late is dropped.
    pub fn owner_up(
        &self,
        relay: RelayId,
        node: NodeId,
        generation: Generation,
        stream: TcpStream,
        session: Session,
    ) -> Result<(), Stopped> {
        self.send(Command::OwnerUp(relay, Box::new(Attachment { node, generation, stream, session })))
    }

    /// An owner that was wanted cannot be reached now: nobody waits for it any more.
    pub fn owner_down(&self, relay: RelayId, node: NodeId) -> Result<(), Stopped> {
        self.send(Command::OwnerDown(relay, node))
    }

    #[must_use]
    pub fn stats(&self) -> StorageStats {
        self.shared.counters.snapshot()
    }

    /// The backend that runs, and why it is not another one.
    #[must_use]
    pub fn backend(&self) -> &Backend {
        self.shared.thread.backend()
    }

    /// Where the thread runs.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        self.shared.thread.placement()
    }

    /// Ends the thread and all connections. Blocks at most `within`.
    pub fn stop(&self, within: Duration) -> Result<(), StopTimeout> {
        // A mover that has stopped already is what was asked for.
        let _ = self.send(Command::Stop);
        self.shared.thread.join_within(within)
    }

    fn send(&self, command: Command) -> Result<(), Stopped> {
        self.commands.send(command).map_err(|_| Stopped)
    }
}
