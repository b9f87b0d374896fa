//! Trainers at the gateway: over a real Unix socket, with the fast loop's real actors and a mover that answers at once.

use proptest::prelude::any;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use ractor::{Actor, ActorRef};
use rudder_actors::clock::NodeClock;
use rudder_actors::dataset::{Dataset, Greeting, PrivateBuffers, SharedEngine};
use rudder_actors::gateway::listener::{self, TrainerSocket};
use rudder_actors::gateway::{Gate, Gateway};
use rudder_actors::mailbox::Mailbox;
use rudder_actors::planner::Planner;
use rudder_actors::predictor::Predictor;
use rudder_actors::supervisor::{Supervisor, SupervisorSpec};
use rudder_actors::timer;
use rudder_actors::trainers::Trainers;
use rudder_actors::validator::Validator;
use rudder_actors::worker::{self, Work};
use rudder_client::trainer::{Client, ClientError, ConnectOptions, Interrupt, TableRows};
use rudder_client::trainer_protocol::{self, Hello, MappingSpec, Refusal, ToNode, ToTrainer};
use rudder_dataplane::{CacheMemory, PageChoice};
use rudder_graph::{Dtype, GraphSpec, Manifest, PartitionBook, TableSpec};
use rudder_messages::{
    ActorKind, ActorName, MoverMessage, PlannerMessage, PredictorMessage, SupervisorMessage, ValidatorMessage,
};
use rudder_policy::engine::{Engine, EngineConfig};
use rudder_policy::parameters::Parameters;
use rudder_policy::restart::{RestartIntensity, Strategy};
use rudder_policy::step::Outcome;
use rudder_topology::{
    Bytes, BytesPerSecond, ChunkId, DatasetName, Generation, JobId, Limits, LinkCost, MinibatchId, Nanos,
    NodeId, NodeName, PolicySpec, TableId, TableName, TrainerRank,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const ROWS: u64 = 1000;
const ROW_BYTES: u64 = 64;
const SLOTS: u64 = 100;
const STORAGE: NodeId = NodeId(1);
const GENERATION: Generation = Generation(5);
/// Long enough that only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says of every transfer that it arrived. Nothing is written: what is tested is who is told what.
struct Instant {
    dataset: Arc<Dataset>,
}

impl Work for Instant {
    type Item = MoverMessage;

    async fn handle(&mut self, message: MoverMessage) {
        if let MoverMessage::Fetch(transfer) = message {
            let private = vec![7; transfer.items.len() * ROW_BYTES as usize];
            let outcome = Outcome::Arrived { private };
            self.dataset.stage(|engine, now| engine.complete(transfer.id, GENERATION, outcome, now));
        }
    }
}

struct Fixture {
    dataset: Arc<Dataset>,
    root: ActorRef<SupervisorMessage>,
    join: tokio::task::JoinHandle<()>,
    path: PathBuf,
    stop: watch::Sender<bool>,
    _socket: TrainerSocket,
    _directory: tempfile::TempDir,
}

fn manifest() -> Manifest {
    let table = TableSpec {
        name: TableName::new("features").unwrap(),
        dim: 16,
        dtype: Dtype::F32,
        rows_per_block: 1,
        row_offsets: vec![0, ROWS],
    };
    Manifest {
        format: 1,
        name: name(),
        vertices: ROWS,
        edges: 0,
        digest: String::new(),
        part_offsets: vec![0, ROWS],
        graphs: vec![GraphSpec { name: TableName::new("edges").unwrap(), edges: 0 }],
        tables: vec![table],
        files: vec![],
        notes: vec![],
    }
}

fn name() -> DatasetName {
    DatasetName::new("tiny").unwrap()
}

fn engine(book: &PartitionBook) -> Engine {
    let cost = LinkCost { bandwidth: BytesPerSecond::from_mbit(1000), latency: Nanos(0) };
    let mut engine = Engine::new(EngineConfig {
        book: book.clone(),
        cache_bytes: Bytes(SLOTS * ROW_BYTES),
        replicas: vec![vec![(STORAGE, cost)]],
        limits: Limits::default(),
        parameters: Parameters::default(),
        policy: PolicySpec::RUDDER,
        prior: None,
        credits: 4,
        ready_ahead: 1,
    })
    .unwrap();
    engine.link_up(STORAGE, GENERATION, 0);
    engine
}

fn dataset() -> Arc<Dataset> {
    let book = PartitionBook::new(&manifest());
    let engine = engine(&book);
    let chunks: Vec<_> = engine.view().cache.geometry().chunks().into_iter().map(Bytes).collect();
    let cache = CacheMemory::create_chunks(&chunks, PageChoice::Normal).unwrap();
    let mapping = |(index, fd): (usize, &std::os::fd::OwnedFd)| {
        let bytes = cache.chunk_bytes(ChunkId(index as u16)).0;
        (MappingSpec { index: index as u16, bytes }, Arc::new(fd.try_clone().unwrap()))
    };
    let mappings = cache.chunks().iter().enumerate().map(mapping).collect();
    let clock = NodeClock::start();
    let mover: Mailbox<MoverMessage> = Mailbox::default();
    let tick = mover.clone();
    let (timer, _task) = timer::start(clock, move || tick.send(MoverMessage::Tick));
    Arc::new(Dataset {
        name: name(),
        engine: SharedEngine::new(engine),
        predictor: Mailbox::default(),
        planner: Mailbox::default(),
        planning: std::sync::Mutex::default(),
        validator: Mailbox::default(),
        mover,
        private: PrivateBuffers::default(),
        trainers: Trainers::default(),
        greeting: Greeting {
            credits: 4,
            ready_ahead: 1,
            digest: DIGEST.into(),
            row_bytes: vec![ROW_BYTES as u32],
            mappings,
        },
        timer,
        replays: rudder_actors::replays::Replays::new("no/graph".into()),
        clock,
    })
}

async fn fixture(node: &str) -> Fixture {
    let node = NodeName::new(node).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trainers.sock");
    let socket = TrainerSocket::bind(&path).unwrap();
    let dataset = dataset();
    let (stop, stopping) = watch::channel(false);
    let gate = Arc::new(Gate::new(GENERATION, [(name(), dataset.clone())].into(), stopping));
    let gateway = Mailbox::default();
    tokio::spawn(listener::accept(socket.listener().unwrap(), gateway.clone()));
    let kind = |kind| ActorName::of_node(&node, kind);
    let shared = || dataset.clone();
    let (d1, d2, d3, d4) = (shared(), shared(), shared(), shared());
    let children = vec![
        worker::child(kind(ActorKind::Mover), dataset.mover.clone(), move || Instant { dataset: d1.clone() }),
        worker::child(kind(ActorKind::Validator), dataset.validator.clone(), move || {
            Validator::new(d2.clone())
        }),
        worker::child(kind(ActorKind::Planner), dataset.planner.clone(), move || Planner::new(d3.clone())),
        worker::child(kind(ActorKind::Predictor), dataset.predictor.clone(), move || {
            Predictor::new(d4.clone())
        }),
        worker::child(kind(ActorKind::Gateway), gateway, move || Gateway::new(gate.clone())),
    ];
    let intensity = RestartIntensity { restarts_max: 100, window: Nanos::from_secs(3600) };
    let spec = SupervisorSpec {
        name: kind(ActorKind::Node),
        strategy: Strategy::OneForOne,
        intensity,
        children,
        clock: dataset.clock,
        on_escalation: None,
    };
    let (root, join) = Actor::spawn(Some(spec.name.to_string()), Supervisor, Arc::new(spec)).await.unwrap();
    Fixture { dataset, root, join, path, stop, _socket: socket, _directory: directory }
}

impl Fixture {
    async fn shut_down(self) {
        self.root.send_message(SupervisorMessage::Shutdown).unwrap();
        self.join.await.unwrap();
    }

    fn pinned(&self) -> bool {
        self.dataset.engine.with(|engine| {
            (0..ROWS as u32).any(|b| engine.view().cache.is_pinned(rudder_topology::BlockId(b)))
        })
    }
}

/// Blocking work of a trainer, on a thread of its own.
async fn trainer<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Of the dataset that the node serves.
const DIGEST: &str = "cafe";

fn options(rank: u32) -> ConnectOptions {
    let (job, rank) = (JobId(1), TrainerRank(rank));
    ConnectOptions {
        job,
        rank,
        dataset: name(),
        digest: DIGEST.into(),
        time_out: PATIENCE,
        interrupt: Interrupt::default(),
    }
}

fn hello(rank: u32) -> Vec<u8> {
    let mut frame = vec![];
    ToNode::Hello(Hello { job: JobId(1), rank: TrainerRank(rank), dataset: name(), digest: String::new() })
        .encode(&mut frame);
    frame
}

/// Sends bytes and reads until the node closes: a hang fails by the time-out.
fn until_closed(path: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The node may close before it has read everything.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
    let mut answer = vec![];
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    answer
}

fn epoch(path: &Path, rank: u32, minibatches: std::ops::Range<u64>) {
    let mut client = Client::connect(path, &options(rank)).unwrap();
    let rows = |m: u64| -> Vec<u32> { (0..20).map(|i| ((m * 37 + i * 11) % ROWS) as u32).collect() };
    for m in minibatches {
        let rows = rows(m);
        client.announce(MinibatchId(m), &[TableRows { table: TableId(0), rows: &rows }]).unwrap();
        let ready = client.ready(MinibatchId(m), PATIENCE).unwrap();
        assert_eq!(ready.locations(TableId(0)).unwrap().len(), rows.len());
        client.release(MinibatchId(m)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn minibatches_become_ready_and_a_leaving_trainer_leaves_no_pins() {
    let fixture = fixture("gate-ready").await;
    let path = fixture.path.clone();
    trainer(move || epoch(&path, 0, 0..50)).await;
    let path = fixture.path.clone();
    trainer(move || {
        let mut client = Client::connect(&path, &options(3)).unwrap();
        client.announce(MinibatchId(0), &[TableRows { table: TableId(0), rows: &[1, 2, 3] }]).unwrap();
        client.ready(MinibatchId(0), PATIENCE).unwrap();
    })
    .await;
    // The next connection of the same rank is let in only when the former one has been cleaned up.
    for rank in [0, 3] {
        let path = fixture.path.clone();
        trainer(move || {
            loop {
                match Client::connect(&path, &options(rank)) {
                    Ok(_) => break,
                    Err(ClientError::Refused { refusal: Refusal::RankInUse, .. }) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await;
    }
    assert!(!fixture.pinned());
    let statistics = fixture.dataset.engine.with(|engine| engine.statistics());
    assert_eq!(statistics.minibatches_released, 50);
    fixture.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panics_of_every_actor_do_not_stop_a_trainer() {
    let fixture = fixture("gate-panic").await;
    let path = fixture.path.clone();
    let running = tokio::spawn(trainer(move || epoch(&path, 0, 0..300)));
    for _ in 0..10 {
        fixture.dataset.planner.send(PlannerMessage::Fault);
        fixture.dataset.validator.send(ValidatorMessage::Fault);
        fixture.dataset.predictor.send(PredictorMessage::Fault);
        tokio::task::yield_now().await;
    }
    running.await.unwrap();
    let snapshot = ractor::call!(fixture.root, SupervisorMessage::Snapshot).unwrap();
    let restarts: Vec<_> = snapshot.iter().map(|entry| (entry.actor, entry.restarts)).collect();
    for kind in [ActorKind::Planner, ActorKind::Validator, ActorKind::Predictor] {
        assert!(restarts.contains(&(kind, 10)), "{restarts:?}");
    }
    fixture.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minibatch_larger_than_the_cache_comes_in_pieces() {
    let fixture = fixture("gate-pieces").await;
    let path = fixture.path.clone();
    trainer(move || {
        let mut client = Client::connect(&path, &options(0)).unwrap();
        let rows: Vec<u32> = (0..SLOTS as u32 * 3).collect();
        client.announce(MinibatchId(0), &[TableRows { table: TableId(0), rows: &rows }]).unwrap();
        let ready = client.ready(MinibatchId(0), PATIENCE).unwrap();
        assert!(ready.is_private());
        assert_eq!(ready.row(TableId(0), 299).unwrap(), [7; ROW_BYTES as usize]);
        client.release(MinibatchId(0)).unwrap();
    })
    .await;
    fixture.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_typed_and_leave_the_connection_usable() {
    let fixture = fixture("gate-refusals").await;
    let path = fixture.path.clone();
    trainer(move || {
        let mut client = Client::connect(&path, &options(0)).unwrap();
        match Client::connect(&path, &options(0)).err() {
            Some(ClientError::Refused { refusal: Refusal::RankInUse, .. }) => {}
            other => panic!("{other:?}"),
        }
        let unknown = DatasetName::new("other").unwrap();
        match Client::connect(&path, &ConnectOptions { dataset: unknown, ..options(1) }).err() {
            Some(ClientError::Refused { refusal: Refusal::UnknownDataset, .. }) => {}
            other => panic!("{other:?}"),
        }
        let other = ConnectOptions { digest: "beef".into(), ..options(1) };
        match Client::connect(&path, &other).err() {
            Some(ClientError::Refused { refusal: Refusal::OtherVersion, .. }) => {}
            other => panic!("{other:?}"),
        }
        // A trainer without a manifest has nothing to compare.
        Client::connect(&path, &ConnectOptions { digest: String::new(), ..options(2) }).unwrap();
        client.announce(MinibatchId(0), &[TableRows { table: TableId(0), rows: &[ROWS as u32] }]).unwrap();
        match client.ready(MinibatchId(0), PATIENCE) {
            Err(ClientError::Failed { refusal: Refusal::UnknownRow(0), .. }) => {}
            other => panic!("{other:?}"),
        }
        client.announce(MinibatchId(1), &[TableRows { table: TableId(0), rows: &[1] }]).unwrap();
        client.ready(MinibatchId(1), PATIENCE).unwrap();
        assert!(client.statistics().unwrap().contains("minibatches_announced"));
    })
    .await;
    fixture.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_protocol_ends_that_connection_and_no_other() {
    let fixture = fixture("gate-garbage").await;
    let path = fixture.path.clone();
    trainer(move || {
        let mut second_hello = hello(7);
        second_hello.extend(hello(7));
        let mut too_long = hello(8);
        too_long.extend(u32::MAX.to_le_bytes());
        let mut lying = hello(9);
        lying.extend((trainer_protocol::FRAME_BYTES_MAX as u32).to_le_bytes());
        lying.extend([2, 0, 0]);
        let cut = hello(10)[..9].to_vec();
        for bytes in [second_hello, too_long, lying, cut, vec![0; 4], b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
            until_closed(&path, &bytes);
        }
        let mut runner = TestRunner::deterministic();
        for case in 0..200 {
            let garbage = proptest::collection::vec(any::<u8>(), 0..400);
            let mut bytes = if case % 2 == 0 { hello(20 + case) } else { vec![] };
            bytes.extend(garbage.new_tree(&mut runner).unwrap().current());
            until_closed(&path, &bytes);
        }
        // A version that this node does not speak is told so.
        let mut old = hello(11);
        old[5..9].copy_from_slice(&99_u32.to_le_bytes());
        let answer = until_closed(&path, &old);
        let refusal = Refusal::Protocol { node: trainer_protocol::PROTOCOL_VERSION, trainer: 99 };
        assert_eq!(ToTrainer::decode(&answer[4..]), Ok(ToTrainer::Refused(refusal)));
        epoch(&path, 0, 0..10);
    })
    .await;
    fixture.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_node_lets_its_trainers_go() {
    let fixture = fixture("gate-stop").await;
    let path = fixture.path.clone();
    let (connected, wait) = tokio::sync::oneshot::channel();
    let waiting = tokio::spawn(trainer(move || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(&hello(0)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut first = [0; 4];
        stream.read_exact(&mut first).unwrap();
        connected.send(()).unwrap();
        let mut rest = vec![];
        stream.read_to_end(&mut rest).map(|_| ())
    }));
    wait.await.unwrap();
    fixture.stop.send(true).unwrap();
    waiting.await.unwrap().unwrap();
    let path = fixture.path.clone();
    match trainer(move || Client::connect(&path, &options(1)).err()).await {
        Some(ClientError::Refused { refusal: Refusal::Stopping, .. }) => {}
        other => panic!("{other:?}"),
    }
    fixture.shut_down().await;
}
