//! Storage nodes as a compute node sees them: reachable or not, and the permits for bytes in flight.

use rudder_graph::Class;
use rudder_topology::{BlockId, Bytes, Generation, Limits, LinkCost, Nanos, NodeId, TransferId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// A storage node, seen over its link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    pub cost: LinkCost,
    /// The incarnation that is connected, if one is.
    pub up: Option<Generation>,
    /// Payload bytes of permits out.
    pub in_flight_bytes: u64,
}

/// A transfer that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub node: NodeId,
    pub generation: Generation,
    pub class: Class,
    pub bytes: u64,
    pub expires_ns: u64,
    pub purpose: Purpose,
}

/// What a transfer is for.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    Slots(Vec<rudder_graph::BlockRows>),
    /// A piece of a minibatch that passes by the cache: blocks `start..end` of it.
    Piece {
        entry: crate::window::EntryId,
        start: u32,
        end: u32,
    },
}

/// All links of a compute node, and what is in flight on them. Mutated only by the engine.
#[derive(Clone, Debug)]
pub struct Links {
    links: BTreeMap<NodeId, Link>,
    /// Replicas per part, cheapest first.
    replicas: Vec<Vec<NodeId>>,
    pub(crate) transfers: FxHashMap<TransferId, InFlight>,
    /// Copies that turned out corrupt or refused.
    bad: FxHashSet<(BlockId, NodeId)>,
    in_flight_bytes: u64,
    link_max: u64,
    node_max: u64,
    pub(crate) time_out: Nanos,
    next_transfer: u64,
}

impl Links {
    #[must_use]
    pub fn new(parts: &[Vec<(NodeId, LinkCost)>], limits: &Limits) -> Self {
        let mut links = BTreeMap::new();
        for &(node, cost) in parts.iter().flatten() {
            links.entry(node).or_insert(Link { cost, up: None, in_flight_bytes: 0 });
        }
        Links {
            links,
            replicas: parts.iter().map(|part| part.iter().map(|&(node, _)| node).collect()).collect(),
            transfers: FxHashMap::default(),
            bad: FxHashSet::default(),
            in_flight_bytes: 0,
            link_max: limits.link_in_flight_bytes.0,
            node_max: limits.node_in_flight_bytes.0,
            time_out: limits.transfer_timeout,
            next_transfer: 1,
        }
    }

    pub fn links(&self) -> impl Iterator<Item = (NodeId, &Link)> {
        self.links.iter().map(|(&node, link)| (node, link))
    }

    #[must_use]
    pub fn link(&self, node: NodeId) -> Option<&Link> {
        self.links.get(&node)
    }

    /// The nodes that store a part, cheapest first.
    #[must_use]
    pub fn replicas(&self, part: rudder_topology::PartId) -> &[NodeId] {
        self.replicas.get(part.index()).map_or(&[], Vec::as_slice)
    }

    /// Whether this node's copy of the block turned out corrupt or refused.
    #[must_use]
    pub fn is_bad(&self, block: BlockId, node: NodeId) -> bool {
        !self.bad.is_empty() && self.bad.contains(&(block, node))
    }

    /// Bytes that may still depart on a link. An idle link always takes one transfer, however large its rows.
    #[must_use]
    pub fn link_room(&self, node: NodeId) -> u64 {
        self.links.get(&node).map_or(0, |link| self.link_max.saturating_sub(link.in_flight_bytes))
    }

    /// Bytes that may still depart towards this compute node.
    #[must_use]
    pub fn node_room(&self) -> u64 {
        self.node_max.saturating_sub(self.in_flight_bytes)
    }

    /// Payload bytes in flight on all links.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// How long `bytes` more would take on a link with what is in flight before them.
    #[must_use]
    pub fn finish_time(&self, node: NodeId, ahead_bytes: u64, bytes: u64) -> Nanos {
        self.links.get(&node).map_or(Nanos(u64::MAX), |link| {
            let queue = link.in_flight_bytes + ahead_bytes + bytes;
            Nanos(link.cost.bandwidth.time_for(Bytes(queue)).0.saturating_add(link.cost.latency.0))
        })
    }

    pub(crate) fn set_up(&mut self, node: NodeId, generation: Option<Generation>) -> bool {
        match self.links.get_mut(&node) {
            Some(link) => {
                link.up = generation;
                true
            }
            None => false,
        }
    }

    pub(crate) fn mark_bad(&mut self, block: BlockId, node: NodeId) {
        self.bad.insert((block, node));
    }

    /// A new incarnation may have repaired its copies.
    pub(crate) fn forget_bad(&mut self, node: NodeId) {
        self.bad.retain(|&(_, bad)| bad != node);
    }

    pub(crate) fn take_permit(&mut self, node: NodeId, bytes: u64) {
        if let Some(link) = self.links.get_mut(&node) {
            link.in_flight_bytes += bytes;
            self.in_flight_bytes += bytes;
        }
    }

    pub(crate) fn return_permit(&mut self, node: NodeId, bytes: u64) {
        if let Some(link) = self.links.get_mut(&node) {
            debug_assert!(link.in_flight_bytes >= bytes);
            link.in_flight_bytes = link.in_flight_bytes.saturating_sub(bytes);
            self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
        }
    }

    pub(crate) fn begin(&mut self, transfer: InFlight) -> TransferId {
        let id = TransferId(self.next_transfer);
        self.next_transfer += 1;
        self.transfers.insert(id, transfer);
        id
    }
}
