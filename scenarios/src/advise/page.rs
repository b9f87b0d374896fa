//! An advice as one page that needs nothing else.

use super::{Advice, table};
use crate::arm::Arm;
use crate::record::Outcome;
use crate::report::html::{REFERENCE, STYLE, colour};
use crate::report::svg::{Bar, Line, bars, curves, escape};
use std::fmt::Write;

#[must_use]
pub fn render(advice: &Advice) -> String {
    let title = format!("Advice: {} on {}", escape(&advice.dataset), escape(&advice.topology));
    let mut page = format!(
        "<!doctype html>\n<html lang='en'>\n<head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>\
<title>{title}</title><style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
    );
    for sentence in &advice.words {
        let _ = writeln!(page, "<p>{}</p>", escape(sentence));
    }
    let shown: Vec<Arm> =
        advice.bandwidth.first().map_or(Vec::new(), |case| case.arms.iter().map(|a| a.arm).collect());
    page.push_str(&throughput(advice));
    push_table(&mut page, "As things are", &table::arms(advice));
    let (ticks, cases): (Vec<String>, Vec<&[Outcome]>) =
        advice.cache.iter().map(|case| (table::cache_label(case), case.arms.as_slice())).unzip();
    page.push_str(&curves(
        "Minibatches per second by cache size, of the remote bytes",
        &ticks,
        "",
        &lines(&shown, &cases),
    ));
    push_table(&mut page, "With other caches", &table::caches(advice));
    let (ticks, cases): (Vec<String>, Vec<&[Outcome]>) =
        advice.bandwidth.iter().map(|case| (table::bandwidth_label(case), case.arms.as_slice())).unzip();
    let mut curves_of = lines(&shown, &cases);
    curves_of.push(Line {
        label: "bound".to_owned(),
        values: advice.bandwidth.iter().map(|case| case.bound.minibatches_per_s).collect(),
        colour: REFERENCE,
    });
    page.push_str(&curves("Minibatches per second by bandwidth", &ticks, "", &curves_of));
    push_table(&mut page, "With other bandwidths", &table::bandwidths(advice));
    push_list(&mut page, "What was simulated", &table::facts(advice));
    push_list(&mut page, "Keep in mind", &advice.caveats);
    page.push_str("</body>\n</html>\n");
    page
}

fn throughput(advice: &Advice) -> String {
    let bar = |label: &str, value: f64, colour| Bar {
        label: label.to_owned(),
        value,
        low: value,
        high: value,
        text: format!("{value:.2}"),
        colour,
    };
    let arms = advice.arms.iter().map(|arm| bar(arm.arm.name(), arm.minibatches_per_s, colour(arm.arm)));
    let oracle = advice.oracle.iter().map(|oracle| bar("oracle", oracle.minibatches_per_s, REFERENCE));
    let bound = std::iter::once(bar("bound", advice.bound.minibatches_per_s, REFERENCE));
    let all: Vec<Bar> = arms.chain(oracle).chain(bound).collect();
    bars("Throughput: minibatches per second of a trainer", &all)
}

fn lines(arms: &[Arm], cases: &[&[Outcome]]) -> Vec<Line> {
    let rate = |arm: Arm, case: &[Outcome]| {
        case.iter().find(|outcome| outcome.arm == arm).map_or(0.0, |outcome| outcome.minibatches_per_s)
    };
    let line = |&arm: &Arm| Line {
        label: arm.name().to_owned(),
        values: cases.iter().map(|case| rate(arm, case)).collect(),
        colour: colour(arm),
    };
    arms.iter().map(line).collect()
}

fn push_table(page: &mut String, title: &str, rows: &[Vec<String>]) {
    let _ = write!(page, "<h2>{title}</h2>\n<table>");
    for (at, row) in rows.iter().enumerate() {
        let cell = if at == 0 { "th" } else { "td" };
        let class = if row.first().is_some_and(|name| name == "rudder") { " class='rudder'" } else { "" };
        let _ = write!(page, "<tr{class}>");
        for text in row {
            let _ = write!(page, "<{cell}>{}</{cell}>", escape(text));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

fn push_list(page: &mut String, title: &str, lines: &[String]) {
    let _ = writeln!(page, "<h2>{title}</h2>\n<ul>");
    for line in lines {
        let _ = writeln!(page, "<li>{}</li>", escape(line));
    }
    page.push_str("</ul>\n");
}
