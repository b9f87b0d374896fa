//! What is served next: demand ahead of prefetch, first in first out within a class and link, fair over links by
//! deficit round robin in bytes (Shreedhar and Varghese, 1995).

use rudder_graph::Class;
use rudder_topology::{Bytes, TransferId};
use std::collections::{BTreeMap, VecDeque};

/// A transfer that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued<L, T> {
    pub link: L,
    pub transfer: TransferId,
    pub class: Class,
    pub bytes: Bytes,
    /// What the driver needs to serve it.
    pub work: T,
}

/// What a link may send per round at most: others do not wait longer for one with large transfers.
pub const QUANTUM: Bytes = Bytes(64 << 10);

/// Transfers of all links of one mover. `L` names a link.
#[derive(Clone, Debug)]
pub struct ClassQueue<L, T> {
    demand: Fair<L, T>,
    prefetch: Fair<L, T>,
    by_link: BTreeMap<L, Bytes>,
}

#[derive(Clone, Debug)]
struct Fair<L, T> {
    lanes: BTreeMap<L, Lane<L, T>>,
    /// Links with something to send, each once.
    turn: VecDeque<L>,
    quantum: u64,
}

#[derive(Clone, Debug)]
struct Lane<L, T> {
    waiting: VecDeque<Queued<L, T>>,
    deficit: u64,
}

impl<L: Copy + Ord, T> ClassQueue<L, T> {
    /// `quantum`: what a link may send per round; the size of a usual transfer is right ([`QUANTUM`] at most).
    #[must_use]
    pub fn new(quantum: Bytes) -> Self {
        ClassQueue { demand: Fair::new(quantum), prefetch: Fair::new(quantum), by_link: BTreeMap::new() }
    }

    pub fn push(&mut self, queued: Queued<L, T>) {
        self.by_link.entry(queued.link).or_default().0 += queued.bytes.0;
        match queued.class {
            Class::Demand => self.demand.push(queued),
            Class::Prefetch => self.prefetch.push(queued),
        }
    }

    /// The next transfer among the links for whose next transfer `ready` holds. A link that is not ready loses
    /// nothing but its turn. Demand of any ready link goes ahead of prefetch of all.
    pub fn pop(&mut self, mut ready: impl FnMut(&Queued<L, T>) -> bool) -> Option<Queued<L, T>> {
        let next = self.demand.pop(&mut ready).or_else(|| self.prefetch.pop(&mut ready))?;
        self.subtract(&next);
        Some(next)
    }

    fn subtract(&mut self, gone: &Queued<L, T>) {
        if let Some(bytes) = self.by_link.get_mut(&gone.link) {
            bytes.0 -= gone.bytes.0;
            if bytes.0 == 0 {
                self.by_link.remove(&gone.link);
            }
        }
    }

    /// Takes a transfer out before its turn.
    pub fn cancel(&mut self, link: L, transfer: TransferId) -> Option<Queued<L, T>> {
        let gone = self.demand.cancel(link, transfer).or_else(|| self.prefetch.cancel(link, transfer))?;
        self.subtract(&gone);
        Some(gone)
    }

    /// Takes out all that a link has waiting.
    pub fn remove_link(&mut self, link: L) -> Vec<Queued<L, T>> {
        self.by_link.remove(&link);
        let mut gone = self.demand.remove_link(link);
        gone.extend(self.prefetch.remove_link(link));
        gone
    }

    /// Bytes that a link has waiting.
    #[must_use]
    pub fn link_bytes(&self, link: L) -> Bytes {
        self.by_link.get(&link).copied().unwrap_or_default()
    }

    /// Bytes that wait over all links.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.by_link.values().map(|bytes| bytes.0).sum())
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.demand.len() + self.prefetch.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.demand.turn.is_empty() && self.prefetch.turn.is_empty()
    }
}

impl<L: Copy + Ord, T> Fair<L, T> {
    fn new(quantum: Bytes) -> Self {
        // A quantum of zero would never let anybody send.
        Fair { lanes: BTreeMap::new(), turn: VecDeque::new(), quantum: quantum.0.max(1) }
    }

    fn len(&self) -> usize {
        self.lanes.values().map(|lane| lane.waiting.len()).sum()
    }

    fn push(&mut self, queued: Queued<L, T>) {
        let link = queued.link;
        let lane = self.lanes.entry(link).or_insert_with(|| {
            self.turn.push_back(link);
            Lane { waiting: VecDeque::new(), deficit: 0 }
        });
        lane.waiting.push_back(queued);
    }

    fn pop(&mut self, ready: &mut impl FnMut(&Queued<L, T>) -> bool) -> Option<Queued<L, T>> {
        // Whether a link is ready does not change during the call, so each is asked once.
        let mut asked: BTreeMap<L, bool> = BTreeMap::new();
        let mut ready_links = self.turn.len();
        while ready_links > 0 {
            let link = *self.turn.front()?;
            let lane = self.lanes.get_mut(&link)?;
            let head = lane.waiting.front()?;
            let is_ready = *asked.entry(link).or_insert_with(|| {
                let is_ready = ready(head);
                ready_links -= usize::from(!is_ready);
                is_ready
            });
            if is_ready && lane.deficit >= head.bytes.0 {
                lane.deficit -= head.bytes.0;
                let next = lane.waiting.pop_front();
                if lane.waiting.is_empty() {
                    // An idle link saves nothing up.
                    self.forget(link);
                }
                return next;
            }
            if is_ready {
                lane.deficit = lane.deficit.saturating_add(self.quantum);
            }
            self.turn.rotate_left(1);
        }
        None
    }

    fn forget(&mut self, link: L) {
        self.lanes.remove(&link);
        self.turn.retain(|&other| other != link);
    }

    fn cancel(&mut self, link: L, transfer: TransferId) -> Option<Queued<L, T>> {
        let lane = self.lanes.get_mut(&link)?;
        let at = lane.waiting.iter().position(|queued| queued.transfer == transfer)?;
        let gone = lane.waiting.remove(at);
        if lane.waiting.is_empty() {
            self.forget(link);
        }
        gone
    }

    fn remove_link(&mut self, link: L) -> Vec<Queued<L, T>> {
        let Some(lane) = self.lanes.remove(&link) else { return Vec::new() };
        self.turn.retain(|&other| other != link);
        lane.waiting.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn queued(link: u8, transfer: u64, class: Class, bytes: u64) -> Queued<u8, ()> {
        Queued { link, transfer: TransferId(transfer), class, bytes: Bytes(bytes), work: () }
    }

    fn drain(queue: &mut ClassQueue<u8, ()>) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop(|_| true)).map(|next| next.transfer.0).collect()
    }

    #[test]
    fn demand_goes_first_and_links_take_turns() {
        let mut queue = ClassQueue::new(Bytes(100));
        for (link, transfer, class) in [
            (1, 1, Class::Prefetch),
            (1, 2, Class::Demand),
            (1, 3, Class::Demand),
            (2, 4, Class::Demand),
            (2, 5, Class::Prefetch),
        ] {
            queue.push(queued(link, transfer, class, 100));
        }
        assert_eq!(queue.link_bytes(1), Bytes(300));
        assert_eq!(drain(&mut queue), [2, 4, 3, 1, 5]);
        assert!(queue.is_empty());
        assert_eq!(queue.bytes(), Bytes(0));
    }

    #[test]
    fn a_link_that_is_not_ready_does_not_hold_up_others() {
        let mut queue = ClassQueue::new(Bytes(100));
        queue.push(queued(1, 1, Class::Demand, 100));
        queue.push(queued(2, 2, Class::Prefetch, 100));
        assert_eq!(queue.pop(|next| next.link == 2).map(|next| next.transfer.0), Some(2));
        assert_eq!(queue.pop(|_| false), None);
        assert_eq!(queue.pop(|_| true).map(|next| next.transfer.0), Some(1));
    }

    #[test]
    fn what_is_cancelled_is_not_served() {
        let mut queue = ClassQueue::new(Bytes(10));
        queue.push(queued(1, 1, Class::Demand, 100));
        queue.push(queued(1, 2, Class::Prefetch, 100));
        queue.push(queued(2, 2, Class::Prefetch, 100));
        assert!(queue.cancel(1, TransferId(2)).is_some());
        assert!(queue.cancel(1, TransferId(2)).is_none());
        assert_eq!(queue.remove_link(2).len(), 1);
        assert_eq!(drain(&mut queue), [1]);
    }

    fn class() -> impl Strategy<Value = Class> {
        prop::sample::select(vec![Class::Demand, Class::Prefetch])
    }

    proptest! {
        #[test]
        fn everything_is_served_once_in_the_order_of_its_link_and_class(
            pushes in proptest::collection::vec((0_u8..5, class(), 0_u64..5000), 0..120),
            cancels in proptest::collection::btree_set(0_usize..120, 0..20),
            quantum in 0_u64..4000,
        ) {
            let mut queue = ClassQueue::new(Bytes(quantum));
            for (at, &(link, class, bytes)) in pushes.iter().enumerate() {
                queue.push(queued(link, at as u64, class, bytes));
            }
            let mut gone = BTreeSet::new();
            for &at in cancels.iter().filter(|&&at| at < pushes.len()) {
                prop_assert!(queue.cancel(pushes[at].0, TransferId(at as u64)).is_some());
                gone.insert(at as u64);
            }
            let left: u64 = pushes.iter().enumerate().filter(|(at, _)| !gone.contains(&(*at as u64)))
                .map(|(_, push)| push.2).sum();
            prop_assert_eq!(queue.bytes(), Bytes(left));
            let mut served = Vec::new();
            while let Some(next) = queue.pop(|_| true) {
                served.push((next.class, next.link, next.transfer.0));
            }
            prop_assert_eq!(served.len() + gone.len(), pushes.len());
            prop_assert!(served.windows(2).all(|two| two[0].0 <= two[1].0), "demand ahead of prefetch");
            for link in 0..5 {
                for class in [Class::Demand, Class::Prefetch] {
                    let of_lane: Vec<u64> = served.iter()
                        .filter(|next| (next.0, next.1) == (class, link)).map(|next| next.2).collect();
                    prop_assert!(of_lane.is_sorted());
                }
            }
            prop_assert!(queue.is_empty());
        }

        /// While two links both have something waiting, neither gets ahead of the other by more than a quantum and
        /// the largest transfer.
        #[test]
        fn links_share_in_bytes(
            first in proptest::collection::vec(1_u64..3000, 30..60),
            second in proptest::collection::vec(1_u64..3000, 30..60),
            quantum in 500_u64..4000,
        ) {
            let mut queue = ClassQueue::new(Bytes(quantum));
            for (link, sizes) in [(1, &first), (2, &second)] {
                for (at, &bytes) in sizes.iter().enumerate() {
                    queue.push(queued(link, at as u64, Class::Prefetch, bytes));
                }
            }
            let mut sent = [0_u64; 3];
            while queue.link_bytes(1).0 > 0 && queue.link_bytes(2).0 > 0 {
                let next = queue.pop(|_| true).expect("something waits");
                sent[usize::from(next.link)] += next.bytes.0;
                prop_assert!(sent[1].abs_diff(sent[2]) <= 2 * quantum + 3000, "{:?}", sent);
            }
        }
    }
}
