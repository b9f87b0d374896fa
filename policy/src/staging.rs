//! Copies of other nodes' blocks on a storage node: which rows are here, which are on their way, and who waits for them.
//!
//! A storage node that is asked for what another one owns fetches it there, keeps it and serves it: a slow uplink then
//! carries each block once, however many compute nodes use it and however often. The bytes are the driver's; this says
//! what to fetch and what goes. Eviction is by second chance (FIFO with a bit that a use sets; Corbató, 1968).

use rudder_graph::BlockRows;
use rudder_topology::BlockId;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

/// The copies of one dataset's blocks. `K` names a request.
#[derive(Clone, Debug)]
pub struct Staging<K> {
    bytes_max: u64,
    /// Of all blocks here, and of those that may not go.
    bytes: u64,
    held_bytes: u64,
    blocks: FxHashMap<BlockId, Copy<K>>,
    /// Blocks in the order in which they are looked at when something has to go, with their serial numbers: those of
    /// copies that are gone are skipped.
    order: VecDeque<(BlockId, u64)>,
    serial: u64,
    requests: BTreeMap<K, Request>,
}

#[derive(Clone, Debug)]
struct Copy<K> {
    serial: u64,
    /// Of the whole block.
    bytes: u64,
    valid: u64,
    coming: u64,
    /// Items of requests that use it.
    users: u32,
    used: bool,
    /// Requests that lack rows of it.
    waiting: Vec<K>,
}

impl<K> Copy<K> {
    fn is_held(&self) -> bool {
        self.users > 0 || self.coming != 0
    }
}

#[derive(Clone, Debug)]
struct Request {
    items: Vec<BlockRows>,
    /// Items of which rows are not here.
    lacking: usize,
}

/// What a request leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// To be fetched from an owner. Other rows may be on their way already.
    pub fetch: Vec<BlockRows>,
    /// Blocks whose bytes go.
    pub evicted: Vec<BlockId>,
    /// Everything is here.
    pub here: bool,
}

/// What requests hold leaves no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory for copies of other nodes' blocks is held by requests")]
pub struct Full;

/// Entries of copies that are gone, before `order` is cleaned of them.
const GONE_MAX: usize = 1024;

impl<K: std::marker::Copy + Ord> Staging<K> {
    /// Holds at most so many bytes of blocks.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Staging {
            bytes_max,
            bytes: 0,
            held_bytes: 0,
            blocks: FxHashMap::default(),
            order: VecDeque::new(),
            serial: 0,
            requests: BTreeMap::new(),
        }
    }

    /// Bytes of the blocks that are here or on their way.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Rows that are here.
    #[must_use]
    pub fn valid(&self, block: BlockId) -> u64 {
        self.blocks.get(&block).map_or(0, |copy| copy.valid)
    }

    /// A request for rows of blocks, each with the bytes of the whole block. What it uses stays until [`Staging::end`].
    /// A request that was there under the same name ends.
    pub fn ask(&mut self, request: K, items: &[(BlockRows, u64)]) -> Result<Asked, Full> {
        self.end(request);
        let mut asked = Asked::default();
        let mut lacking = 0;
        for &(BlockRows { block, mask }, bytes) in items {
            let copy = self.blocks.entry(block).or_insert_with(|| {
                self.serial += 1;
                self.order.push_back((block, self.serial));
                self.bytes += bytes;
                let (serial, waiting) = (self.serial, vec![]);
                Copy { serial, bytes, valid: 0, coming: 0, users: 0, used: false, waiting }
            });
            self.held_bytes += if copy.is_held() { 0 } else { copy.bytes };
            copy.users += 1;
            copy.used = true;
            let fetch = mask & !copy.valid & !copy.coming;
            if fetch != 0 {
                copy.coming |= fetch;
                asked.fetch.push(BlockRows { block, mask: fetch });
            }
            if mask & !copy.valid != 0 {
                lacking += 1;
                copy.waiting.push(request);
            }
        }
        let items = items.iter().map(|&(rows, _)| rows).collect();
        self.requests.insert(request, Request { items, lacking });
        if self.held_bytes > self.bytes_max {
            for &BlockRows { block, mask } in &asked.fetch {
                self.change(block, |copy| copy.coming &= !mask);
            }
            self.end(request);
            return Err(Full);
        }
        while self.bytes > self.bytes_max {
            let Some((block, serial)) = self.order.pop_front() else { break };
            let copy = self.blocks.get_mut(&block).filter(|copy| copy.serial == serial);
            let Some(copy) = copy else { continue };
            if copy.is_held() || copy.used {
                copy.used &= copy.is_held();
                self.order.push_back((block, serial));
            } else {
                self.bytes -= copy.bytes;
                self.blocks.remove(&block);
                asked.evicted.push(block);
            }
        }
        asked.here = lacking == 0;
        Ok(asked)
    }

    /// Rows came. The requests that have everything now, which they had not before.
    pub fn arrived(&mut self, rows: &[BlockRows]) -> Vec<K> {
        let mut complete = vec![];
        for &BlockRows { block, mask } in rows {
            let before = self.valid(block);
            let mut waiting = vec![];
            self.change(block, |copy| {
                // Rows that nobody asked for are not here.
                let came = mask & copy.coming;
                copy.coming &= !came;
                copy.valid |= came;
                waiting = std::mem::take(&mut copy.waiting);
            });
            let now = self.valid(block);
            waiting.sort_unstable();
            waiting.dedup();
            waiting.retain(|request| {
                let Some(of) = self.requests.get_mut(request) else { return false };
                let items = || of.items.iter().filter(|item| item.block == block);
                let lacks = |valid: u64| items().filter(|item| item.mask & !valid != 0).count();
                let (lacked, lacks) = (lacks(before), lacks(now));
                of.lacking -= lacked - lacks;
                if of.lacking == 0 {
                    complete.push(*request);
                }
                lacks > 0
            });
            self.change(block, |copy| copy.waiting = waiting);
        }
        complete
    }

    /// Rows will not come. The requests that waited for them are over.
    pub fn failed(&mut self, rows: &[BlockRows]) -> Vec<K> {
        let mut over = vec![];
        for &BlockRows { block, mask } in rows {
            let Some(copy) = self.blocks.get(&block) else { continue };
            let lost = mask & copy.coming;
            let waits = |request: &K| {
                let of = self.requests.get(request);
                of.is_some_and(|of| of.items.iter().any(|item| item.block == block && item.mask & lost != 0))
            };
            let mut waiting: Vec<K> = copy.waiting.iter().copied().filter(waits).collect();
            waiting.sort_unstable();
            waiting.dedup();
            self.change(block, |copy| copy.coming &= !lost);
            for &request in &waiting {
                self.end(request);
            }
            over.append(&mut waiting);
        }
        over
    }

    /// A request was served, or nobody wants it any more. What is on its way comes all the same.
    pub fn end(&mut self, request: K) {
        let Some(Request { items, .. }) = self.requests.remove(&request) else { return };
        for item in items {
            self.change(item.block, |copy| {
                copy.users -= 1;
                copy.waiting.retain(|other| *other != request);
            });
        }
    }

    /// Everything goes. The requests that had not ended are over.
    pub fn clear(&mut self) -> Vec<K> {
        let over = self.requests.keys().copied().collect();
        *self = Staging::new(self.bytes_max);
        over
    }

    /// Changes a copy, and keeps count of what may not go. One that is neither here nor on its way is forgotten.
    fn change(&mut self, block: BlockId, change: impl FnOnce(&mut Copy<K>)) {
        let Some(copy) = self.blocks.get_mut(&block) else { return };
        let was_held = copy.is_held();
        change(copy);
        let (bytes, is_held) = (copy.bytes, copy.is_held());
        if was_held && !is_held {
            self.held_bytes -= bytes;
        } else if !was_held && is_held {
            self.held_bytes += bytes;
        }
        if !is_held && copy.valid == 0 {
            self.bytes -= bytes;
            self.blocks.remove(&block);
            if self.order.len() > 2 * self.blocks.len() + GONE_MAX {
                let is_here = |&(block, serial): &(BlockId, u64)| {
                    self.blocks.get(&block).is_some_and(|copy| copy.serial == serial)
                };
                self.order.retain(is_here);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn rows(block: u32, mask: u64) -> BlockRows {
        BlockRows { block: BlockId(block), mask }
    }

    /// Blocks of 10 bytes.
    fn of(items: &[(u32, u64)]) -> Vec<(BlockRows, u64)> {
        items.iter().map(|&(block, mask)| (rows(block, mask), 10)).collect()
    }

    #[test]
    fn what_was_fetched_once_is_here() {
        let mut staging = Staging::new(100);
        let asked = staging.ask(1, &of(&[(5, 0b11), (6, 0b1)])).unwrap();
        assert_eq!(asked.fetch, [rows(5, 0b11), rows(6, 0b1)]);
        assert!(!asked.here);
        // Another one waits for some of the same, and wants more of it.
        let other = staging.ask(2, &of(&[(5, 0b110)])).unwrap();
        assert_eq!((other.fetch, other.here), (vec![rows(5, 0b100)], false));
        assert_eq!(staging.arrived(&[rows(5, 0b11)]), [0; 0]);
        assert_eq!(staging.arrived(&[rows(6, 0b1)]), [1]);
        assert_eq!(staging.arrived(&[rows(5, 0b100)]), [2]);
        staging.end(1);
        staging.end(2);
        let again = staging.ask(3, &of(&[(5, 0b111)])).unwrap();
        assert_eq!(again, Asked { here: true, ..Asked::default() });
        assert_eq!((staging.bytes(), staging.blocks(), staging.requests()), (20, 2, 1));
    }

    #[test]
    fn the_one_that_is_not_used_goes_and_what_is_used_stays() {
        let mut staging = Staging::new(30);
        for block in 0..3 {
            staging.ask(1, &of(&[(block, 1)])).unwrap();
            staging.arrived(&[rows(block, 1)]);
        }
        staging.end(1);
        // All have been used once; the first to be looked at goes.
        assert_eq!(staging.ask(2, &of(&[(3, 1)])).unwrap().evicted, [BlockId(0)]);
        staging.ask(3, &of(&[(1, 1)])).unwrap();
        staging.end(3);
        assert_eq!(staging.ask(4, &of(&[(4, 1)])).unwrap().evicted, [BlockId(2)], "1 was used since");
        // 3 and 4 are on their way, and 1 is held: no room for more, and nothing is lost by asking.
        staging.ask(5, &of(&[(1, 1)])).unwrap();
        assert_eq!(staging.ask(6, &of(&[(7, 1)])), Err(Full));
        assert_eq!((staging.bytes(), staging.blocks(), staging.valid(BlockId(1))), (30, 3, 1));
    }

    #[test]
    fn what_fails_ends_only_those_that_wait_for_it() {
        let mut staging = Staging::new(100);
        staging.ask(1, &of(&[(1, 0b1), (2, 0b1)])).unwrap();
        staging.ask(2, &of(&[(1, 0b10)])).unwrap();
        assert_eq!(staging.failed(&[rows(1, 0b1)]), [1]);
        assert_eq!(staging.arrived(&[rows(1, 0b10), rows(2, 1)]), [2]);
        assert_eq!(staging.failed(&[rows(9, 1)]), [0; 0], "nobody asked for it");
        assert_eq!(staging.clear(), [2]);
        assert_eq!((staging.bytes(), staging.blocks()), (0, 0));
        assert_eq!(staging.arrived(&[rows(1, 1)]), [0; 0], "it comes too late");
        assert_eq!(staging.blocks(), 0);
    }

    #[test]
    fn who_leaves_holds_nothing() {
        let mut staging = Staging::new(20);
        staging.ask(1, &of(&[(1, 1), (2, 1)])).unwrap();
        staging.end(1);
        assert_eq!(staging.ask(2, &of(&[(3, 1)])), Err(Full), "it is on its way all the same");
        assert_eq!(staging.arrived(&[rows(1, 1), rows(2, 1)]), [0; 0]);
        assert_eq!(staging.ask(2, &of(&[(3, 1)])).unwrap().evicted.len(), 1);
    }

    #[derive(Clone, Debug)]
    enum Deed {
        Ask(u8, Vec<(u32, u64)>),
        Arrive(usize),
        Fail(usize),
        End(u8),
        Clear,
    }

    fn deed() -> impl Strategy<Value = Deed> {
        prop_oneof![
            4 => (0_u8..6, prop::collection::vec((0_u32..8, 1_u64..8), 1..4)).prop_map(|(k, i)| Deed::Ask(k, i)),
            4 => any::<usize>().prop_map(Deed::Arrive),
            1 => any::<usize>().prop_map(Deed::Fail),
            2 => (0_u8..6).prop_map(Deed::End),
            1 => Just(Deed::Clear),
        ]
    }

    proptest! {
        #[test]
        fn every_request_ends_once_with_what_it_asked_for(deeds in prop::collection::vec(deed(), 0..200)) {
            let mut staging = Staging::new(45);
            // Rows on their way, and those that came and were not said to go: what a driver knows.
            let mut coming: Vec<BlockRows> = vec![];
            let mut memory: BTreeMap<BlockId, u64> = BTreeMap::new();
            let mut waiting: BTreeMap<u8, Vec<BlockRows>> = BTreeMap::new();
            let mut served: BTreeSet<u8> = BTreeSet::new();
            for deed in deeds {
                match deed {
                    Deed::Ask(key, items) => {
                        waiting.remove(&key);
                        served.remove(&key);
                        let Ok(asked) = staging.ask(key, &of(&items)) else { continue };
                        for evicted in asked.evicted {
                            prop_assert!(memory.remove(&evicted).is_some(), "only what is here goes");
                        }
                        coming.extend(asked.fetch);
                        let items: Vec<_> = items.iter().map(|&(block, mask)| rows(block, mask)).collect();
                        if asked.here {
                            served.insert(key);
                            for item in items {
                                prop_assert_eq!(item.mask & !memory.get(&item.block).unwrap_or(&0), 0);
                            }
                        } else {
                            waiting.insert(key, items);
                        }
                    }
                    Deed::Arrive(at) if !coming.is_empty() => {
                        let came = coming.swap_remove(at % coming.len());
                        *memory.entry(came.block).or_default() |= came.mask;
                        for key in staging.arrived(&[came]) {
                            for item in waiting.remove(&key).unwrap() {
                                prop_assert_eq!(item.mask & !memory[&item.block], 0);
                            }
                            served.insert(key);
                        }
                    }
                    Deed::Fail(at) if !coming.is_empty() => {
                        let lost = coming.swap_remove(at % coming.len());
                        for key in staging.failed(&[lost]) {
                            prop_assert!(waiting.remove(&key).is_some());
                        }
                    }
                    Deed::Arrive(_) | Deed::Fail(_) => {}
                    Deed::End(key) => {
                        staging.end(key);
                        waiting.remove(&key);
                        served.remove(&key);
                    }
                    Deed::Clear => {
                        let over: BTreeSet<u8> = staging.clear().into_iter().collect();
                        let open = waiting.keys().copied().chain(served.iter().copied()).collect();
                        prop_assert_eq!(over, open);
                        (coming, memory, waiting, served) = Default::default();
                    }
                }
                prop_assert!(staging.bytes() <= 45);
                prop_assert_eq!(staging.requests(), waiting.len() + served.len());
                prop_assert_eq!(staging.bytes(), 10 * staging.blocks() as u64);
                for (block, mask) in &memory {
                    prop_assert_eq!(staging.valid(*block), *mask);
                }
            }
            // Whatever is on its way comes: then nobody waits.
            for came in coming {
                for key in staging.arrived(&[came]) {
                    waiting.remove(&key);
                }
            }
            prop_assert!(waiting.is_empty(), "{waiting:?}");
        }
    }
}
