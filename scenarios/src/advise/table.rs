//! An advice as text for a terminal.

use super::words::{percent, times};
use super::{Advice, BandwidthCase, CacheCase};
use crate::arm::Arm;
use crate::record::{Outcome, fastest};
use crate::report::table::align;
use rudder_topology::Bytes;
use std::fmt::Write;

/// What was simulated, the arms, the words, other caches and bandwidths, caveats.
#[must_use]
pub fn render(advice: &Advice) -> String {
    let mut text = format!("{} on {}, simulated\n", advice.dataset, advice.topology);
    for line in facts(advice) {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "\n{}", align(&arms(advice), &[0]));
    for sentence in &advice.words {
        let _ = writeln!(text, "{sentence}");
    }
    let _ = writeln!(text, "\nWith other caches:\n{}", align(&caches(advice), &[0]));
    let _ = writeln!(text, "With other bandwidths:\n{}", align(&bandwidths(advice), &[0]));
    text.push_str("Keep in mind:\n");
    for line in &advice.caveats {
        let _ = writeln!(text, "- {line}");
    }
    text
}

pub(super) fn facts(advice: &Advice) -> Vec<String> {
    let facts = &advice.facts;
    vec![
        format!(
            "cluster: {} compute and {} storage nodes, {} trainers each; cache {}, {} of the {} that a node fetches from others",
            facts.compute_nodes,
            facts.storage_nodes,
            facts.trainers_per_node,
            Bytes(facts.cache_bytes),
            percent(own_share(advice)),
            Bytes(facts.remote_bytes)
        ),
        format!(
            "data: {} vertices, {} edges, rows of {}, {} a block",
            facts.vertices,
            facts.edges,
            Bytes(facts.row_bytes),
            facts.rows_per_block
        ),
        format!(
            "load: {} seeds, fanout {:?}: {:.0} rows ({}) a minibatch, {} of the vertices; window {}, compute {} ms, all-reduce {}",
            facts.seeds,
            facts.fanout,
            facts.rows_per_minibatch,
            Bytes((facts.rows_per_minibatch * facts.row_bytes as f64) as u64),
            percent(facts.rows_per_minibatch / facts.vertices.max(1) as f64),
            facts.window,
            facts.compute_ms,
            Bytes(facts.allreduce_bytes)
        ),
        format!(
            "run: {} minibatches of each trainer ({:.2} epochs), seed {}",
            facts.minibatches, facts.epochs, facts.seed
        ),
    ]
}

fn own_share(advice: &Advice) -> f64 {
    advice.cache.iter().find(|case| case.is_topologys).map_or(0.0, |case| case.share)
}

pub(super) fn arms(advice: &Advice) -> Vec<Vec<String>> {
    let head = ["arm", "minibatches/s", "of the bound", "waits", "hits", "moved", "in pieces"];
    let bound = advice.bound.minibatches_per_s;
    let of_bound = |rate: f64| if bound > 0.0 { percent(rate / bound) } else { "-".to_owned() };
    let row = |arm: &Outcome| {
        vec![
            arm.arm.name().to_owned(),
            format!("{:.2}", arm.minibatches_per_s),
            of_bound(arm.minibatches_per_s),
            percent(arm.wait_share),
            percent(arm.hit_rate),
            Bytes(arm.bytes_moved).to_string(),
            arm.bypasses.to_string(),
        ]
    };
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(advice.arms.iter().map(row));
    if let Some(oracle) = advice.oracle {
        let rate = oracle.minibatches_per_s;
        let (waits, moved) = (percent(oracle.wait_share), Bytes(oracle.bytes_moved).to_string());
        rows.push(vec![
            "oracle".to_owned(),
            format!("{rate:.2}"),
            of_bound(rate),
            waits,
            String::new(),
            moved,
        ]);
    }
    rows.push(vec!["bound".to_owned(), format!("{bound:.2}"), of_bound(bound)]);
    rows
}

/// What every case says: rudder, the best other arm, and their ratio.
fn compared(arms: &[Outcome]) -> [String; 5] {
    let rudder = arms.iter().find(|arm| arm.arm == Arm::Rudder);
    let other = fastest(arms.iter().filter(|arm| arm.arm != Arm::Rudder));
    let rate =
        |arm: Option<&Outcome>| arm.map_or("-".to_owned(), |arm| format!("{:.2}", arm.minibatches_per_s));
    let ratio =
        rudder.zip(other).map(|(rudder, other)| rudder.minibatches_per_s / other.minibatches_per_s.max(1e-9));
    [
        rate(rudder),
        rudder.map_or("-".to_owned(), |arm| percent(arm.wait_share)),
        other.map_or("-".to_owned(), |arm| arm.arm.name().to_owned()),
        rate(other),
        ratio.map_or("-".to_owned(), times),
    ]
}

const COMPARED: [&str; 5] = ["rudder/s", "waits", "best other", "its/s", "ratio"];

pub(super) fn caches(advice: &Advice) -> Vec<Vec<String>> {
    let mut rows = vec![head(&["cache", "a node"])];
    rows.extend(advice.cache.iter().map(|case: &CacheCase| {
        let mut row = vec![cache_label(case), Bytes(case.cache_bytes).to_string()];
        row.extend(compared(&case.arms));
        row
    }));
    rows
}

pub(super) fn bandwidths(advice: &Advice) -> Vec<Vec<String>> {
    let mut rows = vec![head(&["bandwidth", "bound/s"])];
    rows.extend(advice.bandwidth.iter().map(|case: &BandwidthCase| {
        let mut row = vec![bandwidth_label(case), format!("{:.2}", case.bound.minibatches_per_s)];
        row.extend(compared(&case.arms));
        row
    }));
    rows
}

fn head(first: &[&str]) -> Vec<String> {
    first.iter().chain(&COMPARED).map(|&name| name.to_owned()).collect()
}

pub(super) fn cache_label(case: &CacheCase) -> String {
    let yours = if case.is_topologys { " (yours)" } else { "" };
    format!("{}{yours}", percent(case.share))
}

pub(super) fn bandwidth_label(case: &BandwidthCase) -> String {
    let yours = if case.factor == 1.0 { " (yours)" } else { "" };
    format!("x{}{yours}", case.factor)
}
