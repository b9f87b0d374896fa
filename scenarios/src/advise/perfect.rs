//! What perfect knowledge would reach in the topology's cluster.

use crate::record::Run;
use crate::report::Reference;
use crate::report::oracle::{OracleLink, OracleNode, interleaving, oracle_over};
use crate::sim::{Change, SimCompute, SimSpec};
use crate::workload::Workload;
use rudder_graph::BlockRows;
use rudder_topology::{Bytes, BytesPerSecond, NodeId, TableId};
use std::collections::BTreeMap;
use std::time::Duration;

/// The feature table that vertices index.
const TABLE: TableId = TableId(0);

/// The oracle over the order in which minibatches ended in `run`. Of a part with several replicas it may have all
/// their links at once, so only the compute node's own link limits it.
pub(super) fn perfect(spec: &SimSpec, run: &Run, workload: &Workload, bound: &Reference) -> Reference {
    let computes: Vec<(NodeId, &SimCompute)> = spec.compute_nodes().collect();
    let mut links = Links::new(spec, computes.len());
    let wanted: Vec<Vec<Vec<BlockRows>>> = interleaving(run, computes.len())
        .into_iter()
        .map(|node| node.into_iter().filter_map(|(rank, m)| workload.blocks(rank, m, &spec.book)).collect())
        .collect();
    let block = u64::from(spec.book.block_bytes(TABLE).unwrap_or_default()).max(1);
    let nodes: Vec<OracleNode<'_>> = computes
        .iter()
        .zip(&wanted)
        .map(|(&(node, compute), wanted)| OracleNode {
            wanted,
            slots: (compute.cache.0 / block) as usize,
            routes: compute.replicas.iter().map(|replicas| links.route(node, replicas)).collect(),
        })
        .collect();
    let step = Duration::from_secs_f64(1.0 / bound.minibatches_per_s.max(1e-9));
    oracle_over(&nodes, &spec.book, &links.found, spec.load.minibatches, step)
}

struct Links<'s> {
    spec: &'s SimSpec,
    /// Gradient traffic into each compute node in one step.
    gradients: Bytes,
    found: Vec<OracleLink>,
    /// A node's sending or receiving side, or what two nodes have for each other.
    positions: BTreeMap<(NodeId, Option<NodeId>, bool), usize>,
}

impl<'s> Links<'s> {
    fn new(spec: &'s SimSpec, compute_nodes: usize) -> Self {
        let trainers = u64::from(spec.trainers()).max(1);
        let shares = if compute_nodes > 1 { 2 * (trainers - 1) } else { 0 };
        let gradients = Bytes(spec.load.allreduce.0 * shares / trainers);
        Links { spec, gradients, found: Vec::new(), positions: BTreeMap::new() }
    }

    fn position(
        &mut self,
        key: (NodeId, Option<NodeId>, bool),
        rate: BytesPerSecond,
        gradients: Bytes,
    ) -> usize {
        let rate = BytesPerSecond((rate.0 as f64 / self.spec.costs.wire_factor) as u64);
        *self.positions.entry(key).or_insert_with(|| {
            self.found.push(OracleLink { rate, gradients });
            self.found.len() - 1
        })
    }

    /// `None` for a part that lies on the node's own machine.
    fn route(
        &mut self,
        node: NodeId,
        replicas: &[(NodeId, rudder_topology::LinkCost)],
    ) -> Option<Vec<usize>> {
        let spec = self.spec;
        let (storage, _) = *replicas.first()?;
        let mut route =
            vec![self.position((node, None, true), spec.nodes[node.index()].down, self.gradients)];
        if replicas.len() == 1 {
            route.push(self.position((storage, None, false), spec.nodes[storage.index()].up, Bytes(0)));
            let stated = spec.events.iter().find_map(|event| match event.what {
                Change::Link { between, rate }
                    if between == (storage, node) || between == (node, storage) =>
                {
                    Some(rate)
                }
                _ => None,
            });
            if let Some(rate) = stated {
                route.push(self.position((storage, Some(node), false), rate, Bytes(0)));
            }
        }
        Some(route)
    }
}
