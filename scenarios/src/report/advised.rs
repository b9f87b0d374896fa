//! What advice is worth to real processes: `rudder` under each advisor, beside nobody's advice.

use crate::arm::Arm;
use crate::record::Run;
use crate::report::statistics::{Spread, median, median_of, spread};
use crate::report::table::{align, percent};
use rudder_topology::{AdvisorBackend, Bytes, Nanos};
use serde::Serialize;
use std::fmt::Write;

/// Every advisor, nobody's advice (`never`) first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advised {
    pub rows: Vec<AdvisedRow>,
}

/// One advisor. Values are medians over repeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdvisedRow {
    pub advisor: &'static str,
    pub repeats: u32,
    /// Seconds that all trainers' steps took beyond the bound's, summed.
    pub stall_s: f64,
    pub stall_s_low: f64,
    pub stall_s_high: f64,
    /// Of the stall, as a share of what it is under `never`; negative is better.
    pub change: Option<f64>,
    pub wait_share: f64,
    /// Mean milliseconds of a step: of all steps, of those that ended before the first event, and of the last fifth of the
    /// minibatches.
    pub step_ms: f64,
    pub step_ms_before: Option<f64>,
    pub step_ms_end: f64,
    pub bytes_moved: u64,
    /// The most over repeats, not the median.
    pub bytes_wrong: u64,
    pub edges: u64,
    pub consults: u64,
    /// Directives put on trial, and those that were taken back for good.
    pub directives: u64,
    pub reverted: u64,
    /// Directives of compute nodes that heard no advisor: they are in none of the counts before.
    pub own_directives: u64,
    /// Rows that storage nodes served of what they do not own, and those of them that they had to ask for.
    pub staged_rows_served: u64,
    pub rows_relayed: u64,
}

impl Advised {
    /// `None` where nobody was asked. `change`: the time of the first event.
    #[must_use]
    pub fn of(runs: &[Run], change: Option<Nanos>) -> Option<Advised> {
        let mut advisors: Vec<AdvisorBackend> = Vec::new();
        for backend in runs.iter().filter_map(|run| run.advised) {
            if backend != AdvisorBackend::Never && !advisors.contains(&backend) {
                advisors.push(backend);
            }
        }
        if advisors.is_empty() {
            return None;
        }
        let bounds = runs.iter().filter(|run| run.arm.is_none()).map(steps_s);
        let bound_s = median(bounds.collect()).unwrap_or(0.0);
        let rudder = |backend: AdvisorBackend| {
            let by = move |run: &&Run| run.advised.unwrap_or(AdvisorBackend::Never) == backend;
            runs.iter().filter(|run| run.arm == Some(Arm::Rudder)).filter(by).collect::<Vec<_>>()
        };
        let row = |backend| row(backend, &rudder(backend), bound_s, change);
        let mut rows: Vec<AdvisedRow> =
            std::iter::once(AdvisorBackend::Never).chain(advisors).map(row).collect();
        let never_s = rows[0].stall_s;
        for row in rows.iter_mut().skip(1) {
            row.change = (never_s > 0.0).then(|| row.stall_s / never_s - 1.0);
        }
        Some(Advised { rows })
    }

    /// For a terminal.
    #[must_use]
    pub fn render(&self) -> String {
        let head = [
            "advisor",
            "stall s",
            "low..high",
            "change",
            "wait",
            "step ms",
            "before",
            "end",
            "moved",
            "wrong",
            "edges",
            "consults",
            "directives",
            "reverted",
            "own",
            "staged rows",
            "relayed",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(|row| {
            vec![
                row.advisor.to_owned(),
                format!("{:.1}", row.stall_s),
                format!("{:.1}..{:.1}", row.stall_s_low, row.stall_s_high),
                row.change.map_or("-".to_owned(), |change| format!("{:+.1} %", change * 100.0)),
                percent(Some(row.wait_share)),
                format!("{:.1}", row.step_ms),
                row.step_ms_before.map_or("-".to_owned(), |ms| format!("{ms:.1}")),
                format!("{:.1}", row.step_ms_end),
                Bytes(row.bytes_moved).to_string(),
                row.bytes_wrong.to_string(),
                row.edges.to_string(),
                row.consults.to_string(),
                row.directives.to_string(),
                row.reverted.to_string(),
                row.own_directives.to_string(),
                row.staged_rows_served.to_string(),
                row.rows_relayed.to_string(),
            ]
        }));
        let mut text =
            "`rudder` under advice, in real processes; what trainers compute is a stand-in:\n\n".to_owned();
        text.push_str(&align(&lines, &[0]));
        let _ = writeln!(
            text,
            "\nstall: what all trainers' steps took beyond the bound's, summed; change: of it, beside never; step: mean, of all\n\
             steps, of those before the first event, of the last fifth of the minibatches; directives: put on trial, reverted: of\n\
             them, taken back for good; own: given by compute nodes that heard no advisor; staged rows: served by storage nodes\n\
             that do not own them, relayed: asked of each other for that"
        );
        text
    }
}

/// What all trainers' steps took, summed, in seconds.
fn steps_s(run: &Run) -> f64 {
    run.trainers.iter().flat_map(|trainer| &trainer.steps).map(|step| step.step_ns as f64 / 1e9).sum()
}

fn row(advisor: AdvisorBackend, runs: &[&Run], bound_s: f64, change: Option<Nanos>) -> AdvisedRow {
    let Spread { middle: stall_s, low: stall_s_low, high: stall_s_high } =
        spread(runs.iter().map(|run| steps_s(run) - bound_s).collect());
    let middle = |of: &dyn Fn(&Run) -> Option<f64>| median(runs.iter().filter_map(|run| of(run)).collect());
    let count = |of: fn(&Run) -> u64| median_of(runs.iter().map(|run| of(run)).collect());
    AdvisedRow {
        advisor: advisor.name(),
        repeats: runs.len() as u32,
        stall_s,
        stall_s_low,
        stall_s_high,
        change: None,
        wait_share: middle(&|run| Some(run.wait_share())).unwrap_or(0.0),
        step_ms: middle(&|run| mean_ms(run, |_, _, _| true)).unwrap_or(0.0),
        step_ms_before: change
            .and_then(|change| middle(&|run| mean_ms(run, |since_ns, _, _| since_ns < change.0))),
        step_ms_end: middle(&|run| mean_ms(run, |_, at, all| at >= all - all / 5)).unwrap_or(0.0),
        bytes_moved: count(|run| run.counters.bytes_moved()),
        bytes_wrong: runs.iter().map(|run| run.bytes_wrong()).max().unwrap_or(0),
        edges: count(|run| run.counters.edges),
        consults: count(|run| run.counters.consults),
        directives: count(|run| run.counters.directives),
        reverted: count(|run| run.counters.reverted),
        own_directives: count(|run| run.counters.own_directives),
        staged_rows_served: count(|run| run.counters.staged_rows_served),
        rows_relayed: count(|run| run.counters.rows_relayed),
    }
}

/// The mean over the steps that are `wanted`: nanoseconds since the trainer began, position, and how many there are.
fn mean_ms(run: &Run, wanted: impl Fn(u64, usize, usize) -> bool) -> Option<f64> {
    let (mut count, mut sum_ns) = (0_u64, 0_u64);
    for trainer in &run.trainers {
        for (at, step) in trainer.steps.iter().enumerate() {
            if wanted(step.at_ns.saturating_sub(trainer.started_ns), at, trainer.steps.len()) {
                count += 1;
                sum_ns += step.step_ns;
            }
        }
    }
    (count > 0).then(|| sum_ns as f64 / 1e6 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Counters, TrainerRun};
    use crate::trainer::event::Step;

    /// Ten steps of a trainer that began a second after the epoch, the first four of 100 ms each.
    fn run(arm: Option<Arm>, advised: Option<AdvisorBackend>, later_ms: u64) -> Run {
        let mut at_ns = 1_000_000_000;
        let steps = (0..10).map(|n| {
            let step_ns = if n < 4 { 100 } else { later_ms } * 1_000_000;
            at_ns += step_ns;
            Step { at_ns, step_ns, ..Step::default() }
        });
        let trainer =
            TrainerRun { started_ns: 1_000_000_000, steps: steps.collect(), ..TrainerRun::default() };
        let counters = Counters { directives: u64::from(advised.is_some()), ..Counters::default() };
        Run { arm, advised, trainers: vec![trainer], counters, ..Run::default() }
    }

    #[test]
    fn each_advisor_stands_beside_never() {
        let rudder = Some(Arm::Rudder);
        let runs = [
            run(None, None, 100),
            run(Some(Arm::Lru), None, 900),
            run(rudder, None, 500),
            run(rudder, Some(AdvisorBackend::Rules), 200),
        ];
        let advised = Advised::of(&runs, Some(Nanos::from_millis(450))).unwrap();
        let names: Vec<_> = advised.rows.iter().map(|row| row.advisor).collect();
        assert_eq!(names, ["never", "rules"]);
        let [never, rules] = &advised.rows[..] else { unreachable!() };
        assert!((never.stall_s - 2.4).abs() < 1e-9 && (rules.stall_s - 0.6).abs() < 1e-9, "{advised:?}");
        assert_eq!((never.change, rules.change.map(|change| (change * 100.0).round())), (None, Some(-75.0)));
        assert_eq!((rules.step_ms_before, rules.step_ms_end), (Some(100.0), 200.0));
        assert_eq!((never.directives, rules.directives), (0, 1));
        let text = advised.render();
        assert!(text.contains("-75.0 %") && text.contains("stand-in"), "{text}");
    }

    #[test]
    fn never_may_be_a_run_of_its_own_and_is_no_advice_alone() {
        let rudder = Some(Arm::Rudder);
        let never = run(rudder, Some(AdvisorBackend::Never), 500);
        assert_eq!(Advised::of(std::slice::from_ref(&never), None), None);
        let advised = Advised::of(&[never, run(rudder, Some(AdvisorBackend::First), 600)], None).unwrap();
        assert_eq!(
            (advised.rows.len(), advised.rows[0].repeats, advised.rows[0].step_ms_before),
            (2, 1, None)
        );
    }
}
