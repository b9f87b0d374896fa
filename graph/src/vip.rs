//! Vertex inclusion probabilities: how likely a minibatch touches each vertex.
//!
//! SALIENT++ (Kaler et al. 2023): with the training set T and minibatches of B seeds, p_0(v) = B / |T| on T and 0
//! elsewhere; p_h(u) = 1 - prod over v that sample from u of (1 - min(1, f_h / d(v)) * p_{h-1}(v)), with f_h the
//! fanout of hop h and d(v) the in-degree of v; VIP(u) = 1 - prod over h >= 1 of (1 - p_h(u)). It takes the
//! vertices for independent; products are sums of `log1p`.

use crate::csc::Csc;
use rudder_topology::VertexId;

/// The probability for each vertex to be reached by hops 1 and beyond, from minibatches of `batch` seeds of
/// `train` (distinct ids; those outside the graph count for the size of the set only). O(hops x edges).
#[must_use]
pub fn inclusion(csc: Csc<'_>, train: &[VertexId], batch: usize, fanouts: &[u32]) -> Vec<f64> {
    let vertices = csc.vertices() as usize;
    let mut reached = vec![0.0; vertices];
    let seed = (batch as f64 / train.len().max(1) as f64).min(1.0);
    for vertex in train {
        if let Some(p) = reached.get_mut(vertex.index()) {
            *p = seed;
        }
    }
    // Logarithms of the probabilities not to be reached: by this hop, by any.
    let mut missed_by_hop = vec![0.0; vertices];
    let mut missed = vec![0.0; vertices];
    for &fanout in fanouts {
        missed_by_hop.fill(0.0);
        spread(csc, &reached, fanout, &mut missed_by_hop);
        for ((p, hop), all) in reached.iter_mut().zip(&missed_by_hop).zip(&mut missed) {
            *p = -hop.exp_m1();
            *all += hop;
        }
    }
    missed.into_iter().map(|log: f64| -log.exp_m1()).collect()
}

fn spread(csc: Csc<'_>, reached: &[f64], fanout: u32, missed: &mut [f64]) {
    for (vertex, &p) in reached.iter().enumerate() {
        if p == 0.0 {
            continue;
        }
        let neighbours = csc.in_neighbours(VertexId(vertex as u32));
        let share = (f64::from(fanout) / neighbours.len() as f64).min(1.0);
        let log = (-share * p).ln_1p();
        for &neighbour in neighbours {
            if let Some(missed) = missed.get_mut(neighbour as usize) {
                *missed += log;
            }
        }
    }
}

/// The `count` vertices outside `local` that are likeliest, likeliest first, lower ids first among equals:
/// what a static cache holds.
#[must_use]
pub fn likeliest_remote(inclusion: &[f64], local: std::ops::Range<u64>, count: usize) -> Vec<VertexId> {
    let remote = (0..inclusion.len() as u64).filter(|vertex| !local.contains(vertex));
    let mut remote: Vec<_> = remote.filter(|&v| inclusion[v as usize] > 0.0).collect();
    let order = |&a: &u64, &b: &u64| inclusion[b as usize].total_cmp(&inclusion[a as usize]).then(a.cmp(&b));
    if count < remote.len() {
        remote.select_nth_unstable_by(count, order);
        remote.truncate(count);
    }
    remote.sort_unstable_by(order);
    remote.into_iter().map(|vertex| VertexId(vertex as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::tests::graph;
    use crate::sampler::{FANOUT_ALL, SampleKey, Sampler};
    use crate::seeds::{Deal, EpochSeeds};

    fn ids(range: std::ops::Range<u32>) -> Vec<VertexId> {
        range.map(VertexId).collect()
    }

    /// The formula word by word, over a dense matrix.
    fn by_definition(csc: Csc<'_>, train: &[VertexId], batch: usize, fanouts: &[u32]) -> Vec<f64> {
        let n = csc.vertices() as u32;
        let samples_from = |v: u32, u: u32| csc.in_neighbours(VertexId(v)).contains(&u);
        let p0 = |v| if train.contains(&v) { batch as f64 / train.len() as f64 } else { 0.0 };
        let mut hops = vec![ids(0..n).into_iter().map(p0).collect::<Vec<_>>()];
        for &fanout in fanouts {
            let before = hops.last().unwrap();
            let reach = |u| {
                let miss = |v: u32| {
                    let share = (f64::from(fanout) / csc.in_degree(VertexId(v)) as f64).min(1.0);
                    1.0 - share * before[v as usize]
                };
                1.0 - (0..n).filter(|&v| samples_from(v, u)).map(miss).product::<f64>()
            };
            hops.push((0..n).map(reach).collect());
        }
        (0..n as usize).map(|u| 1.0 - hops[1..].iter().map(|p| 1.0 - p[u]).product::<f64>()).collect()
    }

    #[test]
    fn it_is_the_published_formula() {
        for seed in 0..4 {
            let graph = graph(60, 400, seed);
            for fanouts in [&[][..], &[3], &[10, 5], &[2, 2, FANOUT_ALL]] {
                for batch in [1, 7, 20] {
                    let found = inclusion(graph.csc(), &ids(10..30), batch, fanouts);
                    let expected = by_definition(graph.csc(), &ids(10..30), batch, fanouts);
                    for (a, b) in found.iter().zip(&expected) {
                        assert!((a - b).abs() < 1e-9 && (0.0..=1.0).contains(a), "{a} {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn on_a_tree_the_sampler_agrees() {
        // Vertex v samples from 3v + 1 .. 3v + 4: no hop reaches a vertex in two ways.
        let (inner, all) = (13_u32, 40_u32);
        let ends = (1..=u64::from(all)).map(|v| 3 * v.min(u64::from(inner)));
        let indptr: Vec<u64> = std::iter::once(0).chain(ends).collect();
        let indices: Vec<u32> = (1..all).collect();
        let csc = Csc::new(&indptr, &indices).unwrap();
        let (train, batch, fanouts) = (ids(0..4), 1, [2, 1]);
        let expected = inclusion(csc, &train, batch, &fanouts);
        let mut counts = vec![0_u32; all as usize];
        let mut sampler = Sampler::new(fanouts.to_vec());
        let epochs = 10_000;
        for epoch in 0..epochs {
            let seeds = EpochSeeds::new(Deal { seed: 1, epoch, batch, rank: 0, world: 1 }, &train);
            for minibatch in 0..seeds.minibatches() {
                let key = SampleKey { seed: 1, epoch, minibatch };
                let sampled = sampler.sample(csc, key, seeds.minibatch(minibatch));
                sampled[1..].iter().for_each(|v| counts[v.index()] += 1);
            }
        }
        for (vertex, (&count, &p)) in counts.iter().zip(&expected).enumerate() {
            let measured = f64::from(count) / (epochs * 4) as f64;
            // The formula takes hops 1 and 2 for independent where one seed excludes the other: at most 0.01.
            // Six standard deviations of 40,000 draws are 0.01 at these probabilities.
            assert!((measured - p).abs() < 0.02, "vertex {vertex}: {measured} measured, {p} expected");
        }
    }

    #[test]
    fn the_likeliest_remote_vertices_come_first() {
        let p = [0.9, 0.1, 0.5, 0.5, 0.0, 0.7];
        let top = |local, count| likeliest_remote(&p, local, count).iter().map(|v| v.0).collect::<Vec<_>>();
        assert_eq!(top(0..1, 3), [5, 2, 3]);
        assert_eq!(top(0..1, 2), [5, 2]);
        assert_eq!(top(0..0, 100), [0, 5, 2, 3, 1]);
        assert_eq!(top(0..6, 2), Vec::<u32>::new());
    }

    #[test]
    fn strange_input_gives_probabilities() {
        let graph = graph(20, 60, 1);
        assert!(inclusion(graph.csc(), &[], 5, &[3]).iter().all(|&p| p == 0.0));
        let far = [VertexId(u32::MAX), VertexId(0)];
        assert!(inclusion(graph.csc(), &far, 9, &[FANOUT_ALL; 3]).iter().all(|p| (0.0..=1.0).contains(p)));
    }
}
