//! Vertex data that lie in pieces: chunks or parts, one after the other.

use crate::error::{Place, ReadError};
use crate::options::ImportOptions;
use crate::progress::Run;
use crate::read::array::Array;
use crate::read::folder::{FEATURES, open_features};
use crate::read::rows;
use crate::read::scratch::Scratch;
use crate::read::vertices;
use crate::source::{Features, RowSource, Split};
use rudder_graph::Dtype;
use std::path::Path;

const LABELS: [&str; 5] = ["label", "labels", "y", "node_label", "node_labels"];
const MASKS: [&[&str]; 3] = [&["train_mask"], &["val_mask", "valid_mask"], &["test_mask"]];

/// Whether data of this name are whole numbers that have to stay so when they are text.
pub(super) fn is_whole(name: &str) -> bool {
    LABELS.contains(&name) || MASKS.concat().contains(&name)
}

/// Data of one name. Every piece covers the vertices that follow those of the piece before it.
pub(super) struct Column {
    pub name: String,
    pub pieces: Vec<Array>,
}

/// What an import takes from vertex data.
pub(super) struct Taken {
    pub features: Features,
    pub labels: Option<Vec<i64>>,
    pub split: Option<Split>,
}

/// Finds features, labels and masks by name. `sizes` are the vertices of each piece.
pub(super) fn take(
    mut columns: Vec<Column>,
    sizes: &[u64],
    place: &Path,
    options: &ImportOptions,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
    notes: &mut Vec<String>,
) -> Result<Taken, ReadError> {
    let vertices: u64 = sizes.iter().sum();
    for column in &columns {
        column.check(sizes)?;
    }
    let features = match &options.features {
        Some(file) => {
            let (rows, features) = open_features(file, scratch, run)?;
            if rows != vertices {
                let expected = format!("{vertices}, one a vertex,");
                return Err(ReadError::shape(&Place::file(file), format!("{rows} rows"), expected));
            }
            features
        }
        None => features(&mut columns, place, notes)?,
    };
    let labels = match pull(&mut columns, &LABELS) {
        Some(column) => labels(&column, sizes, run, notes)?,
        None => None,
    };
    let mut lists = MASKS.map(|names| pull(&mut columns, names)).into_iter();
    let mut list = || match lists.next().flatten() {
        Some(column) => column.members(run).map(Some),
        None => Ok(None),
    };
    let (train, valid, test) = (list()?, list()?, list()?);
    let split =
        train.map(|train| Split { train, valid: valid.unwrap_or_default(), test: test.unwrap_or_default() });
    if !columns.is_empty() {
        let names = columns.into_iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
        notes.push(format!("vertex data left out: {names}"));
    }
    Ok(Taken { features, labels, split })
}

fn pull(columns: &mut Vec<Column>, names: &[&str]) -> Option<Column> {
    let at = names.iter().find_map(|name| columns.iter().position(|column| column.name == *name))?;
    Some(columns.remove(at))
}

/// The features: by name, else the only data of two dimensions.
fn features(columns: &mut Vec<Column>, place: &Path, notes: &mut Vec<String>) -> Result<Features, ReadError> {
    let column = pull(columns, &FEATURES).or_else(|| {
        let wide = |column: &Column| column.pieces.iter().all(|piece| piece.header.shape.len() == 2);
        let mut wides = (0..columns.len()).filter(|&at| wide(&columns[at]) && !is_whole(&columns[at].name));
        let (only, more) = (wides.next()?, wides.next());
        more.is_none().then(|| columns.remove(only))
    });
    let Some(column) = column else {
        let found: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
        return Err(ReadError::Missing {
            directory: place.to_owned(),
            what: "the features",
            tried: format!(
                "vertex data named {}; there are {} (`--features FILE` names an array)",
                FEATURES.join(", "),
                if found.is_empty() { "none".to_owned() } else { found.join(", ") }
            ),
        });
    };
    if !FEATURES.contains(&column.name.as_str()) {
        notes.push(format!("features: `{}`, the only data of two dimensions", column.name));
    }
    column.rows()
}

fn labels(
    column: &Column,
    sizes: &[u64],
    run: &mut Run<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<i64>>, ReadError> {
    let mut labels = Vec::new();
    for (piece, &size) in column.pieces.iter().zip(sizes) {
        match vertices::labels(piece, size, run)? {
            Some(of_piece) => labels.extend(of_piece),
            None => {
                notes.push(format!("labels left out: `{}` has more than one a vertex", column.name));
                return Ok(None);
            }
        }
    }
    Ok(Some(labels))
}

impl Column {
    /// Checks that every piece has a row a vertex and is like the first.
    fn check(&self, sizes: &[u64]) -> Result<(), ReadError> {
        let first = self.pieces.first();
        for (piece, &size) in self.pieces.iter().zip(sizes) {
            if piece.header.shape.first() != Some(&size) {
                let expected = format!("{size} rows of `{}`, one a vertex,", self.name);
                return Err(ReadError::shape(&piece.place, piece.shape_text(), expected));
            }
            let Some(first) = first else { continue };
            if piece.header.element != first.header.element
                || piece.header.shape[1..] != first.header.shape[1..]
            {
                let found = format!("{} and {}", piece.shape_text(), piece.element_text());
                let expected = format!("rows as in {}", first.place);
                return Err(ReadError::shape(&piece.place, found, expected));
            }
        }
        Ok(())
    }

    fn rows(self) -> Result<Features, ReadError> {
        let (mut pieces, mut end, mut known) = (Vec::new(), 0, None);
        for piece in self.pieces {
            let (rows, features) = rows::dense(piece)?;
            end += rows;
            known = Some((features.dim, features.dtype, features.row_bytes()));
            pieces.push((end, features.rows));
        }
        let (dim, dtype, row_bytes) = known.unwrap_or((0, Dtype::F32, 0));
        Ok(Features { dim, dtype, rows: Box::new(Pieces { pieces, row_bytes }) })
    }

    /// Vertices whose flag is not zero.
    fn members(&self, run: &mut Run<'_>) -> Result<Vec<u32>, ReadError> {
        let (mut members, mut start) = (Vec::new(), 0_u64);
        for piece in &self.pieces {
            vertices::flagged(piece, start, run, &mut members)?;
            start += piece.len();
        }
        Ok(members)
    }
}

/// Rows of pieces: where each ends, and its rows.
struct Pieces {
    pieces: Vec<(u64, Box<dyn RowSource>)>,
    row_bytes: usize,
}

impl RowSource for Pieces {
    fn read(&mut self, first: u64, mut rows: &mut [u8]) -> Result<(), ReadError> {
        let mut at = self.pieces.partition_point(|(end, _)| *end <= first);
        let mut next = first;
        while !rows.is_empty() && at < self.pieces.len() {
            let start = if at == 0 { 0 } else { self.pieces[at - 1].0 };
            let (end, piece) = &mut self.pieces[at];
            let count = (*end - next).min((rows.len() / self.row_bytes) as u64);
            let (here, rest) = rows.split_at_mut(count as usize * self.row_bytes);
            if count > 0 {
                piece.read(next - start, here)?;
            }
            (rows, next, at) = (rest, next + count, at + 1);
        }
        Ok(())
    }
}
