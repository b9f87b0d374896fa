//! Pure: one direction of a node's link, as a token bucket that says when bytes have left.

use rudder_topology::{Bytes, BytesPerSecond, Nanos};

/// A token bucket in the form of a schedule: bytes leave one after the other at `rate`, and a link that was idle
/// has saved up at most `burst`.
#[derive(Clone, Debug)]
pub struct Shaper {
    rate: BytesPerSecond,
    burst: Nanos,
    /// When everything accepted so far has left, were there no burst.
    busy_until: Nanos,
}

impl Shaper {
    #[must_use]
    pub fn new(rate: BytesPerSecond, burst: Bytes) -> Self {
        Shaper { rate, burst: rate.time_for(burst), busy_until: Nanos(0) }
    }

    /// Accepts bytes at `now`; they have left at the returned instant, never before `now`.
    pub fn accept(&mut self, bytes: Bytes, now: Nanos) -> Nanos {
        let idle_since = now.0.saturating_sub(self.burst.0);
        let start = self.busy_until.0.max(idle_since);
        self.busy_until = Nanos(start.saturating_add(self.rate.time_for(bytes).0));
        Nanos(self.busy_until.0.max(now.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 1 MB/s: a byte a microsecond.
    fn megabyte(burst: u64) -> Shaper {
        Shaper::new(BytesPerSecond(1_000_000), Bytes(burst))
    }

    #[test]
    fn bytes_leave_at_the_rate_after_the_burst() {
        let mut link = megabyte(1000);
        let second = 1_000_000_000;
        // An idle link lets its burst pass at once, then keeps to the rate.
        assert_eq!(link.accept(Bytes(1000), Nanos(second)), Nanos(second));
        assert_eq!(link.accept(Bytes(500), Nanos(second)), Nanos(second + 500_000));
        assert_eq!(link.accept(Bytes(500), Nanos(second)), Nanos(second + 1_000_000));
        // A millisecond after it has drained, the burst is full again, and no fuller later.
        for idle in [2_000_000, 500_000_000] {
            let now = Nanos(second + 1_000_000 + idle);
            let mut link = link.clone();
            assert_eq!(link.accept(Bytes(1000), now), now);
            assert_eq!(link.accept(Bytes(1), now), Nanos(now.0 + 1000));
        }
    }

    #[test]
    fn a_link_without_rate_never_delivers() {
        let mut link = Shaper::new(BytesPerSecond(0), Bytes(10));
        assert_eq!(link.accept(Bytes(1), Nanos(5)), Nanos(u64::MAX));
    }

    proptest! {
        /// In any interval no more than rate x interval + burst leaves.
        #[test]
        fn no_interval_carries_more(arrivals in prop::collection::vec((0_u64..3_000_000, 1_u64..5_000), 1..60)) {
            let mut link = megabyte(2_000);
            let mut now = 10_000_000;
            let left: Vec<(u64, u64)> = arrivals
                .into_iter()
                .map(|(gap, bytes)| {
                    now += gap;
                    (link.accept(Bytes(bytes), Nanos(now)).0, bytes)
                })
                .collect();
            for first in 0..left.len() {
                let mut sum = 0;
                for &(at, bytes) in &left[first..] {
                    sum += bytes;
                    let interval = at - left[first].0;
                    // The first bytes of the interval may have queued before it.
                    prop_assert!(sum <= interval / 1000 + 2_000 + left[first].1 + 1, "{sum} in {interval}");
                }
            }
            prop_assert!(left.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        }
    }
}
