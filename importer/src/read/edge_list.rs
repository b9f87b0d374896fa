//! Edge lists as text: a source and a destination a line, further fields ignored. Lines that begin with `#` or `%`
//! are comments; a first line without numbers is a header. Read once, into a scratch file of id pairs.

use crate::error::{At, LineProblem, Place, ReadError};
use crate::progress::{Phase, Run, Total};
use crate::read::scratch::{Scratch, ScratchFile};
use crate::read::text::{Lines, fields, shown};
use crate::source::{Edge, EdgeSource, EdgeVisitor};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Longest line of an edge list, in bytes.
const LINE_BYTES_MAX: usize = 1 << 16;
/// Lines between two looks at the cancel flag.
const REPORT_LINES: u64 = 1 << 14;

/// Edges as pairs of u32 in a scratch file.
#[derive(Debug)]
pub(crate) struct PairFile {
    file: File,
    path: PathBuf,
    edges: u64,
}

/// Bytes of an edge in the scratch file.
pub(crate) const PAIR_BYTES: u64 = 8;
const CHUNK_EDGES: u64 = 1 << 14;

impl PairFile {
    pub(crate) fn new(pairs: ScratchFile) -> Result<PairFile, ReadError> {
        let (edges, path) = (pairs.written() / PAIR_BYTES, pairs.path().to_owned());
        Ok(PairFile { file: pairs.finish()?, path, edges })
    }
}

impl EdgeSource for PairFile {
    fn len(&self) -> u64 {
        self.edges
    }

    fn visit(&mut self, run: &mut Run<'_>, visitor: &mut EdgeVisitor<'_>) -> Result<(), ReadError> {
        let mut bytes = vec![0; (CHUNK_EDGES * PAIR_BYTES) as usize];
        let mut edges = Vec::with_capacity(CHUNK_EDGES as usize);
        for first in (0..self.edges).step_by(CHUNK_EDGES as usize) {
            let count = CHUNK_EDGES.min(self.edges - first);
            let bytes = &mut bytes[..(count * PAIR_BYTES) as usize];
            let place = Place::file(&self.path);
            self.file.read_exact_at(bytes, first * PAIR_BYTES).map_err(ReadError::io(&place))?;
            edges.clear();
            edges.extend(bytes.chunks_exact(8).map(|pair| Edge {
                source: u32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]),
                destination: u32::from_le_bytes([pair[4], pair[5], pair[6], pair[7]]),
            }));
            visitor(&edges)?;
            run.advance(count)?;
        }
        Ok(())
    }
}

/// Whether an edge list may begin with a line of column names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Allowed,
    None,
}

/// What an edge list held.
#[derive(Debug)]
pub(crate) struct EdgeList {
    pub edges: PairFile,
    /// The header, where there was one.
    pub header: Option<String>,
}

/// Reads an edge list whose ids must be below `vertices`.
pub(crate) fn read(
    file: &Path,
    vertices: u64,
    header: Header,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<EdgeList, ReadError> {
    let mut pairs = scratch.create()?;
    run.begin(Phase::Unpack, Total::Open);
    let header = append(file, vertices, header, &mut pairs, run)?;
    run.end(Phase::Unpack);
    Ok(EdgeList { edges: PairFile::new(pairs)?, header })
}

/// Reads an edge list behind what a scratch file holds already; gives the header, where there was one.
pub(crate) fn append(
    file: &Path,
    vertices: u64,
    header: Header,
    pairs: &mut ScratchFile,
    run: &mut Run<'_>,
) -> Result<Option<String>, ReadError> {
    let mut lines = Lines::open(file, LINE_BYTES_MAX)?;
    let (mut width, mut found_header) = (None, None);
    while let Some(line) = lines.next()? {
        if line.is_empty() || line.starts_with(['#', '%']) {
            continue;
        }
        if width.is_none() && found_header.is_none() && header == Header::Allowed && is_header(line) {
            found_header = Some(shown(line));
            continue;
        }
        let edge = parse(line, &mut width, vertices).map_err(|problem| match problem {
            Refused::Line(problem) => lines.refuse(problem),
            Refused::Vertex(found) => {
                let (place, at) = (Place::file(lines.file()), At::Line(lines.number()));
                ReadError::Vertex { place, at, found, vertices }
            }
        })?;
        pairs.write(&edge.source.to_le_bytes())?;
        pairs.write(&edge.destination.to_le_bytes())?;
        if lines.number() % REPORT_LINES == 0 {
            run.advance(REPORT_LINES)?;
        }
    }
    Ok(found_header)
}

fn is_header(line: &str) -> bool {
    fields(line).count() >= 2 && fields(line).take(2).all(|field| field.parse::<f64>().is_err())
}

enum Refused {
    Line(LineProblem),
    Vertex(i128),
}

fn parse(line: &str, width: &mut Option<usize>, vertices: u64) -> Result<Edge, Refused> {
    let found = fields(line).count();
    let expected = *width.get_or_insert(found.max(2));
    if found != expected {
        return Err(Refused::Line(LineProblem::Fields { expected, found }));
    }
    let mut ends = fields(line).map(|field| {
        let id: i128 = field.parse().map_err(|_| Refused::Line(LineProblem::VertexId(shown(field))))?;
        if id < 0 || id >= i128::from(vertices) { Err(Refused::Vertex(id)) } else { Ok(id as u32) }
    });
    let mut end = || ends.next().unwrap_or(Err(Refused::Line(LineProblem::Fields { expected: 2, found })));
    Ok(Edge { source: end()?, destination: end()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::{Cancel, Silent};
    use proptest::prelude::*;

    type EdgesAndHeader = (Vec<(u32, u32)>, Option<String>);

    fn read_text(bytes: &[u8], vertices: u64) -> Result<EdgesAndHeader, ReadError> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("edges.csv");
        std::fs::write(&file, bytes).unwrap();
        let mut scratch = Scratch::new(directory.path().to_owned());
        let mut silent = Silent;
        let run = &mut Run::new(&mut silent, Cancel::default());
        let mut list = read(&file, vertices, Header::Allowed, &mut scratch, run)?;
        let mut edges = Vec::new();
        list.edges.visit(run, &mut |chunk| {
            edges.extend(chunk.iter().map(|edge| (edge.source, edge.destination)));
            Ok(())
        })?;
        assert_eq!(edges.len() as u64, list.edges.len());
        Ok((edges, list.header))
    }

    #[test]
    fn common_shapes_are_read() {
        for text in ["0,1\n2,0\n", "# from to\n0\t1\n\n2\t0\n", "0 1 0.5\r\n2 0 7\r\n", "% x\n0, 1\n2, 0"] {
            assert_eq!(read_text(text.as_bytes(), 3).unwrap(), (vec![(0, 1), (2, 0)], None), "{text:?}");
        }
        let (edges, header) = read_text(b"src,dst\n1,1\n", 2).unwrap();
        assert_eq!((edges, header.as_deref()), (vec![(1, 1)], Some("src,dst")));
        assert_eq!(read_text(b"", 3).unwrap().0, []);
    }

    #[test]
    fn bad_lines_are_named() {
        for (text, message) in [
            ("0,1\n0\n", "line 2: 1 fields where 2 belong"),
            ("0,1\n0,1,2\n", "line 2: 3 fields where 2 belong"),
            ("5\n", "line 1: 1 fields where 2 belong"),
            ("0,1\n0,x\n", "line 2: `x` is not a vertex id"),
            ("0,1\n0,\n", "line 2: `` is not a vertex id"),
            ("0,1\n0,1.5\n", "line 2: `1.5` is not a vertex id"),
            ("0,1\n\n0,3\n", "line 3: vertex 3 does not exist"),
            ("-1,0\n", "line 1: vertex -1 does not exist"),
            ("0,99999999999999999999999\n", "line 1: vertex 99999999999999999999999 does not exist"),
            ("a,b\nc,d\n", "line 2: `c` is not a vertex id"),
        ] {
            let error = read_text(text.as_bytes(), 3).unwrap_err().to_string();
            assert!(error.contains(message), "{text:?}: {error}");
        }
        assert!(read_text(b"0,1\n\xff,0\n", 3).unwrap_err().to_string().contains("UTF-8"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_edges_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((edges, _)) = read_text(&bytes, 5) {
                prop_assert!(edges.iter().all(|&(s, d)| s < 5 && d < 5));
            }
        }

        #[test]
        fn number_soup_stays_in_range(text in "[0-9,\t\n -]{0,60}") {
            if let Ok((edges, _)) = read_text(text.as_bytes(), 5) {
                prop_assert!(edges.iter().all(|&(s, d)| s < 5 && d < 5));
            }
        }
    }
}
