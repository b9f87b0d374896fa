//! What the trainers will ask for, known before they run: for burst sizes, the report, and the oracle.

use crate::compile::Scenario;
use rudder_client::dataset::Dataset;
use rudder_graph::trace::{Trace, TraceSpec};
use rudder_graph::{BlockRows, Split};
use rudder_topology::{Bytes, MinibatchId, TableId, TrainerRank, VertexId};
use std::collections::BTreeMap;

/// The feature table that vertices index.
const TABLE: TableId = TableId(0);

/// The blocks and rows of every minibatch of every trainer.
pub(super) struct Workload {
    /// By rank, then minibatch.
    minibatches: Vec<Vec<Vec<BlockRows>>>,
    pub rows_per_minibatch: f64,
    pub bytes_per_minibatch: Bytes,
}

impl Workload {
    pub(super) fn sample(scenario: &Scenario, dataset: &Dataset) -> Workload {
        let minibatches: Vec<Vec<Vec<BlockRows>>> =
            (0..scenario.trainers()).map(|rank| trainer(scenario, dataset, TrainerRank(rank))).collect();
        let all = || minibatches.iter().flatten();
        let rows: u64 = all().flatten().map(|rows| u64::from(rows.rows())).sum();
        let rows_per_minibatch = rows as f64 / all().count().max(1) as f64;
        let row_bytes = f64::from(dataset.book().row_bytes(TABLE).unwrap_or_default());
        let bytes_per_minibatch = Bytes((rows_per_minibatch * row_bytes) as u64);
        Workload { minibatches, rows_per_minibatch, bytes_per_minibatch }
    }

    pub(super) fn of(&self, rank: TrainerRank, minibatch: MinibatchId) -> Option<&Vec<BlockRows>> {
        self.minibatches.get(rank.index())?.get(usize::try_from(minibatch.0).ok()?)
    }
}

fn trainer(scenario: &Scenario, dataset: &Dataset, rank: TrainerRank) -> Vec<Vec<BlockRows>> {
    let Some(graph) = dataset.first_csc() else { return Vec::new() };
    let spec = TraceSpec {
        seed: scenario.seed,
        rank,
        world: scenario.trainers(),
        seeds: scenario.trainer.seeds,
        fanout: scenario.trainer.fanout.clone(),
    };
    let train_ids = dataset.split(Split::Train).map(<[VertexId]>::to_vec).unwrap_or_default();
    let mut trace = Trace::new(spec, graph, train_ids);
    let book = dataset.book();
    (0..u64::from(scenario.trainer.minibatches))
        .map(|minibatch| {
            let mut blocks: BTreeMap<_, u64> = BTreeMap::new();
            for &row in trace.rows(MinibatchId(minibatch)) {
                if let Some(place) = book.locate(TABLE, u64::from(row)) {
                    *blocks.entry(place.block).or_default() |= 1 << place.row;
                }
            }
            blocks.into_iter().map(|(block, mask)| BlockRows { block, mask }).collect()
        })
        .collect()
}
