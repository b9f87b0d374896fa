//! Prefetching without hurry: what is not needed for a while comes at the rate at which it will be needed, so that
//! links stay free for demand and for gradients.
//!
//! For every minibatch of the window, soonest first: if all that is missing up to it could not come in time at a part of
//! the link's rate, it and those before it are urgent and take whatever the permits allow. The others of a job share a
//! rate that brings each of them in time, with some to spare; and they come when a trainer of the job begins to compute,
//! since it exchanges gradients at the end of its step, which every fetch at that time would make longer.

use rudder_topology::JobId;
use std::collections::BTreeMap;

/// Part of a link's rate that prefetching without hurry may need at most.
const UNHURRIED: f64 = 0.6;
/// The rate over what would bring everything just in time.
const TO_SPARE: f64 = 1.5;

/// What a minibatch lacks, and when it is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub job: JobId,
    pub bytes: f64,
    /// From now. 0: at once.
    pub in_ns: f64,
}

/// Bytes of a job, saved up at the unhurried rate and given out when one of its trainers begins to compute.
#[derive(Clone, Debug, Default)]
struct Bucket {
    saved: f64,
    /// Given out and not spent.
    given: f64,
    bytes_per_ns: f64,
    begins: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Ease {
    buckets: BTreeMap<JobId, Bucket>,
    as_of_ns: u64,
}

impl Ease {
    /// A trainer of the job has its minibatch and begins to compute.
    pub fn step_begins(&mut self, job: JobId) {
        self.buckets.entry(job).or_default().begins = true;
    }

    /// A new plan begins. `needs` soonest first; `capacity` in bytes a nanosecond; `quantum`: bytes that make a good
    /// transfer; `steps`: of each job how long its steps take, in nanoseconds: so long is kept what was not spent.
    /// Returns how many of the first needs are urgent.
    pub fn renew(
        &mut self,
        needs: &[Need],
        capacity: f64,
        quantum: f64,
        steps: &BTreeMap<JobId, f64>,
        now_ns: u64,
    ) -> usize {
        let passed_ns = now_ns.saturating_sub(self.as_of_ns) as f64;
        self.as_of_ns = now_ns;
        let (mut up_to, mut urgent) = (0.0, 0);
        for (at, need) in needs.iter().enumerate() {
            up_to += need.bytes;
            if up_to > 0.0 && up_to >= UNHURRIED * capacity * need.in_ns {
                urgent = at + 1;
            }
        }
        self.buckets.retain(|job, _| steps.contains_key(job));
        for (&job, &step_ns) in steps {
            let of_job = needs.iter().enumerate().filter(|(_, need)| need.job == job);
            let (mut up_to, mut rate) = (0.0, 0.0_f64);
            for (at, need) in of_job {
                up_to += need.bytes;
                if at >= urgent && need.in_ns > 0.0 {
                    rate = rate.max(up_to / need.in_ns);
                }
            }
            self.buckets.entry(job).or_default().renew(passed_ns, TO_SPARE * rate, quantum, step_ns);
        }
        urgent
    }

    /// Takes bytes for an unhurried fetch.
    pub fn take(&mut self, job: JobId, bytes: u64) -> bool {
        let Some(bucket) = self.buckets.get_mut(&job).filter(|bucket| bucket.given > 0.0) else {
            return false;
        };
        bucket.given -= bytes as f64;
        true
    }
}

impl Bucket {
    fn renew(&mut self, passed_ns: f64, bytes_per_ns: f64, quantum: f64, step_ns: f64) {
        self.saved += passed_ns * self.bytes_per_ns;
        self.bytes_per_ns = bytes_per_ns;
        let most = (bytes_per_ns * step_ns).max(quantum);
        self.saved = self.saved.min(most);
        // Small change would make small transfers.
        if std::mem::take(&mut self.begins) && self.given.max(0.0) + self.saved >= quantum {
            self.given += std::mem::take(&mut self.saved);
        }
        self.given = self.given.min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;
    const JOB: JobId = JobId(0);

    fn needs(bytes: f64, step_ms: f64, minibatches: u32) -> Vec<Need> {
        (0..minibatches)
            .map(|ahead| Need { job: JOB, bytes, in_ns: f64::from(ahead) * step_ms * MS })
            .collect()
    }

    fn steps(step_ms: f64) -> BTreeMap<JobId, f64> {
        [(JOB, step_ms * MS)].into()
    }

    /// Bytes that may be taken in one plan, block by block.
    fn spend(ease: &mut Ease) -> u64 {
        let mut taken = 0;
        while ease.take(JOB, 1000) {
            taken += 1000;
        }
        taken
    }

    #[test]
    fn what_is_needed_soon_is_urgent_and_the_rest_comes_in_time() {
        let mut ease = Ease::default();
        // 1 byte a nanosecond; 10 ms of bytes are needed every 20 ms, of which 6 in 10 may be used: enough.
        let window = needs(10.0 * MS, 20.0, 8);
        // Up to the sixth 60 ms of bytes lack, and 60 could come.
        ease.step_begins(JOB);
        assert_eq!(ease.renew(&window, 1.0, 64e3, &steps(20.0), 0), 6);
        assert_eq!(spend(&mut ease), 0, "nothing has accrued yet");
        // Up to the seventh 70 ms of bytes are needed in 120 ms; half as much again: 0.875 a nanosecond.
        ease.step_begins(JOB);
        ease.renew(&window, 1.0, 64e3, &steps(20.0), 1_000_000);
        let spent = spend(&mut ease);
        assert!((875_000..=876_000).contains(&spent), "{spent}");
        // What was not spent is kept for one step.
        ease.step_begins(JOB);
        ease.renew(&window, 1.0, 64e3, &steps(20.0), 500_000_000);
        let spent = spend(&mut ease) as f64;
        assert!((spent / (20.0 * MS * 0.875) - 1.0).abs() < 0.01, "{spent}");
    }

    #[test]
    fn bytes_of_a_step_come_when_one_begins() {
        let mut ease = Ease::default();
        let window = needs(10.0 * MS, 20.0, 8);
        ease.renew(&window, 1.0, 64e3, &steps(20.0), 0);
        // The step goes on: gradients may be on their way.
        ease.renew(&window, 1.0, 64e3, &steps(20.0), 20_000_000);
        assert_eq!(spend(&mut ease), 0);
        ease.step_begins(JOB);
        ease.renew(&window, 1.0, 64e3, &steps(20.0), 20_000_000);
        assert!(ease.take(JOB, 10_000_000));
        // What permits did not let through at once goes on, and no more than that.
        ease.renew(&window, 1.0, 64e3, &steps(20.0), 30_000_000);
        let spent = spend(&mut ease);
        assert!((7_500_000..=7_501_000).contains(&spent), "{spent}");
        ease.renew(&window, 1.0, 64e3, &steps(20.0), 39_000_000);
        assert_eq!(spend(&mut ease), 0);
    }

    #[test]
    fn a_job_takes_nothing_when_another_one_begins() {
        let mut ease = Ease::default();
        let mut window = needs(10.0 * MS, 20.0, 8);
        window.iter_mut().skip(4).for_each(|need| need.job = JobId(1));
        let steps = [(JOB, 20.0 * MS), (JobId(1), 20.0 * MS)].into();
        ease.renew(&window, 2.0, 64e3, &steps, 0);
        ease.step_begins(JobId(1));
        ease.renew(&window, 2.0, 64e3, &steps, 20_000_000);
        assert!(!ease.take(JOB, 1000) && ease.take(JobId(1), 1000));
        ease.step_begins(JOB);
        ease.renew(&window, 2.0, 64e3, &steps, 21_000_000);
        assert!(ease.take(JOB, 1000));
        // Nothing is kept for who is gone.
        ease.renew(&window, 2.0, 64e3, &[(JOB, 20.0 * MS)].into(), 22_000_000);
        assert!(!ease.take(JobId(1), 1000));
    }

    #[test]
    fn a_link_that_cannot_keep_up_is_never_eased() {
        let mut ease = Ease::default();
        let window = needs(15.0 * MS, 20.0, 8);
        assert_eq!(ease.renew(&window, 1.0, 64e3, &steps(20.0), 0), 8);
        // Nor is one whose trainers' steps are unknown.
        assert_eq!(ease.renew(&needs(1.0, 0.0, 8), 1.0, 64e3, &steps(0.0), 0), 8);
        assert_eq!(ease.renew(&[], 1.0, 64e3, &steps(0.0), 0), 0);
    }

    #[test]
    fn nothing_missing_is_not_urgent_and_small_change_is_saved_up() {
        let mut ease = Ease::default();
        assert_eq!(ease.renew(&needs(0.0, 20.0, 8), 1.0, 64e3, &steps(20.0), 0), 0);
        let window = [Need { job: JOB, bytes: 1e6, in_ns: 100.0 * MS }];
        assert_eq!(ease.renew(&window, 1.0, 64e3, &steps(20.0), 0), 0);
        // 0.015 bytes a nanosecond: after 1 ms too little for a transfer, after 5 ms enough.
        ease.step_begins(JOB);
        ease.renew(&window, 1.0, 64e3, &steps(20.0), 1_000_000);
        assert_eq!(spend(&mut ease), 0);
        ease.step_begins(JOB);
        ease.renew(&window, 1.0, 64e3, &steps(20.0), 5_000_000);
        assert_eq!(spend(&mut ease), 75_000);
    }
}
