//! Facts about trainers: they come, announce, wait, release and go.

use super::Engine;
use crate::cache::CacheIndex;
use crate::step::{AnnounceRefusal, Command, Event, Reaction, TrainerId};
use crate::window::{Entry, EntryId, Phase, RowPlace, Segment};
use rudder_graph::demand::Demand;
use rudder_graph::location::{LOCAL_MAPPINGS, Location};
use rudder_graph::manifest::FEATURE_DATA_OFFSET;
use rudder_topology::{MinibatchId, PartId, TableId};

/// The mapping index of a co-located part's feature file.
#[must_use]
pub fn local_mapping(parts: usize, table: TableId, part: PartId) -> u16 {
    LOCAL_MAPPINGS + table.0 * parts as u16 + part.0
}

/// Drops the pins that a minibatch in this phase has.
pub(super) fn unpin(cache: &mut CacheIndex, entry: &Entry, phase: Phase) {
    for segment in &entry.segments {
        let range = segment.start as usize..segment.end as usize;
        let blocks = &entry.blocks[range.clone()];
        match phase {
            Phase::Reserved | Phase::Ready => cache.unpin_all(blocks, segment.table),
            Phase::Bypass => {
                let pinned = blocks.iter().zip(&entry.in_cache[range]).filter(|(_, in_cache)| **in_cache);
                let pinned: Vec<_> = pinned.map(|(&rows, _)| rows).collect();
                cache.unpin_all(&pinned, segment.table);
            }
            Phase::Foreseen | Phase::Announced | Phase::Failed => {}
        }
    }
}

/// The blocks that rows of tables lie in.
pub(super) struct Layout {
    pub blocks: Vec<rudder_graph::BlockRows>,
    pub segments: Vec<Segment>,
    pub tables: Vec<(TableId, Vec<RowPlace>)>,
}

impl Engine {
    /// A trainer came. Coming twice changes nothing.
    pub fn connect(&mut self, trainer: TrainerId) {
        self.facts.window.connect(trainer);
    }

    /// A trainer is gone: its window and all of its pins go at once.
    pub fn disconnect(&mut self, trainer: TrainerId) -> Reaction {
        let mut events = vec![];
        self.drop_foreseen(trainer, &mut events);
        let queue: Vec<_> = self.facts.window.queue(trainer).collect();
        for id in queue.into_iter().rev() {
            events.extend(self.drop_entry(id, None));
        }
        self.foresight.forget(trainer);
        self.times.forget(trainer);
        self.facts.window.disconnect(trainer);
        self.withdraw(&mut events);
        Reaction { events, commands: vec![] }
    }

    /// Predictor stage: a minibatch enters the window. Tables may come in any order, each once.
    pub fn announce(
        &mut self,
        trainer: TrainerId,
        minibatch: MinibatchId,
        tables: &[(TableId, Vec<u32>)],
    ) -> Result<Reaction, AnnounceRefusal> {
        if !self.facts.window.is_connected(trainer) {
            return Err(AnnounceRefusal::UnknownTrainer);
        }
        if let Some(last) = self.facts.window.last_minibatch(trainer).filter(|&last| minibatch <= last) {
            return Err(AnnounceRefusal::StaleMinibatch(minibatch, last));
        }
        if self.facts.window.queued(trainer) >= self.credits as usize {
            return Err(AnnounceRefusal::NoCredit);
        }
        let layout = self.lay_out(tables)?;
        self.statistics.minibatches_announced += 1;
        let mut events = vec![];
        let confirmed = self.confirm(trainer, minibatch, tables, &mut events);
        let id = match confirmed {
            Some(id) => {
                self.facts.window.confirm(id, layout.tables);
                id
            }
            None => self.enter(trainer, minibatch, Phase::Announced, layout),
        };
        events.push(Event::Announced(id));
        Ok(Reaction { events, commands: vec![] })
    }

    /// A minibatch enters the window.
    pub(super) fn enter(
        &mut self,
        trainer: TrainerId,
        minibatch: MinibatchId,
        phase: Phase,
        layout: Layout,
    ) -> EntryId {
        let Layout { blocks, segments, tables } = layout;
        let mut entry = Entry::new(trainer, minibatch, blocks, segments, tables);
        entry.phase = phase;
        let absent = |rows: &&rudder_graph::BlockRows| rows.mask & !self.facts.cache.valid(rows.block) != 0;
        entry.missing = entry.blocks.iter().filter(absent).count() as u32;
        self.facts.window.push(entry)
    }

    /// From rows of tables to blocks.
    pub(super) fn lay_out(&mut self, tables: &[(TableId, Vec<u32>)]) -> Result<Layout, AnnounceRefusal> {
        let mut order: Vec<usize> = (0..tables.len()).collect();
        order.sort_by_key(|&i| tables[i].0);
        if let Some(pair) = order.windows(2).find(|pair| tables[pair[0]].0 == tables[pair[1]].0) {
            return Err(AnnounceRefusal::RepeatedTable(tables[pair[0]].0));
        }
        let (mut blocks, mut segments) = (vec![], vec![]);
        let mut places = vec![vec![]; tables.len()];
        for i in order {
            let (table, rows) = &tables[i];
            let demand = self
                .mapper
                .map(&self.facts.book, *table, rows)
                .map_err(|unknown| AnnounceRefusal::UnknownRow(*table, unknown.row))?;
            places[i] = self.split(*table, &demand, &mut blocks, &mut segments);
        }
        let tables = tables.iter().map(|(table, _)| *table).zip(places).collect();
        Ok(Layout { blocks, segments, tables })
    }

    /// Divides a table's demand into remote segments, appended to `blocks`, and rows that are read in place.
    fn split(
        &self,
        table: TableId,
        demand: &Demand,
        blocks: &mut Vec<rudder_graph::BlockRows>,
        segments: &mut Vec<Segment>,
    ) -> Vec<RowPlace> {
        // Per block of the demand: its index in `blocks`, or its first byte in the local mapping.
        let mut to: Vec<Result<u32, Location>> = Vec::with_capacity(demand.blocks.len());
        let row_bytes = u64::from(self.facts.book.row_bytes(table).unwrap_or(0));
        let block_bytes = u64::from(self.facts.book.block_bytes(table).unwrap_or(0));
        for part in (0..self.facts.book.parts()).map(|p| PartId(p as u16)) {
            let range = self.facts.book.part_blocks(table, part);
            let from = to.len();
            let end = from + demand.blocks[from..].partition_point(|rows| rows.block.0 < range.end);
            let found = &demand.blocks[from..end];
            if self.facts.links.replicas(part).is_empty() {
                let mapping = local_mapping(self.facts.book.parts(), table, part);
                to.extend(found.iter().map(|rows| {
                    let index = u64::from(rows.block.0 - range.start);
                    Err(Location::new(mapping, FEATURE_DATA_OFFSET + index * block_bytes))
                }));
            } else if !found.is_empty() {
                let start = blocks.len() as u32;
                to.extend((0..found.len() as u32).map(|i| Ok(start + i)));
                blocks.extend_from_slice(found);
                segments.push(Segment { table, part, start, end: blocks.len() as u32 });
            }
        }
        let place = |place: &rudder_graph::demand::Place| match to[place.block as usize] {
            Ok(block) => RowPlace::remote(block, place.row),
            Err(first) => RowPlace::local(first.0 + u64::from(place.row) * row_bytes),
        };
        demand.places.iter().map(place).collect()
    }

    /// The minibatch, if its trainer announced it.
    fn announced(&self, trainer: TrainerId, minibatch: MinibatchId) -> Option<EntryId> {
        let id = self.facts.window.find(trainer, minibatch)?;
        self.facts.window.entry(id).is_some_and(|entry| entry.phase != Phase::Foreseen).then_some(id)
    }

    /// The trainer waits for a minibatch. `None`: it was not announced.
    pub fn want(&mut self, trainer: TrainerId, minibatch: MinibatchId, now_ns: u64) -> Option<Reaction> {
        let id = self.announced(trainer, minibatch)?;
        let entry = self.facts.window.entry_mut(id)?;
        if entry.wanted_ns.is_some() {
            return Some(Reaction::default());
        }
        entry.wanted_ns = Some(now_ns);
        let is_ready = entry.phase == Phase::Ready;
        let timed = self.facts.window.is_timed(trainer).then(|| self.facts.window.step_ns(trainer));
        self.times.wanted(trainer, timed, now_ns);
        if is_ready {
            self.times.served(trainer, 0, now_ns);
        }
        let (entry, cache) = (self.facts.window.entry(id)?, &self.facts.cache);
        for segment in &entry.segments {
            let row_bytes = u64::from(self.facts.book.row_bytes(segment.table).unwrap_or(0));
            for rows in &entry.blocks[segment.start as usize..segment.end as usize] {
                self.statistics.rows_wanted += u64::from(rows.rows());
                self.statistics.distinct_bytes_wanted += u64::from(rows.rows()) * row_bytes;
                let resident = rows.mask & cache.valid(rows.block);
                self.statistics.rows_resident += u64::from(resident.count_ones());
            }
        }
        let events = if is_ready { vec![] } else { vec![Event::Wanted(id)] };
        self.note_asked(id, now_ns);
        Some(Reaction { events, commands: vec![] })
    }

    /// The trainer gives a minibatch back. `None`: it was not announced.
    pub fn release(&mut self, trainer: TrainerId, minibatch: MinibatchId, now_ns: u64) -> Option<Reaction> {
        let id = self.announced(trainer, minibatch)?;
        let mut events = self.drop_entry(id, Some(now_ns));
        self.withdraw(&mut events);
        self.statistics.minibatches_released += 1;
        Some(Reaction { events, commands: vec![] })
    }

    /// Takes a minibatch out of the window and drops its pins.
    pub(super) fn drop_entry(&mut self, id: EntryId, released_ns: Option<u64>) -> Vec<Event> {
        let Some(entry) = self.facts.window.remove(id, released_ns) else { return vec![] };
        unpin(&mut self.facts.cache, &entry, entry.phase);
        self.pieces.retain(|progress| progress.entry != id);
        if let Some(benefit) = &mut self.benefit {
            benefit.forget(id);
        }
        vec![Event::Released { entry: id, trainer: entry.trainer, blocks: entry.blocks }]
    }

    /// If everything is in place, the minibatch becomes ready.
    pub(super) fn ready_if_complete(&mut self, id: EntryId, commands: &mut Vec<Command>) {
        let Some(entry) = self.facts.window.entry_mut(id) else { return };
        if entry.phase != Phase::Reserved || entry.missing != 0 {
            return;
        }
        entry.phase = Phase::Ready;
        let blocks = entry.blocks.clone();
        let mut first_bytes = Vec::with_capacity(blocks.len());
        for rows in blocks.iter() {
            let used = self.facts.cache.mark_used(rows.block, rows.mask);
            self.statistics.prefetched_used += u64::from(used.count_ones());
            let slot = self.facts.cache.slot_of(rows.block).expect("a reserved block has a slot");
            let (chunk, offset) = self.facts.cache.geometry().place(slot);
            first_bytes.push(Location::new(chunk.0, offset));
        }
        let Some(entry) = self.facts.window.entry(id) else { return };
        let locate = |(table, places): &(TableId, Vec<RowPlace>)| {
            let row_bytes = u64::from(self.facts.book.row_bytes(*table).unwrap_or(0));
            let location = |place: &RowPlace| match place.resolve() {
                Ok(local) => Location(local),
                Err((block, row)) => Location(first_bytes[block as usize].0 + u64::from(row) * row_bytes),
            };
            (*table, places.iter().map(location).collect())
        };
        let tables = entry.tables.iter().map(locate).collect();
        commands.push(Command::Ready { trainer: entry.trainer, minibatch: entry.minibatch, tables });
    }
}
