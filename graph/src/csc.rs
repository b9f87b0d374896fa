//! A graph in compressed sparse columns: for each vertex its in-neighbours. Borrows its arrays, which are
//! usually mapped files.

use rudder_topology::VertexId;

/// A CSC graph. Its accessors never panic, whatever the arrays hold: what is out of range has no neighbours.
#[derive(Clone, Copy, Debug)]
pub struct Csc<'a> {
    indptr: &'a [u64],
    indices: &'a [u32],
}

/// Why two arrays are no graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CscError {
    #[error("indptr is empty: it has one entry a vertex, and one more")]
    Empty,
    #[error("{0} vertices: vertex ids are 32 bits wide")]
    Vertices(usize),
    #[error(
        "indptr goes from {first} to {last}, but there are {edges} edges: it goes from 0 to their number"
    )]
    Ends { first: u64, last: u64, edges: u64 },
    #[error("indptr falls at vertex {vertex}")]
    Falls { vertex: u64 },
    #[error("edge {edge} comes from vertex {vertex}, but there are {vertices}")]
    Neighbour { edge: u64, vertex: u32, vertices: u64 },
}

impl<'a> Csc<'a> {
    /// Checks everything, in one pass over both arrays.
    pub fn new(indptr: &'a [u64], indices: &'a [u32]) -> Result<Self, CscError> {
        let csc = Csc::with_ends_checked(indptr, indices)?;
        if let Some(vertex) = indptr.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(CscError::Falls { vertex: vertex as u64 });
        }
        let vertices = csc.vertices();
        if let Some(edge) = indices.iter().position(|&vertex| u64::from(vertex) >= vertices) {
            return Err(CscError::Neighbour { edge: edge as u64, vertex: indices[edge], vertices });
        }
        Ok(csc)
    }

    /// Checks only the ends of `indptr`, in constant time: for arrays of a sealed dataset, which import checked
    /// and digests cover. A graph that passes this and not [`Csc::new`] gives wrong neighbours, never a panic.
    pub fn with_ends_checked(indptr: &'a [u64], indices: &'a [u32]) -> Result<Self, CscError> {
        let (&first, &last) = indptr.first().zip(indptr.last()).ok_or(CscError::Empty)?;
        if indptr.len() - 1 > u32::MAX as usize {
            return Err(CscError::Vertices(indptr.len() - 1));
        }
        let edges = indices.len() as u64;
        if first != 0 || last != edges {
            return Err(CscError::Ends { first, last, edges });
        }
        Ok(Csc { indptr, indices })
    }

    #[must_use]
    pub fn vertices(&self) -> u64 {
        self.indptr.len() as u64 - 1
    }

    #[must_use]
    pub fn edges(&self) -> u64 {
        self.indices.len() as u64
    }

    /// In-neighbours of a vertex, as dataset ids, with repeats where the graph has parallel edges.
    #[must_use]
    pub fn in_neighbours(&self, vertex: VertexId) -> &'a [u32] {
        match self.indptr.get(vertex.index()..) {
            Some([start, end, ..]) => self.indices.get(*start as usize..*end as usize).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Where the vertex's in-neighbours start in `indices`; 0 for one that does not exist.
    #[must_use]
    pub fn first_edge(&self, vertex: VertexId) -> u64 {
        self.indptr.get(vertex.index()).copied().unwrap_or_default()
    }

    #[must_use]
    pub fn in_degree(&self, vertex: VertexId) -> usize {
        self.in_neighbours(vertex).len()
    }

    /// The arrays, as in the dataset's files.
    #[must_use]
    pub fn arrays(&self) -> (&'a [u64], &'a [u32]) {
        (self.indptr, self.indices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arrays_that_are_no_graph_are_refused() {
        let cases: [(&[u64], &[u32], CscError); 5] = [
            (&[], &[], CscError::Empty),
            (&[1, 2], &[0, 0], CscError::Ends { first: 1, last: 2, edges: 2 }),
            (&[0, 1], &[0, 0], CscError::Ends { first: 0, last: 1, edges: 2 }),
            (&[0, 2, 1, 2], &[0, 0], CscError::Falls { vertex: 1 }),
            (&[0, 1, 2], &[1, 2], CscError::Neighbour { edge: 1, vertex: 2, vertices: 2 }),
        ];
        for (indptr, indices, error) in cases {
            assert_eq!(Csc::new(indptr, indices).unwrap_err(), error);
        }
        assert_eq!(Csc::new(&[0], &[]).unwrap().vertices(), 0);
    }

    #[test]
    fn neighbours_lie_between_the_offsets() {
        let csc = Csc::new(&[0, 2, 2, 3], &[1, 2, 0]).unwrap();
        let neighbours = |v| csc.in_neighbours(VertexId(v));
        assert_eq!((neighbours(0), neighbours(1), neighbours(2)), (&[1, 2][..], &[][..], &[0][..]));
        assert_eq!((neighbours(3), neighbours(u32::MAX)), (&[][..], &[][..]));
    }

    proptest! {
        #[test]
        fn unchecked_arrays_never_panic(mut indptr: Vec<u64>, indices: Vec<u32>, vertex: u32) {
            indptr.insert(0, 0);
            indptr.push(indices.len() as u64);
            let csc = Csc::with_ends_checked(&indptr, &indices).unwrap();
            for v in [0, 1, vertex, vertex % indptr.len() as u32] {
                let _ = csc.in_neighbours(VertexId(v));
            }
        }
    }
}
