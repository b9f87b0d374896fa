//! What demand caching would have fetched: an LRU cache in miniature beside the real one.
//!
//! Only a sample of the blocks is followed, chosen by a hash, in a cache of as small a share of the slots (spatial
//! sampling: SHARDS, Waldspurger et al., FAST 2015). The memory is bounded whatever the size of the dataset.

use rudder_graph::BlockRows;
use rudder_graph::random::Key;
use rudder_topology::BlockId;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Slots that are followed at most: an error of a few percent, a few 100 KB.
const SAMPLED_SLOTS_MAX: u32 = 4096;

/// The demand arm `lru` of one table, sampled.
#[derive(Clone, Debug)]
pub struct Shadow {
    key: Key,
    /// A block is followed if its hash lies below.
    below: u64,
    slots: usize,
    held: FxHashMap<BlockId, Held>,
    /// By time of use; entries whose stamp is not the block's any more are void.
    order: VecDeque<(u64, BlockId)>,
    stamp: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    mask: u64,
    stamp: u64,
}

impl Shadow {
    /// Beside a cache of so many slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        let share = (f64::from(SAMPLED_SLOTS_MAX) / f64::from(slots.max(1))).min(1.0);
        Shadow {
            key: Key::new(0x5bad),
            below: (share * u64::MAX as f64) as u64,
            slots: (f64::from(slots) * share).round() as usize,
            held: FxHashMap::default(),
            order: VecDeque::new(),
            stamp: 0,
        }
    }

    /// The cache has so many slots from now on. The blocks that are followed stay the same.
    pub fn resize(&mut self, slots: u32) {
        self.slots = (f64::from(slots) * self.share()).round() as usize;
    }

    /// Share of the blocks that is followed.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.below as f64 / u64::MAX as f64
    }

    /// A trainer used a block: the rows that demand caching would have fetched for it. `None`: it is not followed.
    pub fn used(&mut self, rows: BlockRows) -> Option<u64> {
        if self.key.draw(u64::from(rows.block.0)) > self.below {
            return None;
        }
        self.stamp += 1;
        let (mask, stamp) = (rows.mask, self.stamp);
        let held = self.held.entry(rows.block).or_insert(Held { mask: 0, stamp });
        let missed = mask & !held.mask;
        *held = Held { mask: held.mask | mask, stamp };
        self.order.push_back((stamp, rows.block));
        while self.held.len() > self.slots {
            let Some((stamp, block)) = self.order.pop_front() else { break };
            if self.held.get(&block).is_some_and(|held| held.stamp == stamp) {
                self.held.remove(&block);
            }
        }
        if self.order.len() > 2 * self.slots + 64 {
            let held = &self.held;
            self.order.retain(|(stamp, block)| held.get(block).is_some_and(|held| held.stamp == *stamp));
        }
        Some(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(block: u32, mask: u64) -> BlockRows {
        BlockRows { block: BlockId(block), mask }
    }

    #[test]
    fn a_small_cache_is_followed_whole() {
        let mut shadow = Shadow::new(2);
        assert!(shadow.share() > 0.999);
        assert_eq!(shadow.used(rows(1, 0b01)), Some(0b01));
        assert_eq!(shadow.used(rows(1, 0b11)), Some(0b10));
        assert_eq!(shadow.used(rows(2, 1)), Some(1));
        assert_eq!(shadow.used(rows(1, 1)), Some(0));
        // 2 is the least recently used.
        assert_eq!(shadow.used(rows(3, 1)), Some(1));
        assert_eq!(shadow.used(rows(2, 1)), Some(1));
        assert_eq!(Shadow::new(0).used(rows(1, 1)), Some(1));
    }

    #[test]
    fn a_sample_tells_of_the_whole() {
        // A loop over 1.25 times the slots: LRU never hits. Half of the uses go to few hot blocks: those always hit.
        let slots = 40_000;
        let mut shadow = Shadow::new(slots);
        assert!((shadow.share() - 0.1024).abs() < 1e-3);
        let (mut followed, mut missed) = (0_u32, 0_u32);
        for use_number in 0..400_000_u32 {
            let cold = 1000 + (use_number / 2) % (slots * 5 / 4);
            let block = if use_number % 2 == 0 { use_number / 2 % 1000 } else { cold };
            if let Some(mask) = shadow.used(rows(block, 1)) {
                followed += 1;
                missed += mask.count_ones();
            }
        }
        let share = f64::from(missed) / f64::from(followed);
        assert!((share - 0.5).abs() < 0.03, "{share}");
    }

    proptest! {
        #[test]
        fn behaves_like_lru(uses in proptest::collection::vec((0_u32..12, 1_u64..4), 0..300), slots in 0_usize..8) {
            let mut shadow = Shadow::new(slots as u32);
            // Least recently used first.
            let mut twin: Vec<(u32, u64)> = vec![];
            for (block, mask) in uses {
                let before = match twin.iter().position(|(b, _)| *b == block) {
                    Some(at) => twin.remove(at).1,
                    None => 0,
                };
                twin.push((block, before | mask));
                if twin.len() > slots {
                    twin.remove(0);
                }
                prop_assert_eq!(shadow.used(rows(block, mask)), Some(mask & !before));
                prop_assert!(shadow.order.len() <= 2 * slots + 64);
            }
        }
    }
}
