//! Which minibatches of the window use a block.

use rudder_topology::BlockId;

/// With this bit a chain is the index of a link, else up to four minibatches, 7 bits each, latest in the lowest: one
/// more than its index, 0 for none.
const LINKED: u32 = 1 << 31;
const FIELD_BITS: u32 = 7;
const FIELD: u32 = (1 << FIELD_BITS) - 1;
/// The bits of the last field: a chain that has any of them is full.
const LAST: u32 = FIELD << (3 * FIELD_BITS);
/// No link.
const NONE: u32 = u32::MAX;

/// For each block the chain of minibatches that use it, latest announced first. Most blocks have few uses, so they
/// stand in the block's own 4 bytes.
#[derive(Clone, Debug)]
pub(super) struct Uses {
    chains: Vec<u32>,
    links: Vec<Link>,
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    entry: u32,
    /// The chain that follows; of a free link, the next free one.
    rest: u32,
}

/// Indices of minibatches.
#[derive(Clone)]
pub(super) struct Chain<'a> {
    chain: u32,
    links: &'a [Link],
}

impl Iterator for Chain<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.chain & LINKED == 0 {
            let entry = (self.chain & FIELD).checked_sub(1)?;
            self.chain >>= FIELD_BITS;
            return Some(entry);
        }
        let link = self.links[(self.chain & !LINKED) as usize];
        self.chain = link.rest;
        Some(link.entry)
    }
}

/// `entry` before a chain, if there is room for it without a link.
#[inline]
fn inline(chain: u32, entry: u32) -> Option<u32> {
    (chain & (LINKED | LAST) == 0 && entry < FIELD).then_some(chain << FIELD_BITS | (entry + 1))
}

impl Uses {
    pub fn new(blocks: u32) -> Self {
        Uses { chains: vec![0; blocks as usize], links: vec![], free: NONE }
    }

    #[inline]
    pub fn of(&self, block: BlockId) -> Chain<'_> {
        Chain { chain: self.chains.get(block.index()).copied().unwrap_or(0), links: &self.links }
    }

    /// Reads the blocks' own bytes, so that they are near when they are asked for one by one: the reads do not wait
    /// for each other, as they would between decisions.
    #[inline]
    pub fn touch(&self, blocks: impl Iterator<Item = u32>) {
        let read = |block: u32| self.chains.get(block as usize).copied().unwrap_or(0);
        std::hint::black_box(blocks.map(read).fold(0, |all, chain| all | chain));
    }

    /// `entry` uses the block, which it did not before.
    #[inline]
    pub fn add(&mut self, block: BlockId, entry: u32) {
        let Some(&chain) = self.chains.get(block.index()) else { return };
        self.chains[block.index()] = inline(chain, entry).unwrap_or_else(|| self.link(entry, chain));
    }

    fn link(&mut self, entry: u32, rest: u32) -> u32 {
        let link = Link { entry, rest };
        let at = self.free;
        LINKED
            | match self.links.get_mut(at as usize) {
                Some(free) => {
                    self.free = std::mem::replace(free, link).rest;
                    at
                }
                None => {
                    self.links.push(link);
                    (self.links.len() - 1) as u32
                }
            }
    }

    /// `entry` uses the block no more.
    #[inline]
    pub fn remove(&mut self, block: BlockId, entry: u32) {
        if let Some(&chain) = self.chains.get(block.index()) {
            self.chains[block.index()] = self.without(chain, entry);
        }
    }

    #[inline]
    fn without(&mut self, chain: u32, entry: u32) -> u32 {
        if chain & LINKED != 0 {
            return self.unlink(chain, entry);
        }
        for low in (0..4 * FIELD_BITS).step_by(FIELD_BITS as usize) {
            if chain >> low & FIELD == entry + 1 {
                let (before, after) = (chain & ((1 << low) - 1), chain >> low >> FIELD_BITS);
                return after << low | before;
            }
        }
        chain
    }

    /// A chain that begins with a link, without `entry`. The last link goes where the bytes after it have room.
    fn unlink(&mut self, chain: u32, entry: u32) -> u32 {
        let mut before = None;
        let mut at = chain;
        loop {
            let link = (at & !LINKED) as usize;
            let Link { entry: first, rest } = self.links[link];
            let replacement = if first == entry {
                Some(rest)
            } else if rest & LINKED == 0 {
                let rest = self.without(rest, entry);
                self.links[link].rest = rest;
                inline(rest, first)
            } else {
                before = Some(link);
                at = rest;
                continue;
            };
            let Some(replacement) = replacement else { return chain };
            self.links[link].rest = std::mem::replace(&mut self.free, link as u32);
            return match before {
                Some(before) => {
                    self.links[before].rest = replacement;
                    chain
                }
                None => replacement,
            };
        }
    }

    /// Bytes that blocks take.
    pub fn memory_bytes(&self) -> usize {
        self.chains.capacity() * size_of::<u32>()
    }

    /// Bytes that the minibatches of the window take.
    pub fn link_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Few minibatches, as usual, and more than fit 7 bits.
        #[test]
        fn chains_are_lists_of_entries(
            moves in proptest::collection::vec((0_u32..4, prop_oneof![0_u32..9, 120_u32..140]), 0..300),
        ) {
            let mut uses = Uses::new(4);
            let mut twin = vec![vec![]; 4];
            for (block, entry) in moves {
                let used: &mut Vec<u32> = &mut twin[block as usize];
                match used.iter().position(|&e| e == entry) {
                    Some(at) => {
                        used.remove(at);
                        uses.remove(BlockId(block), entry);
                    }
                    None => {
                        used.insert(0, entry);
                        uses.add(BlockId(block), entry);
                    }
                }
                for (block, used) in twin.iter().enumerate() {
                    prop_assert_eq!(&uses.of(BlockId(block as u32)).collect::<Vec<_>>(), used);
                }
                let link = |at: u32| uses.links.get(at as usize).map(|link| link.rest);
                let free = std::iter::successors(Some(uses.free), |&at| link(at));
                let free = free.take_while(|&at| at != NONE).count();
                let uses_of_all: usize = twin.iter().map(Vec::len).sum();
                prop_assert!(uses.links.len() - free <= uses_of_all, "links are lost");
                if uses_of_all == 0 {
                    prop_assert_eq!(free, uses.links.len());
                }
            }
        }
    }
}
