//! The loop, and what is timed in it.

use crate::stop::Stop;
use crate::trainer::event::{Event, Finished, Step};
use crate::trainer::feed::Feed;
use crate::trainer::ring::Ring;
use crate::trainer::{Sink, TrainerError, TrainerOptions, unix_ns};
use rudder_topology::{Bytes, MinibatchId};
use std::time::{Duration, Instant};

/// A vector of ones, summed over the trainers every step.
pub(super) struct AllReduce {
    ring: Ring,
    values: Vec<f32>,
    world: u32,
}

impl AllReduce {
    pub(super) fn new(ring: Ring, bytes: Bytes, world: u32) -> Self {
        AllReduce { ring, values: vec![1.0; (bytes.0 / 4) as usize], world }
    }

    fn step(&mut self, time_out: Duration) -> Result<Duration, TrainerError> {
        let start = Instant::now();
        self.values.fill(1.0);
        self.ring.all_reduce(&mut self.values, time_out)?;
        let want = self.world as f32;
        match self.values.iter().find(|&&sum| sum != want) {
            Some(&got) => Err(TrainerError::Sum { got, want: self.world }),
            None => Ok(start.elapsed()),
        }
    }
}

/// Where a step's time goes.
#[derive(Default)]
struct Lap {
    wait: Duration,
    sample: Duration,
    gather: Duration,
    allreduce: Duration,
    rows: u64,
    bytes: u64,
    bytes_wrong: u64,
}

/// Trains on what the node feeds.
pub(super) fn fed(
    options: &TrainerOptions,
    feed: &mut Feed<'_>,
    mut ring: Option<&mut AllReduce>,
    stop: &Stop,
    sink: &mut dyn Sink,
) -> Result<Finished, TrainerError> {
    synchronise(ring.as_deref_mut(), options, sink)?;
    let mut bytes_wrong = 0;
    let mut start = Instant::now();
    for minibatch in (0..feed.length()).map(MinibatchId) {
        if stop.is_raised() {
            return Err(TrainerError::Stopped);
        }
        let mut lap = Lap::default();
        // Only the first minibatch finds anything left to announce here: it has no compute before it to hide behind.
        feed.look_ahead(minibatch)?;
        let gathered = feed.gather(minibatch, stop)?;
        lap.gather = gathered.gather_time;
        lap.rows = gathered.rows.len() as u64;
        lap.bytes = lap.rows * feed.row_bytes() as u64;
        lap.wait = start.elapsed();
        let mut computed = Instant::now() + options.compute;

        let sampling = Instant::now();
        feed.look_ahead(MinibatchId(minibatch.0 + 1))?;
        lap.sample = sampling.elapsed();
        lap.wait += Instant::now().saturating_duration_since(computed);
        // Comparing bytes is this harness's own work, which no training loop does: it does not count as waiting.
        let comparing = Instant::now();
        lap.bytes_wrong = feed.bytes_wrong(&gathered.rows)?;
        computed += Instant::now().saturating_duration_since(comparing.max(computed));
        sleep_until(computed);

        if let Some(ring) = ring.as_deref_mut() {
            lap.allreduce = ring.step(options.time_out)?;
        }
        bytes_wrong += lap.bytes_wrong;
        start = report(&lap, minibatch, start, sink);
    }
    Ok(Finished { minibatches: feed.length(), bytes_wrong, trace_digest: feed.digest() })
}

/// Trains on nothing: what is left when data costs no time.
pub(super) fn bound(
    options: &TrainerOptions,
    minibatches: u64,
    mut ring: Option<&mut AllReduce>,
    stop: &Stop,
    sink: &mut dyn Sink,
) -> Result<Finished, TrainerError> {
    synchronise(ring.as_deref_mut(), options, sink)?;
    let mut start = Instant::now();
    for minibatch in (0..minibatches).map(MinibatchId) {
        if stop.is_raised() {
            return Err(TrainerError::Stopped);
        }
        sleep_until(Instant::now() + options.compute);
        let mut lap = Lap::default();
        if let Some(ring) = ring.as_deref_mut() {
            lap.allreduce = ring.step(options.time_out)?;
        }
        start = report(&lap, minibatch, start, sink);
    }
    Ok(Finished { minibatches, bytes_wrong: 0, trace_digest: String::new() })
}

/// Trainers begin together: the first all-reduce ends when the last of them is up.
fn synchronise(
    ring: Option<&mut AllReduce>,
    options: &TrainerOptions,
    sink: &mut dyn Sink,
) -> Result<(), TrainerError> {
    if let Some(ring) = ring {
        ring.step(options.time_out)?;
    }
    sink.event(&Event::Started { rank: options.trace.rank, at_ns: unix_ns() });
    Ok(())
}

fn report(lap: &Lap, minibatch: MinibatchId, start: Instant, sink: &mut dyn Sink) -> Instant {
    let end = Instant::now();
    sink.event(&Event::Step(Step {
        minibatch,
        at_ns: unix_ns(),
        step_ns: nanos(end - start),
        wait_ns: nanos(lap.wait),
        sample_ns: nanos(lap.sample),
        gather_ns: nanos(lap.gather),
        allreduce_ns: nanos(lap.allreduce),
        rows: lap.rows,
        bytes: lap.bytes,
        bytes_wrong: lap.bytes_wrong,
    }));
    end
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The emulated device: the thread sleeps, as a training loop sleeps on its device's queue.
#[expect(clippy::disallowed_methods, reason = "emulated compute is a sleep; nothing is waited for")]
fn sleep_until(deadline: Instant) {
    std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
}
