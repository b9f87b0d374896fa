//! `rudder scenario` and `rudder demo`

use crate::exit::{self, Failure, bad_input, failed, save, say};
use clap::{Args, Subcommand, ValueEnum};
use rudder_importer::{Bars, BlockSize, Cancel, ImportOptions, Input, import};
use rudder_scenarios::calibrate::calibrate;
use rudder_scenarios::compile::{DatasetSource, Mode, Scenario, load};
use rudder_scenarios::fuzz;
use rudder_scenarios::report::{Report, html, table};
use rudder_scenarios::run::dataset::{Import, ImportRequest};
use rudder_scenarios::run::{Binaries, RunError, RunOptions, run as run_scenario};
use rudder_scenarios::scale::{self, statistics::Statistics};
use rudder_scenarios::stop::Stop;
use rudder_topology::DatasetName;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Subcommand)]
pub enum ScenarioCommand {
    /// Run a scenario's arms, with real processes or simulated, and print the comparison
    #[command(after_help = "Examples:
  rudder scenario run scenarios/catalog/smoke.toml
  sudo rudder scenario run scenarios/catalog/reference.toml --mode netns --html reference.html
  rudder scenario run scenarios/catalog/starved.toml --mode relay --json starved.json
  rudder scenario run scenarios/catalog/starved.toml --mode sim --seed 7")]
    Run(RunArguments),
    /// Run a scenario with real processes and simulated, and print both side by side
    #[command(after_help = "Examples:
  sudo rudder scenario calibrate scenarios/catalog/reference.toml --repeats 1
  rudder scenario calibrate scenarios/catalog/smoke.toml --mode relay --json smoke.json")]
    Calibrate(CalibrateArguments),
    /// Play random schedules with faults around the engine, and random timed clusters, under all invariants
    #[command(after_help = "A violation prints the line that plays it again.

Examples:
  rudder scenario fuzz --seeds 1000
  rudder scenario fuzz --seed 123")]
    Fuzz(FuzzArguments),
    /// Simulate every arm of scenarios on graphs with several cache sizes, in one table
    Sweep(crate::sweep::SweepArguments),
    /// Simulate changing clusters under every advisor, and print what advice is worth
    Decide(crate::decide::DecideArguments),
    /// Print every error of a scenario file, or that there is none
    Check { file: PathBuf },
}

#[derive(Args)]
pub struct RunArguments {
    file: PathBuf,
    #[command(flatten)]
    common: CommonArguments,
    /// Write the report as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the report as a self-contained page with plots
    #[arg(long)]
    html: Option<PathBuf>,
    /// Of the trace and of everything drawn in a simulation, in place of the file's: plays a printed run again
    #[arg(long)]
    seed: Option<u64>,
    /// In place of the file's repeats
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
}

#[derive(Args)]
pub struct CalibrateArguments {
    file: PathBuf,
    #[command(flatten)]
    common: CommonArguments,
    /// Write both reports and their differences as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Of the real processes, in place of the file's repeats
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
}

#[derive(Args)]
pub struct FuzzArguments {
    /// How many
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// This one alone
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Write what was found as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct CommonArguments {
    /// netns (root), relay, plain, auto, or sim (no processes), in place of the file's
    #[arg(long)]
    mode: Option<Mode>,
    /// Where imported datasets are kept (default: the user's cache folder)
    #[arg(long)]
    work: Option<PathBuf>,
    /// The `rudder-node` program (default: the one beside this program)
    #[arg(long)]
    node_binary: Option<PathBuf>,
    /// Keep the processes' logs and topology files here
    #[arg(long)]
    logs: Option<PathBuf>,
}

#[derive(Args)]
#[command(
    after_help = "Runs the scenarios bound_links and reference on the shipped graph and writes a page and a JSON file for each.

With --trainer pyg: the scenario pyg instead, whose trainers really train (GraphSAGE in PyG) where the reference
trainer sleeps. It needs a python3 with the package in python/, torch and torch_geometric.

Examples:
  rudder demo --output reports
  rudder demo --trainer pyg"
)]
pub struct DemoArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Who trains
    #[arg(long, default_value = "reference")]
    trainer: DemoTrainer,
    /// Folder with the scenario files
    #[arg(long, default_value = "scenarios/catalog")]
    catalog: PathBuf,
    /// Where the reports go
    #[arg(long, default_value = "target/demo")]
    output: PathBuf,
}

/// Who trains in the demo.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DemoTrainer {
    /// Real sampling, real bytes; compute is a sleep
    Reference,
    /// Real training in PyTorch Geometric
    Pyg,
}

impl DemoTrainer {
    fn scenarios(self) -> &'static [&'static str] {
        match self {
            DemoTrainer::Reference => &["bound_links", "reference"],
            DemoTrainer::Pyg => &["pyg"],
        }
    }

    /// Says what is missing before anything is started.
    fn check(self) -> Result<(), Failure> {
        if self == DemoTrainer::Reference {
            return Ok(());
        }
        let imports = "import torch_geometric, rudder.trainer";
        let python = Command::new("python3").args(["-W", "ignore", "-c", imports]).output();
        let reason = match python {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                text.lines().last().unwrap_or("it failed").to_owned()
            }
            Err(error) => error.to_string(),
        };
        Err(bad_input(format!(
            "python3 cannot train ({reason}): in an environment of your own `pip install torch torch_geometric ./python`, and run this in it"
        )))
    }
}

pub fn run(command: &ScenarioCommand) -> Result<(), Failure> {
    match command {
        ScenarioCommand::Check { file } => {
            let scenario = load(file).map_err(bad_input)?;
            let (arms, repeats) = (scenario.arms.len(), scenario.repeats);
            say(format_args!("{}: {arms} arms, {repeats} repeats, no errors", file.display()))
        }
        ScenarioCommand::Calibrate(arguments) => calibrated(arguments),
        ScenarioCommand::Fuzz(arguments) => fuzzed(arguments),
        ScenarioCommand::Sweep(arguments) => crate::sweep::run(arguments),
        ScenarioCommand::Decide(arguments) => crate::decide::run(arguments),
        ScenarioCommand::Run(arguments) => {
            let mut scenario = load(&arguments.file).map_err(bad_input)?;
            // A run takes minutes: what it ends with must have a place before it begins.
            for report in [&arguments.json, &arguments.html].into_iter().flatten() {
                folder_is_there(report)?;
            }
            scenario.seed = arguments.seed.unwrap_or(scenario.seed);
            scenario.repeats = arguments.repeats.unwrap_or(scenario.repeats);
            let stop = Stop::on_signals().map_err(failed)?;
            if let DatasetSource::Statistics(statistics) = scenario.dataset {
                return scaled(&scenario, &statistics, arguments, &stop);
            }
            let report = compare(&scenario, &arguments.common, &stop)?;
            write(&report, arguments.json.as_deref(), arguments.html.as_deref())?;
            check_bytes(&report)
        }
    }
}

/// Whether a report can be written there, asked before the run that it is about.
pub fn folder_is_there(report: &Path) -> Result<(), Failure> {
    match report.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        None => Ok(()),
        Some(folder) => Err(bad_input(format!(
            "cannot write {}: the folder {} is not there; make it, or write elsewhere",
            report.display(),
            folder.display()
        ))),
    }
}

pub fn demo(arguments: &DemoArguments) -> Result<(), Failure> {
    std::fs::create_dir_all(&arguments.output)
        .map_err(|error| failed(format!("cannot make {}: {error}", arguments.output.display())))?;
    arguments.trainer.check()?;
    let stop = Stop::on_signals().map_err(failed)?;
    let mut written = Vec::new();
    for name in arguments.trainer.scenarios() {
        let scenario = load(&arguments.catalog.join(format!("{name}.toml"))).map_err(bad_input)?;
        let report = compare(&scenario, &arguments.common, &stop)?;
        let page = arguments.output.join(format!("{name}.html"));
        let json = arguments.output.join(format!("{name}.json"));
        write(&report, Some(&json), Some(&page))?;
        check_bytes(&report)?;
        written.extend([page, json]);
    }
    say("reports:")?;
    for path in written {
        say(format_args!("  {}", std::path::absolute(&path).unwrap_or(path).display()))?;
    }
    Ok(())
}

/// A dataset of statistics has a report of its own.
fn scaled(
    scenario: &Scenario,
    statistics: &Statistics,
    arguments: &RunArguments,
    stop: &Stop,
) -> Result<(), Failure> {
    if arguments.common.mode.unwrap_or(scenario.mode) != Mode::Sim {
        return Err(bad_input(
            "a dataset of statistics is simulated only: write mode = \"sim\" or give --mode sim",
        ));
    }
    if arguments.html.is_some() {
        return Err(bad_input("a dataset of statistics has no page; its figures come as text and as --json"));
    }
    let report = scale::run(scenario, statistics, stop).map_err(failed)?;
    say(scale::render(&report))?;
    save_json(arguments.json.as_deref(), &report)
}

fn calibrated(arguments: &CalibrateArguments) -> Result<(), Failure> {
    let mut scenario = load(&arguments.file).map_err(bad_input)?;
    arguments.json.as_deref().map_or(Ok(()), folder_is_there)?;
    scenario.repeats = arguments.repeats.unwrap_or(scenario.repeats);
    let stop = Stop::on_signals().map_err(failed)?;
    let options = options(&arguments.common, binaries(arguments.common.node_binary.as_deref())?);
    let calibration = calibrate(&scenario, &options, &Importer(&stop), &stop).map_err(unsuccessful)?;
    say(rudder_scenarios::calibrate::render(&calibration))?;
    save_json(arguments.json.as_deref(), &calibration)
}

fn fuzzed(arguments: &FuzzArguments) -> Result<(), Failure> {
    arguments.json.as_deref().map_or(Ok(()), folder_is_there)?;
    let stop = Stop::on_signals().map_err(failed)?;
    let seeds = match arguments.seed {
        Some(seed) => seed..seed.saturating_add(1),
        None => arguments.from..arguments.from.saturating_add(arguments.seeds),
    };
    let bar = indicatif::ProgressBar::new(seeds.end - seeds.start);
    let campaign = fuzz::campaign(seeds, &stop, &|| bar.inc(1));
    bar.finish_and_clear();
    save_json(arguments.json.as_deref(), &campaign)?;
    say(campaign.to_string())?;
    match campaign.violations.len() {
        0 => Ok(()),
        violations => Err(failed(format!("{violations} seeds broke an invariant"))),
    }
}

fn save_json(path: Option<&Path>, report: &impl serde::Serialize) -> Result<(), Failure> {
    path.map_or(Ok(()), |path| exit::save_json(path, report))
}

fn options(common: &CommonArguments, binaries: Binaries) -> RunOptions {
    RunOptions {
        binaries,
        mode: common.mode,
        work: common.work.clone().unwrap_or_else(work_folder),
        logs: common.logs.clone(),
    }
}

fn unsuccessful(error: RunError) -> Failure {
    match error {
        RunError::Prepare(error) => bad_input(error),
        error @ RunError::Unplayable { .. } => bad_input(error),
        error => failed(error),
    }
}

fn compare(scenario: &Scenario, common: &CommonArguments, stop: &Stop) -> Result<Report, Failure> {
    let binaries = match common.mode.unwrap_or(scenario.mode) {
        Mode::Sim => Binaries { rudder: PathBuf::new(), node: PathBuf::new() },
        _ => binaries(common.node_binary.as_deref())?,
    };
    let report =
        run_scenario(scenario, &options(common, binaries), &Importer(stop), stop).map_err(unsuccessful)?;
    say(table::render(&report))?;
    Ok(report)
}

fn binaries(node: Option<&Path>) -> Result<Binaries, Failure> {
    let rudder = std::env::current_exe().map_err(failed)?;
    let node = node.map_or_else(|| rudder.with_file_name("rudder-node"), Path::to_owned);
    if !node.is_file() {
        let advice = "build it (cargo build -p rudder-node) or give --node-binary";
        return Err(bad_input(format!("{} is not there: {advice}", node.display())));
    }
    Ok(Binaries { rudder, node })
}

/// Where imported datasets are kept.
pub fn work_folder() -> PathBuf {
    let folder =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("rudder")
}

fn write(report: &Report, json: Option<&Path>, page: Option<&Path>) -> Result<(), Failure> {
    save_json(json, report)?;
    if let Some(path) = page {
        save(path, &html::render(report))?;
    }
    Ok(())
}

fn check_bytes(report: &Report) -> Result<(), Failure> {
    let arms = report.arms.iter().map(|arm| (arm.arm.name(), arm.bytes_wrong));
    let advised = report.advised.iter().flat_map(|advised| &advised.rows);
    let advised = advised.map(|row| (row.advisor, row.bytes_wrong));
    let wrong: Vec<&str> =
        arms.chain(advised).filter(|&(_, bytes)| bytes > 0).map(|(name, _)| name).collect();
    if wrong.is_empty() { Ok(()) } else { Err(failed(format!("wrong bytes in {}", wrong.join(", ")))) }
}

/// Imports what a scenario names, and ends when it is asked to.
pub struct Importer<'a>(pub &'a Stop);

impl Import for Importer<'_> {
    fn import(&self, request: &ImportRequest) -> Result<(), String> {
        let Ok(input) = request.from.parse::<Input>();
        let cancel = Cancel::default();
        let options = ImportOptions {
            name: Some(DatasetName::new(request.name.clone()).map_err(|error| error.to_string())?),
            parts: Some(request.parts),
            block_size: request.rows_per_block.map_or(BlockSize::Auto, BlockSize::Rows),
            seeds: request.seeds,
            fanout: request.fanout.clone(),
            seed: request.seed,
            cancel: cancel.clone(),
            ..ImportOptions::new(input, &request.target)
        };
        eprintln!("importing {} (once; later runs find it)", request.from);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Carries the stop flag over.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if self.0.is_raised() {
                        cancel.cancel();
                    }
                    std::thread::park_timeout(Duration::from_millis(50));
                }
            });
            let imported = import(&options, &mut Bars::default());
            is_over.store(true, Ordering::Relaxed);
            imported.map(|_| ()).map_err(|error| error.to_string())
        })
    }
}
