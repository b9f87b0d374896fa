//! Spec to [`Scenario`]: defaults filled in, ranges checked, every error collected with its line.

use crate::arm::Arm;
use crate::scale::statistics::Statistics;
use crate::sim::{TimedEvent, Variation};
use crate::spec::{At, ReadError, Spec, parse};
use rudder_topology::{Advisor, Bytes, BytesPerSecond, Nanos};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What a scenario file writes for every arm there is.
const ALL_ARMS: &str = "all";

/// A scenario that passed every check.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub file: PathBuf,
    pub name: String,
    pub about: String,
    pub seed: u64,
    pub arms: Vec<Arm>,
    pub repeats: u32,
    pub mode: Mode,
    pub dataset: DatasetSource,
    pub cluster: ClusterPlan,
    pub trainer: TrainerPlan,
    /// Of simulated compute times.
    pub variation: Variation,
    /// What happens to the cluster. Storage nodes have the first ids, then come compute nodes.
    pub events: Vec<TimedEvent>,
    /// Fan-outs that come later, by the minibatch of each trainer from which on they count.
    pub fanouts: Vec<(u64, Vec<u32>)>,
    /// Further jobs of a simulated cluster.
    pub joins: Vec<JoinPlan>,
    /// Under whose advice `rudder` is played again.
    pub advisors: Vec<Advisor>,
    /// What real processes cannot play of this.
    pub unplayable: Vec<At<Unplayable>>,
}

/// How links get their speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Namespaces where permitted, else a relay.
    Auto,
    /// A network namespace a node, veth pairs shaped by tbf at both ends. Needs root.
    Netns,
    /// A relay process between the nodes, all on loopback.
    Relay,
    /// Loopback as it is.
    Plain,
    /// No processes: the cluster is simulated.
    Sim,
}

impl Mode {
    pub const ALL: [Mode; 5] = [Mode::Auto, Mode::Netns, Mode::Relay, Mode::Plain, Mode::Sim];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::Netns => "netns",
            Mode::Relay => "relay",
            Mode::Plain => "plain",
            Mode::Sim => "sim",
        }
    }
}

impl FromStr for Mode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Mode::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or("the modes are auto, netns, relay, plain, sim")
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum DatasetSource {
    /// Imported already.
    Directory(PathBuf),
    /// A path to import from, or `generate:...`.
    Import { from: String, parts: u32, rows_per_block: Option<u32> },
    /// No graph at all, but what is known of one; simulated only.
    Statistics(Statistics),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ClusterPlan {
    pub compute_nodes: u32,
    pub storage_nodes: u32,
    pub trainers_per_node: u32,
    /// As topology files say it.
    pub storage_mode: String,
    pub medium: Medium,
    pub cache_share: f64,
    pub bandwidth: BytesPerSecond,
    pub latency: Nanos,
    pub heartbeat_timeout: Option<Nanos>,
    /// What nodes get to connect to each other before a job begins, as they would have had in a cluster.
    pub settle: Nanos,
}

/// A job that comes while the first one trains.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinPlan {
    pub at: Nanos,
    pub trainers_per_node: u32,
    pub window: u32,
    pub seeds: u32,
    pub fanout: Vec<u32>,
    pub compute: Nanos,
    pub minibatches: u32,
}

/// Where the dataset may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    Any,
    /// A real disk: tmpfs is refused.
    Disk,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TrainerPlan {
    pub seeds: u32,
    pub fanout: Vec<u32>,
    pub window: u32,
    pub compute: Nanos,
    pub allreduce: Bytes,
    pub minibatches: u32,
    pub fixed_window: u32,
    /// Whether nodes are told how trainers sample.
    pub replay: bool,
    pub verify: Verify,
    /// Empty: the reference trainer.
    pub command: Vec<String>,
    pub time_limit: Nanos,
}

/// Whether every gathered byte is compared with the dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    Every,
    Nothing,
}

impl Scenario {
    /// What of it cannot be played in a mode, with its lines. Which links `auto` takes is not known before they are
    /// made: it is told as if they could be shaped.
    #[must_use]
    pub fn unplayable_in(&self, mode: Mode) -> Vec<At<Unplayable>> {
        let can = |what: Unplayable| match mode {
            Mode::Sim => true,
            Mode::Netns | Mode::Auto => what.namespaces_can(),
            Mode::Relay | Mode::Plain => false,
        };
        self.unplayable.iter().copied().filter(|at| !can(at.value)).collect()
    }

    /// Whether it can be played by real processes only where namespaces shape the links.
    #[must_use]
    pub fn needs_namespaces(&self) -> bool {
        !self.unplayable_in(Mode::Relay).is_empty()
    }

    /// Trainers of the first job.
    #[must_use]
    pub fn trainers(&self) -> u32 {
        self.cluster.compute_nodes * self.cluster.trainers_per_node
    }
}

/// Everything that is wrong with a scenario file.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioErrors {
    pub file: PathBuf,
    pub errors: Vec<At<ScenarioError>>,
}

impl fmt::Display for ScenarioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.errors.iter().enumerate() {
            let end = if n + 1 < self.errors.len() { "\n" } else { "" };
            write!(f, "{}:{}: {}{end}", self.file.display(), error.line, error.value)?;
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioErrors {}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    #[error("cannot be read: {reason}")]
    File { reason: String },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("`{key}` is missing; write {key} = {example}")]
    Missing { key: &'static str, example: &'static str },
    #[error("`{key}` is {value}; it lies between {min} and {max}")]
    Range { key: &'static str, value: String, min: String, max: String },
    #[error("`{key}`: {reason}")]
    Value { key: &'static str, reason: String },
    #[error("no arm is called `{name}`; the arms are {known}")]
    Arm { name: String, known: String },
    #[error("the arm `{name}` stands twice")]
    ArmTwice { name: &'static str },
    #[error("give one of `import`, `directory` and `statistics` of the dataset")]
    TwoDatasets,
    #[error(
        "the dataset is missing; write import = \"PATH\", import = \"generate:...\" or directory = \"DIR\""
    )]
    NoDataset,
    #[error("`{key}` belongs to `import`; an imported dataset has its own")]
    OnlyImport { key: &'static str },
    #[error("{trainers} trainers are more than {max}")]
    Trainers { trainers: u64, max: u64 },
}

/// Most trainers of a scenario with processes: all of them run on this machine.
const TRAINERS_MAX: u64 = 64;
/// Most nodes of a kind, and trainers, of a scenario that is simulated.
const SIMULATED_MAX: u32 = 2048;

/// Reads and compiles a file.
pub fn load(file: &Path) -> Result<Scenario, ScenarioErrors> {
    let text = std::fs::read_to_string(file).map_err(|error| ScenarioErrors {
        file: file.to_owned(),
        errors: vec![At { line: 1, value: ScenarioError::File { reason: error.to_string() } }],
    })?;
    compile(&text, file)
}

/// Compiles a file's text. Paths in it are relative to the file's folder.
pub fn compile(text: &str, file: &Path) -> Result<Scenario, ScenarioErrors> {
    let (spec, errors) = parse(text);
    let read = errors.into_iter().map(|At { line, value }| At { line, value: value.into() });
    let mut compiler = Compiler { errors: read.collect() };
    let scenario = compiler.scenario(&spec, file);
    if compiler.errors.is_empty() {
        return Ok(scenario);
    }
    compiler.errors.sort_by_key(|error| error.line);
    // A key that was unreadable is not missing as well.
    let wrong: Vec<_> = compiler.errors.iter().filter_map(|error| wrong_key(&error.value)).collect();
    compiler.errors.retain(|error| match error.value {
        ScenarioError::Missing { key, .. } => !wrong.contains(&key),
        _ => true,
    });
    Err(ScenarioErrors { file: file.to_owned(), errors: compiler.errors })
}

fn wrong_key(error: &ScenarioError) -> Option<&'static str> {
    match error {
        ScenarioError::Read(ReadError::WrongType { key, .. }) => Some(key),
        _ => None,
    }
}

struct Compiler {
    errors: Vec<At<ScenarioError>>,
}

impl Compiler {
    fn error(&mut self, line: usize, value: ScenarioError) {
        self.errors.push(At { line, value });
    }

    fn scenario(&mut self, spec: &Spec, file: &Path) -> Scenario {
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let mode = self.parsed("mode", spec.mode.as_ref()).unwrap_or(Mode::Auto);
        let nodes_max = if mode == Mode::Sim { SIMULATED_MAX } else { 64 };
        let cluster = self.cluster(spec, nodes_max);
        let storage_nodes = cluster.storage_nodes;
        let trainers = u64::from(cluster.compute_nodes) * u64::from(cluster.trainers_per_node);
        let trainers_max = if mode == Mode::Sim { u64::from(SIMULATED_MAX) } else { TRAINERS_MAX };
        if trainers > trainers_max {
            self.error(spec.cluster.line, ScenarioError::Trainers { trainers, max: trainers_max });
        }
        let repeats = self.whole("repeats", spec.repeats, 1, 100, 1, Some(3));
        let seed = self.whole("seed", spec.seed, 0, u32::MAX, 1, Some(1));
        let trainer = self.trainer(spec);
        let mut happens = self.events(spec, &cluster, &trainer);
        let advisors = self.advisors(&spec.advisor, file);
        happens.unplayable.extend(unplayable::advisors(spec.advisor.line, &advisors));
        happens.unplayable.sort_by_key(|at| at.line);
        Scenario {
            file: file.to_owned(),
            name: spec.name.clone().map_or(stem, |name| name.value),
            about: spec.about.clone().map(|about| about.value).unwrap_or_default(),
            seed: u64::from(seed),
            arms: self.arms(spec),
            repeats,
            mode,
            dataset: self.dataset(spec, file, storage_nodes),
            variation: self.variation(&spec.simulation),
            events: happens.events,
            fanouts: happens.fanouts,
            joins: happens.joins,
            advisors,
            unplayable: happens.unplayable,
            cluster,
            trainer,
        }
    }

    fn arms(&mut self, spec: &Spec) -> Vec<Arm> {
        let Some(names) = &spec.arms else { return Arm::DEFAULT.to_vec() };
        if names.value == [ALL_ARMS] {
            return Arm::ALL.to_vec();
        }
        let mut arms = Vec::new();
        for name in &names.value {
            match Arm::named(name) {
                Some(arm) if arms.contains(&arm) => {
                    self.error(names.line, ScenarioError::ArmTwice { name: arm.name() });
                }
                Some(arm) => arms.push(arm),
                None => {
                    let known = Arm::ALL.map(Arm::name).into_iter().chain([ALL_ARMS]);
                    let known = known.collect::<Vec<_>>().join(", ");
                    let name = name.chars().take(60).collect();
                    self.error(names.line, ScenarioError::Arm { name, known });
                }
            }
        }
        if names.value.is_empty() {
            let reason = "name at least one arm".to_owned();
            self.error(names.line, ScenarioError::Value { key: "arms", reason });
        }
        arms
    }

    fn dataset(&mut self, spec: &Spec, file: &Path, storage_nodes: u32) -> DatasetSource {
        let dataset = &spec.dataset;
        let folder = file.parent().unwrap_or(Path::new(""));
        if let Some(statistics) = &dataset.statistics {
            return self.statistics(dataset, statistics);
        }
        match (&dataset.import, &dataset.directory) {
            (Some(from), None) => {
                let parts = self.whole("parts", dataset.parts, 1, 65_535, 1, Some(storage_nodes));
                let rows = dataset.rows_per_block.map(|rows| {
                    if !(1..=64).contains(&rows.value) || rows.value.count_ones() != 1 {
                        let reason = format!("{} is no power of two from 1 to 64", rows.value);
                        self.error(rows.line, ScenarioError::Value { key: "rows_per_block", reason });
                    }
                    u32::try_from(rows.value).unwrap_or(1)
                });
                let from = match from.value.strip_prefix("generate:") {
                    Some(_) => from.value.clone(),
                    None => folder.join(&from.value).to_string_lossy().into_owned(),
                };
                DatasetSource::Import { from, parts, rows_per_block: rows }
            }
            (None, Some(directory)) => {
                for (key, given) in [("parts", dataset.parts), ("rows_per_block", dataset.rows_per_block)] {
                    if let Some(given) = given {
                        self.error(given.line, ScenarioError::OnlyImport { key });
                    }
                }
                DatasetSource::Directory(folder.join(&directory.value))
            }
            (Some(_), Some(second)) => {
                self.error(second.line, ScenarioError::TwoDatasets);
                DatasetSource::Directory(PathBuf::new())
            }
            (None, None) => {
                self.error(dataset.line, ScenarioError::NoDataset);
                DatasetSource::Directory(PathBuf::new())
            }
        }
    }

    fn cluster(&mut self, spec: &Spec, nodes_max: u32) -> ClusterPlan {
        let cluster = &spec.cluster;
        let line = cluster.line;
        let storage_mode = cluster.storage_mode.clone().unwrap_or(At { line, value: "auto".to_owned() });
        if !["memory", "direct", "auto"].contains(&storage_mode.value.as_str()) {
            let reason = "the modes are memory, direct, auto".to_owned();
            self.error(storage_mode.line, ScenarioError::Value { key: "storage_mode", reason });
        }
        let cache_share = cluster.cache_share.unwrap_or(At { line, value: 0.25 });
        if !(0.001..=1.0).contains(&cache_share.value) {
            let (value, min, max) = (cache_share.value.to_string(), "0.001".to_owned(), "1".to_owned());
            self.error(cache_share.line, ScenarioError::Range { key: "cache_share", value, min, max });
        }
        let bandwidth = self.parsed("bandwidth", cluster.bandwidth.as_ref());
        if cluster.bandwidth.is_none() {
            self.error(line, ScenarioError::Missing { key: "bandwidth", example: "\"50Mbit/s\"" });
        }
        if bandwidth == Some(BytesPerSecond(0)) {
            let reason = "a link without bandwidth moves nothing".to_owned();
            self.error(line, ScenarioError::Value { key: "bandwidth", reason });
        }
        let disk = cluster.require_disk.is_some_and(|disk| disk.value);
        ClusterPlan {
            compute_nodes: self.whole("compute_nodes", cluster.compute_nodes, 1, nodes_max, line, None),
            storage_nodes: self.whole("storage_nodes", cluster.storage_nodes, 1, nodes_max, line, None),
            trainers_per_node: self.whole(
                "trainers_per_node",
                cluster.trainers_per_node,
                1,
                64,
                line,
                Some(1),
            ),
            storage_mode: storage_mode.value,
            medium: if disk { Medium::Disk } else { Medium::Any },
            cache_share: cache_share.value,
            bandwidth: bandwidth.unwrap_or_default(),
            latency: self.parsed("latency", cluster.latency.as_ref()).unwrap_or_default(),
            heartbeat_timeout: self.parsed("heartbeat_timeout", cluster.heartbeat_timeout.as_ref()),
            settle: self.parsed("settle", cluster.settle.as_ref()).unwrap_or(Nanos::from_millis(400)),
        }
    }

    fn trainer(&mut self, spec: &Spec) -> TrainerPlan {
        let trainer = &spec.trainer;
        let line = trainer.line;
        let fanout = self.fanout(&trainer.fanout.clone().unwrap_or(At { line, value: vec![10, 5] }));
        let compute: Nanos = self.parsed("compute", trainer.compute.as_ref()).unwrap_or_default();
        if trainer.compute.is_none() {
            self.error(line, ScenarioError::Missing { key: "compute", example: "\"60ms\"" });
        }
        let minibatches = self.whole("minibatches", trainer.minibatches, 1, 10_000_000, line, None);
        let window = self.whole("window", trainer.window, 0, 10_000, line, Some(16));
        let fixed = self.whole("fixed_window", trainer.fixed_window, 1, 10_000, line, Some(window.max(1)));
        let least = Nanos::from_secs(30);
        let default_limit =
            Nanos(compute.0.saturating_mul(u64::from(minibatches)).saturating_mul(10)).max(least);
        let verify = trainer.verify.is_none_or(|verify| verify.value);
        let command = trainer.command.clone();
        if command.as_ref().is_some_and(|command| command.value.is_empty()) {
            let reason = "name a program".to_owned();
            self.error(line, ScenarioError::Value { key: "command", reason });
        }
        TrainerPlan {
            seeds: self.whole("seeds", trainer.seeds, 1, 1_000_000, line, Some(32)),
            fanout,
            window,
            compute,
            allreduce: self.parsed("allreduce", trainer.allreduce.as_ref()).unwrap_or_default(),
            minibatches,
            fixed_window: fixed,
            replay: trainer.replay.as_ref().is_some_and(|replay| replay.value),
            verify: if verify { Verify::Every } else { Verify::Nothing },
            command: command.map(|command| command.value).unwrap_or_default(),
            time_limit: self.parsed("time_limit", trainer.time_limit.as_ref()).unwrap_or(default_limit),
        }
    }

    fn fanout(&mut self, given: &At<Vec<i64>>) -> Vec<u32> {
        if given.value.is_empty()
            || given.value.len() > 8
            || given.value.iter().any(|f| !(1..=10_000).contains(f))
        {
            let reason = "1 to 8 hops of 1 to 10000 neighbours".to_owned();
            self.error(given.line, ScenarioError::Value { key: "fanout", reason });
        }
        given.value.iter().map(|&f| u32::try_from(f).unwrap_or(1)).collect()
    }

    fn whole(
        &mut self,
        key: &'static str,
        given: Option<At<i64>>,
        min: u32,
        max: u32,
        line: usize,
        default: Option<u32>,
    ) -> u32 {
        let Some(given) = given else {
            if default.is_none() {
                self.error(line, ScenarioError::Missing { key, example: "2" });
            }
            return default.unwrap_or(min);
        };
        match u32::try_from(given.value) {
            Ok(value) if (min..=max).contains(&value) => value,
            _ => {
                let (value, min_text, max) = (given.value.to_string(), min.to_string(), max.to_string());
                self.error(given.line, ScenarioError::Range { key, value, min: min_text, max });
                min
            }
        }
    }

    fn parsed<T: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &'static str,
        given: Option<&At<String>>,
    ) -> Option<T> {
        let given = given?;
        given
            .value
            .parse()
            .map_err(|error: T::Err| {
                self.error(given.line, ScenarioError::Value { key, reason: error.to_string() });
            })
            .ok()
    }
}

mod simulation;
mod unplayable;
pub use unplayable::Unplayable;

#[cfg(test)]
mod tests;
