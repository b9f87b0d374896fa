//! `rudder keys`

use crate::exit::{Failure, bad_input, failed, say};
use clap::Subcommand;
use rudder_membership::keys::{Existing, KeysError, init};
use std::path::PathBuf;

#[derive(Subcommand)]
#[command(after_help = "Example:
  rudder keys init --topology lab.toml
  Then copy ca.pem, NODE.pem and NODE.key to each node, and keep ca.key off line.")]
pub enum KeysCommand {
    /// Make an authority, a key pair for every node of a topology, and the operator's
    Init {
        #[arg(long)]
        topology: PathBuf,
        /// Where to (default: the topology's `keys`)
        #[arg(long)]
        directory: Option<PathBuf>,
        /// Keep what is there and add the keys of new nodes
        #[arg(long, conflicts_with = "replace")]
        extend: bool,
        /// Make everything anew
        #[arg(long)]
        replace: bool,
    },
}

pub fn run(command: &KeysCommand) -> Result<(), Failure> {
    let KeysCommand::Init { topology, directory, extend, replace } = command;
    let cluster = crate::topology::cluster(topology)?;
    let directory = directory
        .clone()
        .or(cluster.keys.clone())
        .ok_or_else(|| bad_input("the topology names no `keys` folder; give --directory"))?;
    let existing = match (extend, replace) {
        (true, _) => Existing::Extend,
        (_, true) => Existing::Replace,
        _ => Existing::Refuse,
    };
    let report = init(&cluster, &directory, existing).map_err(|error| match error {
        KeysError::Exists(_) => bad_input(format!("{error}: give --extend or --replace")),
        error => failed(error),
    })?;
    let made = if report.made.is_empty() {
        "nothing, every key is there".to_owned()
    } else {
        report.made.join(", ")
    };
    say(format_args!("{}: made {made}", report.directory.display()))?;
    if report.kept.is_empty() { Ok(()) } else { say(format_args!("kept {}", report.kept.join(", "))) }
}
