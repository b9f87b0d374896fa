//! Many seeds, two at a time.

use super::invariant::All;
use super::{Judge, Violation, draw, run, timed};
use crate::stop::Stop;
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds at once.
const THREADS: usize = 2;
/// So many violations tell enough.
const VIOLATIONS_MAX: usize = 10;

/// What a campaign found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Campaign {
    pub from: u64,
    /// Seeds that were played.
    pub seeds: u64,
    /// Events, after each of which every invariant was judged.
    pub events: u64,
    pub violations: Vec<Violation>,
}

impl fmt::Display for Campaign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        write!(
            f,
            "{} seeds from {}, {} events, all invariants after each: {} violations",
            self.seeds,
            self.from,
            self.events,
            self.violations.len()
        )
    }
}

/// Plays the schedule and the timed cluster of a seed under every invariant; the number of events. A panic of the code
/// under test is a violation as well.
pub fn seed(seed: u64) -> Result<u64, Violation> {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let (options, dataset) = draw(seed);
        let events = run(options, dataset, &mut All::default())?;
        let timed = timed::play(seed).map_err(|(event, what)| Violation {
            seed,
            judge: Judge::Invariant,
            event,
            what,
        })?;
        Ok((events + timed) as u64)
    }));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        let what = format!("panicked: {}", text.unwrap_or_default());
        Err(Violation { seed, judge: Judge::Schedule, event: 0, what })
    })
}

/// Plays seeds until all are played, too many are violated, or it is to stop. `after_each` is called after each seed.
pub fn campaign(seeds: Range<u64>, stop: &Stop, after_each: &(dyn Fn() + Sync)) -> Campaign {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut found = Campaign { from: seeds.start, ..Campaign::default() };
        while !stop.is_raised() && found.violations.len() < VIOLATIONS_MAX {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds.end {
                break;
            }
            match seed(number) {
                Ok(events) => found.events += events,
                Err(violation) => found.violations.push(violation),
            }
            found.seeds += 1;
            after_each();
        }
        found
    };
    let parts: Vec<Campaign> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let mut all = Campaign { from: seeds.start, ..Campaign::default() };
    for part in parts {
        all.seeds += part.seeds;
        all.events += part.events;
        all.violations.extend(part.violations);
    }
    all.violations.sort_by_key(|violation| violation.seed);
    all
}
