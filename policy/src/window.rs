//! The window: announced minibatches that have not been released, and which of them use a block.
//!
//! 4 bytes a block, plus 8 for each use of a block beyond its first.

use crate::step::TrainerId;
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, MinibatchId, PartId, TableId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

mod uses;

use uses::Uses;

/// Weight of the newest step in a trainer's step-time average.
const STEP_WEIGHT: f64 = 0.2;
/// What a step takes before one was measured.
const STEP_NS_DEFAULT: f64 = 100e6;

/// A minibatch of the window. Stale ids find nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    pub(crate) index: u32,
    serial: u32,
}

/// How far a minibatch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A replay of the trainer's sampler says that it will come: it can be prefetched, and nothing else.
    Foreseen,
    Announced,
    /// Every block is pinned or has a pinned slot to arrive in.
    Reserved,
    /// The trainer was told where its rows are.
    Ready,
    /// What the cache lacks comes in pieces past it.
    Bypass,
    Failed,
}

/// The blocks of one table and part within a minibatch: a range of [`Entry::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub table: TableId,
    pub part: PartId,
    pub start: u32,
    pub end: u32,
}

/// Where a row of the request is found: a location (top bit set: co-located part), else index of the block and row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPlace(u64);

impl RowPlace {
    pub(crate) fn local(location: u64) -> Self {
        debug_assert!(location >> 63 == 1);
        RowPlace(location)
    }

    pub(crate) fn remote(block: u32, row: u8) -> Self {
        RowPlace(u64::from(block) << 8 | u64::from(row))
    }

    /// `Ok` with the location of a co-located row, else `Err((index into blocks, row))`.
    pub(crate) fn resolve(self) -> Result<u64, (u32, u8)> {
        if self.0 >> 63 == 1 { Ok(self.0) } else { Err(((self.0 >> 8) as u32, self.0 as u8)) }
    }
}

/// An announced minibatch.
#[derive(Clone, Debug)]
pub struct Entry {
    pub trainer: TrainerId,
    pub minibatch: MinibatchId,
    pub phase: Phase,
    /// Since when its trainer waits for it.
    pub wanted_ns: Option<u64>,
    /// Distinct blocks of remote parts with the rows wanted, ascending.
    pub blocks: Arc<[BlockRows]>,
    pub segments: Vec<Segment>,
    /// Blocks of which some wanted row is not resident.
    pub missing: u32,
    /// Of one that passes by the cache: which of its blocks it found there and pinned. Empty for all others.
    pub(crate) in_cache: Vec<bool>,
    pub(crate) tables: Vec<(TableId, Vec<RowPlace>)>,
    serial: u32,
}

#[derive(Clone, Debug, Default)]
struct Trainer {
    /// Unreleased, oldest first; those that are only foreseen come after all that are announced.
    queue: VecDeque<u32>,
    /// How many of the queue are only foreseen.
    foreseen: usize,
    last_minibatch: Option<MinibatchId>,
    step_ns: Option<f64>,
    last_release_ns: Option<u64>,
}

impl Trainer {
    /// Updates the average step time.
    fn note_release(&mut self, now_ns: u64) {
        if let Some(last) = self.last_release_ns.replace(now_ns) {
            let step = now_ns.saturating_sub(last) as f64;
            let average = self.step_ns.unwrap_or(step);
            self.step_ns = Some(average + STEP_WEIGHT * (step - average));
        }
    }
}

/// All announced, unreleased minibatches. Mutated only by the engine.
#[derive(Clone, Debug)]
pub struct Window {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    trainers: BTreeMap<TrainerId, Trainer>,
    uses: Uses,
    serial: u32,
}

impl Window {
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        Window {
            entries: vec![],
            free: vec![],
            trainers: BTreeMap::new(),
            uses: Uses::new(blocks),
            serial: 0,
        }
    }

    /// The minibatch, unless it left the window.
    #[must_use]
    pub fn entry(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(id.index as usize)?.as_ref().filter(|entry| entry.serial == id.serial)
    }

    pub(crate) fn entry_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(id.index as usize)?.as_mut().filter(|entry| entry.serial == id.serial)
    }

    fn id_of(&self, index: u32) -> Option<EntryId> {
        let entry = self.entries.get(index as usize)?.as_ref()?;
        Some(EntryId { index, serial: entry.serial })
    }

    /// The minibatch of a trainer, if it is announced (or foreseen) and not released.
    #[must_use]
    pub fn find(&self, trainer: TrainerId, minibatch: MinibatchId) -> Option<EntryId> {
        let queue = &self.trainers.get(&trainer)?.queue;
        let found = queue.iter().copied().find(|&index| {
            self.entries[index as usize].as_ref().is_some_and(|entry| entry.minibatch == minibatch)
        });
        found.and_then(|index| self.id_of(index))
    }

    pub fn trainers(&self) -> impl Iterator<Item = TrainerId> {
        self.trainers.keys().copied()
    }

    /// A trainer's unreleased minibatches, oldest first.
    pub fn queue(&self, trainer: TrainerId) -> impl Iterator<Item = EntryId> {
        let queue = self.trainers.get(&trainer).map(|t| &t.queue);
        queue.into_iter().flatten().filter_map(|&index| self.id_of(index))
    }

    /// Whether the minibatch's blocks are pinned.
    #[must_use]
    pub fn is_held(&self, id: EntryId) -> bool {
        self.entry(id).is_some_and(|entry| matches!(entry.phase, Phase::Reserved | Phase::Ready))
    }

    /// What its trainer was not served before it, nor is being served past the cache.
    fn unserved_before(&self, id: EntryId) -> impl Iterator<Item = &Entry> {
        let trainer = self.entry(id).map(|entry| entry.trainer);
        let before = trainer.into_iter().flat_map(|trainer| self.queue(trainer));
        let served = |phase| matches!(phase, Phase::Ready | Phase::Bypass | Phase::Failed);
        let before = before.take_while(move |&queued| queued != id).filter_map(|id| self.entry(id));
        before.filter(move |entry| !served(entry.phase))
    }

    /// Whether its trainer was served everything before it that it waits for: what a trainer has passed over holds
    /// nothing up.
    #[must_use]
    pub fn is_next(&self, id: EntryId) -> bool {
        self.entry(id).is_some() && self.unserved_before(id).all(|entry| entry.wanted_ns.is_none())
    }

    /// Whether its trainer has passed over one before it.
    #[must_use]
    pub fn passes_over(&self, id: EntryId) -> bool {
        self.unserved_before(id).next().is_some()
    }

    /// Number of a trainer's announced, unreleased minibatches.
    #[must_use]
    pub fn queued(&self, trainer: TrainerId) -> usize {
        self.trainers.get(&trainer).map_or(0, |t| t.queue.len() - t.foreseen)
    }

    /// A trainer's minibatches that are foreseen and not announced, soonest first.
    pub fn foreseen(&self, trainer: TrainerId) -> impl Iterator<Item = EntryId> {
        let trainer = self.trainers.get(&trainer);
        let queue = trainer.into_iter().flat_map(|t| t.queue.iter().skip(t.queue.len() - t.foreseen));
        queue.filter_map(|&index| self.id_of(index))
    }

    /// The last minibatch that the trainer announced.
    #[must_use]
    pub fn last_minibatch(&self, trainer: TrainerId) -> Option<MinibatchId> {
        self.trainers.get(&trainer)?.last_minibatch
    }

    /// Whether the trainer's step time was measured.
    #[must_use]
    pub fn is_timed(&self, trainer: TrainerId) -> bool {
        self.trainers.get(&trainer).is_some_and(|t| t.step_ns.is_some())
    }

    /// The trainer's average time from release to release, in nanoseconds.
    #[must_use]
    pub fn step_ns(&self, trainer: TrainerId) -> f64 {
        self.trainers.get(&trainer).and_then(|t| t.step_ns).unwrap_or(STEP_NS_DEFAULT)
    }

    /// Every minibatch of the window with its estimated time of use from now, soonest first: 0 for a trainer's
    /// oldest, then one step-time average each. Ties go to who waits longest. Those that pass by the cache or failed
    /// come last: what they would use may go.
    #[must_use]
    pub fn by_time_of_use(&self) -> Vec<Forecast> {
        let mut all = vec![];
        for (&trainer, state) in &self.trainers {
            let step = state.step_ns.unwrap_or(STEP_NS_DEFAULT);
            for (ahead, &index) in state.queue.iter().enumerate() {
                let Some(entry) = self.id_of(index) else { continue };
                all.push(Forecast {
                    entry,
                    trainer,
                    ahead: ahead as u32,
                    in_ns: (ahead as f64 * step) as u64,
                });
            }
        }
        all.sort_by_key(|f| {
            let entry = self.entry(f.entry);
            let needs_nothing = entry.is_some_and(|e| matches!(e.phase, Phase::Bypass | Phase::Failed));
            let wanted = entry.and_then(|entry| entry.wanted_ns);
            (needs_nothing, f.in_ns, wanted.is_none(), wanted, f.trainer)
        });
        all
    }

    /// Indices of the minibatches that use a block.
    #[inline]
    pub(crate) fn indices(&self, block: BlockId) -> impl Iterator<Item = u32> {
        self.uses.of(block)
    }

    /// Brings what is known of these blocks near.
    #[inline]
    pub(crate) fn touch(&self, blocks: impl Iterator<Item = u32>) {
        self.uses.touch(blocks);
    }

    /// The minibatches that use a block.
    #[inline]
    pub fn uses(&self, block: BlockId) -> impl Iterator<Item = EntryId> {
        self.uses.of(block).filter_map(|index| self.id_of(index))
    }

    /// Rows of a block arrived: the minibatches that lack nothing then are added to `complete`. `single`: blocks have
    /// one row.
    pub(crate) fn note_arrived(
        &mut self,
        block: BlockId,
        before: u64,
        now: u64,
        single: bool,
        complete: &mut Vec<EntryId>,
    ) {
        for index in self.uses.of(block) {
            let Some(entry) = self.entries[index as usize].as_mut() else { continue };
            let mask = entry.wanted(block, single);
            if mask & !before != 0 && mask & !now == 0 {
                entry.missing -= 1;
                if entry.missing == 0 {
                    complete.push(EntryId { index, serial: entry.serial });
                }
            }
        }
    }

    /// A block whose rows `valid` were resident was evicted.
    #[inline]
    pub(crate) fn note_evicted(&mut self, block: BlockId, valid: u64, single: bool) {
        for index in self.uses.of(block) {
            let Some(entry) = self.entries[index as usize].as_mut() else { continue };
            if entry.wanted(block, single) & !valid == 0 {
                entry.missing += 1;
            }
        }
    }

    /// Bytes of what the window knows of every block: not of the minibatches in it.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.uses.memory_bytes()
    }

    /// Bytes of the minibatches in it: they grow with what is announced.
    #[must_use]
    pub fn minibatch_bytes(&self) -> usize {
        let entries = self.entries.iter().flatten().map(|entry| {
            let places = entry.tables.iter().map(|(_, places)| places.capacity() * size_of::<RowPlace>());
            entry.blocks.len() * size_of::<BlockRows>() + places.sum::<usize>()
        });
        entries.sum::<usize>() + self.uses.link_bytes()
    }

    #[must_use]
    pub fn is_used(&self, block: BlockId) -> bool {
        self.uses.of(block).next().is_some()
    }

    pub(crate) fn connect(&mut self, trainer: TrainerId) {
        self.trainers.entry(trainer).or_default();
    }

    pub(crate) fn disconnect(&mut self, trainer: TrainerId) {
        debug_assert_eq!(self.queued(trainer), 0);
        self.trainers.remove(&trainer);
    }

    pub(crate) fn is_connected(&self, trainer: TrainerId) -> bool {
        self.trainers.contains_key(&trainer)
    }

    /// Adds a minibatch to the end of its trainer's queue. What is announced must not follow what is only foreseen.
    pub(crate) fn push(&mut self, mut entry: Entry) -> EntryId {
        self.serial = self.serial.wrapping_add(1);
        entry.serial = self.serial;
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as u32
        });
        for rows in entry.blocks.iter() {
            self.uses.add(rows.block, index);
        }
        let trainer = self.trainers.entry(entry.trainer).or_default();
        trainer.queue.push_back(index);
        if entry.phase == Phase::Foreseen {
            trainer.foreseen += 1;
        } else {
            debug_assert_eq!(trainer.foreseen, 0);
            trainer.last_minibatch = Some(entry.minibatch);
        }
        self.entries[index as usize] = Some(entry);
        EntryId { index, serial: self.serial }
    }

    /// The trainer announced the minibatch that was foreseen next: from here on it is like any other.
    pub(crate) fn confirm(&mut self, id: EntryId, tables: Vec<(TableId, Vec<RowPlace>)>) {
        let Some(entry) = self.entry_mut(id).filter(|entry| entry.phase == Phase::Foreseen) else { return };
        entry.phase = Phase::Announced;
        entry.tables = tables;
        let (trainer, minibatch) = (entry.trainer, entry.minibatch);
        if let Some(trainer) = self.trainers.get_mut(&trainer) {
            trainer.foreseen -= 1;
            trainer.last_minibatch = Some(minibatch);
        }
    }

    /// Takes a minibatch out. `released_ns` is when its trainer gave it back; `None` if the trainer is gone.
    pub(crate) fn remove(&mut self, id: EntryId, released_ns: Option<u64>) -> Option<Entry> {
        self.entry(id)?;
        let entry = self.entries[id.index as usize].take()?;
        self.free.push(id.index);
        for rows in entry.blocks.iter() {
            self.uses.remove(rows.block, id.index);
        }
        if let Some(trainer) = self.trainers.get_mut(&entry.trainer) {
            trainer.queue.retain(|&index| index != id.index);
            trainer.foreseen -= usize::from(entry.phase == Phase::Foreseen);
            if let Some(now) = released_ns {
                trainer.note_release(now);
            }
        }
        Some(entry)
    }
}

/// When a minibatch of the window will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    pub entry: EntryId,
    pub trainer: TrainerId,
    /// Unreleased minibatches of its trainer before it.
    pub ahead: u32,
    /// Estimated time until use, in nanoseconds.
    pub in_ns: u64,
}

/// Minibatches of the window in order of time of use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranks {
    by_rank: Vec<EntryId>,
    /// By index of the minibatch.
    ranks: Vec<u32>,
}

impl Ranks {
    /// Of forecasts in order of time of use.
    pub fn new(forecasts: &[Forecast]) -> Self {
        Ranks::by_index(forecasts.iter().map(|forecast| forecast.entry).collect())
    }

    /// As [`Ranks::new`], but minibatches that hold their blocks come before all others.
    pub fn held_first(window: &Window) -> Self {
        let mut by_rank: Vec<_> = window.by_time_of_use().iter().map(|forecast| forecast.entry).collect();
        by_rank.sort_by_key(|&id| !window.is_held(id));
        Ranks::by_index(by_rank)
    }

    fn by_index(by_rank: Vec<EntryId>) -> Self {
        let last = by_rank.iter().map(|id| id.index as usize).max();
        let mut ranks = vec![u32::MAX; last.map_or(0, |last| last + 1)];
        for (rank, id) in by_rank.iter().enumerate() {
            ranks[id.index as usize] = rank as u32;
        }
        Ranks { by_rank, ranks }
    }

    /// Of a minibatch with this index.
    #[inline]
    pub fn of_index(&self, index: u32) -> u32 {
        self.ranks.get(index as usize).copied().unwrap_or(u32::MAX)
    }

    /// 0 is used first; `u32::MAX` where the minibatch is not in the window.
    #[inline]
    pub fn rank(&self, id: EntryId) -> u32 {
        self.ranks.get(id.index as usize).copied().unwrap_or(u32::MAX)
    }

    pub fn at(&self, rank: u32) -> Option<EntryId> {
        self.by_rank.get(rank as usize).copied()
    }

    pub fn len(&self) -> u32 {
        self.by_rank.len() as u32
    }
}

impl Entry {
    /// A minibatch as announced; `blocks` ascending and distinct, `segments` covering them.
    pub(crate) fn new(
        trainer: TrainerId,
        minibatch: MinibatchId,
        blocks: Vec<BlockRows>,
        segments: Vec<Segment>,
        tables: Vec<(TableId, Vec<RowPlace>)>,
    ) -> Self {
        Entry {
            trainer,
            minibatch,
            phase: Phase::Announced,
            wanted_ns: None,
            blocks: blocks.into(),
            segments,
            missing: 0,
            in_cache: vec![],
            tables,
            serial: 0,
        }
    }

    /// Rows that it wants of a block that it uses; of a block of one row it is that one, without a search.
    fn wanted(&self, block: BlockId, single: bool) -> u64 {
        if single { 1 } else { self.position(block).map_or(0, |at| self.blocks[at].mask) }
    }

    /// Index of a block into `blocks`.
    #[must_use]
    pub fn position(&self, block: BlockId) -> Option<usize> {
        self.blocks.binary_search_by_key(&block, |rows| rows.block).ok()
    }

    /// Distinct remote rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.blocks.iter().map(|rows| u64::from(rows.rows())).sum()
    }
}
