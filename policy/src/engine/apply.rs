//! What an accepted step changes.

use super::Engine;
use crate::links::{InFlight, Purpose};
use crate::step::{Command, Destination, Item, Step, Transfer};
use crate::window::{EntryId, Phase};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{BlockId, Generation, NodeId, TableId};

/// Accepted fetches of one proposal, to be batched into transfers.
#[derive(Debug, Default)]
pub(super) struct Departing {
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    node: NodeId,
    generation: Generation,
    class: Class,
    rows: Vec<(BlockRows, u64)>,
}

impl Departing {
    fn push(&mut self, node: NodeId, generation: Generation, class: Class, rows: BlockRows, bytes: u64) {
        let same = |g: &&mut Group| g.node == node && g.generation == generation && g.class == class;
        match self.groups.iter_mut().find(same) {
            Some(group) => group.rows.push((rows, bytes)),
            None => self.groups.push(Group { node, generation, class, rows: vec![(rows, bytes)] }),
        }
    }
}

impl Engine {
    pub(super) fn apply(&mut self, step: Step, departing: &mut Departing, commands: &mut Vec<Command>) {
        match step {
            Step::Fetch { rows, node, generation, class, evict, .. } => {
                let Some(place) = self.book.block(rows.block) else { return };
                if let Some(victim) = evict {
                    self.evict(victim, place.table);
                }
                let allocated = self.cache.allocate(rows.block, place.table);
                debug_assert!(allocated, "the validator checked capacity");
                // Rows that are resident already are not moved again.
                let mask = rows.mask & !self.cache.valid(rows.block);
                let rows = BlockRows { block: rows.block, mask };
                self.cache.depart(rows.block, mask);
                let bytes = u64::from(rows.rows()) * u64::from(place.row_bytes);
                self.links.take_permit(node, bytes);
                departing.push(node, generation, class, rows, bytes);
            }
            Step::Reserve { entry, evict } => self.reserve(entry, &evict, commands),
            Step::Evict { block, .. } => {
                if let Some(place) = self.book.block(block) {
                    self.evict(block, place.table);
                }
            }
            Step::Bypass { entry: id } => {
                if let Some(entry) = self.window.entry_mut(id) {
                    entry.phase = Phase::Bypass;
                    self.statistics.bypasses += 1;
                    self.pieces.push(super::pieces::Progress::new(id));
                }
            }
        }
    }

    fn reserve(&mut self, id: EntryId, evict: &[BlockId], commands: &mut Vec<Command>) {
        for &victim in evict {
            if let Some(place) = self.book.block(victim) {
                self.evict(victim, place.table);
            }
        }
        let Some(entry) = self.window.entry_mut(id) else { return };
        entry.phase = Phase::Reserved;
        for segment in &entry.segments {
            for rows in &entry.blocks[segment.start as usize..segment.end as usize] {
                let allocated = self.cache.allocate(rows.block, segment.table);
                debug_assert!(allocated, "the validator checked capacity");
                self.cache.pin(rows.block, segment.table);
            }
        }
        self.ready_if_complete(id, commands);
    }

    fn evict(&mut self, block: BlockId, table: TableId) {
        let valid = self.cache.valid(block);
        self.window.note_evicted(block, valid);
        let unused = self.cache.evict(block, table);
        self.statistics.prefetched_wasted += u64::from(unused.count_ones());
        self.statistics.evictions += 1;
    }

    /// Batches accepted fetches into transfers of at most `transfer_bytes_max`.
    pub(super) fn depart(&mut self, departing: Departing, now_ns: u64, commands: &mut Vec<Command>) {
        let max = self.limits.transfer_bytes_max.0;
        for group in departing.groups {
            let mut rest = group.rows.as_slice();
            while !rest.is_empty() {
                let mut bytes = 0;
                let fits = rest.iter().take_while(|(_, b)| {
                    bytes += b;
                    bytes <= max
                });
                let count = fits.count().max(1);
                let (batch, after) = rest.split_at(count);
                rest = after;
                let rows: Vec<_> = batch.iter().map(|(rows, _)| *rows).collect();
                let bytes = batch.iter().map(|(_, bytes)| bytes).sum();
                let items = rows.iter().map(|&rows| self.item(rows)).collect();
                let purpose = Purpose::Slots(rows);
                let (node, generation, class) = (group.node, group.generation, group.class);
                let transfer = self.begin(node, generation, class, bytes, now_ns, purpose, items);
                commands.push(Command::Fetch(transfer));
            }
        }
        if let Some(at_ns) = self.next_expiry() {
            commands.push(Command::WakeAt { at_ns });
        }
    }

    fn item(&self, rows: BlockRows) -> Item {
        let slot = self.cache.slot_of(rows.block).expect("an accepted fetch has a slot");
        let (chunk, offset) = self.cache.geometry().place(slot);
        Item { rows, to: Destination::Slot { chunk, offset } }
    }

    /// Registers a transfer whose permit has been taken.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn begin(
        &mut self,
        node: NodeId,
        generation: Generation,
        class: Class,
        bytes: u64,
        now_ns: u64,
        purpose: Purpose,
        items: Vec<Item>,
    ) -> Transfer {
        let expires_ns = now_ns.saturating_add(self.links.time_out.0);
        let id = self.links.begin(InFlight { node, generation, class, bytes, expires_ns, purpose });
        self.statistics.transfers += 1;
        Transfer { id, node, generation, class, items, bytes }
    }
}
