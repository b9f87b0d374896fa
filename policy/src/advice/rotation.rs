//! Whose turn it is, where several jobs wait for one advisor: in the order in which they began to wait.
//!
//! While a job waits, no other is served twice: who was served stands behind everybody who waits.

use rudder_topology::JobId;
use std::collections::VecDeque;

/// Jobs that wait, the longest first; `None` is what concerns no job in particular.
#[derive(Clone, Debug, Default)]
pub struct Rotation {
    waiting: VecDeque<Option<JobId>>,
}

impl Rotation {
    /// A job waits from now on, if it does not already.
    pub fn wait(&mut self, job: Option<JobId>) {
        if !self.waiting.contains(&job) {
            self.waiting.push_back(job);
        }
    }

    /// The next ones, at most `count`.
    pub fn take(&mut self, count: usize) -> Vec<Option<JobId>> {
        self.waiting.drain(..count.min(self.waiting.len())).collect()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn who_waits_longest_is_next() {
        let mut rotation = Rotation::default();
        [3, 1, 3, 2].into_iter().for_each(|job| rotation.wait(Some(JobId(job))));
        assert_eq!(rotation.take(2), [Some(JobId(3)), Some(JobId(1))]);
        rotation.wait(Some(JobId(3)));
        rotation.wait(None);
        assert_eq!(rotation.take(9), [Some(JobId(2)), Some(JobId(3)), None]);
        assert!(rotation.is_empty());
    }

    proptest! {
        /// While a job waits, every other is served once at most, whoever comes and however often.
        #[test]
        fn no_job_that_waits_is_passed_over_more_than_once_by_another(
            steps in prop::collection::vec((any::<bool>(), 0_u32..12, 1_usize..4), 0..300),
        ) {
            let mut rotation = Rotation::default();
            // For each job that waits, how often each other was served meanwhile.
            let mut passed: BTreeMap<u32, BTreeMap<u32, u32>> = BTreeMap::new();
            for (arrives, job, count) in steps {
                if arrives {
                    rotation.wait(Some(JobId(job)));
                    passed.entry(job).or_default();
                    continue;
                }
                for served in rotation.take(count) {
                    let served = served.unwrap().0;
                    prop_assert!(passed.remove(&served).is_some(), "it did not wait");
                    for by in passed.values_mut() {
                        let times = by.entry(served).or_default();
                        *times += 1;
                        prop_assert!(*times <= 1);
                    }
                }
            }
            let rest = rotation.take(usize::MAX).len();
            prop_assert_eq!(rest, passed.len(), "nobody is forgotten");
        }
    }
}
