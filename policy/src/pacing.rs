//! The product's own rate limiter: a token bucket in bytes.

use rudder_topology::{Bytes, BytesPerSecond, Nanos};

/// Not now: ask again at this instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotBefore(pub Nanos);

/// Lets bytes through at a rate, with bursts of at most `burst`.
///
/// What does not fit into the burst is let through when the bucket is full, and leaves a debt: so that a transfer of
/// any size gets its turn, and over any time `t` at most `rate * t + burst + one transfer` pass.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: BytesPerSecond,
    burst: Bytes,
    /// Bytes times 10^9, so that nothing is lost between two close instants. Negative: a debt.
    level: i128,
    updated: Nanos,
}

const SCALE: i128 = 1_000_000_000;

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: BytesPerSecond, burst: Bytes, now: Nanos) -> Self {
        TokenBucket { rate, burst, level: i128::from(burst.0) * SCALE, updated: now }
    }

    /// Changes the rate from now on; debts stay.
    pub fn set_rate(&mut self, rate: BytesPerSecond, now: Nanos) {
        self.refill(now);
        self.rate = rate;
    }

    fn refill(&mut self, now: Nanos) {
        // An instant before the last one refills nothing, and does not turn time back.
        let passed = now.0.saturating_sub(self.updated.0);
        let full = i128::from(self.burst.0) * SCALE;
        let gained = i128::from(self.rate.0) * i128::from(passed);
        self.level = (self.level + gained).min(full);
        self.updated = self.updated.max(now);
    }

    /// Says whether `bytes` may pass now, without taking them.
    pub fn ready(&mut self, bytes: Bytes, now: Nanos) -> Result<(), NotBefore> {
        self.refill(now);
        let wanted = i128::from(bytes.0.min(self.burst.0)) * SCALE;
        let missing = wanted - self.level;
        if missing <= 0 {
            return Ok(());
        }
        let rate = i128::from(self.rate.0);
        let wait = if rate == 0 { i128::from(u64::MAX) } else { (missing + rate - 1) / rate };
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Err(NotBefore(Nanos(self.updated.0.saturating_add(wait))))
    }

    /// Takes `bytes` if they may pass now.
    pub fn take(&mut self, bytes: Bytes, now: Nanos) -> Result<(), NotBefore> {
        self.ready(bytes, now)?;
        self.level -= i128::from(bytes.0) * SCALE;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_passes_then_the_rate_rules() {
        let mut bucket = TokenBucket::new(BytesPerSecond(1000), Bytes(500), Nanos(0));
        assert_eq!(bucket.take(Bytes(500), Nanos(0)), Ok(()));
        assert_eq!(bucket.take(Bytes(100), Nanos(0)), Err(NotBefore(Nanos(100_000_000))));
        assert_eq!(bucket.take(Bytes(100), Nanos(99_999_999)), Err(NotBefore(Nanos(100_000_000))));
        assert_eq!(bucket.take(Bytes(100), Nanos(100_000_000)), Ok(()));
    }

    #[test]
    fn more_than_the_burst_passes_when_the_bucket_is_full_and_is_paid_after() {
        let mut bucket = TokenBucket::new(BytesPerSecond(1000), Bytes(500), Nanos(0));
        assert_eq!(bucket.take(Bytes(1500), Nanos(0)), Ok(()));
        assert_eq!(bucket.take(Bytes(1), Nanos(0)), Err(NotBefore(Nanos(1_001_000_000))));
    }

    #[test]
    fn a_rate_of_zero_never_lets_through_again() {
        let mut bucket = TokenBucket::new(BytesPerSecond(0), Bytes(10), Nanos(0));
        assert_eq!(bucket.take(Bytes(10), Nanos(0)), Ok(()));
        assert_eq!(bucket.take(Bytes(1), Nanos(5)), Err(NotBefore(Nanos(u64::MAX))));
        bucket.set_rate(BytesPerSecond(1_000_000_000), Nanos(5));
        assert_eq!(bucket.take(Bytes(1), Nanos(6)), Ok(()));
    }

    proptest! {
        /// A greedy sender that asks again when told gets the rate, no more and not much less.
        #[test]
        fn the_rate_is_kept_and_reached(
            rate in 1_000_u64..1_000_000_000,
            burst in 1_u64..100_000,
            sizes in proptest::collection::vec(1_u64..200_000, 20..60),
        ) {
            let mut bucket = TokenBucket::new(BytesPerSecond(rate), Bytes(burst), Nanos(7));
            let mut now = Nanos(7);
            let mut sent = 0_u64;
            let mut last = 0;
            for size in sizes {
                match bucket.take(Bytes(size), now) {
                    Ok(()) => {}
                    Err(NotBefore(at)) => {
                        prop_assert!(at > now);
                        now = at;
                        prop_assert_eq!(bucket.take(Bytes(size), now), Ok(()));
                    }
                }
                sent += size;
                last = size;
                let allowed = u128::from(rate) * u128::from(now.0 - 7) / 1_000_000_000 + u128::from(burst);
                prop_assert!(u128::from(sent) <= allowed + u128::from(size) + 1);
            }
            // Nobody waited longer than the bytes before took.
            let owed = u128::from(sent - last) * 1_000_000_000 / u128::from(rate);
            let burst_time = u128::from(burst) * 1_000_000_000 / u128::from(rate);
            prop_assert!(u128::from(now.0 - 7) <= owed + burst_time + 60);
        }

        #[test]
        fn an_answer_of_when_is_the_earliest(
            rate in 1_u64..1_000_000_000, burst in 1_u64..10_000, first in 1_u64..50_000, second in 1_u64..50_000,
        ) {
            let mut bucket = TokenBucket::new(BytesPerSecond(rate), Bytes(burst), Nanos(0));
            bucket.take(Bytes(first), Nanos(0)).unwrap_or(());
            if let Err(NotBefore(at)) = bucket.ready(Bytes(second), Nanos(0)) {
                prop_assert!(bucket.clone().ready(Bytes(second), Nanos(at.0 - 1)).is_err());
                prop_assert!(bucket.ready(Bytes(second), at).is_ok());
            }
        }
    }
}
