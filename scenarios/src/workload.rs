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
        let world = WorldTrace {
            seed: scenario.seed,
            trainers: scenario.trainers(),
            seeds: scenario.trainer.seeds,
            fanout: scenario.trainer.fanout.clone(),
            minibatches: u64::from(scenario.trainer.minibatches),
        };
        let mut minibatches = sample(&world, dataset);
        for (from, fanout) in &scenario.fanouts {
            let later = sample(&WorldTrace { fanout: fanout.clone(), ..world.clone() }, dataset);
            for (all, later) in minibatches.iter_mut().zip(later) {
                let from = usize::try_from(*from).unwrap_or(usize::MAX).min(all.len());
                all.splice(from.., later.into_iter().skip(from));
            }
        }
        for (job, join) in (1..).zip(&scenario.joins) {
            let world = WorldTrace {
                // Another job trains on other seeds.
                seed: scenario.seed + (job << 32),
                trainers: scenario.cluster.compute_nodes * join.trainers_per_node,
                seeds: join.seeds,
                fanout: join.fanout.clone(),
                minibatches: u64::from(join.minibatches),
            };
            minibatches.extend(sample(&world, dataset));
        }
        Workload::new(minibatches, dataset.book())
    }

    /// Samples what all trainers of a job will ask for, on at most two threads.
    #[must_use]
    pub fn sample_world(world: &WorldTrace, dataset: &Dataset) -> Workload {
        Workload::new(sample(world, dataset), dataset.book())
    }

    /// The most slots that one minibatch needs.
    #[must_use]
    pub fn blocks_max(&self, book: &PartitionBook) -> usize {
        let blocks =
            |[(table, rows)]: &Tables| rows_to_blocks(book, *table, rows).map_or(0, |all| all.blocks.len());
        self.minibatches.iter().flatten().map(blocks).max().unwrap_or(0)
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

/// The trace of a whole job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldTrace {
    pub seed: u64,
    pub trainers: u32,
    /// Seeds of a minibatch.
    pub seeds: u32,
    pub fanout: Vec<u32>,
    /// Of each trainer.
    pub minibatches: u64,
}

impl WorldTrace {
    /// The trace of one trainer; `None` where the dataset has no graph.
    pub fn trace<'d>(&self, dataset: &'d Dataset, rank: TrainerRank) -> Option<Trace<'d>> {
        let spec = TraceSpec {
            seed: self.seed,
            rank,
            world: self.trainers,
            seeds: self.seeds,
            fanout: self.fanout.clone(),
        };
        let train_ids = dataset.split(Split::Train).map(<[VertexId]>::to_vec).unwrap_or_default();
        Some(Trace::new(spec, dataset.first_csc()?, train_ids))
    }
}

fn sample(world: &WorldTrace, dataset: &Dataset) -> Vec<Vec<Tables>> {
    let ranks: Vec<TrainerRank> = (0..world.trainers).map(TrainerRank).collect();
    let half = ranks.len().div_ceil(2).max(1);
    std::thread::scope(|scope| {
        let sample = |ranks: Vec<TrainerRank>| {
            scope.spawn(move || {
                ranks.into_iter().map(|rank| trainer(world, dataset, rank)).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = ranks.chunks(half).map(|ranks| sample(ranks.to_vec())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

fn trainer(world: &WorldTrace, dataset: &Dataset, rank: TrainerRank) -> Vec<Tables> {
    let Some(mut trace) = world.trace(dataset, rank) else { return Vec::new() };
    (0..world.minibatches).map(|minibatch| [(TABLE, trace.rows(MinibatchId(minibatch)).to_vec())]).collect()
}
