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

/// What limits even perfect knowledge in a cluster whose links are all alike.
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

/// `wanted[node]` are the blocks and rows of that compute node's minibatches in order. Part p lies on storage node
/// `p % storage_nodes`.
#[must_use]
pub fn oracle(wanted: &[Vec<Vec<BlockRows>>], book: &PartitionBook, limits: &OracleLimits) -> Reference {
    let storage_nodes = limits.storage_nodes.max(1);
    let link = |gradients| OracleLink { rate: limits.link, gradients };
    let mut links = vec![link(Bytes(0)); storage_nodes];
    links.resize(storage_nodes + wanted.len(), link(limits.allreduce_bytes_in));
    let routes_of = |node: usize| {
        (0..book.parts()).map(|part| Some(vec![part % storage_nodes, storage_nodes + node])).collect()
    };
    let nodes: Vec<OracleNode<'_>> = wanted
        .iter()
        .enumerate()
        .map(|(node, wanted)| OracleNode { wanted, slots: limits.slots, routes: routes_of(node) })
        .collect();
    oracle_over(&nodes, book, &links, limits.steps, limits.bound_step)
}

/// A link, one way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OracleLink {
    /// Of payload.
    pub rate: BytesPerSecond,
    /// Bytes of gradient traffic on it in one step.
    pub gradients: Bytes,
}

/// What a compute node asks for.
#[derive(Clone, Debug)]
pub struct OracleNode<'w> {
    /// Blocks and rows of its minibatches in order.
    pub wanted: &'w [Vec<BlockRows>],
    /// Of its cache.
    pub slots: usize,
    /// By part: the links that its rows pass. `None`: the part lies on the node's own machine.
    pub routes: Vec<Option<Vec<usize>>>,
}

/// Perfect overlap: everything is fetched as early as a link lets it through, and no minibatch ends before its rows
/// have come. So the run takes as long as, for the worst minibatch k of the worst link, the bytes up to k need at the
/// link's rate and the steps after k need without data; never less than compute alone or a link alone.
///
/// `steps`: minibatches of one trainer; `bound_step`: one without data.
#[must_use]
pub fn oracle_over(
    nodes: &[OracleNode<'_>],
    book: &PartitionBook,
    links: &[OracleLink],
    steps: u64,
    bound_step: Duration,
) -> Reference {
    let steps_at_most = (steps as usize).max(1);
    let mut bytes_of_steps = vec![vec![0_u64; steps_at_most]; links.len()];
    let mut bytes_moved = 0;
    for node in nodes {
        let route = |rows: &BlockRows| {
            let place = book.block(rows.block)?;
            let route = node.routes.get(place.part.index())?.as_ref()?;
            Some((route, u64::from(rows.rows()) * u64::from(place.row_bytes)))
        };
        let remote = |minibatch: &Vec<BlockRows>| {
            minibatch.iter().filter(|rows| route(rows).is_some()).copied().collect::<Vec<_>>()
        };
        let wanted: Vec<Vec<BlockRows>> = node.wanted.iter().map(remote).collect();
        let per_step = wanted.len().div_ceil(steps_at_most).max(1);
        for (at, fetched) in belady(&wanted, node.slots).iter().enumerate() {
            let step = (at / per_step).min(steps_at_most - 1);
            for (route, bytes) in fetched.iter().filter_map(route) {
                for &link in route {
                    bytes_of_steps[link][step] += bytes;
                }
                bytes_moved += bytes;
            }
        }
    }
    let bound_step_s = bound_step.as_secs_f64();
    let bound_s = bound_step_s * steps as f64;
    let times = links
        .iter()
        .zip(&bytes_of_steps)
        .map(|(link, bytes)| link_time_s(bytes, link.gradients, link.rate, bound_step_s));
    let total_s = times.fold(bound_s, f64::max).max(1e-9);
    Reference {
        minibatches_per_s: steps as f64 / total_s,
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
        // The node has part 0 itself: blocks 0 and 1 are no traffic and take no room.
        let own = OracleNode { wanted: &wanted[0], slots: 1, routes: vec![None, Some(vec![0])] };
        let link = OracleLink { rate: BytesPerSecond(100), gradients: Bytes(0) };
        assert_eq!(oracle_over(&[own], &book, &[link], 2, Duration::from_millis(30)).bytes_moved, 8);
        let nothing = oracle(&[vec![]], &book, &limits(30, 0));
        assert_eq!((nothing.wait_share, nothing.bytes_moved), (0.0, 0));
    }
}
