//! Minibatches that pass by the cache: what it lacks is fetched piece by piece, one piece in flight at a time, into the
//! trainer's private buffer. They pin what they find in the cache and wait for no slot, so whatever others hold, they
//! end.

use super::Engine;
use crate::links::{LinkId, Purpose};
use crate::step::{Command, Destination, Failure, Item, Reaction};
use crate::window::{Entry, EntryId, Phase, RowPlace, Segment};
use rudder_graph::location::{Location, PRIVATE_MAPPING};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{Bytes, Generation};

/// How far a minibatch is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub entry: EntryId,
    /// Index of the next block to fetch.
    next: u32,
    in_flight: bool,
}

impl Progress {
    pub fn new(entry: EntryId) -> Self {
        Progress { entry, next: 0, in_flight: false }
    }
}

/// What can be done for a minibatch now.
enum Next {
    Wait,
    Done,
    Fail,
    Fetch { link: LinkId, generation: Generation, end: u32 },
}

/// Blocks of a range of a minibatch that it did not find in the cache.
pub(super) fn lacking(entry: &Entry, start: u32, end: u32) -> impl Iterator<Item = BlockRows> {
    let range = start as usize..end as usize;
    let blocks = entry.blocks[range.clone()].iter().zip(&entry.in_cache[range]);
    blocks.filter(|(_, in_cache)| !**in_cache).map(|(&rows, _)| rows)
}

impl Engine {
    /// The minibatch passes by the cache from here on.
    pub(super) fn bypass(&mut self, id: EntryId) {
        let Some(entry) = self.facts.window.entry_mut(id) else { return };
        entry.phase = Phase::Bypass;
        entry.in_cache = vec![false; entry.blocks.len()];
        let blocks = entry.blocks.len() as u32;
        self.statistics.bypasses += 1;
        self.pieces.push(Progress::new(id));
        self.pin_found(id, 0, blocks);
    }

    /// Pins what a range of a minibatch finds in the cache.
    fn pin_found(&mut self, id: EntryId, start: u32, end: u32) {
        let Some(entry) = self.facts.window.entry_mut(id) else { return };
        for segment in &entry.segments {
            for at in start.max(segment.start)..end.min(segment.end) {
                let (rows, in_cache) = (entry.blocks[at as usize], &mut entry.in_cache[at as usize]);
                if !*in_cache && self.facts.cache.can_pin(rows) {
                    self.facts.cache.pin_all(&[rows], segment.table);
                    *in_cache = true;
                }
            }
        }
    }

    /// Starts what can be started, and ends what is complete.
    pub(super) fn next_pieces(&mut self, now_ns: u64, commands: &mut Vec<Command>) {
        for i in (0..self.pieces.len()).rev() {
            if self.pieces[i].in_flight {
                continue;
            }
            self.skip_found(i);
            let progress = self.pieces[i];
            match self.next_piece(&progress, now_ns) {
                Next::Wait => {}
                Next::Done => {
                    self.pieces.remove(i);
                    commands.extend(self.private_ready(progress.entry));
                }
                Next::Fail => {
                    let mut reaction = Reaction::default();
                    self.fail_entry(progress.entry, Failure::Corrupt, &mut reaction);
                    commands.append(&mut reaction.commands);
                }
                Next::Fetch { link, generation, end } => {
                    let start = self.pieces[i].next;
                    self.pin_found(progress.entry, start, end);
                    let Some(entry) = self.facts.window.entry(progress.entry) else { continue };
                    let item = |rows| Item { rows, to: Destination::Private };
                    let items: Vec<_> = lacking(entry, start, end).map(item).collect();
                    let row_bytes = segment_of(entry, start)
                        .map_or(0, |segment| self.facts.book.row_bytes(segment.table).unwrap_or(0));
                    let rows: u64 = items.iter().map(|item| u64::from(item.rows.rows())).sum();
                    let bytes = rows * u64::from(row_bytes);
                    self.pieces[i].in_flight = true;
                    self.facts.links.take_permit(link, bytes);
                    let purpose = Purpose::Piece { entry: progress.entry, start, end };
                    let transfer = self.begin(link, generation, Class::Demand, bytes, now_ns, purpose, items);
                    commands.push(Command::Fetch(transfer));
                }
            }
        }
    }

    /// Goes on to the first block that is not in the cache.
    fn skip_found(&mut self, progress: usize) {
        let Progress { entry: id, next, .. } = self.pieces[progress];
        let Some(entry) = self.facts.window.entry(id) else { return };
        let end = (next..entry.blocks.len() as u32).find(|&at| !self.is_found(entry, at));
        let end = end.unwrap_or(entry.blocks.len() as u32);
        self.pin_found(id, next, end);
        self.pieces[progress].next = end;
    }

    /// Over the way that would deliver first, of those that take it now.
    fn next_piece(&self, progress: &Progress, now_ns: u64) -> Next {
        let Some(entry) = self.facts.window.entry(progress.entry) else { return Next::Done };
        let Some(segment) = segment_of(entry, progress.next) else { return Next::Done };
        let first = entry.blocks[progress.next as usize];
        let replicas = self.facts.links.replicas(segment.part);
        if replicas.iter().all(|&node| self.facts.links.is_bad(first.block, node)) {
            return Next::Fail;
        }
        let row_bytes = u64::from(self.facts.book.row_bytes(segment.table).unwrap_or(0));
        let links = &self.facts.links;
        let mut soonest: Option<(u64, Next)> = None;
        for (id, link) in links.good_sources(segment.part, first.block) {
            let Some(generation) = link.up else { continue };
            let (end, bytes) = self.piece_end(entry, segment, progress.next, id, row_bytes);
            let link_has_room = link.in_flight_bytes == 0 || bytes <= links.link_room(id, Class::Demand);
            let node_has_room = links.in_flight_bytes() == 0 || bytes <= links.node_room();
            let finish = link.bandwidth(now_ns).time_for(Bytes(link.in_flight_bytes + bytes));
            let finish_ns = finish.0.saturating_add(link.cost.latency.0);
            if link_has_room && node_has_room && soonest.as_ref().is_none_or(|&(ns, _)| finish_ns < ns) {
                soonest = Some((finish_ns, Next::Fetch { link: id, generation, end }));
            }
        }
        soonest.map_or(Next::Wait, |(_, fetch)| fetch)
    }

    /// Whether the minibatch has the block at this index in the cache, or could pin it there now.
    fn is_found(&self, entry: &Entry, at: u32) -> bool {
        entry.in_cache[at as usize] || self.facts.cache.can_pin(entry.blocks[at as usize])
    }

    /// As many blocks of the segment as fit into a transfer and have a good copy on this node; at least one.
    fn piece_end(
        &self,
        entry: &Entry,
        segment: &Segment,
        start: u32,
        link: LinkId,
        row_bytes: u64,
    ) -> (u32, u64) {
        let (mut end, mut bytes) = (start, 0);
        for at in start..segment.end {
            let rows = entry.blocks[at as usize];
            if !self.is_found(entry, at) {
                let more = u64::from(rows.rows()) * row_bytes;
                let full = bytes + more > self.facts.links.transfer_max(link);
                if end > start && (full || self.facts.links.is_bad(rows.block, link)) {
                    break;
                }
                bytes += more;
            }
            end = at + 1;
        }
        (end, bytes)
    }

    pub(super) fn piece_arrived(
        &mut self,
        id: EntryId,
        end: u32,
        bytes: Vec<u8>,
        commands: &mut Vec<Command>,
    ) {
        let Some(progress) = self.pieces.iter_mut().find(|progress| progress.entry == id) else { return };
        progress.next = end;
        progress.in_flight = false;
        if let Some(entry) = self.facts.window.entry(id) {
            commands.push(Command::Piece { trainer: entry.trainer, minibatch: entry.minibatch, bytes });
        }
    }

    pub(super) fn piece_failed(&mut self, id: EntryId) {
        if let Some(progress) = self.pieces.iter_mut().find(|progress| progress.entry == id) {
            progress.in_flight = false;
        }
    }

    /// Where the rows are: in the cache, or in the pieces, which hold the others block by block, in order.
    fn private_ready(&mut self, id: EntryId) -> Option<Command> {
        let entry = self.facts.window.entry(id)?;
        let mut starts = Vec::with_capacity(entry.blocks.len());
        let mut offset = 0;
        for segment in &entry.segments {
            let row_bytes = u64::from(self.facts.book.row_bytes(segment.table).unwrap_or(0));
            for at in segment.start as usize..segment.end as usize {
                let rows = entry.blocks[at];
                if entry.in_cache[at] {
                    let used = self.facts.cache.mark_used(rows.block, rows.mask);
                    self.statistics.prefetched_used += u64::from(used.count_ones());
                    let (chunk, offset) =
                        self.facts.cache.geometry().place(self.facts.cache.slot_of(rows.block)?);
                    starts.push(Location::new(chunk.0, offset));
                } else {
                    starts.push(Location::new(PRIVATE_MAPPING, offset));
                    offset += u64::from(rows.rows()) * row_bytes;
                }
            }
        }
        let tables = entry.tables.iter().map(|(table, places)| {
            let row_bytes = u64::from(self.facts.book.row_bytes(*table).unwrap_or(0));
            let location = |place: &RowPlace| match place.resolve() {
                Ok(local) => Location(local),
                Err((block, row)) => {
                    // A piece has the wanted rows only, a slot all of them.
                    let at = block as usize;
                    let before = (entry.blocks[at].mask & ((1 << row) - 1)).count_ones();
                    let row = if entry.in_cache[at] { u64::from(row) } else { u64::from(before) };
                    Location(starts[at].0 + row * row_bytes)
                }
            };
            (*table, places.iter().map(location).collect())
        });
        let tables = tables.collect();
        Some(Command::Ready { trainer: entry.trainer, minibatch: entry.minibatch, tables })
    }
}

/// The segment of the block at this index; `None` at the end.
fn segment_of(entry: &Entry, at: u32) -> Option<&Segment> {
    entry.segments.iter().find(|segment| segment.end > at)
}

#[cfg(test)]
mod tests;
