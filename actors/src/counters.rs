//! What a node counted, gathered from engines and movers.

use crate::dataset::Dataset;
use crate::observer::gpu::Gpus;
use rudder_dataplane::StorageHandle;
use rudder_messages::report::{ComputeCounters, StorageCounters};
use rudder_policy::advice::sample::ComputeSample;
use rudder_policy::advice::state::DatasetIndex;
use rudder_policy::ledger::Statistics;
use std::sync::Arc;

/// Where a node's counters are.
#[derive(Clone, Default)]
pub struct Counters {
    pub datasets: Vec<Arc<Dataset>>,
    pub storage: Option<StorageHandle>,
    /// Whether this is a compute node, also one that serves no dataset.
    pub computes: bool,
    /// The machine's, looked for once.
    pub gpus: Option<Arc<Gpus>>,
}

impl Counters {
    /// The engines' counters, all datasets together; `None` where the node is no compute node.
    #[must_use]
    pub fn statistics(&self) -> Option<Statistics> {
        let mut sum = Statistics::default();
        for dataset in &self.datasets {
            sum += &dataset.engine.with(|engine| engine.statistics());
        }
        self.computes.then_some(sum)
    }

    #[must_use]
    pub fn compute(&self) -> Option<ComputeCounters> {
        self.statistics().map(|sum| ComputeCounters {
            rows_wanted: sum.rows_wanted,
            rows_resident: sum.rows_resident,
            rows_demand: sum.rows_demand,
            rows_prefetched: sum.rows_prefetched,
            prefetched_used: sum.prefetched_used,
            prefetched_wasted: sum.prefetched_wasted,
            minibatches_released: sum.minibatches_released,
            bypasses: sum.bypasses,
            distinct_bytes_wanted: sum.distinct_bytes_wanted,
            guard_switches: sum.guard_switches,
            minibatches_foreseen: sum.minibatches_foreseen,
            foreseen_confirmed: sum.foreseen_confirmed,
            replay_alarms: sum.replay_alarms,
            replay_cpu_ns: sum.replay_cpu_ns,
        })
    }

    /// What the slow loop is told; `None` where the node is no compute node.
    #[must_use]
    pub fn sample(&self) -> Option<ComputeSample> {
        let samples =
            self.datasets.iter().enumerate().map(|(index, dataset)| {
                dataset.engine.with(|engine| engine.sample(DatasetIndex(index as u16)))
            });
        let sum = samples.reduce(|mut sum, sample| {
            sum.add(sample);
            sum
        });
        let gpu_use = self.gpus.as_ref().and_then(|gpus| gpus.mean_use());
        self.computes.then(|| ComputeSample { gpu_use, ..sum.unwrap_or_default() })
    }

    /// What the storage mover sent; `None` where the node is no storage node.
    #[must_use]
    pub fn storage(&self) -> Option<StorageCounters> {
        let stats = self.storage.as_ref()?.stats();
        Some(StorageCounters {
            bytes_demand: stats.bytes_demand,
            bytes_prefetch: stats.bytes_prefetch,
            bytes_protocol: stats.bytes_protocol,
            staged_blocks: stats.staged_blocks,
            staged_bytes: stats.staged_bytes,
            rows_relayed: stats.rows_relayed,
            staged_rows_served: stats.staged_rows_served,
        })
    }
}
