//! The compute mover: asks storage nodes for rows, checks what comes and puts it where the request says.
//!
//! One thread owns the transfer table. Rows are looked up in it and copied in one step, without an await between, so
//! a slot is never written after its transfer has ended: that is how wrong bytes would come about.

mod connection;
mod main;
mod table;

pub(crate) use main::Mover;
pub(crate) use table::Table;

use crate::backend::{Backend, BackendChoice, MoverThread, StartError, StopTimeout};
use crate::cache_memory::CacheMemory;
use crate::cores::Placement;
use crate::transfer::{Completion, PeerLost, Stopped, TransferRequest};
use rudder_client::handshake::Session;
use rudder_graph::PartitionBook;
use rudder_topology::{Bytes, Cores, Generation, NodeId, TransferId};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::mpsc;

/// What a compute mover needs. One mover serves one dataset.
#[derive(Clone, Debug)]
pub struct ComputeConfig {
    pub cache: Arc<CacheMemory>,
    /// The dataset's geometry.
    pub book: Arc<PartitionBook>,
    pub backend: BackendChoice,
    /// Where the thread may run.
    pub cores: Cores,
    /// Payload bytes of one request at most.
    pub transfer_bytes_max: Bytes,
    /// A storage node of which nothing was heard for so long is lost; it is pinged three times meanwhile.
    pub peer_timeout: Duration,
}

/// Called once for every submitted request.
pub type OnCompletion = Box<dyn Fn(Completion) + Send>;
/// Called when a connection ends, after its transfers were completed: dial again if it is wanted.
pub type OnPeerLost = Box<dyn Fn(PeerLost) + Send>;

/// The mover before it runs.
#[derive(Debug)]
pub struct ComputeMover;

/// A running compute mover. The thread ends when [`ComputeHandle::stop`] is called or the last handle is dropped.
#[derive(Clone, Debug)]
pub struct ComputeHandle {
    commands: mpsc::UnboundedSender<Command>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    thread: MoverThread,
    counters: Arc<Counters>,
}

#[derive(Debug)]
enum Command {
    Attach(Box<Attachment>),
    Detach(NodeId),
    Submit(TransferRequest),
    Cancel(TransferId),
    Stop,
}

/// A fresh session with a storage node.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) node: NodeId,
    pub(crate) generation: Generation,
    pub(crate) stream: TcpStream,
    pub(crate) session: Session,
}

/// What a compute mover has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComputeStats {
    /// Payload bytes of rows received, by class.
    pub bytes_demand: u64,
    pub bytes_prefetch: u64,
    /// Headers, requests and everything else, both directions.
    pub bytes_protocol: u64,
    pub transfers_completed: u64,
    pub transfers_failed: u64,
    /// Frames of transfers that had ended already: received, checked and dropped.
    pub frames_late: u64,
    pub transfers_in_flight: u64,
    pub peers: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    bytes_demand: AtomicU64,
    bytes_prefetch: AtomicU64,
    bytes_protocol: AtomicU64,
    transfers_completed: AtomicU64,
    transfers_failed: AtomicU64,
    frames_late: AtomicU64,
    transfers_in_flight: AtomicU64,
    peers: AtomicU64,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> ComputeStats {
        ComputeStats {
            bytes_demand: self.bytes_demand.load(Relaxed),
            bytes_prefetch: self.bytes_prefetch.load(Relaxed),
            bytes_protocol: self.bytes_protocol.load(Relaxed),
            transfers_completed: self.transfers_completed.load(Relaxed),
            transfers_failed: self.transfers_failed.load(Relaxed),
            frames_late: self.frames_late.load(Relaxed),
            transfers_in_flight: self.transfers_in_flight.load(Relaxed),
            peers: self.peers.load(Relaxed),
        }
    }
}

impl ComputeMover {
    /// Starts the thread; returns when it is bound to its cores and its backend runs. Both callbacks are called on
    /// the mover's thread: they send a message and return.
    pub fn start(
        config: ComputeConfig,
        on_completion: OnCompletion,
        on_peer_lost: OnPeerLost,
    ) -> Result<ComputeHandle, StartError> {
        let (commands, receiver) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let choice = config.backend;
        let cores = config.cores.clone();
        let main = main::Main {
            config,
            commands: receiver,
            counters: counters.clone(),
            on_completion,
            on_peer_lost,
        };
        let thread = MoverThread::start("compute-mover", choice, &cores, main)?;
        Ok(ComputeHandle { commands, shared: Arc::new(Shared { thread, counters }) })
    }
}

impl ComputeHandle {
    /// Makes a storage node reachable by a fresh session. A former connection of the same node is detached first.
    pub fn attach(
        &self,
        node: NodeId,
        generation: Generation,
        stream: TcpStream,
        session: Session,
    ) -> Result<(), Stopped> {
        self.send(Command::Attach(Box::new(Attachment { node, generation, stream, session })))
    }

    /// Drops a storage node's connection; what is in flight with it fails with `PeerLost`.
    pub fn detach(&self, node: NodeId) -> Result<(), Stopped> {
        self.send(Command::Detach(node))
    }

    /// Asks for rows. Unless this returns `Stopped`, exactly one completion follows.
    pub fn submit(&self, request: TransferRequest) -> Result<(), Stopped> {
        self.send(Command::Submit(request))
    }

    /// Ends a transfer with `Cancelled`, unless it has ended already.
    pub fn cancel(&self, transfer: TransferId) -> Result<(), Stopped> {
        self.send(Command::Cancel(transfer))
    }

    #[must_use]
    pub fn stats(&self) -> ComputeStats {
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

    /// Ends the thread; every transfer in flight fails with `PeerLost` first. Blocks at most `within`.
    pub fn stop(&self, within: Duration) -> Result<(), StopTimeout> {
        // A mover that has stopped already is what was asked for.
        let _ = self.send(Command::Stop);
        self.shared.thread.join_within(within)
    }

    fn send(&self, command: Command) -> Result<(), Stopped> {
        self.commands.send(command).map_err(|_| Stopped)
    }
}
