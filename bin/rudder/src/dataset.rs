//! `rudder dataset`

use crate::exit::{Failure, bad_input, failed, say};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use rudder_client::dataset::Dataset;
use rudder_client::handshake::{Credential, HandshakeError, Hello, Security, Verbs, dial};
use rudder_client::identity::{Identity, PeerName};
use rudder_client::push::Pusher;
use rudder_client::put::PutFile;
use rudder_topology::{Bytes, Cluster, NodeId, PartId};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Subcommand)]
#[command(after_help = "Example:
  rudder dataset push debian.dataset --topology lab.toml
  Run it again after an interruption: it goes on where it stopped.")]
pub enum DatasetCommand {
    /// Place a dataset's parts and graph on the storage nodes of a topology
    Push {
        /// A complete dataset directory
        directory: PathBuf,
        #[arg(long)]
        topology: PathBuf,
        /// Only to this node; may be repeated
        #[arg(long)]
        node: Vec<String>,
        /// Leave out graph, ids, labels and splits
        #[arg(long)]
        parts_only: bool,
    },
}

const CONNECT: Duration = Duration::from_secs(10);
/// The receiver checks a whole file's digest before it answers.
const ANSWER: Duration = Duration::from_secs(600);

pub fn run(command: &DatasetCommand) -> Result<(), Failure> {
    let DatasetCommand::Push { directory, topology, node: only, parts_only } = command;
    let cluster = crate::topology::cluster(topology)?;
    let dataset = Dataset::open(directory).map_err(bad_input)?;
    let placed = cluster.dataset_named(&dataset.manifest().name).ok_or_else(|| {
        bad_input(format!("{} places no dataset `{}`", topology.display(), dataset.manifest().name))
    })?;
    if placed.replicas.len() != dataset.book().parts() {
        let (stated, found) = (placed.replicas.len(), dataset.book().parts());
        return Err(bad_input(format!("the topology places {stated} parts, the dataset has {found}")));
    }
    let security = security(&cluster)?;
    let mut pushed = 0;
    for node in cluster.nodes.iter().filter(|node| node.roles.storage) {
        if !only.is_empty() && !only.iter().any(|name| name == node.name.as_str()) {
            continue;
        }
        let parts: Vec<PartId> = (0..placed.replicas.len())
            .filter(|&part| placed.replicas[part].contains(&node.id))
            .map(|part| PartId(part as u16))
            .collect();
        if !parts.is_empty() {
            push(&cluster, node.id, &dataset, &parts, *parts_only, &security)?;
            pushed += 1;
        }
    }
    if pushed == 0 {
        Err(bad_input(
            "--node named no storage node that stores a part; `rudder topology show` lists who stores what",
        ))
    } else {
        Ok(())
    }
}

fn security(cluster: &Cluster) -> Result<Security, Failure> {
    match &cluster.keys {
        None => Ok(Security::LoopbackClear(PeerName::Operator)),
        Some(keys) => {
            let identity = Identity::load(keys, &PeerName::Operator).map_err(bad_input)?;
            Ok(Security::Tls(Arc::new(identity)))
        }
    }
}

fn push(
    cluster: &Cluster,
    id: NodeId,
    dataset: &Dataset,
    parts: &[PartId],
    parts_only: bool,
    security: &Security,
) -> Result<(), Failure> {
    let node = cluster.node(id);
    let name = &node.name;
    let at_node = |error: &dyn std::fmt::Display| failed(format!("{name}: {error}"));
    let address = node.data_address.ok_or_else(|| bad_input(format!("{name} has no data port")))?;
    if address.port() == 0 {
        return Err(bad_input(format!("{name} takes a free data port; give it a fixed one in the topology")));
    }
    let hello = Hello::new(Credential::Operator, dataset.manifest().name.clone(), Verbs::PUSH);
    let dialed = dial(address, name, &hello, security, CONNECT).map_err(|error| {
        let advice = match error {
            HandshakeError::Connect { .. } => "; is it up? start it: rudder-node --topology FILE --node NAME",
            HandshakeError::Tls(_) => "; do both sides use keys of one `rudder keys init`?",
            _ => "",
        };
        at_node(&format!("{error}{advice}"))
    })?;
    let mut pusher = Pusher::new(dialed, ANSWER).map_err(|error| at_node(&error))?;
    let files = files(dataset, parts, parts_only);
    let total: u64 = files.iter().map(|(_, _, path)| path.metadata().map_or(0, |found| found.len())).sum();
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {bytes}/{total_bytes} {eta} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(name.to_string());
    let (mut before, mut sent) = (0, 0);
    for (file, part, path) in files {
        bar.set_message(path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default());
        let outcome = pusher.push(file, part, &path, |has| bar.set_position(before + has));
        let outcome = outcome.map_err(|error| at_node(&format!("{}: {error}", path.display())))?;
        before += outcome.size_bytes;
        sent += outcome.sent_bytes;
    }
    bar.finish_and_clear();
    let (there, parts) = (Bytes(before - sent), parts.len());
    say(format_args!("{name}: {parts} part(s), {} sent, {there} there before", Bytes(sent)))
}

/// What a node gets, the manifest last: a directory without it is no dataset.
fn files(dataset: &Dataset, parts: &[PartId], parts_only: bool) -> Vec<(PutFile, PartId, PathBuf)> {
    let manifest = dataset.manifest();
    let mut wanted = Vec::new();
    if !parts_only {
        for graph in &manifest.graphs {
            wanted.push((PutFile::GraphOffsets { name: graph.name.clone() }, PartId(0)));
            wanted.push((PutFile::GraphIndices { name: graph.name.clone() }, PartId(0)));
        }
        let others = [
            PutFile::Labels,
            PutFile::SplitTrain,
            PutFile::SplitValid,
            PutFile::SplitTest,
            PutFile::OriginalId,
            PutFile::DatasetId,
        ];
        wanted.extend(others.map(|file| (file, PartId(0))));
    }
    for &part in parts {
        for table in &manifest.tables {
            wanted.push((PutFile::Features { table: table.name.clone() }, part));
            wanted.push((PutFile::Checksums { table: table.name.clone() }, part));
        }
    }
    wanted.push((PutFile::Manifest, PartId(0)));
    wanted
        .into_iter()
        .map(|(file, part)| {
            let path = dataset.directory().join(file.relative_path(part));
            (file, part, path)
        })
        .filter(|(_, _, path)| path.exists())
        .collect()
}
