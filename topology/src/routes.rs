//! Costs between nodes, on a petgraph graph of the file's links.

use crate::cluster::LinkCost;
use crate::ids::NodeId;

#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    /// Row-major `nodes x nodes`.
    costs: Vec<Option<LinkCost>>,
    nodes: usize,
}

impl Routes {
    pub(crate) fn cost(&self, from: NodeId, to: NodeId) -> Option<LinkCost> {
        self.costs.get(from.index() * self.nodes + to.index()).copied().flatten()
    }
}
