//! OGB's raw layout of node property prediction datasets:
//!
//! ```text
//! raw/edge.csv.gz            source,destination
//! raw/num-node-list.csv.gz   the number of vertices
//! raw/node-feat.csv.gz       a row of numbers a vertex (kept as f32, as OGB does)
//! raw/node-label.csv.gz      a whole number a vertex; `nan` or nothing for none
//! split/<scheme>/{train,valid,test}.csv.gz   vertex ids
//! ```
//!
//! Every file may also be there without `.gz`. What is large has `raw/data.npz` (`edge_index`, `node_feat`) and
//! `raw/node-label.npz` in place of the text. Graphs of several types have `raw/relations`, and are refused by name.

use crate::error::{At, LineProblem, Place, ReadError};
use crate::options::ImportOptions;
use crate::progress::{Phase, Run, Total};
use crate::read::edge_list::{self, Header};
use crate::read::folder::{self, open_features};
use crate::read::rows;
use crate::read::scratch::Scratch;
use crate::read::text::{Lines, fields, shown};
use crate::read::text_rows::TextRows;
use crate::read::vertices::whole;
use crate::source::{Features, Source, Split};
use rudder_graph::npy::NpyType;
use std::path::{Path, PathBuf};

const LINE_BYTES_MAX: usize = 1 << 16;
const REPORT_LINES: u64 = 1 << 12;

/// Edges and features of large graphs.
const ARRAYS: &str = "data.npz";
/// The edges of graphs of several types, a folder each.
const RELATIONS: &str = "relations";

/// The dataset's directory, if the path is one in this layout, or the `raw` directory of one.
pub(crate) fn root(path: &Path) -> Option<PathBuf> {
    let is_raw = |raw: &Path| {
        find(raw, "edge").is_some() || raw.join(ARRAYS).is_file() || raw.join(RELATIONS).is_dir()
    };
    if is_raw(&path.join("raw")) {
        return Some(path.to_owned());
    }
    let inside = path.file_name().is_some_and(|name| name == "raw") && is_raw(path);
    if inside { path.parent().map(Path::to_owned) } else { None }
}

fn find(directory: &Path, stem: &str) -> Option<PathBuf> {
    [".csv.gz", ".csv"].iter().map(|end| directory.join(format!("{stem}{end}"))).find(|path| path.is_file())
}

pub(crate) fn open(
    root: &Path,
    options: &ImportOptions,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<Source, ReadError> {
    let raw = root.join("raw");
    if raw.join(RELATIONS).is_dir() {
        let expected = "a graph of one type (load it in Python with OGB: `rudder.export_dataset` writes datasets of \
                        several types)";
        return Err(ReadError::shape(&Place::file(&raw.join(RELATIONS)), "several types", expected));
    }
    if raw.join(ARRAYS).is_file() {
        let mut source = folder::open(&raw, options, scratch, run)?;
        if source.split.is_none() {
            source.split = split(&root.join("split"), source.vertices, &mut source.notes)?;
        }
        return Ok(source);
    }
    let need = |what, stem: &str| {
        find(&raw, stem).ok_or_else(|| {
            let tried = format!("{stem}.csv.gz, {stem}.csv");
            ReadError::Missing { directory: raw.clone(), what, tried }
        })
    };
    let declared = vertex_count(&need("the number of vertices", "num-node-list")?)?;
    let (vertices, features) = match &options.features {
        Some(file) => open_features(file, scratch, run)?,
        None => features(&need("the feature file", "node-feat")?, declared, scratch, run)?,
    };
    if vertices != declared {
        let found = format!("{vertices} rows");
        let place = Place::file(options.features.as_deref().unwrap_or(&raw));
        return Err(ReadError::shape(&place, found, format!("{declared}, as num-node-list says,")));
    }
    let edges = edge_list::read(&need("the edge list", "edge")?, vertices, Header::None, scratch, run)?.edges;
    let mut notes = Vec::new();
    let labels = match find(&raw, "node-label") {
        Some(file) => labels(&file, vertices, run, &mut notes)?,
        None => None,
    };
    let split = split(&root.join("split"), vertices, &mut notes)?;
    Ok(Source { vertices, edges: Box::new(edges), features, labels, split, placement: None, notes })
}

fn vertex_count(file: &Path) -> Result<u64, ReadError> {
    let mut lines = Lines::open(file, LINE_BYTES_MAX)?;
    let Some(line) = lines.next()? else {
        return Err(ReadError::line(file, 1, LineProblem::Fields { expected: 1, found: 0 }));
    };
    let line = line.trim();
    let count = line.parse().map_err(|_| LineProblem::Number(shown(line)));
    let count = count.map_err(|problem| ReadError::line(file, 1, problem))?;
    if lines.next()?.is_some_and(|line| !line.trim().is_empty()) {
        let found = "the counts of several graphs";
        return Err(ReadError::shape(&Place::file(file), found, "the count of one"));
    }
    Ok(count)
}

/// Turns the text into rows of f32 in a scratch file.
fn features(
    file: &Path,
    vertices: u64,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<(u64, Features), ReadError> {
    run.begin(Phase::Unpack, Total::Items(vertices));
    let mut rows = TextRows::create(NpyType::F32, scratch)?;
    rows.append(file, vertices, "as num-node-list says", run)?;
    run.end(Phase::Unpack);
    rows::dense(rows.finish(file)?)
}

fn labels(
    file: &Path,
    vertices: u64,
    run: &mut Run<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<i64>>, ReadError> {
    let mut lines = Lines::open(file, LINE_BYTES_MAX)?;
    let mut labels = Vec::new();
    while let Some(line) = lines.next()? {
        let width = fields(line).count();
        if width > 1 {
            notes.push(format!("labels left out: {} has {width} a vertex", file.display()));
            return Ok(None);
        }
        let field = fields(line).next().unwrap_or("nan");
        let label = match field.parse::<i64>() {
            Ok(label) => Some(label.max(-1)),
            Err(_) => field.parse::<f64>().ok().and_then(whole),
        };
        let Some(label) = label else {
            let problem = LineProblem::Number(shown(field));
            return Err(lines.refuse(problem));
        };
        labels.push(label);
        if labels.len() as u64 > vertices {
            break;
        }
        if lines.number() % REPORT_LINES == 0 {
            run.advance(0)?;
        }
    }
    if labels.len() as u64 != vertices {
        let found = if labels.len() as u64 > vertices {
            "more labels".into()
        } else {
            format!("{} labels", labels.len())
        };
        return Err(ReadError::shape(&Place::file(file), found, format!("{vertices}, one a vertex,")));
    }
    Ok(Some(labels))
}

/// The split of the first scheme by name.
fn split(directory: &Path, vertices: u64, notes: &mut Vec<String>) -> Result<Option<Split>, ReadError> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(None) };
    let mut schemes: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| find(path, "train").is_some()).collect();
    schemes.sort();
    let Some(scheme) = schemes.first() else { return Ok(None) };
    if schemes.len() > 1 {
        notes.push(format!("of {} splits, {} was taken", schemes.len(), scheme.display()));
    }
    let ids = |stem| find(scheme, stem).map_or(Ok(Vec::new()), |file| ids(&file, vertices));
    Ok(Some(Split { train: ids("train")?, valid: ids("valid")?, test: ids("test")? }))
}

fn ids(file: &Path, vertices: u64) -> Result<Vec<u32>, ReadError> {
    let mut lines = Lines::open(file, LINE_BYTES_MAX)?;
    let mut ids = Vec::new();
    while let Some(line) = lines.next()? {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let Ok(id) = line.parse::<i128>() else {
            let problem = LineProblem::VertexId(shown(line));
            return Err(lines.refuse(problem));
        };
        if id < 0 || id >= i128::from(vertices) || ids.len() as u64 >= vertices {
            let (place, at) = (Place::file(file), At::Line(lines.number()));
            return Err(ReadError::Vertex { place, at, found: id, vertices });
        }
        ids.push(id as u32);
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}
