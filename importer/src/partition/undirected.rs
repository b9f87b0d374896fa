//! The graph without directions, repeats and self loops: what partitioners look at.

use crate::csc::{Adjacency, drop_repeats, sort_lists, zeros};
use crate::error::ImportError;

/// Both directions of every edge, each once, no self loops.
pub(crate) fn simple(graph: &Adjacency) -> Result<Adjacency, ImportError> {
    let vertices = graph.vertices();
    let mut indptr: Vec<u64> = zeros("the undirected graph", vertices as u64 + 1)?;
    let ends = |v: usize| graph.sources(v).iter().map(|&s| s as usize).filter(move |&s| s != v);
    for v in 0..vertices {
        for source in ends(v) {
            indptr[v + 1] += 1;
            indptr[source + 1] += 1;
        }
    }
    for v in 0..vertices {
        indptr[v + 1] += indptr[v];
    }
    let mut indices: Vec<u32> = zeros("the undirected graph", indptr[vertices])?;
    for v in 0..vertices {
        for source in ends(v) {
            indices[indptr[v] as usize] = source as u32;
            indptr[v] += 1;
            indices[indptr[source] as usize] = v as u32;
            indptr[source] += 1;
        }
    }
    indptr.copy_within(0..vertices, 1);
    indptr[0] = 0;
    sort_lists(&indptr, &mut indices);
    drop_repeats(&mut indptr, &mut indices);
    Ok(Adjacency { indptr, indices })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn loops_repeats_and_directions_go() {
        let graph = Adjacency { indptr: vec![0, 3, 4, 4], indices: vec![0, 1, 1, 0] };
        assert_eq!(simple(&graph).unwrap(), Adjacency { indptr: vec![0, 1, 2, 2], indices: vec![1, 0] });
        let empty = Adjacency { indptr: vec![0], indices: vec![] };
        assert_eq!(simple(&empty).unwrap(), empty);
    }

    proptest! {
        #[test]
        fn it_is_the_set_of_both_directions(lists in prop::collection::vec(prop::collection::vec(0_u32..9, 0..12), 9)) {
            let mut indptr = vec![0];
            lists.iter().for_each(|list| indptr.push(indptr.last().unwrap() + list.len() as u64));
            let simple = simple(&Adjacency { indptr, indices: lists.concat() }).unwrap();
            let mut expected = BTreeSet::new();
            for (v, list) in lists.iter().enumerate() {
                let ends = list.iter().filter(|&&s| s as usize != v);
                ends.for_each(|&s| expected.extend([(v as u32, s), (s, v as u32)]));
            }
            let found: Vec<_> =
                (0..9).flat_map(|v| simple.sources(v).iter().map(move |&s| (v as u32, s))).collect();
            prop_assert!(found.into_iter().eq(expected));
        }
    }
}
