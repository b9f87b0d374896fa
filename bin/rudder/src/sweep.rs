//! `rudder scenario sweep`

use crate::exit::{Failure, bad_input, failed, print, save_json};
use crate::scenario::{Importer, folder_is_there, work_folder};
use clap::Args;
use rudder_scenarios::arm::Arm;
use rudder_scenarios::compile::load;
use rudder_scenarios::stop::Stop;
use rudder_scenarios::sweep::table::{Format, render, render_arms};
use rudder_scenarios::sweep::{SweepError, SweepOptions, sweep};
use std::path::PathBuf;

#[derive(Args)]
#[command(
    after_help = "Everything is simulated: no processes, no root, the same answer for the same seed. A graph is imported once and
found again by later runs; generated ones need room for their features (2M vertices with dim=128: 1 GiB).

Examples:
  rudder scenario sweep scenarios/catalog/starved.toml
  rudder scenario sweep scenarios/catalog/reference.toml scenarios/catalog/bound_links.toml --cache 5,10,25,50 --markdown
  rudder scenario sweep scenarios/catalog/starved.toml --graph datasets/cora --graph generate:rmat:vertices=2M,edges=20M,dim=128 --all"
)]
pub struct SweepArguments {
    /// Scenario files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// In place of each scenario's own graph: a dataset directory, a source to import, or generate:...; repeatable
    #[arg(long = "graph")]
    graphs: Vec<String>,
    /// Cache sizes in per cent of the remote bytes
    #[arg(long, value_delimiter = ',', default_value = "5,10,25,50", value_parser = share)]
    cache: Vec<f64>,
    /// The arms to compare with rudder, or `all`
    #[arg(long, value_delimiter = ',', default_value = "all")]
    arms: Vec<String>,
    /// Minibatches of each trainer, in place of the files'
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    minibatches: Option<u32>,
    /// Of the trace and of everything drawn, in place of the files'
    #[arg(long)]
    seed: Option<u64>,
    /// A row for each arm as well
    #[arg(long)]
    all: bool,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
    /// Write every number as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where imported datasets are kept (default: the user's cache folder)
    #[arg(long)]
    work: Option<PathBuf>,
}

/// Per cent, as a share.
fn share(text: &str) -> Result<f64, String> {
    match text.trim().trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err("a cache size is more than 0 and at most 100 per cent".to_owned()),
    }
}

/// The arms of these names; `all` stands for every arm. `rudder` is always among them.
pub fn arms(names: &[String]) -> Result<Vec<Arm>, Failure> {
    let mut arms = Vec::new();
    for name in names {
        let named = if name == "all" {
            Arm::ALL.to_vec()
        } else {
            let known = || Arm::ALL.map(Arm::name).join(", ");
            let unknown =
                || bad_input(format!("no arm is called `{name}`; the arms are {}, or all", known()));
            vec![Arm::named(name).ok_or_else(unknown)?]
        };
        arms.extend(named);
    }
    arms.push(Arm::Rudder);
    let mut seen = std::collections::BTreeSet::new();
    arms.retain(|&arm| seen.insert(arm));
    Ok(arms)
}

pub fn run(arguments: &SweepArguments) -> Result<(), Failure> {
    let scenarios: Result<Vec<_>, _> =
        arguments.files.iter().map(|file| load(file).map_err(bad_input)).collect();
    if let Some(json) = &arguments.json {
        folder_is_there(json)?;
    }
    let options = SweepOptions {
        scenarios: scenarios?,
        graphs: arguments.graphs.clone(),
        cache_shares: arguments.cache.clone(),
        arms: arms(&arguments.arms)?,
        minibatches: arguments.minibatches,
        seed: arguments.seed,
        work: arguments.work.clone().unwrap_or_else(work_folder),
    };
    let stop = Stop::on_signals().map_err(failed)?;
    let sweep = sweep(&options, &Importer(&stop), &stop).map_err(|error| match error {
        SweepError::Prepare { .. } => bad_input(error),
        SweepError::Stopped => failed(error),
    })?;
    if let Some(path) = &arguments.json {
        save_json(path, &sweep)?;
    }
    let format = if arguments.markdown { Format::Markdown } else { Format::Terminal };
    if arguments.all {
        print(format_args!("{}\n", render_arms(&sweep, format)))?;
    }
    print(render(&sweep, format))?;
    match sweep.failures.len() {
        0 if sweep.stopped => {
            Err(failed("stopped on request: the table has the scenarios and graphs that were done before"))
        }
        0 => Ok(()),
        failures => Err(failed(format!("{failures} simulations did not come to an end"))),
    }
}
