//! Edges from arrays: an edge index `[2, E]` (row 0 sources, row 1 destinations), or an index and its lists.

use crate::error::ReadError;
use crate::progress::Run;
use crate::read::array::{Array, integer};
use crate::source::{Edge, EdgeSource, EdgeVisitor};
use std::sync::Arc;

const CHUNK_EDGES: u64 = 1 << 14;

/// Sources and destinations that lie apart: the rows of an edge index, or two arrays.
pub(crate) struct EdgeIndex {
    sources: End,
    destinations: End,
    count: u64,
    vertices: u64,
}

/// Ends of edges within an array, and the element that the first is.
struct End {
    array: Arc<Array>,
    first: u64,
}

impl EdgeIndex {
    /// An edge index `[2, E]`.
    pub(crate) fn new(array: Array, vertices: u64) -> Result<EdgeIndex, ReadError> {
        array.integer_size()?;
        match *array.header.shape.as_slice() {
            [2, count] => {
                let array = Arc::new(array);
                let sources = End { array: array.clone(), first: 0 };
                Ok(EdgeIndex { sources, destinations: End { array, first: count }, count, vertices })
            }
            _ => {
                let expected = "whole numbers of shape [2, edges] (row 0 sources, row 1 destinations)";
                Err(ReadError::shape(&array.place, array.shape_text(), expected))
            }
        }
    }

    /// Two arrays `[E]`.
    pub(crate) fn of_two(sources: Array, destinations: Array, vertices: u64) -> Result<EdgeIndex, ReadError> {
        let count = sources.len();
        for array in [&sources, &destinations] {
            array.integer_size()?;
            if array.header.shape != [count] {
                let expected = format!("{count} ends of edges");
                return Err(ReadError::shape(&array.place, array.shape_text(), expected));
            }
        }
        let end = |array| End { array: Arc::new(array), first: 0 };
        Ok(EdgeIndex { sources: end(sources), destinations: end(destinations), count, vertices })
    }
}

impl End {
    /// The ends of `count` edges from edge `first` on.
    fn read(&self, first: u64, count: u64, vertices: u64, ends: &mut Vec<u32>) -> Result<(), ReadError> {
        ends.clear();
        read_ids(&self.array, self.first + first, count, vertices, ends)
    }
}

/// Appends the vertices at the elements `first .. first + count`.
fn read_ids(
    array: &Array,
    first: u64,
    count: u64,
    vertices: u64,
    ids: &mut Vec<u32>,
) -> Result<(), ReadError> {
    let size = array.size();
    let mut bytes = vec![0; count as usize * size];
    array.read_at(first * size as u64, &mut bytes)?;
    for (offset, bytes) in bytes.chunks_exact(size).enumerate() {
        ids.push(check(array, first + offset as u64, integer(array.header.element, bytes), vertices)?);
    }
    Ok(())
}

fn check(array: &Array, element: u64, id: i128, vertices: u64) -> Result<u32, ReadError> {
    if id < 0 || id >= i128::from(vertices) {
        return Err(array.no_vertex(element, id, vertices));
    }
    Ok(id as u32)
}

impl EdgeSource for EdgeIndex {
    fn len(&self) -> u64 {
        self.count
    }

    fn visit(&mut self, run: &mut Run<'_>, visitor: &mut EdgeVisitor<'_>) -> Result<(), ReadError> {
        let (mut sources, mut destinations, mut edges) = (Vec::new(), Vec::new(), Vec::new());
        for first in (0..self.count).step_by(CHUNK_EDGES as usize) {
            let chunk = CHUNK_EDGES.min(self.count - first);
            edges.clear();
            self.sources.read(first, chunk, self.vertices, &mut sources)?;
            self.destinations.read(first, chunk, self.vertices, &mut destinations)?;
            let ends = sources.iter().zip(&destinations);
            edges.extend(ends.map(|(&source, &destination)| Edge { source, destination }));
            visitor(&edges)?;
            run.advance(chunk)?;
        }
        Ok(())
    }
}

/// An array `[E, 2]`: a source and a destination a row.
pub(crate) struct EdgePairs {
    array: Array,
    vertices: u64,
}

impl EdgePairs {
    pub(crate) fn new(array: Array, vertices: u64) -> Result<EdgePairs, ReadError> {
        array.integer_size()?;
        match array.header.shape.as_slice() {
            [_, 2] => Ok(EdgePairs { array, vertices }),
            _ => {
                let expected = "whole numbers of shape [edges, 2] (a source and a destination a row)";
                Err(ReadError::shape(&array.place, array.shape_text(), expected))
            }
        }
    }
}

impl EdgeSource for EdgePairs {
    fn len(&self) -> u64 {
        self.array.len() / 2
    }

    fn visit(&mut self, run: &mut Run<'_>, visitor: &mut EdgeVisitor<'_>) -> Result<(), ReadError> {
        let (count, mut ids, mut edges) = (self.len(), Vec::new(), Vec::new());
        for first in (0..count).step_by(CHUNK_EDGES as usize) {
            let chunk = CHUNK_EDGES.min(count - first);
            ids.clear();
            edges.clear();
            read_ids(&self.array, 2 * first, 2 * chunk, self.vertices, &mut ids)?;
            edges.extend(ids.chunks_exact(2).map(|ends| Edge { source: ends[0], destination: ends[1] }));
            visitor(&edges)?;
            run.advance(chunk)?;
        }
        Ok(())
    }
}

/// Edges from several sources, one after the other.
pub(crate) struct Chain(pub Vec<Box<dyn EdgeSource>>);

impl EdgeSource for Chain {
    fn len(&self) -> u64 {
        self.0.iter().map(|source| source.len()).sum()
    }

    fn visit(&mut self, run: &mut Run<'_>, visitor: &mut EdgeVisitor<'_>) -> Result<(), ReadError> {
        self.0.iter_mut().try_for_each(|source| source.visit(run, visitor))
    }
}

/// Whose neighbours an index lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compressed {
    /// For each destination its sources (CSC).
    Columns,
    /// For each source its destinations (CSR).
    Rows,
}

/// An index `[vertices + 1]` and the lists it points into.
pub(crate) struct Lists {
    indptr: Array,
    indices: Array,
    compressed: Compressed,
    vertices: u64,
}

impl Lists {
    pub(crate) fn new(
        indptr: Array,
        indices: Array,
        compressed: Compressed,
        vertices: u64,
        run: &mut Run<'_>,
    ) -> Result<Lists, ReadError> {
        check_index(&indptr, vertices, indices.len(), run)?;
        indices.integer_size()?;
        if indices.header.shape.len() != 1 {
            return Err(ReadError::shape(&indices.place, indices.shape_text(), "a one-dimensional array"));
        }
        Ok(Lists { indptr, indices, compressed, vertices })
    }
}

/// Checks that an index has `lists + 1` entries, starts at 0, never descends, and ends at `len`.
pub(crate) fn check_index(indptr: &Array, lists: u64, len: u64, run: &mut Run<'_>) -> Result<(), ReadError> {
    indptr.integer_size()?;
    if indptr.header.shape.len() != 1 || indptr.len() != lists + 1 {
        let expected = format!("{} offsets for {lists} rows", lists + 1);
        return Err(ReadError::shape(&indptr.place, indptr.shape_text(), expected));
    }
    let mut last = 0;
    indptr.integers(0, lists + 1, run, &mut |at, offset| {
        if offset < last || (at == 0 && offset != 0) {
            return Err(
                indptr.refuse(at, format!("offset {offset} after {last}: offsets start at 0 and ascend"))
            );
        }
        last = offset;
        Ok(())
    })?;
    if last != i128::from(len) {
        return Err(indptr.refuse(lists, format!("the last offset is {last}, but there are {len} entries")));
    }
    Ok(())
}

impl EdgeSource for Lists {
    fn len(&self) -> u64 {
        self.indices.len()
    }

    fn visit(&mut self, run: &mut Run<'_>, visitor: &mut EdgeVisitor<'_>) -> Result<(), ReadError> {
        let mut ends = Ends { array: &self.indptr, next: 1, buffer: Vec::new(), first: 0 };
        let mut edges = Vec::with_capacity(CHUNK_EDGES as usize);
        let (count, vertices, compressed) = (self.indices.len(), self.vertices, self.compressed);
        let (mut list, mut end) = (0_u64, ends.next()?);
        let mut chunk_visitor = |at: u64, id: i128| {
            let neighbour = check(&self.indices, at, id, vertices)?;
            // The index was checked: there is a list that ends beyond `at`.
            while end <= at {
                list += 1;
                end = ends.next()?;
            }
            edges.push(match compressed {
                Compressed::Columns => Edge { source: neighbour, destination: list as u32 },
                Compressed::Rows => Edge { source: list as u32, destination: neighbour },
            });
            if edges.len() as u64 == CHUNK_EDGES {
                visitor(&edges)?;
                edges.clear();
            }
            Ok(())
        };
        for first in (0..count).step_by(CHUNK_EDGES as usize) {
            let chunk = CHUNK_EDGES.min(count - first);
            self.indices.integers(first, chunk, run, &mut chunk_visitor)?;
            run.advance(chunk)?;
        }
        visitor(&edges)
    }
}

/// The ends of lists, one after the other, read in chunks.
struct Ends<'a> {
    array: &'a Array,
    next: u64,
    buffer: Vec<u8>,
    /// Number of the first entry in the buffer.
    first: u64,
}

impl Ends<'_> {
    fn next(&mut self) -> Result<u64, ReadError> {
        let (element, count) = (self.array.header.element, self.array.len());
        let size = self.array.size();
        if self.next >= count {
            return Ok(u64::MAX);
        }
        let held = (self.buffer.len() / size) as u64;
        if self.next >= self.first + held {
            self.first = self.next;
            self.buffer.resize(CHUNK_EDGES.min(count - self.first) as usize * size, 0);
            self.array.read_at(self.first * size as u64, &mut self.buffer)?;
        }
        let at = (self.next - self.first) as usize * size;
        self.next += 1;
        u64::try_from(integer(element, &self.buffer[at..at + size]))
            .map_err(|_| self.array.refuse(self.next - 1, "a negative offset"))
    }
}
