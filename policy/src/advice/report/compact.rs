//! The compact form: levels instead of numbers, what changed notably, groups instead of ids, what the last decisions
//! did. Its budget is constant, whatever the size of the cluster: the worst nodes are told, the others counted.

use super::Level;
use crate::advice::labels::Labels;
use crate::advice::state::{ClusterState, ComputeState, LinkState, StorageState};
use rudder_topology::NodeId;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The compact form never has more bytes, on any cluster.
pub const REPORT_BYTES_MAX: usize = 1600;

/// Tokens that it takes at most: no tokenizer in use makes more than one of two bytes of such a text.
pub const REPORT_TOKENS_MAX: usize = REPORT_BYTES_MAX / 2;

/// Nodes of each kind, and links, that are told one by one.
const TOLD_MAX: usize = 4;
/// Past decisions that are told.
const PAST_MAX: usize = 4;
/// Wanted groups that are told of a node.
const GROUPS_MAX: usize = 3;
/// A change of a fraction by this much is notable.
const NOTABLE: f32 = 0.15;
/// Rows come slower than they once did by this much, where it is more than what links that share an interface take from
/// each other at times.
const SLOWED: f32 = 0.3;

/// A past action and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// The action in the words of the lever table; never an advisor's own words.
    pub action: String,
    pub minibatch: u64,
    /// Change of the wait share that was predicted and measured; negative is better.
    pub predicted: f32,
    pub measured: Option<f32>,
    pub reverted: bool,
}

/// Writes compact reports, remembering what the last one was about.
#[derive(Clone, Debug, Default)]
pub struct Reporter {
    last: BTreeMap<NodeId, f32>,
}

impl Reporter {
    /// The report on a state; notable is what differs from the state of the last call.
    pub fn compact(&mut self, state: &ClusterState, labels: &Labels, past: &[Past]) -> String {
        let mut text = format!("T{}", state.minibatch);
        let worst_wait = Level::of(state.wait_share_max());
        let _ = writeln!(
            text,
            ": {} compute, {} storage; worst wait {worst_wait}",
            state.compute.len(),
            state.storage.len()
        );
        let past: Vec<_> = past.iter().rev().take(PAST_MAX).map(past_line).collect();
        let mut lines = self.compute_lines(&state.compute, labels);
        lines.extend(storage_lines(&state.storage, labels));
        lines.extend(link_lines(&state.links, labels));
        // The past comes last, and is what goes first where room is short.
        lines.extend(past);
        for line in lines {
            if text.len() + line.len() < REPORT_BYTES_MAX {
                text.push_str(&line);
                text.push('\n');
            }
        }
        self.last = state.compute.iter().map(|compute| (compute.node, compute.wait_share)).collect();
        text
    }

    fn compute_lines(&self, nodes: &[ComputeState], labels: &Labels) -> Vec<String> {
        let mut worst: Vec<_> = nodes.iter().collect();
        worst.sort_by(|a, b| b.stall_share.total_cmp(&a.stall_share).then(a.node.cmp(&b.node)));
        let told = worst.iter().take(TOLD_MAX).filter_map(|compute| self.compute_line(compute, labels));
        let mut lines: Vec<_> = told.collect();
        if let Some(rest) = worst.get(TOLD_MAX) {
            let (count, most) = (worst.len() - TOLD_MAX, Level::of(rest.wait_share));
            lines.push(format!("{count} other compute: wait at most {most}"));
        }
        lines
    }

    fn compute_line(&self, compute: &ComputeState, labels: &Labels) -> Option<String> {
        let mut line = format!("{}:", labels.of_compute(compute.node)?);
        if let Some(used) = compute.gpu_use {
            let _ = write!(line, " GPU {}", Level::of(used));
        }
        let (wait, hits) = (Level::of(compute.wait_share), Level::of(compute.hit_rate));
        let _ = write!(line, " wait {wait}{} hits {hits}", self.change(compute));
        if compute.stretched >= NOTABLE {
            let _ = write!(line, " steps stretched {}", Level::of(compute.stretched));
        }
        if compute.drift >= NOTABLE {
            let _ = write!(line, " drift {}", Level::of(compute.drift));
        }
        if !compute.wants.is_empty() {
            let groups: Vec<_> = compute.wants.iter().take(GROUPS_MAX).map(|(g, _)| g.to_string()).collect();
            let _ = write!(line, " needs {}", groups.join(" "));
        }
        if compute.jobs.len() > 1 {
            for job in compute.jobs.iter().take(GROUPS_MAX) {
                let _ = write!(line, " {} wait {}", job.job, Level::of(job.wait_share));
            }
        }
        Some(line)
    }

    fn change(&self, compute: &ComputeState) -> &'static str {
        match self.last.get(&compute.node) {
            Some(last) if compute.wait_share >= last + NOTABLE => " (rose)",
            Some(last) if compute.wait_share <= last - NOTABLE => " (fell)",
            _ => "",
        }
    }
}

fn storage_lines(nodes: &[StorageState], labels: &Labels) -> Vec<String> {
    let mut worst: Vec<_> = nodes.iter().collect();
    worst.sort_by(|a, b| a.up.cmp(&b.up).then(b.load.total_cmp(&a.load)).then(a.node.cmp(&b.node)));
    let line = |storage: &&StorageState| {
        let label = labels.of_storage(storage.node)?;
        Some(match storage.up {
            true => format!("{label}: load {}", Level::of(storage.load)),
            false => format!("{label}: not reachable"),
        })
    };
    let mut lines: Vec<_> = worst.iter().take(TOLD_MAX).filter_map(line).collect();
    if let Some(rest) = worst.get(TOLD_MAX) {
        let (count, most) = (worst.len() - TOLD_MAX, Level::of(rest.load));
        lines.push(format!("{count} other storage: load at most {most}"));
    }
    lines
}

fn link_lines(links: &[LinkState], labels: &Labels) -> Vec<String> {
    let slow = |link: &LinkState| match link {
        _ if link.slowed >= SLOWED => ", slower than it was",
        _ if link.rate_share <= 1.0 - NOTABLE => ", slower than stated",
        _ => "",
    };
    let notable = |link: &&LinkState| link.bandwidth_use >= 0.7 || !slow(link).is_empty();
    let mut worst: Vec<_> = links.iter().filter(notable).collect();
    worst.sort_by(|a, b| {
        let by_rate = a.brings().total_cmp(&b.brings());
        by_rate
            .then(b.bandwidth_use.total_cmp(&a.bandwidth_use))
            .then((a.storage, a.compute).cmp(&(b.storage, b.compute)))
    });
    let line = |link: &&LinkState| {
        let (from, to) = (labels.of_storage(link.storage)?, labels.of_compute(link.compute)?);
        Some(format!("{from}-{to}: use {}{}", Level::of(link.bandwidth_use), slow(link)))
    };
    let mut lines: Vec<_> = worst.iter().take(TOLD_MAX).filter_map(line).collect();
    if worst.len() > TOLD_MAX {
        lines.push(format!("{} other links busy or slow", worst.len() - TOLD_MAX));
    }
    lines
}

fn past_line(past: &Past) -> String {
    let effect = match past.measured {
        None => "not measured yet",
        Some(change) if change <= -0.02 => "helped",
        Some(change) if change >= 0.02 => "hurt",
        Some(_) => "did nothing",
    };
    let reverted = if past.reverted { ", reverted" } else { "" };
    format!("T{}: {} {effect}{reverted}", past.minibatch, past.action)
}
