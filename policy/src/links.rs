//! Storage nodes as a compute node sees them: reachable or not, and the permits for bytes in flight.

use crate::parameters::Parameters;
use rudder_graph::Class;
use rudder_topology::{
    BlockId, Bytes, BytesPerSecond, Generation, Limits, LinkCost, Nanos, NodeId, TransferId,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

mod rate;
mod windows;

pub use rate::DeliveryRate;
pub use windows::LinkWindow;

/// A storage node, seen over its link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    pub cost: LinkCost,
    /// The incarnation that is connected, if one is.
    pub up: Option<Generation>,
    /// Payload bytes of permits out.
    pub in_flight_bytes: u64,
    /// Of its permits, what may be used, in percent: see [`Parameters::link_shares`].
    pub share_percent: u8,
    /// Payload bytes that arrived over it.
    pub arrived_bytes: u64,
    /// How much may be in flight.
    pub window: LinkWindow,
    /// How fast rows really come.
    pub rate: DeliveryRate,
}

impl Link {
    /// Bytes per second by which replicas are compared: as rows came lately, where any did, else as the topology
    /// states; a link of which less may be used counts as that much slower.
    #[must_use]
    pub fn bandwidth(&self, now_ns: u64) -> BytesPerSecond {
        let stated = self.cost.bandwidth;
        let lately = self.rate.expected_bytes_per_s(stated.0 as f64, now_ns);
        let bandwidth = lately.map_or(stated, |rate| BytesPerSecond(rate.max(1.0) as u64));
        BytesPerSecond((u128::from(bandwidth.0) * u128::from(self.share_percent) / 100) as u64)
    }
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

/// So many percent, rounded down, without overflow.
fn percent(of: u64, percent: u64) -> u64 {
    of / 100 * percent + of % 100 * percent / 100
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
    node_max: u64,
    /// Of a link's usable permits, what prefetching may hold, in percent.
    prefetch_percent: u64,
    pub(crate) time_out: Nanos,
    next_transfer: u64,
}

impl Links {
    #[must_use]
    pub fn new(parts: &[Vec<(NodeId, LinkCost)>], block_max: Bytes, limits: &Limits) -> Self {
        let mut costs = BTreeMap::new();
        for &(node, cost) in parts.iter().flatten() {
            costs.entry(node).or_insert(cost);
        }
        let (node_max, windows) =
            windows::windows(&costs.values().copied().collect::<Vec<_>>(), block_max, limits);
        let link = |((node, cost), window)| {
            let link = Link {
                cost,
                up: None,
                in_flight_bytes: 0,
                share_percent: 100,
                arrived_bytes: 0,
                window,
                rate: DeliveryRate::default(),
            };
            (node, link)
        };
        let links = costs.into_iter().zip(windows).map(link).collect();
        Links {
            links,
            replicas: parts.iter().map(|part| part.iter().map(|&(node, _)| node).collect()).collect(),
            transfers: FxHashMap::default(),
            bad: FxHashSet::default(),
            in_flight_bytes: 0,
            node_max,
            prefetch_percent: 100,
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

    /// Takes over what directives set. What is in flight stays.
    pub(crate) fn set_parameters(&mut self, parameters: &Parameters) {
        self.prefetch_percent = parameters.posture.prefetch_percent();
        for (node, link) in &mut self.links {
            link.share_percent = parameters.link_shares.get(node).copied().unwrap_or(100);
        }
    }

    /// Bytes that may still depart on a link for this class.
    #[must_use]
    pub fn link_room(&self, node: NodeId, class: Class) -> u64 {
        self.links.get(&node).map_or(0, |link| {
            let usable = percent(link.window.in_flight_max, u64::from(link.share_percent));
            let usable = match class {
                Class::Demand => usable,
                Class::Prefetch => percent(usable, self.prefetch_percent),
            };
            usable.saturating_sub(link.in_flight_bytes)
        })
    }

    /// An idle link takes one transfer, however large its rows; none ahead of use where nothing may be prefetched.
    #[must_use]
    pub fn idle_takes(&self, class: Class) -> bool {
        class == Class::Demand || self.prefetch_percent > 0
    }

    /// Payload bytes of one transfer at most.
    #[must_use]
    pub fn transfer_max(&self, node: NodeId) -> u64 {
        self.links.get(&node).map_or(0, |link| link.window.transfer_max)
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

    /// Takes a transfer that ended out, and returns its permit. `None`: it ended before, or is another incarnation's.
    pub(crate) fn end(
        &mut self,
        id: TransferId,
        generation: Generation,
        arrived: bool,
        now_ns: u64,
    ) -> Option<InFlight> {
        self.transfers.get(&id).filter(|transfer| transfer.generation == generation)?;
        let transfer = self.transfers.remove(&id)?;
        self.return_permit(transfer.node, transfer.bytes);
        if let Some(link) = self.links.get_mut(&transfer.node) {
            let bytes = if arrived { transfer.bytes } else { 0 };
            link.arrived_bytes += bytes;
            link.rate.ended(now_ns, bytes, link.in_flight_bytes == 0);
        }
        Some(transfer)
    }

    fn return_permit(&mut self, node: NodeId, bytes: u64) {
        if let Some(link) = self.links.get_mut(&node) {
            debug_assert!(link.in_flight_bytes >= bytes);
            link.in_flight_bytes = link.in_flight_bytes.saturating_sub(bytes);
            self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
        }
    }

    /// Registers a transfer that departs.
    pub(crate) fn begin(&mut self, transfer: InFlight, now_ns: u64) -> TransferId {
        if let Some(link) = self.links.get_mut(&transfer.node) {
            link.rate.departed(now_ns);
        }
        let id = TransferId(self.next_transfer);
        self.next_transfer += 1;
        self.transfers.insert(id, transfer);
        id
    }
}
