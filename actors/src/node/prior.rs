//! What a policy has to know of the graph before training: read and computed once, when the node starts.

use super::config::NodeError;
use rudder_client::dataset::Dataset;
use rudder_graph::{PartitionBook, Split};
use rudder_policy::prior;
use rudder_topology::{self as topology, LinkCost, NodeId, PolicySpec};
use std::sync::Arc;

/// The prior of a policy that needs one, from the dataset's first graph and its training split (every vertex, where it
/// has none). The work is bounded by the policy's own parameters: one pass over the vertices for `degree`, over the
/// edges for MassiveGNN's halo, over the edges once a hop for `vip`, and as many epochs of sampling as `presc` says.
pub(super) fn of(
    policy: PolicySpec,
    dataset: &topology::Dataset,
    book: &PartitionBook,
    replicas: &[Vec<(NodeId, LinkCost)>],
) -> Result<Option<Arc<[f32]>>, NodeError> {
    if !prior::is_of_use(policy) {
        return Ok(None);
    }
    match from_graph(policy, dataset, book, replicas) {
        Err(error) if !prior::is_needed(policy) => {
            tracing::warn!(dataset = %dataset.name, %policy, "goes on without what the graph makes likely: {error}");
            Ok(None)
        }
        computed => computed,
    }
}

fn from_graph(
    policy: PolicySpec,
    dataset: &topology::Dataset,
    book: &PartitionBook,
    replicas: &[Vec<(NodeId, LinkCost)>],
) -> Result<Option<Arc<[f32]>>, NodeError> {
    let name = || dataset.name.clone();
    let opened = Dataset::open(&dataset.directory).map_err(|source| NodeError::Graph {
        policy: policy.name(),
        dataset: name(),
        source: Box::new(source),
    })?;
    let graph = opened.first_csc().ok_or_else(|| NodeError::NoGraph {
        policy: policy.name(),
        dataset: name(),
        path: dataset.directory.clone(),
    })?;
    let (vertices, edges) = (graph.vertices(), graph.edges());
    tracing::info!(dataset = %dataset.name, %policy, vertices, edges, "how often each block will be used is being computed");
    let train_ids = opened.split(Split::Train).unwrap_or_default();
    let remote: Vec<bool> = replicas.iter().map(|replicas| !replicas.is_empty()).collect();
    let prior = prior::of(policy, graph, book, train_ids, &remote);
    let expected = prior.iter().flat_map(|prior| prior.iter()).filter(|&&uses| uses > 0.0).count();
    tracing::info!(dataset = %dataset.name, %policy, blocks = book.blocks(), expected, "computed: blocks, and those expected to be used");
    Ok(prior)
}
