//! `rudder scenario decide`

use crate::exit::{Failure, bad_input, failed, save_json, say};
use crate::scenario::folder_is_there;
use clap::Args;
use rudder_advisor::experience::Store;
use rudder_scenarios::decide::{DecideOptions, Kind, decide, is_served, table};
use rudder_scenarios::stop::Stop;
use rudder_topology::{Advisor, AdvisorBackend, Nanos};
use std::path::PathBuf;

#[derive(Args)]
#[command(
    after_help = "Each seed is a small simulated cluster in which something changes midway; its whole run is played once for each
advisor, and once for each single directive that could be given at the first consult. The same seed gives the same
figures, but for advisors that are served.

Examples:
  rudder scenario decide --seeds 200
  rudder scenario decide --seeds 50 --first-seed 1000 --advisors rules,random --json decisions.json
  rudder scenario decide --seeds 200 --first-seed 100000 --experience tried.redb
  rudder experience train tried.redb --out evaluator.json
  rudder scenario decide --seeds 200 --advisors rules,distilled --distilled distilled.json
  rudder scenario decide --seeds 20 --advisors rules,openai --url http://127.0.0.1:8000/v1 --model small"
)]
pub struct DecideArguments {
    /// How many scenarios
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Whom to ask, beside never
    #[arg(long, value_delimiter = ',', default_value = "always,random,first,rules", value_parser = backend)]
    advisors: Vec<AdvisorBackend>,
    /// What changes, in place of what the seed draws: steady, link_degrades, storage_slows, storage_goes,
    /// fanout_changes, cache_shrinks, job_joins, job_without_look_ahead
    #[arg(long, value_parser = kind)]
    change: Option<Kind>,
    /// Leave out trying every single directive
    #[arg(long)]
    quick: bool,
    /// Of an advisor that is served
    #[arg(long)]
    url: Option<String>,
    /// Of an advisor that is served
    #[arg(long)]
    model: Option<String>,
    /// Of an advisor that is served: for one consult with all its attempts [default: 20s]
    #[arg(long)]
    deadline: Option<Nanos>,
    /// The recording of replay
    #[arg(long)]
    replay: Option<PathBuf>,
    /// The model of distilled, that `rudder experience train` wrote: from other seeds than these
    #[arg(long)]
    distilled: Option<PathBuf>,
    /// The evaluator that `rudder experience train` wrote, in place of the closed form
    #[arg(long)]
    evaluator: Option<PathBuf>,
    /// Add every directive that was tried and could have been chosen to this file, for `rudder experience train`
    #[arg(long, conflicts_with = "quick")]
    experience: Option<PathBuf>,
    /// Write every number as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

fn backend(text: &str) -> Result<AdvisorBackend, String> {
    AdvisorBackend::named(text).ok_or_else(|| {
        let known: Vec<&str> = AdvisorBackend::ALL.iter().map(|backend| backend.name()).collect();
        format!("the advisors are {}", known.join(", "))
    })
}

fn kind(text: &str) -> Result<Kind, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
        .map_err(|_| "see --help for what can change".to_owned())
}

pub fn run(arguments: &DecideArguments) -> Result<(), Failure> {
    arguments.json.as_deref().map_or(Ok(()), folder_is_there)?;
    let served = |backend| is_served(backend) && backend != AdvisorBackend::Auto;
    if arguments.advisors.iter().any(|&backend| served(backend)) && arguments.model.is_none() {
        return Err(bad_input("an advisor that is served needs --model (and --url where it is elsewhere)"));
    }
    if arguments.advisors.contains(&AdvisorBackend::Replay) && arguments.replay.is_none() {
        return Err(bad_input("the advisor replay needs --replay FILE, one answer a line"));
    }
    if arguments.advisors.contains(&AdvisorBackend::Distilled) && arguments.distilled.is_none() {
        return Err(bad_input(
            "the advisor distilled needs --distilled FILE, which `rudder experience train` writes from --experience",
        ));
    }
    // Found wanting now rather than when everything was played.
    let store = arguments.experience.as_deref().map(Store::open).transpose().map_err(bad_input)?;
    let advisor = |&backend| Advisor {
        backend,
        url: arguments.url.clone(),
        model: arguments.model.clone(),
        deadline: arguments.deadline.unwrap_or(Advisor::default().deadline),
        replay: arguments.replay.clone(),
        distilled: arguments.distilled.clone(),
        evaluator: arguments.evaluator.clone(),
        ..Advisor::default()
    };
    let options = DecideOptions {
        seeds: arguments.first_seed..arguments.first_seed.saturating_add(arguments.seeds),
        kind: arguments.change,
        advisors: arguments.advisors.iter().filter(|&&b| b != AdvisorBackend::Never).map(advisor).collect(),
        is_exhaustive: !arguments.quick,
    };
    let stop = Stop::on_signals().map_err(failed)?;
    let bar = indicatif::ProgressBar::new(arguments.seeds);
    let decided = decide(&options, &stop, &|| bar.inc(1)).map_err(failed)?;
    bar.finish_and_clear();
    if stop.is_raised() {
        eprintln!("stopped: {} of {} scenarios were played", decided.scenarios.len(), arguments.seeds);
    }
    if let Some(store) = store {
        let mut tried = decided.scenarios.iter().flat_map(|trials| &trials.experience);
        tried.try_for_each(|experience| store.add(experience)).map_err(failed)?;
    }
    arguments.json.as_deref().map_or(Ok(()), |path| save_json(path, &decided))?;
    say(table::render(&decided))
}
