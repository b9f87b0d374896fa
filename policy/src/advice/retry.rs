//! Bounded attempts with growing pauses.

use rudder_graph::random::Key;

/// How often and how fast to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in all.
    pub attempts_max: u32,
    /// The pause after the first failure; it doubles with each.
    pub pause_ns: u64,
    pub pause_ns_max: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts_max: 2, pause_ns: 500_000_000, pause_ns_max: 10_000_000_000 }
    }
}

impl Retry {
    /// How long to pause after so many failed attempts, drawn from the upper half of the full pause, so that many
    /// that failed together do not come back together. `None`: enough.
    #[must_use]
    pub fn pause_after(&self, failed: u32, key: Key) -> Option<u64> {
        if failed == 0 || failed >= self.attempts_max {
            return None;
        }
        let doubled = self.pause_ns.checked_shl(failed - 1).filter(|p| p >> (failed - 1) == self.pause_ns);
        let full = doubled.unwrap_or(u64::MAX).min(self.pause_ns_max);
        Some(full - key.below(u64::from(failed), full / 2 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_maximum_and_end() {
        let retry = Retry { attempts_max: 6, pause_ns: 100, pause_ns_max: 500 };
        for seed in 0..100 {
            let pauses: Vec<_> = (0..8).map(|failed| retry.pause_after(failed, Key::new(seed))).collect();
            assert_eq!((pauses[0], pauses[6], pauses[7]), (None, None, None));
            for (failed, full) in [(1, 100), (2, 200), (3, 400), (4, 500), (5, 500)] {
                let pause = pauses[failed].unwrap();
                assert!((full / 2..=full).contains(&pause), "{failed}: {pause}");
            }
        }
        let eager = Retry { attempts_max: u32::MAX, pause_ns: u64::MAX, pause_ns_max: u64::MAX };
        assert!([1, 63, 64, 65, 1000].iter().all(|&failed| eager.pause_after(failed, Key::new(1)).is_some()));
    }
}
