//! A directive on trial: the stall before it is known, the stall with it is measured, and what hurts is taken back.

use super::directive::Directive;
use serde::{Deserialize, Serialize};

/// How a trial judges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialConfig {
    /// Values that are not counted, while the change takes hold.
    pub settle_values: u32,
    /// Values that make a measurement.
    pub measure_values: u32,
    /// The wait share may be so much worse than before: noise.
    pub tolerance: f32,
    /// It is taken back at once, without waiting for a measurement, where it is so much worse.
    pub alarm: f32,
}

impl Default for TrialConfig {
    fn default() -> Self {
        TrialConfig { settle_values: 2, measure_values: 5, tolerance: 0.015, alarm: 0.08 }
    }
}

/// How a trial stands or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialVerdict {
    /// Not measured enough.
    Running,
    /// It does no harm: it stays until its time is over.
    Kept,
    /// It hurt: the former parameters come back.
    Reverted,
    /// Its time was over before it could be judged.
    Expired,
}

/// A directive on trial.
#[derive(Clone, Debug)]
pub struct Trial {
    config: TrialConfig,
    pub directive: Directive,
    pub predicted: f32,
    before: f32,
    expires_ns: u64,
    values: u32,
    sum: f32,
    counted: u32,
    verdict: TrialVerdict,
}

/// What came of a directive: a line of the experience store.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Changes of the wait share; negative is better.
    pub predicted: f32,
    /// `None` where too little was measured.
    pub measured: Option<f32>,
    pub verdict: TrialVerdict,
}

impl Trial {
    /// Begins with a directive that has just been applied. `before` is the mean wait share just before it.
    #[must_use]
    pub fn begin(
        config: TrialConfig,
        directive: Directive,
        predicted: f32,
        before: f32,
        now_ns: u64,
    ) -> Self {
        let expires_ns = now_ns.saturating_add(directive.ttl_ns());
        Trial {
            config,
            directive,
            predicted,
            before,
            expires_ns,
            values: 0,
            sum: 0.0,
            counted: 0,
            verdict: TrialVerdict::Running,
        }
    }

    /// Takes in a wait share. Says `Reverted` once, at the moment at which the former parameters have to come back.
    pub fn observe(&mut self, wait_share: f32, now_ns: u64) -> TrialVerdict {
        if matches!(self.verdict, TrialVerdict::Reverted | TrialVerdict::Expired) {
            return self.verdict;
        }
        if now_ns >= self.expires_ns {
            if self.verdict == TrialVerdict::Running {
                self.verdict = TrialVerdict::Expired;
            }
            return self.verdict;
        }
        self.values += 1;
        if !wait_share.is_finite() || self.values <= self.config.settle_values {
            return self.verdict;
        }
        self.sum += wait_share;
        self.counted += 1;
        let enough = self.counted >= self.config.measure_values;
        let allowed = if enough { self.config.tolerance } else { self.config.alarm };
        if self.mean().is_some_and(|mean| mean > self.before + allowed) {
            self.verdict = TrialVerdict::Reverted;
        } else if enough {
            self.verdict = TrialVerdict::Kept;
        }
        self.verdict
    }

    fn mean(&self) -> Option<f32> {
        (self.counted > 0).then(|| self.sum / self.counted as f32)
    }

    /// Whether nothing of it is in force any more.
    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.expires_ns || self.verdict == TrialVerdict::Reverted
    }

    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let measured = self.mean().map(|mean| mean - self.before);
        Outcome { predicted: self.predicted, measured, verdict: self.verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::directive::{Action, Change};
    use crate::parameters::Posture;
    use proptest::prelude::*;
    use rudder_topology::NodeId;

    const SECOND: u64 = 1_000_000_000;

    fn trial(before: f32) -> Trial {
        let change = Change::Posture(Posture::DemandFirst);
        let directive = Directive { actions: vec![Action { compute: NodeId(0), change, ttl_s: 60 }] };
        Trial::begin(TrialConfig::default(), directive, -0.1, before, 0)
    }

    fn verdicts(before: f32, series: &[f32]) -> Vec<TrialVerdict> {
        let mut trial = trial(before);
        series.iter().zip(1..).map(|(&wait, at)| trial.observe(wait, at * 2 * SECOND)).collect()
    }

    #[test]
    fn what_helps_is_kept_and_what_hurts_is_taken_back() {
        assert_eq!(verdicts(0.4, &[0.2; 7]).last(), Some(&TrialVerdict::Kept));
        assert_eq!(verdicts(0.2, &[0.25; 7]).last(), Some(&TrialVerdict::Reverted));
        assert_eq!(verdicts(0.2, &[0.21; 7]).last(), Some(&TrialVerdict::Kept), "within the noise");
        let alarmed = verdicts(0.2, &[0.6; 3]);
        assert_eq!(alarmed, [TrialVerdict::Running, TrialVerdict::Running, TrialVerdict::Reverted]);
        assert_eq!(verdicts(0.2, &[0.9, 0.9, 0.1, 0.1]).last(), Some(&TrialVerdict::Running), "it settles");
        let late = [vec![0.2; 7], vec![0.5; 10]].concat();
        assert_eq!(verdicts(0.2, &late).last(), Some(&TrialVerdict::Reverted), "harm that comes late");
    }

    #[test]
    fn it_ends_with_its_time() {
        let mut trial = trial(0.2);
        assert_eq!(trial.observe(0.2, 60 * SECOND), TrialVerdict::Expired);
        assert!(trial.is_over(60 * SECOND) && trial.outcome().measured.is_none());
    }

    #[test]
    fn prediction_and_measurement_stand_side_by_side() {
        let mut trial = trial(0.4);
        for at in 1..=7 {
            trial.observe(0.25, at * SECOND);
        }
        let outcome = trial.outcome();
        assert_eq!((outcome.predicted, outcome.verdict), (-0.1, TrialVerdict::Kept));
        assert!((outcome.measured.unwrap() + 0.15).abs() < 1e-5);
    }

    proptest! {
        /// A directive that makes every value worse by more than the tolerance is never kept.
        #[test]
        fn no_harm_is_kept(before in 0.0_f32..0.5, worse in 0.03_f32..0.5, noise in prop::collection::vec(0.0_f32..0.2, 7..20)) {
            let series: Vec<_> = noise.iter().map(|n| before + worse + n).collect();
            prop_assert!(!verdicts(before, &series).contains(&TrialVerdict::Kept));
        }

        #[test]
        fn any_value_is_survived(series in prop::collection::vec(prop::num::f32::ANY, 0..40)) {
            verdicts(0.2, &series);
        }
    }
}
