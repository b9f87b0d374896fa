use super::*;
use crate::generate::{GeneratorSpec, GraphGenerator, Shape};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

pub(crate) struct Graph {
    indptr: Vec<u64>,
    indices: Vec<u32>,
}

impl Graph {
    pub(crate) fn csc(&self) -> Csc<'_> {
        Csc::new(&self.indptr, &self.indices).unwrap()
    }
}

/// A seeded R-MAT graph without parallel edges.
pub(crate) fn graph(vertices: u64, edges: u64, seed: u64) -> Graph {
    let shape = Shape::Rmat { a: 0.57, b: 0.19, c: 0.19 };
    let generator = GraphGenerator::new(GeneratorSpec { shape, vertices, edges, seed, classes: 2 }).unwrap();
    let mut columns = vec![Vec::new(); vertices as usize];
    // Parallel edges are left out, so that distinct positions are distinct neighbours.
    let distinct: HashSet<_> = generator.edges().collect();
    let mut edges: Vec<_> = distinct.into_iter().collect();
    edges.sort_unstable();
    edges.iter().for_each(|(source, target)| columns[target.index()].push(source.0));
    let ends = columns.iter().scan(0, |sum, column| {
        *sum += column.len() as u64;
        Some(*sum)
    });
    Graph { indptr: std::iter::once(0).chain(ends).collect(), indices: columns.concat() }
}

const KEY: SampleKey = SampleKey { seed: 5, epoch: 0, minibatch: 0 };

fn ids(range: std::ops::Range<u32>) -> Vec<VertexId> {
    range.map(VertexId).collect()
}

#[test]
fn a_sample_is_fixed_for_all_time() {
    // A change here changes every recorded trace: raise `TRACE_VERSION` with it.
    let csc = Csc::new(&[0, 6, 6, 6, 6, 6, 6], &[0, 1, 2, 3, 4, 5]).unwrap();
    let sampled = Sampler::new(vec![3]).sample(csc, KEY, &[VertexId(0)]).to_vec();
    assert_eq!(sampled.iter().map(|v| v.0).collect::<Vec<_>>(), [0, 3, 5]);
}

#[test]
fn every_subset_is_equally_likely() {
    let mut counts = HashMap::new();
    for minibatch in 0..20_000 {
        let draws = SampleKey { minibatch, ..KEY }.hop(0).with(7);
        let mut chosen = Chosen::default().choose(draws, 6, 3).to_vec();
        chosen.sort_unstable();
        *counts.entry(chosen).or_insert(0_u32) += 1;
    }
    // 20 subsets, 1000 expected of each, standard deviation 31.
    assert_eq!(counts.len(), 20);
    assert!(counts.values().all(|n| (830..1170).contains(n)), "{counts:?}");
}

#[test]
fn long_lists_are_chosen_like_short_ones() {
    let draws = KEY.hop(1).with(3);
    for (len, count) in [(SCAN_MAX + 10, SCAN_MAX), (SCAN_MAX + 10, SCAN_MAX + 1), (5000, 400)] {
        let chosen = Chosen::default().choose(draws, len, count).to_vec();
        let distinct: HashSet<_> = chosen.iter().collect();
        assert_eq!((chosen.len(), distinct.len()), (count, count));
        assert!(chosen.iter().all(|&at| at < len));
        let mut scanned: Vec<usize> = Vec::new();
        for last in len - count..len {
            let drawn = draws.below(last as u64, last as u64 + 1) as usize;
            scanned.push(if scanned.contains(&drawn) { last } else { drawn });
        }
        assert_eq!(chosen, scanned);
    }
}

#[test]
fn a_fanout_of_all_takes_whole_neighbourhoods() {
    let graph = graph(200, 2000, 1);
    let csc = graph.csc();
    let seeds = ids(0..5);
    let mut expected: HashSet<_> = seeds.iter().copied().collect();
    let mut frontier = seeds.clone();
    for _ in 0..2 {
        let next = frontier.iter().flat_map(|&v| csc.in_neighbours(v)).map(|&v| VertexId(v));
        frontier = next.filter(|&v| expected.insert(v)).collect();
    }
    let sampled: HashSet<_> =
        Sampler::new(vec![FANOUT_ALL, FANOUT_ALL]).sample(csc, KEY, &seeds).iter().copied().collect();
    assert_eq!(sampled, expected);
}

#[test]
fn threads_do_not_change_a_sample() {
    let graph = graph(500, 6000, 2);
    let csc = graph.csc();
    let sample = |minibatch: u64| {
        let seeds = ids(minibatch as u32 * 8..minibatch as u32 * 8 + 8);
        Sampler::new(vec![5, 3]).sample(csc, SampleKey { minibatch, ..KEY }, &seeds).to_vec()
    };
    let alone: Vec<_> = (0..32).map(sample).collect();
    let together: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|t| scope.spawn(move || (t * 8..t * 8 + 8).map(sample).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
}

#[test]
fn what_a_minibatch_draws_differs_by_every_part_of_its_key() {
    let graph = graph(500, 10_000, 2);
    let mut sampler = Sampler::new(vec![4, 4]);
    let mut sample = |key| sampler.sample(graph.csc(), key, &ids(0..20)).to_vec();
    let first = sample(KEY);
    assert_ne!(first, sample(SampleKey { seed: 6, ..KEY }));
    assert_ne!(first, sample(SampleKey { epoch: 1, ..KEY }));
    assert_ne!(first, sample(SampleKey { minibatch: 1, ..KEY }));
    assert_eq!(first, sample(KEY));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn samples_keep_the_rules(
        seed: u64,
        fanouts in prop::collection::vec(0_u32..6, 0..4),
        seeds in prop::collection::vec(0_u32..300, 0..30),
    ) {
        let graph = graph(300, 2500, seed % 4);
        let csc = graph.csc();
        let key = SampleKey { seed, epoch: seed % 7, minibatch: seed % 11 };
        let seeds: Vec<_> = seeds.into_iter().map(VertexId).collect();
        let mut sampler = Sampler::new(fanouts.clone());
        // Scratch of another minibatch must leave no trace.
        sampler.sample(csc, KEY, &ids(0..100));
        let mut edges = SampledEdges::default();
        let vertices = sampler.sample_edges(csc, key, &seeds, &mut edges).to_vec();

        let distinct: HashSet<_> = vertices.iter().collect();
        prop_assert_eq!(distinct.len(), vertices.len());
        let mut seen = HashSet::new();
        let first: Vec<_> = seeds.iter().copied().filter(|&v| seen.insert(v)).collect();
        prop_assert_eq!(&vertices[..first.len()], &first[..]);
        let mut fresh = Sampler::new(fanouts.clone());
        prop_assert_eq!(fresh.sample(csc, key, &seeds), &vertices[..]);
        prop_assert_eq!(edges.hop_offsets.len(), fanouts.len() + 1);

        let mut reached = first.len();
        for (hop, &fanout) in fanouts.iter().enumerate() {
            let range = edges.hop_offsets[hop]..edges.hop_offsets[hop + 1];
            let mut taken: HashMap<u32, HashSet<u32>> = HashMap::new();
            for edge in range {
                let (source, target) = (edges.sources[edge], edges.targets[edge]);
                let (neighbour, vertex) = (vertices[source as usize], vertices[target as usize]);
                let at = edges.positions[edge] - csc.first_edge(vertex);
                prop_assert_eq!(csc.in_neighbours(vertex)[at as usize], neighbour.0);
                prop_assert!(csc.in_neighbours(vertex).contains(&neighbour.0));
                prop_assert!(taken.entry(target).or_default().insert(source), "an edge taken twice");
                reached = reached.max(source as usize + 1);
            }
            for (target, sources) in taken {
                let degree = csc.in_degree(vertices[target as usize]);
                prop_assert_eq!(sources.len(), degree.min(fanout as usize));
            }
        }
        prop_assert_eq!(reached, vertices.len());
    }

    #[test]
    fn a_broken_graph_never_panics(indptr in prop::collection::vec(0_u64..50, 1..20), seed: u64) {
        let mut indptr = indptr;
        let indices: Vec<u32> = (0..40).map(|i| i * 7 % 60).collect();
        indptr[0] = 0;
        indptr.push(40);
        let csc = Csc::with_ends_checked(&indptr, &indices).unwrap();
        Sampler::new(vec![3, FANOUT_ALL]).sample(csc, SampleKey { seed, ..KEY }, &ids(0..30));
    }
}
