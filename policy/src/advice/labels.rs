//! How nodes are called towards an advisor: `C0` is the first compute node of the topology file, `S0` the first
//! storage node. A node that is both has two labels. Names stay outside: they are texts from outside.

use rudder_topology::{Cluster, NodeId};
use std::fmt;

/// The labels of one topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    compute: Vec<NodeId>,
    storage: Vec<NodeId>,
}

/// A node in one of its roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// Index into [`Labels::compute`].
    Compute(usize),
    /// Index into [`Labels::storage`].
    Storage(usize),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Compute(index) => write!(f, "C{index}"),
            Label::Storage(index) => write!(f, "S{index}"),
        }
    }
}

impl Labels {
    #[must_use]
    pub fn new(compute: Vec<NodeId>, storage: Vec<NodeId>) -> Self {
        Labels { compute, storage }
    }

    #[must_use]
    pub fn of(cluster: &Cluster) -> Self {
        let with = |role: fn(&rudder_topology::Node) -> bool| {
            cluster.nodes.iter().filter(|node| role(node)).map(|node| node.id).collect()
        };
        Labels { compute: with(|node| node.roles.compute), storage: with(|node| node.roles.storage) }
    }

    #[must_use]
    pub fn compute(&self) -> &[NodeId] {
        &self.compute
    }

    #[must_use]
    pub fn storage(&self) -> &[NodeId] {
        &self.storage
    }

    #[must_use]
    pub fn of_compute(&self, node: NodeId) -> Option<Label> {
        self.compute.iter().position(|&known| known == node).map(Label::Compute)
    }

    #[must_use]
    pub fn of_storage(&self, node: NodeId) -> Option<Label> {
        self.storage.iter().position(|&known| known == node).map(Label::Storage)
    }
}
