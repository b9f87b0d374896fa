//! What a directive kept from others: demand fetches, and so waits, that would not have been without it.
//!
//! A demand fetch is delayed where a row has to be fetched while a trainer waits that would have been there in time
//! before. So the measure is a comparison: bytes fetched on demand, and time waited, by the minibatches under the
//! directive, beside what as many minibatches cost just before it.

use super::sample::ComputeSample;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Values whose growth says what is usual.
const BEFORE_VALUES: usize = 5;

/// Sums over all compute nodes that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub minibatches: u64,
    /// Fetched while a trainer waited.
    pub demand_bytes: u64,
    /// That trainers waited.
    pub wait_ns: u64,
}

impl Totals {
    /// Adds what happened between two samples of one incarnation of a node.
    pub fn add(&mut self, before: &ComputeSample, now: &ComputeSample) {
        let more = |now: u64, before: u64| now.saturating_sub(before);
        let grow = |total: &mut u64, more: u64| *total = total.saturating_add(more);
        grow(&mut self.minibatches, more(now.minibatches_released, before.minibatches_released));
        grow(&mut self.demand_bytes, more(now.bytes_demand, before.bytes_demand));
        for job in &now.jobs {
            let former = before.jobs.iter().find(|former| former.job == job.job).map_or(0, |f| f.wait_ns);
            grow(&mut self.wait_ns, more(job.wait_ns, former));
        }
    }

    fn since(self, before: Totals) -> Totals {
        Totals {
            minibatches: self.minibatches.saturating_sub(before.minibatches),
            demand_bytes: self.demand_bytes.saturating_sub(before.demand_bytes),
            wait_ns: self.wait_ns.saturating_sub(before.wait_ns),
        }
    }
}

/// The opportunity cost of a directive, over the last time that it was in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpportunityCost {
    /// Released under the directive.
    pub minibatches: u64,
    /// Bytes that were fetched while a trainer waited, and what as many minibatches fetched so before.
    pub demand_bytes: u64,
    pub demand_bytes_usual: u64,
    /// Time that trainers waited, and what they waited for as many minibatches before.
    pub wait_ns: u64,
    pub wait_ns_usual: u64,
}

impl OpportunityCost {
    /// Demand bytes beyond the usual: what came late.
    #[must_use]
    pub fn delayed_bytes(&self) -> u64 {
        self.demand_bytes.saturating_sub(self.demand_bytes_usual)
    }
}

/// Follows the totals, and remembers where a directive began.
#[derive(Clone, Debug, Default)]
pub struct CostMeter {
    recent: VecDeque<Totals>,
    /// What was usual, and where the directive began.
    begun: Option<(Totals, Totals)>,
    /// Of the last time that it was in force.
    last: Option<OpportunityCost>,
}

impl CostMeter {
    /// Takes in the totals of a period's end.
    pub fn observe(&mut self, totals: Totals) {
        if self.recent.len() > BEFORE_VALUES {
            self.recent.pop_front();
        }
        self.recent.push_back(totals);
    }

    /// A directive is in force from now on.
    pub fn begin(&mut self) {
        let (first, last) = (self.recent.front().copied(), self.recent.back().copied());
        self.begun = first.zip(last).map(|(first, last)| (last.since(first), last));
    }

    /// It is taken back, for now or for ever.
    pub fn pause(&mut self) {
        self.last = self.measure();
    }

    /// It is decided. `None` where none was, or where no minibatch tells what was usual.
    pub fn end(&mut self) -> Option<OpportunityCost> {
        let last = self.last.take();
        self.measure().or(last)
    }

    fn measure(&mut self) -> Option<OpportunityCost> {
        let (usual, begin) = self.begun.take()?;
        let spent = self.recent.back()?.since(begin);
        let scaled = |value: u64| {
            let product = u128::from(value) * u128::from(spent.minibatches);
            u64::try_from(product / u128::from(usual.minibatches.max(1))).unwrap_or(u64::MAX)
        };
        (usual.minibatches > 0).then(|| OpportunityCost {
            minibatches: spent.minibatches,
            demand_bytes: spent.demand_bytes,
            demand_bytes_usual: scaled(usual.demand_bytes),
            wait_ns: spent.wait_ns,
            wait_ns_usual: scaled(usual.wait_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A period in which ten minibatches were released.
    fn period(meter: &mut CostMeter, totals: &mut Totals, demand_bytes: u64, wait_ns: u64) {
        totals.minibatches += 10;
        totals.demand_bytes += demand_bytes;
        totals.wait_ns += wait_ns;
        meter.observe(*totals);
    }

    #[test]
    fn what_came_late_is_counted_beside_what_was_usual() {
        let (mut meter, mut totals) = (CostMeter::default(), Totals::default());
        (0..9).for_each(|_| period(&mut meter, &mut totals, 100, 7));
        meter.begin();
        (0..4).for_each(|_| period(&mut meter, &mut totals, 130, 6));
        let cost = meter.end().unwrap();
        let expected = OpportunityCost {
            minibatches: 40,
            demand_bytes: 520,
            demand_bytes_usual: 400,
            wait_ns: 24,
            wait_ns_usual: 28,
        };
        assert_eq!((cost, cost.delayed_bytes()), (expected, 120));
        assert_eq!(meter.end(), None, "it ended");
        // What happens while it is looked at without the directive is not its cost.
        meter.begin();
        (0..4).for_each(|_| period(&mut meter, &mut totals, 130, 6));
        meter.pause();
        (0..4).for_each(|_| period(&mut meter, &mut totals, 900, 90));
        assert_eq!(meter.end().map(|cost| (cost.minibatches, cost.demand_bytes)), Some((40, 520)));
    }

    #[test]
    fn nothing_usual_is_no_cost() {
        let mut meter = CostMeter::default();
        meter.begin();
        assert_eq!(meter.end(), None);
        meter.observe(Totals::default());
        meter.begin();
        meter.observe(Totals { minibatches: 3, ..Totals::default() });
        assert_eq!(meter.end(), None);
    }

    proptest! {
        #[test]
        fn any_totals_are_survived(series in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..20)) {
            let mut meter = CostMeter::default();
            for (at, (minibatches, demand_bytes, wait_ns)) in series.into_iter().enumerate() {
                meter.observe(Totals { minibatches, demand_bytes, wait_ns });
                if at % 3 == 1 {
                    meter.begin();
                }
                if at % 3 == 2 {
                    meter.end();
                }
            }
        }
    }
}
