//! Costs between nodes, on a petgraph graph of the file's links. Only stated links are in the graph, so a thousand
//! nodes with a default link cost nothing.

use crate::cluster::LinkCost;
use crate::ids::{MachineName, NodeId};
use crate::units::{Bytes, BytesPerSecond, Nanos};
use petgraph::algo::dijkstra;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::{Bfs, EdgeRef, Reversed};
use std::ops::Add;
use std::sync::OnceLock;

/// A node to itself: memory.
const SAME_NODE: LinkCost = LinkCost { bandwidth: BytesPerSecond(u64::MAX), latency: Nanos(0) };

/// Two nodes of one machine, where the file states no link: loopback.
const SAME_MACHINE: LinkCost =
    LinkCost { bandwidth: BytesPerSecond::from_mbit(10_000), latency: Nanos(50_000) };

/// What a route is compared by: the time for 1 MiB. A stated link between two nodes is always their route; else the
/// default link; else, on one machine, loopback; else the cheapest chain of stated links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    links: DiGraph<MachineName, LinkCost>,
    default_link: Option<LinkCost>,
    /// Per destination, filled when first asked for: a node process asks for its own row only.
    chains: Vec<OnceLock<Vec<Option<LinkCost>>>>,
}

impl Routes {
    pub(crate) fn new(machines: Vec<MachineName>, default_link: Option<LinkCost>) -> Routes {
        let chains = machines.iter().map(|_| OnceLock::new()).collect();
        let mut links = DiGraph::with_capacity(machines.len(), 0);
        for machine in machines {
            links.add_node(machine);
        }
        Routes { links, default_link, chains }
    }

    /// Adds a directed link; both nodes exist.
    pub(crate) fn link(&mut self, from: NodeId, to: NodeId, cost: LinkCost) {
        self.links.add_edge(index(from), index(to), cost);
    }

    pub(crate) fn default_link(&self) -> Option<LinkCost> {
        self.default_link
    }

    /// The stated links, in the order of the file.
    pub(crate) fn stated(&self) -> impl Iterator<Item = (NodeId, NodeId, LinkCost)> + '_ {
        self.links
            .edge_references()
            .map(|edge| (node_id(edge.source()), node_id(edge.target()), *edge.weight()))
    }

    pub(crate) fn cost(&self, from: NodeId, to: NodeId) -> Option<LinkCost> {
        let (a, b) = (index(from), index(to));
        let (machine_a, machine_b) = (self.links.node_weight(a)?, self.links.node_weight(b)?);
        if from == to {
            return Some(SAME_NODE);
        }
        if let Some(edge) = self.links.find_edge(a, b) {
            return self.links.edge_weight(edge).copied();
        }
        if self.default_link.is_some() {
            return self.default_link;
        }
        if machine_a == machine_b {
            return Some(SAME_MACHINE);
        }
        let row = self.chains[to.index()].get_or_init(|| self.chains_to(b));
        row.get(from.index()).copied().flatten()
    }

    /// Whether each node reaches `to`, without a default link; nothing is kept.
    pub(crate) fn reaching(&self, to: NodeId) -> Vec<bool> {
        let links = Reversed(&self.links);
        let mut reaching = vec![false; self.links.node_count()];
        let mut walk = Bfs::new(links, index(to));
        while let Some(node) = walk.next(links) {
            reaching[node.index()] = true;
        }
        let machine = self.links.node_weight(index(to));
        for node in self.links.node_indices() {
            reaching[node.index()] |= self.links.node_weight(node) == machine;
        }
        reaching
    }

    fn chains_to(&self, to: NodeIndex) -> Vec<Option<LinkCost>> {
        let mut row = vec![None; self.links.node_count()];
        let found = dijkstra(Reversed(&self.links), to, None, |edge| Chain::of(*edge.weight()));
        for (node, chain) in found {
            row[node.index()] = Some(LinkCost { bandwidth: chain.bandwidth, latency: chain.latency });
        }
        row
    }
}

fn index(node: NodeId) -> NodeIndex {
    NodeIndex::new(node.index())
}

fn node_id(index: NodeIndex) -> NodeId {
    // The graph has as many nodes as the file, at most a few thousand, so this never saturates.
    NodeId(u16::try_from(index.index()).unwrap_or(u16::MAX))
}

/// A chain of links: as slow as its slowest, as late as all together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Chain {
    time: Nanos,
    latency: Nanos,
    bandwidth: BytesPerSecond,
}

impl Chain {
    fn of(link: LinkCost) -> Chain {
        let moving = link.bandwidth.time_for(Bytes::MIB);
        Chain {
            time: Nanos(moving.0.saturating_add(link.latency.0)),
            latency: link.latency,
            bandwidth: link.bandwidth,
        }
    }
}

impl Default for Chain {
    fn default() -> Self {
        Chain { time: Nanos(0), latency: Nanos(0), bandwidth: BytesPerSecond(u64::MAX) }
    }
}

impl Add for Chain {
    type Output = Chain;
    fn add(self, next: Chain) -> Chain {
        Chain {
            time: Nanos(self.time.0.saturating_add(next.time.0)),
            latency: Nanos(self.latency.0.saturating_add(next.latency.0)),
            bandwidth: self.bandwidth.min(next.bandwidth),
        }
    }
}

impl PartialOrd for Chain {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some((self.time, self.latency, self.bandwidth).cmp(&(other.time, other.latency, other.bandwidth)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cost(mbit: u64) -> LinkCost {
        LinkCost { bandwidth: BytesPerSecond::from_mbit(mbit), latency: Nanos::from_millis(1) }
    }

    fn machines(n: u16) -> Vec<MachineName> {
        (0..n).map(|i| MachineName::new(format!("m{i}")).unwrap()).collect()
    }

    #[test]
    fn a_stated_link_goes_before_default_and_chain() {
        let mut routes = Routes::new(machines(3), Some(cost(100)));
        routes.link(NodeId(0), NodeId(1), cost(10));
        assert_eq!(routes.cost(NodeId(0), NodeId(1)), Some(cost(10)));
        assert_eq!(routes.cost(NodeId(1), NodeId(0)), Some(cost(100)));
        assert_eq!(routes.cost(NodeId(2), NodeId(2)), Some(SAME_NODE));
        assert_eq!(routes.cost(NodeId(0), NodeId(9)), None);
    }

    #[test]
    fn without_a_default_the_cheapest_chain_counts() {
        let mut routes = Routes::new(machines(5), None);
        for (from, to, mbit) in [(0, 1, 100), (1, 3, 50), (0, 2, 1000), (2, 3, 1000)] {
            routes.link(NodeId(from), NodeId(to), cost(mbit));
        }
        let route = routes.cost(NodeId(0), NodeId(3)).unwrap();
        assert_eq!(route.bandwidth, BytesPerSecond::from_mbit(1000));
        assert_eq!(route.latency, Nanos::from_millis(2));
        assert_eq!(routes.cost(NodeId(3), NodeId(0)), None, "links are directed");
        assert_eq!(routes.cost(NodeId(0), NodeId(4)), None);
    }

    #[test]
    fn nodes_of_one_machine_reach_each_other() {
        let same = MachineName::new("m").unwrap();
        let routes = Routes::new(vec![same.clone(), same], None);
        assert_eq!(routes.cost(NodeId(0), NodeId(1)), Some(SAME_MACHINE));
    }

    proptest! {
        /// Against Floyd-Warshall over the same chains.
        #[test]
        fn chains_are_the_cheapest(links in prop::collection::vec((0u16..6, 0u16..6, 1u64..1000), 0..20)) {
            let mut routes = Routes::new(machines(6), None);
            let mut twin = vec![vec![None::<Chain>; 6]; 6];
            for &(from, to, mbit) in &links {
                if from != to && routes.links.find_edge(NodeIndex::new(from.into()), NodeIndex::new(to.into())).is_none() {
                    routes.link(NodeId(from), NodeId(to), cost(mbit));
                    twin[from as usize][to as usize] = Some(Chain::of(cost(mbit)));
                }
            }
            for k in 0..6 { for i in 0..6 { for j in 0..6 {
                if let (Some(a), Some(b)) = (twin[i][k], twin[k][j]) {
                    let through = a + b;
                    if i != j && twin[i][j].is_none_or(|now| through.time < now.time) {
                        twin[i][j] = Some(through);
                    }
                }
            }}}
            for i in 0..6u16 { for j in 0..6u16 {
                let direct = routes.links.find_edge(NodeIndex::new(i.into()), NodeIndex::new(j.into()));
                if i == j || direct.is_some() { continue; }
                let found = routes.cost(NodeId(i), NodeId(j));
                let expected = twin[i as usize][j as usize];
                prop_assert_eq!(found.is_some(), expected.is_some());
            }}
        }
    }
}
