//! What one plan may still spend: permits and slots, less what its earlier steps take.

use crate::links::LinkId;
use crate::view::View;
use rudder_graph::Class;
use rudder_topology::{BlockId, Bytes, BytesPerSecond, Generation, Nanos, PartId, TableId};

#[derive(Default)]
pub(super) struct Budget {
    links: Vec<LinkBudget>,
    /// Per part the ways to it as indices into `links`, cheapest first, and of which version of them.
    sources: Vec<Vec<usize>>,
    sources_version: u64,
    /// Per part its owners, where they are not those ways: they are asked if nobody else can be.
    owners: Vec<Vec<usize>>,
    node_room: u64,
    node_idle: bool,
    /// Bytes per second that all links together brought lately.
    node_rate: f64,
    tables: Vec<TableBudget>,
}

struct LinkBudget {
    id: LinkId,
    room: u64,
    /// Of `room`, what is left for prefetching.
    prefetch_room: u64,
    idle: bool,
    prefetches: bool,
    /// Bytes in flight, and those that this plan adds.
    queue: u64,
    taken: u64,
    up: Option<Generation>,
    bandwidth: BytesPerSecond,
    transfer_max: u64,
    latency: Nanos,
}

#[derive(Clone, Copy)]
struct TableBudget {
    free: usize,
    evictable: usize,
}

/// Where a fetch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub link: usize,
    pub id: LinkId,
    pub generation: Generation,
}

impl LinkBudget {
    fn takes(&self, bytes: u64, class: Class) -> bool {
        let (room, idle) = match class {
            Class::Demand => (self.room, self.idle),
            Class::Prefetch => (self.prefetch_room, self.idle && self.prefetches),
        };
        self.up.is_some() && (bytes <= room || (idle && self.taken == 0))
    }

    /// When `bytes` more would be here, in nanoseconds from now.
    fn finish_ns(&self, bytes: u64) -> u64 {
        let sent = self.bandwidth.time_for(Bytes(self.queue + bytes));
        sent.0.saturating_add(self.latency.0)
    }
}

impl Budget {
    /// A new plan begins, on the facts as they are.
    pub fn renew(&mut self, view: &View, now_ns: u64) {
        self.links.clear();
        let node_idle = view.links.in_flight_bytes() == 0;
        self.links.extend(view.links.links().map(|(id, link)| {
            let idle = link.in_flight_bytes == 0;
            let room = |class| view.links.link_room(id, class);
            // Small change is saved up: a small transfer would leave small room when it ends, and so on for ever.
            let least = link.window.transfer_max / 2;
            let worth = |room: u64| if idle || room >= least { room } else { 0 };
            LinkBudget {
                id,
                room: worth(room(Class::Demand)),
                prefetch_room: worth(room(Class::Prefetch)),
                prefetches: view.links.idle_takes(Class::Prefetch),
                idle,
                queue: link.in_flight_bytes,
                taken: 0,
                up: link.up,
                bandwidth: link.bandwidth(now_ns),
                transfer_max: link.window.transfer_max,
                latency: link.cost.latency,
            }
        }));
        // Which nodes store a part never changes; which ones stage it does.
        if self.sources.is_empty() || self.sources_version != view.links.sources_version() {
            let at = |id: &LinkId| self.links.iter().position(|link| link.id == *id);
            let parts = (0..view.book.parts()).map(|part| PartId(part as u16));
            self.sources =
                parts.clone().map(|part| view.links.sources(part).iter().filter_map(at).collect()).collect();
            let owners = parts.map(|part| {
                let owners = view.links.replicas(part).iter().copied().map(LinkId::from);
                let differ = view.links.sources(part).iter().any(|id| id.staged);
                owners.filter(|_| differ).filter_map(|id| at(&id)).collect()
            });
            self.owners = owners.collect();
            self.sources_version = view.links.sources_version();
        }
        let least = self.links.iter().map(|link| link.transfer_max / 2).min().unwrap_or(0);
        let room = view.links.node_room();
        self.node_room = if node_idle || room >= least { room } else { 0 };
        self.node_idle = node_idle;
        self.node_rate = view.links.bytes_per_s(now_ns).unwrap_or(0.0);
        self.tables.clear();
        self.tables.extend((0..view.book.tables()).map(|table| {
            let table = TableId(table as u16);
            TableBudget { free: view.cache.free_slots(table), evictable: view.cache.evictable_slots(table) }
        }));
    }

    /// Bytes per second of the fastest link that is up, or of all together where that was more; and bytes that make a
    /// good transfer on it.
    pub fn capacity(&self) -> (f64, u64) {
        let up = self.links.iter().filter(|link| link.up.is_some());
        let fastest = up.max_by_key(|link| link.bandwidth);
        fastest.map_or((0.0, 0), |link| ((link.bandwidth.0 as f64).max(self.node_rate), link.transfer_max))
    }

    /// No link takes any more.
    pub fn is_spent(&self) -> bool {
        self.node_room == 0 || self.links.iter().all(|link| link.up.is_none() || link.room == 0)
    }

    /// What the link would take for what is in flight and `bytes` more.
    pub fn queue_ns(&self, link: usize, bytes: u64) -> u64 {
        let link = &self.links[link];
        link.bandwidth.time_for(Bytes(link.queue + bytes)).0
    }

    pub fn links(&self) -> usize {
        self.links.len()
    }

    pub fn free_slots(&self, table: TableId) -> usize {
        self.tables[table.index()].free
    }

    /// Slots whose blocks may go, less those that this plan takes.
    pub fn evictable_slots(&self, table: TableId) -> usize {
        self.tables[table.index()].evictable
    }

    /// A step of this plan pins or evicts so many of them.
    pub fn take_evictable(&mut self, table: TableId, slots: usize) {
        let evictable = &mut self.tables[table.index()].evictable;
        *evictable = evictable.saturating_sub(slots);
    }

    /// A step of this plan evicts a block, and no other step has the slot yet.
    pub fn give_slot(&mut self, table: TableId) {
        self.tables[table.index()].free += 1;
    }

    pub fn take_slots(&mut self, table: TableId, slots: usize) {
        let free = &mut self.tables[table.index()].free;
        *free = free.saturating_sub(slots);
    }

    pub fn take_slot(&mut self, table: TableId) -> bool {
        let free = &mut self.tables[table.index()].free;
        let had = *free > 0;
        *free = free.saturating_sub(1);
        had
    }

    /// Bytes per second of all links that are up.
    pub fn bandwidth(&self) -> f64 {
        self.links.iter().filter(|link| link.up.is_some()).map(|link| link.bandwidth.0 as f64).sum()
    }

    /// The way to a part that would deliver first, among those that are up and have a good copy. Where that one has no
    /// permits left, another that would deliver by `due_ns` from now; else it is worth waiting for.
    #[inline]
    pub fn source(
        &self,
        part: PartId,
        block: BlockId,
        (bytes, class): (u64, Class),
        due_ns: u64,
        view: &View,
    ) -> Option<Source> {
        if bytes > self.node_room && !self.node_idle {
            return None;
        }
        let is_good = |&link: &usize| !view.links.is_bad(block, self.links[link].id);
        let mut sources = self.sources.get(part.index())?;
        let owners = &self.owners[part.index()];
        if !owners.is_empty() && !sources.iter().any(|link| self.links[*link].up.is_some() && is_good(link)) {
            sources = owners;
        }
        let sources = sources.iter().copied().filter(is_good);
        let link = self.soonest(sources, (bytes, class), due_ns)?;
        let LinkBudget { id, up, .. } = self.links[link];
        Some(Source { link, id, generation: up? })
    }

    #[inline]
    fn soonest(
        &self,
        sources: impl Iterator<Item = usize>,
        (bytes, class): (u64, Class),
        due_ns: u64,
    ) -> Option<usize> {
        let takes = |link: usize| self.links[link].takes(bytes, class);
        let mut up = sources.filter(|&link| self.links[link].up.is_some());
        let (first, second) = (up.next()?, up.next());
        if second.is_none() {
            return takes(first).then_some(first);
        }
        let (mut best_ns, mut taking) = (u64::MAX, None);
        for link in [first].into_iter().chain(second).chain(up) {
            let finish_ns = self.links[link].finish_ns(bytes);
            best_ns = best_ns.min(finish_ns);
            if takes(link) && taking.is_none_or(|(least_ns, _)| finish_ns < least_ns) {
                taking = Some((finish_ns, link));
            }
        }
        taking.filter(|&(finish_ns, _)| finish_ns <= due_ns.max(best_ns)).map(|(_, link)| link)
    }

    #[inline]
    pub fn take_bytes(&mut self, link: usize, bytes: u64) {
        self.node_room = self.node_room.saturating_sub(bytes);
        self.node_idle = false;
        let link = &mut self.links[link];
        link.room = link.room.saturating_sub(bytes);
        link.prefetch_room = link.prefetch_room.saturating_sub(bytes);
        link.queue += bytes;
        link.taken += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, book, trainer};
    use rudder_topology::{NodeId, PolicySpec};

    /// Of a rate in bytes per millisecond, with room for so many bytes.
    fn link(rate: u64, room: u64, queue: u64) -> LinkBudget {
        LinkBudget {
            id: LinkId::from(NodeId(0)),
            room,
            prefetch_room: room,
            idle: queue == 0,
            prefetches: true,
            queue,
            taken: 0,
            up: Some(Generation(1)),
            bandwidth: BytesPerSecond(rate * 1000),
            transfer_max: 1000,
            latency: Nanos(0),
        }
    }

    fn soonest(links: Vec<LinkBudget>, due_ms: u64) -> Option<usize> {
        let count = links.len();
        let budget = Budget { links, ..Budget::default() };
        budget.soonest(0..count, (100, Class::Prefetch), due_ms * 1_000_000)
    }

    #[test]
    fn a_slow_replica_is_used_only_where_it_is_in_time() {
        // The fast one could deliver after 11 ms, the slow one after 100 ms.
        let links = |room| vec![link(1, 1000, 0), link(100, room, 1000)];
        assert_eq!(soonest(links(1000), 0), Some(1));
        assert_eq!(soonest(links(0), 0), None, "the fast one is worth waiting for");
        assert_eq!(soonest(links(0), 99), None);
        assert_eq!(soonest(links(0), 100), Some(0), "in time all the same");
        // As fast as the other: nothing to wait for.
        assert_eq!(soonest(vec![link(100, 1000, 1000), link(100, 0, 1000)], 0), Some(0));
    }

    #[test]
    fn who_is_down_is_not_waited_for() {
        let down = LinkBudget { up: None, ..link(1000, 1000, 0) };
        assert_eq!(soonest(vec![down, link(1, 1000, 0)], 0), Some(1));
        assert_eq!(soonest(vec![link(1, 0, 100)], 1000), None, "no permits");
        assert_eq!(soonest(vec![], 1000), None);
    }

    #[test]
    fn links_that_share_an_interface_are_taken_together() {
        let mut world = World::new(book(4000, 2, 4), 400 * 64, PolicySpec::RUDDER, &[]);
        world.connect(trainer(0));
        world.announce(trainer(0), 0, vec![(TableId(0), (0..400).chain(2000..2400).collect())]);
        world.want(trainer(0), 0);
        // A transfer every 5 ms, over either link in turn.
        for count in 0..24 {
            let node = NodeId(count % 2);
            let at = world.in_flight.iter().position(|transfer| transfer.link().node == node);
            world.now_ns += 5_000_000;
            world.arrive(at.expect("both links are in use"));
        }
        let view = world.engine.view();
        let mut budget = Budget::default();
        budget.renew(&view, world.now_ns);
        let alone = budget.links.iter().map(|link| link.bandwidth.0).max().unwrap() as f64;
        let (together, _) = budget.capacity();
        assert!((together / alone - 2.0).abs() < 0.2, "{together} bytes per second, {alone} of one link");
    }
}
