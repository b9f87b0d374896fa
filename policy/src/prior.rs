//! Which policies have to know of the graph before training, and what they are told.

use crate::predict::{PriorKind, Training, prior};
use rudder_graph::{Csc, PartitionBook};
use rudder_topology::{PartId, PolicySpec, TableId, VertexId};
use std::sync::Arc;

/// Of what a prior samples. Not any trainer's: a prior may not know what it is to predict.
const SEED: u64 = 0x0050_5249_4f52;

/// Whether an engine of this policy is only made with a prior.
#[must_use]
pub fn is_needed(policy: PolicySpec) -> bool {
    matches!(
        policy,
        PolicySpec::Degree
            | PolicySpec::Presc { .. }
            | PolicySpec::Vip { .. }
            | PolicySpec::MassiveGnn(_)
            | PolicySpec::RudderPaper { .. }
    )
}

/// Whether a policy makes use of a prior, where there is a graph to make it from.
#[must_use]
pub fn is_of_use(policy: PolicySpec) -> bool {
    is_needed(policy) || matches!(policy, PolicySpec::Rudder { sampling: Some(_) })
}

/// The prior of a policy that makes use of one: for each block, by id, a number whose order is that of expected uses.
///
/// `remote` says of each part whether its blocks are fetched. Tables that have a row for every vertex are told apart
/// from others by that, and blocks of the others get 0. `train_ids` may be empty for every vertex.
#[must_use]
pub fn of(
    policy: PolicySpec,
    graph: Csc<'_>,
    book: &PartitionBook,
    train_ids: &[VertexId],
    remote: &[bool],
) -> Option<Arc<[f32]>> {
    let (kind, sampling) = match policy {
        // The degree itself: as a probability, which the predictor of that name makes of it, hubs would be equal.
        PolicySpec::Degree => {
            let degree = |vertex| graph.in_degree(vertex) as f64;
            return Some(sum(vertex_tables(graph, book), |table| by_block(graph, book, table, degree)));
        }
        PolicySpec::Presc { epochs, sampling } => (PriorKind::Presc { epochs }, sampling),
        PolicySpec::Vip { sampling } | PolicySpec::Rudder { sampling: Some(sampling) } => {
            (PriorKind::Vip, sampling)
        }
        PolicySpec::MassiveGnn(_) | PolicySpec::RudderPaper { .. } => {
            return Some(sum(vertex_tables(graph, book), |table| halo_degree(graph, book, table, remote)));
        }
        _ => return None,
    };
    let fanout: Vec<u32> = sampling.fanout.hops().collect();
    Some(sum(vertex_tables(graph, book), |table| {
        let seeds_per_minibatch = sampling.seeds;
        let (fanout, seed) = (&fanout, SEED);
        prior(kind, &Training { graph, book, table, train_ids, fanout, seeds_per_minibatch, seed })
    }))
}

fn vertex_tables(graph: Csc<'_>, book: &PartitionBook) -> Vec<TableId> {
    let tables = (0..book.tables()).map(|table| TableId(table as u16));
    tables.filter(|&table| book.rows(table) == graph.vertices()).collect()
}

/// Tables have blocks of their own, so at most one of the priors is not 0.
fn sum(tables: Vec<TableId>, of: impl Fn(TableId) -> Arc<[f32]>) -> Arc<[f32]> {
    let add = |a: Arc<[f32]>, b: Arc<[f32]>| a.iter().zip(b.iter()).map(|(a, b)| a + b).collect();
    tables.into_iter().map(of).reduce(add).unwrap_or_default()
}

/// MassiveGNN's first ranking: a block weighs the sum of its halo vertices' in-degrees, each counted from 1 so that a
/// block of the halo never weighs nothing. The halo are the remote vertices that are in-neighbours of a vertex of a
/// co-located part; where no part is co-located, every vertex is halo.
#[must_use]
pub fn halo_degree(graph: Csc<'_>, book: &PartitionBook, table: TableId, remote: &[bool]) -> Arc<[f32]> {
    let is_remote = |part: PartId| remote.get(part.index()).copied().unwrap_or(false);
    let place = |vertex: u64| book.locate(table, vertex);
    let vertices = graph.vertices();
    let mut halo = vec![remote.iter().all(|&remote| remote); vertices as usize];
    for vertex in 0..vertices {
        if place(vertex).is_some_and(|place| !is_remote(place.part)) {
            for &neighbour in graph.in_neighbours(VertexId(vertex as u32)) {
                if let Some(in_halo) = halo.get_mut(neighbour as usize) {
                    *in_halo = true;
                }
            }
        }
    }
    by_block(graph, book, table, |vertex| {
        let is_remote = place(u64::from(vertex.0)).is_some_and(|place| is_remote(place.part));
        if is_remote && halo[vertex.index()] { 1.0 + graph.in_degree(vertex) as f64 } else { 0.0 }
    })
}

/// Adds each vertex's weight to its block's.
fn by_block(
    graph: Csc<'_>,
    book: &PartitionBook,
    table: TableId,
    weight: impl Fn(VertexId) -> f64,
) -> Arc<[f32]> {
    let mut sums = vec![0.0; book.blocks() as usize];
    for vertex in 0..graph.vertices() {
        if let Some(place) = book.locate(table, vertex) {
            sums[place.block.index()] += weight(VertexId(vertex as u32));
        }
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::book;

    /// Six vertices in three parts: 0 and 1, 2 and 3, 4 and 5.
    fn graph() -> (Vec<u64>, Vec<u32>) {
        // In-neighbours: 0 <- 2, 4; 1 <- 2; 2 <- 3; 3 <- 5; 4 <- 0, 1, 5; 5 <- nobody.
        (vec![0, 2, 3, 4, 5, 8, 8], vec![2, 4, 2, 3, 5, 0, 1, 5])
    }

    #[test]
    fn the_halo_is_what_the_co_located_part_reads() {
        let (indptr, indices) = graph();
        let graph = Csc::new(&indptr, &indices).unwrap();
        let weights = |book: &_, remote| halo_degree(graph, book, TableId(0), remote).to_vec();
        let single = book(6, 3, 1);
        // Part 0 reads 2 (in-degree 1) and 4 (in-degree 3); the other table has no weight.
        let part_0 = [0.0, 0.0, 2.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(weights(&single, &[false, true, true]), part_0);
        let all = weights(&single, &[true, true, true]);
        assert_eq!(all[..6], [3.0, 2.0, 2.0, 2.0, 4.0, 1.0]);
        // Of pairs: the block of 2 and 3 has one halo vertex.
        assert_eq!(weights(&book(6, 3, 2), &[false, true, true])[..3], [0.0, 2.0, 4.0]);
    }

    #[test]
    fn whoever_needs_a_prior_gets_one_of_every_block() {
        let (indptr, indices) = graph();
        let graph = Csc::new(&indptr, &indices).unwrap();
        let book = book(6, 3, 1);
        let told = PolicySpec::Rudder { sampling: Some(rudder_topology::Sampling::PUBLISHED) };
        assert!(is_of_use(told) && !is_needed(told));
        for policy in PolicySpec::ALL.into_iter().chain([told]) {
            let prior = of(policy, graph, &book, &[], &[true; 3]);
            assert_eq!(prior.is_some(), is_of_use(policy), "{policy}");
            if let Some(prior) = prior {
                assert_eq!(prior.len(), book.blocks() as usize, "{policy}");
                assert!(prior.iter().all(|&uses| uses >= 0.0) && prior[4] > 0.0, "{policy}: {prior:?}");
            }
        }
    }

    #[test]
    fn more_in_neighbours_rank_higher() {
        let (indptr, indices) = graph();
        let graph = Csc::new(&indptr, &indices).unwrap();
        let prior = of(PolicySpec::Degree, graph, &book(6, 3, 1), &[], &[true; 3]).unwrap();
        assert!(prior[4] > prior[0] && prior[0] > prior[1] && prior[1] > prior[5], "{prior:?}");
    }
}
