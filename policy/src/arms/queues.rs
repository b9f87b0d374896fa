//! Many first-in-first-out queues of blocks over one pool of memory: 4.3 bytes for each block in any of them.

use rudder_topology::BlockId;

const NONE: u32 = u32::MAX;
const CHUNK_BLOCKS: usize = 30;

/// 128 bytes: two lines of the processor's cache.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    blocks: [u32; CHUNK_BLOCKS],
    next: u32,
    filled: u32,
}

const EMPTY: Chunk = Chunk { blocks: [NONE; CHUNK_BLOCKS], next: NONE, filled: 0 };

/// The memory of all queues.
#[derive(Debug)]
pub(super) struct Pool {
    chunks: Vec<Chunk>,
    free: u32,
}

/// One queue. Its blocks lie in the pool that it is always used with.
#[derive(Debug)]
pub(super) struct Queue {
    first: u32,
    last: u32,
    /// Blocks of the first chunk that are gone already.
    taken: u32,
}

impl Pool {
    pub fn new() -> Self {
        Pool { chunks: vec![], free: NONE }
    }

    fn take(&mut self) -> u32 {
        if self.free == NONE {
            if self.chunks.len() == self.chunks.capacity() {
                // Doubling would leave half of it unused.
                self.chunks.reserve_exact(64 + self.chunks.len() / 8);
            }
            self.chunks.push(EMPTY);
            return (self.chunks.len() - 1) as u32;
        }
        let chunk = self.free;
        self.free = std::mem::replace(&mut self.chunks[chunk as usize], EMPTY).next;
        chunk
    }

    fn give_back(&mut self, chunk: u32) {
        self.chunks[chunk as usize].next = self.free;
        self.free = chunk;
    }

    pub fn memory_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>()
    }
}

impl Queue {
    pub const fn new() -> Self {
        Queue { first: NONE, last: NONE, taken: 0 }
    }

    #[inline]
    pub fn push(&mut self, block: BlockId, pool: &mut Pool) {
        if self.last == NONE || pool.chunks[self.last as usize].filled as usize == CHUNK_BLOCKS {
            let chunk = pool.take();
            match self.last {
                NONE => self.first = chunk,
                last => pool.chunks[last as usize].next = chunk,
            }
            self.last = chunk;
        }
        let chunk = &mut pool.chunks[self.last as usize];
        chunk.blocks[chunk.filled as usize] = block.0;
        chunk.filled += 1;
    }

    /// The blocks that follow in the same piece of memory, each time that a new piece is begun: whoever pops them one by
    /// one can first look all of them up at once.
    #[inline]
    pub fn begun<'p>(&self, pool: &'p Pool) -> &'p [u32] {
        match pool.chunks.get(self.first as usize) {
            Some(chunk) if self.taken == 0 => &chunk.blocks[..chunk.filled as usize],
            _ => &[],
        }
    }

    #[inline]
    pub fn pop(&mut self, pool: &mut Pool) -> Option<BlockId> {
        let chunk = pool.chunks.get(self.first as usize)?;
        let block = BlockId(chunk.blocks[self.taken as usize]);
        self.taken += 1;
        if self.taken == chunk.filled {
            let next = chunk.next;
            pool.give_back(self.first);
            *self = Queue { first: next, last: if next == NONE { NONE } else { self.last }, taken: 0 };
        }
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behave_like_deques_and_share_their_memory(
            moves in proptest::collection::vec((0_usize..4, any::<bool>(), 1_u32..50), 0..200),
        ) {
            let mut pool = Pool::new();
            let mut queues: Vec<_> = (0..4).map(|_| Queue::new()).collect();
            let mut twins = vec![VecDeque::new(); 4];
            let (mut next, mut most) = (0, 0);
            for (at, push, count) in moves {
                for _ in 0..count {
                    if push {
                        queues[at].push(BlockId(next), &mut pool);
                        twins[at].push_back(BlockId(next));
                        next += 1;
                    } else {
                        prop_assert_eq!(queues[at].pop(&mut pool), twins[at].pop_front());
                    }
                }
                most = most.max(twins.iter().map(VecDeque::len).sum::<usize>());
            }
            // Each queue wastes less than two chunks.
            prop_assert!(pool.chunks.len() <= most / CHUNK_BLOCKS + 8, "{} for {most}", pool.chunks.len());
        }
    }
}
