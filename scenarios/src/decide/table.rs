//! The decision table as text.

use super::campaign::Decided;
use super::draw::Kind;
use super::judged::{HARM, HELPS, Trials, median};
use crate::report::table::align;
use std::fmt::Write;

/// A row an advisor, then what could have helped, by kind.
#[must_use]
pub fn render(decided: &Decided) -> String {
    let all = &decided.scenarios;
    let mut text = format!(
        "{} scenarios; in {} of them trainers stall and a single directive cuts the stall by {:.0} % or more, the best one in the\n\
         median by {}\n\n",
        all.len(),
        all.iter().filter(|trials| trials.can_be_helped()).count(),
        HELPS * 100.0,
        signed(best_median(all.iter()))
    );
    let head = [
        "advisor",
        "median",
        "all",
        "cut",
        "of best",
        "worst",
        "harmed",
        "right",
        "traffic",
        "directives",
        "reverted",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in &decided.rows {
        lines.push(vec![
            row.advisor.clone(),
            signed(row.change_median),
            signed(row.change_sum),
            row.cut.to_string(),
            share(row.gained_median),
            signed(row.change_worst),
            share(Some(row.harmed)),
            share(Some(row.right)),
            signed(row.traffic_median),
            row.directives.to_string(),
            share(row.reverted),
        ]);
    }
    text.push_str(&align(&lines, &[0]));
    let _ = writeln!(
        text,
        "\nmedian: change of the stall where a directive can help; all: of these stalls together; cut: how many of them by\n\
         {:.0} % or more; of best: share of the best single directive's gain;\n\
         worst and harmed (stall grown by more than {:.0} %): over all; right: acted at the first consult exactly where\n\
         a directive can help; traffic: median change of the bytes moved, where anything was directed\n",
        HELPS * 100.0,
        HARM * 100.0
    );
    text.push_str(&consults(decided));
    let evaluation = decided.evaluation;
    let _ = writeln!(
        text,
        "evaluator: {} directives tried alone, {} of them changed the stall; sign right {}, always \"helps\" {}, always \"hurts\" {}\n",
        evaluation.tried,
        evaluation.changed,
        share(Some(evaluation.right)),
        share(Some(evaluation.always)),
        share(Some(evaluation.never)),
    );
    if all.iter().any(|trials| trials.kind.is_some()) {
        text.push_str(&kinds(all));
    }
    text
}

/// How it was decided: a row an advisor.
fn consults(decided: &Decided) -> String {
    let head = [
        "advisor",
        "per edge",
        "per group",
        "most",
        "per 1000",
        "steady",
        "covered",
        "expected",
        "measured",
        "signs",
        "constant",
        "answered",
        "valid",
        "agree",
        "ms",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in &decided.rows {
        lines.push(vec![
            row.advisor.clone(),
            row.consults_per_edge.map_or("-".to_owned(), |per| format!("{per:.2}")),
            format!("{:.2}", row.per_group_most),
            row.group_consults_most.to_string(),
            format!("{:.2}", row.consults_per_1000),
            row.consults_steady.to_string(),
            share(row.covered),
            points(row.expected_median),
            points(row.measured_median),
            share(row.signs),
            share(row.signs_constant),
            share(row.answered),
            share(row.valid),
            share(row.agreed),
            row.latency_ms.map_or("-".to_owned(), |ms| format!("{ms:.0}")),
        ]);
    }
    let mut text = align(&lines, &[0]);
    text.push_str(
        "\nper edge, per 1000: consults, per minibatches; per group: the most consults per edge about one compute node, or\n\
         about the cluster as a whole, of any scenario; most: so many about one, in all; covered: minibatches while no\n\
         decision was missing; expected, measured: median change of the stall share, in points, over judged directives;\n\
         signs: those that went where it was expected, constant: the better of always saying one of both; answered: in\n\
         time, valid: taken whole, of these; agree: the same answer with the options in another order; ms: 500 of it are\n\
         the way to the nodes\n\n",
    );
    text
}

fn points(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{:+.1}", value * 100.0))
}

/// A row a kind of change: what the best single directive gains in the median, and each advisor beside it.
fn kinds(all: &[Trials]) -> String {
    let advisors = || all.iter().take(1).flat_map(|trials| trials.decisions.iter().skip(1));
    let mut head =
        ["change", "scenarios", "edge", "can help", "stall share", "best"].map(str::to_owned).to_vec();
    head.extend(advisors().map(|decision| decision.advisor.clone()));
    head.push("best directives".to_owned());
    let mut lines = vec![head];
    for kind in Kind::ALL {
        let of: Vec<&Trials> = all.iter().filter(|trials| trials.kind == Some(kind)).collect();
        if of.is_empty() {
            continue;
        }
        let edges =
            of.iter().filter(|trials| trials.decisions.first().is_some_and(|d| d.consults > 0)).count();
        let helped: Vec<&&Trials> = of.iter().filter(|trials| trials.can_be_helped()).collect();
        let change = |at: usize| median(helped.iter().map(|t| t.decisions[at].change).collect());
        let mut levers: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
        for best in helped.iter().filter_map(|trials| trials.best()) {
            *levers.entry(best.action.split(' ').next().unwrap_or_default()).or_default() += 1;
        }
        let levers: Vec<String> = levers.iter().map(|(lever, count)| format!("{lever} {count}")).collect();
        let stall: f64 = of.iter().map(|trials| trials.never_s / trials.bound_s.max(1e-9)).sum::<f64>();
        let mut line = vec![
            kind.name().to_owned(),
            of.len().to_string(),
            edges.to_string(),
            helped.len().to_string(),
            format!("{:.2}", stall / of.len() as f64),
            signed(best_median(of.iter().copied())),
        ];
        line.extend((1..=advisors().count()).map(|at| signed(change(at))));
        line.push(levers.join(", "));
        lines.push(line);
    }
    align(&lines, &[0, 6 + advisors().count()])
}

/// Of the scenarios where a directive can help, what the best one gains.
fn best_median<'a>(of: impl Iterator<Item = &'a Trials>) -> Option<f64> {
    median(of.filter(|trials| trials.can_be_helped()).filter_map(|t| Some(t.best()?.measured)).collect())
}

fn share(value: Option<f64>) -> String {
    // No minus before a zero.
    value.map_or("-".to_owned(), |value| format!("{:.0} %", (value * 100.0).round() + 0.0))
}

fn signed(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{:+.1} %", value * 100.0))
}
