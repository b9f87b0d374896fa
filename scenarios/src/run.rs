//! Runs a scenario with real processes: every arm and the bound, interleaved and repeated, on the same trace.
//!
//! Whatever ends a run, nothing of it stays: processes are killed by their guard and tied to the runner's life by
//! the kernel, namespaces are removed by their guard and, after a killed runner, by the next one. Two runs at once
//! share nothing but the imported dataset.
//!
//! Reading order: dataset, netns, links, launch, process, files, stored, command, plays,
//! timetable, once, probe, measure, machine.

mod command;
pub mod dataset;
pub(crate) mod files;
pub mod launch;
mod links;
pub(crate) mod machine;
mod measure;
mod netns;
mod once;
mod plays;
pub mod probe;
mod process;
mod stale;
mod stored;
mod timetable;

pub use links::LinkError;
pub use once::OnceError;
pub use process::ProcessError;
pub use stored::StoredError;

use crate::arm::Arm;
use crate::compile::{Mode, Scenario, Unplayable};
use crate::record::Run;
use crate::relay::LinkShape;
use crate::report::advised::Advised;
use crate::report::oracle::{OracleLimits, interleaving, oracle};
use crate::report::{Circumstances, Reference, Report, bound, summarise};
use crate::sim::Variation;
use crate::spec::At;
use crate::stop::Stop;
use crate::workload::Workload;
use dataset::{Import, PrepareError};
use files::{Place, Places, Role};
use indicatif::{ProgressBar, ProgressStyle};
use links::{Kind, Links};
use once::Stage;
use plays::plays;
use rudder_client::dataset::Dataset;
use rudder_graph::PartitionBook;
use rudder_membership::keys::{Existing, KeysError, init_names};
use rudder_topology::{Advisor, AdvisorBackend, Bytes, BytesPerSecond, Nanos, NodeName, TableId};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The programs that processes are started from.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// This program.
    pub rudder: PathBuf,
    /// `rudder-node`.
    pub node: PathBuf,
}

/// How to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub binaries: Binaries,
    /// In place of the scenario's.
    pub mode: Option<Mode>,
    /// Where imported datasets are kept.
    pub work: PathBuf,
    /// Where the processes' logs and topology files are copied when the run is over.
    pub logs: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error("cannot use {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("{arm}, repeat {repeat}: {source}")]
    Once { arm: &'static str, repeat: u32, source: OnceError },
    #[error("stopped on request; everything was cleaned up")]
    Stopped,
    #[error("mode {mode} cannot play all of it:\n{}", lines(file, refused))]
    Unplayable { mode: &'static str, file: PathBuf, refused: Vec<At<Unplayable>> },
    #[error(transparent)]
    Stored(#[from] StoredError),
    #[error(transparent)]
    Simulated(#[from] crate::sim::scenario::SimulatedError),
    #[error("trainer {rank} saw another trace in {arm} than in {other}: the arms cannot be compared")]
    Traces { rank: u32, arm: &'static str, other: &'static str },
}

fn lines(file: &Path, refused: &[At<Unplayable>]) -> String {
    let line = |At { line, value }: &At<Unplayable>| format!("{}:{line}: {value}", file.display());
    refused.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Makes a shaped namespace and removes it again; the text says why it cannot be done.
pub fn namespaces_work() -> Result<(), String> {
    let shape = LinkShape { rate: BytesPerSecond::from_mbit(100), burst: Bytes(16 << 10), latency: Nanos(0) };
    netns::Netns::new(1, &shape).map(drop).map_err(|error| error.to_string())
}

/// The feature table of the report.
pub(crate) const TABLE: TableId = TableId(0);
/// tbf passes nothing larger than its burst, and a link layer packet has to fit.
const BURST_LEAST: Bytes = Bytes(4 << 10);

/// Runs all arms and repeats.
pub fn run(
    scenario: &Scenario,
    options: &RunOptions,
    importer: &dyn Import,
    stop: &Stop,
) -> Result<Report, RunError> {
    let mode = options.mode.unwrap_or(scenario.mode);
    let refused = scenario.unplayable_in(mode);
    if !refused.is_empty() {
        return Err(RunError::Unplayable { mode: mode.name(), file: scenario.file.clone(), refused });
    }
    // Where the links have to change nothing else will do.
    let mode = if mode == Mode::Auto && scenario.needs_namespaces() { Mode::Netns } else { mode };
    let dataset = dataset::prepare(scenario, &options.work, importer)?;
    let workload = Workload::sample(scenario, &dataset);
    if mode == Mode::Sim {
        return Ok(crate::sim::scenario::report(scenario, &dataset, &workload, stop)?);
    }
    stale::remove_folders(&std::env::temp_dir());
    let folder = tempfile::Builder::new()
        .prefix(&stale::prefix())
        .tempdir()
        .map_err(|source| RunError::Folder { path: std::env::temp_dir(), source })?;
    let shape = LinkShape {
        rate: scenario.cluster.bandwidth,
        burst: burst(&workload),
        latency: scenario.cluster.latency,
    };
    let nodes = (scenario.cluster.storage_nodes + scenario.cluster.compute_nodes) as usize;
    let (links, note) = Links::new(mode, nodes, shape)?;
    let places = places(scenario, &dataset, &links, folder.path())?;
    let reached = measure::reached(&links, &places, &options.binaries, stop).map_err(stopped)?;
    let runs = all(scenario, options, &places, &links, stop);
    if let Some(logs) = &options.logs {
        keep_logs(folder.path(), logs).map_err(|source| RunError::Folder { path: logs.clone(), source })?;
    }
    let runs = runs?;
    same_trace(&runs)?;
    let slots = places.cache.0 / u64::from(dataset.book().block_bytes(TABLE).unwrap_or(1).max(1));
    let oracle = oracle_row(scenario, &dataset, &workload, &runs, &reached, slots as usize);
    let facts = LinkFacts {
        mode: links.name(),
        bandwidth: links.shape.rate,
        burst: links.shape.burst,
        latency: if matches!(links.kind, Kind::Relay) { links.shape.latency } else { Nanos(0) },
        reached: &reached,
    };
    let mut circumstances = circumstances(scenario, &dataset, &workload, &facts, places.cache);
    circumstances.trace_digest = runs
        .iter()
        .flat_map(|run| &run.trainers)
        .map(|trainer| trainer.trace_digest.clone())
        .find(|d| !d.is_empty())
        .unwrap_or_default();
    circumstances.notes.extend(note);
    circumstances.notes.extend(notes(scenario, &links, &runs));
    let names = (scenario.name.clone(), dataset.manifest().name.to_string());
    let report = summarise(names, &runs, &scenario.arms, oracle, circumstances);
    let advised = Advised::of(&runs, scenario.events.first().map(|event| event.at));
    Ok(Report { advised, ..report })
}

/// Copies what processes said, and what they were told, out of the run's folder.
fn keep_logs(folder: &Path, logs: &Path) -> io::Result<()> {
    fs::create_dir_all(logs)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let wanted = path.extension().is_some_and(|end| end == "log" || end == "toml");
        if let Some(name) = path.file_name().filter(|_| wanted) {
            fs::copy(&path, logs.join(name))?;
        }
    }
    Ok(())
}

fn stopped(error: LinkError) -> RunError {
    match error {
        LinkError::Process(ProcessError::Stopped) => RunError::Stopped,
        error => RunError::Link(error),
    }
}

/// Where everything of the run is.
fn places(scenario: &Scenario, dataset: &Dataset, links: &Links, folder: &Path) -> Result<Places, RunError> {
    let cluster = &scenario.cluster;
    let storage = (0..cluster.storage_nodes).map(|n| (format!("s{n}"), Role::Storage));
    let compute = (0..cluster.compute_nodes).map(|n| (format!("c{n}"), Role::Compute));
    let nodes: Vec<Place> = storage
        .chain(compute)
        .enumerate()
        .map(|(at, (name, role))| {
            let any_port = SocketAddr::new(links.address(at), 0);
            let name = NodeName::new(name).expect("letters and digits");
            Place { name, role, control: any_port, data: any_port }
        })
        .collect();
    let keys = match links.kind {
        Kind::Netns(_) => {
            let keys = folder.join("keys");
            let names: Vec<NodeName> = nodes.iter().map(|node| node.name.clone()).collect();
            init_names(&names, &keys, Existing::Refuse)?;
            Some(keys)
        }
        Kind::Relay | Kind::Plain => None,
    };
    let places = Places {
        nodes,
        folder: folder.to_owned(),
        keys,
        dataset_name: dataset.manifest().name.to_string(),
        dataset: dataset.directory().to_owned(),
        parts: dataset.book().parts() as u32,
        cache: cache(scenario, dataset.book()),
    };
    stored::lay_out(scenario, &places)?;
    Ok(places)
}

/// What a shaped link lets through at once: a tenth of what `none` moves for a minibatch.
pub(crate) fn burst(workload: &Workload) -> Bytes {
    Bytes(workload.bytes_per_minibatch.0 / 10).max(BURST_LEAST)
}

/// A full block of the report's table.
pub(crate) fn block(book: &PartitionBook) -> Bytes {
    Bytes(u64::from(book.block_bytes(TABLE).unwrap_or_default()))
}

/// The cache of each compute node.
pub(crate) fn cache(scenario: &Scenario, book: &PartitionBook) -> Bytes {
    let remote_bytes = book.rows(TABLE) * u64::from(book.row_bytes(TABLE).unwrap_or_default());
    Bytes((remote_bytes as f64 * scenario.cluster.cache_share) as u64).max(block(book))
}

/// Repeat by repeat, the bound and every arm in turn: what changes slowly on the machine meets all of them.
fn all(
    scenario: &Scenario,
    options: &RunOptions,
    places: &Places,
    links: &Links,
    stop: &Stop,
) -> Result<Vec<Run>, RunError> {
    let never = Advisor { backend: AdvisorBackend::Never, ..Advisor::default() };
    let all: Vec<_> = (0..scenario.repeats).flat_map(|n| plays(scenario, &never, n)).collect();
    let steps = u64::from(scenario.trainers()) * u64::from(scenario.trainer.minibatches);
    let bar = ProgressBar::new(all.len() as u64 * steps);
    if let Ok(style) =
        ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3}% {msg} {elapsed}/{duration}")
    {
        bar.set_style(style);
    }
    bar.set_prefix(scenario.name.clone());
    let on_step = || bar.inc(1);
    let stage = Stage { scenario, binaries: &options.binaries, places, links, stop, on_step: &on_step };
    let mut runs = Vec::new();
    for play in all {
        let arm = play.arm.map_or("bound", Arm::name);
        let under = play.advisor.filter(|_| play.is_advised).map(|advisor| advisor.backend.name());
        let repeat = play.repeat + 1;
        bar.set_message(match under {
            Some(under) => format!("repeat {repeat}/{} {arm} under {under}", scenario.repeats),
            None => format!("repeat {repeat}/{} {arm}", scenario.repeats),
        });
        let run = once::once(&stage, play).map_err(|source| match source {
            OnceError::Process(ProcessError::Stopped)
            | OnceError::Link(LinkError::Process(ProcessError::Stopped)) => RunError::Stopped,
            source => RunError::Once { arm, repeat, source },
        })?;
        runs.push(run);
    }
    bar.finish_and_clear();
    Ok(runs)
}

/// The trainers' own digests prove that all arms served the same requests.
fn same_trace(runs: &[Run]) -> Result<(), RunError> {
    let fed: Vec<&Run> = runs.iter().filter(|run| run.arm.is_some()).collect();
    let Some(first) = fed.first() else { return Ok(()) };
    for run in &fed {
        for (trainer, reference) in run.trainers.iter().zip(&first.trainers) {
            if trainer.trace_digest != reference.trace_digest {
                let name = |run: &Run| run.arm.map_or("bound", Arm::name);
                return Err(RunError::Traces { rank: trainer.rank.0, arm: name(run), other: name(first) });
            }
        }
    }
    Ok(())
}

/// `None` where the trainers are not ours, since then what they asked for is not known.
pub(crate) fn oracle_row(
    scenario: &Scenario,
    dataset: &Dataset,
    workload: &Workload,
    runs: &[Run],
    reached: &[BytesPerSecond],
    slots: usize,
) -> Option<Reference> {
    if !scenario.trainer.command.is_empty() {
        return None;
    }
    let recorded =
        runs.iter().find(|run| run.arm == Some(Arm::Rudder)).or(runs.iter().find(|run| run.arm.is_some()))?;
    let order = interleaving(recorded, scenario.cluster.compute_nodes as usize);
    let wanted: Vec<Vec<_>> = order
        .into_iter()
        .map(|node| {
            let blocks = |(rank, minibatch)| workload.blocks(rank, minibatch, dataset.book());
            node.into_iter().filter_map(blocks).collect()
        })
        .collect();
    let bound = bound(&runs.iter().filter(|run| run.arm.is_none()).collect::<Vec<_>>())?;
    let trainers = u64::from(scenario.trainers());
    let shared = if scenario.cluster.compute_nodes > 1 { 2 * (trainers - 1) } else { 0 };
    let limits = OracleLimits {
        slots,
        link: reached.iter().copied().min().unwrap_or(scenario.cluster.bandwidth),
        allreduce_bytes_in: Bytes(scenario.trainer.allreduce.0 * shared / trainers.max(1)),
        steps: u64::from(scenario.trainer.minibatches),
        bound_step: Duration::from_secs_f64(1.0 / bound.minibatches_per_s.max(1e-9)),
        storage_nodes: scenario.cluster.storage_nodes as usize,
    };
    Some(oracle(&wanted, dataset.book(), &limits))
}

/// The links, as a report tells of them.
pub(crate) struct LinkFacts<'a> {
    pub mode: &'a str,
    pub bandwidth: BytesPerSecond,
    pub burst: Bytes,
    pub latency: Nanos,
    pub reached: &'a [BytesPerSecond],
}

pub(crate) fn circumstances(
    scenario: &Scenario,
    dataset: &Dataset,
    workload: &Workload,
    links: &LinkFacts<'_>,
    cache: Bytes,
) -> Circumstances {
    let mbit = |rate: BytesPerSecond| rate.0 as f64 * 8.0 / 1e6;
    let machine = machine::this_machine();
    let manifest = dataset.manifest();
    let book = dataset.book();
    Circumstances {
        about: scenario.about.clone(),
        cpu: machine.cpu,
        cores: machine.cores,
        core_use: "shared".to_owned(),
        memory_bytes: machine.memory_bytes,
        kernel: machine.kernel,
        mode: links.mode.to_owned(),
        link_bandwidth_mbit: mbit(links.bandwidth),
        link_burst_bytes: links.burst.0,
        link_reached_mbit: links.reached.iter().map(|&rate| mbit(rate)).collect(),
        link_latency_ms: links.latency.0 as f64 / 1e6,
        allreduce_bytes: scenario.trainer.allreduce.0,
        compute_ms: scenario.trainer.compute.0 as f64 / 1e6,
        trainer_program: scenario.trainer.command.first().cloned(),
        compute_nodes: scenario.cluster.compute_nodes,
        storage_nodes: scenario.cluster.storage_nodes,
        trainers_per_node: scenario.cluster.trainers_per_node,
        seeds: scenario.trainer.seeds,
        fanout: scenario.trainer.fanout.clone(),
        window: scenario.trainer.window,
        vertices: manifest.vertices,
        edges: manifest.edges,
        row_bytes: u64::from(book.row_bytes(TABLE).unwrap_or_default()),
        rows_per_block: book.rows_per_block(TABLE).unwrap_or_default(),
        cache_bytes: cache.0,
        cache_share: scenario.cluster.cache_share,
        rows_per_minibatch: workload.rows_per_minibatch,
        vertex_share: workload.rows_per_minibatch / manifest.vertices.max(1) as f64,
        trace_digest: String::new(),
        notes: Vec::new(),
    }
}

/// What a reader of the numbers has to know beside them.
fn notes(scenario: &Scenario, links: &Links, runs: &[Run]) -> Vec<String> {
    let mut notes = Vec::new();
    if matches!(links.kind, Kind::Netns(_)) && scenario.cluster.latency.0 > 0 {
        notes.push("the scenario's latency is not imposed: namespaces add none".to_owned());
    }
    if !scenario.events.is_empty() && scenario.advisors.is_empty() {
        notes.push(
            "no [advisor] is named: the built-in rules advise every arm, as they do any cluster".to_owned(),
        );
    }
    if scenario.variation != Variation::default() {
        notes.push("[simulation] is for simulated runs: the processes' compute times do not vary".to_owned());
    }
    if matches!(links.kind, Kind::Relay) {
        notes.push("the relay shapes data and all-reduce; the control plane goes past it".to_owned());
    }
    let short =
        runs.iter().find(|run| run.interface_bytes.is_some_and(|sent| sent < run.counters.bytes_moved()));
    if let Some(run) = short {
        let arm = run.arm.map_or("bound", Arm::name);
        notes.push(format!("{arm}: the interfaces saw fewer bytes than the storage nodes say they sent"));
    }
    notes.extend(runs.iter().flat_map(Run::notes));
    notes
}
