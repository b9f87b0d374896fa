//! Feature rows from arrays: dense `[N, D]`, or sparse as scipy writes CSR (`data`, `indices`, `indptr`, `shape`).

use crate::error::ReadError;
use crate::progress::Run;
use crate::read::array::{Array, integer};
use crate::read::edges::check_index;
use crate::source::{Features, RowSource};
use rudder_graph::Dtype;

/// A dense array and how many rows it has.
pub(crate) fn dense(array: Array) -> Result<(u64, Features), ReadError> {
    let &[vertices, dim] = array.header.shape.as_slice() else {
        return Err(ReadError::shape(
            &array.place,
            array.shape_text(),
            "features of shape [vertices, columns]",
        ));
    };
    let dtype = dtype(&array)?;
    let dim = columns(&array, dim)?;
    let row_bytes = dim as usize * dtype.size();
    Ok((vertices, Features { dim, dtype, rows: Box::new(Dense { array, row_bytes }) }))
}

fn columns(array: &Array, dim: u64) -> Result<u32, ReadError> {
    match u32::try_from(dim) {
        Ok(dim) if dim > 0 => Ok(dim),
        _ => Err(ReadError::shape(&array.place, format!("{dim} columns"), "1 to 4294967295 columns")),
    }
}

/// The type of the rows' elements.
fn dtype(array: &Array) -> Result<Dtype, ReadError> {
    array.header.element.feature_dtype().ok_or_else(|| {
        let expected = "f32, f16, i8, u8, i32, i64, f64, or bf16 as uint16; nothing is converted";
        ReadError::shape(&array.place, array.element_text(), expected)
    })
}

struct Dense {
    array: Array,
    row_bytes: usize,
}

impl RowSource for Dense {
    fn read(&mut self, first: u64, rows: &mut [u8]) -> Result<(), ReadError> {
        self.array.read_at(first * self.row_bytes as u64, rows)
    }
}

/// The arrays of a sparse matrix.
pub(crate) struct SparseArrays {
    pub data: Array,
    pub indices: Array,
    pub indptr: Array,
    pub shape: Array,
}

/// A sparse matrix in CSR; rows are filled up with zeros when they are read.
pub(crate) fn sparse(arrays: SparseArrays, run: &mut Run<'_>) -> Result<(u64, Features), ReadError> {
    let SparseArrays { data, indices, indptr, shape } = arrays;
    let mut sizes = Vec::new();
    if shape.len() == 2 {
        shape.integers(0, 2, run, &mut |at, size| {
            sizes.push(u64::try_from(size).map_err(|_| shape.refuse(at, format!("{size} is no size")))?);
            Ok(())
        })?;
    }
    let &[vertices, dim] = sizes.as_slice() else {
        return Err(ReadError::shape(&shape.place, shape.shape_text(), "two sizes: rows and columns"));
    };
    let dtype = dtype(&data)?;
    let dim = columns(&shape, dim)?;
    if indptr.len().checked_sub(1) != Some(vertices) {
        let expected = format!("{vertices} + 1 offsets, as `shape` says");
        return Err(ReadError::shape(&indptr.place, indptr.shape_text(), expected));
    }
    check_index(&indptr, vertices, indices.len(), run)?;
    indices.integer_size()?;
    if data.len() != indices.len() {
        let expected = format!("{} values, one for each index", indices.len());
        return Err(ReadError::shape(&data.place, data.shape_text(), expected));
    }
    let rows = Sparse { data, indices, indptr, dim, dtype, set_by: vec![0; dim as usize], reads: 0 };
    Ok((vertices, Features { dim, dtype, rows: Box::new(rows) }))
}

struct Sparse {
    data: Array,
    indices: Array,
    indptr: Array,
    dim: u32,
    dtype: Dtype,
    /// The read that last set each column: a column set twice by one is an error.
    set_by: Vec<u64>,
    reads: u64,
}

/// Entries of a sparse row that are read at a time.
const ENTRIES: u64 = 1 << 14;

impl RowSource for Sparse {
    fn read(&mut self, first: u64, rows: &mut [u8]) -> Result<(), ReadError> {
        let row_bytes = self.dim as usize * self.dtype.size();
        let count = rows.len() / row_bytes;
        rows.fill(0);
        let size = self.indptr.size();
        let mut offsets = vec![0; (count + 1) * size];
        self.indptr.read_at(first * size as u64, &mut offsets)?;
        // The offsets were checked to ascend and to end within the entries; should the file have changed since, the
        // reads below fail.
        let offset =
            |at: usize| integer(self.indptr.header.element, &offsets[at * size..(at + 1) * size]) as u64;
        let ranges: Vec<_> = (0..count).map(|row| offset(row)..offset(row + 1)).collect();
        for (row, range) in ranges.into_iter().enumerate() {
            self.fill(first + row as u64, range, &mut rows[row * row_bytes..(row + 1) * row_bytes])?;
        }
        Ok(())
    }
}

impl Sparse {
    fn fill(&mut self, row: u64, range: std::ops::Range<u64>, out: &mut [u8]) -> Result<(), ReadError> {
        let (size, index_size) = (self.dtype.size(), self.indices.size());
        self.reads += 1;
        for start in range.clone().step_by(ENTRIES as usize) {
            let count = ENTRIES.min(range.end - start) as usize;
            let mut columns = vec![0; count * index_size];
            let mut values = vec![0; count * size];
            self.indices.read_at(start * index_size as u64, &mut columns)?;
            self.data.read_at(start * size as u64, &mut values)?;
            for (offset, (column, value)) in
                columns.chunks_exact(index_size).zip(values.chunks_exact(size)).enumerate()
            {
                let (at, column) = (start + offset as u64, integer(self.indices.header.element, column));
                if column < 0 || column >= i128::from(self.dim) {
                    return Err(self.indices.refuse(at, format!("column {column} of {}", self.dim)));
                }
                let column = column as usize;
                if std::mem::replace(&mut self.set_by[column], self.reads) == self.reads {
                    return Err(self
                        .indices
                        .refuse(at, format!("column {column} of row {row} is set twice")));
                }
                out[column * size..(column + 1) * size].copy_from_slice(value);
            }
        }
        Ok(())
    }
}
