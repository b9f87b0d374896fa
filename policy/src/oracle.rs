//! Belady's choice with the whole future known: which rows no cache of this size could have kept from moving.
//!
//! A bound for reports, never a policy of the product.

use rudder_graph::BlockRows;
use rudder_topology::BlockId;
use std::collections::{BTreeSet, HashMap};

/// What has to be fetched for each minibatch of a node's interleaving, when after every minibatch the cache keeps
/// the `slots` blocks whose next use is nearest (of those it held and those just used).
///
/// A slot holds one block and of it the rows fetched so far; only missing rows are fetched. For blocks of one row
/// this is the least that any cache of `slots` blocks can fetch (Belady 1966, with bypass); for larger blocks,
/// whose refetch costs differ, it is Belady's order and close to the least.
///
/// A block must not stand twice in one minibatch.
#[must_use]
pub fn belady(interleaving: &[Vec<BlockRows>], slots: usize) -> Vec<Vec<BlockRows>> {
    let next_uses = next_uses(interleaving);
    // Resident blocks: rows held, and the minibatch of their next use.
    let mut resident: HashMap<BlockId, (u64, usize)> = HashMap::new();
    let mut by_next_use: BTreeSet<(usize, BlockId)> = BTreeSet::new();
    let mut fetched = Vec::with_capacity(interleaving.len());
    for (wanted, next_uses) in interleaving.iter().zip(next_uses) {
        let mut missing = Vec::new();
        for (&BlockRows { block, mask }, next_use) in wanted.iter().zip(next_uses) {
            let (held, due) = resident.remove(&block).unwrap_or((0, 0));
            by_next_use.remove(&(due, block));
            if mask & !held != 0 {
                missing.push(BlockRows { block, mask: mask & !held });
            }
            if let Some(next_use) = next_use {
                resident.insert(block, (held | mask, next_use));
                by_next_use.insert((next_use, block));
            }
        }
        while by_next_use.len() > slots {
            let (_, furthest) = by_next_use.pop_last().expect("longer than slots");
            resident.remove(&furthest);
        }
        fetched.push(missing);
    }
    fetched
}

/// For every block of every minibatch the minibatch of its next use.
fn next_uses(interleaving: &[Vec<BlockRows>]) -> Vec<Vec<Option<usize>>> {
    let mut next: HashMap<BlockId, usize> = HashMap::new();
    let mut all: Vec<Vec<Option<usize>>> = interleaving
        .iter()
        .enumerate()
        .rev()
        .map(|(at, wanted)| wanted.iter().map(|rows| next.insert(rows.block, at)).collect())
        .collect();
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn single_rows(minibatches: &[&[u32]]) -> Vec<Vec<BlockRows>> {
        let rows =
            |blocks: &&[u32]| blocks.iter().map(|&b| BlockRows { block: BlockId(b), mask: 1 }).collect();
        minibatches.iter().map(rows).collect()
    }

    fn count(fetched: &[Vec<BlockRows>]) -> u32 {
        fetched.iter().flatten().map(|rows| rows.rows()).sum()
    }

    #[test]
    fn what_is_needed_soonest_stays() {
        let trace = single_rows(&[&[1], &[2], &[3], &[1], &[2]]);
        assert_eq!(count(&belady(&trace, 0)), 5);
        // One slot: 1 stays past 2 and 3, then 2 comes again.
        assert_eq!(count(&belady(&trace, 1)), 4);
        assert_eq!(count(&belady(&trace, 2)), 3);
        assert!(belady(&[], 3).is_empty());
    }

    #[test]
    fn only_missing_rows_of_a_resident_block_move() {
        let rows = |mask| vec![BlockRows { block: BlockId(5), mask }];
        let fetched = belady(&[rows(0b0011), rows(0b0110), rows(0b0111)], 1);
        assert_eq!(fetched, [rows(0b0011), rows(0b0100), vec![]]);
    }

    /// The fewest fetches over every possible choice of what to keep: blocks as bits of a set.
    fn exhaustive(sets: &[u32], slots: u32) -> u32 {
        let mut best: HashMap<u32, u32> = HashMap::from([(0, 0)]);
        for &wanted in sets {
            let mut after: HashMap<u32, u32> = HashMap::new();
            for (held, cost) in best {
                let cost = cost + (wanted & !held).count_ones();
                let could_hold = held | wanted;
                let mut kept = could_hold;
                loop {
                    if kept.count_ones() <= slots {
                        let known = after.entry(kept).or_insert(cost);
                        *known = cost.min(*known);
                    }
                    if kept == 0 {
                        break;
                    }
                    kept = (kept - 1) & could_hold;
                }
            }
            best = after;
        }
        best.into_values().min().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn nothing_fetches_less(sets in prop::collection::vec(0_u32..64, 0..8), slots in 0_u32..5) {
            let trace: Vec<Vec<u32>> =
                sets.iter().map(|set| (0..6).filter(|bit| set >> bit & 1 == 1).collect()).collect();
            let slices: Vec<&[u32]> = trace.iter().map(Vec::as_slice).collect();
            let fetched = belady(&single_rows(&slices), slots as usize);
            prop_assert_eq!(count(&fetched), exhaustive(&sets, slots));
        }

        #[test]
        fn every_wanted_row_was_fetched_before(
            trace in prop::collection::vec(prop::collection::btree_map(0_u32..6, 1_u64..16, 0..5), 0..10),
            slots in 0_usize..5,
        ) {
            let trace: Vec<Vec<BlockRows>> = trace
                .into_iter()
                .map(|rows| rows.into_iter().map(|(b, mask)| BlockRows { block: BlockId(b), mask }).collect())
                .collect();
            let fetched = belady(&trace, slots);
            let mut seen: HashMap<BlockId, u64> = HashMap::new();
            for (wanted, fetched) in trace.iter().zip(&fetched) {
                for rows in fetched {
                    *seen.entry(rows.block).or_default() |= rows.mask;
                }
                for rows in wanted {
                    prop_assert_eq!(rows.mask & !seen[&rows.block], 0);
                }
            }
            // No fewer slots fetch less, and no cache fetches what nobody asked for.
            prop_assert!(count(&fetched) <= count(&belady(&trace, 0)));
        }
    }
}
