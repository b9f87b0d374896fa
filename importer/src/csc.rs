//! From streamed edges to CSC: for each destination, its sources in ascending order.

use crate::error::ImportError;
use crate::options::Direction;
use crate::progress::{Phase, Run, Total};
use crate::source::EdgeSource;
use rudder_graph::Csc;
use rudder_topology::Bytes;

/// A graph in CSC, in memory: 8 bytes a vertex and 4 an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adjacency {
    /// `indptr[v] .. indptr[v + 1]` are the positions of v's in-neighbours in `indices`.
    pub indptr: Vec<u64>,
    pub indices: Vec<u32>,
}

impl Adjacency {
    pub(crate) fn vertices(&self) -> usize {
        self.indptr.len() - 1
    }

    pub(crate) fn edges(&self) -> u64 {
        self.indices.len() as u64
    }

    pub(crate) fn sources(&self, destination: usize) -> &[u32] {
        &self.indices[self.indptr[destination] as usize..self.indptr[destination + 1] as usize]
    }

    /// The graph as the sampler takes it.
    pub(crate) fn csc(&self) -> Result<Csc<'_>, ImportError> {
        Csc::with_ends_checked(&self.indptr, &self.indices)
            .map_err(|_| ImportError::Unstable("the index and the edges do not fit"))
    }

    /// Bytes of both arrays: the unit of the memory limit.
    pub(crate) fn bytes(&self) -> u64 {
        csc_bytes(self.vertices() as u64, self.edges())
    }
}

/// Bytes of a CSC graph.
pub(crate) fn csc_bytes(vertices: u64, edges: u64) -> u64 {
    8 * (vertices + 1) + 4 * edges
}

/// A vector of `len` zeros, or a typed error where the machine has not so much memory.
pub(crate) fn zeros<T: Clone + Default>(what: &'static str, len: u64) -> Result<Vec<T>, ImportError> {
    let refused = || ImportError::Memory { what, bytes: Bytes(len.saturating_mul(size_of::<T>() as u64)) };
    let len_here = usize::try_from(len).map_err(|_| refused())?;
    let mut vector = Vec::new();
    vector.try_reserve_exact(len_here).map_err(|_| refused())?;
    vector.resize(len_here, T::default());
    Ok(vector)
}

/// Reads the edges twice: once to count, once to place.
pub(crate) fn build(
    source: &mut dyn EdgeSource,
    vertices: u64,
    direction: Direction,
    run: &mut Run<'_>,
) -> Result<Adjacency, ImportError> {
    run.begin(Phase::Edges, Total::Items(2 * source.len()));
    let mut indptr: Vec<u64> = zeros("the index of the graph", vertices + 1)?;
    source.visit(run, &mut |edges| {
        for edge in edges {
            indptr[edge.destination as usize + 1] += 1;
            if direction == Direction::Symmetric {
                indptr[edge.source as usize + 1] += 1;
            }
        }
        Ok(())
    })?;
    for v in 0..vertices as usize {
        indptr[v + 1] += indptr[v];
    }
    let mut indices: Vec<u32> = zeros("the edges of the graph", indptr[vertices as usize])?;
    place(source, direction, &mut indptr, &mut indices, run)?;
    sort_lists(&indptr, &mut indices);
    if direction == Direction::Symmetric {
        drop_repeats(&mut indptr, &mut indices);
    }
    run.end(Phase::Edges);
    Ok(Adjacency { indptr, indices })
}

/// The second pass. `indptr[v]` serves as v's cursor and is moved back at the end, so no second index is held.
fn place(
    source: &mut dyn EdgeSource,
    direction: Direction,
    indptr: &mut [u64],
    indices: &mut [u32],
    run: &mut Run<'_>,
) -> Result<(), ImportError> {
    let (mut placed, mut overflow) = (0_u64, false);
    let mut put = |at: u32, neighbour: u32| {
        let cursor = &mut indptr[at as usize];
        match indices.get_mut(*cursor as usize) {
            Some(slot) => *slot = neighbour,
            None => overflow = true,
        }
        *cursor += 1;
        placed += 1;
    };
    source.visit(run, &mut |edges| {
        for edge in edges {
            put(edge.destination, edge.source);
            if direction == Direction::Symmetric {
                put(edge.source, edge.destination);
            }
        }
        Ok(())
    })?;
    if overflow || placed != indices.len() as u64 {
        return Err(ImportError::Unstable("the second pass over the edges saw other edges than the first"));
    }
    indptr.copy_within(0..indptr.len() - 1, 1);
    indptr[0] = 0;
    if indptr.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(ImportError::Unstable("the second pass over the edges saw other edges than the first"));
    }
    Ok(())
}

pub(crate) fn sort_lists(indptr: &[u64], indices: &mut [u32]) {
    for pair in indptr.windows(2) {
        indices[pair[0] as usize..pair[1] as usize].sort_unstable();
    }
}

/// Keeps each neighbour once in every (sorted) list.
pub(crate) fn drop_repeats(indptr: &mut [u64], indices: &mut Vec<u32>) {
    let mut kept = 0;
    let mut start = 0;
    for v in 0..indptr.len() - 1 {
        let end = indptr[v + 1] as usize;
        let first = kept;
        for at in start..end {
            if kept == first || indices[kept - 1] != indices[at] {
                indices[kept] = indices[at];
                kept += 1;
            }
        }
        indptr[v + 1] = kept as u64;
        start = end;
    }
    indices.truncate(kept);
    indices.shrink_to_fit();
}

/// A list of edges as a source, for tests.
#[cfg(test)]
pub(crate) struct Listed(pub Vec<crate::source::Edge>);

#[cfg(test)]
impl EdgeSource for Listed {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn visit(
        &mut self,
        run: &mut Run<'_>,
        visitor: &mut crate::source::EdgeVisitor<'_>,
    ) -> Result<(), crate::error::ReadError> {
        for chunk in self.0.chunks(3) {
            visitor(chunk)?;
            run.advance(chunk.len() as u64)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ReadError;
    use crate::progress::{Cancel, Silent};
    use crate::source::{Edge, EdgeVisitor};
    use proptest::prelude::*;

    fn csc(edges: &[(u32, u32)], vertices: u64, direction: Direction) -> Adjacency {
        let edges = edges.iter().map(|&(source, destination)| Edge { source, destination }).collect();
        let (mut silent, cancel) = (Silent, Cancel::default());
        build(&mut Listed(edges), vertices, direction, &mut Run::new(&mut silent, cancel)).unwrap()
    }

    #[test]
    fn each_destination_lists_its_sources() {
        let graph = csc(&[(0, 1), (2, 1), (1, 0), (2, 1), (3, 3)], 5, Direction::AsGiven);
        assert_eq!(graph.indptr, [0, 1, 4, 4, 5, 5]);
        assert_eq!(graph.indices, [1, 0, 2, 2, 3]);
        let graph = csc(&[(0, 1), (2, 1), (1, 0), (2, 1), (3, 3)], 5, Direction::Symmetric);
        assert_eq!(graph.indptr, [0, 1, 3, 4, 5, 5]);
        assert_eq!(graph.indices, [1, 0, 2, 1, 3]);
        assert_eq!(csc(&[], 0, Direction::AsGiven).indptr, [0]);
    }

    #[test]
    fn a_cancelled_run_stops() {
        let cancel = Cancel::default();
        cancel.cancel();
        let edges = vec![Edge { source: 0, destination: 0 }];
        let error = build(&mut Listed(edges), 1, Direction::AsGiven, &mut Run::new(&mut Silent, cancel));
        assert!(matches!(error, Err(ImportError::Cancelled(_))));
    }

    /// Sees another edge in its second pass.
    struct Moving(u32);

    impl EdgeSource for Moving {
        fn len(&self) -> u64 {
            2
        }

        fn visit(&mut self, _run: &mut Run<'_>, visitor: &mut EdgeVisitor<'_>) -> Result<(), ReadError> {
            self.0 += 1;
            visitor(&[Edge { source: 0, destination: self.0 }, Edge { source: 0, destination: 1 }])
        }
    }

    #[test]
    fn an_input_that_changes_between_the_passes_is_refused() {
        let result =
            build(&mut Moving(0), 4, Direction::AsGiven, &mut Run::new(&mut Silent, Cancel::default()));
        assert!(matches!(result, Err(ImportError::Unstable(_))), "{result:?}");
    }

    proptest! {
        #[test]
        fn csc_holds_the_same_edges(edges in prop::collection::vec((0_u32..20, 0_u32..20), 0..200)) {
            for direction in [Direction::AsGiven, Direction::Symmetric] {
                let graph = csc(&edges, 20, direction);
                let mut found: Vec<(u32, u32)> =
                    (0..20).flat_map(|v| graph.sources(v).iter().map(move |&s| (s, v as u32))).collect();
                let mut expected = edges.clone();
                if direction == Direction::Symmetric {
                    expected.extend(edges.iter().map(|&(s, d)| (d, s)));
                    expected.sort_unstable();
                    expected.dedup();
                }
                expected.sort_unstable();
                found.sort_unstable();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
