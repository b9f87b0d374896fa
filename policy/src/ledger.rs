//! What the fast loop counted. Definitions: see each field; shares are computed by whoever reports.

use serde::{Deserialize, Serialize};

/// Counters of one engine since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    pub minibatches_announced: u64,
    pub minibatches_released: u64,
    /// Nanoseconds that trainers waited between asking for a minibatch and its being ready, all trainers together.
    pub wait_ns: u64,
    /// Minibatches that a replay of their trainer's sampler put into the window.
    pub minibatches_foreseen: u64,
    /// Of these, minibatches that the trainer announced just so.
    pub foreseen_confirmed: u64,
    /// Times that a trainer announced something else than its sampler's replay.
    pub replay_alarms: u64,
    /// Processor time that sampling ahead cost, in nanoseconds.
    pub replay_cpu_ns: u64,
    /// Distinct remote rows of minibatches, counted when their trainer began to wait for them.
    pub rows_wanted: u64,
    /// Of these, rows that could be read at that moment.
    pub rows_resident: u64,
    /// Bytes of `rows_wanted`.
    pub distinct_bytes_wanted: u64,
    /// Rows that arrived by demand.
    pub rows_demand: u64,
    /// Rows that arrived by prefetch.
    pub rows_prefetched: u64,
    /// Of these, rows that a ready minibatch used before they were evicted.
    pub prefetched_used: u64,
    /// Of these, rows that were evicted unused.
    pub prefetched_wasted: u64,
    /// Payload bytes that arrived.
    pub bytes_demand: u64,
    pub bytes_prefetch: u64,
    /// Minibatches that passed by the cache in pieces.
    pub bypasses: u64,
    pub minibatches_failed: u64,
    pub evictions: u64,
    pub transfers: u64,
    pub transfers_lost: u64,
    pub steps_accepted: u64,
    pub steps_refused: u64,
    /// Rows that demand caching would have fetched for the same minibatches, estimated; 0 where no guard watches.
    pub rows_missed_by_demand: u64,
    /// How often the net-benefit guard switched prefetching off.
    pub guard_switches: u64,
    /// Answers that came after their transfer had ended or from an old incarnation.
    pub stale_answers: u64,
}

impl std::ops::AddAssign<&Statistics> for Statistics {
    fn add_assign(&mut self, other: &Statistics) {
        self.minibatches_announced += other.minibatches_announced;
        self.minibatches_released += other.minibatches_released;
        self.wait_ns += other.wait_ns;
        self.minibatches_foreseen += other.minibatches_foreseen;
        self.foreseen_confirmed += other.foreseen_confirmed;
        self.replay_alarms += other.replay_alarms;
        self.replay_cpu_ns += other.replay_cpu_ns;
        self.rows_wanted += other.rows_wanted;
        self.rows_resident += other.rows_resident;
        self.distinct_bytes_wanted += other.distinct_bytes_wanted;
        self.rows_demand += other.rows_demand;
        self.rows_prefetched += other.rows_prefetched;
        self.prefetched_used += other.prefetched_used;
        self.prefetched_wasted += other.prefetched_wasted;
        self.bytes_demand += other.bytes_demand;
        self.bytes_prefetch += other.bytes_prefetch;
        self.bypasses += other.bypasses;
        self.minibatches_failed += other.minibatches_failed;
        self.evictions += other.evictions;
        self.transfers += other.transfers;
        self.transfers_lost += other.transfers_lost;
        self.steps_accepted += other.steps_accepted;
        self.steps_refused += other.steps_refused;
        self.rows_missed_by_demand += other.rows_missed_by_demand;
        self.guard_switches += other.guard_switches;
        self.stale_answers += other.stale_answers;
    }
}
