//! Each predictor beside its definition, worked out the long way on small graphs.

use super::*;
use crate::step::TrainerId;
use crate::testing::{World, book, trainer};
use rudder_graph::generate::{GeneratorSpec, GraphGenerator, Shape};
use rudder_graph::sampler::{SampleKey, Sampler};
use rudder_graph::trace::{Trace, TraceSpec};
use rudder_graph::{BlockRows, Csc, PartitionBook};
use rudder_topology::{MinibatchId, PolicySpec, TableId, TrainerRank, VertexId};
use std::collections::HashSet;
use std::sync::Arc;

const ROWS_PER_BLOCK: u32 = 4;

/// A skewed graph of 200 vertices.
fn skewed() -> (Vec<u64>, Vec<u32>) {
    let shape = Shape::Rmat { a: 0.57, b: 0.19, c: 0.19 };
    let spec = GeneratorSpec { shape, vertices: 200, edges: 1200, seed: 3, classes: 2 };
    let mut sources = vec![vec![]; 200];
    for (from, to) in GraphGenerator::new(spec).unwrap().edges() {
        sources[to.index()].push(from.0);
    }
    let mut indptr = vec![0];
    indptr.extend(sources.iter().scan(0, |end, s| {
        *end += s.len() as u64;
        Some(*end)
    }));
    (indptr, sources.concat())
}

fn training<'a>(graph: Csc<'a>, book: &'a PartitionBook, train_ids: &'a [VertexId]) -> Training<'a> {
    let table = TableId(0);
    Training { graph, book, table, train_ids, fanout: &[3, 2], seeds_per_minibatch: 5, seed: 11 }
}

fn ids(range: std::ops::Range<u32>) -> Vec<VertexId> {
    range.map(VertexId).collect()
}

/// Blocks of table 0 that the rows lie in, by division.
fn blocks_of(rows: &[u32]) -> HashSet<usize> {
    rows.iter().map(|row| (row / ROWS_PER_BLOCK) as usize).collect()
}

fn trace<'a>(training: &Training<'a>, seed: u64) -> Trace<'a> {
    let rank = TrainerRank(0);
    let spec = TraceSpec { seed, rank, world: 1, seeds: 5, fanout: training.fanout.to_vec() };
    Trace::new(spec, training.graph, training.train_ids.to_vec())
}

/// The share of `minibatches` of a trainer with this seed that use each block.
fn measured(training: &Training<'_>, seed: u64, minibatches: u64) -> Vec<f64> {
    let mut uses = vec![0.0; training.book.blocks() as usize];
    let mut trace = trace(training, seed);
    for minibatch in (0..minibatches).map(MinibatchId) {
        blocks_of(trace.rows(minibatch)).into_iter().for_each(|block| uses[block] += 1.0);
    }
    uses.into_iter().map(|n| n / minibatches as f64).collect()
}

#[test]
fn presc_counts_the_blocks_of_its_own_epochs() {
    let (indptr, indices) = skewed();
    let (book, train) = (book(200, 1, ROWS_PER_BLOCK), ids(20..120));
    let training = training(Csc::new(&indptr, &indices).unwrap(), &book, &train);
    for epochs in [1_u32, 3] {
        let found = prior(PriorKind::Presc { epochs }, &training);
        let expected = measured(&training, 11, 20 * u64::from(epochs));
        for (a, b) in found.iter().zip(&expected) {
            assert!((f64::from(*a) - b).abs() < 1e-6, "{a} {b}");
        }
        assert!(found[..50].iter().any(|&p| p > 0.0) && found[50..].iter().all(|&p| p == 0.0));
    }
}

#[test]
fn presc_of_many_epochs_is_what_a_trainer_of_another_seed_uses() {
    let (indptr, indices) = skewed();
    let (book, train) = (book(200, 1, ROWS_PER_BLOCK), ids(0..200));
    let training = training(Csc::new(&indptr, &indices).unwrap(), &book, &train);
    let found = prior(PriorKind::Presc { epochs: 50 }, &training);
    for (a, b) in found.iter().zip(measured(&training, 5, 2000)) {
        // 2,000 minibatches each: a standard deviation of at most 0.016 between them.
        assert!((f64::from(*a) - b).abs() < 0.08, "{a} {b}");
    }
}

#[test]
fn vip_of_blocks_is_the_formula_and_near_the_truth() {
    let (indptr, indices) = skewed();
    let (book, train) = (book(200, 1, ROWS_PER_BLOCK), ids(0..200));
    let training = training(Csc::new(&indptr, &indices).unwrap(), &book, &train);
    let found = prior(PriorKind::Vip, &training);
    // The formula, probability by probability: hops from every vertex with p_0 = 5 / 200.
    let p0 = 0.025;
    let mut hops = vec![vec![p0; 200]];
    for fanout in [3.0, 2.0] {
        let before = hops.last().unwrap().clone();
        let mut missed = vec![1.0; 200];
        for v in 0..200 {
            let neighbours = training.graph.in_neighbours(VertexId(v));
            for &u in neighbours {
                missed[u as usize] *=
                    1.0 - f64::min(1.0, fanout / neighbours.len() as f64) * before[v as usize];
            }
        }
        hops.push(missed.iter().map(|m| 1.0 - m).collect());
    }
    let truth = measured(&training, 5, 4000);
    let mut off = 0.0;
    for block in 0..50 {
        let of = |v: usize| hops.iter().map(|p| 1.0 - p[v]).product::<f64>();
        let by_hand = 1.0 - (4 * block..4 * block + 4).map(of).product::<f64>();
        assert!((f64::from(found[block]) - by_hand).abs() < 1e-6, "block {block}");
        off += (by_hand - truth[block]).abs() / 50.0;
    }
    // The formula takes visits for independent, which they are not quite.
    assert!(off < 0.05, "{off} off the true frequency on average");
    assert!(found[50..].iter().all(|&p| p == 0.0), "blocks of another table");
}

#[test]
fn degree_orders_by_in_degree_and_sums_to_a_minibatch() {
    let (indptr, indices) = skewed();
    let (book, train) = (book(200, 1, ROWS_PER_BLOCK), ids(0..200));
    let training = training(Csc::new(&indptr, &indices).unwrap(), &book, &train);
    let found = prior(PriorKind::Degree, &training);
    let degree = |block: usize| indptr[4 * block + 4] - indptr[4 * block];
    for a in 0..50 {
        for b in 0..50 {
            assert_eq!(degree(a) < degree(b), found[a] < found[b], "{a} {b}");
        }
    }
    let blocks: f64 = measured(&training, 11, 8).iter().sum();
    let sum: f64 = found.iter().map(|&p| f64::from(p)).sum();
    assert!((sum - blocks).abs() < 0.01 * blocks, "{sum} {blocks}");
}

#[test]
fn walks_converge_to_what_the_coming_minibatches_use() {
    let (indptr, indices) = skewed();
    let (book, train) = (book(200, 1, ROWS_PER_BLOCK), ids(0..200));
    let training = training(Csc::new(&indptr, &indices).unwrap(), &book, &train);
    let mut trainer = trace(&training, 5);
    let coming: Vec<Vec<VertexId>> = (0..3).map(|m| trainer.seeds(MinibatchId(m)).to_vec()).collect();
    let coming: Vec<&[VertexId]> = coming.iter().map(Vec::as_slice).collect();
    // The truth: every draw of a sampler that is seeded otherwise, the same seeds.
    let (mut truth, mut sampler) = (vec![0.0; 50], Sampler::new(vec![3, 2]));
    for epoch in 0..4000 {
        for (minibatch, seeds) in (0..).zip(&coming) {
            let touched = sampler.sample(training.graph, SampleKey { seed: 99, epoch, minibatch }, seeds);
            let rows: Vec<u32> = touched.iter().map(|v| v.0).collect();
            blocks_of(&rows).into_iter().for_each(|block| truth[block] += 1.0 / 12_000.0);
        }
    }
    let error = |walks| {
        let walk = RandomWalk::new(&training, &coming, walks);
        assert_eq!(walk.horizon(), Horizon::Minibatches(3));
        (0..50)
            .map(|b| (f64::from(walk.expected_uses(BlockId(b as u32))) - truth[b]).abs())
            .fold(0.0, f64::max)
    };
    // Six standard deviations.
    assert!(error(4) < 0.9);
    assert!(error(4000) < 0.03);
    assert!(error(4000) < error(4) / 4.0);
}

#[test]
fn the_same_seed_gives_the_same_answers_and_another_does_not() {
    let (indptr, indices) = skewed();
    let (book, train) = (book(200, 2, ROWS_PER_BLOCK), ids(0..200));
    let training = training(Csc::new(&indptr, &indices).unwrap(), &book, &train);
    let other = Training { seed: 12, ..training };
    for kind in [PriorKind::Degree, PriorKind::Presc { epochs: 1 }, PriorKind::Vip] {
        assert_eq!(prior(kind, &training), prior(kind, &training));
    }
    let presc = PriorKind::Presc { epochs: 1 };
    assert_ne!(prior(presc, &training), prior(presc, &other));
    let seeds = ids(0..5);
    let walk = |training: &Training<'_>| {
        let walk = RandomWalk::new(training, &[&seeds], 7);
        (0..50).map(|b| walk.expected_uses(BlockId(b))).collect::<Vec<_>>()
    };
    assert_eq!(walk(&training), walk(&training));
    assert_ne!(walk(&training), walk(&other));
}

#[test]
fn strange_trainings_give_probabilities() {
    let (indptr, indices) = skewed();
    let graph = Csc::new(&indptr, &indices).unwrap();
    let short = book(150, 1, ROWS_PER_BLOCK);
    let far = [VertexId(u32::MAX), VertexId(3)];
    let base = training(graph, &short, &far);
    let empty = Csc::new(&[0], &[]).unwrap();
    let strange = [
        base,
        Training { train_ids: &[], ..base },
        Training { fanout: &[], ..base },
        Training { seeds_per_minibatch: 0, ..base },
        Training { table: TableId(9), ..base },
        Training { graph: empty, ..base },
        Training { graph: empty, train_ids: &[], ..base },
    ];
    for training in strange {
        for kind in [
            PriorKind::Degree,
            PriorKind::Presc { epochs: 0 },
            PriorKind::Presc { epochs: 1 },
            PriorKind::Vip,
        ] {
            let found = prior(kind, &training);
            assert_eq!(found.len(), short.blocks() as usize);
            assert!(found.iter().all(|p| (0.0..=1.0).contains(p)), "{kind:?} {training:?}");
        }
    }
}

fn rows(blocks: &[u32]) -> Vec<BlockRows> {
    blocks.iter().map(|&b| BlockRows { block: BlockId(b), mask: 1 }).collect()
}

#[test]
fn what_was_observed_decays_and_a_prior_gives_way_to_it() {
    let half_life = 8.0_f32;
    let uses: [&[u32]; 6] = [&[0], &[0, 1], &[], &[0], &[1], &[0]];
    let mut observed = Observed::new(3);
    let mut shrunk = Shrunk::new(Arc::from([0.1, 0.9, 0.5].as_slice()), 4.0, 3);
    assert_eq!(observed.expected_uses(BlockId(0)), 0.0);
    assert_eq!(shrunk.expected_uses(BlockId(1)), 0.9);
    for blocks in uses {
        observed.record(&rows(blocks), half_life);
        shrunk.record(&rows(blocks), half_life);
    }
    let weight = |at: usize| 0.5_f64.powf((uses.len() - 1 - at) as f64 / f64::from(half_life));
    let minibatches: f64 = (0..uses.len()).map(weight).sum();
    for (block, prior) in [(0, 0.1), (1, 0.9), (2, 0.5)] {
        let n: f64 = (0..uses.len()).filter(|&at| uses[at].contains(&block)).map(weight).sum();
        let found = f64::from(observed.expected_uses(BlockId(block)));
        assert!((found - n / minibatches).abs() < 1e-4, "{found}");
        let mixed = f64::from(shrunk.expected_uses(BlockId(block)));
        assert!((mixed - (4.0 * prior + n) / (4.0 + minibatches)).abs() < 1e-4, "{mixed}");
    }
    for _ in 0..10_000 {
        shrunk.record(&rows(&[2]), 1e6);
    }
    assert!(shrunk.expected_uses(BlockId(2)) > 0.99 && shrunk.expected_uses(BlockId(1)) < 0.01);
    assert_eq!(Shrunk::new(Arc::from([]), 1.0, 3).expected_uses(BlockId(2)), 0.0);
}

fn announce(world: &mut World, trainer: TrainerId, minibatch: u64, rows: &[u32]) {
    world.announce(trainer, minibatch, vec![(TableId(0), rows.to_vec())]);
}

#[test]
fn known_uses_come_first_and_likelihood_after_them() {
    let mut world = World::new(book(64, 1, ROWS_PER_BLOCK), 4096, PolicySpec::RUDDER, &[]);
    let (a, b) = (trainer(0), trainer(1));
    world.connect(a);
    world.connect(b);
    announce(&mut world, a, 0, &[0, 5]);
    announce(&mut world, a, 1, &[0, 8, 12]);
    announce(&mut world, b, 0, &[12]);
    let view = world.engine.view();
    let exact = ExactWindow::new(view.window);
    assert_eq!((exact.horizon(), exact.certainty()), (Horizon::Minibatches(2), Certainty::Exact));
    let ahead = |block| exact.next_use(BlockId(block)).map(|next| next.minibatches_ahead);
    assert_eq!(
        [ahead(0), ahead(1), ahead(2), ahead(3), ahead(4)],
        [Some(0), Some(0), Some(1), Some(0), None]
    );
    assert!((exact.expected_uses(BlockId(0)) - 2.0 / 3.0).abs() < 1e-6);
    let mut likelihood = Observed::new(32);
    likelihood.record(&rows(&[5, 6]), 8.0);
    likelihood.record(&rows(&[5]), 8.0);
    let combined = Combined { exact, likelihood };
    let mut order: Vec<u32> = (0..8).collect();
    order.sort_by(|&a, &b| combined.outlook(BlockId(b)).compare(&combined.outlook(BlockId(a))));
    assert_eq!(order, [0, 1, 3, 2, 5, 6, 4, 7]);
    assert_eq!((combined.horizon(), combined.certainty()), (Horizon::Endless, Certainty::Likelihood));
}
