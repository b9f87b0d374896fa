//! What an accepted step changes.

use super::Engine;
use crate::links::{InFlight, LinkId, Purpose};
use crate::step::{Admission, Command, Destination, Event, Fetch, Item, Refusal, Step, Transfer, Verdicts};
use crate::validate;
use crate::window::{EntryId, Phase};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{BlockId, Generation};

/// Accepted fetches of one proposal, to be sent as transfers.
#[derive(Debug, Default)]
pub(super) struct Departing {
    groups: Vec<Group>,
}

/// What goes to one node in one class, as transfers of at most `transfer_bytes_max`.
#[derive(Debug)]
struct Group {
    link: LinkId,
    generation: Generation,
    class: Class,
    full: Vec<(Vec<Item>, u64)>,
    items: Vec<Item>,
    bytes: u64,
}

impl Departing {
    fn group(&mut self, fetch: &Fetch) -> &mut Group {
        let (link, generation, class) = (fetch.link(), fetch.generation, fetch.class);
        let same = |g: &Group| g.link == link && g.generation == generation && g.class == class;
        let at = self.groups.iter().position(same).unwrap_or_else(|| {
            let (full, items) = (vec![], vec![]);
            self.groups.push(Group { link, generation, class, full, items, bytes: 0 });
            self.groups.len() - 1
        });
        &mut self.groups[at]
    }
}

impl Group {
    #[inline]
    fn push(&mut self, item: Item, bytes: u64, bytes_max: u64) {
        if self.bytes + bytes > bytes_max && !self.items.is_empty() {
            // The next one will be as long.
            let next = Vec::with_capacity(self.items.len());
            self.full.push((std::mem::replace(&mut self.items, next), self.bytes));
            self.bytes = 0;
        }
        self.items.push(item);
        self.bytes += bytes;
    }
}

/// Admissions that are looked up together before they are judged one by one.
const NEAR: usize = 32;

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
        let mut admissions = validate::Admissions::new(fetch, &self.facts.view());
        let group = departing.group(fetch);
        let bytes_max = self.facts.links.transfer_max(fetch.link());
        let single = self.facts.cache.has_single_rows();
        let mut all_bytes = 0;
        for (at, &admission) in fetch.admissions.iter().enumerate() {
            if at % NEAR == 0 {
                let near = &fetch.admissions[at..fetch.admissions.len().min(at + NEAR)];
                self.facts.cache.touch(near.iter().map(|next| next.rows.block.0));
                self.facts.cache.touch(near.iter().filter_map(|next| next.evict).map(|victim| victim.0));
            }
            let row_bytes = match admissions.judge(admission, fetch.link(), &self.facts.view()) {
                Ok(row_bytes) => row_bytes,
                Err(refusal) => {
                    refused.parts.push((admission, refusal));
                    continue;
                }
            };
            let Admission { rows: BlockRows { block, mask }, evict } = admission;
            if let Some(victim) = evict {
                let valid = self.facts.cache.valid(victim);
                self.facts.window.note_evicted(victim, valid, single);
                let unused = self.facts.cache.replace(victim, block);
                self.statistics.prefetched_wasted += u64::from(unused.count_ones());
                self.statistics.evictions += 1;
            } else {
                let allocated = self.facts.cache.allocate(block);
                debug_assert!(allocated, "the validator checked capacity");
            }
            // Rows that are resident already are not moved again.
            let rows = BlockRows { block, mask: mask & !self.facts.cache.valid(block) };
            self.facts.cache.depart(block, rows.mask);
            let bytes = u64::from(rows.rows()) * u64::from(row_bytes);
            admissions.take(bytes);
            all_bytes += bytes;
            let slot = self.facts.cache.slot_of(block).expect("an accepted fetch has a slot");
            let (chunk, offset) = self.facts.cache.geometry().place(slot);
            let item = Item { rows, to: Destination::Slot { chunk, offset } };
            group.push(item, bytes, bytes_max);
        }
        self.facts.links.take_permit(fetch.link(), all_bytes);
        verdicts.accepted += fetch.admissions.len() - refused.parts.len();
        refused.tell(verdicts, |admissions| Step::Fetch(Fetch { admissions, ..fetch.clone() }));
    }

    fn reserve(&mut self, id: EntryId, evict: &[BlockId], commands: &mut Vec<Command>) {
        for &victim in evict {
            self.evict(victim);
        }
        let Some(entry) = self.facts.window.entry_mut(id) else { return };
        entry.phase = Phase::Reserved;
        let mut lacking = 0;
        for segment in &entry.segments {
            let blocks = &entry.blocks[segment.start as usize..segment.end as usize];
            lacking += self.facts.cache.pin_all(blocks, segment.table);
        }
        debug_assert_eq!(lacking, entry.missing, "arrivals and evictions were all counted");
        self.ready_if_complete(id, commands);
    }

    /// The validator found the block evictable.
    pub(super) fn evict(&mut self, block: BlockId) {
        let (valid, single) = (self.facts.cache.valid(block), self.facts.cache.has_single_rows());
        self.facts.window.note_evicted(block, valid, single);
        let unused = self.facts.cache.evict(block);
        self.statistics.prefetched_wasted += u64::from(unused.count_ones());
        self.statistics.evictions += 1;
    }

    /// Sends accepted fetches off.
    pub(super) fn depart(&mut self, departing: Departing, now_ns: u64, commands: &mut Vec<Command>) {
        for group in departing.groups {
            let last = Some((group.items, group.bytes)).filter(|(items, _)| !items.is_empty());
            for (items, bytes) in group.full.into_iter().chain(last) {
                let purpose = Purpose::Slots(items.iter().map(|item| item.rows).collect());
                let (link, generation, class) = (group.link, group.generation, group.class);
                let transfer = self.begin(link, generation, class, bytes, now_ns, purpose, items);
                commands.push(Command::Fetch(transfer));
            }
        }
        if let Some(at_ns) = self.next_expiry() {
            commands.push(Command::WakeAt { at_ns });
        }
    }

    /// Registers a transfer whose permit has been taken.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn begin(
        &mut self,
        link: LinkId,
        generation: Generation,
        class: Class,
        bytes: u64,
        now_ns: u64,
        purpose: Purpose,
        items: Vec<Item>,
    ) -> Transfer {
        let expires_ns = now_ns.saturating_add(self.facts.links.time_out.0);
        let id =
            self.facts.links.begin(InFlight { link, generation, class, bytes, expires_ns, purpose }, now_ns);
        self.statistics.transfers += 1;
        let LinkId { node, staged } = link;
        Transfer { id, node, staged, generation, class, items, bytes }
    }
}
