//! Chunked graphs: what DGL's tools for distributed partitioning start from.

use super::columns::{self, Column, is_whole};
use super::{beside, parse, typed};
use crate::error::{Place, ReadError};
use crate::options::ImportOptions;
use crate::progress::{Phase, Run, Total};
use crate::read::array::Array;
use crate::read::edge_list::{self, Header, PAIR_BYTES, PairFile};
use crate::read::edges::{Chain, EdgePairs};
use crate::read::placement;
use crate::read::scratch::Scratch;
use crate::read::text_rows::TextRows;
use crate::source::{EdgeSource, Source};
use rudder_graph::npy::NpyType;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Description {
    node_type: Vec<String>,
    edge_type: Vec<String>,
    /// Of each type, of each chunk.
    num_nodes_per_chunk: Option<Vec<Vec<u64>>>,
    num_edges_per_chunk: Option<Vec<Vec<u64>>>,
    /// Of each type: what newer tools write, where chunks may differ between data.
    num_nodes_per_type: Option<Vec<u64>>,
    num_edges_per_type: Option<Vec<u64>>,
    edges: BTreeMap<String, Chunks>,
    #[serde(default)]
    node_data: BTreeMap<String, BTreeMap<String, Chunks>>,
    #[serde(default)]
    edge_data: BTreeMap<String, BTreeMap<String, Chunks>>,
}

/// Files of one thing, one after the other.
#[derive(Deserialize)]
struct Chunks {
    format: Format,
    data: Vec<String>,
}

#[derive(Deserialize)]
struct Format {
    name: String,
    delimiter: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Numpy,
}

pub(super) fn open(
    file: &Path,
    json: Value,
    options: &ImportOptions,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<Source, ReadError> {
    let place = Place::file(file);
    let Description {
        node_type,
        edge_type,
        num_nodes_per_chunk,
        num_edges_per_chunk,
        num_nodes_per_type,
        num_edges_per_type,
        edges,
        node_data,
        edge_data,
    } = parse(file, json)?;
    let ([vertex_type], [edge_type]) = (node_type.as_slice(), edge_type.as_slice()) else {
        let vertex = node_type.len() != 1;
        let (what, names) = if vertex { ("vertex", &node_type) } else { ("edge", &edge_type) };
        return Err(typed(&place, what, names));
    };
    let sizes = first(num_nodes_per_chunk);
    let vertices = total(&place, "num_nodes_per_chunk", sizes.as_deref(), num_nodes_per_type)?;
    let counts = first(num_edges_per_chunk);
    let declared = total(&place, "num_edges_per_chunk", counts.as_deref(), num_edges_per_type)?;
    let Some(chunks) = edges.get(edge_type) else {
        let problem = format!("`edges` has nothing for the edge type {edge_type}");
        return Err(ReadError::Format { place, problem });
    };
    let edges = read_edges(file, chunks, vertices, counts.as_deref(), scratch, run)?;
    if edges.len() != declared {
        let found = format!("{} edges in the chunks", edges.len());
        return Err(ReadError::shape(&place, found, format!("{declared}, as it says itself,")));
    }
    let (mut notes, mut found) = (Vec::new(), Vec::new());
    let mut pieces = None;
    for (name, chunks) in node_data.get(vertex_type).into_iter().flatten() {
        let column = column(file, name, chunks, sizes.as_deref(), scratch, run)?;
        let of_column: Vec<u64> =
            column.pieces.iter().map(|piece| piece.header.shape.first().copied().unwrap_or(0)).collect();
        if of_column.iter().sum::<u64>() != vertices {
            let rows = of_column.iter().sum::<u64>();
            let problem = format!("`{name}` has {rows} rows in its chunks, the graph {vertices} vertices");
            return Err(ReadError::Format { place, problem });
        }
        if *pieces.get_or_insert_with(|| of_column.clone()) != of_column {
            let problem = format!("`{name}` is chunked otherwise than the data before it: chunk all alike");
            return Err(ReadError::Format { place, problem });
        }
        found.push(column);
    }
    let pieces = pieces.unwrap_or_else(|| vec![vertices]);
    let taken = columns::take(found, &pieces, file, options, scratch, run, &mut notes)?;
    let edge_names: Vec<_> = edge_data.into_values().flat_map(BTreeMap::into_keys).collect();
    if !edge_names.is_empty() {
        notes.push(format!("edge data left out: {}", edge_names.join(", ")));
    }
    let assigned = beside(file, &format!("{vertex_type}.txt"));
    let placement = match assigned.is_file() {
        true => Some(placement::read(&assigned, vertices, run)?),
        false => None,
    };
    let (features, labels, split) = (taken.features, taken.labels, taken.split);
    Ok(Source { vertices, edges, features, labels, split, placement, notes })
}

/// What is said of the only type.
fn first(of_types: Option<Vec<Vec<u64>>>) -> Option<Vec<u64>> {
    of_types.and_then(|types| types.into_iter().next())
}

fn total(
    place: &Place,
    name: &str,
    chunks: Option<&[u64]>,
    per_type: Option<Vec<u64>>,
) -> Result<u64, ReadError> {
    let of_chunks = chunks.map(|chunks| chunks.iter().try_fold(0_u64, |sum, &n| sum.checked_add(n)));
    let sum = of_chunks.unwrap_or_else(|| per_type.and_then(|types| types.first().copied()));
    sum.ok_or_else(|| ReadError::Format { place: place.clone(), problem: format!("{name} is missing") })
}

impl Chunks {
    fn kind(&self, place: &Place) -> Result<Kind, ReadError> {
        let refused = |problem| ReadError::Format { place: place.clone(), problem };
        match (self.format.name.as_str(), self.format.delimiter.as_deref().unwrap_or(",")) {
            ("csv", "," | " " | "\t") => Ok(Kind::Text),
            ("csv", other) => Err(refused(format!("csv between `{other}` is not read: use `,` or a blank"))),
            ("numpy", _) => Ok(Kind::Numpy),
            (other, _) => Err(refused(format!("chunks in format `{other}` are not read: use numpy or csv"))),
        }
    }

    fn files(&self, description: &Path) -> Vec<PathBuf> {
        self.data.iter().map(|name| beside(description, name)).collect()
    }
}

fn read_edges(
    description: &Path,
    chunks: &Chunks,
    vertices: u64,
    counts: Option<&[u64]>,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<Box<dyn EdgeSource>, ReadError> {
    let place = Place::file(description);
    let check = |chunk: usize, file: &Path, found: u64| match counts.and_then(|counts| counts.get(chunk)) {
        Some(&expected) if expected != found => {
            let expected = format!("{expected}, as num_edges_per_chunk says,");
            Err(ReadError::shape(&Place::file(file), format!("{found} edges"), expected))
        }
        _ => Ok(()),
    };
    if chunks.kind(&place)? == Kind::Numpy {
        let mut sources: Vec<Box<dyn EdgeSource>> = Vec::new();
        for (chunk, file) in chunks.files(description).iter().enumerate() {
            let pairs = EdgePairs::new(Array::file(file)?, vertices)?;
            check(chunk, file, pairs.len())?;
            sources.push(Box::new(pairs));
        }
        return Ok(Box::new(Chain(sources)));
    }
    run.begin(Phase::Unpack, Total::Open);
    let mut pairs = scratch.create()?;
    for (chunk, file) in chunks.files(description).iter().enumerate() {
        let before = pairs.written();
        edge_list::append(file, vertices, Header::None, &mut pairs, run)?;
        check(chunk, file, (pairs.written() - before) / PAIR_BYTES)?;
    }
    run.end(Phase::Unpack);
    Ok(Box::new(PairFile::new(pairs)?))
}

/// Vertex data of one name. Chunks of text become one array each, in a scratch file.
fn column(
    description: &Path,
    name: &str,
    chunks: &Chunks,
    sizes: Option<&[u64]>,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<Column, ReadError> {
    let place = Place::member(description, name);
    let kind = chunks.kind(&place)?;
    let files = chunks.files(description);
    if kind == Kind::Numpy {
        let pieces = files.iter().map(|file| Array::file(file)).collect::<Result<_, _>>()?;
        return Ok(Column { name: name.to_owned(), pieces });
    }
    let Some(sizes) = sizes.filter(|sizes| sizes.len() == files.len()) else {
        let problem = "text without num_nodes_per_chunk for each chunk: save it as numpy".to_owned();
        return Err(ReadError::Format { place, problem });
    };
    let element = if is_whole(name) { NpyType::F64 } else { NpyType::F32 };
    let mut pieces = Vec::new();
    run.begin(Phase::Unpack, Total::Open);
    for (file, &size) in files.iter().zip(sizes) {
        let mut rows = TextRows::create(element, scratch)?;
        rows.append(file, size, "as num_nodes_per_chunk says", run)?;
        pieces.push(rows.finish(file)?);
    }
    run.end(Phase::Unpack);
    Ok(Column { name: name.to_owned(), pieces })
}
