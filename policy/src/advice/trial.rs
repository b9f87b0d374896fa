//! A directive on trial: the stall before it is known, the stall with it is measured, and what does not help is taken
//! back.
//!
//! A cluster changes by itself, so "better than before" is not "better by it": after the stall with it the stall without
//! it is measured once more, as it is each time that its time is over, and only if that is worse it comes into force
//! again.

use super::directive::Directive;
use super::lever::TTL_S_MAX;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How a trial judges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialConfig {
    /// Values that are not counted, while the change takes hold.
    pub settle_values: u32,
    /// The same where it is slow to take hold: copies are there when they have been asked for once.
    pub settle_values_slow: u32,
    /// Values that make a measurement.
    pub measure_values: u32,
    /// What helps makes the stall share better by this much, and by `improves_share` of what it was.
    pub improves: f32,
    pub improves_share: f32,
    /// What helped may be so much worse than before, over as many values: noise.
    pub tolerance: f32,
    /// It is taken back at once, without waiting for a measurement, where a value is so much worse; twice as much while
    /// the change takes hold.
    pub alarm: f32,
    /// Where it is slow to take hold, only while it does, and only then.
    pub alarm_slow: f32,
    /// What is slow to take hold is given more time while the stall share is worse by this part of it at most.
    pub slow_share: f32,
    /// How often the stall without it is measured because it got worse under it, or because it is slow.
    pub looks_max: u32,
    /// What helped is measured without it once more after so many values for each hundredth of the stall share that it
    /// gained: a small gain is the likeliest to be over, and costs least to look at.
    pub look_again_values: f32,
}

impl Default for TrialConfig {
    fn default() -> Self {
        TrialConfig {
            settle_values: 1,
            settle_values_slow: 10,
            measure_values: 4,
            improves: 0.01,
            improves_share: 0.05,
            tolerance: 0.03,
            alarm: 0.05,
            alarm_slow: 0.4,
            slow_share: 0.1,
            looks_max: 3,
            look_again_values: 4.0,
        }
    }
}

/// How a trial stands or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialVerdict {
    /// Not measured enough.
    Running,
    /// It helped: it stayed until its time was over.
    Kept,
    /// It did not help: the former parameters came back.
    Reverted,
    /// Its time was over before it could be judged.
    Expired,
}

/// What a trial asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The former parameters come back.
    Revert,
    /// The directive comes into force again, for its time to live.
    Enact,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// In force, and measured for the first time.
    On,
    /// Not in force; the stall share with it was this. `helped`: its time was over, and until then it helped.
    Off {
        with: f32,
        helped: bool,
    },
    /// In force; the stall share without it was `before`, and with it this.
    Helps {
        with: f32,
    },
    Over,
}

/// A directive on trial.
#[derive(Clone, Debug)]
pub struct Trial {
    config: TrialConfig,
    pub directive: Directive,
    pub predicted: f32,
    before: f32,
    expires_ns: u64,
    phase: Phase,
    /// Values of this phase, and the last that count.
    values: u32,
    recent: VecDeque<f32>,
    looks: u32,
    measured: Option<f32>,
    verdict: TrialVerdict,
}

/// What came of a directive: a line of the experience store.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Changes of the stall share, see [`super::state::ComputeState::stall_share`]; negative is better.
    pub predicted: f32,
    /// `None` where too little was measured.
    pub measured: Option<f32>,
    pub verdict: TrialVerdict,
}

impl Trial {
    /// Begins with a directive that has just been applied. `before` is the mean stall share just before it.
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
            phase: Phase::On,
            values: 0,
            recent: VecDeque::new(),
            looks: 0,
            measured: None,
            verdict: TrialVerdict::Running,
        }
    }

    /// Takes in a stall share. `others`: there is something else to try, so that this one ends with its time.
    pub fn observe(&mut self, stall_share: f32, others: bool, now_ns: u64) -> Option<Move> {
        if self.phase == Phase::Over {
            return None;
        }
        let in_force = !matches!(self.phase, Phase::Off { .. });
        if in_force && now_ns >= self.expires_ns {
            return self.expired(others);
        }
        self.values += 1;
        if !stall_share.is_finite() {
            return None;
        }
        // Without it, and when it comes back, the cluster is at once as it is.
        let slow = self.phase == Phase::On && self.directive.is_slow();
        let settle_values = if slow { self.config.settle_values_slow } else { self.config.settle_values };
        if self.values <= settle_values {
            let alarm = self.before + if slow { self.config.alarm_slow } else { 2.0 * self.config.alarm };
            if self.phase == Phase::On && stall_share > alarm {
                self.measured = Some(stall_share - self.before);
                self.enter(Phase::Off { with: stall_share, helped: false });
                return Some(Move::Revert);
            }
            return None;
        }
        if self.recent.len() == self.config.measure_values as usize {
            self.recent.pop_front();
        }
        self.recent.push_back(stall_share);
        let mean = self.mean()?;
        let measured = self.recent.len() >= self.config.measure_values as usize;
        match self.phase {
            Phase::On if measured || (!slow && stall_share > self.before + self.config.alarm) => {
                self.measured = Some(mean - self.before);
                self.enter(Phase::Off { with: mean, helped: false });
                Some(Move::Revert)
            }
            Phase::Helps { .. } if measured && mean > self.before + self.config.tolerance => {
                self.looks += 1;
                if self.looks > self.config.looks_max {
                    self.enter(Phase::Over);
                    self.verdict = TrialVerdict::Reverted;
                } else {
                    self.enter(Phase::Off { with: mean, helped: false });
                }
                Some(Move::Revert)
            }
            Phase::Helps { .. } if measured && self.values >= self.look_again() => {
                self.enter(Phase::Off { with: mean, helped: true });
                Some(Move::Revert)
            }
            Phase::Off { with, .. } if measured && self.helps(with, mean) => {
                self.kept(with, mean);
                self.expires_ns = now_ns.saturating_add(self.directive.ttl_ns());
                Some(Move::Enact)
            }
            // Slow to help and no harm so far: more time.
            Phase::Off { with, helped: false }
                if measured
                    && self.directive.is_slow()
                    && self.looks < self.config.looks_max
                    && with <= mean * (1.0 + self.config.slow_share) + self.config.improves =>
            {
                self.looks += 1;
                self.enter(Phase::On);
                self.expires_ns = now_ns.saturating_add(self.directive.ttl_ns());
                Some(Move::Enact)
            }
            Phase::Off { with, helped } if measured => {
                self.enter(Phase::Over);
                if !helped {
                    self.measured = Some(with - mean);
                    self.verdict = TrialVerdict::Reverted;
                }
                None
            }
            _ => None,
        }
    }

    /// What was in force is not any more, by itself.
    fn expired(&mut self, others: bool) -> Option<Move> {
        match self.phase {
            Phase::Helps { with } if !others => {
                for action in &mut self.directive.actions {
                    action.ttl_s = action.ttl_s.saturating_mul(2).min(TTL_S_MAX);
                }
                self.enter(Phase::Off { with, helped: true });
            }
            _ => {
                self.enter(Phase::Over);
                if self.verdict == TrialVerdict::Running {
                    self.verdict = TrialVerdict::Expired;
                }
            }
        }
        None
    }

    fn helps(&self, with: f32, without: f32) -> bool {
        with <= without - self.config.improves.max(self.config.improves_share * without)
    }

    /// Values in force after which it is looked at without what helped.
    fn look_again(&self) -> u32 {
        let gained = -self.measured.unwrap_or(0.0);
        (100.0 * gained * self.config.look_again_values) as u32
    }

    fn kept(&mut self, with: f32, without: f32) {
        self.before = without;
        self.measured = Some(with - without);
        self.verdict = TrialVerdict::Kept;
        self.enter(Phase::Helps { with });
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.values) = (phase, 0);
        self.recent.clear();
    }

    fn mean(&self) -> Option<f32> {
        let sum: f32 = self.recent.iter().sum();
        (!self.recent.is_empty()).then(|| sum / self.recent.len() as f32)
    }

    /// Whether it is decided, and nothing of it is in force any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome { predicted: self.predicted, measured: self.measured, verdict: self.verdict }
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
        trial_of(Change::Posture(Posture::DemandFirst), before)
    }

    fn trial_of(change: Change, before: f32) -> Trial {
        let directive = Directive { actions: vec![Action { compute: NodeId(0), change, ttl_s: 60 }] };
        Trial::begin(TrialConfig::default(), directive, -0.1, before, 0)
    }

    /// A cluster that waits so much without the directive and so much with it, value by value; for each value whether it
    /// was in force, and the trial at the end.
    fn play(before: f32, values: u64, wait: impl Fn(u64, bool) -> f32) -> (Vec<bool>, Trial) {
        play_trial(trial(before), values, wait)
    }

    fn play_trial(mut trial: Trial, values: u64, wait: impl Fn(u64, bool) -> f32) -> (Vec<bool>, Trial) {
        let mut on = true;
        let mut expires = 30;
        let mut in_force = vec![];
        for n in 1..=values {
            on &= n < expires;
            in_force.push(on);
            match trial.observe(wait(n, on), false, n * 2 * SECOND) {
                Some(Move::Revert) => on = false,
                Some(Move::Enact) => (on, expires) = (true, n + trial.directive.ttl_ns() / (2 * SECOND)),
                None => {}
            }
        }
        (in_force, trial)
    }

    #[test]
    fn what_helps_stays_and_what_does_not_is_taken_back() {
        let (in_force, trial) = play(0.4, 20, |_, on| if on { 0.2 } else { 0.4 });
        // One value to settle and four to measure: with it, and without it.
        assert!(in_force.iter().enumerate().all(|(at, &on)| on != (5..10).contains(&at)), "{in_force:?}");
        assert_eq!(trial.outcome().verdict, TrialVerdict::Kept);
        assert!((trial.outcome().measured.unwrap() + 0.2).abs() < 1e-5);
        let (in_force, trial) = play(0.4, 12, |_, _| 0.4);
        assert_eq!(in_force.iter().filter(|&&on| on).count(), 5);
        assert!(trial.is_over() && trial.outcome().verdict == TrialVerdict::Reverted);
        assert_eq!(trial.outcome().measured, Some(0.0));
    }

    #[test]
    fn what_is_slow_to_help_is_given_time() {
        let stage = Change::Stage { storage: NodeId(2), through: NodeId(3) };
        // Worse at first, and better from the tenth value on.
        let copies = |n, on| match (on, n) {
            (false, _) => 0.5,
            (true, 0..10) => 0.7,
            (true, _) => 0.1,
        };
        let (in_force, trial) = play_trial(trial_of(stage, 0.5), 40, copies);
        assert!(in_force[..14].iter().all(|&on| on) && !in_force[15], "{in_force:?}");
        assert_eq!(trial.outcome().verdict, TrialVerdict::Kept);
        // Where it takes longer it is looked at again, some times; where it is worse not once.
        let longer = |n, on| match (on, n) {
            (false, _) => 0.9,
            (true, 0..40) => 0.95,
            (true, _) => 0.1,
        };
        let (_, trial) = play_trial(trial_of(stage, 0.9), 80, longer);
        assert_eq!(trial.outcome().verdict, TrialVerdict::Kept);
        let (in_force, trial) = play_trial(trial_of(stage, 0.9), 200, |_, _| 0.9);
        assert!(trial.is_over() && trial.outcome().verdict == TrialVerdict::Reverted);
        assert_eq!(in_force.iter().filter(|&&on| on).count(), 4 * 14, "three more times");
        let (in_force, trial) = play_trial(trial_of(stage, 0.3), 80, |_, on| if on { 0.4 } else { 0.3 });
        assert!(trial.is_over() && in_force.iter().filter(|&&on| on).count() == 14);
        // What stops the cluster is taken back at once all the same.
        let (in_force, trial) = play_trial(trial_of(stage, 0.5), 20, |_, on| if on { 0.95 } else { 0.5 });
        assert_eq!(in_force.iter().filter(|&&on| on).count(), 1);
        assert_eq!(trial.outcome().verdict, TrialVerdict::Reverted);
    }

    #[test]
    fn what_got_better_by_itself_is_not_kept() {
        let (in_force, trial) = play(0.4, 20, |n, _| if n > 2 { 0.2 } else { 0.4 });
        assert_eq!(in_force.iter().filter(|&&on| on).count(), 5);
        assert!(trial.is_over() && trial.outcome().verdict == TrialVerdict::Reverted);
    }

    #[test]
    fn what_clearly_hurts_is_taken_back_at_once() {
        let (in_force, trial) = play(0.2, 12, |_, on| if on { 0.6 } else { 0.2 });
        assert_eq!(in_force.iter().filter(|&&on| on).count(), 1);
        assert!(trial.is_over() && trial.outcome().verdict == TrialVerdict::Reverted);
        let (in_force, _) = play(0.2, 12, |_, on| if on { 0.28 } else { 0.2 });
        assert_eq!(
            in_force.iter().filter(|&&on| on).count(),
            2,
            "the first value may be what it costs to change"
        );
    }

    #[test]
    fn what_helps_a_cluster_that_gets_worse_by_itself_comes_back() {
        // It was asked about early: without the directive the wait would have gone on to 0.6.
        let (in_force, trial) = play(0.2, 25, |_, on| if on { 0.4 } else { 0.6 });
        assert!(!in_force[4] && in_force[20], "{in_force:?}");
        assert_eq!(trial.outcome().verdict, TrialVerdict::Kept);
        assert!((trial.outcome().measured.unwrap() + 0.2).abs() < 1e-5);
    }

    #[test]
    fn its_time_ends_and_begins_again_as_long_as_it_helps() {
        let (in_force, trial) = play(0.4, 110, |_, on| if on { 0.2 } else { 0.4 });
        // From the tenth value on for 60 s, the value that shows its end and five to look, then for 120 s.
        assert_eq!(in_force[38..46], [true, false, false, false, false, false, false, true]);
        assert!(in_force[46..100].iter().all(|&on| on) && !trial.is_over());
        let (in_force, trial) = play(0.4, 90, |n, on| if on || n > 20 { 0.2 } else { 0.4 });
        assert!(!in_force[60] && trial.is_over(), "nothing to help with any more");
        assert_eq!(trial.outcome().verdict, TrialVerdict::Kept);
    }

    #[test]
    fn a_small_gain_is_soon_looked_at_again() {
        // Once it is found to help, the cluster heals by itself.
        let heals = |with: f32| {
            move |n, on| {
                if on {
                    with
                } else if n < 12 {
                    0.4
                } else {
                    with - 0.01
                }
            }
        };
        let last_in_force = |with| {
            let (in_force, trial) = play(0.4, 60, heals(with));
            assert!(trial.is_over() && trial.outcome().verdict == TrialVerdict::Kept, "{in_force:?}");
            in_force.iter().rposition(|&on| on).unwrap() + 1
        };
        // From the eleventh value on: 20 values for five hundredths, its whole time for a third.
        assert_eq!((last_in_force(0.35), last_in_force(0.05)), (30, 39));
    }

    #[test]
    fn it_ends_with_its_time_where_something_else_waits() {
        let mut late = trial(0.4);
        late.observe(0.2, false, 60 * SECOND);
        assert_eq!((late.is_over(), late.outcome().verdict), (true, TrialVerdict::Expired));
        let mut trial = trial(0.4);
        for n in 1..=5 {
            trial.observe(0.2, true, n * 2 * SECOND);
        }
        let again = (6..=10).filter_map(|n| trial.observe(0.4, true, n * 2 * SECOND)).collect::<Vec<_>>();
        assert_eq!(again, [Move::Enact]);
        trial.observe(0.2, true, 80 * SECOND);
        assert!(trial.is_over() && trial.outcome().verdict == TrialVerdict::Kept);
    }

    #[test]
    fn harm_that_comes_late_is_noticed() {
        let (in_force, trial) = play(0.4, 60, |n, on| match (on, n > 20) {
            (true, false) => 0.2,
            (true, true) => 0.5,
            (false, _) => 0.4,
        });
        assert!(in_force[15] && !in_force[30], "{in_force:?}");
        assert!(trial.is_over() && trial.outcome().verdict == TrialVerdict::Reverted);
    }

    proptest! {
        /// A directive that makes every value worse by more than the noise is never in force for longer than it takes
        /// to measure it.
        #[test]
        fn no_harm_stays(before in 0.0_f32..0.5, worse in 0.1_f32..0.5, noise in prop::collection::vec(0.0_f32..0.04, 60)) {
            let (in_force, trial) = play(before, 60, |n, on| {
                before + noise[n as usize - 1] + if on { worse } else { 0.0 }
            });
            prop_assert!(in_force.iter().filter(|&&on| on).count() <= 5);
            prop_assert_eq!(trial.outcome().verdict, TrialVerdict::Reverted);
        }

        #[test]
        fn any_value_is_survived(series in prop::collection::vec(prop::num::f32::ANY, 0..80)) {
            play(0.2, series.len() as u64, |n, _| series[n as usize - 1]);
        }
    }
}
