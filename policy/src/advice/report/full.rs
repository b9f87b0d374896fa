//! The full form, one line a fact.

use crate::advice::labels::Labels;
use crate::advice::state::{BlockOf, ClusterState, ComputeState, LinkState, StorageState};
use std::fmt::Write;

/// The report of everything that is known, as people read it. Its length grows with the cluster.
#[must_use]
pub fn full(state: &ClusterState, labels: &Labels) -> String {
    let mut text = format!("[state report] T{}\n", state.minibatch);
    for compute in &state.compute {
        line(&mut text, compute_line(compute, labels));
    }
    for storage in &state.storage {
        line(&mut text, storage_line(storage, labels));
    }
    for link in &state.links {
        line(&mut text, link_line(link, labels));
    }
    if state.ahead_minibatches > 0 {
        let (steps, blocks) = (state.ahead_minibatches, list(&state.ahead));
        line(&mut text, Some(format!("look-ahead, next {steps} steps, likely hot: {blocks}")));
    }
    text
}

/// Nodes that the topology does not have are left out.
fn line(text: &mut String, line: Option<String>) {
    if let Some(line) = line {
        text.push_str(&line);
        text.push('\n');
    }
}

fn percent(fraction: f32) -> u32 {
    (fraction.clamp(0.0, 1.0) * 100.0).round() as u32
}

fn list(blocks: &[BlockOf]) -> String {
    let shown: Vec<_> = blocks.iter().map(ToString::to_string).collect();
    format!("[{}]", shown.join(", "))
}

fn compute_line(compute: &ComputeState, labels: &Labels) -> Option<String> {
    let mut text = format!("compute {}: ", labels.of_compute(compute.node)?);
    match compute.gpu_use {
        Some(used) => text += &format!("GPU use {}%", percent(used)),
        None => text += &format!("GPU absent, wait share {}%", percent(compute.wait_share)),
    }
    if percent(compute.stretched) > 0 {
        let _ = write!(text, "; steps stretched {}%", percent(compute.stretched));
    }
    if compute.ready > 0 {
        let _ = write!(text, "; {} ready", compute.ready);
    }
    text += &format!("; waiting for blocks {}", list(&compute.waiting));
    text += &format!("; next minibatch needs {}", list(&compute.next));
    Some(text)
}

fn storage_line(storage: &StorageState, labels: &Labels) -> Option<String> {
    let label = labels.of_storage(storage.node)?;
    Some(match storage.up {
        true => format!("storage {label}: load {:.1}; cached {}", storage.load, list(&storage.cached)),
        false => format!("storage {label}: not reachable"),
    })
}

fn link_line(link: &LinkState, labels: &Labels) -> Option<String> {
    let (from, to) = (labels.of_storage(link.storage)?, labels.of_compute(link.compute)?);
    let mut text = format!("link {from}-{to}: bandwidth use {}%", percent(link.bandwidth_use));
    if link.rate_share < 0.95 {
        let _ = write!(text, "; carries {}% of its stated rate", percent(link.rate_share));
    }
    if let Some(latency) = link.latency_ms {
        let _ = write!(text, "; latency {latency:.1} ms");
    }
    Some(text)
}
