//! Demand caching: only misses are fetched; victims are chosen for a whole minibatch before it enters.

use crate::play::{Case, Rows, Twin, agree, case};
use proptest::prelude::*;
use rudder_topology::PolicySpec;
use std::collections::{BTreeMap, VecDeque};

/// A textbook algorithm on block ids.
trait Textbook {
    fn hit(&mut self, block: u32);
    fn enter(&mut self, block: u32);
    /// The next to go, which is none of `stays`.
    fn evict(&mut self, stays: &Rows) -> u32;
}

struct Cache<T> {
    slots: usize,
    held: Rows,
    textbook: T,
}

impl<T: Textbook> Twin for Cache<T> {
    fn minibatch(&mut self, wanted: &Rows) -> Rows {
        let missing = wanted.keys().filter(|block| !self.held.contains_key(block)).count();
        while self.held.len() + missing > self.slots {
            let victim = self.textbook.evict(wanted);
            assert!(self.held.remove(&victim).is_some() && !wanted.contains_key(&victim));
        }
        let mut fetched = Rows::new();
        for (&block, &mask) in wanted {
            let held = self.held.get(&block).copied();
            match held {
                Some(_) => self.textbook.hit(block),
                None => self.textbook.enter(block),
            }
            let lacks = mask & !held.unwrap_or(0);
            if lacks != 0 {
                fetched.insert(block, lacks);
            }
            self.held.insert(block, held.unwrap_or(0) | mask);
        }
        fetched
    }

    fn resident(&self) -> Rows {
        self.held.clone()
    }
}

/// The front is the least recently used.
#[derive(Default)]
struct Lru(Vec<u32>);

impl Textbook for Lru {
    fn hit(&mut self, block: u32) {
        self.0.retain(|&b| b != block);
        self.0.push(block);
    }
    fn enter(&mut self, block: u32) {
        self.0.push(block);
    }
    fn evict(&mut self, stays: &Rows) -> u32 {
        let at = self.0.iter().position(|block| !stays.contains_key(block)).expect("one may go");
        self.0.remove(at)
    }
}

/// Counts of all blocks that were ever used, and when each was used last.
#[derive(Default)]
struct Lfu {
    uses: BTreeMap<u32, (u32, u32)>,
    held: Vec<u32>,
    clock: u32,
}

impl Textbook for Lfu {
    fn hit(&mut self, block: u32) {
        self.clock += 1;
        let (count, last) = self.uses.entry(block).or_default();
        *count += 1;
        *last = self.clock;
    }
    fn enter(&mut self, block: u32) {
        self.hit(block);
        self.held.push(block);
    }
    fn evict(&mut self, stays: &Rows) -> u32 {
        let may = self.held.iter().copied().filter(|block| !stays.contains_key(block));
        let victim = may.min_by_key(|block| self.uses[block]).expect("one may go");
        self.held.retain(|&block| block != victim);
        victim
    }
}

/// A circle as a vector, the hand as an index into it.
#[derive(Default)]
struct Clock {
    circle: Vec<(u32, bool)>,
    hand: usize,
}

impl Textbook for Clock {
    fn hit(&mut self, block: u32) {
        self.circle.iter_mut().find(|(b, _)| *b == block).expect("it is here").1 = true;
    }
    fn enter(&mut self, block: u32) {
        // Just behind the hand: the hand comes to it last.
        self.circle.insert(self.hand, (block, false));
        self.hand += 1;
    }
    fn evict(&mut self, stays: &Rows) -> u32 {
        loop {
            self.hand %= self.circle.len();
            let (block, used) = &mut self.circle[self.hand];
            if !stays.contains_key(block) && !std::mem::take(used) {
                return self.circle.remove(self.hand).0;
            }
            self.hand += 1;
        }
    }
}

/// Newest first, as in the paper; the hand is the block it points at.
#[derive(Default)]
struct Sieve {
    queue: VecDeque<(u32, bool)>,
    hand: Option<u32>,
}

impl Textbook for Sieve {
    fn hit(&mut self, block: u32) {
        self.queue.iter_mut().find(|(b, _)| *b == block).expect("it is here").1 = true;
    }
    fn enter(&mut self, block: u32) {
        self.queue.push_front((block, false));
    }
    fn evict(&mut self, stays: &Rows) -> u32 {
        let of = |queue: &VecDeque<(u32, bool)>, block| queue.iter().position(|(b, _)| *b == block);
        let mut at = self.hand.and_then(|block| of(&self.queue, block)).unwrap_or(self.queue.len() - 1);
        loop {
            let (block, visited) = &mut self.queue[at];
            if !stays.contains_key(block) && !std::mem::take(visited) {
                let victim = *block;
                self.hand = at.checked_sub(1).map(|newer| self.queue[newer].0);
                self.queue.remove(at);
                return victim;
            }
            at = at.checked_sub(1).unwrap_or(self.queue.len() - 1);
        }
    }
}

/// Three queues, oldest first.
struct S3Fifo {
    small: Vec<(u32, u8)>,
    main: Vec<(u32, u8)>,
    ghost: Vec<u32>,
    small_slots: usize,
    main_slots: usize,
}

impl S3Fifo {
    fn new(slots: usize) -> Self {
        let small_slots = (slots / 10).max(1);
        S3Fifo { small: vec![], main: vec![], ghost: vec![], small_slots, main_slots: slots - small_slots }
    }

    fn evict_small(&mut self, stays: &Rows) -> Option<u32> {
        loop {
            let at = self.small.iter().position(|(block, _)| !stays.contains_key(block))?;
            let (block, uses) = self.small.remove(at);
            if uses <= 1 {
                self.ghost.push(block);
                if self.ghost.len() > self.main_slots {
                    self.ghost.remove(0);
                }
                return Some(block);
            }
            self.main.push((block, 0));
            if self.main.len() > self.main_slots
                && let Some(victim) = self.evict_main(stays)
            {
                return Some(victim);
            }
        }
    }

    fn evict_main(&mut self, stays: &Rows) -> Option<u32> {
        loop {
            let at = self.main.iter().position(|(block, _)| !stays.contains_key(block))?;
            let (block, uses) = self.main.remove(at);
            if uses == 0 {
                return Some(block);
            }
            self.main.push((block, uses - 1));
        }
    }
}

impl Textbook for S3Fifo {
    fn hit(&mut self, block: u32) {
        let mut all = self.small.iter_mut().chain(&mut self.main);
        let (_, uses) = all.find(|(b, _)| *b == block).expect("it is here");
        *uses = (*uses + 1).min(3);
    }
    fn enter(&mut self, block: u32) {
        if self.ghost.contains(&block) {
            self.ghost.retain(|&b| b != block);
            self.main.push((block, 0));
        } else {
            self.small.push((block, 0));
        }
    }
    fn evict(&mut self, stays: &Rows) -> u32 {
        let victim = if self.small.len() >= self.small_slots {
            self.evict_small(stays).or_else(|| self.evict_main(stays))
        } else {
            self.evict_main(stays).or_else(|| self.evict_small(stays))
        };
        victim.expect("one may go")
    }
}

fn play<T: Textbook>(case: &Case, policy: PolicySpec, textbook: T) -> Result<(), TestCaseError> {
    agree(case, policy, &mut Cache { slots: case.slots as usize, held: Rows::new(), textbook })
}

proptest! {
    #[test]
    fn lru(case in prop_oneof![case(1), case(4)]) {
        play(&case, PolicySpec::Lru, Lru::default())?;
    }

    #[test]
    fn lfu(case in prop_oneof![case(1), case(4)]) {
        play(&case, PolicySpec::Lfu, Lfu::default())?;
    }

    #[test]
    fn clock(case in prop_oneof![case(1), case(4)]) {
        play(&case, PolicySpec::Clock, Clock::default())?;
    }

    #[test]
    fn sieve(case in prop_oneof![case(1), case(4)]) {
        play(&case, PolicySpec::Sieve, Sieve::default())?;
    }

    #[test]
    fn s3fifo(case in prop_oneof![case(1), case(4)]) {
        let textbook = S3Fifo::new(case.slots as usize);
        play(&case, PolicySpec::S3Fifo, textbook)?;
    }
}
