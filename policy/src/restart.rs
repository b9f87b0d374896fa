//! When a failed child is restarted, when its supervisor gives up, and how long a broken link is left alone.
//!
//! As in OTP: a supervisor restarts its children by a strategy, and where more than `restarts_max` restarts fall
//! into `window`, it gives up and fails itself, so that its own supervisor decides.

use rudder_topology::Nanos;
use std::collections::VecDeque;
use std::ops::Range;

/// A child of a supervisor: its position in the order of starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildIndex(pub usize);

/// Whom a child's failure concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Only the failed child is started again.
    OneForOne,
    /// The failed child and all that were started after it (which may rely on it) are started again.
    RestForOne,
}

/// How many restarts are borne within which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartIntensity {
    /// Restarts within `window` that are still borne; 0 escalates the first failure.
    pub restarts_max: u32,
    pub window: Nanos,
}

impl Default for RestartIntensity {
    /// Five restarts within ten seconds.
    fn default() -> Self {
        RestartIntensity { restarts_max: 5, window: Nanos::from_secs(10) }
    }
}

/// What the supervisor has to do about a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartVerdict {
    /// Stop what still runs of these children, last first, then start them, first first.
    Restart(Range<usize>),
    /// Stop all children and fail.
    Escalate,
}

/// The restart policy of one supervisor.
#[derive(Clone, Debug)]
pub struct Restarts {
    strategy: Strategy,
    intensity: RestartIntensity,
    children: usize,
    /// Instants of the restarts within the window, at most `restarts_max` of them.
    recent: VecDeque<Nanos>,
}

impl Restarts {
    #[must_use]
    pub fn new(strategy: Strategy, intensity: RestartIntensity, children: usize) -> Self {
        Restarts { strategy, intensity, children, recent: VecDeque::new() }
    }

    /// A child failed, or ended when nobody had asked it to. A child that is not there escalates: the supervisor's
    /// books are wrong, and a clean start is all that is left.
    pub fn failed(&mut self, child: ChildIndex, now: Nanos) -> RestartVerdict {
        let oldest = now.0.saturating_sub(self.intensity.window.0);
        while self.recent.front().is_some_and(|at| at.0 < oldest) {
            self.recent.pop_front();
        }
        if child.0 >= self.children || self.recent.len() >= self.intensity.restarts_max as usize {
            return RestartVerdict::Escalate;
        }
        self.recent.push_back(now);
        RestartVerdict::Restart(match self.strategy {
            Strategy::OneForOne => child.0..child.0 + 1,
            Strategy::RestForOne => child.0..self.children,
        })
    }
}

/// Exponential back-off with a cap and a spread that depends on nothing but the seed and the attempt, so that many
/// nodes that lost the same peer do not come back in step.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Nanos,
    delay_max: Nanos,
    seed: u64,
    attempts: u32,
}

impl Backoff {
    /// First delay about `base`, doubled with every attempt, never over `delay_max`.
    #[must_use]
    pub fn new(base: Nanos, delay_max: Nanos, seed: u64) -> Self {
        Backoff { base, delay_max, seed, attempts: 0 }
    }

    /// The delay before the next attempt: between half and the whole of the capped exponential.
    pub fn next_delay(&mut self) -> Nanos {
        let doubled =
            self.base.0.saturating_mul(1_u64.checked_shl(self.attempts.min(40)).unwrap_or(u64::MAX));
        let capped = doubled.min(self.delay_max.0);
        let half = capped / 2;
        let spread = mix(self.seed ^ (u64::from(self.attempts) << 32)) % (capped - half + 1);
        self.attempts = self.attempts.saturating_add(1);
        Nanos(half + spread)
    }

    /// The peer answered: the next failure starts again at `base`.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }

    /// Attempts since the last reset.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

/// The finaliser of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Backoff, ChildIndex, RestartIntensity, RestartVerdict, Restarts, Strategy};
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};
    use rudder_topology::Nanos;

    fn intensity(restarts_max: u32, window: u64) -> RestartIntensity {
        RestartIntensity { restarts_max, window: Nanos(window) }
    }

    #[test]
    fn strategies_name_the_children_they_concern() {
        let table = [
            (Strategy::OneForOne, 0, RestartVerdict::Restart(0..1)),
            (Strategy::OneForOne, 2, RestartVerdict::Restart(2..3)),
            (Strategy::RestForOne, 0, RestartVerdict::Restart(0..4)),
            (Strategy::RestForOne, 3, RestartVerdict::Restart(3..4)),
            (Strategy::RestForOne, 4, RestartVerdict::Escalate),
        ];
        for (strategy, child, expected) in table {
            let mut restarts = Restarts::new(strategy, intensity(1, 100), 4);
            assert_eq!(restarts.failed(ChildIndex(child), Nanos(5)), expected, "{strategy:?} {child}");
        }
    }

    #[test]
    fn the_window_slides() {
        let mut restarts = Restarts::new(Strategy::OneForOne, intensity(2, 100), 1);
        let child = ChildIndex(0);
        assert_eq!(restarts.failed(child, Nanos(0)), RestartVerdict::Restart(0..1));
        assert_eq!(restarts.failed(child, Nanos(90)), RestartVerdict::Restart(0..1));
        assert_eq!(restarts.failed(child, Nanos(100)), RestartVerdict::Escalate);
        assert_eq!(restarts.failed(child, Nanos(101)), RestartVerdict::Restart(0..1));
        assert_eq!(restarts.failed(child, Nanos(150)), RestartVerdict::Escalate);
    }

    #[test]
    fn no_intensity_escalates_at_once() {
        let mut restarts = Restarts::new(Strategy::RestForOne, intensity(0, 100), 3);
        assert_eq!(restarts.failed(ChildIndex(0), Nanos(1)), RestartVerdict::Escalate);
    }

    proptest! {
        /// Against a twin that keeps all instants: restarted exactly where fewer than the maximum fell into the window.
        #[test]
        fn intensity_equals_its_definition(
            restarts_max in 0_u32..6,
            window in 0_u64..200,
            steps in prop::collection::vec(0_u64..80, 0..60),
        ) {
            let mut restarts = Restarts::new(Strategy::OneForOne, intensity(restarts_max, window), 1);
            let mut granted: Vec<u64> = Vec::new();
            let mut now = 1_000;
            for step in steps {
                now += step;
                let recent = granted.iter().filter(|&&at| now - at <= window).count();
                let expected = recent < restarts_max as usize;
                let restarted = restarts.failed(ChildIndex(0), Nanos(now)) != RestartVerdict::Escalate;
                prop_assert_eq!(restarted, expected);
                if restarted {
                    granted.push(now);
                }
                prop_assert!(restarts.recent.len() <= restarts_max as usize);
            }
        }

        #[test]
        fn back_off_grows_within_its_bounds(
            base in 1_u64..1_000_000,
            cap in 1_u64..u64::MAX / 2,
            seed in any::<u64>(),
            attempts in 1_usize..100,
        ) {
            let mut backoff = Backoff::new(Nanos(base), Nanos(cap), seed);
            for attempt in 0..attempts {
                let exponential = u128::from(base) << attempt.min(40);
                let capped = exponential.min(u128::from(cap)) as u64;
                let delay = backoff.next_delay().0;
                prop_assert!(delay >= capped / 2 && delay <= capped, "{delay} of {capped}");
            }
            backoff.reset();
            prop_assert!(backoff.next_delay().0 <= base.min(cap));
        }
    }
}
