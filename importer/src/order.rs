//! Expected use of each vertex, which orders the rows within a part: hot rows lie together.
//!
//! The measure is the vertex inclusion probability over the whole training set (see [`rudder_graph::vip`]), with the
//! seeds themselves counted in: a minibatch needs the rows of its seeds too.

use crate::csc::Adjacency;
use crate::error::ImportError;
use crate::options::ImportOptions;
use crate::progress::{Phase, Run, Total};
use rudder_graph::vip;
use rudder_topology::VertexId;

/// The probability that a minibatch of `seeds` training vertices needs each vertex, by original id. Without a
/// training set every vertex may be a seed.
pub(crate) fn heat(
    graph: &Adjacency,
    train: &[u32],
    options: &ImportOptions,
    run: &mut Run<'_>,
) -> Result<Vec<f64>, ImportError> {
    run.begin(Phase::Order, Total::Open);
    let csc = graph.csc()?;
    let train: Vec<VertexId> = match train {
        [] => (0..graph.vertices() as u32).map(VertexId).collect(),
        train => train.iter().copied().map(VertexId).collect(),
    };
    let mut heat = vip::inclusion(csc, &train, options.seeds as usize, &options.fanout);
    let seed = (f64::from(options.seeds) / train.len().max(1) as f64).min(1.0);
    train.iter().for_each(|v| heat[v.index()] += seed * (1.0 - heat[v.index()]));
    run.advance(0)?;
    run.end(Phase::Order);
    Ok(heat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Input;
    use crate::progress::{Cancel, Silent};

    fn heat_of(graph: &Adjacency, train: &[u32], fanout: &[u32], seeds: u32) -> Vec<f64> {
        let mut options = ImportOptions::new(Input::Path("unused".into()), "unused");
        (options.fanout, options.seeds) = (fanout.to_vec(), seeds);
        heat(graph, train, &options, &mut Run::new(&mut Silent, Cancel::default())).unwrap()
    }

    #[test]
    fn seeds_and_what_they_reach_are_counted() {
        // 1 and 2 send to 0, 3 sends to 1; nothing is reached from 4. One of two training vertices is a seed.
        let graph = Adjacency { indptr: vec![0, 2, 3, 3, 3, 3], indices: vec![1, 2, 3] };
        let found = heat_of(&graph, &[0, 4], &[1, 1], 1);
        for (found, expected) in found.iter().zip([0.5, 0.25, 0.25, 0.25, 0.5]) {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
    }

    #[test]
    fn a_hub_is_hotter_than_its_leaves() {
        // Every vertex has vertex 0 as its source.
        let graph = Adjacency { indptr: (0..=100).collect(), indices: vec![0; 100] };
        for train in [(0..100).collect::<Vec<u32>>(), vec![]] {
            let heat = heat_of(&graph, &train, &[10, 5], 10);
            assert!(heat[1..].iter().all(|&h| h < heat[0]), "{heat:?}");
        }
    }
}
