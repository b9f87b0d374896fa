//! `rudder advise`

use crate::exit::{Failure, bad_input, failed, print, save, save_json};
use crate::scenario::folder_is_there;
use clap::Args;
use rudder_client::dataset::Dataset;
use rudder_scenarios::advise::{AdviseError, Question, advise, page, table};
use rudder_scenarios::stop::Stop;
use rudder_topology::{Bytes, Fanout, Nanos};
use std::path::PathBuf;

#[derive(Args)]
#[command(
    after_help = "Everything is simulated in virtual time on the dataset's own graph: no node has to run.

How to find --compute-ms: time the part of a training step that begins with the minibatch's rows on the device and ends
before the all-reduce, over 100 steps after 10 to warm up; with a GPU, synchronise before reading the clock
(torch.cuda.synchronize()). Sampling, waiting for data and all-reduce do not belong to it.

Examples:
  rudder advise --dataset papers.dataset --topology lab.toml --seeds 1024 --fanout 15,10,5 --compute-ms 80
  rudder advise --dataset papers.dataset --topology lab.toml --seeds 1024 --fanout 10,5 --compute-ms 80 --allreduce 4MiB --trainers-per-node 4 --html advice.html
  rudder advise --dataset debian.dataset --topology laptop.toml --seeds 64 --fanout 10,5 --compute-ms 12 --arms lru,s3fifo,rudder --json advice.json"
)]
pub struct AdviseArguments {
    /// A dataset directory with its graph
    #[arg(long)]
    dataset: PathBuf,
    /// The cluster's topology file; it places the dataset
    #[arg(long)]
    topology: PathBuf,
    /// Seeds of a minibatch
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    seeds: u32,
    /// Neighbours sampled a hop
    #[arg(long, value_delimiter = ',', required = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    fanout: Vec<u32>,
    /// Time of a training step, without sampling, waiting for data, and all-reduce; see below how to measure it
    #[arg(long)]
    compute_ms: Option<f64>,
    /// Minibatches announced ahead
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    window: u32,
    /// Trainers of each compute node
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    trainers_per_node: u32,
    /// Bytes of gradients that all trainers sum every minibatch, such as 4MiB
    #[arg(long, default_value = "0B")]
    allreduce: String,
    /// Minibatches of each trainer to simulate (default: 20 to 1000, two epochs where that is affordable)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    minibatches: Option<u64>,
    /// The arms to compare with rudder, or `all`
    #[arg(long, value_delimiter = ',', default_value = "all")]
    arms: Vec<String>,
    /// Of the trace: the same seed gives the same advice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a self-contained page with plots
    #[arg(long)]
    html: Option<PathBuf>,
    /// Write every number as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

pub fn run(arguments: &AdviseArguments) -> Result<(), Failure> {
    let question = question(arguments)?;
    for report in [&arguments.json, &arguments.html].into_iter().flatten() {
        folder_is_there(report)?;
    }
    let cluster = crate::topology::cluster(&arguments.topology)?;
    let dataset = Dataset::open(&arguments.dataset).map_err(bad_input)?;
    let stop = Stop::on_signals().map_err(failed)?;
    let advice = advise(&cluster, &dataset, &question, &stop).map_err(|error| match error {
        AdviseError::Simulation { .. } | AdviseError::Stopped => failed(error),
        error => bad_input(error),
    })?;
    if let Some(path) = &arguments.json {
        save_json(path, &advice)?;
    }
    if let Some(path) = &arguments.html {
        save(path, &page::render(&advice))?;
    }
    print(table::render(&advice))
}

fn question(arguments: &AdviseArguments) -> Result<Question, Failure> {
    let Some(compute_ms) = arguments.compute_ms else {
        return Err(bad_input(
            "--compute-ms is missing: how long your step computes is what nobody else can know. Time it over 100 steps \
             after 10 to warm up, from the minibatch on the device to before the all-reduce, with \
             torch.cuda.synchronize() before the clock is read; without sampling and waiting for data",
        ));
    };
    if !(compute_ms.is_finite() && (0.001..=3_600_000.0).contains(&compute_ms)) {
        return Err(bad_input("--compute-ms is a time from 0.001 ms to an hour (3600000)"));
    }
    if arguments.fanout.len() > Fanout::HOPS_MAX {
        return Err(bad_input(format!("--fanout has at most {} hops", Fanout::HOPS_MAX)));
    }
    let allreduce: Bytes =
        arguments.allreduce.parse().map_err(|error| bad_input(format!("--allreduce: {error}")))?;
    Ok(Question {
        seeds: arguments.seeds,
        fanout: arguments.fanout.clone(),
        window: arguments.window,
        compute: Nanos((compute_ms * 1e6) as u64),
        trainers_per_node: arguments.trainers_per_node,
        allreduce,
        minibatches: arguments.minibatches,
        arms: crate::sweep::arms(&arguments.arms)?,
        seed: arguments.seed,
    })
}
