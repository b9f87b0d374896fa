//! A storage mover and a compute mover joined over loopback, or a bare peer in the place of one.

use crate::data::{Shape, TestData};
use rudder_client::frame_stream::FrameStream;
use rudder_client::handshake::{
    Credential, Dialed, Hello, Peer, Refusal, Security, Session, Verbs, Welcome, accept, dial,
};
use rudder_client::identity::PeerName;
use rudder_dataplane::{
    BackendChoice, BlockFiles, CacheMemory, Completion, ComputeConfig, ComputeHandle, ComputeMover, PeerLost,
    StorageConfig, StorageHandle, StorageMover,
};
use rudder_graph::PartitionBook;
use rudder_topology::{Bytes, ChunkId, Cores, DatasetName, Generation, NodeId, NodeName, StorageMode};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The storage node.
pub const S0: NodeId = NodeId(1);
/// Payload bytes of a transfer in tests.
pub const TRANSFER_BYTES: Bytes = Bytes(64 << 10);

/// Backends that run here: io_uring only where the kernel lets it.
pub fn backends() -> Vec<BackendChoice> {
    match rudder_dataplane::Backend::probe() {
        Ok(()) => vec![BackendChoice::Pread, BackendChoice::PreadThreads, BackendChoice::Uring],
        Err(_) => vec![BackendChoice::Pread, BackendChoice::PreadThreads],
    }
}

pub fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("a name")
}

pub fn clear(text: &str) -> Security {
    Security::LoopbackClear(PeerName::parse(text).expect("a name"))
}

pub fn shape() -> Shape {
    Shape { rows_of_parts: vec![1000, 0, 333], row_bytes: 100, rows_per_block: 16 }
}

pub fn storage_config(root: &Path, datasets: Vec<BlockFiles>, backend: BackendChoice) -> StorageConfig {
    StorageConfig {
        node: name("s0"),
        generation: Generation(7),
        directory: root.to_owned(),
        datasets,
        backend,
        cores: Cores::Shared,
        link_rate_max: None,
        transfer_bytes_max: Bytes(64 << 10),
        queue_bytes_max: Bytes(8 << 20),
        idle_timeout: PATIENCE,
        connections_max: 64,
        on_pushed: None,
        staging: None,
    }
}

pub fn storage(data: &TestData, mode: StorageMode, backend: BackendChoice) -> StorageHandle {
    let files = BlockFiles::open(&data.directory, mode, Bytes(64 << 10)).expect("opened");
    let root = data.directory.parent().expect("a parent");
    StorageMover::start(storage_config(root, vec![files], backend)).expect("started")
}

/// Joins a dialer to a storage mover.
pub fn join(handle: &StorageHandle, dialer: &str, dataset: &DatasetName, verbs: Verbs) -> Dialed {
    join_tuned(handle, dialer, dataset, verbs, |_| {})
}

/// As [`join`]; `tune` sees the accepted socket before the mover does.
pub fn join_tuned(
    handle: &StorageHandle,
    dialer: &str,
    dataset: &DatasetName,
    verbs: Verbs,
    tune: impl FnOnce(&TcpStream),
) -> Dialed {
    let (dialed, (stream, session)) =
        shake(dialer, dataset, verbs, |hello, peer| handle.welcome(hello, peer));
    tune(&stream);
    handle.accept(stream, session).expect("running");
    dialed
}

fn shake(
    dialer: &str,
    dataset: &DatasetName,
    verbs: Verbs,
    decide: impl FnOnce(&Hello, &Peer) -> Result<Welcome, Refusal>,
) -> (Dialed, (TcpStream, Session)) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address: SocketAddr = listener.local_addr().expect("an address");
    let credential = match PeerName::parse(dialer).expect("a name") {
        PeerName::Operator => Credential::Operator,
        PeerName::Node(name) => Credential::Node { name, generation: Generation(1) },
    };
    let hello = Hello::new(credential, dataset.clone(), verbs);
    let security = clear(dialer);
    let dialing =
        std::thread::spawn(move || dial(address, &name("s0"), &hello, &security, PATIENCE).expect("dialed"));
    let (stream, _) = listener.accept().expect("a connection");
    let accepted = accept(stream, &clear("s0"), PATIENCE, decide).expect("accepted");
    (dialing.join().expect("no panic"), accepted)
}

/// A session whose accepting end is the test itself.
pub fn bare_storage(dataset: &DatasetName) -> (Dialed, FrameStream) {
    let welcome = Welcome {
        node: name("s0"),
        generation: Generation(7),
        parts: Vec::new(),
        digest: String::new(),
        transfer_bytes_max: 65536,
    };
    let (dialed, (stream, session)) = shake("c0", dataset, Verbs::FETCH, |_, _| Ok(welcome));
    (dialed, FrameStream::new(stream, &session))
}

/// A compute mover and what it says.
pub struct Compute {
    pub handle: ComputeHandle,
    pub cache: Arc<CacheMemory>,
    pub completions: Receiver<Completion>,
    pub lost: Receiver<PeerLost>,
}

pub fn compute(
    book: &PartitionBook,
    backend: BackendChoice,
    peer_timeout: Duration,
    transfer_bytes_max: Bytes,
) -> Compute {
    let cache = Arc::new(CacheMemory::create(Bytes(8 << 20), Bytes(4 << 20)).expect("memory"));
    let config = ComputeConfig {
        cache: cache.clone(),
        book: Arc::new(book.clone()),
        backend,
        cores: Cores::Shared,
        transfer_bytes_max,
        peer_timeout,
    };
    let (completed, completions) = channel();
    let (loses, lost) = channel();
    let on_completion = Box::new(move |completion| drop(completed.send(completion)));
    let on_peer_lost = Box::new(move |peer| drop(loses.send(peer)));
    let handle = ComputeMover::start(config, on_completion, on_peer_lost).expect("started");
    Compute { handle, cache, completions, lost }
}

impl Compute {
    pub fn attach(&self, dialed: Dialed) {
        let generation = dialed.welcome.generation;
        self.handle.attach(S0, generation, dialed.stream, dialed.session).expect("running");
    }

    pub fn completion(&self) -> Completion {
        self.completions.recv_timeout(PATIENCE).expect("a completion")
    }

    pub fn lost(&self) -> PeerLost {
        self.lost.recv_timeout(PATIENCE).expect("a loss")
    }

    pub fn cached(&self, chunk: ChunkId, offset: u64, bytes: usize) -> Vec<u8> {
        let mut read = Vec::new();
        // SAFETY: tests read after a completion, when the mover writes there no more.
        unsafe { self.cache.read(chunk, offset, bytes, &mut read) }.expect("within the cache");
        read
    }
}
