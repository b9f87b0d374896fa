//! One planner for every arm: earliest deadline first over all trainers, within an arm's horizon; what goes is the
//! order's choice.

use super::order::Order;
use crate::guard::Prefetching;
use crate::step::{Admission, Event, Origin, Step};
use crate::view::{Policy, View};
use crate::window::{EntryId, Forecast, Phase, Ranks, Segment};
use rudder_graph::{BlockRows, Class, PartitionBook};
use rudder_topology::{BlockId, JobId, TableId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

mod budget;
mod ease;
mod fetches;
mod likely;
mod marks;
mod reserve;
mod speculate;
mod warm;

use budget::Budget;
use ease::{Ease, Need};
use fetches::Fetches;
use likely::Likely;
use marks::Marks;
use warm::Warm;

/// What tells arms apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    /// Minibatches of a trainer, from its oldest unreleased one, that are fetched before it waits for them.
    pub horizon: u32,
    /// Whether blocks stay after their minibatch is released.
    pub keeps: bool,
    /// Whether links that nobody needs carry what was used most often and recently.
    pub speculates: bool,
    /// Whether the order says which blocks stay, and which are brought in whole while nobody needs the links.
    pub chooses: bool,
    /// Whether what is not needed for a while comes without hurry.
    pub eases: bool,
}

/// Minibatches are near as long as they are together at most this part of the cache, in percent: what goes for those
/// after them would be needed before.
const NEAR_PERCENT: usize = 30;

/// How far each segment of a minibatch has been planned.
type Cursors = FxHashMap<EntryId, Vec<u32>>;

pub(super) struct Arm<O> {
    traits: Traits,
    order: O,
    cursors: Cursors,
    /// What earlier steps of this plan ask for.
    marks: Marks,
    budget: Budget,
    ease: Ease,
    ranks: Ranks,
    /// Minibatches that this plan lets pass by the cache.
    passing: Vec<EntryId>,
    /// Blocks that the order gave and this minibatch cannot take.
    aside: Vec<BlockId>,
    /// Blocks that went, latest last; for arms that speculate.
    gone: VecDeque<BlockId>,
    gone_max: usize,
    /// Blocks to bring back, likeliest first.
    speculative: VecDeque<BlockId>,
    /// What a prior makes worth fetching while nobody knows what is next.
    likely: Likely,
    /// Blocks that a directive wants.
    warm: Warm,
}

/// A minibatch that may be planned now.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: EntryId,
    job: JobId,
    rank: u32,
    ahead: u32,
    class: Class,
    /// So far ahead that no block goes for it: better ones will have been used for the last time before its turn.
    far: bool,
    /// Needed so late that it comes without hurry.
    eased: bool,
    /// From now: when it is needed, or when all links together could have brought it and those before it.
    due_ns: u64,
}

impl<O: Order> Arm<O> {
    pub fn new(traits: Traits, order: O, book: &PartitionBook) -> Self {
        let gone_max = if traits.speculates { book.blocks() as usize / 4 } else { 0 };
        Arm {
            traits,
            order,
            cursors: FxHashMap::default(),
            marks: Marks::new(book.blocks()),
            budget: Budget::default(),
            ease: Ease::default(),
            ranks: Ranks::default(),
            passing: vec![],
            aside: vec![],
            gone: VecDeque::new(),
            gone_max,
            speculative: VecDeque::new(),
            likely: Likely::default(),
            warm: Warm::default(),
        }
    }

    /// Fetches what the prior makes likely, while links are idle and nobody waits.
    pub fn with_prior(mut self, prior: &[f32]) -> Self {
        self.likely = Likely::new(prior);
        self
    }

    fn note(&mut self, event: &Event, view: &View, steps: &mut Vec<Step>) {
        match event {
            Event::Announced(id) => {
                if let Some(entry) = view.window.entry(*id) {
                    self.order.announced(&entry.blocks, view);
                }
            }
            // It is not used yet; the window shows the order whose turn it is.
            Event::Foreseen(_) => {}
            Event::Released { entry, trainer, blocks } => {
                self.ease.step_begins(trainer.job);
                self.released(*entry, blocks, view, steps);
            }
            Event::Arrived(rows) => self.order.arrived(rows, view),
            Event::Failed(rows) => {
                for rows in rows {
                    self.order.restore(rows.block, view);
                    self.rewind(rows.block, view);
                    self.order.lost(rows.block, view);
                }
            }
            Event::Withdrawn(blocks) => {
                for &block in blocks {
                    self.rewind(block, view);
                    self.order.lost(block, view);
                }
            }
            Event::Refused(step, _) => self.refused(step, view),
            Event::LinkChanged(_) => self.cursors.clear(),
            Event::Wanted(_) | Event::Tick | Event::ParametersChanged => {}
        }
    }

    fn released(&mut self, id: EntryId, blocks: &[BlockRows], view: &View, steps: &mut Vec<Step>) {
        self.cursors.remove(&id);
        self.order.released(id, blocks, view);
        self.likely.note_released();
        if !self.traits.keeps || self.traits.chooses {
            let stays = |block| self.traits.keeps && self.order.keeps(block);
            let going = blocks.iter().map(|rows| rows.block).filter(|&block| !stays(block)).collect();
            self.evict(going, view, steps);
        }
        if self.traits.speculates {
            self.choose_speculative(blocks.len() / 2, view);
        }
    }

    /// Lets blocks go that nothing takes the place of, as far as they may.
    fn evict(&mut self, mut going: Vec<BlockId>, view: &View, steps: &mut Vec<Step>) {
        going.retain(|&block| view.cache.is_evictable(block) && self.marks.has_slot(block, view));
        for &block in &going {
            self.let_go(block, view);
            self.budget.give_slot(view.cache.table_of(block));
        }
        if !going.is_empty() {
            steps.push(Step::Evict { blocks: going, origin: Origin::Forecast });
        }
    }

    fn refused(&mut self, step: &Step, view: &View) {
        match step {
            Step::Fetch(fetch) => {
                for admission in &fetch.admissions {
                    if let Some(victim) = admission.evict {
                        self.order.restore(victim, view);
                    }
                    self.rewind(admission.rows.block, view);
                    self.order.lost(admission.rows.block, view);
                }
            }
            Step::Reserve { evict: blocks, .. } | Step::Evict { blocks, .. } => {
                for &block in blocks {
                    self.order.restore(block, view);
                }
            }
            Step::Bypass { .. } => {}
        }
    }

    /// The block has to be planned again by whoever uses it.
    fn rewind(&mut self, block: BlockId, view: &View) {
        for user in view.window.uses(block) {
            let (Some(cursors), Some(entry)) = (self.cursors.get_mut(&user), view.window.entry(user)) else {
                continue;
            };
            let Some(position) = entry.position(block).map(|at| at as u32) else { continue };
            let within = |s: &Segment| s.start <= position && position < s.end;
            if let Some(segment) = entry.segments.iter().position(within) {
                cursors[segment] = cursors[segment].min(position);
            }
        }
    }

    /// Minibatches within the horizon, soonest first.
    fn candidates(&self, forecasts: &[Forecast], view: &View) -> Vec<Candidate> {
        let horizon = match view.prefetching {
            Prefetching::On => view.parameters.horizon_minibatches.unwrap_or(self.traits.horizon),
            Prefetching::Off => 0,
        };
        let mut candidates = vec![];
        let slots: usize = (0..view.book.tables()).map(|table| view.cache.slots(TableId(table as u16))).sum();
        let mut blocks = 0;
        for (rank, forecast) in forecasts.iter().enumerate() {
            let Some(entry) = view.window.entry(forecast.entry) else { continue };
            let wanted = entry.wanted_ns.is_some();
            let open = matches!(entry.phase, Phase::Foreseen | Phase::Announced | Phase::Reserved);
            let job = view.parameters.job_horizons.get(&forecast.trainer.job);
            let horizon = job.map_or(horizon, |&own| own.min(horizon));
            if open && (wanted || forecast.ahead < horizon) {
                let class = if wanted { Class::Demand } else { Class::Prefetch };
                let (id, rank, ahead) = (forecast.entry, rank as u32, forecast.ahead);
                blocks += entry.blocks.len();
                let crowded = ahead > 0 && 100 * blocks > NEAR_PERCENT * slots;
                let far = ahead >= view.parameters.near_minibatches || crowded;
                let far = self.order.foresees() && !wanted && far;
                let job = forecast.trainer.job;
                candidates.push(Candidate {
                    id,
                    job,
                    rank,
                    ahead,
                    class,
                    far,
                    eased: false,
                    due_ns: u64::MAX,
                });
            }
        }
        candidates
    }

    /// What each minibatch lacks, and when it is needed.
    fn needs(candidates: &[Candidate], forecasts: &[Forecast], view: &View) -> Vec<Need> {
        let need = |candidate: &Candidate| {
            let forecast = &forecasts[candidate.rank as usize];
            let entry = view.window.entry(candidate.id);
            let block_bytes = entry.and_then(|entry| view.book.block_bytes(entry.segments.first()?.table));
            let missing = entry.map_or(0, |entry| entry.missing);
            let is_timed = view.window.is_timed(forecast.trainer);
            Need {
                job: forecast.trainer.job,
                bytes: f64::from(missing) * f64::from(block_bytes.unwrap_or(0)),
                in_ns: if is_timed { forecast.in_ns as f64 } else { 0.0 },
            }
        };
        candidates.iter().map(need).collect()
    }

    /// Says when each minibatch has to be there, and marks those that can wait.
    fn time(&mut self, candidates: &mut [Candidate], forecasts: &[Forecast], now_ns: u64, view: &View) {
        let mut needs = Self::needs(candidates, forecasts, view);
        let bytes_per_ns = self.budget.bandwidth() / 1e9;
        let mut up_to = 0.0;
        for (candidate, need) in candidates.iter_mut().zip(&mut needs) {
            up_to += need.bytes;
            candidate.due_ns = need.in_ns.max(up_to / bytes_per_ns.max(1e-12)) as u64;
            if candidate.class == Class::Demand {
                need.bytes = 0.0;
            }
        }
        if !self.traits.eases {
            return;
        }
        let mut steps = BTreeMap::new();
        for trainer in view.window.trainers() {
            let step_ns: &mut f64 = steps.entry(trainer.job).or_default();
            *step_ns = step_ns.max(view.window.step_ns(trainer));
        }
        let (capacity, quantum) = self.budget.capacity();
        let urgent = self.ease.renew(&needs, capacity / 1e9, quantum as f64, &steps, now_ns);
        for candidate in candidates.iter_mut().skip(urgent) {
            candidate.eased = candidate.class == Class::Prefetch;
        }
    }

    fn plan(&mut self, now_ns: u64, view: &View, steps: &mut Vec<Step>) {
        let forecasts = view.window.by_time_of_use();
        self.ranks = Ranks::new(&forecasts);
        let mut candidates = self.candidates(&forecasts, view);
        self.time(&mut candidates, &forecasts, now_ns, view);
        let reserved = self.plan_reservations(&candidates, view, steps);
        let mut room_for_far = true;
        for candidate in &candidates {
            if candidate.far && !room_for_far || self.passing.contains(&candidate.id) {
                continue;
            }
            let pinned = reserved.contains(&candidate.id)
                || view.window.entry(candidate.id).is_some_and(|entry| entry.phase == Phase::Reserved);
            let had_room = self.plan_fetches(*candidate, pinned, &reserved, view, steps);
            room_for_far &= had_room || !candidate.far;
            if self.budget.is_spent() {
                return;
            }
        }
        let on = view.prefetching == Prefetching::On;
        if on && room_for_far && !candidates.iter().any(|candidate| candidate.class == Class::Demand) {
            self.fetch_likely(&reserved, view, steps);
        }
        if self.traits.speculates && on {
            self.speculate(&reserved, view, steps);
        }
        if self.traits.chooses {
            self.bring(view, steps);
        } else if self.traits.keeps {
            self.warm_up(view, steps);
        }
    }

    /// The next block of a table to go, for a minibatch of this rank: none that a minibatch of `reserved` pins, none
    /// of which this plan fetches rows.
    fn victim(&mut self, table: TableId, rank: u32, reserved: &[EntryId], view: &View) -> Option<BlockId> {
        loop {
            let block = self.order.victim(table, rank, view)?;
            let pinned = |block| view.window.uses(block).any(|user| reserved.contains(&user));
            if self.marks.is_leaving(block) {
                continue;
            }
            if !self.marks.is_coming(block) && (reserved.is_empty() || !pinned(block)) {
                return Some(block);
            }
            self.aside.push(block);
        }
    }

    /// What one minibatch could not take, another may.
    fn restore_aside(&mut self, view: &View) {
        while let Some(block) = self.aside.pop() {
            self.order.restore(block, view);
        }
    }

    /// A step of this plan evicts the block: from here on it counts as gone, though the facts do not show it yet.
    fn let_go(&mut self, victim: BlockId, view: &View) {
        self.marks.leaves(victim);
        self.likely.note_evicted();
        self.budget.take_evictable(view.cache.table_of(victim), 1);
        self.rewind(victim, view);
        if self.traits.speculates {
            self.gone.push_back(victim);
            if self.gone.len() > self.gone_max {
                self.gone.pop_front();
            }
        }
    }

    /// Fetches what a minibatch lacks, as far as permits and slots go; `false` if slots ran out.
    fn plan_fetches(
        &mut self,
        candidate: Candidate,
        pinned: bool,
        reserved: &[EntryId],
        view: &View,
        steps: &mut Vec<Step>,
    ) -> bool {
        let Some(entry) = view.window.entry(candidate.id) else { return true };
        let mut had_room = true;
        let starts = || entry.segments.iter().map(|segment| segment.start).collect();
        let mut cursors = self.cursors.remove(&candidate.id).unwrap_or_else(starts);
        let origin = if candidate.class == Class::Demand { Origin::Demand } else { Origin::Forecast };
        let mut fetches = Fetches::new(self.budget.links(), candidate.class, origin);
        for (segment, cursor) in entry.segments.iter().zip(&mut cursors) {
            let row_bytes = u64::from(view.book.row_bytes(segment.table).unwrap_or(0));
            while *cursor < segment.end {
                let wanted = entry.blocks[*cursor as usize];
                let mask = self.marks.absent(wanted, view);
                if mask != 0 {
                    let rows = BlockRows { block: wanted.block, mask };
                    let bytes = u64::from(rows.rows()) * row_bytes;
                    let request = (bytes, candidate.class);
                    let due_ns = candidate.due_ns;
                    let Some(source) = self.budget.source(segment.part, rows.block, request, due_ns, view)
                    else {
                        break;
                    };
                    if candidate.eased && !self.ease.take(candidate.job, bytes) {
                        break;
                    }
                    let mut evict = None;
                    if !pinned
                        && !self.marks.has_slot(rows.block, view)
                        && !self.budget.take_slot(segment.table)
                    {
                        evict = self.one_victim(candidate, segment.table, reserved, view);
                        if evict.is_none() {
                            had_room = false;
                            break;
                        }
                    }
                    self.budget.take_bytes(source.link, bytes);
                    self.marks.comes(rows);
                    fetches.add(source, Admission { rows, evict });
                }
                *cursor += 1;
            }
        }
        self.restore_aside(view);
        fetches.finish(steps);
        self.cursors.insert(candidate.id, cursors);
        had_room
    }

    /// A block to evict for a prefetch: nothing that is needed as soon as what comes in.
    fn one_victim(
        &mut self,
        candidate: Candidate,
        table: TableId,
        reserved: &[EntryId],
        view: &View,
    ) -> Option<BlockId> {
        if candidate.far {
            return None;
        }
        let victim = self.victim(table, candidate.rank, reserved, view)?;
        if view.window.uses(victim).any(|user| self.ranks.rank(user) <= candidate.rank) {
            self.aside.push(victim);
            return None;
        }
        self.let_go(victim, view);
        Some(victim)
    }
}

impl<O: Order> Policy for Arm<O> {
    fn on(&mut self, events: &[Event], now_ns: u64, view: &View) -> Vec<Step> {
        self.order.prepare(view);
        self.marks.clear();
        self.budget.renew(view, now_ns);
        let mut steps = vec![];
        for event in events {
            self.note(event, view, &mut steps);
        }
        if self.traits.chooses {
            let mut dismissed = self.order.dismissed();
            dismissed.sort_unstable();
            dismissed.dedup();
            dismissed.retain(|&block| !self.order.keeps(block));
            self.evict(dismissed, view, &mut steps);
        }
        self.plan(now_ns, view, &mut steps);
        steps
    }

    fn foresees(&self) -> bool {
        self.order.foresees()
    }

    fn rebuild(&mut self, view: &View) {
        self.cursors.clear();
        self.speculative.clear();
        self.warm = Warm::default();
        self.order.rebuild(view);
    }

    fn memory_bytes(&self) -> usize {
        self.order.memory_bytes()
            + self.likely.memory_bytes()
            + self.marks.memory_bytes()
            + (self.gone.capacity() + self.speculative.capacity()) * size_of::<BlockId>()
    }
}
