//! The hot cache of `direct` mode: whole, verified blocks, bounded in bytes, second-chance eviction.

use rudder_topology::BlockId;
use std::collections::{HashMap, VecDeque};

#[derive(Debug, Default)]
pub(crate) struct HotCache {
    bytes_max: u64,
    bytes: u64,
    blocks: HashMap<BlockId, Hot>,
    /// Every cached block once; the front is looked at next.
    clock: VecDeque<BlockId>,
}

#[derive(Debug)]
struct Hot {
    bytes: Box<[u8]>,
    used: Used,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Used {
    SinceTheHandPassed,
    NotSince,
}

impl HotCache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        HotCache { bytes_max, ..HotCache::default() }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn lookup(&mut self, block: BlockId) -> Option<&[u8]> {
        let hot = self.blocks.get_mut(&block)?;
        hot.used = Used::SinceTheHandPassed;
        Some(&hot.bytes)
    }

    pub(crate) fn insert(&mut self, block: BlockId, bytes: &[u8]) {
        let size = bytes.len() as u64;
        if size > self.bytes_max || self.blocks.contains_key(&block) {
            return;
        }
        while self.bytes + size > self.bytes_max {
            self.evict_one();
        }
        self.blocks.insert(block, Hot { bytes: bytes.into(), used: Used::NotSince });
        self.clock.push_back(block);
        self.bytes += size;
    }

    fn evict_one(&mut self) {
        while let Some(candidate) = self.clock.pop_front() {
            let Some(hot) = self.blocks.get_mut(&candidate) else { continue };
            if hot.used == Used::SinceTheHandPassed {
                hot.used = Used::NotSince;
                self.clock.push_back(candidate);
                continue;
            }
            self.bytes -= hot.bytes.len() as u64;
            self.blocks.remove(&candidate);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_used_block_gets_a_second_chance() {
        let mut cache = HotCache::new(20);
        cache.insert(BlockId(1), &[1; 10]);
        cache.insert(BlockId(2), &[2; 10]);
        assert!(cache.lookup(BlockId(1)).is_some());
        cache.insert(BlockId(3), &[3; 10]);
        assert_eq!(cache.lookup(BlockId(2)), None);
        assert_eq!(cache.lookup(BlockId(1)), Some([1; 10].as_slice()));
        assert_eq!(cache.lookup(BlockId(3)), Some([3; 10].as_slice()));
    }

    #[test]
    fn nothing_fits_into_nothing() {
        let mut cache = HotCache::new(0);
        cache.insert(BlockId(1), &[1]);
        assert_eq!(cache.lookup(BlockId(1)), None);
        assert_eq!(cache.bytes(), 0);
    }

    proptest! {
        #[test]
        fn the_bound_holds_and_bytes_are_the_right_ones(
            steps in proptest::collection::vec((0_u32..30, any::<bool>()), 0..300),
            bytes_max in 0_u64..200,
        ) {
            let mut cache = HotCache::new(bytes_max);
            for (block, inserts) in steps {
                let bytes = vec![block as u8; 1 + block as usize];
                if inserts {
                    cache.insert(BlockId(block), &bytes);
                }
                if let Some(found) = cache.lookup(BlockId(block)) {
                    prop_assert_eq!(found, &bytes[..]);
                }
                let sum: usize = cache.blocks.values().map(|hot| hot.bytes.len()).sum();
                prop_assert_eq!(cache.bytes(), sum as u64);
                prop_assert!(cache.bytes() <= bytes_max);
                prop_assert_eq!(cache.clock.len(), cache.blocks.len());
            }
        }
    }
}
