//! `rudder topology`

use crate::exit::{Failure, bad_input, print, say};
use clap::Subcommand;
use rudder_topology::{Cluster, load, show};
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
#[command(after_help = "Examples:
  rudder topology check topology/clusters/laptop.toml
  rudder topology show topology/clusters/lab.toml --dot | dot -Tsvg > lab.svg")]
pub enum TopologyCommand {
    /// Print every error of a topology file, or that there is none
    Check { file: PathBuf },
    /// Print nodes, parts, links and limits
    Show {
        file: PathBuf,
        /// As a DOT graph
        #[arg(long)]
        dot: bool,
    },
}

pub fn run(command: &TopologyCommand) -> Result<(), Failure> {
    match command {
        TopologyCommand::Check { file } => {
            let cluster = cluster(file)?;
            say(format_args!(
                "{}: {} node(s), {} dataset(s), no errors",
                file.display(),
                cluster.nodes.len(),
                cluster.datasets.len()
            ))
        }
        TopologyCommand::Show { file, dot: true } => print(show::show_dot(&cluster(file)?)),
        TopologyCommand::Show { file, dot: false } => print(show::show_text(&cluster(file)?)),
    }
}

/// What is wrong with a node's name that the topology lacks.
pub fn no_such_node(cluster: &Cluster, name: &str) -> Failure {
    let names: Vec<String> = cluster.nodes.iter().map(|node| format!("`{}`", node.name)).collect();
    bad_input(format!("the topology has no node `{name}`; it has {}", names.join(", ")))
}

/// The compiled cluster, or all errors of its file.
pub fn cluster(file: &Path) -> Result<Cluster, Failure> {
    load(file).map_err(|errors| bad_input(format!("{} is not a topology:\n{errors}", file.display())))
}
