//! The validator: one function and one typed refusal for each hard rule. It trusts no planner.

use crate::cache::PINS_MAX;
use crate::step::{Admission, Fetch, Refusal};
use crate::view::View;
use crate::window::{EntryId, Phase};
use rudder_graph::{BlockPlace, Class};
use rudder_topology::{BlockId, Generation, NodeId};

/// Judges one admission of a fetch against the facts as they are; tells where its block lies.
pub(crate) fn admission(fetch: &Fetch, admission: Admission, view: &View) -> Result<BlockPlace, Refusal> {
    let Admission { rows, evict } = admission;
    let place = view.book.block(rows.block).ok_or(Refusal::UnknownBlock)?;
    if rows.mask == 0 || rows.mask & !place.full_mask() != 0 {
        return Err(Refusal::UnknownRows);
    }
    replica(rows.block, fetch.node, view)?;
    alive(fetch.node, fetch.generation, view)?;
    if rows.mask & view.cache.in_flight(rows.block) != 0 {
        return Err(Refusal::AlreadyInFlight);
    }
    if rows.mask & !view.cache.valid(rows.block) == 0 {
        return Err(Refusal::AlreadyResident);
    }
    if let Some(victim) = evict {
        evictable(victim, view)?;
        if victim == rows.block || view.book.block(victim).map(|v| v.table) != Some(place.table) {
            return Err(Refusal::Capacity);
        }
    } else if view.cache.slot_of(rows.block).is_none() && view.cache.free_slots(place.table) == 0 {
        return Err(Refusal::Capacity);
    }
    permits(fetch.node, fetch.class, u64::from(rows.rows()) * u64::from(place.row_bytes), view)?;
    Ok(place)
}

/// The node holds the block's part, and its copy is not known to be bad.
fn replica(block: BlockId, node: NodeId, view: &View) -> Result<(), Refusal> {
    let place = view.book.block(block).ok_or(Refusal::UnknownBlock)?;
    let replicas = view.links.replicas(place.part);
    if replicas.is_empty() {
        return Err(Refusal::Local);
    }
    if !replicas.contains(&node) || view.links.is_bad(block, node) {
        return Err(Refusal::NotAReplica);
    }
    Ok(())
}

fn alive(node: NodeId, generation: Generation, view: &View) -> Result<(), Refusal> {
    match view.links.link(node).and_then(|link| link.up) {
        None => Err(Refusal::DeadNode),
        Some(up) if up != generation => Err(Refusal::StaleGeneration),
        Some(_) => Ok(()),
    }
}

/// Bytes fit the link's and the node's permits; an idle link takes one transfer however large.
fn permits(node: NodeId, class: Class, bytes: u64, view: &View) -> Result<(), Refusal> {
    let idle = view.links.link(node).is_some_and(|link| link.in_flight_bytes == 0);
    if bytes > view.links.link_room(node, class) && !(idle && view.links.idle_takes(class)) {
        return Err(Refusal::LinkBudget);
    }
    if bytes > view.links.node_room() && view.links.in_flight_bytes() > 0 {
        return Err(Refusal::NodeBudget);
    }
    Ok(())
}

/// The block may go.
pub(crate) fn evictable(block: BlockId, view: &View) -> Result<(), Refusal> {
    if view.cache.slot_of(block).is_none() {
        Err(Refusal::NotResident)
    } else if view.cache.is_pinned(block) {
        Err(Refusal::Pinned)
    } else if view.cache.in_flight(block) != 0 {
        Err(Refusal::AlreadyInFlight)
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
        let need = blocks.iter().filter(|rows| !view.cache.has_slot(rows.block)).count();
        if blocks.iter().any(|rows| view.cache.pins(rows.block) == PINS_MAX) {
            return Err(Refusal::Capacity);
        }
        let class = table[0].table;
        let freed = evict.iter().filter(|&&v| view.book.block(v).is_some_and(|v| v.table == class)).count();
        if need > view.cache.free_slots(class) + freed {
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
    if view.window.queue(entry.trainer).next() != Some(id) {
        return Err(Refusal::NotOldest);
    }
    Ok(())
}
