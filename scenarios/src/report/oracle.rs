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

/// Perfect overlap: everything is fetched as early as a link lets it through, and no minibatch ends before its rows
/// have come. So the run takes as long as, for the worst minibatch k of the worst link, the bytes up to k need at the
/// link's rate and the steps after k need without data; never less than compute alone or a link alone.
///
/// `wanted[node]` are the blocks and rows of that compute node's minibatches in order. Part p lies on storage node
/// `p % storage_nodes`.
#[must_use]
pub fn oracle(wanted: &[Vec<Vec<BlockRows>>], book: &PartitionBook, limits: &OracleLimits) -> Reference {
    let steps = limits.steps as usize;
    let storage_nodes = limits.storage_nodes.max(1);
    // Bytes of each step on each link: out of storage nodes, then into compute nodes.
    let mut links = vec![vec![0_u64; steps]; storage_nodes + wanted.len()];
    let mut bytes_moved = 0;
    for (node, wanted) in wanted.iter().enumerate() {
        let per_step = wanted.len().div_ceil(steps.max(1)).max(1);
        for (at, fetched) in belady(wanted, limits.slots).iter().enumerate() {
            let step = (at / per_step).min(steps.saturating_sub(1));
            for rows in fetched {
                let Some(place) = book.block(rows.block) else { continue };
                let bytes = u64::from(rows.rows()) * u64::from(place.row_bytes);
                links[place.part.index() % storage_nodes][step] += bytes;
                links[storage_nodes + node][step] += bytes;
                bytes_moved += bytes;
            }
        }
    }
    let bound_step_s = limits.bound_step.as_secs_f64();
    let bound_s = bound_step_s * limits.steps as f64;
    let times = links.iter().enumerate().map(|(link, bytes)| {
        let gradients = if link < storage_nodes { Bytes(0) } else { limits.allreduce_bytes_in };
        link_time_s(bytes, gradients, limits.link, bound_step_s)
    });
    let total_s = times.fold(bound_s, f64::max).max(1e-9);
    Reference {
        minibatches_per_s: limits.steps as f64 / total_s,
        wait_share: (total_s - bound_s) / total_s,
        bytes_moved,
    }
}

/// How long the run takes if this link is all that holds it up. Each step ends with its gradients.
fn link_time_s(bytes_of_steps: &[u64], gradients: Bytes, rate: BytesPerSecond, bound_step_s: f64) -> f64 {
    let (mut bytes, mut longest_s) = (0, 0.0_f64);
    for (step, &more) in bytes_of_steps.iter().enumerate() {
        bytes += more;
        let steps_left = (bytes_of_steps.len() - step) as f64;
        longest_s = longest_s.max(rate.time_for(Bytes(bytes)).as_secs_f64() + steps_left * bound_step_s);
        bytes += gradients.0;
    }
    longest_s.max(rate.time_for(Bytes(bytes)).as_secs_f64())
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
        // 16 bytes for the first step, 8 for the second. The second starts after 0.24 s and takes 0.03 s.
        let slow = oracle(&wanted, &book, &limits(30, 0));
        assert_eq!(slow.bytes_moved, 24);
        assert!((slow.minibatches_per_s - 2.0 / 0.27).abs() < 1e-9, "{slow:?}");
        assert!((slow.wait_share - 0.21 / 0.27).abs() < 1e-9, "{slow:?}");
        // With much compute only the first step waits, for 0.16 s.
        let fast = oracle(&wanted, &book, &limits(1000, 0));
        assert!((fast.minibatches_per_s - 2.0 / 2.16).abs() < 1e-9, "{fast:?}");
        let busy = oracle(&wanted, &book, &limits(30, 38));
        assert!((busy.minibatches_per_s - 2.0).abs() < 1e-9, "{busy:?}");
        let nothing = oracle(&[vec![]], &book, &limits(30, 0));
        assert_eq!((nothing.wait_share, nothing.bytes_moved), (0.0, 0));
    }
}
