//! Foreseen minibatches: what a replay of a trainer's sampler says will be announced.
//!
//! They stand in the window behind what is announced, so next uses, eviction order and prefetching see them; they have
//! no places, take no credit and are never reserved. When their trainer announces the next one, digests are compared.
//! If they differ, the replay is wrong from there on: an alarm is kept, what is foreseen of that trainer goes, and no
//! more is taken until it connects anew. Beyond what is announced, likelihood decides then, as without a replay.

use super::Engine;
use crate::step::{AnnounceRefusal, Event, Reaction, TrainerId};
use crate::window::{EntryId, Phase};
use rudder_graph::BlockRows;
use rudder_graph::trace::TraceDigest;
use rudder_topology::{MinibatchId, TableId};
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes that the window keeps for each block of a minibatch: its rows, and its place in the block's list of uses.
const USE_BYTES: u64 = size_of::<BlockRows>() as u64 + 12;
/// And for each minibatch.
const MINIBATCH_BYTES: u64 = 256;

/// A trainer asked for something else than a replay of its sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{trainer} announced {minibatch} and not what its declared sampler gives (the replay expected {}): its seed, seeds per minibatch, fan-out, rank, world or training vertices are others than it declared; the node falls back to likelihood",
    self.expected.1
)]
pub struct ReplayAlarm {
    pub trainer: TrainerId,
    /// What was announced.
    pub minibatch: MinibatchId,
    /// What the replay had next: digest of its rows, and which minibatch.
    pub expected: ([u8; 32], MinibatchId),
    /// Digest of the rows that were announced.
    pub found: [u8; 32],
}

/// Why a foreseen minibatch was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeseeRefusal {
    #[error("the node's policy makes no use of it")]
    Unused,
    #[error("the trainer is not connected")]
    UnknownTrainer,
    #[error("a replay of this trainer's sampler was wrong before")]
    Distrusted,
    #[error("{0} is announced already: the replay is behind")]
    Behind(MinibatchId),
    #[error("no room: come again after a release")]
    Full,
    #[error(transparent)]
    Rows(AnnounceRefusal),
}

/// What is known of replays.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    expected: FxHashMap<EntryId, [u8; 32]>,
    distrusted: FxHashSet<TrainerId>,
    bytes: FxHashMap<TrainerId, u64>,
    alarms: Vec<ReplayAlarm>,
}

impl Foresight {
    /// The trainer is gone.
    pub fn forget(&mut self, trainer: TrainerId) {
        self.distrusted.remove(&trainer);
        self.bytes.remove(&trainer);
    }

    /// A foreseen minibatch is so no more.
    fn take(&mut self, id: EntryId, trainer: TrainerId, blocks: usize) -> Option<[u8; 32]> {
        if let Some(bytes) = self.bytes.get_mut(&trainer) {
            *bytes = bytes.saturating_sub(entry_bytes(blocks));
        }
        self.expected.remove(&id)
    }
}

fn entry_bytes(blocks: usize) -> u64 {
    MINIBATCH_BYTES + USE_BYTES * blocks as u64
}

fn digest(minibatch: MinibatchId, tables: &[(TableId, Vec<u32>)]) -> [u8; 32] {
    let mut digest = TraceDigest::default();
    for (table, rows) in tables {
        digest.request(minibatch, *table, rows);
    }
    digest.digest()
}

impl Engine {
    /// Predictor stage: a minibatch that the trainer is expected to announce after all that are known. A trainer may
    /// take its equal share of the room for what is foreseen, and always one minibatch.
    pub fn foresee(
        &mut self,
        trainer: TrainerId,
        minibatch: MinibatchId,
        tables: &[(TableId, Vec<u32>)],
    ) -> Result<Reaction, ForeseeRefusal> {
        if !self.policy.foresees() {
            return Err(ForeseeRefusal::Unused);
        }
        if !self.facts.window.is_connected(trainer) {
            return Err(ForeseeRefusal::UnknownTrainer);
        }
        if self.foresight.distrusted.contains(&trainer) {
            return Err(ForeseeRefusal::Distrusted);
        }
        let last = self.facts.window.foreseen(trainer).last().and_then(|id| self.facts.window.entry(id));
        let last = last.map(|entry| entry.minibatch).or(self.facts.window.last_minibatch(trainer));
        if let Some(last) = last.filter(|&last| minibatch <= last) {
            return Err(ForeseeRefusal::Behind(last));
        }
        let held = self.foresight.bytes.get(&trainer).copied().unwrap_or(0);
        let share =
            self.facts.parameters.foreseen_bytes_max / self.facts.window.trainers().count().max(1) as u64;
        if held > 0 && held >= share {
            return Err(ForeseeRefusal::Full);
        }
        let mut layout = self.lay_out(tables).map_err(ForeseeRefusal::Rows)?;
        let bytes = entry_bytes(layout.blocks.len());
        if held > 0 && held + bytes > share {
            return Err(ForeseeRefusal::Full);
        }
        layout.tables.clear();
        let id = self.enter(trainer, minibatch, Phase::Foreseen, layout);
        self.foresight.expected.insert(id, digest(minibatch, tables));
        *self.foresight.bytes.entry(trainer).or_default() += bytes;
        self.statistics.minibatches_foreseen += 1;
        Ok(Reaction { events: vec![Event::Foreseen(id)], commands: vec![] })
    }

    /// Compares what is announced with what was foreseen next. `None`: nothing was, or the replay was wrong, and what
    /// it put into the window is gone.
    pub(super) fn confirm(
        &mut self,
        trainer: TrainerId,
        minibatch: MinibatchId,
        tables: &[(TableId, Vec<u32>)],
        events: &mut Vec<Event>,
    ) -> Option<EntryId> {
        let id = self.facts.window.foreseen(trainer).next()?;
        let entry = self.facts.window.entry(id)?;
        let (next, blocks) = (entry.minibatch, entry.blocks.len());
        let expected = self.foresight.take(id, trainer, blocks)?;
        let found = digest(minibatch, tables);
        if (next, expected) == (minibatch, found) {
            self.statistics.foreseen_confirmed += 1;
            return Some(id);
        }
        let expected = (expected, next);
        self.foresight.alarms.push(ReplayAlarm { trainer, minibatch, expected, found });
        self.foresight.distrusted.insert(trainer);
        self.statistics.replay_alarms += 1;
        self.drop_foreseen(trainer, events);
        None
    }

    pub(super) fn drop_foreseen(&mut self, trainer: TrainerId, events: &mut Vec<Event>) {
        let foreseen: Vec<_> = self.facts.window.foreseen(trainer).collect();
        for id in foreseen.into_iter().rev() {
            self.foresight.expected.remove(&id);
            events.extend(self.drop_entry(id, None));
        }
        self.foresight.bytes.remove(&trainer);
    }

    /// A driver has sampled ahead for this long.
    pub fn note_replay_cost(&mut self, cpu_ns: u64) {
        self.statistics.replay_cpu_ns += cpu_ns;
    }

    /// Alarms since the last call, oldest first: for whoever writes the log.
    pub fn take_replay_alarms(&mut self) -> Vec<ReplayAlarm> {
        std::mem::take(&mut self.foresight.alarms)
    }
}

#[cfg(test)]
mod tests;
