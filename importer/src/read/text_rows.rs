//! Rows of numbers as text, a row a line, turned into a typed array in a scratch file.

use crate::error::{LineProblem, Place, ReadError};
use crate::progress::Run;
use crate::read::array::{Array, Bytes};
use crate::read::scratch::{Scratch, ScratchFile};
use crate::read::text::{Lines, fields, shown};
use rudder_graph::npy::NpyType;
use std::path::Path;
use std::sync::Arc;

/// Longest line: a quarter million columns, written out.
const LINE_BYTES_MAX: usize = 4 << 20;
const REPORT_LINES: u64 = 1 << 12;

/// Rows of f32 or f64 while they are read; all are as wide as the first.
pub(crate) struct TextRows {
    element: NpyType,
    out: ScratchFile,
    columns: usize,
    rows: u64,
}

impl TextRows {
    /// `element` is `F64`, which holds every whole number up to 2^53; anything else is taken as `F32`.
    pub(crate) fn create(element: NpyType, scratch: &mut Scratch) -> Result<TextRows, ReadError> {
        let element = if element == NpyType::F64 { NpyType::F64 } else { NpyType::F32 };
        Ok(TextRows { element, out: scratch.create()?, columns: 0, rows: 0 })
    }

    /// Appends a file, which must hold `expected` rows; `by` is who says so, for the message.
    pub(crate) fn append(
        &mut self,
        file: &Path,
        expected: u64,
        by: &str,
        run: &mut Run<'_>,
    ) -> Result<(), ReadError> {
        let mut lines = Lines::open(file, LINE_BYTES_MAX)?;
        let (mut found, mut row) = (0_u64, Vec::new());
        while let Some(line) = lines.next()? {
            let problem = self.parse(line, &mut row);
            if let Some(problem) = problem {
                return Err(lines.refuse(problem));
            }
            found += 1;
            if found > expected {
                break;
            }
            self.out.write(&row)?;
            if found % REPORT_LINES == 0 {
                run.advance(REPORT_LINES)?;
            }
        }
        if found != expected {
            let found = if found > expected { "more rows".to_owned() } else { format!("{found} rows") };
            return Err(ReadError::shape(&Place::file(file), found, format!("{expected}, {by},")));
        }
        self.rows += found;
        Ok(())
    }

    fn parse(&mut self, line: &str, row: &mut Vec<u8>) -> Option<LineProblem> {
        row.clear();
        for field in fields(line) {
            let Ok(value) = field.parse::<f64>() else { return Some(LineProblem::Number(shown(field))) };
            match self.element {
                NpyType::F64 => row.extend(value.to_le_bytes()),
                // Parsed as what it becomes: by way of f64 it could be rounded twice.
                _ => row.extend(field.parse::<f32>().unwrap_or(value as f32).to_le_bytes()),
            }
        }
        let found = row.len() / self.element.size() as usize;
        if self.columns == 0 {
            self.columns = found;
        }
        let fits = found == self.columns && found > 0;
        (!fits).then_some(LineProblem::Fields { expected: self.columns.max(1), found })
    }

    /// The rows as an array `[rows, columns]`; errors name `file`.
    pub(crate) fn finish(self, file: &Path) -> Result<Array, ReadError> {
        let (len, shape) = (self.out.written(), vec![self.rows, self.columns as u64]);
        let bytes = Bytes { file: Arc::new(self.out.finish()?), start: 0, len };
        Array::bare(Place::file(file), self.element, shape, bytes)
    }
}
