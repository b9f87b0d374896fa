//! Caches that keep a chosen set of blocks and nothing else. What is not in the set is fetched for its minibatch and let
//! go after it.
//!
//! The published systems have memory of their own for the minibatches in use; here it comes out of the same cache. So a
//! set begins as large as it may be, and where a minibatch lacks room its least valuable blocks yield, for good: after
//! the first minibatches the set has what minibatches in use leave it.
//!
//! Blocks of the set are fetched whole, most valuable first, while nobody else needs the links: at the start that is
//! before training begins, as in the published systems, and otherwise whatever of it is missing comes with the first
//! minibatch that uses it.

use super::block_set::BlockSet;
use super::lists::{ListId, Lists};
use super::order::Order;
use crate::geometry::Geometry;
use crate::view::View;
use crate::window::EntryId;
use rudder_graph::{BlockRows, PartitionBook};
use rudder_topology::{BlockId, PartId, SlotId, TableId};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::sync::Arc;

mod fixed;
mod massivegnn;
mod window_static;

pub(super) use fixed::Fixed;
pub(super) use massivegnn::MassiveGnn;
pub(super) use window_static::WindowStatic;

/// Says which blocks are in the set.
pub(super) trait Choice: Send {
    /// Called once before each batch of events.
    fn prepare(&mut self, _view: &View, _members: &mut Members) {}

    /// A minibatch that used these blocks was released.
    fn used(&mut self, _blocks: &[BlockRows], _members: &mut Members) {}

    /// The members of a table, most valuable first: they yield from the end.
    fn by_value(&self, table: TableId, members: &Members) -> Vec<BlockId>;

    /// Whether the window decides, so that foreseen minibatches help.
    fn foresees(&self) -> bool {
        false
    }

    /// A member yielded: minibatches need its slot.
    fn yielded(&mut self, _block: BlockId) {}

    /// A member that had just yielded is back.
    fn returned(&mut self, _block: BlockId) {}

    /// Bytes that it keeps for good.
    fn memory_bytes(&self) -> usize;
}

/// The set.
pub(super) struct Members {
    kept: BlockSet,
    /// Members to bring in, by table; some may have come meanwhile.
    absent: Vec<VecDeque<BlockId>>,
    /// Who left since the planner asked last.
    left: Vec<BlockId>,
}

impl Members {
    fn new(geometry: &Geometry) -> Self {
        let absent = vec![VecDeque::new(); geometry.classes()];
        Members { kept: BlockSet::new(geometry.blocks()), absent, left: vec![] }
    }

    pub fn contains(&self, block: BlockId) -> bool {
        self.kept.contains(block)
    }

    pub fn join(&mut self, block: BlockId, table: TableId) {
        if self.kept.insert(block) {
            self.absent[table.index()].push_back(block);
        }
    }

    pub fn leave(&mut self, block: BlockId) {
        if self.contains(block) {
            self.kept.remove(block);
            self.left.push(block);
        }
    }

    fn memory_bytes(&self) -> usize {
        let queued: usize = self.absent.iter().map(VecDeque::capacity).sum();
        self.kept.memory_bytes() + (queued + self.left.capacity()) * size_of::<BlockId>()
    }
}

/// What is known when a set is chosen first.
pub(crate) struct Ground<'a> {
    pub book: &'a PartitionBook,
    pub geometry: &'a Geometry,
    /// By part: `false` for a co-located one.
    pub remote: &'a [bool],
    /// Expected uses by block.
    pub prior: Arc<[f32]>,
}

impl Ground<'_> {
    fn tables(&self) -> impl Iterator<Item = TableId> + use<> {
        (0..self.book.tables()).map(|table| TableId(table as u16))
    }

    fn slots(&self, table: TableId) -> usize {
        self.geometry.class_slots(table).len()
    }

    fn expected(&self, block: BlockId) -> f32 {
        self.prior.get(block.index()).copied().unwrap_or(0.0)
    }

    /// Remote blocks of a table that are expected to be used, most used first; of equals the lowest id.
    fn ranked(&self, table: TableId) -> Vec<BlockId> {
        let parts = (0..self.book.parts()).filter(|&part| self.remote.get(part) == Some(&true));
        let blocks = parts.flat_map(|part| self.book.part_blocks(table, PartId(part as u16))).map(BlockId);
        let mut blocks: Vec<_> = blocks.filter(|&block| self.expected(block) > 0.0).collect();
        blocks.sort_by(|&a, &b| self.expected(b).total_cmp(&self.expected(a)).then(a.cmp(&b)));
        blocks
    }
}

/// The order of a set: what is not in it goes first, then members yield; what was fetched ahead for an announced
/// minibatch goes last.
pub(super) struct Kept<C> {
    choice: C,
    members: Members,
    lists: Lists,
    /// By table, blocks outside the set in order of arrival.
    passing: Vec<ListId>,
    /// By table, whether announced minibatches use all of those; good for one batch of events.
    all_awaited: Vec<bool>,
    /// By table, members in the order of [`Choice::by_value`]; made when room is lacking, good for one batch of events.
    yielding: Vec<Option<Vec<BlockId>>>,
    /// Members that yielded in this batch of events, and may come back.
    yielded: Vec<BlockId>,
    /// Blocks of a reservation that is being planned, and those of them that were passed over.
    spared: FxHashSet<BlockId>,
    passed_over: Vec<BlockId>,
    slots: u32,
}

impl<C: Choice> Kept<C> {
    /// `choice` makes the choice and its first members.
    pub fn new(ground: &Ground, choice: impl FnOnce(&Ground, &mut Members) -> C) -> Self {
        let geometry = ground.geometry;
        let mut lists = Lists::new(geometry.slots());
        let passing = (0..geometry.classes()).map(|_| lists.add_list()).collect();
        let mut members = Members::new(geometry);
        let choice = choice(ground, &mut members);
        Kept {
            choice,
            members,
            lists,
            passing,
            all_awaited: vec![false; geometry.classes()],
            yielding: vec![None; geometry.classes()],
            yielded: vec![],
            spared: FxHashSet::default(),
            passed_over: vec![],
            slots: geometry.slots(),
        }
    }

    /// A block outside the set may go, unless it may not.
    fn pass(&mut self, block: BlockId, view: &View, push: fn(&mut Lists, ListId, u32)) {
        let Some(slot) = view.cache.slot_of(block).filter(|_| view.cache.is_evictable(block)) else { return };
        if self.lists.list_of(slot.0).is_none() && !self.members.contains(block) {
            push(&mut self.lists, self.passing[view.cache.table_of(block).index()], slot.0);
        }
    }

    /// The oldest block outside the set that may go and fits.
    fn passing_victim(
        &mut self,
        table: TableId,
        view: &View,
        fits: impl Fn(BlockId) -> bool,
    ) -> Option<BlockId> {
        let mut next = self.lists.first(*self.passing.get(table.index())?);
        while let Some(slot) = next {
            next = self.lists.next(slot);
            let may_go = |block: &BlockId| view.cache.is_evictable(*block) && !self.members.contains(*block);
            match view.cache.block_in(SlotId(slot)).filter(may_go) {
                None => {
                    self.lists.remove(slot);
                }
                Some(block) if fits(block) => {
                    self.lists.remove(slot);
                    return Some(block);
                }
                Some(_) => {}
            }
        }
        None
    }

    /// Members that were passed over may yield to another minibatch.
    fn end_sparing(&mut self, view: &View) {
        self.spared.clear();
        for block in self.passed_over.drain(..) {
            if let Some(Some(yielding)) = self.yielding.get_mut(view.cache.table_of(block).index()) {
                yielding.push(block);
            }
        }
    }
}

impl<C: Choice> Order for Kept<C> {
    fn prepare(&mut self, view: &View) {
        self.all_awaited.fill(false);
        self.yielding.fill(None);
        self.yielded.clear();
        self.spared.clear();
        self.passed_over.clear();
        self.choice.prepare(view, &mut self.members);
    }

    fn arrived(&mut self, rows: &[BlockRows], view: &View) {
        for rows in rows {
            self.pass(rows.block, view, Lists::push_back);
        }
    }

    fn released(&mut self, _: EntryId, blocks: &[BlockRows], _: &View) {
        self.choice.used(blocks, &mut self.members);
    }

    fn victim(&mut self, table: TableId, _: u32, view: &View) -> Option<BlockId> {
        if !self.all_awaited[table.index()] {
            if let Some(block) = self.passing_victim(table, view, |block| !view.window.is_used(block)) {
                return Some(block);
            }
            self.all_awaited[table.index()] = true;
        }
        let yielding =
            self.yielding[table.index()].get_or_insert_with(|| self.choice.by_value(table, &self.members));
        while let Some(block) = yielding.pop() {
            if !view.cache.is_evictable(block) || !self.members.contains(block) {
                continue;
            }
            if self.spared.contains(&block) {
                self.passed_over.push(block);
                continue;
            }
            self.members.leave(block);
            self.choice.yielded(block);
            self.yielded.push(block);
            return Some(block);
        }
        self.passing_victim(table, view, |_| true)
    }

    fn spare(&mut self, blocks: &[BlockRows], view: &View) {
        self.end_sparing(view);
        self.spared
            .extend(blocks.iter().map(|rows| rows.block).filter(|&block| self.members.contains(block)));
    }

    fn unspare(&mut self, _: &[BlockRows], view: &View) {
        self.end_sparing(view);
    }

    fn restore(&mut self, block: BlockId, view: &View) {
        if let Some(at) = self.yielded.iter().position(|&yielded| yielded == block) {
            self.yielded.swap_remove(at);
            let table = view.cache.table_of(block);
            self.members.join(block, table);
            self.choice.returned(block);
            if let Some(yielding) = &mut self.yielding[table.index()] {
                yielding.push(block);
            }
        }
        self.pass(block, view, Lists::push_front);
    }

    fn foresees(&self) -> bool {
        self.choice.foresees()
    }

    fn keeps(&self, block: BlockId) -> bool {
        self.members.contains(block)
    }

    fn dismissed(&mut self) -> Vec<BlockId> {
        std::mem::take(&mut self.members.left)
    }

    fn next_to_bring(&mut self, table: TableId, view: &View) -> Option<BlockId> {
        let Members { absent, kept, .. } = &mut self.members;
        let absent = absent.get_mut(table.index())?;
        while let Some(&block) = absent.front() {
            let full = view.book.block(block).map_or(0, |place| place.full_mask());
            if kept.contains(block) && view.absent(block, full) != 0 {
                return Some(block);
            }
            absent.pop_front();
        }
        None
    }

    fn brought(&mut self, table: TableId) {
        if let Some(absent) = self.members.absent.get_mut(table.index()) {
            absent.pop_front();
        }
    }

    fn lost(&mut self, block: BlockId, view: &View) {
        if self.members.contains(block) {
            self.members.absent[view.cache.table_of(block).index()].push_back(block);
        }
    }

    fn rebuild(&mut self, view: &View) {
        for slot in 0..self.slots {
            self.lists.remove(slot);
        }
        for block in view.cache.resident() {
            self.pass(block, view, Lists::push_back);
        }
    }

    fn memory_bytes(&self) -> usize {
        self.members.memory_bytes() + self.lists.memory_bytes() + self.choice.memory_bytes()
    }
}
