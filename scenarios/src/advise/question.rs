//! What the user states, since it cannot be known from dataset and topology.

use crate::arm::Arm;
use rudder_topology::{Bytes, Nanos};

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Of a minibatch.
    pub seeds: u32,
    /// Neighbours sampled a hop.
    pub fanout: Vec<u32>,
    /// Minibatches announced ahead.
    pub window: u32,
    /// Of a minibatch, without sampling, waiting and all-reduce.
    pub compute: Nanos,
    pub trainers_per_node: u32,
    /// Summed over all trainers every minibatch.
    pub allreduce: Bytes,
    /// Of each trainer. `None`: as many as [`minibatches`] says.
    pub minibatches: Option<u64>,
    pub arms: Vec<Arm>,
    pub seed: u64,
}

/// Rows that all trainers ask for in one run, where nobody says how many minibatches to simulate: a few seconds' work.
const ROWS: f64 = 3e6;
/// Fewer say little, and more change little.
const LEAST: u64 = 20;
const MOST: u64 = 1000;
/// Rows that are held in memory at most: 2 GB of them.
const ROWS_MAX: f64 = 5e8;

/// How many minibatches of each trainer to simulate: two epochs where that is affordable.
pub(super) fn minibatches(epoch: u64, trainers: u32, rows_per_minibatch: f64) -> u64 {
    let affordable = ROWS / (f64::from(trainers.max(1)) * rows_per_minibatch.max(1.0));
    (2 * epoch).min(affordable as u64).clamp(LEAST, MOST)
}

/// The most minibatches of each trainer that memory has room for.
pub(super) fn minibatches_max(trainers: u32, rows_per_minibatch: f64) -> u64 {
    (ROWS_MAX / (f64::from(trainers.max(1)) * rows_per_minibatch.max(1.0))).max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_minibatches_as_are_affordable_and_no_more_than_two_epochs() {
        assert_eq!(minibatches(50, 2, 1000.0), 100);
        assert_eq!(minibatches(1_000_000, 2, 4000.0), 375);
        assert_eq!(minibatches(1_000_000, 2, 10.0), MOST);
        assert_eq!(minibatches(1_000_000, 2000, 1e6), LEAST);
        assert_eq!(minibatches(0, 0, 0.0), LEAST);
        assert!(minibatches_max(2, 4000.0) > MOST);
    }
}
