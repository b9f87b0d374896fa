//! Ginex (Park et al., VLDB 2022): Belady's choice within a superbatch of S minibatches that are sampled ahead; beyond
//! its end nothing is known.
//!
//! Superbatch b is minibatches b·S to (b + 1)·S - 1 of each trainer. What goes is the block whose next use in its
//! users' present superbatches is furthest; a block without one goes before. Of equals the lowest id goes. Known is
//! what is announced or foreseen: with fewer than S minibatches ahead the superbatch is seen only in part.

use super::order::Order;
use crate::step::TrainerId;
use crate::view::View;
use crate::window::EntryId;
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, TableId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// The minibatch that uses a block next, as far as is known.
type Home = (TableId, Option<EntryId>);

pub(super) struct Superbatch {
    length: u64,
    /// Resident blocks; some may be pinned.
    homes: FxHashMap<BlockId, Home>,
    blocks: FxHashMap<Home, BTreeSet<BlockId>>,
    ranked: Vec<EntryId>,
    ranks: FxHashMap<EntryId, u32>,
    /// Each trainer's present superbatch.
    present: BTreeMap<TrainerId, u64>,
}

impl Superbatch {
    pub fn new(minibatches: u32) -> Self {
        Superbatch {
            length: u64::from(minibatches),
            homes: FxHashMap::default(),
            blocks: FxHashMap::default(),
            ranked: vec![],
            ranks: FxHashMap::default(),
            present: BTreeMap::new(),
        }
    }

    fn next_use(&self, block: BlockId, view: &View) -> Option<EntryId> {
        let within = |id: &EntryId| {
            let entry = view.window.entry(*id);
            entry.is_some_and(|e| self.present.get(&e.trainer) == Some(&(e.minibatch.0 / self.length)))
        };
        let uses = view.window.uses(block).filter(within);
        uses.min_by_key(|entry| self.ranks.get(entry).copied().unwrap_or(u32::MAX))
    }

    /// Gives a resident block its place, or another one.
    fn place(&mut self, block: BlockId, view: &View) {
        self.take(block);
        if view.cache.slot_of(block).is_some() {
            let home = (view.cache.table_of(block), self.next_use(block, view));
            self.homes.insert(block, home);
            self.blocks.entry(home).or_default().insert(block);
        }
    }

    fn take(&mut self, block: BlockId) -> Option<Home> {
        let home = self.homes.remove(&block)?;
        if let Some(blocks) = self.blocks.get_mut(&home) {
            blocks.remove(&block);
            if blocks.is_empty() {
                self.blocks.remove(&home);
            }
        }
        Some(home)
    }

    fn first(&self, home: Home) -> Option<BlockId> {
        self.blocks.get(&home)?.first().copied()
    }
}

impl Order for Superbatch {
    fn prepare(&mut self, view: &View) {
        self.ranked = view.window.by_time_of_use().into_iter().map(|forecast| forecast.entry).collect();
        self.ranks = self.ranked.iter().zip(0..).map(|(&entry, rank)| (entry, rank)).collect();
        let oldest = |trainer| view.window.entry(view.window.queue(trainer).next()?);
        let present = view.window.trainers().filter_map(|t| Some((t, oldest(t)?.minibatch.0 / self.length)));
        let present: BTreeMap<_, _> = present.collect();
        if present != self.present {
            // What was beyond the end of a superbatch is known now.
            self.present = present;
            let all: Vec<_> = self.homes.keys().copied().collect();
            for block in all {
                self.place(block, view);
            }
        }
    }

    fn announced(&mut self, blocks: &[BlockRows], view: &View) {
        for rows in blocks {
            if self.homes.contains_key(&rows.block) {
                self.place(rows.block, view);
            }
        }
    }

    fn arrived(&mut self, rows: &[BlockRows], view: &View) {
        for rows in rows {
            self.place(rows.block, view);
        }
    }

    fn released(&mut self, _: EntryId, blocks: &[BlockRows], view: &View) {
        for rows in blocks {
            self.place(rows.block, view);
        }
    }

    fn victim(&mut self, table: TableId, sooner_than: u32, view: &View) -> Option<BlockId> {
        loop {
            let later = self.ranked.iter().skip(sooner_than as usize + 1).rev().map(|&entry| Some(entry));
            let mut homes = std::iter::once(None).chain(later).map(|next| (table, next));
            let block = homes.find_map(|home| self.first(home))?;
            let home = self.take(block)?;
            // Its release or arrival brings it back.
            if !view.cache.is_evictable(block) {
                continue;
            }
            // With several trainers, whose turn comes first may have changed since the block was placed.
            if self.next_use(block, view) == home.1 {
                return Some(block);
            }
            self.place(block, view);
        }
    }

    fn restore(&mut self, block: BlockId, view: &View) {
        self.place(block, view);
    }

    fn foresees(&self) -> bool {
        true
    }

    fn rebuild(&mut self, view: &View) {
        self.homes.clear();
        self.blocks.clear();
        self.prepare(view);
        for block in view.cache.resident() {
            self.place(block, view);
        }
    }

    fn memory_bytes(&self) -> usize {
        // A block stands in the map and in one of the sets.
        self.homes.capacity() * size_of::<(BlockId, Home)>() + self.homes.len() * 2 * size_of::<BlockId>()
    }
}
