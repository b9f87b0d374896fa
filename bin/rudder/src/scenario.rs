//! `rudder scenario` and `rudder demo`

use crate::exit::{Failure, bad_input, failed, say};
use clap::{Args, Subcommand};
use rudder_importer::{Bars, BlockSize, ImportOptions, Input, import};
use rudder_scenarios::compile::{Mode, Scenario, load};
use rudder_scenarios::report::{Report, html, table};
use rudder_scenarios::run::dataset::{Import, ImportRequest};
use rudder_scenarios::run::{Binaries, RunError, RunOptions, run as run_scenario};
use rudder_scenarios::stop::Stop;
use rudder_topology::DatasetName;
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub enum ScenarioCommand {
    /// Run a scenario's arms, with real processes or simulated, and print the comparison
    #[command(after_help = "Examples:
  rudder scenario run scenarios/catalog/smoke.toml
  sudo rudder scenario run scenarios/catalog/reference.toml --mode netns --html reference.html
  rudder scenario run scenarios/catalog/starved.toml --mode relay --json starved.json
  rudder scenario run scenarios/catalog/starved.toml --mode sim --seed 7")]
    Run(RunArguments),
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

Example:
  rudder demo --output reports"
)]
pub struct DemoArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Folder with the scenario files
    #[arg(long, default_value = "scenarios/catalog")]
    catalog: PathBuf,
    /// Where the reports go
    #[arg(long, default_value = "target/demo")]
    output: PathBuf,
}

const DEMO: [&str; 2] = ["bound_links", "reference"];

pub fn run(command: &ScenarioCommand) -> Result<(), Failure> {
    match command {
        ScenarioCommand::Check { file } => {
            let scenario = load(file).map_err(bad_input)?;
            let (arms, repeats) = (scenario.arms.len(), scenario.repeats);
            say(format_args!("{}: {arms} arms, {repeats} repeats, no errors", file.display()))
        }
        ScenarioCommand::Run(arguments) => {
            let mut scenario = load(&arguments.file).map_err(bad_input)?;
            // A run takes minutes: what it ends with must have a place before it begins.
            for report in [&arguments.json, &arguments.html].into_iter().flatten() {
                folder_is_there(report)?;
            }
            scenario.seed = arguments.seed.unwrap_or(scenario.seed);
            scenario.repeats = arguments.repeats.unwrap_or(scenario.repeats);
            let stop = Stop::on_signals().map_err(failed)?;
            let report = compare(&scenario, &arguments.common, &stop)?;
            write(&report, arguments.json.as_deref(), arguments.html.as_deref())?;
            check_bytes(&report)
        }
    }
}

fn folder_is_there(report: &Path) -> Result<(), Failure> {
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
    let stop = Stop::on_signals().map_err(failed)?;
    let mut written = Vec::new();
    for name in DEMO {
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

fn compare(scenario: &Scenario, common: &CommonArguments, stop: &Stop) -> Result<Report, Failure> {
    let options = RunOptions {
        binaries: if common.mode.unwrap_or(scenario.mode) == Mode::Sim {
            Binaries { rudder: PathBuf::new(), node: PathBuf::new() }
        } else {
            binaries(common.node_binary.as_deref())?
        },
        mode: common.mode,
        work: common.work.clone().unwrap_or_else(work_folder),
        logs: common.logs.clone(),
    };
    let report = run_scenario(scenario, &options, &Importer, stop).map_err(|error| match error {
        RunError::Prepare(error) => bad_input(error),
        error => failed(error),
    })?;
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

fn work_folder() -> PathBuf {
    let folder =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("rudder")
}

fn write(report: &Report, json: Option<&Path>, page: Option<&Path>) -> Result<(), Failure> {
    let save = |path: &Path, text: String| {
        std::fs::write(path, text)
            .map_err(|error| failed(format!("cannot write {}: {error}", path.display())))
    };
    if let Some(path) = json {
        let mut text = serde_json::to_string_pretty(report).map_err(failed)?;
        text.push('\n');
        save(path, text)?;
    }
    if let Some(path) = page {
        save(path, html::render(report))?;
    }
    Ok(())
}

fn check_bytes(report: &Report) -> Result<(), Failure> {
    let wrong: Vec<&str> =
        report.arms.iter().filter(|arm| arm.bytes_wrong > 0).map(|arm| arm.arm.name()).collect();
    if wrong.is_empty() { Ok(()) } else { Err(failed(format!("wrong bytes in {}", wrong.join(", ")))) }
}

/// Imports what a scenario names.
struct Importer;

impl Import for Importer {
    fn import(&self, request: &ImportRequest) -> Result<(), String> {
        let Ok(input) = request.from.parse::<Input>();
        let options = ImportOptions {
            name: Some(DatasetName::new(request.name.clone()).map_err(|error| error.to_string())?),
            parts: request.parts,
            block_size: request.rows_per_block.map_or(BlockSize::Auto, BlockSize::Rows),
            seeds: request.seeds,
            fanout: request.fanout.clone(),
            seed: request.seed,
            ..ImportOptions::new(input, &request.target)
        };
        eprintln!("importing {} (once; later runs find it)", request.from);
        import(&options, &mut Bars::default()).map(|_| ()).map_err(|error| error.to_string())
    }
}
