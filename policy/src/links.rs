//! Storage nodes as a compute node sees them: reachable or not, and the permits for bytes in flight.

use crate::parameters::Parameters;
use rudder_graph::Class;
use rudder_topology::{
    BlockId, Bytes, BytesPerSecond, Generation, Limits, LinkCost, Nanos, NodeId, TransferId,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

mod rate;
mod rest;
mod windows;

pub use rate::DeliveryRate;
pub use rest::Rest;
pub use windows::LinkWindow;

/// A way to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    pub node: NodeId,
    /// Not what the node owns: its copies of what others own, see [`Parameters::through`]. Rows come as fast as it gets
    /// them, so permits and rates are apart from those of its own rows.
    pub staged: bool,
}

impl From<NodeId> for LinkId {
    fn from(node: NodeId) -> Self {
        LinkId { node, staged: false }
    }
}

impl std::fmt::Display for LinkId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.node, if self.staged { " (staged)" } else { "" })
    }
}

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
    /// While a staged way rests, `up` is `None`.
    pub rest: Rest,
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
    pub link: LinkId,
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
    links: BTreeMap<LinkId, Link>,
    /// Replicas per part, cheapest first.
    replicas: Vec<Vec<NodeId>>,
    /// The ways to each part: the same, but for owners in whose place another node is asked.
    sources: Vec<Vec<LinkId>>,
    /// Raised whenever `sources` changes.
    sources_version: u64,
    pub(crate) transfers: FxHashMap<TransferId, InFlight>,
    /// Copies that turned out corrupt or refused.
    bad: FxHashSet<(BlockId, LinkId)>,
    in_flight_bytes: u64,
    /// How fast rows come over all links together.
    rate: DeliveryRate,
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
                rest: Rest::default(),
            };
            (LinkId::from(node), link)
        };
        let links = costs.into_iter().zip(windows).map(link).collect();
        let replicas: Vec<Vec<NodeId>> =
            parts.iter().map(|part| part.iter().map(|&(node, _)| node).collect()).collect();
        Links {
            links,
            sources: sources(&replicas, &BTreeMap::new()),
            sources_version: 0,
            replicas,
            transfers: FxHashMap::default(),
            bad: FxHashSet::default(),
            in_flight_bytes: 0,
            rate: DeliveryRate::default(),
            node_max,
            prefetch_percent: 100,
            time_out: limits.transfer_timeout,
            next_transfer: 1,
        }
    }

    pub fn links(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.links.iter().map(|(&id, link)| (id, link))
    }

    #[must_use]
    pub fn link(&self, id: impl Into<LinkId>) -> Option<&Link> {
        self.links.get(&id.into())
    }

    /// The nodes that store a part, cheapest first.
    #[must_use]
    pub fn replicas(&self, part: rudder_topology::PartId) -> &[NodeId] {
        self.replicas.get(part.index()).map_or(&[], Vec::as_slice)
    }

    /// The ways to a part: the nodes that store it, cheapest first, or those that stage it in their place.
    /// Where none of them is up with a good copy, owners are asked all the same.
    #[must_use]
    pub fn sources(&self, part: rudder_topology::PartId) -> &[LinkId] {
        self.sources.get(part.index()).map_or(&[], Vec::as_slice)
    }

    /// Whether a part may be asked for this way.
    #[must_use]
    pub fn is_source(&self, part: rudder_topology::PartId, link: LinkId) -> bool {
        self.sources(part).contains(&link) || (!link.staged && self.replicas(part).contains(&link.node))
    }

    /// The ways to a block that are up with a good copy: those of [`Links::sources`], else the owners.
    pub fn good_sources(
        &self,
        part: rudder_topology::PartId,
        block: BlockId,
    ) -> impl Iterator<Item = (LinkId, &Link)> {
        let good = move |id: LinkId| {
            let link = self.link(id).filter(|link| link.up.is_some() && !self.is_bad(block, id))?;
            Some((id, link))
        };
        let ways = || self.sources(part).iter().copied().filter_map(good);
        let none = ways().next().is_none();
        let owners = self.replicas(part).iter().copied().map(LinkId::from);
        ways().chain(owners.filter(move |_| none).filter_map(good))
    }

    /// Another number whenever the ways to any part change.
    #[must_use]
    pub fn sources_version(&self) -> u64 {
        self.sources_version
    }

    /// Whether this copy of the block turned out corrupt or refused.
    #[must_use]
    pub fn is_bad(&self, block: BlockId, link: impl Into<LinkId>) -> bool {
        !self.bad.is_empty() && self.bad.contains(&(block, link.into()))
    }

    /// Takes over what directives set. What is in flight stays.
    pub(crate) fn set_parameters(&mut self, parameters: &Parameters) {
        self.prefetch_percent = parameters.posture.prefetch_percent();
        for (id, link) in &mut self.links {
            link.share_percent = parameters.link_shares.get(&id.node).copied().unwrap_or(100);
        }
        let mut through = parameters.through.clone();
        // Only what is connected already can be asked for more.
        through.retain(|_, node| self.links.contains_key(&LinkId::from(*node)));
        for (&owner, &node) in &through {
            let own = self.links[&LinkId::from(node)];
            // Until copies are seen to come faster, they are taken to come as the owner's rows did: what is dear to fetch
            // is not let go for a promise.
            let rate = self.link(owner).map_or(own.rate, |owner| owner.rate).afresh();
            let staged = Link { in_flight_bytes: 0, arrived_bytes: 0, rate, ..own };
            self.links.entry(LinkId { node, staged: true }).or_insert(staged);
        }
        let sources = sources(&self.replicas, &through);
        if sources != self.sources {
            self.sources = sources;
            self.sources_version += 1;
        }
    }

    /// Bytes that may still depart on a link for this class.
    #[must_use]
    pub fn link_room(&self, id: impl Into<LinkId>, class: Class) -> u64 {
        self.links.get(&id.into()).map_or(0, |link| {
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
    pub fn transfer_max(&self, id: impl Into<LinkId>) -> u64 {
        self.links.get(&id.into()).map_or(0, |link| link.window.transfer_max)
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

    /// Bytes per second that came over all links together while any had something under way. Links that share an
    /// interface each look slow while all are used.
    #[must_use]
    pub fn bytes_per_s(&self, now_ns: u64) -> Option<f64> {
        self.rate.bytes_per_s(now_ns)
    }

    pub(crate) fn set_up(&mut self, node: NodeId, generation: Option<Generation>) -> bool {
        let ways = [false, true].map(|staged| LinkId { node, staged });
        let mut known = false;
        for way in ways {
            if let Some(link) = self.links.get_mut(&way) {
                link.up = generation;
                link.rest.break_off();
                known = true;
            }
        }
        known
    }

    pub(crate) fn mark_bad(&mut self, block: BlockId, link: LinkId) {
        self.bad.insert((block, link));
    }

    /// A new incarnation may have repaired its copies.
    pub(crate) fn forget_bad(&mut self, node: NodeId) {
        self.bad.retain(|&(_, bad)| bad.node != node);
    }

    pub(crate) fn take_permit(&mut self, id: LinkId, bytes: u64) {
        if let Some(link) = self.links.get_mut(&id) {
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
        self.return_permit(transfer.link, transfer.bytes);
        let bytes = if arrived { transfer.bytes } else { 0 };
        self.rate.ended(now_ns, bytes, self.in_flight_bytes == 0);
        if let Some(link) = self.links.get_mut(&transfer.link) {
            link.arrived_bytes += bytes;
            link.rate.ended(now_ns, bytes, link.in_flight_bytes == 0);
            if arrived {
                link.rest.forget_losses();
            }
        }
        Some(transfer)
    }

    /// A way that is up brought nothing. A staged one rests then; returns until when.
    pub(crate) fn rest(&mut self, id: LinkId, now_ns: u64) -> Option<u64> {
        let link = self.links.get_mut(&id).filter(|_| id.staged)?;
        let connected = link.up.take()?;
        Some(link.rest.begin(connected, now_ns))
    }

    /// Ends the rests whose time has come. The nodes that may be asked again.
    pub(crate) fn end_rests(&mut self, now_ns: u64) -> Vec<NodeId> {
        let mut rested = vec![];
        for (id, link) in &mut self.links {
            if let Some(connected) = link.rest.end(now_ns) {
                link.up = Some(connected);
                rested.push(id.node);
            }
        }
        rested
    }

    pub(crate) fn next_rest_end(&self) -> Option<u64> {
        self.links.values().filter_map(|link| link.rest.until_ns()).min()
    }

    fn return_permit(&mut self, id: LinkId, bytes: u64) {
        if let Some(link) = self.links.get_mut(&id) {
            debug_assert!(link.in_flight_bytes >= bytes);
            link.in_flight_bytes = link.in_flight_bytes.saturating_sub(bytes);
            self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
        }
    }

    /// Registers a transfer that departs.
    pub(crate) fn begin(&mut self, transfer: InFlight, now_ns: u64) -> TransferId {
        if let Some(link) = self.links.get_mut(&transfer.link) {
            link.rate.departed(now_ns);
        }
        self.rate.departed(now_ns);
        let id = TransferId(self.next_transfer);
        self.next_transfer += 1;
        self.transfers.insert(id, transfer);
        id
    }
}

/// For each part the ways to it: each node that stores it, or the one that is asked instead.
fn sources(replicas: &[Vec<NodeId>], through: &BTreeMap<NodeId, NodeId>) -> Vec<Vec<LinkId>> {
    let ways = |owners: &Vec<NodeId>| {
        let mut ways: Vec<LinkId> = vec![];
        for &owner in owners {
            let way = match through.get(&owner) {
                Some(&node) if !owners.contains(&node) => LinkId { node, staged: true },
                _ => LinkId::from(owner),
            };
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        ways
    };
    replicas.iter().map(ways).collect()
}
