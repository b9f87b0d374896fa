//! A part's graph, as `dgl.save_graphs` writes it: the vertices of the part, those their edges come from (the halo), and
//! which of the edges are the part's own.

use super::binary::Stream;
use super::tensors::named;
use crate::error::{Place, ReadError};
use crate::progress::{Run, Silent};
use crate::read::array::{Array, integer};
use crate::read::edges::{Compressed, EdgeIndex, Lists};
use crate::source::{Edge, EdgeSource, EdgeVisitor};
use std::path::Path;

const FILE_MAGIC: u64 = 0xdd2e_4ff0_46b4_a13f;
const GRAPH_MAGIC: u64 = 0xdd58_9fbe_3522_4abf;
const META_MAGIC: u64 = 0xdd3c_5ffe_2004_6abf;
const RELATION_MAGIC: u64 = 0xdd2e_60f0_f6b4_a127;
const COO_MAGIC: u64 = 0xdd61_ffd3_05df_f127;
const CSR_MAGIC: u64 = 0xdd6c_d312_05df_f127;
const VERSION: u64 = 2;
/// A graph of DGL's that can have types; what went before it is not read.
const KIND: u64 = 2;
/// Where the file's own header ends.
const HEADER_BYTES: u64 = 4096;

/// Formats that a graph is held in, as bits.
const COO: u64 = 1;
const CSR: u64 = 2;
const CSC: u64 = 4;

/// A part's graph whose arrays stay on the disk. Ids are the part's own.
pub(super) struct PartGraph {
    place: Place,
    edges: Matrix,
    /// The graph's vertex that each vertex of the part is.
    vertices: Array,
    /// Whether the part owns each edge.
    inner: Array,
}

/// Edges in one of DGL's formats.
struct Matrix {
    format: u64,
    /// Sources of edges, or where the lists end.
    first: Array,
    /// Destinations, or what the lists hold.
    second: Array,
    /// The id of each edge; where it is empty, edges are numbered as they lie.
    ids: Array,
}

impl PartGraph {
    pub(super) fn open(path: &Path) -> Result<PartGraph, ReadError> {
        let mut stream = Stream::open(path)?;
        stream.magic(FILE_MAGIC, "a file of graphs")?;
        let (version, kind) = (stream.u64("the version")?, stream.u64("the kind of graph")?);
        if (version, kind) != (VERSION, KIND) {
            let problem = format!(
                "version {version} and kind {kind}, not {VERSION} and {KIND}: save it with a newer DGL"
            );
            return Err(stream.refuse(problem));
        }
        if stream.count("the number of graphs")? != 1 {
            return Err(stream.refuse("not one graph: a part has one"));
        }
        stream.seek(HEADER_BYTES)?;
        let start = stream.u64("where the graph starts")?;
        stream.seek(start)?;
        stream.magic(GRAPH_MAGIC, "a graph")?;
        meta(&mut stream)?;
        if stream.count("the number of edge types")? != 1 {
            return Err(stream.refuse("not one edge type: a part has one"));
        }
        let edges = relation(&mut stream)?;
        let types = stream.count("the number of vertex types")?;
        for _ in 0..types {
            stream.u64("the number of vertices")?;
        }
        let vertices = of_first_type(&mut stream, "_ID", "vertices")?;
        let inner = of_first_type(&mut stream, "inner_edge", "edges")?;
        Ok(PartGraph { place: stream.place().clone(), edges, vertices, inner })
    }

    /// Visits the part's own edges, in the graph's ids; gives their number.
    pub(super) fn visit(
        self,
        graph_vertices: u64,
        run: &mut Run<'_>,
        visitor: &mut EdgeVisitor<'_>,
    ) -> Result<u64, ReadError> {
        let PartGraph { place, edges, vertices, inner } = self;
        let mut global = Vec::with_capacity(vertices.len() as usize);
        vertices.integers(0, vertices.len(), run, &mut |at, id| {
            if id < 0 || id >= i128::from(graph_vertices) {
                return Err(vertices.no_vertex(at, id, graph_vertices));
            }
            global.push(id as u32);
            Ok(())
        })?;
        // The halo's edges are not counted as done.
        let (mut silent, cancel) = (Silent, run.cancel());
        let mut quiet = Run::new(&mut silent, cancel);
        // Asked for in the order of edge ids, which need not be that of the edges: all of them, a bit each.
        let mut owned = vec![0_u64; inner.len().div_ceil(64) as usize];
        inner.integers(0, inner.len(), &mut quiet, &mut |at, flag| {
            owned[(at / 64) as usize] |= u64::from(flag != 0) << (at % 64);
            Ok(())
        })?;
        let ids = edges.ids;
        let mut local: Box<dyn EdgeSource> = match edges.format {
            COO => Box::new(EdgeIndex::of_two(edges.first, edges.second, global.len() as u64)?),
            format => {
                let compressed = if format == CSC { Compressed::Columns } else { Compressed::Rows };
                Box::new(Lists::new(edges.first, edges.second, compressed, global.len() as u64, run)?)
            }
        };
        let count = local.len();
        if inner.len() != count || !(ids.len() == 0 || ids.len() == count) {
            let found = format!("{} flags and {} ids of edges", inner.len(), ids.len());
            return Err(ReadError::shape(&place, found, format!("{count} edges")));
        }
        let (mut at, mut numbers, mut own, mut visited) = (0_u64, Vec::new(), Vec::new(), 0);
        local.visit(&mut quiet, &mut |edges| {
            numbers.clear();
            if ids.len() == 0 {
                numbers.extend(at..at + edges.len() as u64);
            } else {
                read_numbers(&ids, at, edges.len() as u64, count, &mut numbers)?;
            }
            at += edges.len() as u64;
            own.clear();
            own.extend(edges.iter().zip(&numbers).filter_map(|(edge, &number)| {
                let is_own = owned[(number / 64) as usize] >> (number % 64) & 1 == 1;
                is_own.then(|| Edge {
                    source: global[edge.source as usize],
                    destination: global[edge.destination as usize],
                })
            }));
            visited += own.len() as u64;
            visitor(&own)
        })?;
        run.advance(visited)?;
        Ok(visited)
    }
}

/// The ids of the edges `first .. first + count`, of which there are `edges`.
fn read_numbers(
    ids: &Array,
    first: u64,
    count: u64,
    edges: u64,
    numbers: &mut Vec<u64>,
) -> Result<(), ReadError> {
    let size = ids.integer_size()?;
    let mut bytes = vec![0; count as usize * size];
    ids.read_at(first * size as u64, &mut bytes)?;
    for (offset, bytes) in bytes.chunks_exact(size).enumerate() {
        let id = integer(ids.header.element, bytes);
        if id < 0 || id >= i128::from(edges) {
            return Err(ids.refuse(first + offset as u64, format!("edge {id} of {edges}")));
        }
        numbers.push(id as u64);
    }
    Ok(())
}

/// Passes over a graph of types.
fn meta(stream: &mut Stream) -> Result<(), ReadError> {
    stream.magic(META_MAGIC, "a graph of types")?;
    matrix(stream, CSR).map(drop)
}

/// The edges of one type, in the first of the formats that they were saved in.
fn relation(stream: &mut Stream) -> Result<Matrix, ReadError> {
    stream.magic(RELATION_MAGIC, "the edges of a type")?;
    let saved = stream.u64("the saved formats")?;
    stream.u64("the allowed formats")?;
    // Before there could be several, the number of one was written, counted from 1.
    let formats = match (saved >> 32, saved & 0xffff_ffff) {
        (0, number @ 1..=3) => 1 << (number - 1),
        (_, formats) => formats,
    };
    let mut found = None;
    for format in [COO, CSR, CSC] {
        if formats & format != 0 {
            meta(stream)?;
            let matrix = matrix(stream, format)?;
            found.get_or_insert(matrix);
        }
    }
    found.ok_or_else(|| stream.refuse(format!("edges in no known format ({formats:#x})")))
}

fn matrix(stream: &mut Stream, format: u64) -> Result<Matrix, ReadError> {
    let (magic, names, flags) = match format {
        COO => (COO_MAGIC, ["sources", "destinations"], 2),
        _ => (CSR_MAGIC, ["indptr", "indices"], 1),
    };
    stream.magic(magic, "a matrix")?;
    stream.u64("the number of columns")?;
    stream.u64("the number of rows")?;
    let (first, second) = (stream.tensor(names[0])?, stream.tensor(names[1])?);
    let ids = stream.tensor("edge ids")?;
    for _ in 0..flags {
        stream.u8("whether it is sorted")?;
    }
    Ok(Matrix { format, first, second, ids })
}

/// A tensor of the first type; those of all types are passed over.
fn of_first_type(stream: &mut Stream, wanted: &str, what: &str) -> Result<Array, ReadError> {
    let mut found = None;
    for of_type in 0..stream.count("the number of types")? {
        let count = stream.count("the number of tensors")?;
        let tensors = named(stream, count)?;
        if of_type == 0 {
            found = tensors.into_iter().find(|(name, _)| name == wanted);
        }
    }
    match found {
        Some((_, array)) => Ok(array),
        None => {
            Err(stream.refuse(format!("the {what} have no `{wanted}`: cut the graph with partition_graph")))
        }
    }
}
