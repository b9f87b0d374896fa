//! DGL's folders, found by their JSON file:
//!
//! | what | JSON | edges | vertex data |
//! |---|---|---|---|
//! | a chunked graph, as `tools/chunk_graph.py` writes it | `metadata.json` | `[E, 2]` as csv or numpy | csv or numpy |
//! | output of `dgl.distributed.partition_graph` | `NAME.json` | `part0/graph.dgl`, ... | `part0/node_feat.dgl`, ... |
//!
//! Both may hold several types of vertices; what is read here has one type of vertex and one of edge. Features, labels
//! and splits are found by name, as in a folder of arrays; a split is one of masks. What DGL cut stays cut: part k of
//! the partitions is part k of the dataset. Original ids of partitions are those that DGL gave when it cut the graph:
//! those of `DistGraph`.

mod binary;
mod chunked;
mod columns;
mod graph;
mod partitions;
mod tensors;

use crate::error::{Place, ReadError};
use crate::options::ImportOptions;
use crate::progress::Run;
use crate::read::open_file;
use crate::read::scratch::Scratch;
use crate::source::Source;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest JSON file that is read: its lists grow with the number of parts and chunks only.
const JSON_BYTES_MAX: u64 = 64 << 20;

/// Most of anything that a file counts: types, tensors, parts.
const COUNT_MAX: u64 = 1 << 16;

/// Reads a folder of DGL's, or the JSON file of one; `None` if it is none.
pub(crate) fn open(
    path: &Path,
    options: &ImportOptions,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<Option<Source>, ReadError> {
    let Some((file, json)) = find(path)? else { return Ok(None) };
    if is_chunked(&json) {
        return chunked::open(&file, json, options, scratch, run).map(Some);
    }
    partitions::open(&file, json, options, scratch, run).map(Some)
}

fn is_chunked(json: &Value) -> bool {
    json.get("edges").is_some() && json.get("node_type").is_some()
}

fn is_partitions(json: &Value) -> bool {
    json.get("node_map").is_some() && json.get("num_parts").is_some()
}

/// The JSON file that describes the folder.
fn find(path: &Path) -> Result<Option<(PathBuf, Value)>, ReadError> {
    let described = |json: &Value| is_chunked(json) || is_partitions(json);
    if path.extension().is_some_and(|extension| extension == "json") && path.is_file() {
        let json = read(path)?;
        if described(&json) {
            return Ok(Some((path.to_owned(), json)));
        }
        let expected = "what DGL writes beside a chunked graph or partitions";
        return Err(ReadError::shape(&Place::file(path), "other JSON", expected));
    }
    let Ok(entries) = std::fs::read_dir(path) else { return Ok(None) };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json") && file.is_file());
    files.sort();
    // Beside parts or chunks, a file that cannot be read is no stranger's.
    let parts = ["part0", "edges", "edge_index"].iter().any(|name| path.join(name).is_dir());
    let mut found = Vec::new();
    for file in files {
        match read(&file) {
            Ok(json) if described(&json) => found.push((file, json)),
            Err(error) if parts => return Err(error),
            _ => {}
        }
    }
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|(file, _)| file.display().to_string()).collect();
        let found = format!("several graphs ({})", names.join(", "));
        return Err(ReadError::shape(&Place::file(path), found, "one: name its JSON file, and that alone"));
    }
    Ok(found.pop())
}

fn read(file: &Path) -> Result<Value, ReadError> {
    let place = Place::file(file);
    let mut text = Vec::new();
    let opened = open_file(file, &place)?;
    opened.take(JSON_BYTES_MAX + 1).read_to_end(&mut text).map_err(ReadError::io(&place))?;
    if text.len() as u64 > JSON_BYTES_MAX {
        return Err(ReadError::shape(
            &place,
            "a longer text",
            format!("at most {JSON_BYTES_MAX} bytes of JSON"),
        ));
    }
    serde_json::from_slice(&text).map_err(|error| malformed(&place, &error))
}

/// The description as what it should be.
fn parse<T: serde::de::DeserializeOwned>(file: &Path, json: Value) -> Result<T, ReadError> {
    serde_json::from_value(json).map_err(|error| malformed(&Place::file(file), &error))
}

fn malformed(place: &Place, error: &serde_json::Error) -> ReadError {
    ReadError::Format { place: place.clone(), problem: format!("the JSON is not as DGL writes it: {error}") }
}

/// A file that the description names: relative to where that lies.
fn beside(description: &Path, name: &str) -> PathBuf {
    description.parent().unwrap_or(Path::new(".")).join(name)
}

/// The error for graphs with types.
fn typed(place: &Place, what: &str, names: &[String]) -> ReadError {
    let shown = names.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    let found = format!("{} {what} types ({shown})", names.len());
    let expected = format!(
        "one {what} type (load the graph in Python: `rudder.export_dataset` writes datasets of several types)"
    );
    ReadError::shape(place, found, expected)
}
