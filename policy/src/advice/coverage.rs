//! Whether the slow loop lives: every decision that was due, and whether it was made before the next one was due.
//! Published decision loops stall silently; here whoever is due counts, not whoever decides.

use serde::{Deserialize, Serialize};

/// Decisions of one loop since its node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Times at which the loop had to look and decide, if only to leave everything as it is.
    pub due: u64,
    /// Of these, those at which it did so before the next was due.
    pub decided: u64,
    /// Those at which it did not: it had failed while it decided, or was not there.
    pub missed: u64,
    /// Minibatches released on the node, as far as the loop knows of any; and those of them that were released while
    /// no decision was missing.
    pub minibatches: u64,
    pub minibatches_covered: u64,
}

impl Coverage {
    /// Of the decisions whose time is over, the part that was made. 1 before the first.
    #[must_use]
    pub fn share(&self) -> f64 {
        let over = self.decided.saturating_add(self.missed);
        if over == 0 { 1.0 } else { self.decided as f64 / over as f64 }
    }
}

/// What a consult came to, over all consults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerCounts {
    pub by_backend: u64,
    /// Directives of similar states.
    pub by_cache: u64,
    /// Degraded: the rules answered instead of the back end.
    pub by_rules: u64,
    /// Actions that went on trial, those refused with a reason, and those of negative expected value.
    pub actions_taken: u64,
    pub actions_refused: u64,
    pub actions_dropped: u64,
}

/// How far the decision that is due has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// None is due.
    #[default]
    Decided,
    Due,
    /// It is being made. Whoever finds it so after a failure does not try it once more: it is what failed.
    Begun,
}

/// Keeps the count. It belongs to the loop's supervisor's side, so that it outlives the loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopCoverage {
    counts: Coverage,
    stage: Stage,
    /// A decision is missing since the minibatches were last counted.
    gap: bool,
    seen: u64,
}

impl LoopCoverage {
    #[must_use]
    pub fn counts(&self) -> Coverage {
        self.counts
    }

    /// A decision is due. Says whether the former one is missing.
    pub fn due(&mut self) -> bool {
        let missing = self.stage != Stage::Decided;
        self.counts.due += 1;
        self.counts.missed += u64::from(missing);
        self.gap |= missing;
        self.stage = Stage::Due;
        missing
    }

    /// The loop is about to decide.
    pub fn begin(&mut self) {
        if self.stage == Stage::Due {
            self.stage = Stage::Begun;
        }
    }

    /// The loop was started again, and has to decide at once.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        self.stage == Stage::Due
    }

    /// It decided. `minibatches` were released since the node started.
    pub fn decided(&mut self, minibatches: u64) {
        if self.stage == Stage::Decided {
            return;
        }
        self.stage = Stage::Decided;
        self.counts.decided += 1;
        let new = minibatches.saturating_sub(self.seen);
        self.seen = minibatches;
        self.counts.minibatches = self.counts.minibatches.saturating_add(new);
        if !std::mem::take(&mut self.gap) {
            self.counts.minibatches_covered = self.counts.minibatches_covered.saturating_add(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decide(coverage: &mut LoopCoverage, minibatches: u64) {
        coverage.begin();
        coverage.decided(minibatches);
    }

    #[test]
    fn a_loop_that_decides_each_time_covers_all() {
        let mut coverage = LoopCoverage::default();
        assert_eq!(coverage.counts().share(), 1.0);
        for n in 1..=10 {
            assert!(!coverage.due());
            decide(&mut coverage, n * 100);
            decide(&mut coverage, n * 100);
        }
        let expected =
            Coverage { due: 10, decided: 10, missed: 0, minibatches: 1000, minibatches_covered: 1000 };
        assert_eq!(coverage.counts(), expected);
    }

    #[test]
    fn one_that_is_started_again_owes_what_it_had_not_begun() {
        let mut coverage = LoopCoverage::default();
        coverage.due();
        assert!(coverage.is_owed());
        decide(&mut coverage, 100);
        assert!(!coverage.is_owed());
        // It fails while it decides.
        coverage.due();
        coverage.begin();
        assert!(!coverage.is_owed());
        assert!(coverage.due(), "missing");
        decide(&mut coverage, 300);
        coverage.due();
        decide(&mut coverage, 350);
        let expected = Coverage { due: 4, decided: 3, missed: 1, minibatches: 350, minibatches_covered: 150 };
        assert_eq!((coverage.counts(), coverage.counts().share()), (expected, 0.75));
    }

    #[test]
    fn one_that_is_dead_misses_all() {
        let mut coverage = LoopCoverage::default();
        let missing = (0..5).filter(|_| coverage.due()).count();
        assert_eq!(missing, 4);
        assert_eq!((coverage.counts().missed, coverage.counts().share()), (4, 0.0));
    }

    proptest! {
        #[test]
        fn every_due_decision_is_decided_missed_or_open(steps in prop::collection::vec((0_u8..3, any::<u64>()), 0..60)) {
            let mut coverage = LoopCoverage::default();
            for (step, minibatches) in steps {
                match step {
                    0 => {
                        coverage.due();
                    }
                    1 => coverage.begin(),
                    _ => coverage.decided(minibatches),
                }
                let counts = coverage.counts();
                prop_assert!(counts.due - counts.decided - counts.missed <= 1);
                prop_assert!(counts.minibatches_covered <= counts.minibatches);
            }
        }
    }
}
