//! What an accepted step changes.

use super::Engine;
use crate::links::{InFlight, Purpose};
use crate::step::{Admission, Command, Destination, Event, Fetch, Item, Refusal, Step, Transfer, Verdicts};
use crate::validate;
use crate::window::{EntryId, Phase};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{BlockId, Generation, NodeId};

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

/// Parts of one step that were refused.
struct Refused<T> {
    parts: Vec<(T, Refusal)>,
}

impl<T: Copy> Refused<T> {
    /// Tells the planner: parts that were refused in a row for the same reason come together.
    fn tell(self, verdicts: &mut Verdicts, step: impl Fn(Vec<T>) -> Step) {
        verdicts.refused += self.parts.len();
        for same in self.parts.chunk_by(|a, b| a.1 == b.1) {
            let parts = same.iter().map(|&(part, _)| part).collect();
            verdicts.events.push(Event::Refused(step(parts), same[0].1));
        }
    }
}

impl Engine {
    /// Judges a step and applies what is accepted.
    pub(super) fn judge(&mut self, step: Step, departing: &mut Departing, verdicts: &mut Verdicts) {
        match step {
            Step::Fetch(fetch) => self.admit(&fetch, departing, verdicts),
            Step::Evict { blocks, origin } => {
                let mut refused = Refused { parts: vec![] };
                for &block in &blocks {
                    match validate::evictable(block, &self.facts.view()) {
                        Ok(()) => {
                            verdicts.accepted += 1;
                            self.evict(block);
                        }
                        Err(refusal) => refused.parts.push((block, refusal)),
                    }
                }
                refused.tell(verdicts, |blocks| Step::Evict { blocks, origin });
            }
            Step::Reserve { entry, evict } => match validate::reserve(entry, &evict, &self.facts.view()) {
                Ok(()) => {
                    verdicts.accepted += 1;
                    self.reserve(entry, &evict, &mut verdicts.commands);
                }
                Err(refusal) => {
                    verdicts.refused += 1;
                    verdicts.events.push(Event::Refused(Step::Reserve { entry, evict }, refusal));
                }
            },
            Step::Bypass { entry } => match validate::bypass(entry, &self.facts.view()) {
                Ok(()) => {
                    verdicts.accepted += 1;
                    self.bypass(entry);
                }
                Err(refusal) => {
                    verdicts.refused += 1;
                    verdicts.events.push(Event::Refused(step, refusal));
                }
            },
        }
    }

    fn admit(&mut self, fetch: &Fetch, departing: &mut Departing, verdicts: &mut Verdicts) {
        let mut refused = Refused { parts: vec![] };
        for &admission in &fetch.admissions {
            match validate::admission(fetch, admission, &self.facts.view()) {
                Ok(place) => {
                    verdicts.accepted += 1;
                    let Admission { rows, evict } = admission;
                    if let Some(victim) = evict {
                        self.evict(victim);
                    }
                    let allocated = self.facts.cache.allocate(rows.block);
                    debug_assert!(allocated, "the validator checked capacity");
                    // Rows that are resident already are not moved again.
                    let mask = rows.mask & !self.facts.cache.valid(rows.block);
                    let rows = BlockRows { block: rows.block, mask };
                    self.facts.cache.depart(rows.block, mask);
                    let bytes = u64::from(rows.rows()) * u64::from(place.row_bytes);
                    self.facts.links.take_permit(fetch.node, bytes);
                    departing.push(fetch.node, fetch.generation, fetch.class, rows, bytes);
                }
                Err(refusal) => refused.parts.push((admission, refusal)),
            }
        }
        refused.tell(verdicts, |admissions| Step::Fetch(Fetch { admissions, ..fetch.clone() }));
    }

    fn bypass(&mut self, id: EntryId) {
        if let Some(entry) = self.facts.window.entry_mut(id) {
            entry.phase = Phase::Bypass;
            self.statistics.bypasses += 1;
            self.pieces.push(super::pieces::Progress::new(id));
        }
    }

    fn reserve(&mut self, id: EntryId, evict: &[BlockId], commands: &mut Vec<Command>) {
        for &victim in evict {
            self.evict(victim);
        }
        let Some(entry) = self.facts.window.entry_mut(id) else { return };
        entry.phase = Phase::Reserved;
        for segment in &entry.segments {
            for rows in &entry.blocks[segment.start as usize..segment.end as usize] {
                let allocated = self.facts.cache.allocate(rows.block);
                debug_assert!(allocated, "the validator checked capacity");
                self.facts.cache.pin(rows.block);
            }
        }
        self.ready_if_complete(id, commands);
    }

    /// The validator found the block evictable.
    fn evict(&mut self, block: BlockId) {
        let valid = self.facts.cache.valid(block);
        self.facts.window.note_evicted(block, valid);
        let unused = self.facts.cache.evict(block);
        self.statistics.prefetched_wasted += u64::from(unused.count_ones());
        self.statistics.evictions += 1;
    }

    /// Batches accepted fetches into transfers that fit their links.
    pub(super) fn depart(&mut self, departing: Departing, now_ns: u64, commands: &mut Vec<Command>) {
        for group in departing.groups {
            let max = self.facts.links.transfer_max(group.node);
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
        let slot = self.facts.cache.slot_of(rows.block).expect("an accepted fetch has a slot");
        let (chunk, offset) = self.facts.cache.geometry().place(slot);
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
        let expires_ns = now_ns.saturating_add(self.facts.links.time_out.0);
        let id =
            self.facts.links.begin(InFlight { node, generation, class, bytes, expires_ns, purpose }, now_ns);
        self.statistics.transfers += 1;
        Transfer { id, node, generation, class, items, bytes }
    }
}
