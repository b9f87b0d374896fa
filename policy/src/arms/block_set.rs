//! A set of blocks of a dataset.

use rudder_topology::BlockId;

/// One bit a block.
#[derive(Debug)]
pub(super) struct BlockSet {
    words: Vec<u64>,
}

impl BlockSet {
    pub fn new(blocks: u32) -> Self {
        BlockSet { words: vec![0; (blocks as usize).div_ceil(64)] }
    }

    #[inline]
    pub fn contains(&self, block: BlockId) -> bool {
        self.words.get(block.index() / 64).is_some_and(|word| word >> (block.0 % 64) & 1 == 1)
    }

    /// Whether it was not in it.
    #[inline]
    pub fn insert(&mut self, block: BlockId) -> bool {
        let Some(word) = self.words.get_mut(block.index() / 64) else { return false };
        let bit = 1 << (block.0 % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    #[inline]
    pub fn remove(&mut self, block: BlockId) {
        if let Some(word) = self.words.get_mut(block.index() / 64) {
            *word &= !(1 << (block.0 % 64));
        }
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    pub fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}
