//! `rudder`: the operator's command. One file for each subcommand; exit codes: 0 all well, 1 it failed, 2 bad
//! usage or bad input.

mod advise;
mod dataset;
mod decide;
mod doctor;
mod exit;
mod experience;
mod import;
mod inspect;
mod keys;
mod launch;
mod probe;
mod relay;
mod scenario;
mod sweep;
mod topology;
mod trainer;
mod tree;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A data layer beside the trainers of graph neural networks: datasets, topologies, scenarios.
#[derive(Parser)]
#[command(name = "rudder", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a dataset directory from arrays, OGB's raw layout, an edge list, or a generator.
    Import(import::ImportArguments),
    /// Describe a dataset directory and verify its checksums.
    Inspect(inspect::InspectArguments),
    /// Move datasets to nodes.
    #[command(subcommand)]
    Dataset(dataset::DatasetCommand),
    /// Check and show topology files.
    #[command(subcommand)]
    Topology(topology::TopologyCommand),
    /// Make the cluster's certificates.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Show every node's supervision tree.
    Tree(tree::TreeArguments),
    /// Show, export and learn from what directives came to.
    #[command(subcommand)]
    Experience(experience::ExperienceCommand),
    /// Compare policies with real processes.
    #[command(subcommand)]
    Scenario(scenario::ScenarioCommand),
    /// Run the comparison that the README shows, on the shipped graph.
    Demo(scenario::DemoArguments),
    /// Run the reference trainer: real sampling, real bytes, emulated compute (it sleeps).
    Trainer(trainer::TrainerArguments),
    /// Simulate every policy on your dataset and cluster and say what to expect.
    Advise(advise::AdviseArguments),
    /// Check this machine and say how to fix what is missing.
    Doctor(doctor::DoctorArguments),
    /// Shape traffic between processes of one machine (used by scenarios).
    Relay(relay::RelayArguments),
    /// Become another program inside a namespace (used by scenarios).
    #[command(hide = true)]
    Launch(launch::LaunchArguments),
    /// Measure a link (used by scenarios).
    #[command(hide = true)]
    Probe(probe::ProbeArguments),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Import(arguments) => import::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Dataset(command) => dataset::run(&command),
        Command::Topology(command) => topology::run(&command),
        Command::Keys(command) => keys::run(&command),
        Command::Tree(arguments) => tree::run(&arguments),
        Command::Experience(command) => experience::run(&command),
        Command::Scenario(command) => scenario::run(&command),
        Command::Demo(arguments) => scenario::demo(&arguments),
        Command::Trainer(arguments) => trainer::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Relay(arguments) => relay::run(&arguments),
        Command::Launch(arguments) => launch::run(arguments),
        Command::Probe(arguments) => probe::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
