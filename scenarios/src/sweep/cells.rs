//! Runs a sweep: a dataset and a trace for each scenario and graph, then all arms of all cache sizes.

use crate::arm::Arm;
use crate::compile::{DatasetSource, Scenario};
use crate::parallel::in_parallel;
use crate::progress::steps_bar;
use crate::record::{Outcome, Run};
use crate::report::bound;
use crate::run::dataset::{Import, PrepareError, prepare};
use crate::run::{TABLE, block, cache, oracle_row};
use crate::sim::scenario::{SimulatedError, prior_of, spec};
use crate::sim::{Costs, UntilStopped, run_watched};
use crate::stop::Stop;
use crate::sweep::{Cell, Sweep};
use crate::workload::Workload;
use indicatif::ProgressBar;
use rudder_client::dataset::Dataset;
use rudder_topology::BytesPerSecond;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// By block: what a policy knows of the graph before training.
type Prior = Arc<[f32]>;

/// What to sweep over.
#[derive(Clone, Debug)]
pub struct SweepOptions {
    pub scenarios: Vec<Scenario>,
    /// In place of each scenario's dataset: a dataset directory, a source to import, or `generate:...`. Empty: the
    /// scenario's own.
    pub graphs: Vec<String>,
    /// Of the remote bytes; each from 0 to 1.
    pub cache_shares: Vec<f64>,
    pub arms: Vec<Arm>,
    /// Of each trainer, in place of the scenario's.
    pub minibatches: Option<u32>,
    /// In place of the scenario's.
    pub seed: Option<u64>,
    /// Where imported datasets are kept.
    pub work: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("{scenario}: {source}")]
    Prepare { scenario: String, source: PrepareError },
    #[error("stopped on request")]
    Stopped,
}

/// Simulates all cells.
pub fn sweep(options: &SweepOptions, importer: &dyn Import, stop: &Stop) -> Result<Sweep, SweepError> {
    let mut sweep = Sweep::default();
    let scenarios = options.scenarios.iter().map(|scenario| with_options(scenario, options));
    let groups: Vec<Scenario> =
        scenarios.flat_map(|scenario| on_graphs(&scenario, &options.graphs)).collect();
    for (at, scenario) in groups.iter().enumerate() {
        let dataset = prepare(scenario, &options.work, importer)
            .map_err(|source| SweepError::Prepare { scenario: scenario.name.clone(), source })?;
        let bar = bar(scenario, &dataset, options, (at + 1, groups.len()));
        let group = Group { scenario, dataset: &dataset, options, stop, bar: &bar };
        let done = group.cells(&Workload::sample(scenario, &dataset), &mut sweep);
        bar.finish_and_clear();
        if done.is_err() {
            sweep.stopped = true;
            break;
        }
    }
    if sweep.stopped && sweep.cells.is_empty() { Err(SweepError::Stopped) } else { Ok(sweep) }
}

fn with_options(scenario: &Scenario, options: &SweepOptions) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.trainer.minibatches = options.minibatches.unwrap_or(scenario.trainer.minibatches);
    scenario.seed = options.seed.unwrap_or(scenario.seed);
    scenario.arms.clone_from(&options.arms);
    scenario
}

/// The scenario on each graph.
fn on_graphs(scenario: &Scenario, graphs: &[String]) -> Vec<Scenario> {
    if graphs.is_empty() {
        return vec![scenario.clone()];
    }
    let (parts, rows_per_block) = match scenario.dataset {
        DatasetSource::Import { parts, rows_per_block, .. } => (parts, rows_per_block),
        DatasetSource::Directory(_) | DatasetSource::Statistics(_) => (scenario.cluster.storage_nodes, None),
    };
    let on = |graph: &String| {
        let directory = Path::new(graph);
        let dataset = if directory.join("dataset.toml").is_file() {
            DatasetSource::Directory(directory.to_owned())
        } else {
            DatasetSource::Import { from: graph.clone(), parts, rows_per_block }
        };
        Scenario { dataset, ..scenario.clone() }
    };
    graphs.iter().map(on).collect()
}

fn bar(scenario: &Scenario, dataset: &Dataset, options: &SweepOptions, place: (usize, usize)) -> ProgressBar {
    let runs = (options.cache_shares.len() * (options.arms.len() + 1)) as u64;
    let steps = u64::from(scenario.trainers()) * u64::from(scenario.trainer.minibatches);
    let name = &dataset.manifest().name;
    steps_bar(format!("{}/{} {} on {name}", place.0, place.1, scenario.name), runs * steps)
}

/// One scenario on one graph.
struct Group<'a> {
    scenario: &'a Scenario,
    dataset: &'a Dataset,
    options: &'a SweepOptions,
    stop: &'a Stop,
    bar: &'a ProgressBar,
}

impl Group<'_> {
    fn cells(&self, workload: &Workload, sweep: &mut Sweep) -> Result<(), SweepError> {
        let shares = &self.options.cache_shares;
        let arms = || std::iter::once(None).chain(self.options.arms.iter().copied().map(Some));
        let pieces: Vec<(f64, Option<Arm>)> =
            shares.iter().flat_map(|&share| arms().map(move |arm| (share, arm))).collect();
        // The same for every cache, and some take an epoch of sampling.
        let priors = in_parallel(&self.options.arms, |&arm| Some((arm, self.prior(arm)?)));
        let priors: BTreeMap<Arm, Prior> = priors.into_iter().flatten().collect();
        let runs = in_parallel(&pieces, |&(share, arm)| self.run(workload, share, arm, &priors));
        if self.stop.is_raised() {
            return Err(SweepError::Stopped);
        }
        let mut runs = runs.into_iter();
        let mut cells: Vec<(f64, Vec<Run>)> = Vec::new();
        for &share in shares {
            let mut of_cell = Vec::new();
            for (arm, run) in arms().zip(runs.by_ref()) {
                match run {
                    Ok(run) => of_cell.push(run),
                    Err(error) => sweep.failures.push(format!(
                        "{} on {}, cache {:.0} %, {}: {error}",
                        self.scenario.name,
                        self.dataset.manifest().name,
                        share * 100.0,
                        arm.map_or("bound", Arm::name)
                    )),
                }
            }
            cells.push((share, of_cell));
        }
        sweep.cells.extend(in_parallel(&cells, |(share, runs)| self.cell(workload, *share, runs)));
        Ok(())
    }

    fn with_share(&self, share: f64) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.cluster.cache_share = share;
        scenario
    }

    fn prior(&self, arm: Arm) -> Option<Prior> {
        let book = self.dataset.book();
        let spec = spec(self.scenario, book, arm, cache(self.scenario, book)).ok()?;
        prior_of(&spec, self.dataset)
    }

    fn run(
        &self,
        workload: &Workload,
        share: f64,
        arm: Option<Arm>,
        priors: &BTreeMap<Arm, Prior>,
    ) -> Result<Run, SimulatedError> {
        let scenario = self.with_share(share);
        let cache = cache(&scenario, self.dataset.book());
        let mut spec = spec(&scenario, self.dataset.book(), arm.unwrap_or(Arm::None), cache)?;
        spec.prior = arm.and_then(|arm| priors.get(&arm).cloned());
        let mut on_step = |_: &_| self.bar.inc(1);
        run_watched(&spec, arm, workload, &mut on_step, Some(&mut UntilStopped(self.stop)))
            .map_err(|source| SimulatedError::Arm { arm: arm.map_or("bound", Arm::name), source })
    }

    fn cell(&self, workload: &Workload, share: f64, runs: &[Run]) -> Cell {
        let scenario = self.with_share(share);
        let book = self.dataset.book();
        let payload = scenario.cluster.bandwidth.0 as f64 / Costs::default().wire_factor;
        let slots = cache(&scenario, book).0 / block(book).0.max(1);
        let reached = [BytesPerSecond(payload as u64)];
        let vertices = self.dataset.manifest().vertices;
        Cell {
            scenario: scenario.name.clone(),
            graph: self.dataset.manifest().name.to_string(),
            vertices,
            row_bytes: u64::from(book.row_bytes(TABLE).unwrap_or_default()),
            rows_per_block: book.rows_per_block(TABLE).unwrap_or_default(),
            seed: scenario.seed,
            minibatches: scenario.trainer.minibatches,
            vertex_share: workload.rows_per_minibatch / vertices.max(1) as f64,
            cache_share: share,
            arms: runs.iter().filter_map(Outcome::of).collect(),
            bound: bound(&runs.iter().filter(|run| run.arm.is_none()).collect::<Vec<_>>()),
            oracle: oracle_row(&scenario, self.dataset, workload, runs, &reached, slots as usize),
        }
    }
}
