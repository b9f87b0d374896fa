//! Furthest next use first (Belady 1966, on what is announced); where no use is announced, least likely first.
//!
//! One list for each minibatch of the window (blocks that it needs next), and one for each step of the decayed use
//! count (blocks that no announced minibatch needs). Every move costs constant time; there is no heap.

use super::frequency::Frequency;
use super::lists::{ListId, Lists};
use super::order::Order;
use crate::geometry::Geometry;
use crate::view::View;
use crate::window::EntryId;
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, SlotId, TableId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Steps of the log2 use count per doubling.
const STEPS_PER_DOUBLING: f32 = 4.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Entry(TableId, EntryId),
    Likelihood(TableId, i32),
}

pub(super) struct NextUse {
    lists: Lists,
    homes: FxHashMap<ListId, Home>,
    by_entry: FxHashMap<(TableId, EntryId), ListId>,
    by_likelihood: BTreeMap<(TableId, i32), ListId>,
    lengths: Vec<usize>,
    /// Rank in order of time of use.
    ranks: FxHashMap<EntryId, u32>,
    /// Minibatches by rank.
    ranked: Vec<EntryId>,
    frequency: Frequency,
    slots: u32,
}

impl std::hash::Hash for Home {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match self {
            Home::Entry(table, entry) => (0_u8, table, entry).hash(state),
            Home::Likelihood(table, step) => (1_u8, table, step).hash(state),
        }
    }
}

impl NextUse {
    pub fn new(geometry: &Geometry) -> Self {
        NextUse {
            lists: Lists::new(geometry.slots()),
            homes: FxHashMap::default(),
            by_entry: FxHashMap::default(),
            by_likelihood: BTreeMap::new(),
            lengths: vec![0; geometry.classes()],
            ranks: FxHashMap::default(),
            ranked: vec![],
            frequency: Frequency::new(geometry.blocks()),
            slots: geometry.slots(),
        }
    }

    /// The minibatch that needs the block first.
    fn next_use(&self, block: BlockId, view: &View) -> Option<EntryId> {
        let uses = view.window.uses(block).map(|user| user.entry);
        uses.min_by_key(|entry| self.ranks.get(entry).copied().unwrap_or(u32::MAX))
    }

    fn home_of(&self, block: BlockId, table: TableId, view: &View) -> Home {
        match self.next_use(block, view) {
            Some(entry) => Home::Entry(table, entry),
            None => {
                let step = (self.frequency.score(block) * STEPS_PER_DOUBLING).floor();
                Home::Likelihood(table, step as i32)
            }
        }
    }

    fn list(&mut self, home: Home) -> ListId {
        let lists = &mut self.lists;
        let list = match home {
            Home::Entry(table, entry) => {
                *self.by_entry.entry((table, entry)).or_insert_with(|| lists.add_list())
            }
            Home::Likelihood(table, step) => {
                *self.by_likelihood.entry((table, step)).or_insert_with(|| lists.add_list())
            }
        };
        self.homes.insert(list, home);
        list
    }

    /// Takes a slot out; a list that is empty then is given back.
    fn unlink(&mut self, slot: u32) -> Option<Home> {
        let list = self.lists.remove(slot)?;
        let home = *self.homes.get(&list)?;
        let (Home::Entry(table, _) | Home::Likelihood(table, _)) = home;
        self.lengths[table.index()] -= 1;
        if self.lists.len(list) == 0 {
            match home {
                Home::Entry(table, entry) => self.by_entry.remove(&(table, entry)),
                Home::Likelihood(table, step) => self.by_likelihood.remove(&(table, step)),
            };
            self.homes.remove(&list);
            self.lists.drop_list(list);
        }
        Some(home)
    }

    /// The least likely block that nobody in the window needs.
    fn unlikely(&self, table: TableId) -> Option<u32> {
        let (_, &list) = self.by_likelihood.range((table, i32::MIN)..=(table, i32::MAX)).next()?;
        self.lists.first(list)
    }

    /// A block of the minibatch that is used last, if later than `sooner_than`.
    fn furthest(&self, table: TableId, sooner_than: u32) -> Option<u32> {
        for (rank, entry) in self.ranked.iter().enumerate().rev() {
            if rank as u32 <= sooner_than {
                return None;
            }
            if let Some(&list) = self.by_entry.get(&(table, *entry)) {
                return self.lists.first(list);
            }
        }
        None
    }
}

impl Order for NextUse {
    fn prepare(&mut self, view: &View) {
        self.ranked = view.window.by_time_of_use().into_iter().map(|f| f.entry).collect();
        self.ranks = self.ranked.iter().enumerate().map(|(rank, &entry)| (entry, rank as u32)).collect();
    }

    fn place(&mut self, block: BlockId, view: &View) {
        let Some(slot) = view.cache.slot_of(block) else { return };
        let Some(table) = view.book.block(block).map(|place| place.table) else { return };
        self.unlink(slot.0);
        let home = self.home_of(block, table, view);
        let list = self.list(home);
        self.lists.push_back(list, slot.0);
        self.lengths[table.index()] += 1;
    }

    fn announced(&mut self, block: BlockId, view: &View) {
        self.place(block, view);
    }

    fn remove(&mut self, block: BlockId, view: &View) {
        if let Some(slot) = view.cache.slot_of(block) {
            self.unlink(slot.0);
        }
    }

    fn len(&self, table: TableId) -> usize {
        self.lengths.get(table.index()).copied().unwrap_or(0)
    }

    fn contains(&self, block: BlockId, view: &View) -> bool {
        view.cache.slot_of(block).is_some_and(|slot| self.lists.list_of(slot.0).is_some())
    }

    fn victim(&mut self, table: TableId, sooner_than: u32, view: &View) -> Option<BlockId> {
        loop {
            let slot = self.unlikely(table).or_else(|| self.furthest(table, sooner_than))?;
            let home = self.unlink(slot)?;
            let block = view.cache.block_in(SlotId(slot))?;
            let Home::Entry(_, entry) = home else { return Some(block) };
            // Step times changed since the block was placed: another minibatch may need it first by now.
            let next = self.next_use(block, view);
            if next == Some(entry) {
                return Some(block);
            }
            self.place(block, view);
        }
    }

    fn clear(&mut self) {
        for slot in 0..self.slots {
            self.unlink(slot);
        }
    }

    fn record(&mut self, blocks: &[BlockRows], half_life_minibatches: f32) {
        self.frequency.record(blocks, half_life_minibatches);
    }

    fn likelihood(&self, block: BlockId) -> f32 {
        self.frequency.score(block)
    }
}
