//! What is said of vertices one by one: labels and splits, from arrays.

use crate::error::ReadError;
use crate::progress::Run;
use crate::read::array::Array;
use crate::source::Split;
use rudder_graph::npy::NpyType;

/// Train, valid, test.
pub(crate) const SPLIT_CODES: usize = 3;

/// One label a vertex, -1 for none; `None` if there are several a vertex.
pub(crate) fn labels(array: &Array, vertices: u64, run: &mut Run<'_>) -> Result<Option<Vec<i64>>, ReadError> {
    match array.header.shape.as_slice() {
        [n] | [n, 1] if *n == vertices => {}
        [n, _] if *n == vertices => return Ok(None),
        _ => return Err(of_vertices(array, vertices, "labels")),
    }
    let mut labels = Vec::with_capacity(vertices as usize);
    if matches!(array.header.element, NpyType::F32 | NpyType::F64) {
        floats(array, vertices, &mut labels)?;
        return Ok(Some(labels));
    }
    array.integers(0, vertices, run, &mut |at, label| {
        let label =
            i64::try_from(label).map_err(|_| array.refuse(at, format!("label {label} is too big")))?;
        labels.push(label.max(-1));
        Ok(())
    })?;
    Ok(Some(labels))
}

/// Labels that were stored as floats because some are missing (NaN).
fn floats(array: &Array, vertices: u64, labels: &mut Vec<i64>) -> Result<(), ReadError> {
    let size = array.size();
    let mut buffer = vec![0; size * (1 << 15).min(vertices as usize)];
    while (labels.len() as u64) < vertices {
        let first = labels.len() as u64;
        let len = buffer.len().min((vertices - first) as usize * size);
        array.read_at(first * size as u64, &mut buffer[..len])?;
        for (offset, bytes) in buffer[..len].chunks_exact(size).enumerate() {
            let value = match *bytes {
                [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
                [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
                _ => f64::NAN,
            };
            let label =
                whole(value).ok_or_else(|| array.refuse(first + offset as u64, format!("label {value}")))?;
            labels.push(label);
        }
    }
    Ok(())
}

/// The label a float stands for: a whole number, or -1 for NaN and what is negative.
pub(crate) fn whole(value: f64) -> Option<i64> {
    if value.is_nan() || (value < 0.0 && value.fract() == 0.0) {
        return Some(-1);
    }
    // 2^53: beyond it, floats skip whole numbers.
    (value.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&value)).then_some(value as i64)
}

/// One code a vertex: 0 unused, 1 train, 2 valid, 3 test.
pub(crate) fn split_codes(array: &Array, vertices: u64, run: &mut Run<'_>) -> Result<Split, ReadError> {
    if array.header.shape != [vertices] {
        return Err(of_vertices(array, vertices, "codes"));
    }
    let mut split = Split::default();
    array.integers(0, vertices, run, &mut |at, code| {
        match code {
            0 => {}
            1 => split.train.push(at as u32),
            2 => split.valid.push(at as u32),
            3 => split.test.push(at as u32),
            _ => {
                let problem = format!("code {code}; the codes are 0 unused, 1 train, 2 valid, 3 test");
                return Err(array.refuse(at, problem));
            }
        }
        Ok(())
    })?;
    Ok(split)
}

/// A set of vertices: their ids in any order, or a flag for each vertex.
pub(crate) fn members(array: &Array, vertices: u64, run: &mut Run<'_>) -> Result<Vec<u32>, ReadError> {
    let mut members = Vec::new();
    if array.header.element == NpyType::Bool {
        if array.header.shape != [vertices] {
            return Err(of_vertices(array, vertices, "flags"));
        }
        flagged(array, 0, run, &mut members)?;
        return Ok(members);
    }
    if array.header.shape.len() != 1 || array.len() > vertices {
        return Err(ReadError::shape(
            &array.place,
            array.shape_text(),
            format!("at most {vertices} vertex ids"),
        ));
    }
    array.integers(0, array.len(), run, &mut |at, id| {
        if id < 0 || id >= i128::from(vertices) {
            return Err(array.no_vertex(at, id, vertices));
        }
        members.push(id as u32);
        Ok(())
    })?;
    members.sort_unstable();
    members.dedup();
    Ok(members)
}

/// Appends the vertices from `start` on whose flag, of any type of number, is not zero.
pub(crate) fn flagged(
    array: &Array,
    start: u64,
    run: &mut Run<'_>,
    members: &mut Vec<u32>,
) -> Result<(), ReadError> {
    if !matches!(array.header.shape.as_slice(), [_] | [_, 1]) {
        return Err(of_vertices(array, array.len(), "flags"));
    }
    let (count, size, mut bytes) = (array.len(), array.size(), Vec::new());
    for first in (0..count).step_by(1 << 15) {
        let chunk = (count - first).min(1 << 15) as usize;
        bytes.resize(chunk * size, 0);
        array.read_at(first * size as u64, &mut bytes)?;
        let set = |flag: &[u8]| flag.iter().any(|&byte| byte != 0);
        let numbered = ((start + first) as u32..).zip(bytes.chunks_exact(size));
        members.extend(numbered.filter(|(_, flag)| set(flag)).map(|(vertex, _)| vertex));
        run.advance(0)?;
    }
    Ok(())
}

fn of_vertices(array: &Array, vertices: u64, what: &str) -> ReadError {
    ReadError::shape(&array.place, array.shape_text(), format!("{what} of shape [{vertices}], one a vertex"))
}
