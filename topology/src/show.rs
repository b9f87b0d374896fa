//! A cluster as text and as a DOT graph.

use crate::cluster::{Cluster, Cores, Dataset, LinkCost, Node, Roles, StorageMode};
use crate::ids::{MachineName, NodeId};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Links shown one by one as text; beyond, only their number.
const LINKS_SHOWN: usize = 200;

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles = [(self.compute, "compute"), (self.storage, "storage"), (self.scheduler, "scheduler")];
        let names: Vec<&str> = roles.iter().filter(|(has, _)| *has).map(|&(_, name)| name).collect();
        f.write_str(&names.join("+"))
    }
}

impl fmt::Display for StorageMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StorageMode::Memory => "memory",
            StorageMode::Direct => "direct",
            StorageMode::Auto => "auto",
        })
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cores::Reserved { mover, training } = self else {
            return f.write_str("shared between movers and training");
        };
        let list = |cores: &[crate::cluster::CoreSpec]| {
            cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        write!(f, "movers on {}", list(mover))?;
        if training.is_empty() { Ok(()) } else { write!(f, ", training on {}", list(training)) }
    }
}

impl fmt::Display for LinkCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.bandwidth, self.latency)
    }
}

/// The cluster for a terminal: machines with their nodes, datasets, links, limits.
#[must_use]
pub fn show_text(cluster: &Cluster) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_text(cluster, &mut text);
    text
}

fn write_text(cluster: &Cluster, out: &mut String) -> fmt::Result {
    let machines = by_machine(cluster);
    writeln!(
        out,
        "{}: {} node(s) on {} machine(s), {} dataset(s)",
        cluster.file.display(),
        cluster.nodes.len(),
        machines.len(),
        cluster.datasets.len()
    )?;
    match &cluster.keys {
        Some(keys) => writeln!(out, "keys: {}", keys.display())?,
        None => writeln!(out, "keys: none, so loopback only and in the clear")?,
    }
    for (machine, nodes) in machines {
        writeln!(out, "\nmachine {machine}")?;
        for node in nodes {
            write_node(node, out)?;
        }
    }
    for dataset in &cluster.datasets {
        write_dataset(cluster, dataset, out)?;
    }
    write_links(cluster, out)?;
    let limits = &cluster.limits;
    writeln!(out, "\nlimits")?;
    writeln!(
        out,
        "  in flight: {} per link, {} per node",
        limits.link_in_flight_bytes, limits.node_in_flight_bytes
    )?;
    writeln!(
        out,
        "  transfer: at most {}, given up after {}",
        limits.transfer_bytes_max, limits.transfer_timeout
    )?;
    writeln!(out, "  a silent peer is lost after {}", limits.heartbeat_timeout)?;
    match limits.link_rate_max {
        Some(rate) => writeln!(out, "  paced to {rate} per link"),
        None => writeln!(out, "  not paced"),
    }?;
    let advisor = &cluster.advisor;
    if *advisor == crate::Advisor::default() {
        return Ok(());
    }
    writeln!(out, "\nadvisor: {}, answers within {}", advisor.backend.name(), advisor.deadline)
}

fn write_node(node: &Node, out: &mut String) -> fmt::Result {
    writeln!(out, "  {} {} ({})", node.id, node.name, node.roles)?;
    writeln!(out, "    control {}", node.control_address)?;
    if let (Some(address), Some(storage)) = (node.data_address, &node.storage) {
        write!(out, "    data {address}, {} in {}", storage.mode, storage.directory.display())?;
        writeln!(out, ", hot cache {}, staging {}", storage.hot_cache_bytes, storage.staging_bytes)?;
    }
    if let (Some(socket), Some(compute)) = (&node.trainer_socket, &node.compute) {
        write!(
            out,
            "    trainers {}, cache {}, policy {}",
            socket.display(),
            compute.cache_bytes,
            compute.policy
        )?;
        writeln!(out, ", ready ahead {}, credits {}", compute.ready_ahead, compute.credits)?;
    }
    writeln!(out, "    cores {}", node.cores)
}

fn write_dataset(cluster: &Cluster, dataset: &Dataset, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "\ndataset {} in {}, {} part(s)",
        dataset.name,
        dataset.directory.display(),
        dataset.replicas.len()
    )?;
    // Parts with the same nodes share a line.
    let mut placed: BTreeMap<&[NodeId], Vec<usize>> = BTreeMap::new();
    for (part, nodes) in dataset.replicas.iter().enumerate() {
        placed.entry(nodes).or_default().push(part);
    }
    let mut rows: Vec<_> = placed.into_iter().collect();
    rows.sort_by_key(|(_, parts)| parts[0]);
    for (nodes, parts) in rows {
        let names: Vec<&str> = nodes.iter().map(|&node| cluster.node(node).name.as_str()).collect();
        writeln!(out, "  {} on {}", runs(&parts), names.join(", "))?;
    }
    Ok(())
}

/// `P0, P2..P5`.
fn runs(parts: &[usize]) -> String {
    let mut pieces: Vec<String> = Vec::new();
    for run in parts.chunk_by(|a, b| a + 1 == *b) {
        match run {
            [one] => pieces.push(format!("P{one}")),
            [first, .., last] => pieces.push(format!("P{first}..P{last}")),
            [] => {}
        }
    }
    pieces.join(", ")
}

fn write_links(cluster: &Cluster, out: &mut String) -> fmt::Result {
    writeln!(out, "\nlinks")?;
    let stated: Vec<_> = cluster.stated_links().collect();
    for (from, to, cost) in stated.iter().take(LINKS_SHOWN) {
        writeln!(out, "  {} -> {}: {cost}", cluster.node(*from).name, cluster.node(*to).name)?;
    }
    if stated.len() > LINKS_SHOWN {
        writeln!(out, "  and {} more", stated.len() - LINKS_SHOWN)?;
    }
    match cluster.default_link() {
        Some(cost) => writeln!(out, "  every other pair: {cost}"),
        None if stated.is_empty() => writeln!(out, "  none stated; nodes of one machine reach each other"),
        None => Ok(()),
    }
}

/// The cluster for Graphviz: a cluster box per machine, an edge per stated link.
#[must_use]
pub fn show_dot(cluster: &Cluster) -> String {
    let mut text = String::new();
    let _ = write_dot(cluster, &mut text);
    text
}

// Names hold no quotes or backslashes, so they need no escaping in DOT strings.
fn write_dot(cluster: &Cluster, out: &mut String) -> fmt::Result {
    writeln!(out, "digraph cluster {{")?;
    writeln!(out, "  rankdir=LR; node [shape=box, fontname=\"sans-serif\"]; compound=true;")?;
    if let Some(cost) = cluster.default_link() {
        writeln!(out, "  label=\"every other pair: {cost}\";")?;
    }
    for (n, (machine, nodes)) in by_machine(cluster).into_iter().enumerate() {
        writeln!(out, "  subgraph cluster_{n} {{")?;
        writeln!(out, "    label=\"{machine}\";")?;
        for node in nodes {
            write!(out, "    \"{}\" [label=\"{}\\n{}", node.name, node.name, node.roles)?;
            if let Some(compute) = &node.compute {
                write!(out, "\\ncache {}", compute.cache_bytes)?;
            }
            let parts = stored_parts(cluster, node.id);
            if !parts.is_empty() {
                write!(out, "\\n{parts}")?;
            }
            writeln!(out, "\"];")?;
        }
        writeln!(out, "  }}")?;
    }
    for (from, to, cost) in cluster.stated_links() {
        let (from, to) = (&cluster.node(from).name, &cluster.node(to).name);
        writeln!(out, "  \"{from}\" -> \"{to}\" [label=\"{cost}\"];")?;
    }
    writeln!(out, "}}")
}

fn stored_parts(cluster: &Cluster, node: NodeId) -> String {
    let mut lines = Vec::new();
    for dataset in &cluster.datasets {
        let parts: Vec<usize> =
            (0..dataset.replicas.len()).filter(|&part| dataset.replicas[part].contains(&node)).collect();
        if !parts.is_empty() {
            lines.push(format!("{}: {}", dataset.name, runs(&parts)));
        }
    }
    lines.join("\\n")
}

fn by_machine(cluster: &Cluster) -> BTreeMap<&MachineName, Vec<&Node>> {
    let mut machines: BTreeMap<&MachineName, Vec<&Node>> = BTreeMap::new();
    for node in &cluster.nodes {
        machines.entry(&node.machine).or_default().push(node);
    }
    machines
}
