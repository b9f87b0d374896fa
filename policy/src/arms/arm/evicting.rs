//! Blocks whose eviction a plan asks for: they count as gone before the facts show it.

use rudder_topology::{BlockId, SlotId};

#[derive(Debug, Default)]
pub(super) struct Evicting {
    blocks: Vec<BlockId>,
    /// Number of the plan that last asked for each slot. 4 bytes a slot, and no search.
    stamps: Vec<u32>,
    plan: u32,
}

impl Evicting {
    /// A new plan begins.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.plan = self.plan.wrapping_add(1);
        if self.plan == 0 {
            self.stamps.fill(0);
            self.plan = 1;
        }
    }

    pub fn insert(&mut self, block: BlockId, slot: SlotId) {
        if self.stamps.len() <= slot.index() {
            self.stamps.resize(slot.index() + 1, 0);
        }
        self.stamps[slot.index()] = self.plan;
        self.blocks.push(block);
    }

    pub fn contains(&self, slot: SlotId) -> bool {
        self.stamps.get(slot.index()) == Some(&self.plan)
    }

    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }
}
