//! `generate:` specifications as a source: nothing is held, every edge and row is made when it is asked for.

use crate::error::{GenerateError, ReadError};
use crate::progress::Run;
use crate::source::{Edge, EdgeSource, EdgeVisitor, Features, RowSource, Source};
use rudder_graph::Dtype;
use rudder_graph::generate::{GeneratorSpec, GraphGenerator};
use rudder_topology::VertexId;
use std::sync::Arc;

/// Columns of the features where the specification names no `dim`.
const DIM: u32 = 128;
/// Most columns a specification may ask for.
const DIM_MAX: u32 = 1 << 20;
const CHUNK_EDGES: u64 = 1 << 14;

/// Reads `rmat,vertices=2M,edges=20M,dim=128,seed=1` or `planted,...`; the keys of the graph are those of
/// [`GeneratorSpec::parse`], `dim` and `dtype` (f32 unless given) are the features'.
pub(crate) fn open(text: &str) -> Result<Source, GenerateError> {
    // The kind ends at the first comma or colon.
    let text = match text.split_once([',', ':']) {
        Some((kind, settings)) => format!("{kind}:{settings}"),
        None => text.to_owned(),
    };
    let (spec, settings) = GeneratorSpec::parse(&text)?;
    let (mut dim, mut dtype) = (DIM, Dtype::F32);
    for (key, value) in settings {
        match key.as_str() {
            "dim" => dim = parse_dim(&value)?,
            "dtype" => dtype = parse_dtype(&value)?,
            _ => return Err(GenerateError::Setting { key, value, reason: "this key is not known" }),
        }
    }
    let vertices = spec.vertices;
    let graph = Arc::new(GraphGenerator::new(spec)?);
    let labels = (0..vertices).map(|v| i64::from(graph.label(VertexId(v as u32)))).collect();
    let rows = Rows { graph: Arc::clone(&graph), dtype, row: vec![0.0; dim as usize] };
    Ok(Source {
        vertices,
        edges: Box::new(Edges(graph)),
        features: Features { dim, dtype, rows: Box::new(rows) },
        labels: Some(labels),
        split: None,
        placement: None,
        notes: vec![format!("generated: {text}")],
    })
}

fn parse_dim(value: &str) -> Result<u32, GenerateError> {
    match value.parse() {
        Ok(dim) if (1..=DIM_MAX).contains(&dim) => Ok(dim),
        _ => {
            let reason = "the number of columns is 1 to 1048576";
            Err(GenerateError::Setting { key: "dim".into(), value: value.into(), reason })
        }
    }
}

fn parse_dtype(value: &str) -> Result<Dtype, GenerateError> {
    match value {
        "f32" => Ok(Dtype::F32),
        "f16" => Ok(Dtype::F16),
        "bf16" => Ok(Dtype::Bf16),
        "f64" => Ok(Dtype::F64),
        "i8" => Ok(Dtype::I8),
        "u8" => Ok(Dtype::U8),
        "i32" => Ok(Dtype::I32),
        "i64" => Ok(Dtype::I64),
        _ => {
            let reason = "the types are f32, f16, bf16, i8, u8, i32, i64, f64";
            Err(GenerateError::Setting { key: "dtype".into(), value: value.into(), reason })
        }
    }
}

struct Edges(Arc<GraphGenerator>);

impl EdgeSource for Edges {
    fn len(&self) -> u64 {
        self.0.spec().edges
    }

    fn visit(&mut self, run: &mut Run<'_>, visitor: &mut EdgeVisitor<'_>) -> Result<(), ReadError> {
        let mut edges = Vec::with_capacity(CHUNK_EDGES as usize);
        let count = self.len();
        for first in (0..count).step_by(CHUNK_EDGES as usize) {
            let end = count.min(first + CHUNK_EDGES);
            edges.clear();
            edges.extend((first..end).map(|number| {
                let (source, destination) = self.0.edge(number);
                Edge { source: source.0, destination: destination.0 }
            }));
            visitor(&edges)?;
            run.advance(end - first)?;
        }
        Ok(())
    }
}

struct Rows {
    graph: Arc<GraphGenerator>,
    dtype: Dtype,
    row: Vec<f32>,
}

impl RowSource for Rows {
    fn read(&mut self, first: u64, rows: &mut [u8]) -> Result<(), ReadError> {
        let row_bytes = self.row.len() * self.dtype.size();
        for (offset, bytes) in rows.chunks_exact_mut(row_bytes).enumerate() {
            self.graph.feature_row(VertexId((first + offset as u64) as u32), &mut self.row);
            encode(&self.row, self.dtype, bytes);
        }
        Ok(())
    }
}

/// Writes generated values, which lie in [-2, 2), as elements of a type; integers get them stretched to [-126, 126),
/// u8 to [1, 253).
fn encode(row: &[f32], dtype: Dtype, bytes: &mut [u8]) {
    for (&value, element) in row.iter().zip(bytes.chunks_exact_mut(dtype.size())) {
        let whole = (value * 63.0) as i32;
        match dtype {
            Dtype::F32 => element.copy_from_slice(&value.to_le_bytes()),
            Dtype::F64 => element.copy_from_slice(&f64::from(value).to_le_bytes()),
            Dtype::I8 => element[0] = whole as i8 as u8,
            Dtype::U8 => element[0] = (whole + 127) as u8,
            Dtype::I32 => element.copy_from_slice(&whole.to_le_bytes()),
            Dtype::I64 => element.copy_from_slice(&i64::from(whole).to_le_bytes()),
            Dtype::F16 => element.copy_from_slice(&half(value).to_le_bytes()),
            Dtype::Bf16 => element.copy_from_slice(&((value.to_bits() >> 16) as u16).to_le_bytes()),
        }
    }
}

/// The IEEE half-precision number next to a value within [-2, 2], towards zero; below its smallest normal number, zero.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    if exponent <= 0 { sign } else { sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_or_refused() {
        let source = open("rmat,vertices=100,edges=500,dim=7,dtype=i8,seed=3").unwrap();
        assert_eq!((source.vertices, source.edges.len()), (100, 500));
        assert_eq!((source.features.dim, source.features.dtype), (7, Dtype::I8));
        assert_eq!(source.labels.unwrap().len(), 100);
        assert!(open("planted:vertices=100,edges=500").is_ok());
        for bad in [
            "rmat",
            "rmat,vertices=5",
            "star,vertices=5,edges=5",
            "rmat,vertices=5,edges=5,dim=0",
            "rmat,vertices=5,edges=5,dim=99999999",
            "rmat,vertices=5,edges=5,dtype=f17",
            "rmat,vertices=5,edges=5,colour=red",
        ] {
            assert!(open(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn halves_are_known_bit_patterns() {
        for (value, bits) in
            [(0.0, 0), (1.0, 0x3c00), (-2.0, 0xc000), (0.5, 0x3800), (1.5, 0x3e00), (1e-6, 0)]
        {
            assert_eq!(half(value), bits, "{value}");
        }
    }

    #[test]
    fn rows_do_not_depend_on_how_they_are_asked_for() {
        for dtype in ["f32", "f16", "bf16", "f64", "i8", "u8", "i32", "i64"] {
            let mut features =
                open(&format!("rmat,vertices=50,edges=1,dim=3,dtype={dtype}")).unwrap().features;
            let row_bytes = features.row_bytes();
            let mut all = vec![0; 50 * row_bytes];
            features.rows.read(0, &mut all).unwrap();
            let mut some = vec![0; 2 * row_bytes];
            features.rows.read(31, &mut some).unwrap();
            assert_eq!(some, all[31 * row_bytes..33 * row_bytes], "{dtype}");
            assert!(all.chunks(row_bytes).any(|row| row != &all[..row_bytes]), "{dtype}");
        }
    }
}
