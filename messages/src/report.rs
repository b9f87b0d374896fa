//! The compact state report that an observer sends to the collector every few seconds.

use rudder_policy::advice::sample::ComputeSample;
use rudder_topology::{Bytes, Generation, Nanos, NodeName};
use serde::{Deserialize, Serialize};

/// A report is sent this often.
pub const REPORT_PERIOD: Nanos = Nanos::from_secs(2);

/// What a node measured of itself. Counters count from the node's start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub node: NodeName,
    pub generation: Generation,
    /// Since the node started.
    pub at: Nanos,
    pub process: ProcessLoad,
    /// Empty where there is no GPU.
    pub gpus: Vec<GpuLoad>,
    pub compute: Option<ComputeCounters>,
    pub storage: Option<StorageCounters>,
    /// For the slow loop; compute nodes only. Its lists are bounded.
    pub sample: Option<ComputeSample>,
}

/// From `/proc/self`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessLoad {
    /// Share of one core used since the last report; 2.0 is two cores.
    pub cores_used: f32,
    pub resident: Bytes,
}

/// From NVML.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuLoad {
    pub index: u32,
    /// Fraction of the last sample period during which a kernel ran.
    pub utilisation: f32,
    pub memory_used: Bytes,
    pub memory_total: Bytes,
}

/// The compute side's counters, all datasets together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputeCounters {
    /// Remote rows of released minibatches, repeated uses counted.
    pub rows_wanted: u64,
    /// Of these, found resident when the minibatch's turn came.
    pub rows_resident: u64,
    /// Rows fetched while a trainer waited.
    pub rows_demand: u64,
    /// Rows fetched ahead of use.
    pub rows_prefetched: u64,
    pub prefetched_used: u64,
    pub prefetched_wasted: u64,
    pub minibatches_released: u64,
    /// Minibatches that were gathered in pieces past the cache.
    pub bypasses: u64,
    /// Bytes of the distinct remote rows that minibatches asked for.
    pub distinct_bytes_wanted: u64,
    /// How often the net-benefit guard switched prefetching off.
    pub guard_switches: u64,
    /// Minibatches that were sampled ahead of their trainers, and those of them that came just so.
    pub minibatches_foreseen: u64,
    pub foreseen_confirmed: u64,
    /// Times that a trainer asked for something else.
    pub replay_alarms: u64,
    /// Processor time of sampling ahead.
    pub replay_cpu_ns: u64,
}

/// The storage side's counters, as sent on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageCounters {
    /// Payload sent for trainers that waited.
    pub bytes_demand: u64,
    /// Payload sent ahead of use.
    pub bytes_prefetch: u64,
    /// Headers, masks and requests.
    pub bytes_protocol: u64,
    /// Blocks of other nodes that are kept now, and their bytes.
    pub staged_blocks: u64,
    pub staged_bytes: u64,
    /// Rows that owners sent here to be passed on.
    pub rows_relayed: u64,
    /// Rows of other nodes' blocks that were sent, each time they were.
    pub staged_rows_served: u64,
}
