//! What the trainers will ask for, known before they run: sampled once, for burst sizes, the report, the oracle, and
//! every simulated arm.

use crate::compile::Scenario;
use crate::sim::Rows;
use rudder_client::dataset::Dataset;
use rudder_graph::trace::{Trace, TraceSpec};
use rudder_graph::{BlockRows, PartitionBook, Split, TraceDigest, rows_to_blocks};
use rudder_topology::{Bytes, MinibatchId, TableId, TrainerRank, VertexId};

/// The feature table that vertices index.
const TABLE: TableId = TableId(0);

/// The rows that a minibatch reads of each table.
pub type Tables = [(TableId, Vec<u32>); 1];

/// The rows of every minibatch of every trainer.
#[derive(Clone, Debug)]
pub struct Workload {
    /// By rank, then minibatch.
    minibatches: Vec<Vec<Tables>>,
    pub rows_per_minibatch: f64,
    pub bytes_per_minibatch: Bytes,
}

impl Workload {
    /// Samples what a scenario's trainers will, on at most two threads.
    #[must_use]
    pub fn sample(scenario: &Scenario, dataset: &Dataset) -> Workload {
        let ranks: Vec<TrainerRank> = (0..scenario.trainers()).map(TrainerRank).collect();
        let half = ranks.len().div_ceil(2).max(1);
        let minibatches: Vec<Vec<_>> = std::thread::scope(|scope| {
            let sample = |ranks: Vec<TrainerRank>| {
                scope.spawn(move || {
                    ranks.into_iter().map(|rank| trainer(scenario, dataset, rank)).collect::<Vec<_>>()
                })
            };
            let threads: Vec<_> = ranks.chunks(half).map(|ranks| sample(ranks.to_vec())).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        });
        Workload::new(minibatches, dataset.book())
    }

    /// Of rows that are known: by rank, then minibatch.
    #[must_use]
    pub fn new(minibatches: Vec<Vec<Tables>>, book: &PartitionBook) -> Workload {
        let all = || minibatches.iter().flatten();
        let rows: u64 = all().map(|[(_, rows)]| rows.len() as u64).sum();
        let rows_per_minibatch = rows as f64 / all().count().max(1) as f64;
        let row_bytes = f64::from(book.row_bytes(TABLE).unwrap_or_default());
        let bytes_per_minibatch = Bytes((rows_per_minibatch * row_bytes) as u64);
        Workload { minibatches, rows_per_minibatch, bytes_per_minibatch }
    }

    /// The blocks and rows of a minibatch, ascending.
    #[must_use]
    pub fn blocks(
        &self,
        rank: TrainerRank,
        minibatch: MinibatchId,
        book: &PartitionBook,
    ) -> Option<Vec<BlockRows>> {
        let [(table, rows)] = self.minibatches.get(rank.index())?.get(usize::try_from(minibatch.0).ok()?)?;
        Some(rows_to_blocks(book, *table, rows).ok()?.blocks)
    }

    /// As the trainer's own.
    #[must_use]
    pub fn digest(&self, rank: TrainerRank) -> String {
        let mut digest = TraceDigest::default();
        for (minibatch, [(table, rows)]) in
            (0..).zip(self.minibatches.get(rank.index()).into_iter().flatten())
        {
            digest.request(MinibatchId(minibatch), *table, rows);
        }
        digest.hex()
    }
}

impl Rows for Workload {
    fn of(&self, rank: TrainerRank, minibatch: u64) -> &[(TableId, Vec<u32>)] {
        let found = self.minibatches.get(rank.index()).and_then(|all| all.get(minibatch as usize));
        found.map_or(&[], <[_; 1]>::as_slice)
    }
}

fn trainer(scenario: &Scenario, dataset: &Dataset, rank: TrainerRank) -> Vec<Tables> {
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
    (0..u64::from(scenario.trainer.minibatches))
        .map(|minibatch| [(TABLE, trace.rows(MinibatchId(minibatch)).to_vec())])
        .collect()
}
