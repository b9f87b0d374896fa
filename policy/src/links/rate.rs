//! How fast a link delivers, measured over the time in which something was under way.

/// Busy time that one measurement spans at least: many transfers, few milliseconds.
const SPAN_NS: u64 = 20_000_000;
/// What was measured longer ago says nothing: a link that was slow is tried again.
const FRESH_NS: u64 = 2_000_000_000;
/// Weight of the newest measurement.
const WEIGHT: f64 = 0.25;

/// Delivered bytes per second of busy time, as a moving average. It includes queueing at the far end: what counts is
/// when bytes come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeliveryRate {
    bytes_per_s: Option<f64>,
    measured_ns: u64,
    busy_since_ns: Option<u64>,
    busy_ns: u64,
    bytes: u64,
}

impl DeliveryRate {
    /// `None` until enough was seen, and when it was too long ago.
    #[must_use]
    pub fn bytes_per_s(&self, now_ns: u64) -> Option<f64> {
        self.bytes_per_s.filter(|_| now_ns.saturating_sub(self.measured_ns) <= FRESH_NS)
    }

    /// The last measurement, however long ago.
    #[must_use]
    pub fn last_bytes_per_s(&self) -> Option<f64> {
        self.bytes_per_s
    }

    /// What was measured; the longer ago, the less a link that was slower than `stated` is taken to be so still: it is
    /// tried again, and the slower it was the later. `None` until enough was seen.
    #[must_use]
    pub fn expected_bytes_per_s(&self, stated: f64, now_ns: u64) -> Option<f64> {
        let stale = now_ns.saturating_sub(self.measured_ns) as f64 / FRESH_NS as f64 - 1.0;
        self.bytes_per_s.map(|last| if stale > 0.0 { (last * stale.exp2()).min(stated) } else { last })
    }

    /// What was measured, for another link on which nothing is under way.
    #[must_use]
    pub fn afresh(&self) -> Self {
        let (bytes_per_s, measured_ns) = (self.bytes_per_s, self.measured_ns);
        DeliveryRate { bytes_per_s, measured_ns, ..DeliveryRate::default() }
    }

    /// Something departed on the link.
    pub fn departed(&mut self, now_ns: u64) {
        self.busy_since_ns.get_or_insert(now_ns);
    }

    /// A transfer ended; `bytes` of it arrived (0: it was lost). `idle`: nothing is under way any more.
    pub fn ended(&mut self, now_ns: u64, bytes: u64, idle: bool) {
        let Some(since) = self.busy_since_ns else { return };
        self.busy_ns += now_ns.saturating_sub(since);
        self.busy_since_ns = (!idle).then_some(now_ns);
        self.bytes += bytes;
        if self.busy_ns >= SPAN_NS {
            let found = self.bytes as f64 / (self.busy_ns as f64 / 1e9);
            let former = self.bytes_per_s(now_ns).unwrap_or(found);
            self.measured_ns = now_ns;
            self.bytes_per_s = Some(former + WEIGHT * (found - former));
            self.busy_ns = 0;
            self.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_does_not_count() {
        let mut rate = DeliveryRate::default();
        let ms = |ms: u64| ms * 1_000_000;
        // 10 ms of work, 90 ms of rest, at 1 MB per busy 10 ms.
        for round in 0..20 {
            rate.departed(ms(round * 100));
            assert_eq!(rate.bytes_per_s(ms(round * 100)).is_some(), round > 1);
            rate.ended(ms(round * 100 + 5), 500_000, false);
            rate.ended(ms(round * 100 + 10), 500_000, true);
        }
        assert!((rate.bytes_per_s(ms(2000)).unwrap() - 1e8).abs() < 1.0, "{rate:?}");
        assert_eq!(rate.bytes_per_s(ms(5000)), None);
    }

    #[test]
    fn a_link_that_was_slow_is_tried_again_later_the_slower_it_was() {
        let mut rate = DeliveryRate::default();
        assert_eq!(rate.expected_bytes_per_s(8e8, 0), None);
        rate.departed(0);
        rate.ended(SPAN_NS, 2_000_000, true);
        let after = |fresh: u64| rate.expected_bytes_per_s(8e8, SPAN_NS + fresh * FRESH_NS).unwrap();
        assert_eq!([0, 1, 2, 3, 4, 90].map(after), [1e8, 1e8, 2e8, 4e8, 8e8, 8e8]);
        assert_eq!(rate.expected_bytes_per_s(5e7, SPAN_NS), Some(1e8), "faster than stated");
    }

    #[test]
    fn a_slower_link_shows_and_losses_count_as_nothing() {
        let mut rate = DeliveryRate::default();
        let mut now_ns = 0;
        let mut play = |rate: &mut DeliveryRate, transfers: u32, bytes| {
            for _ in 0..transfers {
                rate.departed(now_ns);
                now_ns += SPAN_NS;
                rate.ended(now_ns, bytes, true);
            }
            rate.bytes_per_s(now_ns).unwrap()
        };
        assert!((play(&mut rate, 10, 2_000_000) - 1e8).abs() < 1.0);
        assert!((play(&mut rate, 30, 200_000) - 1e7).abs() < 1e5, "{rate:?}");
        assert!(play(&mut rate, 60, 0) < 1e3);
        // An end without a beginning changes nothing.
        let before = rate;
        rate.ended(now_ns + 1, 5, true);
        assert_eq!(rate, before);
    }
}
