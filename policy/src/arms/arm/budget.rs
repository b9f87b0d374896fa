//! What one plan may still spend: permits and free slots, less what its earlier steps take.

use super::Source;
use crate::view::View;
use rudder_topology::{BlockId, NodeId, PartId, TableId};

pub(super) struct Budget {
    links: Vec<LinkBudget>,
    node_room: u64,
    node_idle: bool,
    free: Vec<usize>,
}

struct LinkBudget {
    node: NodeId,
    room: u64,
    idle: bool,
    taken: u64,
    up: bool,
}

impl Budget {
    pub fn new(view: &View) -> Self {
        let links = view.links.links().map(|(node, link)| LinkBudget {
            node,
            room: view.links.link_room(node),
            idle: link.in_flight_bytes == 0,
            taken: 0,
            up: link.up.is_some(),
        });
        let tables = (0..view.book.tables()).map(|t| TableId(t as u16));
        Budget {
            links: links.collect(),
            node_room: view.links.node_room(),
            node_idle: view.links.in_flight_bytes() == 0,
            free: tables.map(|table| view.cache.free_slots(table)).collect(),
        }
    }

    /// No link takes any more.
    pub fn is_spent(&self) -> bool {
        self.node_room == 0 || self.links.iter().all(|link| !link.up || link.room == 0)
    }

    pub fn free_slots(&self, table: TableId) -> usize {
        self.free[table.index()]
    }

    /// An earlier step of this plan evicts the block.
    pub fn give_slot(&mut self, block: BlockId, view: &View) {
        if let Some(place) = view.book.block(block) {
            self.free[place.table.index()] += 1;
        }
    }

    pub fn take_slots(&mut self, table: TableId, slots: usize) {
        let free = &mut self.free[table.index()];
        *free = free.saturating_sub(slots);
    }

    pub fn take_slot(&mut self, table: TableId) -> bool {
        let free = &mut self.free[table.index()];
        let had = *free > 0;
        *free = free.saturating_sub(1);
        had
    }

    /// The replica that would deliver first, among those that are up, have a good copy and permits left.
    pub fn replica(&self, part: PartId, block: BlockId, bytes: u64, view: &View) -> Option<Source> {
        let allowed = |link: &LinkBudget| {
            let fits = bytes <= link.room || (link.idle && link.taken == 0);
            link.up && fits && (bytes <= self.node_room || self.node_idle)
        };
        let replicas = view.links.replicas(part).iter().filter(|&&node| !view.links.is_bad(block, node));
        let links = replicas.filter_map(|&node| self.links.iter().find(|link| link.node == node));
        let mut allowed = links.filter(|link| allowed(link));
        let (first, second) = (allowed.next()?, allowed.next());
        let finish = |link: &&LinkBudget| view.links.finish_time(link.node, link.taken, bytes);
        let best = match second {
            None => first,
            Some(_) => [first].into_iter().chain(second).chain(allowed).min_by_key(finish)?,
        };
        Some((best.node, view.links.link(best.node)?.up?))
    }

    pub fn take_bytes(&mut self, node: NodeId, bytes: u64) {
        self.node_room = self.node_room.saturating_sub(bytes);
        self.node_idle = false;
        if let Some(link) = self.links.iter_mut().find(|link| link.node == node) {
            link.room = link.room.saturating_sub(bytes);
            link.taken += bytes;
        }
    }
}
