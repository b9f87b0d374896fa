//! The output of `dgl.distributed.partition_graph`.

use super::columns::{self, Column};
use super::graph::PartGraph;
use super::{COUNT_MAX, beside, parse, tensors, typed};
use crate::error::{Place, ReadError};
use crate::options::ImportOptions;
use crate::progress::Run;
use crate::read::scratch::Scratch;
use crate::source::{EdgeSource, EdgeVisitor, Placement, Source};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Description {
    num_nodes: u64,
    num_edges: u64,
    num_parts: u64,
    node_map: Maps,
    edge_map: Maps,
    /// `part-0` and so on, beside much that is not needed here.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Ids of each part, by type; DGL once wrote those of its only type without a name.
#[derive(Deserialize)]
#[serde(untagged)]
enum Maps {
    Typed(BTreeMap<String, Vec<(u64, u64)>>),
    Only(Vec<(u64, u64)>),
    /// Maps by vertex, in files: what `reshuffle=False` wrote.
    Other(IgnoredAny),
}

#[derive(Deserialize)]
struct Files {
    node_feats: String,
    part_graph: Option<String>,
}

const VERTEX_TYPE: &str = "_N";

pub(super) fn open(
    file: &Path,
    json: Value,
    options: &ImportOptions,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<Source, ReadError> {
    let place = Place::file(file);
    let Description { num_nodes: vertices, num_edges, num_parts, node_map, edge_map, rest } =
        parse(file, json)?;
    let (vertex_type, ranges) = only(&place, "vertex", node_map)?;
    only(&place, "edge", edge_map)?;
    let sizes = check(&place, &ranges, num_parts, vertices)?;
    let mut notes = Vec::new();
    let (mut graphs, mut columns) = (Vec::new(), Vec::<Column>::new());
    for part in 0..num_parts {
        let files = files(&place, file, &rest, part)?;
        let Some(graph) = files.part_graph else {
            let problem =
                format!("part-{part} names no part_graph: keep the graph.dgl files of partition_graph");
            return Err(ReadError::Format { place, problem });
        };
        graphs.push(beside(file, &graph));
        let data = beside(file, &files.node_feats);
        add(&mut columns, tensors::open(&data)?, &vertex_type, part as usize, &data)?;
        run.advance(0)?;
    }
    let taken = columns::take(columns, &sizes, file, options, scratch, run, &mut notes)?;
    notes.push(format!("{num_parts} parts as DGL cut the graph; ids are those of its partitions"));
    let edges = PartEdges { place, graphs, vertices, edges: num_edges };
    Ok(Source {
        vertices,
        edges: Box::new(edges),
        features: taken.features,
        labels: taken.labels,
        split: taken.split,
        placement: Some(Placement::of_ranges(&sizes)),
        notes,
    })
}

/// The ranges of the only type, and its name.
fn only(place: &Place, what: &str, maps: Maps) -> Result<(String, Vec<(u64, u64)>), ReadError> {
    match maps {
        Maps::Only(ranges) => Ok((VERTEX_TYPE.to_owned(), ranges)),
        Maps::Typed(mut types) if types.len() == 1 => {
            let (name, ranges) = types.pop_first().unwrap_or_default();
            Ok((name, ranges))
        }
        Maps::Typed(types) => Err(typed(place, what, &types.into_keys().collect::<Vec<_>>())),
        Maps::Other(_) => {
            let expected = format!(
                "[start, end) of each part (cut the graph again: partition_graph with reshuffle gives {what}s ids by part)"
            );
            Err(ReadError::shape(place, format!("a {what} map that is no list of ranges"), expected))
        }
    }
}

/// Checks that the ranges are parts that follow each other from 0 to the last vertex; gives their sizes.
fn check(place: &Place, ranges: &[(u64, u64)], parts: u64, vertices: u64) -> Result<Vec<u64>, ReadError> {
    if parts == 0 || parts >= COUNT_MAX || ranges.len() as u64 != parts {
        let found = format!("{} ranges of vertices for {parts} parts", ranges.len());
        return Err(ReadError::shape(
            place,
            found,
            format!("one range a part, 1 to {} of them", COUNT_MAX - 1),
        ));
    }
    let mut next = 0;
    for (part, &(start, end)) in ranges.iter().enumerate() {
        if start != next || end < start {
            let found = format!("[{start}, {end}) for part {part}");
            return Err(ReadError::shape(place, found, format!("a range of vertices that starts at {next}")));
        }
        next = end;
    }
    if next != vertices {
        let found = format!("ranges of {next} vertices");
        return Err(ReadError::shape(place, found, format!("ranges of {vertices}, as num_nodes says,")));
    }
    Ok(ranges.iter().map(|(start, end)| end - start).collect())
}

fn files(place: &Place, file: &Path, rest: &Map<String, Value>, part: u64) -> Result<Files, ReadError> {
    match rest.get(&format!("part-{part}")) {
        Some(files) => parse(file, files.clone()),
        None => Err(ReadError::Format { place: place.clone(), problem: format!("part-{part} is missing") }),
    }
}

/// Adds a part's tensors to the columns, which must be the same in every part.
fn add(
    columns: &mut Vec<Column>,
    tensors: Vec<(String, crate::read::array::Array)>,
    vertex_type: &str,
    part: usize,
    file: &Path,
) -> Result<(), ReadError> {
    for (name, array) in tensors {
        let bare = name.strip_prefix(vertex_type).and_then(|name| name.strip_prefix('/'));
        let name = bare.unwrap_or(&name).to_owned();
        match columns.iter_mut().find(|column| column.name == name) {
            Some(column) => column.pieces.push(array),
            None if part == 0 => columns.push(Column { name, pieces: vec![array] }),
            None => {
                let expected = "only what the parts before it have";
                return Err(ReadError::shape(&array.place, format!("data named `{name}`"), expected));
            }
        }
    }
    match columns.iter().find(|column| column.pieces.len() != part + 1) {
        Some(column) => {
            let expected = format!("`{}` once, as in part 0,", column.name);
            Err(ReadError::shape(&Place::file(file), "other data", expected))
        }
        None => Ok(()),
    }
}

/// The edges of all parts. Every edge belongs to the part of its destination.
struct PartEdges {
    place: Place,
    graphs: Vec<PathBuf>,
    vertices: u64,
    edges: u64,
}

impl EdgeSource for PartEdges {
    fn len(&self) -> u64 {
        self.edges
    }

    fn visit(&mut self, run: &mut Run<'_>, visitor: &mut EdgeVisitor<'_>) -> Result<(), ReadError> {
        let mut visited = 0;
        for graph in &self.graphs {
            // Opened at every pass: their number is that of the parts.
            visited += PartGraph::open(graph)?.visit(self.vertices, run, visitor)?;
        }
        if visited != self.edges {
            let found = format!("{visited} edges in the parts");
            return Err(ReadError::shape(&self.place, found, format!("{}, as num_edges says,", self.edges)));
        }
        Ok(())
    }
}
