//! Virtual time: what happens next, in order of time and, at the same time, of being scheduled.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Events that have not happened yet. Nothing is removed early: what no longer applies is recognised by its reader.
#[derive(Debug)]
pub struct Agenda<E> {
    heap: BinaryHeap<Reverse<Due<E>>>,
    scheduled: u64,
}

#[derive(Debug)]
struct Due<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> Due<E> {
    fn key(&self) -> (u64, u64) {
        (self.at_ns, self.number)
    }
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Due<E> {}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Agenda { heap: BinaryHeap::new(), scheduled: 0 }
    }
}

impl<E> Agenda<E> {
    pub fn add(&mut self, at_ns: u64, event: E) {
        self.heap.push(Reverse(Due { at_ns, number: self.scheduled, event }));
        self.scheduled += 1;
    }

    /// When the next event is due.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|due| due.0.at_ns)
    }

    pub fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|due| (due.0.at_ns, due.0.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_first_comes_first_and_equals_in_order() {
        let mut agenda = Agenda::default();
        for (at_ns, name) in [(5, "c"), (1, "a"), (5, "d"), (3, "b")] {
            agenda.add(at_ns, name);
        }
        assert_eq!(agenda.next_ns(), Some(1));
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop()).collect();
        assert_eq!(order, [(1, "a"), (3, "b"), (5, "c"), (5, "d")]);
        assert_eq!(agenda.next_ns(), None);
    }
}
