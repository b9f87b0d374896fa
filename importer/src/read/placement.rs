//! Which part each vertex goes to, said beforehand: text with a part a line, as DGL's partitioning tools write it, or an
//! array of whole numbers.

use crate::error::{At, LineProblem, Place, ReadError};
use crate::options::PARTS_MAX;
use crate::progress::Run;
use crate::read::array::Array;
use crate::read::text::{Lines, shown};
use crate::source::Placement;
use serde::Deserialize;
use std::path::{Path, PathBuf};

const LINE_BYTES_MAX: usize = 256;
const REPORT_LINES: usize = 1 << 14;

/// What DGL's tools write beside the text.
#[derive(Deserialize)]
struct Meta {
    num_parts: u32,
}

/// Reads a file, or the only `.txt` file of a folder.
pub(crate) fn read(path: &Path, vertices: u64, run: &mut Run<'_>) -> Result<Placement, ReadError> {
    let file = if path.is_dir() { sole_text(path)? } else { path.to_owned() };
    let part = if file.extension().is_some_and(|extension| extension == "npy") {
        array(&file, vertices, run)?
    } else {
        text(&file, vertices, run)?
    };
    let used = part.iter().map(|&part| u32::from(part) + 1).max().unwrap_or(1);
    // The last parts may be empty; only what DGL writes beside it tells.
    let meta = file.with_file_name("partition_meta.json");
    let declared = match std::fs::read(&meta) {
        Ok(bytes) => {
            let meta: Meta = serde_json::from_slice(&bytes).map_err(|error| ReadError::Format {
                place: Place::file(&meta),
                problem: format!("the JSON is not as DGL writes it: {error}"),
            })?;
            meta.num_parts
        }
        Err(_) => used,
    };
    if used > declared || declared > PARTS_MAX {
        let found = format!("{declared} parts");
        return Err(ReadError::shape(&Place::file(&meta), found, format!("{used} (as used) to {PARTS_MAX}")));
    }
    Ok(Placement { parts: declared, part })
}

fn sole_text(directory: &Path) -> Result<PathBuf, ReadError> {
    let place = Place::file(directory);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(ReadError::io(&place))? {
        let path = entry.map_err(ReadError::io(&place))?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            files.push(path);
        }
    }
    match files.pop() {
        Some(file) if files.is_empty() => Ok(file),
        _ => {
            let expected = "one .txt file with a part a line (name the file itself)";
            Err(ReadError::shape(&place, "none or several .txt files", expected))
        }
    }
}

fn checked(file: &Path, at: At, part: i128) -> Result<u16, ReadError> {
    match u16::try_from(part) {
        Ok(part) if u32::from(part) < PARTS_MAX => Ok(part),
        _ => {
            let problem = format!("part {part}: parts are 0 to {}", PARTS_MAX - 1);
            Err(ReadError::Value { place: Place::file(file), at, problem })
        }
    }
}

fn count(file: &Path, found: u64, vertices: u64) -> Result<(), ReadError> {
    if found == vertices {
        return Ok(());
    }
    let found = if found > vertices { "more parts".to_owned() } else { format!("parts of {found} vertices") };
    Err(ReadError::shape(&Place::file(file), found, format!("one for each of {vertices} vertices")))
}

fn text(file: &Path, vertices: u64, run: &mut Run<'_>) -> Result<Vec<u16>, ReadError> {
    let mut lines = Lines::open(file, LINE_BYTES_MAX)?;
    let mut parts = Vec::new();
    while let Some(line) = lines.next()? {
        let line = line.trim();
        let Ok(part) = line.parse() else {
            let problem = LineProblem::Number(shown(line));
            return Err(lines.refuse(problem));
        };
        parts.push(checked(file, At::Line(lines.number()), part)?);
        if parts.len() as u64 > vertices {
            break;
        }
        if parts.len() % REPORT_LINES == 0 {
            run.advance(0)?;
        }
    }
    count(file, parts.len() as u64, vertices)?;
    Ok(parts)
}

fn array(file: &Path, vertices: u64, run: &mut Run<'_>) -> Result<Vec<u16>, ReadError> {
    let array = Array::file(file)?;
    if array.header.shape != [array.len()] {
        return Err(ReadError::shape(&array.place, array.shape_text(), "one part a vertex"));
    }
    count(file, array.len(), vertices)?;
    let mut parts = Vec::with_capacity(vertices as usize);
    array.integers(0, vertices, run, &mut |at, part| {
        parts.push(checked(file, At::Element(at), part)?);
        Ok(())
    })?;
    Ok(parts)
}
