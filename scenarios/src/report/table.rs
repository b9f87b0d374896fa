//! The report as text for a terminal.

use crate::report::{ArmReport, Circumstances, Reference, Report};
use rudder_topology::Bytes;
use std::fmt::Write;

const COLUMNS: [&str; 13] = [
    "arm",
    "minibatches/s",
    "low..high",
    "wait",
    "low..high",
    "> bound",
    "accuracy",
    "coverage",
    "hits",
    "demand",
    "prefetch",
    "amplif.",
    "wrong",
];

/// The circumstances, the table, and what it says about `rudder`.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut text = format!("scenario {} on {}", report.scenario, report.dataset);
    if !report.circumstances.about.is_empty() {
        let _ = write!(text, ": {}", report.circumstances.about);
    }
    text.push('\n');
    for line in circumstances(&report.circumstances) {
        let _ = writeln!(text, "  {line}");
    }
    text.push('\n');
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(report.arms.iter().map(arm_row));
    rows.extend(report.oracle.iter().map(|oracle| reference_row("oracle", oracle)));
    rows.extend(report.bound.iter().map(|bound| reference_row("bound", bound)));
    text.push_str(&align(&rows, &[0]));
    for line in ratios(report) {
        let _ = writeln!(text, "{line}");
    }
    if let Some(advised) = &report.advised {
        let _ = write!(text, "\n{}", advised.render());
    }
    if let Some(decisions) = &report.decisions {
        let _ = write!(text, "\n`rudder` under advice:\n\n{}", crate::decide::table::render(decisions));
    }
    text
}

/// One line each: machine, links, load, data.
#[must_use]
pub fn circumstances(c: &Circumstances) -> Vec<String> {
    let reached: Vec<String> = c.link_reached_mbit.iter().map(|mbit| format!("{mbit:.1}")).collect();
    let latency =
        if c.link_latency_ms > 0.0 { format!(", {} ms one way", c.link_latency_ms) } else { String::new() };
    let mut lines = vec![
        format!(
            "machine: {} cores of {}, {}, Linux {}; cores = {}",
            c.cores,
            c.cpu,
            Bytes(c.memory_bytes),
            c.kernel,
            c.core_use
        ),
        format!(
            "links: {}, {:.1} Mbit/s each way of each node, burst {}{latency}; reached {} Mbit/s",
            c.mode,
            c.link_bandwidth_mbit,
            Bytes(c.link_burst_bytes),
            if reached.is_empty() { "(not measured)".to_owned() } else { reached.join(", ") },
        ),
        format!(
            "load: {} compute and {} storage nodes, {} trainers each; {}",
            c.compute_nodes,
            c.storage_nodes,
            c.trainers_per_node,
            computing(c)
        ),
        format!(
            "data: {} vertices, {} edges, rows of {} B, {} a block; a minibatch ({} seeds, fanout {:?}) touches {:.0} rows, {:.2} % of the vertices; window {}, cache {} ({:.0} % of the remote bytes)",
            c.vertices,
            c.edges,
            c.row_bytes,
            c.rows_per_block,
            c.seeds,
            c.fanout,
            c.rows_per_minibatch,
            c.vertex_share * 100.0,
            c.window,
            Bytes(c.cache_bytes),
            c.cache_share * 100.0
        ),
    ];
    lines.extend(c.notes.iter().map(|note| format!("note: {note}")));
    lines
}

fn arm_row(arm: &ArmReport) -> [String; 13] {
    [
        arm.arm.name().to_owned(),
        format!("{:.2}", arm.minibatches_per_s),
        format!("{:.2}..{:.2}", arm.minibatches_per_s_low, arm.minibatches_per_s_high),
        percent(Some(arm.wait_share)),
        format!("{:.1}..{:.1}", arm.wait_share_low * 100.0, arm.wait_share_high * 100.0),
        percent(arm.beyond_bound_share),
        percent(arm.prefetch_accuracy),
        percent(arm.coverage),
        percent(arm.hit_rate),
        Bytes(arm.bytes_demand).to_string(),
        Bytes(arm.bytes_prefetch).to_string(),
        arm.amplification.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        arm.bytes_wrong.to_string(),
    ]
}

fn reference_row(name: &str, reference: &Reference) -> [String; 13] {
    let mut row = [const { String::new() }; 13];
    row[0] = name.to_owned();
    row[1] = format!("{:.2}", reference.minibatches_per_s);
    row[if name == "oracle" { 5 } else { 3 }] = percent(Some(reference.wait_share));
    row[10] = Bytes(reference.bytes_moved).to_string();
    row
}

pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Rows under their head, in columns; those `left` start at the left, all others end at the right.
pub(crate) fn align<R: AsRef<[String]>>(rows: &[R], left: &[usize]) -> String {
    let columns = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.as_ref().get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let cells = row.as_ref().iter().enumerate().map(|(column, cell)| match widths[column] {
            width if left.contains(&column) => format!("{cell:<width$}"),
            width => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
        if at == 0 {
            text.push_str(&"-".repeat(widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1)));
            text.push('\n');
        }
    }
    text
}

/// Rows under their head as a Markdown table.
pub(crate) fn markdown<R: AsRef<[String]>>(rows: &[R], left: &[usize]) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.as_ref().iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if at == 0 {
            let rule = |column| if left.contains(&column) { "---" } else { "--:" };
            let _ = writeln!(text, "| {} |", (0..cells.len()).map(rule).collect::<Vec<_>>().join(" | "));
        }
    }
    text
}

/// What `rudder` gains over each arm, and how far it is from bound and oracle.
#[must_use]
pub fn ratios(report: &Report) -> Vec<String> {
    let Some(rudder) = report.arms.iter().find(|arm| arm.arm == crate::arm::Arm::Rudder) else {
        return Vec::new();
    };
    let others: Vec<String> = report
        .arms
        .iter()
        .filter(|arm| arm.arm != rudder.arm && arm.minibatches_per_s > 0.0)
        .map(|arm| format!("{:.2}x {}", rudder.minibatches_per_s / arm.minibatches_per_s, arm.arm.name()))
        .collect();
    let mut lines = Vec::new();
    if !others.is_empty() {
        lines.push(format!("rudder's throughput: {}", others.join(", ")));
    }
    if let Some(none) = report.arms.iter().find(|arm| arm.arm == crate::arm::Arm::None && arm.bytes_moved > 0)
    {
        let ratio = rudder.bytes_moved as f64 / none.bytes_moved as f64;
        lines.push(format!("rudder's bytes moved: {ratio:.2}x none's"));
    }
    if let Some(bound) = report.bound.filter(|bound| bound.minibatches_per_s > 0.0) {
        lines.push(format!(
            "rudder reaches {:.3} of the bound",
            rudder.minibatches_per_s / bound.minibatches_per_s
        ));
    }
    if let (Some(oracle), Some(beyond)) = (report.oracle, rudder.beyond_bound_share) {
        let points = (beyond - oracle.wait_share) * 100.0;
        lines.push(format!(
            "beyond the bound, rudder's time is {points:+.1} points from the oracle's, its throughput {:.2}x the oracle's",
            rudder.minibatches_per_s / oracle.minibatches_per_s
        ));
        lines.push(
            "(wait: time measured in waiting; > bound: all time that a run takes beyond the bound's, gradient traffic \
             slowed by prefetching included; the oracle's share is of the second kind)"
                .to_owned(),
        );
    }
    lines
}

/// What trainers do between minibatches.
fn computing(c: &Circumstances) -> String {
    match &c.trainer_program {
        Some(program) => format!("trainers are `{program}`, with compute of their own"),
        None => format!(
            "compute is emulated: trainers sleep {:.1} ms a minibatch, then all-reduce {}",
            c.compute_ms,
            Bytes(c.allreduce_bytes)
        ),
    }
}
