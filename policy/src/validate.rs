//! The validator: one function and one typed refusal for each hard rule. It trusts no planner.

use crate::links::LinkId;
use crate::step::{Admission, Fetch, Refusal};
use crate::view::View;
use crate::window::{EntryId, Phase};
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, Generation, PartId, TableId};
use std::ops::Range;

/// Judges the admissions of one fetch, one after the other: what is the same for many is looked up once.
pub(crate) struct Admissions {
    alive: Result<(), Refusal>,
    /// Bytes that the link's and the node's permits leave; an idle link, and an idle node, take one transfer however
    /// large.
    link_room: u64,
    node_room: u64,
    link_idle: bool,
    node_idle: bool,
    near: Option<Near>,
}

/// The part that holds the last block.
struct Near {
    blocks: Range<u32>,
    table: TableId,
    row_bytes: u32,
    full_mask: u64,
    /// Of the part's last block, which may be short.
    last_mask: u64,
    replica: Result<(), Refusal>,
}

impl Near {
    fn new(block: BlockId, link: LinkId, view: &View) -> Result<Self, Refusal> {
        let place = view.book.block(block).ok_or(Refusal::UnknownBlock)?;
        let blocks = view.book.part_blocks(place.table, place.part);
        let mask = |block| view.book.block(BlockId(block)).map_or(0, |place| place.full_mask());
        Ok(Near {
            full_mask: mask(blocks.start),
            last_mask: mask(blocks.end - 1),
            blocks,
            table: place.table,
            row_bytes: place.row_bytes,
            replica: replica(place.part, link, view),
        })
    }
}

impl Admissions {
    pub fn new(fetch: &Fetch, view: &View) -> Self {
        Admissions {
            alive: alive(fetch.link(), fetch.generation, view),
            link_room: view.links.link_room(fetch.link(), fetch.class),
            node_room: view.links.node_room(),
            link_idle: view.links.link(fetch.link()).is_some_and(|link| link.in_flight_bytes == 0)
                && view.links.idle_takes(fetch.class),
            node_idle: view.links.in_flight_bytes() == 0,
            near: None,
        }
    }

    /// Judges one against the facts as they are. The bytes of a row if it is accepted.
    #[inline]
    pub fn judge(&mut self, admission: Admission, link: LinkId, view: &View) -> Result<u32, Refusal> {
        let Admission { rows, evict } = admission;
        let BlockRows { block, mask } = rows;
        if !self.near.as_ref().is_some_and(|near| near.blocks.contains(&block.0)) {
            self.near = Some(Near::new(block, link, view)?);
        }
        let Some(near) = &self.near else { return Err(Refusal::UnknownBlock) };
        let full_mask = if block.0 + 1 == near.blocks.end { near.last_mask } else { near.full_mask };
        if mask == 0 || mask & !full_mask != 0 {
            return Err(Refusal::UnknownRows);
        }
        near.replica?;
        if view.links.is_bad(block, link) {
            return Err(Refusal::NotAReplica);
        }
        self.alive?;
        if mask & view.cache.in_flight(block) != 0 {
            return Err(Refusal::AlreadyInFlight);
        }
        if mask & !view.cache.valid(block) == 0 {
            return Err(Refusal::AlreadyResident);
        }
        // Whatever has its minibatch reserved must come all the same.
        if view.cache.is_stranded(block) && !view.cache.is_pinned(block) {
            return Err(Refusal::Capacity);
        }
        if let Some(victim) = evict {
            evictable(victim, view)?;
            if victim == block || view.cache.table_of(victim) != near.table {
                return Err(Refusal::Capacity);
            }
        } else if !view.cache.has_slot(block) && view.cache.free_slots(near.table) == 0 {
            return Err(Refusal::Capacity);
        }
        let bytes = u64::from(rows.rows()) * u64::from(near.row_bytes);
        if bytes > self.link_room && !self.link_idle {
            return Err(Refusal::LinkBudget);
        }
        if bytes > self.node_room && !self.node_idle {
            return Err(Refusal::NodeBudget);
        }
        Ok(near.row_bytes)
    }

    /// An accepted admission takes its permit.
    #[inline]
    pub fn take(&mut self, bytes: u64) {
        self.link_room = self.link_room.saturating_sub(bytes);
        self.node_room = self.node_room.saturating_sub(bytes);
        self.link_idle &= bytes == 0;
        self.node_idle &= bytes == 0;
    }
}

/// The node holds the part, or stages it.
fn replica(part: PartId, link: LinkId, view: &View) -> Result<(), Refusal> {
    match view.links.replicas(part) {
        [] => Err(Refusal::Local),
        _ if view.links.is_source(part, link) => Ok(()),
        _ => Err(Refusal::NotAReplica),
    }
}

fn alive(link: LinkId, generation: Generation, view: &View) -> Result<(), Refusal> {
    match view.links.link(link).and_then(|link| link.up) {
        None => Err(Refusal::DeadNode),
        Some(up) if up != generation => Err(Refusal::StaleGeneration),
        Some(_) => Ok(()),
    }
}

/// The block may go.
pub(crate) fn evictable(block: BlockId, view: &View) -> Result<(), Refusal> {
    if !view.cache.has_slot(block) {
        Err(Refusal::NotResident)
    } else if view.cache.is_pinned(block) {
        Err(Refusal::Pinned)
    } else if view.cache.in_flight(block) != 0 {
        Err(Refusal::AlreadyInFlight)
    } else if view.cache.is_stranded(block) {
        Err(Refusal::Capacity)
    } else {
        Ok(())
    }
}

/// All of the minibatch can be pinned, once these victims are gone.
pub(crate) fn reserve(id: EntryId, evict: &[BlockId], view: &View) -> Result<(), Refusal> {
    let entry = view.window.entry(id).ok_or(Refusal::UnknownMinibatch)?;
    if entry.phase != Phase::Announced {
        return Err(Refusal::AlreadyReserved);
    }
    let ahead = view.window.queue(entry.trainer).position(|queued| queued == id);
    if ahead.is_none_or(|ahead| ahead > view.ready_ahead as usize) {
        return Err(Refusal::ReadyAhead);
    }
    for &victim in evict {
        evictable(victim, view)?;
        if entry.blocks.binary_search_by_key(&victim, |rows| rows.block).is_ok() {
            return Err(Refusal::Capacity);
        }
    }
    let mut sorted = evict.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != evict.len() {
        return Err(Refusal::NotResident);
    }
    for table in entry.segments.chunk_by(|a, b| a.table == b.table) {
        let blocks = &entry.blocks[table[0].start as usize..table[table.len() - 1].end as usize];
        let standing = view.cache.standing(blocks);
        if standing.unpinnable {
            return Err(Refusal::Capacity);
        }
        let class = table[0].table;
        let freed = evict.iter().filter(|&&v| view.book.block(v).is_some_and(|v| v.table == class)).count();
        if standing.without_slot > view.cache.free_slots(class) + freed {
            return Err(Refusal::Capacity);
        }
    }
    Ok(())
}

/// The minibatch may pass by the cache.
pub(crate) fn bypass(id: EntryId, view: &View) -> Result<(), Refusal> {
    let entry = view.window.entry(id).ok_or(Refusal::UnknownMinibatch)?;
    if entry.phase != Phase::Announced {
        return Err(Refusal::AlreadyReserved);
    }
    let ahead = view.window.queue(entry.trainer).position(|queued| queued == id);
    if ahead.is_none_or(|ahead| ahead > view.ready_ahead as usize) {
        return Err(Refusal::ReadyAhead);
    }
    if !view.window.is_next(id) {
        return Err(Refusal::NotNext);
    }
    Ok(())
}
