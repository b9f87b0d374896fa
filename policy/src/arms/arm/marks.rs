//! What a plan's earlier steps ask for: it counts as done before the facts show it.

use crate::arms::block_set::BlockSet;
use crate::view::View;
use rudder_graph::BlockRows;
use rudder_topology::BlockId;
use rustc_hash::FxHashMap;

/// Blocks that this plan evicts, and blocks of which it fetches rows. A block may be both: evicted, then fetched.
#[derive(Debug)]
pub(super) struct Marks {
    leaving: BlockSet,
    coming: BlockSet,
    left: Vec<BlockId>,
    came: Vec<BlockId>,
    /// Rows that come, of blocks that have several.
    rows: FxHashMap<BlockId, u64>,
}

impl Marks {
    pub fn new(blocks: u32) -> Self {
        Marks {
            leaving: BlockSet::new(blocks),
            coming: BlockSet::new(blocks),
            left: vec![],
            came: vec![],
            rows: FxHashMap::default(),
        }
    }

    /// A new plan begins.
    pub fn clear(&mut self) {
        for block in self.left.drain(..) {
            self.leaving.remove(block);
        }
        for block in self.came.drain(..) {
            self.coming.remove(block);
        }
        self.rows.clear();
    }

    /// Whether no step of this plan evicts or fetches.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty() && self.came.is_empty()
    }

    pub fn leaves(&mut self, block: BlockId) {
        self.leaving.insert(block);
        self.left.push(block);
    }

    pub fn comes(&mut self, rows: BlockRows) {
        let new = self.coming.insert(rows.block);
        self.came.push(rows.block);
        // Without an entry it is the first row: so blocks of one row need none.
        if rows.mask != 1 || !new {
            *self.rows.entry(rows.block).or_insert(u64::from(!new)) |= rows.mask;
        }
    }

    /// Whether a step of this plan evicts the block.
    #[inline]
    pub fn is_leaving(&self, block: BlockId) -> bool {
        self.leaving.contains(block)
    }

    /// Whether a step of this plan fetches rows of the block.
    #[inline]
    pub fn is_coming(&self, block: BlockId) -> bool {
        self.coming.contains(block)
    }

    /// Whether the block has a slot that this plan leaves or gives it.
    #[inline]
    pub fn has_slot(&self, block: BlockId, view: &View) -> bool {
        view.cache.has_slot(block) && !self.leaving.contains(block) || self.coming.contains(block)
    }

    /// Rows of `mask` that are neither resident nor in flight once this plan is done. None of a block that is about to
    /// leave a slot beyond the cache's limit: when it has left, who planned past it is told.
    #[inline]
    pub fn absent(&self, rows: BlockRows, view: &View) -> u64 {
        let BlockRows { block, mask } = rows;
        let absent = if self.leaving.contains(block) { mask } else { view.absent(block, mask) };
        if absent != 0 && view.cache.is_stranded(block) && !view.cache.is_pinned(block) {
            return 0;
        }
        if absent != 0 && self.coming.contains(block) {
            return absent & !self.rows.get(&block).copied().unwrap_or(1);
        }
        absent
    }

    pub fn memory_bytes(&self) -> usize {
        self.leaving.memory_bytes() + self.coming.memory_bytes()
    }
}
