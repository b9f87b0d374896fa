//! The same scenario with real processes and simulated, side by side: how far the model can be believed.

use crate::compile::{Mode, Scenario};
use crate::report::{ArmReport, Reference, Report};
use crate::run::dataset::Import;
use crate::run::{RunError, RunOptions, run};
use crate::stop::Stop;
use serde::Serialize;
use std::fmt::Write;

/// Throughput may differ by this share of the real one.
const THROUGHPUT_MAX: f64 = 0.10;
/// A wait share may differ by this share of the real one, or by so many points where it is small.
const WAIT_MAX: f64 = 0.10;
const WAIT_POINTS_MAX: f64 = 0.02;
/// Bytes that differ by more than this share mean that the policy decided otherwise.
const BYTES_MAX: f64 = 0.05;
/// A link that reached another rate by more than this share explains what waits on it.
const LINK_MAX: f64 = 0.03;

/// Both runs of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    pub scenario: String,
    pub dataset: String,
    /// How the real links were shaped.
    pub mode: String,
    pub rows: Vec<Row>,
    /// What explains differences that are larger than they should be.
    pub notes: Vec<String>,
    pub real: Report,
    pub simulated: Report,
}

/// An arm, or the bound.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub arm: String,
    pub real_minibatches_per_s: f64,
    pub simulated_minibatches_per_s: f64,
    /// (simulated - real) / real.
    pub throughput_difference: f64,
    pub real_wait_share: f64,
    pub simulated_wait_share: f64,
    pub wait_share_difference: f64,
    pub real_bytes_moved: u64,
    pub simulated_bytes_moved: u64,
    /// Throughput within 10 %, the wait share within 10 % or 2 points.
    pub agrees: bool,
}

/// Runs both. A simulation mode asked for is taken for `auto`: there must be something to compare with.
pub fn calibrate(
    scenario: &Scenario,
    options: &RunOptions,
    importer: &dyn Import,
    stop: &Stop,
) -> Result<Calibration, RunError> {
    let mode = options.mode.unwrap_or(scenario.mode);
    let mode = if mode == Mode::Sim { Mode::Auto } else { mode };
    let real = run(scenario, &RunOptions { mode: Some(mode), ..options.clone() }, importer, stop)?;
    let simulated = run(scenario, &RunOptions { mode: Some(Mode::Sim), ..options.clone() }, importer, stop)?;
    Ok(compare(real, simulated))
}

fn compare(real: Report, simulated: Report) -> Calibration {
    let mut rows = Vec::new();
    if let (Some(real), Some(simulated)) = (&real.bound, &simulated.bound) {
        rows.push(row("bound", &of_reference(real), &of_reference(simulated)));
    }
    for arm in &real.arms {
        if let Some(twin) = simulated.arms.iter().find(|twin| twin.arm == arm.arm) {
            rows.push(row(arm.arm.name(), &of_arm(arm), &of_arm(twin)));
        }
    }
    let notes = notes(&real, &simulated, &rows);
    Calibration {
        scenario: real.scenario.clone(),
        dataset: real.dataset.clone(),
        mode: real.circumstances.mode.clone(),
        rows,
        notes,
        real,
        simulated,
    }
}

/// Throughput, wait share, bytes moved.
type Facts = (f64, f64, u64);

fn of_arm(arm: &ArmReport) -> Facts {
    (arm.minibatches_per_s, arm.wait_share, arm.bytes_moved)
}

fn of_reference(reference: &Reference) -> Facts {
    (reference.minibatches_per_s, reference.wait_share, reference.bytes_moved)
}

fn row(arm: &str, real: &Facts, simulated: &Facts) -> Row {
    let throughput_difference = simulated.0 / real.0.max(1e-9) - 1.0;
    let wait_share_difference = simulated.1 - real.1;
    let wait_agrees =
        wait_share_difference.abs() <= WAIT_POINTS_MAX || wait_share_difference.abs() <= WAIT_MAX * real.1;
    Row {
        arm: arm.to_owned(),
        real_minibatches_per_s: real.0,
        simulated_minibatches_per_s: simulated.0,
        throughput_difference,
        real_wait_share: real.1,
        simulated_wait_share: simulated.1,
        wait_share_difference,
        real_bytes_moved: real.2,
        simulated_bytes_moved: simulated.2,
        agrees: throughput_difference.abs() <= THROUGHPUT_MAX && wait_agrees,
    }
}

fn notes(real: &Report, simulated: &Report, rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    let mean = |report: &Report| {
        let reached = &report.circumstances.link_reached_mbit;
        reached.iter().sum::<f64>() / reached.len().max(1) as f64
    };
    let (reached, assumed) = (mean(real), mean(simulated));
    if reached > 0.0 && (reached / assumed - 1.0).abs() > LINK_MAX {
        notes.push(format!(
            "the real links carried {reached:.1} Mbit/s of payload, the simulated ones {assumed:.1}: whatever waits for a link differs as much"
        ));
    }
    for row in rows.iter().filter(|row| !row.agrees) {
        let bytes = row.simulated_bytes_moved as f64 / row.real_bytes_moved.max(1) as f64 - 1.0;
        let reason = if row.arm == "bound" {
            "it only computes and sums gradients: the machine was busy, or an all-reduce's own time (Costs::round) is another here".to_owned()
        } else if row.real_bytes_moved > 0 && bytes.abs() > BYTES_MAX {
            format!(
                "it moved {:+.0} % bytes: with other times the policy found other things to do",
                bytes * 100.0
            )
        } else if row.throughput_difference > 0.0 {
            "the same bytes and more throughput in simulation: real processes share cores, and work then takes longer than the model's constants say".to_owned()
        } else {
            "the same bytes and less throughput in simulation: the model's constants are high for this machine".to_owned()
        };
        notes.push(format!("{}: {reason}", row.arm));
    }
    notes
}

/// For a terminal.
#[must_use]
pub fn render(calibration: &Calibration) -> String {
    let mut text = format!(
        "calibration of {} on {}: real processes ({}) and simulation\n\n",
        calibration.scenario, calibration.dataset, calibration.mode
    );
    let _ = writeln!(
        text,
        "{:<16}{:>10}{:>10}{:>9}{:>11}{:>10}{:>9}{:>12}{:>12}  within 10 %",
        "arm", "real/s", "sim/s", "differs", "real wait", "sim wait", "points", "real moved", "sim moved"
    );
    let _ = writeln!(text, "{}", "-".repeat(112));
    for row in &calibration.rows {
        let _ = writeln!(
            text,
            "{:<16}{:>10.2}{:>10.2}{:>+7.1} %{:>9.1} %{:>8.1} %{:>+9.1}{:>12}{:>12}  {}",
            row.arm,
            row.real_minibatches_per_s,
            row.simulated_minibatches_per_s,
            row.throughput_difference * 100.0,
            row.real_wait_share * 100.0,
            row.simulated_wait_share * 100.0,
            row.wait_share_difference * 100.0,
            rudder_topology::Bytes(row.real_bytes_moved).to_string(),
            rudder_topology::Bytes(row.simulated_bytes_moved).to_string(),
            if row.agrees { "yes" } else { "no" }
        );
    }
    for note in &calibration.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn a_report_agrees_with_itself() {
        let calibration = compare(sample(), sample());
        assert_eq!(calibration.rows.len(), 4);
        assert!(calibration.rows.iter().all(|row| row.agrees) && calibration.notes.is_empty());
        assert!(render(&calibration).contains("lru"));
    }

    #[test]
    fn what_differs_is_said_and_explained() {
        let mut simulated = sample();
        simulated.arms[0].minibatches_per_s *= 1.2;
        simulated.arms[1].bytes_moved *= 2;
        simulated.arms[1].wait_share += 0.2;
        simulated.bound.as_mut().unwrap().minibatches_per_s *= 0.8;
        simulated.circumstances.link_reached_mbit = vec![50.0];
        let mut real = sample();
        real.circumstances.link_reached_mbit = vec![40.0];
        let calibration = compare(real, simulated);
        let agrees: Vec<bool> = calibration.rows.iter().map(|row| row.agrees).collect();
        assert_eq!(agrees, [false, false, false, true]);
        assert_eq!(calibration.notes.len(), 4, "{:?}", calibration.notes);
    }
}
