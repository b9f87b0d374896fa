//! What every reader makes of its input: edges to stream (twice), feature rows to ask for, labels, splits.

use crate::error::ReadError;
use crate::progress::Run;
use rudder_graph::Dtype;

/// An edge in original ids. Messages flow from source to destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub source: u32,
    pub destination: u32,
}

/// Gets edges by the chunk.
pub(crate) type EdgeVisitor<'v> = dyn FnMut(&[Edge]) -> Result<(), ReadError> + 'v;

/// Edges that can be streamed any number of times, in the same order each time.
pub(crate) trait EdgeSource {
    /// How many edges a pass visits.
    fn len(&self) -> u64;

    /// One pass. Every edge handed out has both ends below the number of vertices.
    fn visit(&mut self, run: &mut Run<'_>, visitor: &mut EdgeVisitor<'_>) -> Result<(), ReadError>;
}

/// Feature rows by original id.
pub(crate) trait RowSource {
    /// Fills `rows` with the rows `first ..`, as many as fit. Never asked beyond the last row.
    fn read(&mut self, first: u64, rows: &mut [u8]) -> Result<(), ReadError>;
}

/// Rows of features and their shape.
pub(crate) struct Features {
    pub dim: u32,
    pub dtype: Dtype,
    pub rows: Box<dyn RowSource>,
}

impl Features {
    pub(crate) fn row_bytes(&self) -> usize {
        self.dim as usize * self.dtype.size()
    }
}

/// Vertices to train on, to validate on, to test on; original ids, each list ascending and free of repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    pub train: Vec<u32>,
    pub valid: Vec<u32>,
    pub test: Vec<u32>,
}

/// Which part each vertex goes to, said by the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The last of them may be empty.
    pub parts: u32,
    /// By original id; each below `parts`.
    pub part: Vec<u16>,
}

impl Placement {
    /// Parts whose vertices follow each other.
    pub(crate) fn of_ranges(sizes: &[u64]) -> Placement {
        let of_part = |(part, &size): (usize, &u64)| std::iter::repeat_n(part as u16, size as usize);
        Placement { parts: sizes.len() as u32, part: sizes.iter().enumerate().flat_map(of_part).collect() }
    }
}

/// A graph as read, not yet cut or ordered.
pub(crate) struct Source {
    pub vertices: u64,
    pub edges: Box<dyn EdgeSource>,
    pub features: Features,
    /// One a vertex, -1 for none.
    pub labels: Option<Vec<i64>>,
    pub split: Option<Split>,
    pub placement: Option<Placement>,
    /// What the reader found worth saying: what it ignored, what it assumed.
    pub notes: Vec<String>,
}
