//! A cache that is made smaller while it is used, and large again.
//!
//! Slots are given up from the end of each table's class, so that their memory is one piece. A free one is given out no
//! more; a block in one of them is *stranded*: nothing pins it again, and when nothing holds it any more it goes. So the
//! slots beyond the limit are empty when the minibatches that had pinned them are released and what was on its way to
//! them has come.

use super::{CacheIndex, IN_FLIGHT, NONE, PINS, STRANDED};
use rudder_topology::{BlockId, SlotId, TableId};

impl CacheIndex {
    /// Whether the block is in a slot that the cache has to give up.
    #[must_use]
    #[inline]
    pub fn is_stranded(&self, block: BlockId) -> bool {
        self.state(block) & STRANDED != 0
    }

    /// Slots that are given up and still hold a block.
    #[must_use]
    pub fn stranded_slots(&self) -> usize {
        self.stranded.iter().filter(|&&block| self.is_stranded(block)).count()
    }

    /// From here on as many slots of each table's class may be used, at most all of them. Returns blocks that were
    /// stranded and may stay.
    pub(crate) fn resize(&mut self, slots: &[u32]) -> Vec<BlockId> {
        let mut stay = vec![];
        self.stranded.clear();
        for (table, &slots) in slots.iter().enumerate().take(self.classes.len()) {
            let range = self.geometry.class_slots(TableId(table as u16));
            let usable = slots.min(range.len() as u32);
            let (mut free, mut first_free) = (0, NONE);
            // From the end, so that the first ones are given out first.
            for slot in range.clone().rev() {
                let is_usable = slot - range.start < usable;
                let block = self.block_in(SlotId(slot));
                match block {
                    None => {
                        self.block_in[slot as usize] = if is_usable { first_free } else { NONE };
                        if is_usable {
                            first_free = slot;
                            free += 1;
                        }
                    }
                    Some(block) => {
                        let state = self.state(block);
                        let next = if is_usable { state & !STRANDED } else { state | STRANDED };
                        self.set_state(block, next);
                        if !is_usable {
                            self.stranded.push(block);
                        } else if next != state {
                            stay.push(block);
                        }
                    }
                }
            }
            let class = &mut self.classes[table];
            (class.usable, class.free, class.first_free) = (usable, free, first_free);
        }
        stay
    }

    /// Stranded blocks that nothing holds any more, and those that are gone already.
    pub(crate) fn take_unheld(&mut self) -> Vec<BlockId> {
        if self.stranded.is_empty() {
            return vec![];
        }
        let (held, unheld) = self.stranded.iter().partition(|block| {
            let state = self.state[block.index()];
            state & STRANDED != 0 && state & (IN_FLIGHT | PINS) != 0
        });
        self.stranded = held;
        unheld
    }
}
