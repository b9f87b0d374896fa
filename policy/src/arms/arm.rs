//! One planner for every arm: earliest deadline first over all trainers, within an arm's horizon; what goes is the
//! order's choice.

use super::order::Order;
use crate::step::{Event, Origin, Step};
use crate::view::{Policy, View};
use crate::window::{EntryId, Forecast, Phase, Segment};
use rudder_graph::{BlockRows, Class, PartitionBook};
use rudder_topology::{BlockId, Generation, NodeId, TableId};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

mod budget;
mod evicting;
mod speculate;

use budget::Budget;
use evicting::Evicting;

/// What tells arms apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    /// Minibatches of a trainer, from its oldest unreleased one, that are fetched before it waits for them.
    pub horizon: u32,
    /// Whether blocks stay after their minibatch is released.
    pub keeps: bool,
    /// Whether links that nobody needs carry what was used most often and recently.
    pub speculates: bool,
}

/// How far each segment of a minibatch has been planned.
type Cursors = FxHashMap<EntryId, Vec<u32>>;

pub(super) struct Arm<O> {
    traits: Traits,
    order: O,
    cursors: Cursors,
    /// Rank of each minibatch in order of time of use; made anew with each batch of events.
    ranks: FxHashMap<EntryId, u32>,
    /// Blocks whose eviction this plan asks for.
    evicting: Evicting,
    /// Rows that this plan fetches, of blocks that several minibatches use.
    departing: FxHashMap<BlockId, u64>,
    /// Blocks that went, latest last; for arms that speculate.
    gone: VecDeque<BlockId>,
    gone_max: usize,
    /// Blocks to bring back, likeliest first.
    speculative: VecDeque<BlockId>,
}

/// A minibatch that may be planned now.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: EntryId,
    rank: u32,
    ahead: u32,
    class: Class,
}

impl<O: Order> Arm<O> {
    pub fn new(traits: Traits, order: O, book: &PartitionBook) -> Self {
        let gone_max = if traits.speculates { book.blocks() as usize / 4 } else { 0 };
        Arm {
            traits,
            order,
            cursors: FxHashMap::default(),
            ranks: FxHashMap::default(),
            evicting: Evicting::default(),
            departing: FxHashMap::default(),
            gone: VecDeque::new(),
            gone_max,
            speculative: VecDeque::new(),
        }
    }

    fn note(&mut self, event: &Event, view: &View, steps: &mut Vec<Step>) {
        match event {
            Event::Announced(id) => {
                let Some(entry) = view.window.entry(*id) else { return };
                self.order.record(&entry.blocks, view.parameters.half_life_minibatches);
                for rows in entry.blocks.iter() {
                    if self.order.contains(rows.block, view) {
                        self.order.announced(rows.block, view);
                    }
                }
            }
            Event::Released { entry, blocks } => self.released(*entry, blocks, view, steps),
            Event::Arrived(rows) => {
                for rows in rows {
                    self.restore(rows.block, view);
                }
            }
            Event::Failed(rows) => {
                for rows in rows {
                    self.restore(rows.block, view);
                    self.rewind(rows.block, view);
                }
            }
            Event::Refused(step, _) => self.refused(step, view),
            Event::LinkChanged(_) => self.cursors.clear(),
            Event::Wanted(_) | Event::Tick | Event::ParametersChanged => {}
        }
    }

    fn released(&mut self, id: EntryId, blocks: &Arc<[BlockRows]>, view: &View, steps: &mut Vec<Step>) {
        self.cursors.remove(&id);
        self.order.used(blocks, view);
        for rows in blocks.iter() {
            if !view.cache.is_evictable(rows.block) {
                continue;
            }
            if self.traits.keeps {
                self.order.place_used(rows.block, view);
            } else if self.has_slot(rows.block, view) {
                self.order.remove(rows.block, view);
                self.let_go(rows.block, view);
                steps.push(Step::Evict { block: rows.block, origin: Origin::Forecast });
            }
        }
        if self.traits.speculates {
            self.choose_speculative(blocks.len() / 2, view);
        }
    }

    /// Puts a block that may go back into the order.
    fn restore(&mut self, block: BlockId, view: &View) {
        if view.cache.is_evictable(block) {
            self.order.place(block, view);
        }
    }

    fn refused(&mut self, step: &Step, view: &View) {
        match step {
            Step::Fetch { rows, evict, .. } => {
                if let Some(victim) = evict {
                    self.restore(*victim, view);
                }
                self.restore(rows.block, view);
                self.rewind(rows.block, view);
            }
            Step::Reserve { entry, evict } => {
                for &victim in evict {
                    self.restore(victim, view);
                }
                let blocks = view.window.entry(*entry).map(|entry| entry.blocks.clone());
                for rows in blocks.iter().flat_map(|blocks| blocks.iter()) {
                    self.restore(rows.block, view);
                }
                self.cursors.remove(entry);
            }
            Step::Evict { block, .. } => self.restore(*block, view),
            Step::Bypass { .. } => {}
        }
    }

    /// The block has to be planned again by whoever uses it.
    fn rewind(&mut self, block: BlockId, view: &View) {
        for user in view.window.uses(block) {
            let (Some(cursors), Some(entry)) =
                (self.cursors.get_mut(&user.entry), view.window.entry(user.entry))
            else {
                continue;
            };
            let within = |s: &Segment| s.start <= user.position && user.position < s.end;
            if let Some(segment) = entry.segments.iter().position(within) {
                cursors[segment] = cursors[segment].min(user.position);
            }
        }
    }

    /// Minibatches within the horizon, soonest first.
    fn candidates(&self, forecasts: &[Forecast], view: &View) -> Vec<Candidate> {
        let horizon = view.parameters.horizon_minibatches.unwrap_or(self.traits.horizon);
        let mut candidates = vec![];
        for (rank, forecast) in forecasts.iter().enumerate() {
            let Some(entry) = view.window.entry(forecast.entry) else { continue };
            let wanted = entry.wanted_ns.is_some();
            let open = matches!(entry.phase, Phase::Announced | Phase::Reserved);
            if open && (wanted || forecast.ahead < horizon) {
                let class = if wanted { Class::Demand } else { Class::Prefetch };
                let (id, rank, ahead) = (forecast.entry, rank as u32, forecast.ahead);
                candidates.push(Candidate { id, rank, ahead, class });
            }
        }
        candidates
    }

    /// Whether the block has a slot that this plan leaves it.
    fn has_slot(&self, block: BlockId, view: &View) -> bool {
        view.cache.slot_of(block).is_some_and(|slot| !self.evicting.contains(slot))
            || self.departing.contains_key(&block)
    }

    /// Rows of `mask` that are neither resident nor in flight, once this plan's evictions are done.
    fn absent(&self, block: BlockId, mask: u64, view: &View) -> u64 {
        let absent = match view.cache.held(block) {
            Some((slot, held)) if !self.evicting.contains(slot) => mask & !held,
            _ => mask,
        };
        absent & !self.departing.get(&block).copied().unwrap_or(0)
    }

    /// Notes rows that a step of this plan fetches, where another minibatch or speculation could ask for them too.
    fn note_departing(&mut self, rows: BlockRows, view: &View) {
        if self.traits.speculates || view.window.uses(rows.block).nth(1).is_some() {
            *self.departing.entry(rows.block).or_default() |= rows.mask;
        }
    }

    fn plan(&mut self, view: &View, steps: &mut Vec<Step>) {
        let forecasts = view.window.by_time_of_use();
        self.ranks = forecasts.iter().zip(0..).map(|(forecast, rank)| (forecast.entry, rank)).collect();
        let candidates = self.candidates(&forecasts, view);
        let mut budget = Budget::new(view);
        for &block in self.evicting.blocks() {
            budget.give_slot(block, view);
        }
        let reserved = self.plan_reservations(&candidates, view, &mut budget, steps);
        for candidate in &candidates {
            let pinned = reserved.contains(&candidate.id)
                || view.window.entry(candidate.id).is_some_and(|entry| entry.phase == Phase::Reserved);
            self.plan_fetches(*candidate, pinned, view, &mut budget, steps);
            if budget.is_spent() {
                return;
            }
        }
        if self.traits.speculates {
            self.speculate(view, &mut budget, steps);
        }
    }

    /// Reserves in order of time of use; what cannot be had stops those after it, except that a trainer's oldest
    /// passes by the cache when pins alone leave it no room.
    fn plan_reservations(
        &mut self,
        candidates: &[Candidate],
        view: &View,
        budget: &mut Budget,
        steps: &mut Vec<Step>,
    ) -> Vec<EntryId> {
        let mut reserved = vec![];
        for candidate in candidates {
            let Some(entry) = view.window.entry(candidate.id) else { continue };
            if entry.phase != Phase::Announced || candidate.ahead > view.ready_ahead {
                continue;
            }
            let need = self.need(candidate.id, view, budget);
            let room_for_others = if candidate.ahead == 0 { 0 } else { oldest_of_others(candidate.id, view) };
            let has_room = need.iter().all(|n| n.new + room_for_others <= n.free + n.evictable);
            if has_room && let Some(evict) = self.victims_for(candidate, &need, view) {
                for n in &need {
                    budget.take_slots(n.table, n.new.min(n.free));
                }
                for &victim in &evict {
                    self.let_go(victim, view);
                }
                steps.push(Step::Reserve { entry: candidate.id, evict });
                reserved.push(candidate.id);
            } else if candidate.ahead == 0 && candidate.class == Class::Demand {
                if need.iter().any(|n| n.pinned_by_others + n.all > n.slots) {
                    steps.push(Step::Bypass { entry: candidate.id });
                }
            } else {
                break;
            }
        }
        reserved
    }

    /// What a minibatch needs of each table's slots.
    fn need(&self, id: EntryId, view: &View, budget: &Budget) -> Vec<Need> {
        let Some(entry) = view.window.entry(id) else { return vec![] };
        let mut needs = vec![];
        for segments in entry.segments.chunk_by(|a, b| a.table == b.table) {
            let table = segments[0].table;
            let blocks = &entry.blocks[segments[0].start as usize..segments[segments.len() - 1].end as usize];
            let (mut new, mut own_evictable, mut own_pinned) = (0, 0, 0);
            for rows in blocks {
                if !self.has_slot(rows.block, view) {
                    new += 1;
                } else if view.cache.is_pinned(rows.block) {
                    own_pinned += 1;
                } else if self.order.contains(rows.block, view) {
                    own_evictable += 1;
                }
            }
            needs.push(Need {
                table,
                all: blocks.len(),
                new,
                free: budget.free_slots(table),
                evictable: self.order.len(table) - own_evictable,
                pinned_by_others: view.cache.pinned_slots(table) - own_pinned,
                slots: view.cache.geometry().class_slots(table).len(),
            });
        }
        needs
    }

    /// Takes a minibatch's own blocks out of the order, then as many victims as the reservation lacks; `None`, and
    /// all of them back, if there are not enough. The own go first, so that no order passes over them.
    fn victims_for(&mut self, candidate: &Candidate, need: &[Need], view: &View) -> Option<Vec<BlockId>> {
        let entry = view.window.entry(candidate.id)?;
        for rows in entry.blocks.iter() {
            self.order.remove(rows.block, view);
        }
        let mut victims = vec![];
        for n in need {
            let lacking = n.new.saturating_sub(n.free);
            // A reservation may take from minibatches that come later, never from itself.
            let found = std::iter::from_fn(|| self.order.victim(n.table, candidate.rank, view)).take(lacking);
            let before = victims.len();
            victims.extend(found);
            if victims.len() - before < lacking {
                for block in victims.into_iter().chain(entry.blocks.iter().map(|rows| rows.block)) {
                    self.restore(block, view);
                }
                return None;
            }
        }
        Some(victims)
    }

    /// A step of this plan evicts the block: from here on it counts as gone, though the facts do not show it yet.
    fn let_go(&mut self, victim: BlockId, view: &View) {
        if let Some(slot) = view.cache.slot_of(victim) {
            self.evicting.insert(victim, slot);
        }
        self.rewind(victim, view);
        if self.traits.speculates {
            self.gone.push_back(victim);
            if self.gone.len() > self.gone_max {
                self.gone.pop_front();
            }
        }
    }

    /// Fetches what a minibatch lacks, as far as permits and slots go.
    fn plan_fetches(
        &mut self,
        candidate: Candidate,
        pinned: bool,
        view: &View,
        budget: &mut Budget,
        steps: &mut Vec<Step>,
    ) {
        let Some(entry) = view.window.entry(candidate.id) else { return };
        let starts = || entry.segments.iter().map(|segment| segment.start).collect();
        let mut cursors = self.cursors.remove(&candidate.id).unwrap_or_else(starts);
        for (segment, cursor) in entry.segments.iter().zip(&mut cursors) {
            while *cursor < segment.end {
                let wanted = entry.blocks[*cursor as usize];
                let mask = self.absent(wanted.block, wanted.mask, view);
                if mask != 0 {
                    let rows = BlockRows { block: wanted.block, mask };
                    let Some(step) = self.fetch(candidate, pinned, *segment, rows, view, budget) else {
                        break;
                    };
                    steps.push(step);
                }
                *cursor += 1;
            }
        }
        self.cursors.insert(candidate.id, cursors);
    }

    /// A fetch of these rows, if a replica, a permit and a slot can be had.
    fn fetch(
        &mut self,
        candidate: Candidate,
        pinned: bool,
        segment: Segment,
        rows: BlockRows,
        view: &View,
        budget: &mut Budget,
    ) -> Option<Step> {
        let row_bytes = u64::from(view.book.row_bytes(segment.table)?);
        let bytes = u64::from(rows.rows()) * row_bytes;
        let (node, generation) = budget.replica(segment.part, rows.block, bytes, view)?;
        let mut evict = None;
        if !pinned && !self.has_slot(rows.block, view) && !budget.take_slot(segment.table) {
            evict = Some(self.one_victim(candidate, segment.table, view)?);
        }
        // With rows of its own in flight it cannot go; its arrival puts it back.
        self.order.remove(rows.block, view);
        self.note_departing(rows, view);
        budget.take_bytes(node, bytes);
        let origin = if candidate.class == Class::Demand { Origin::Demand } else { Origin::Forecast };
        Some(Step::Fetch { rows, node, generation, class: candidate.class, evict, origin })
    }

    /// A block to evict for a prefetch: nothing that is needed as soon as what comes in.
    fn one_victim(&mut self, candidate: Candidate, table: TableId, view: &View) -> Option<BlockId> {
        let victim = self.order.victim(table, candidate.rank, view)?;
        let next = view.window.uses(victim).filter_map(|user| self.ranks.get(&user.entry)).min();
        if next.is_some_and(|&next| next <= candidate.rank) {
            self.order.place(victim, view);
            return None;
        }
        self.let_go(victim, view);
        Some(victim)
    }
}

/// What a minibatch needs of a table's slots, and what there is.
#[derive(Clone, Copy, Debug)]
struct Need {
    table: TableId,
    all: usize,
    /// Blocks without a slot.
    new: usize,
    free: usize,
    /// Blocks of others that could go.
    evictable: usize,
    pinned_by_others: usize,
    slots: usize,
}

/// Blocks that the oldest minibatches of other trainers still need pinned: a reservation ahead of use leaves room
/// for them.
fn oldest_of_others(id: EntryId, view: &View) -> usize {
    let own = view.window.entry(id).map(|entry| entry.trainer);
    let others = view.window.trainers().filter(|&trainer| Some(trainer) != own);
    let oldest = others.filter_map(|trainer| view.window.entry(view.window.queue(trainer).next()?));
    oldest.filter(|entry| entry.phase == Phase::Announced).map(|entry| entry.blocks.len()).sum()
}

impl<O: Order> Policy for Arm<O> {
    fn on(&mut self, events: &[Event], _now_ns: u64, view: &View) -> Vec<Step> {
        self.order.prepare(view);
        self.evicting.clear();
        self.departing.clear();
        let mut steps = vec![];
        for event in events {
            self.note(event, view, &mut steps);
        }
        self.plan(view, &mut steps);
        steps
    }

    fn rebuild(&mut self, view: &View) {
        self.order.clear();
        self.order.prepare(view);
        self.cursors.clear();
        self.speculative.clear();
        for block in view.cache.resident().filter(|&block| view.cache.is_evictable(block)) {
            self.order.place(block, view);
        }
    }
}

/// Where a fetch goes.
type Source = (NodeId, Generation);
