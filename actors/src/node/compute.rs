//! The compute side of a node: per dataset an engine, cache memory, a mover's thread and links; one trainers' socket.

use super::Base;
use super::config::NodeError;
use super::faults::Faults;
use crate::dataset::{Dataset, Greeting, PrivateBuffers, SharedEngine};
use crate::gateway::listener::{self, TrainerSocket};
use crate::gateway::{Gate, Gateway};
use crate::links::{self, ComputeEnd, Link, LossRouter};
use crate::mailbox::Mailbox;
use crate::mover::{self, Mover};
use crate::planner::Planner;
use crate::predictor::Predictor;
use crate::replays::Replays;
use crate::supervisor::{ChildSpec, SupervisorSpec};
use crate::validator::Validator;
use crate::{timer, worker};
use rudder_client::dataset::VerifyScope;
use rudder_client::location::LOCAL_MAPPINGS;
use rudder_client::trainer_protocol::MappingSpec;
use rudder_dataplane::{
    Backend, BlockFiles, CacheMemory, ComputeConfig, ComputeHandle, ComputeMover, PageChoice, Placement,
};
use rudder_graph::{Manifest, PartitionBook, layout};
use rudder_messages::{ActorKind, ActorName, GatewayMessage, MoverMessage};
use rudder_policy::engine::{Engine, EngineConfig, local_mapping};
use rudder_policy::parameters::Parameters;
use rudder_policy::restart::{RestartIntensity, Strategy};
use rudder_topology::{self as topology, Bytes, Compute, LinkCost, NodeId, PartId, StorageMode, TableId};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A co-located part's feature files, by table.
type LocalFiles = Vec<(TableId, PartId, File, u64)>;

pub(super) struct ComputeSide {
    served: Vec<(Arc<Dataset>, ComputeHandle)>,
    socket: TrainerSocket,
}

/// A dataset as the topology and its manifest describe it.
struct Plan<'a> {
    dataset: &'a topology::Dataset,
    manifest: Manifest,
    book: PartitionBook,
    /// Empty for co-located parts.
    replicas: Vec<Vec<(NodeId, LinkCost)>>,
    local: LocalFiles,
}

impl ComputeSide {
    pub(super) async fn start(
        base: &Base,
        spec: &Compute,
        stopping: watch::Receiver<bool>,
        children: &mut Vec<ChildSpec>,
        tasks: &mut Vec<JoinHandle<()>>,
        faults: &mut Faults,
    ) -> Result<ComputeSide, NodeError> {
        let path = base.node.trainer_socket.as_deref();
        let path = path.ok_or_else(|| NodeError::NoTrainerSocket(base.node.name.clone()))?;
        let socket = TrainerSocket::bind(path)?;
        let mut served = Vec::new();
        let share = Bytes(spec.cache_bytes.0 / (base.cluster.datasets.len() as u64).max(1));
        for dataset in &base.cluster.datasets {
            let plan = Plan::new(base, dataset)?;
            let (dataset, handle) = serve(base, spec, plan, share, tasks)?;
            children.push(fast_loop(base, &dataset, &handle));
            faults.dataset(dataset.clone());
            served.push((dataset, handle));
        }
        let by_name: HashMap<_, _> =
            served.iter().map(|(dataset, _)| (dataset.name.clone(), dataset.clone())).collect();
        let gate = Arc::new(Gate::new(base.generation, by_name, stopping));
        let mailbox: Mailbox<GatewayMessage> = Mailbox::default();
        let name = base.name(ActorKind::Gateway);
        children.push(worker::child(name, mailbox.clone(), move || Gateway::new(gate.clone())));
        faults.gateway(mailbox.clone());
        let listener = socket.listener().map_err(NodeError::Serve)?;
        tasks.push(tokio::spawn(listener::accept(listener, mailbox)));
        Ok(ComputeSide { served, socket })
    }

    pub(super) fn datasets(&self) -> Vec<Arc<Dataset>> {
        self.served.iter().map(|(dataset, _)| dataset.clone()).collect()
    }

    pub(super) fn socket_path(&self) -> &Path {
        self.socket.path()
    }

    pub(super) fn backend(&self) -> Option<Backend> {
        self.served.first().map(|(_, handle)| handle.backend().clone())
    }

    pub(super) fn placement(&self) -> Option<Placement> {
        self.served.first().map(|(_, handle)| handle.placement().clone())
    }

    /// Removes the socket file, too.
    pub(super) fn stop(self, within: Duration) {
        for (dataset, handle) in &self.served {
            if let Err(error) = handle.stop(within) {
                tracing::warn!(dataset = %dataset.name, %error, "the compute mover");
            }
        }
    }
}

impl<'a> Plan<'a> {
    fn new(base: &Base, dataset: &'a topology::Dataset) -> Result<Self, NodeError> {
        let manifest = read_manifest(dataset)?;
        let book = PartitionBook::new(&manifest);
        let mut replicas = Vec::new();
        let mut local = LocalFiles::new();
        for part in (0..book.parts()).map(|part| PartId(part as u16)) {
            if let Some(mut files) = co_located(base, dataset, &manifest, part) {
                local.append(&mut files);
                replicas.push(Vec::new());
                continue;
            }
            let remote = base.cluster.replicas_by_cost(dataset, part, base.node.id);
            if remote.is_empty() {
                return Err(NodeError::NoRoute { dataset: dataset.name.clone(), part });
            }
            replicas.push(remote);
        }
        let (files, max) = (book.tables() * book.parts(), usize::from(u16::MAX - LOCAL_MAPPINGS));
        if !local.is_empty() && files > max {
            return Err(NodeError::TooManyLocalFiles { dataset: dataset.name.clone(), files, max });
        }
        Ok(Plan { dataset, manifest, book, replicas, local })
    }

    fn engine(&self, base: &Base, spec: &Compute, cache_bytes: Bytes) -> Result<Engine, NodeError> {
        let prior = super::prior::of(spec.policy, self.dataset, &self.book, &self.replicas)?;
        Engine::new(EngineConfig {
            book: self.book.clone(),
            cache_bytes,
            replicas: self.replicas.clone(),
            limits: base.cluster.limits,
            parameters: Parameters::default(),
            policy: spec.policy,
            prior,
            credits: spec.credits,
            ready_ahead: spec.ready_ahead,
        })
        .map_err(|source| NodeError::Engine { dataset: self.dataset.name.clone(), source })
    }

    fn greeting(&self, spec: &Compute, cache: &CacheMemory) -> Result<Greeting, NodeError> {
        let mut mappings = Vec::new();
        for (index, chunk) in cache.chunks().iter().enumerate() {
            let bytes = cache.chunk_bytes(topology::ChunkId(index as u16)).0;
            let fd = chunk.try_clone().map_err(NodeError::Serve)?;
            mappings.push((MappingSpec { index: index as u16, bytes }, Arc::new(fd)));
        }
        for (table, part, file, bytes) in &self.local {
            let index = local_mapping(self.book.parts(), *table, *part);
            let fd = OwnedFd::from(file.try_clone().map_err(NodeError::Serve)?);
            mappings.push((MappingSpec { index, bytes: *bytes }, Arc::new(fd)));
        }
        let tables = (0..self.book.tables()).map(|table| TableId(table as u16));
        let row_bytes = tables.map(|table| self.book.row_bytes(table).unwrap_or(0)).collect();
        Ok(Greeting {
            credits: spec.credits,
            ready_ahead: spec.ready_ahead,
            digest: self.manifest.digest.clone(),
            row_bytes,
            mappings,
        })
    }

    /// The storage nodes that are dialed, each with the parts that are asked of it.
    fn storage_nodes(&self) -> BTreeMap<NodeId, Vec<PartId>> {
        let mut nodes: BTreeMap<NodeId, Vec<PartId>> = BTreeMap::new();
        for (part, replicas) in self.replicas.iter().enumerate() {
            for &(node, _) in replicas {
                nodes.entry(node).or_default().push(PartId(part as u16));
            }
        }
        nodes
    }

    fn link(&self, base: &Base, node: NodeId, parts: Vec<PartId>) -> Result<Link, NodeError> {
        let (name, digest) = (self.dataset.name.clone(), self.manifest.digest.clone());
        base.dialer().link(node, name, digest, parts).map_err(NodeError::NoDataAddress)
    }
}

fn read_manifest(dataset: &topology::Dataset) -> Result<Manifest, NodeError> {
    let path = dataset.directory.join(layout::MANIFEST);
    let mut text = String::new();
    File::open(&path)
        .and_then(|file| {
            file.take(rudder_graph::manifest::MANIFEST_BYTES_MAX as u64 + 1).read_to_string(&mut text)
        })
        .map_err(|source| NodeError::ManifestRead { path: path.clone(), source })?;
    let manifest =
        Manifest::parse(&text).map_err(|source| NodeError::Manifest { path: path.clone(), source })?;
    if manifest.name != dataset.name {
        let (expected, found) = (dataset.name.clone(), manifest.name);
        return Err(NodeError::WrongDataset { path, expected, found });
    }
    let (expected, found) = (dataset.replicas.len(), manifest.parts());
    if expected != found {
        return Err(NodeError::WrongParts { dataset: dataset.name.clone(), expected, found });
    }
    Ok(manifest)
}

/// The feature files of a part that lies on this machine, opened for trainers to map; `None` where it is remote or
/// cannot be read, and is fetched.
fn co_located(
    base: &Base,
    dataset: &topology::Dataset,
    manifest: &Manifest,
    part: PartId,
) -> Option<LocalFiles> {
    let replicas = dataset.replicas.get(part.index())?;
    let here = replicas
        .iter()
        .map(|&id| base.cluster.node(id))
        .filter(|node| node.id == base.node.id || node.machine == base.node.machine);
    for node in here {
        let Some(storage) = &node.storage else { continue };
        let directory = storage.directory.join(dataset.name.as_str());
        match open_local(&directory, manifest, part) {
            Ok(files) => return Some(files),
            Err(reason) => {
                tracing::warn!(dataset = %dataset.name, %part, storage = %node.name, %reason, "a part of this machine cannot be mapped and is fetched");
            }
        }
    }
    None
}

fn open_local(directory: &Path, manifest: &Manifest, part: PartId) -> Result<LocalFiles, String> {
    let files =
        BlockFiles::open(directory, StorageMode::Memory, Bytes(0)).map_err(|error| error.to_string())?;
    if files.digest() != manifest.digest {
        return Err("it belongs to another version of the dataset".to_owned());
    }
    if !files.parts().contains(&part) {
        return Err("it is not there".to_owned());
    }
    verify(directory, part)?;
    let mut opened = LocalFiles::new();
    for (number, table) in manifest.tables.iter().enumerate() {
        let path: PathBuf = directory.join(layout::features(part, &table.name));
        let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let bytes = file.metadata().map_err(|error| format!("{}: {error}", path.display()))?.len();
        opened.push((TableId(number as u16), part, file, bytes));
    }
    Ok(opened)
}

/// Trainers read a mapped part with nobody between, so its blocks are checked before it is passed to them.
fn verify(directory: &Path, part: PartId) -> Result<(), String> {
    let dataset = rudder_client::dataset::Dataset::open(directory).map_err(|error| error.to_string())?;
    let verified = dataset.verify(VerifyScope::Part(part), |_| {}).map_err(|error| error.to_string())?;
    match verified.damage.first() {
        Some(damage) => Err(damage.to_string()),
        None => Ok(()),
    }
}

/// Makes what the fast loop of a dataset shares, and connects it to the storage nodes.
fn serve(
    base: &Base,
    spec: &Compute,
    plan: Plan<'_>,
    cache_bytes: Bytes,
    tasks: &mut Vec<JoinHandle<()>>,
) -> Result<(Arc<Dataset>, ComputeHandle), NodeError> {
    let engine = plan.engine(base, spec, cache_bytes)?;
    let chunks: Vec<Bytes> = engine.view().cache.geometry().chunks().into_iter().map(Bytes).collect();
    let cache = Arc::new(CacheMemory::create_chunks(&chunks, PageChoice::HugeIfAvailable)?);
    let greeting = plan.greeting(spec, &cache)?;
    let mailbox: Mailbox<MoverMessage> = Mailbox::default();
    let private = PrivateBuffers::default();
    let (completed_to, completed_private) = (mailbox.clone(), private.clone());
    let nodes = plan.storage_nodes();
    let mut router = LossRouter::default();
    let losses: Vec<_> = nodes.keys().map(|&node| router.route(node)).collect();
    let handle = ComputeMover::start(
        ComputeConfig {
            cache,
            book: Arc::new(plan.book.clone()),
            backend: base.config.backend,
            cores: base.node.cores.clone(),
            transfer_bytes_max: base.cluster.limits.transfer_bytes_max,
            peer_timeout: Duration::from_nanos(base.cluster.limits.heartbeat_timeout.0),
        },
        Box::new(move |completion| mover::completed(completion, &completed_private, &completed_to)),
        Box::new(move |lost| router.lost(lost)),
    )?;
    for ((node, parts), lost) in nodes.into_iter().zip(losses) {
        let link = plan.link(base, node, parts)?;
        let end = ComputeEnd { handle: handle.clone(), mover: mailbox.clone() };
        tasks.push(tokio::spawn(links::keep(link, end, lost, base.clock)));
    }
    let tick = mailbox.clone();
    let (timer, timer_task) = timer::start(base.clock, move || tick.send(MoverMessage::Tick));
    tasks.push(timer_task);
    let dataset = Dataset {
        name: plan.dataset.name.clone(),
        engine: SharedEngine::new(engine),
        predictor: Mailbox::default(),
        planner: Mailbox::default(),
        planning: std::sync::Mutex::default(),
        validator: Mailbox::default(),
        mover: mailbox,
        private,
        trainers: crate::trainers::Trainers::default(),
        greeting,
        timer,
        replays: Replays::new(plan.dataset.directory.clone()),
        clock: base.clock,
    };
    Ok((Arc::new(dataset), handle))
}

/// The supervisor of a dataset's fast loop. Its children share nothing but what outlives them, so each is restarted
/// for itself.
fn fast_loop(base: &Base, dataset: &Arc<Dataset>, handle: &ComputeHandle) -> ChildSpec {
    let name = |kind| ActorName::of_dataset(&base.node.name, &dataset.name, kind);
    let shared = || dataset.clone();
    let (for_mover, handle) = (shared(), handle.clone());
    let (for_validator, for_planner, for_predictor) = (shared(), shared(), shared());
    let children = vec![
        worker::child(name(ActorKind::Mover), dataset.mover.clone(), move || {
            Mover::new(for_mover.clone(), handle.clone())
        }),
        worker::child(name(ActorKind::Validator), dataset.validator.clone(), move || {
            Validator::new(for_validator.clone())
        }),
        worker::child(name(ActorKind::Planner), dataset.planner.clone(), move || {
            Planner::new(for_planner.clone())
        }),
        worker::child(name(ActorKind::Predictor), dataset.predictor.clone(), move || {
            Predictor::new(for_predictor.clone())
        }),
    ];
    ChildSpec::supervisor(SupervisorSpec {
        name: name(ActorKind::Loop),
        strategy: Strategy::OneForOne,
        intensity: RestartIntensity::default(),
        children,
        clock: base.clock,
        on_escalation: None,
    })
}
