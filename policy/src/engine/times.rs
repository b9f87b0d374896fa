//! How long trainers wait for minibatches, and how long they use them: from when one is served to when the next is
//! wanted. That is gathering, computing, and waiting for each other in all-reduce, which nobody else on a node sees.

use crate::step::TrainerId;
use rudder_topology::JobId;
use std::collections::BTreeMap;

/// What takes more than so many of a trainer's steps is a pause, such as a validation, and no use.
const PAUSE_STEPS: f64 = 8.0;

/// Of a job's trainers together, since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobTimes {
    pub wait_ns: u64,
    pub used_ns: u64,
    /// Minibatches whose use counts in `used_ns`.
    pub used: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    jobs: BTreeMap<JobId, JobTimes>,
    /// Since when a trainer uses what it was served last.
    served_ns: BTreeMap<TrainerId, u64>,
}

impl Times {
    pub fn of(&self, job: JobId) -> JobTimes {
        self.jobs.get(&job).copied().unwrap_or_default()
    }

    /// A trainer got its minibatch after this wait.
    pub fn served(&mut self, trainer: TrainerId, wait_ns: u64, now_ns: u64) {
        let times = self.jobs.entry(trainer.job).or_default();
        times.wait_ns = times.wait_ns.saturating_add(wait_ns);
        self.served_ns.insert(trainer, now_ns);
    }

    /// It wants another one. `step_ns`: its average step, where that was measured.
    pub fn wanted(&mut self, trainer: TrainerId, step_ns: Option<f64>, now_ns: u64) {
        let Some(served_ns) = self.served_ns.remove(&trainer) else { return };
        let used_ns = now_ns.saturating_sub(served_ns);
        if step_ns.is_none_or(|step_ns| used_ns as f64 <= PAUSE_STEPS * step_ns) {
            let times = self.jobs.entry(trainer.job).or_default();
            times.used_ns = times.used_ns.saturating_add(used_ns);
            times.used += 1;
        }
    }

    pub fn forget(&mut self, trainer: TrainerId) {
        self.served_ns.remove(&trainer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::state::DatasetIndex;
    use crate::testing::{World, book, trainer};
    use rudder_topology::{PolicySpec, TableId};

    #[test]
    fn every_moment_between_two_wants_is_waited_or_used() {
        const USE_NS: u64 = 1_000_000_000;
        let mut world = World::new(book(64, 2, 1), 256, PolicySpec::RUDDER, &[]);
        world.connect(trainer(0));
        let mut wanted_ns = vec![];
        for minibatch in 0..4 {
            world.announce(trainer(0), minibatch, vec![(TableId(0), vec![minibatch as u32])]);
            wanted_ns.push(world.now_ns);
            world.want(trainer(0), minibatch);
            while !world.in_flight.is_empty() {
                world.arrive(0);
            }
            world.release(trainer(0), minibatch);
            world.now_ns += USE_NS;
        }
        let times = world.engine.times.of(trainer(0).job);
        assert_eq!(times.used, 3);
        assert!((3 * USE_NS..3 * USE_NS + USE_NS / 10).contains(&times.used_ns), "{times:?}");
        let job = world.engine.sample(DatasetIndex(0)).jobs[0];
        assert_eq!((job.wait_ns, job.used_ns, job.used_minibatches), (times.wait_ns, times.used_ns, 3));
        // The last wait is behind the last want.
        let last_wait_ns = times.wait_ns - (wanted_ns[3] - wanted_ns[0] - times.used_ns);
        assert!(last_wait_ns > 0 && last_wait_ns < USE_NS / 10, "{times:?}");
    }

    #[test]
    fn pauses_and_who_is_gone_do_not_count() {
        let mut times = Times::default();
        let job = trainer(0).job;
        times.wanted(trainer(0), None, 50);
        times.served(trainer(0), 3, 100);
        times.wanted(trainer(0), Some(10.0), 181);
        assert_eq!(times.of(job), JobTimes { wait_ns: 3, ..JobTimes::default() });
        times.served(trainer(0), 0, 200);
        times.wanted(trainer(0), Some(10.0), 280);
        times.served(trainer(0), 0, 300);
        times.forget(trainer(0));
        times.wanted(trainer(0), None, 310);
        assert_eq!(times.of(job), JobTimes { wait_ns: 3, used_ns: 80, used: 1 });
    }
}
