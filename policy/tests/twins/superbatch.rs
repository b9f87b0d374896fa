//! Belady's choice within a superbatch.

use crate::play::{Case, Known, Play, Rows, add, case};
use proptest::prelude::*;
use rudder_graph::BlockRows;
use rudder_policy::oracle::belady;
use rudder_topology::{BlockId, PolicySpec};
use std::collections::BTreeMap;

/// Serves the trace with `length` minibatches known; after each, what was fetched and what is resident.
fn play(case: &Case, length: usize, how: Known) -> Vec<(Rows, Rows)> {
    let mut play = Play::new(case, PolicySpec::BeladySuperbatch { minibatches: length as u32 });
    let mut served = vec![];
    for n in 0..case.trace.len() {
        play.look_ahead(&case.trace, n + length, how);
        let mut fetched = play.arrive();
        add(&mut fetched, &play.serve());
        served.push((fetched, play.resident()));
    }
    served
}

/// The definition: what goes is used last within the superbatch, or not at all.
fn naive(case: &Case, length: usize) -> Vec<(Rows, Rows)> {
    let mut held = Rows::new();
    let mut served = vec![];
    for (n, wanted) in case.trace.iter().enumerate() {
        let end = case.trace.len().min((n / length + 1) * length);
        let next = |block: &u32| {
            (n + 1..end).find(|&later| case.trace[later].contains_key(block)).unwrap_or(usize::MAX)
        };
        let missing = wanted.keys().filter(|block| !held.contains_key(block)).count();
        while held.len() + missing > case.slots as usize {
            let may = held.keys().filter(|block| !wanted.contains_key(block));
            let victim =
                *may.max_by_key(|block| (next(block), std::cmp::Reverse(**block))).expect("one may go");
            held.remove(&victim);
        }
        let mut fetched = Rows::new();
        for (&block, &mask) in wanted {
            let rows = held.entry(block).or_default();
            if mask & !*rows != 0 {
                fetched.insert(block, mask & !*rows);
            }
            *rows |= mask;
        }
        served.push((fetched, held.clone()));
    }
    served
}

fn count(served: &[(Rows, Rows)]) -> u32 {
    served.iter().flat_map(|(fetched, _)| fetched.values()).map(|mask| mask.count_ones()).sum()
}

fn oracle(trace: &[Rows], slots: usize) -> u32 {
    let rows = |rows: &Rows| rows.iter().map(|(&b, &mask)| BlockRows { block: BlockId(b), mask }).collect();
    let fetched = belady(&trace.iter().map(rows).collect::<Vec<_>>(), slots);
    fetched.iter().flatten().map(|rows| rows.rows()).sum()
}

/// The fewest rows that any choice fetches with the minibatch in use in the cache, too: blocks as bits of a set.
fn exhaustive(sets: &[u32], slots: u32) -> u32 {
    let mut best: BTreeMap<u32, u32> = BTreeMap::from([(0, 0)]);
    for &wanted in sets {
        let mut after: BTreeMap<u32, u32> = BTreeMap::new();
        for (held, cost) in best {
            let (others, cost) = (held & !wanted, cost + (wanted & !held).count_ones());
            for kept in (0..=others).filter(|kept| kept & !others == 0) {
                if (kept | wanted).count_ones() <= slots {
                    let known = after.entry(kept | wanted).or_insert(cost);
                    *known = cost.min(*known);
                }
            }
        }
        best = after;
    }
    best.into_values().min().unwrap_or(0)
}

proptest! {
    #[test]
    fn superbatch_by_superbatch(case in prop_oneof![case(1), case(4)], length in 1_usize..20) {
        for how in [Known::Announced, Known::Foreseen] {
            let (served, expected) = (play(&case, length, how), naive(&case, length));
            for (n, (served, expected)) in served.into_iter().zip(expected).enumerate() {
                prop_assert_eq!(served, expected, "after minibatch {}, {:?}", n, how);
            }
        }
    }

    #[test]
    fn within_a_superbatch_it_lies_between_the_oracles(case in case(1)) {
        let whole = case.trace.len().max(1);
        let fetched = count(&play(&case, whole, Known::Announced));
        let largest = case.trace.iter().map(Rows::len).max().unwrap_or(0);
        // The oracle has the minibatch in use in no slot; a cache has it in as many as it needs.
        prop_assert!(oracle(&case.trace, case.slots as usize) <= fetched);
        prop_assert!(fetched <= oracle(&case.trace, case.slots as usize - largest));
    }

    #[test]
    fn within_a_superbatch_nothing_fetches_less(
        sets in proptest::collection::vec(0_u32..64, 1..9),
        slots in 3_u32..6,
    ) {
        let sets: Vec<u32> = sets.into_iter().filter(|set| set.count_ones() <= slots).collect();
        let rows = |set: &u32| (0..6).filter(|bit| set >> bit & 1 == 1).map(|block| (block, 1)).collect();
        let trace: Vec<Rows> = sets.iter().map(rows).collect();
        let case = Case { blocks: 6, rows_per_block: 1, slots, trace, prior: vec![0.0; 6] };
        prop_assert_eq!(count(&play(&case, sets.len().max(1), Known::Announced)), exhaustive(&sets, slots));
    }
}
