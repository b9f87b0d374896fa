//! Clusters of bounded size by label propagation (Raghavan, Albert, Kumara 2007; bounded sizes as in Meyerhenke,
//! Sanders, Schulz 2014): every vertex joins the cluster that most of its neighbours are in, pass after pass.

use crate::csc::{Adjacency, zeros};
use crate::error::ImportError;
use crate::progress::Run;

/// Passes over the vertices.
pub(crate) const PASSES: u64 = 4;

const CHUNK: usize = 1 << 16;

/// Clusters, each a list of vertices.
pub(crate) struct Clusters {
    /// `starts[c] .. starts[c + 1]` are the members of cluster c.
    starts: Vec<u32>,
    members: Vec<u32>,
}

impl Clusters {
    /// The clusters that have members, the biggest first, those of equal size in order.
    pub(crate) fn biggest_first(&self) -> impl Iterator<Item = &[u32]> {
        let size = |c: u32| self.starts[c as usize + 1] - self.starts[c as usize];
        let mut order: Vec<u32> = (0..self.starts.len() as u32 - 1).filter(|&c| size(c) > 0).collect();
        order.sort_by_key(|&c| std::cmp::Reverse(size(c)));
        order
            .into_iter()
            .map(|c| &self.members[self.starts[c as usize] as usize..self.starts[c as usize + 1] as usize])
    }
}

/// Finds clusters of at most `size_max` vertices in a symmetric graph without self loops.
pub(crate) fn find(simple: &Adjacency, size_max: usize, run: &mut Run<'_>) -> Result<Clusters, ImportError> {
    let vertices = simple.vertices();
    let mut label: Vec<u32> = (0..vertices as u32).collect();
    let mut sizes: Vec<u32> = vec![1; vertices];
    let mut votes: Vec<u32> = zeros("the clusters", vertices as u64)?;
    for _ in 0..PASSES {
        for first in (0..vertices).step_by(CHUNK) {
            let end = vertices.min(first + CHUNK);
            for v in first..end {
                let chosen = elect(simple.sources(v), &label, &sizes, &mut votes, label[v], size_max);
                sizes[label[v] as usize] -= 1;
                sizes[chosen as usize] += 1;
                label[v] = chosen;
            }
            run.advance((end - first) as u64)?;
        }
    }
    drop(votes);
    let mut starts: Vec<u32> = zeros("the clusters", vertices as u64 + 1)?;
    for (cluster, size) in sizes.into_iter().enumerate() {
        starts[cluster + 1] = starts[cluster] + size;
    }
    let mut members: Vec<u32> = zeros("the clusters", vertices as u64)?;
    for (v, &cluster) in label.iter().enumerate() {
        members[starts[cluster as usize] as usize] = v as u32;
        starts[cluster as usize] += 1;
    }
    starts.copy_within(0..vertices, 1);
    starts[0] = 0;
    Ok(Clusters { starts, members })
}

/// The cluster that most neighbours are in, of those with room; of equals the own one, then the lowest.
fn elect(
    neighbours: &[u32],
    label: &[u32],
    sizes: &[u32],
    votes: &mut [u32],
    own: u32,
    size_max: usize,
) -> u32 {
    neighbours.iter().for_each(|&n| votes[label[n as usize] as usize] += 1);
    let (mut chosen, mut most) = (own, votes[own as usize]);
    for &neighbour in neighbours {
        let cluster = label[neighbour as usize];
        let count = votes[cluster as usize];
        let better = count > most || (count == most && chosen != own && cluster < chosen);
        if better && (cluster == own || (sizes[cluster as usize] as usize) < size_max) {
            (chosen, most) = (cluster, count);
        }
    }
    neighbours.iter().for_each(|&n| votes[label[n as usize] as usize] = 0);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::undirected::simple;
    use crate::progress::{Cancel, Silent};
    use proptest::prelude::*;

    fn clusters(graph: &Adjacency, size_max: usize) -> Vec<Vec<u32>> {
        let found = find(graph, size_max, &mut Run::new(&mut Silent, Cancel::default())).unwrap();
        found.biggest_first().map(<[u32]>::to_vec).collect()
    }

    #[test]
    fn cliques_are_clusters() {
        // Vertices 0, 1, 2 and 3, 4, 5, 6, each all to all; 2 and 3 are joined; 7 stands alone.
        let cliques: [&[u32]; 8] =
            [&[1, 2], &[0, 2], &[0, 1, 3], &[2, 4, 5, 6], &[3, 5, 6], &[3, 4, 6], &[3, 4, 5], &[]];
        let mut indptr = vec![0];
        cliques.iter().for_each(|list| indptr.push(indptr.last().unwrap() + list.len() as u64));
        let graph = Adjacency { indptr, indices: cliques.concat() };
        assert_eq!(clusters(&graph, 4), [vec![3, 4, 5, 6], vec![0, 1, 2], vec![7]]);
        assert!(clusters(&graph, 1).iter().all(|cluster| cluster.len() == 1));
    }

    proptest! {
        #[test]
        fn clusters_are_bounded_and_hold_everyone_once(
            edges in prop::collection::vec((0_u32..60, 0_u32..60), 0..300), size_max in 1_usize..20,
        ) {
            let mut lists = vec![Vec::new(); 60];
            edges.iter().for_each(|&(s, d)| lists[d as usize].push(s));
            let mut indptr = vec![0];
            lists.iter().for_each(|list| indptr.push(indptr.last().unwrap() + list.len() as u64));
            let graph = simple(&Adjacency { indptr, indices: lists.concat() }).unwrap();
            let found = clusters(&graph, size_max);
            prop_assert!(found.iter().all(|cluster| cluster.len() <= size_max));
            let mut all = found.concat();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..60));
        }
    }
}
