//! A sweep as text for a terminal, or as a Markdown table.

use crate::record::Outcome;
use crate::report::table::{align, markdown, percent};
use crate::sweep::{Cell, Sweep, VERTEX_SHARE_MAX, WORSE_MAX};
use std::fmt::Write;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Terminal,
    Markdown,
}

/// One row a cell, the verdict in the last lines.
#[must_use]
pub fn render(sweep: &Sweep, format: Format) -> String {
    let head = [
        "scenario",
        "graph",
        "touched",
        "cache",
        "rudder/s",
        "waits",
        "best other",
        "its/s",
        "waits",
        "ratio",
        "oracle/s",
        "",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(sweep.cells.iter().map(row));
    let mut text = laid_out(&rows, &[0, 1, 6, 11], format);
    text.push('\n');
    for line in verdict(sweep) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// One row an arm of each cell.
#[must_use]
pub fn render_arms(sweep: &Sweep, format: Format) -> String {
    let head =
        ["scenario", "graph", "cache", "arm", "per s", "of the best", "waits", "hits", "MB moved", "pieces"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for cell in &sweep.cells {
        let best = cell.arms.iter().map(|arm| arm.minibatches_per_s).fold(0.0, f64::max);
        let mut arms: Vec<&Outcome> = cell.arms.iter().collect();
        arms.sort_by(|a, b| b.minibatches_per_s.total_cmp(&a.minibatches_per_s));
        rows.extend(arms.into_iter().map(|arm| {
            vec![
                cell.scenario.clone(),
                cell.graph.clone(),
                cache(cell),
                arm.arm.name().to_owned(),
                format!("{:.2}", arm.minibatches_per_s),
                format!("{:.3}", arm.minibatches_per_s / best.max(1e-9)),
                percent(Some(arm.wait_share)),
                percent(Some(arm.hit_rate)),
                format!("{:.1}", arm.bytes_moved as f64 / 1e6),
                arm.bypasses.to_string(),
            ]
        }));
    }
    laid_out(&rows, &[0, 1, 3], format)
}

fn laid_out(rows: &[Vec<String>], left: &[usize], format: Format) -> String {
    match format {
        Format::Terminal => align(rows, left),
        Format::Markdown => markdown(rows, left),
    }
}

fn cache(cell: &Cell) -> String {
    format!("{} %", (cell.cache_share * 1000.0).round() / 10.0)
}

fn row(cell: &Cell) -> Vec<String> {
    let per_s =
        |arm: Option<&Outcome>| arm.map_or("-".to_owned(), |arm| format!("{:.2}", arm.minibatches_per_s));
    let waits = |arm: Option<&Outcome>| percent(arm.map(|arm| arm.wait_share));
    let other = cell.best_other();
    vec![
        cell.scenario.clone(),
        format!("{} ({})", cell.graph, count(cell.vertices)),
        percent(Some(cell.vertex_share)),
        cache(cell),
        per_s(cell.rudder()),
        waits(cell.rudder()),
        other.map_or("-".to_owned(), |arm| arm.arm.name().to_owned()),
        per_s(other),
        waits(other),
        cell.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
        cell.oracle.map_or("-".to_owned(), |oracle| format!("{:.2}", oracle.minibatches_per_s)),
        if cell.is_worse() { "WORSE".to_owned() } else { String::new() },
    ]
}

fn count(vertices: u64) -> String {
    match vertices {
        0..10_000 => vertices.to_string(),
        10_000..1_000_000 => format!("{:.0} k", vertices as f64 / 1e3),
        _ => format!("{:.1} M", vertices as f64 / 1e6),
    }
}

/// What the cells say together; the last line is the sum.
#[must_use]
pub fn verdict(sweep: &Sweep) -> Vec<String> {
    let mut lines = vec![
        "simulated; minibatches per second of one trainer; `waits`: share of its time that a trainer waits for data; \
         ratio: rudder's throughput over the best other arm's; oracle: perfect knowledge and perfect overlap"
            .to_owned(),
    ];
    let crowded: Vec<String> = sweep.cells.iter().filter(|cell| cell.touches_too_much()).fold(
        Vec::new(),
        |mut named: Vec<String>, cell| {
            let name = format!("{} on {} ({:.1} %)", cell.scenario, cell.graph, cell.vertex_share * 100.0);
            if !named.contains(&name) {
                named.push(name);
            }
            named
        },
    );
    if !crowded.is_empty() {
        lines.push(format!(
            "a minibatch touches more than {:.0} % of the vertices in: {}; read these cells as small graphs",
            VERTEX_SHARE_MAX * 100.0,
            crowded.join(", ")
        ));
    }
    lines.extend(sweep.failures.iter().map(|failure| format!("failed: {failure}")));
    lines.push(sum(sweep));
    lines
}

fn sum(sweep: &Sweep) -> String {
    let compared: Vec<(&Cell, f64)> =
        sweep.cells.iter().filter_map(|cell| Some((cell, cell.ratio()?))).collect();
    let within = compared.iter().filter(|(cell, _)| !cell.is_worse()).count();
    let Some((worst, ratio)) = compared.iter().min_by(|(_, a), (_, b)| a.total_cmp(b)) else {
        return format!("{} cells, none of them compared", sweep.cells.len());
    };
    let other = worst.best_other().map_or("-", |arm| arm.arm.name());
    format!(
        "{} cells: in {within} rudder is the best arm or within {:.0} % of it; the worst is {ratio:.3}x {other} \
         ({} on {}, cache {})",
        sweep.cells.len(),
        WORSE_MAX * 100.0,
        worst.scenario,
        worst.graph,
        cache(worst)
    )
}
