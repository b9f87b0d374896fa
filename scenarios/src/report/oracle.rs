//! The oracle row: Belady over the recorded interleaving, perfect overlap, limited by links and compute alone.

use crate::record::Run;
use crate::report::Reference;
use rudder_graph::{BlockRows, PartitionBook};
use rudder_policy::oracle::belady;
use rudder_topology::{Bytes, BytesPerSecond, MinibatchId, TrainerRank};
use std::time::Duration;

/// What every compute node asked for, in the order in which it was released there.
pub type Interleaving = Vec<Vec<(TrainerRank, MinibatchId)>>;

/// The order in which each compute node's minibatches ended in `run`.
#[must_use]
pub fn interleaving(run: &Run, compute_nodes: usize) -> Interleaving {
    let mut nodes: Vec<Vec<(u64, TrainerRank, MinibatchId)>> = vec![Vec::new(); compute_nodes];
    for trainer in &run.trainers {
        if let Some(node) = nodes.get_mut(trainer.compute_node) {
            node.extend(trainer.steps.iter().map(|step| (step.at_ns, trainer.rank, step.minibatch)));
        }
    }
    nodes
        .into_iter()
        .map(|mut ended| {
            ended.sort_unstable();
            ended.into_iter().map(|(_, rank, minibatch)| (rank, minibatch)).collect()
        })
        .collect()
}

/// What limits even perfect knowledge.
#[derive(Clone, Debug)]
pub struct OracleLimits {
    /// Slots of each compute node's cache.
    pub slots: usize,
    /// The rate that a link reached, each way.
    pub link: BytesPerSecond,
    /// Bytes of gradient traffic into each compute node in one step, from other nodes.
    pub allreduce_bytes_in: Bytes,
    /// Minibatches of one trainer.
    pub steps: u64,
    /// A step without data.
    pub bound_step: Duration,
    pub storage_nodes: usize,
}

/// Its wait is what the busiest link needs beyond the time that compute and all-reduce take anyway.
///
/// `wanted[node]` are the blocks and rows of that compute node's minibatches in order. Part p lies on storage node
/// `p % storage_nodes`.
#[must_use]
pub fn oracle(wanted: &[Vec<Vec<BlockRows>>], book: &PartitionBook, limits: &OracleLimits) -> Reference {
    let mut from_storage = vec![0_u64; limits.storage_nodes.max(1)];
    let mut into_compute = Vec::new();
    for node in wanted {
        let mut into = 0;
        for rows in belady(node, limits.slots).iter().flatten() {
            let Some(place) = book.block(rows.block) else { continue };
            let bytes = u64::from(rows.rows()) * u64::from(place.row_bytes);
            from_storage[place.part.index() % limits.storage_nodes.max(1)] += bytes;
            into += bytes;
        }
        into_compute.push(into + limits.allreduce_bytes_in.0 * limits.steps);
    }
    let busiest = from_storage.iter().chain(&into_compute).copied().max().unwrap_or(0);
    let bound_s = limits.bound_step.as_secs_f64() * limits.steps as f64;
    let total_s = limits.link.time_for(Bytes(busiest)).as_secs_f64().max(bound_s).max(1e-9);
    Reference {
        minibatches_per_s: limits.steps as f64 / total_s,
        wait_share: (total_s - bound_s) / total_s,
        bytes_moved: from_storage.iter().sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TrainerRun;
    use crate::report::tests::manifest;
    use crate::trainer::event::Step;
    use rudder_topology::BlockId;

    #[test]
    fn minibatches_are_ordered_by_their_end() {
        let trainer = |rank: u32, compute_node, ends: &[u64]| TrainerRun {
            rank: TrainerRank(rank),
            compute_node,
            steps: (0..)
                .zip(ends)
                .map(|(m, &at_ns)| Step { minibatch: MinibatchId(m), at_ns, ..Step::default() })
                .collect(),
            ..TrainerRun::default()
        };
        let trainers = vec![trainer(0, 0, &[10, 30]), trainer(1, 0, &[20, 25]), trainer(2, 1, &[5])];
        let run = Run { trainers, ..Run::default() };
        let order: Vec<Vec<(u32, u64)>> = interleaving(&run, 2)
            .into_iter()
            .map(|node| node.into_iter().map(|(rank, minibatch)| (rank.0, minibatch.0)).collect())
            .collect();
        assert_eq!(order, [vec![(0, 0), (1, 0), (1, 1), (0, 1)], vec![(2, 0)]]);
    }

    #[test]
    fn the_busiest_link_or_compute_decides() {
        // Two parts of two rows, 8 bytes a row, a row a block: blocks 0 and 1 on the first storage node.
        let book = PartitionBook::new(&manifest());
        let rows =
            |blocks: &[u32]| blocks.iter().map(|&b| BlockRows { block: BlockId(b), mask: 1 }).collect();
        let wanted = vec![vec![rows(&[0, 1]), rows(&[0, 2])]];
        let limits = |bound_ms, allreduce| OracleLimits {
            slots: 4,
            link: BytesPerSecond(100),
            allreduce_bytes_in: Bytes(allreduce),
            steps: 2,
            bound_step: Duration::from_millis(bound_ms),
            storage_nodes: 2,
        };
        // 24 bytes at 100 bytes a second beside 0.06 s of compute: three quarters of the time is waiting.
        let slow = oracle(&wanted, &book, &limits(30, 0));
        assert_eq!(slow.bytes_moved, 24);
        assert!((slow.wait_share - 0.75).abs() < 1e-9, "{slow:?}");
        assert!((slow.minibatches_per_s - 2.0 / 0.24).abs() < 1e-9, "{slow:?}");
        let fast = oracle(&wanted, &book, &limits(1000, 0));
        assert_eq!((fast.wait_share, fast.minibatches_per_s), (0.0, 1.0));
        let busy = oracle(&wanted, &book, &limits(30, 38));
        assert!((busy.minibatches_per_s - 2.0).abs() < 1e-9, "{busy:?}");
    }
}
