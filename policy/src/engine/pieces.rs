//! Minibatches that pass by the cache: fetched piece by piece, one piece in flight at a time, into the trainer's
//! private buffer. They pin nothing, so whatever others hold, they end.

use super::Engine;
use crate::links::Purpose;
use crate::step::{Command, Destination, Failure, Item, Reaction};
use crate::window::{Entry, EntryId, RowPlace, Segment};
use rudder_graph::location::{Location, PRIVATE_MAPPING};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{Generation, NodeId};

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
    Fetch { node: NodeId, generation: Generation, end: u32, bytes: u64 },
}

impl Engine {
    /// Starts what can be started, and ends what is complete.
    pub(super) fn next_pieces(&mut self, now_ns: u64, commands: &mut Vec<Command>) {
        for i in (0..self.pieces.len()).rev() {
            let progress = self.pieces[i];
            if progress.in_flight {
                continue;
            }
            match self.next_piece(&progress) {
                Next::Wait => {}
                Next::Done => {
                    self.pieces.remove(i);
                    if let Some(entry) = self.facts.window.entry(progress.entry) {
                        commands.push(self.private_ready(entry));
                    }
                }
                Next::Fail => {
                    let mut reaction = Reaction::default();
                    self.fail_entry(progress.entry, Failure::Corrupt, &mut reaction);
                    commands.append(&mut reaction.commands);
                }
                Next::Fetch { node, generation, end, bytes } => {
                    self.pieces[i].in_flight = true;
                    self.facts.links.take_permit(node, bytes);
                    let Some(entry) = self.facts.window.entry(progress.entry) else { continue };
                    let rows = &entry.blocks[progress.next as usize..end as usize];
                    let items = rows.iter().map(|&rows| Item { rows, to: Destination::Private }).collect();
                    let purpose = Purpose::Piece { entry: progress.entry, start: progress.next, end };
                    let transfer = self.begin(node, generation, Class::Demand, bytes, now_ns, purpose, items);
                    commands.push(Command::Fetch(transfer));
                }
            }
        }
    }

    fn next_piece(&self, progress: &Progress) -> Next {
        let Some(entry) = self.facts.window.entry(progress.entry) else { return Next::Done };
        let Some(segment) = entry.segments.iter().find(|segment| segment.end > progress.next) else {
            return Next::Done;
        };
        let first = entry.blocks[progress.next as usize];
        let replicas = self.facts.links.replicas(segment.part);
        if replicas.iter().all(|&node| self.facts.links.is_bad(first.block, node)) {
            return Next::Fail;
        }
        let row_bytes = u64::from(self.facts.book.row_bytes(segment.table).unwrap_or(0));
        for &node in replicas {
            let Some(generation) = self.facts.links.link(node).and_then(|link| link.up) else { continue };
            if self.facts.links.is_bad(first.block, node) {
                continue;
            }
            let (end, bytes) = self.piece_end(entry, segment, progress.next, node, row_bytes);
            let idle = self.facts.links.link(node).is_some_and(|link| link.in_flight_bytes == 0);
            let link_has_room = idle || bytes <= self.facts.links.link_room(node, Class::Demand);
            if link_has_room
                && (self.facts.links.in_flight_bytes() == 0 || bytes <= self.facts.links.node_room())
            {
                return Next::Fetch { node, generation, end, bytes };
            }
        }
        Next::Wait
    }

    /// As many blocks of the segment as fit into a transfer and have a good copy on this node; at least one.
    fn piece_end(
        &self,
        entry: &Entry,
        segment: &Segment,
        start: u32,
        node: NodeId,
        row_bytes: u64,
    ) -> (u32, u64) {
        let (mut end, mut bytes) = (start, 0);
        for rows in &entry.blocks[start as usize..segment.end as usize] {
            let more = u64::from(rows.rows()) * row_bytes;
            let full = bytes + more > self.facts.links.transfer_max(node);
            if end > start && (full || self.facts.links.is_bad(rows.block, node)) {
                break;
            }
            bytes += more;
            end += 1;
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

    /// The pieces hold the wanted rows block by block, in order.
    fn private_ready(&self, entry: &Entry) -> Command {
        let mut starts = Vec::with_capacity(entry.blocks.len());
        let mut offset = 0;
        for segment in &entry.segments {
            let row_bytes = u64::from(self.facts.book.row_bytes(segment.table).unwrap_or(0));
            for rows in &entry.blocks[segment.start as usize..segment.end as usize] {
                starts.push(offset);
                offset += u64::from(rows.rows()) * row_bytes;
            }
        }
        let tables = entry.tables.iter().map(|(table, places)| {
            let row_bytes = u64::from(self.facts.book.row_bytes(*table).unwrap_or(0));
            let location = |place: &RowPlace| match place.resolve() {
                Ok(local) => Location(local),
                Err((block, row)) => {
                    let BlockRows { mask, .. } = entry.blocks[block as usize];
                    let before = (mask & ((1 << row) - 1)).count_ones();
                    Location::new(PRIVATE_MAPPING, starts[block as usize] + u64::from(before) * row_bytes)
                }
            };
            (*table, places.iter().map(location).collect())
        });
        Command::Ready { trainer: entry.trainer, minibatch: entry.minibatch, tables: tables.collect() }
    }
}
