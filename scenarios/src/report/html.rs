//! The report as one page that needs nothing else.

use crate::arm::Arm;
use crate::report::svg::{Bar, Line, bars, escape, lines};
use crate::report::table::{circumstances, percent, ratios};
use crate::report::{ArmReport, Reference, Report};
use rudder_topology::Bytes;
use std::fmt::Write;

pub(crate) const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
table{border-collapse:collapse;width:100%;font-size:14px}th,td{padding:.3rem .5rem;text-align:right;border-bottom:1px solid #8884}\
th:first-child,td:first-child{text-align:left}tr.rudder{font-weight:600}tr.reference{color:#777}\
svg{width:100%;max-width:44rem;font:12px system-ui,sans-serif;fill:currentColor;margin:1rem 0;display:block}svg .title{font-size:15px;font-weight:600}\
.wrong{color:#c00;font-weight:600}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}}";

#[must_use]
pub fn render(report: &Report) -> String {
    let title = format!("{} on {}", escape(&report.scenario), escape(&report.dataset));
    let mut page = format!(
        "<!doctype html>\n<html lang='en'>\n<head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>\
<title>{title}</title><style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n<p>{}</p>\n<ul>\n",
        escape(&report.circumstances.about)
    );
    for line in circumstances(&report.circumstances) {
        let _ = writeln!(page, "<li>{}</li>", escape(&line));
    }
    page.push_str("</ul>\n");
    page.push_str(&table(report));
    for line in ratios(report) {
        let _ = writeln!(page, "<p>{}</p>", escape(&line));
    }
    if let Some(advised) = &report.advised {
        let _ = writeln!(page, "<pre>{}</pre>", escape(&advised.render()));
    }
    page.push_str(&throughput(report));
    page.push_str(&waits(report));
    page.push_str(&moved(report));
    page.push_str(&stalls(report));
    page.push_str(
        "<p>Bars are medians over repeats, whiskers the lowest and highest repeat. Wait share: time a trainer waited for data \
(sampling that did not fit into the compute and gather counted in) over all its step time. Oracle: Belady's choice with the whole future known, same blocks, \
same cache, perfect overlap; bound: compute and all-reduce alone.</p>\n</body>\n</html>\n",
    );
    page
}

/// The same in every plot.
pub(crate) fn colour(arm: Arm) -> &'static str {
    match arm {
        Arm::None => "#9a9a9a",
        Arm::NoneOverlap => "#c2a15a",
        Arm::FixedWindow => "#5a8fc2",
        Arm::Lru => "#b56db3",
        Arm::LruPrefetch => "#d07a4e",
        Arm::Lfu => "#8c6bb1",
        Arm::Clock => "#6a51a3",
        Arm::Sieve => "#4a78a8",
        Arm::S3Fifo => "#3f9aa5",
        Arm::Degree => "#a0785a",
        Arm::Presc => "#8a6d3b",
        Arm::Vip => "#b08968",
        Arm::MassiveGnn => "#c0504d",
        Arm::RudderPaper => "#d98880",
        Arm::WindowStatic => "#7f8c3f",
        Arm::BeladySuperbatch => "#5f6b2f",
        Arm::Rudder => "#2f9e5f",
    }
}

pub(crate) const REFERENCE: &str = "#77777777";

fn table(report: &Report) -> String {
    let head = [
        "arm",
        "minibatches/s",
        "wait",
        "accuracy",
        "coverage",
        "hits",
        "moved",
        "demand",
        "prefetch",
        "amplification",
        "protocol",
        "stall",
        "wrong bytes",
    ];
    let mut html = String::from("<table><thead><tr>");
    for name in head {
        let _ = write!(html, "<th>{name}</th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    for arm in &report.arms {
        html.push_str(&arm_row(arm));
    }
    for (name, row) in [("oracle", report.oracle), ("bound", report.bound)] {
        if let Some(row) = row {
            html.push_str(&reference_row(name, &row));
        }
    }
    html.push_str("</tbody></table>\n");
    html
}

fn arm_row(arm: &ArmReport) -> String {
    let class = if arm.arm == Arm::Rudder { " class='rudder'" } else { "" };
    let wrong = if arm.bytes_wrong > 0 { " class='wrong'" } else { "" };
    format!(
        "<tr{class}><td>{}</td><td title='{:.2} to {:.2}'>{:.2}</td><td title='{} to {}'>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.2} s</td><td{wrong}>{}</td></tr>\n",
        arm.arm.name(),
        arm.minibatches_per_s_low,
        arm.minibatches_per_s_high,
        arm.minibatches_per_s,
        percent(Some(arm.wait_share_low)),
        percent(Some(arm.wait_share_high)),
        percent(Some(arm.wait_share)),
        percent(arm.prefetch_accuracy),
        percent(arm.coverage),
        percent(arm.hit_rate),
        Bytes(arm.bytes_moved),
        Bytes(arm.bytes_demand),
        Bytes(arm.bytes_prefetch),
        arm.amplification.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        Bytes(arm.bytes_protocol),
        arm.stall_s,
        arm.bytes_wrong,
    )
}

fn reference_row(name: &str, row: &Reference) -> String {
    format!(
        "<tr class='reference'><td>{name}</td><td>{:.2}</td><td>{}</td><td></td><td></td><td></td><td>{}</td><td colspan='6'></td></tr>\n",
        row.minibatches_per_s,
        percent(Some(row.wait_share)),
        Bytes(row.bytes_moved)
    )
}

fn throughput(report: &Report) -> String {
    let arm = |arm: &ArmReport| Bar {
        label: arm.arm.name().to_owned(),
        value: arm.minibatches_per_s,
        low: arm.minibatches_per_s_low,
        high: arm.minibatches_per_s_high,
        text: format!("{:.2}", arm.minibatches_per_s),
        colour: colour(arm.arm),
    };
    let reference = |name: &str, row: &Reference| Bar {
        label: name.to_owned(),
        value: row.minibatches_per_s,
        low: row.minibatches_per_s,
        high: row.minibatches_per_s,
        text: format!("{:.2}", row.minibatches_per_s),
        colour: REFERENCE,
    };
    bars("Throughput: minibatches per second of a trainer", &all_bars(report, arm, reference))
}

fn waits(report: &Report) -> String {
    let arm = |arm: &ArmReport| Bar {
        label: arm.arm.name().to_owned(),
        value: arm.wait_share,
        low: arm.wait_share_low,
        high: arm.wait_share_high,
        text: percent(Some(arm.wait_share)),
        colour: colour(arm.arm),
    };
    let reference = |name: &str, row: &Reference| Bar {
        label: name.to_owned(),
        value: row.wait_share,
        low: row.wait_share,
        high: row.wait_share,
        text: percent(Some(row.wait_share)),
        colour: REFERENCE,
    };
    bars("Wait share of step time", &all_bars(report, arm, reference))
}

fn moved(report: &Report) -> String {
    let bar = |label: &str, bytes: u64, colour| Bar {
        label: label.to_owned(),
        value: bytes as f64,
        low: bytes as f64,
        high: bytes as f64,
        text: Bytes(bytes).to_string(),
        colour,
    };
    let arm = |arm: &ArmReport| bar(arm.arm.name(), arm.bytes_moved, colour(arm.arm));
    let reference = |name: &str, row: &Reference| bar(name, row.bytes_moved, REFERENCE);
    bars("Bytes moved by storage nodes, one run", &all_bars(report, arm, reference))
}

fn all_bars(
    report: &Report,
    arm: impl Fn(&ArmReport) -> Bar,
    reference: impl Fn(&str, &Reference) -> Bar,
) -> Vec<Bar> {
    let mut bars: Vec<Bar> = report.arms.iter().map(arm).collect();
    bars.extend(report.oracle.iter().map(|row| reference("oracle", row)));
    bars.extend(report.bound.iter().map(|row| reference("bound", row)));
    bars
}

fn stalls(report: &Report) -> String {
    let line = |arm: &ArmReport| Line {
        label: arm.arm.name().to_owned(),
        values: arm.stall_over_time.clone(),
        colour: colour(arm.arm),
    };
    let all: Vec<Line> = report.arms.iter().map(line).collect();
    lines("Stall over time: seconds waited so far, first repeat", "minibatch", " s", &all)
}
