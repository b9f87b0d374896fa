//! What a writer of datasets needs: checksums, digests, and the sealed manifest.

use crate::buffer::Input;
use crate::error::raise;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rudder_graph::manifest::FORMAT_VERSION;
use rudder_graph::{Dtype, FileSpec, GraphSpec, Manifest, TableSpec, crc};
use rudder_topology::{DatasetName, TableName};

/// CRC32C of each block of `block_bytes` bytes, as little-endian u32; the last block may be short.
#[pyfunction]
pub(crate) fn block_checksums<'py>(
    rows: &Bound<'py, PyAny>,
    block_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = rows.py();
    if block_bytes == 0 {
        return Err(raise(py, "ArgumentError", "a block has no bytes"));
    }
    let rows = Input::<u8>::new(rows, "the rows")?;
    let sums: Vec<u8> =
        py.detach(|| crc::checksums(rows.slice(), block_bytes).flat_map(u32::to_le_bytes).collect());
    Ok(PyBytes::new(py, &sums))
}

/// BLAKE3 of a file's bytes, in hex.
#[pyfunction]
pub(crate) fn file_digest(bytes: &Bound<'_, PyAny>) -> PyResult<String> {
    let input = Input::<u8>::new(bytes, "the bytes")?;
    Ok(bytes.py().detach(|| blake3::hash(input.slice()).to_hex().to_string()))
}

/// (name, columns, dtype, rows a block, row offsets)
type Table = (String, u32, String, u32, Vec<u64>);

/// The text of `dataset.toml`, checked and sealed.
#[pyfunction]
pub(crate) fn sealed_manifest(
    py: Python<'_>,
    name: &str,
    part_offsets: Vec<u64>,
    graphs: Vec<(String, u64)>,
    tables: Vec<Table>,
    files: Vec<(String, u64, String)>,
) -> PyResult<String> {
    let wrong = |reason: String| raise(py, "DatasetError", &reason);
    let table_name = |name: String| TableName::new(name).map_err(|error| wrong(error.to_string()));
    let mut manifest = Manifest {
        format: FORMAT_VERSION,
        name: DatasetName::new(name).map_err(|error| wrong(error.to_string()))?,
        vertices: part_offsets.last().copied().unwrap_or_default(),
        edges: graphs.iter().map(|(_, edges)| edges).sum(),
        digest: String::new(),
        part_offsets,
        graphs: Vec::new(),
        tables: Vec::new(),
        files: files.into_iter().map(|(path, bytes, digest)| FileSpec { path, bytes, digest }).collect(),
        notes: vec!["written from Python".to_owned()],
    };
    for (name, edges) in graphs {
        manifest.graphs.push(GraphSpec { name: table_name(name)?, edges });
    }
    for (name, dim, dtype, rows_per_block, row_offsets) in tables {
        let dtype = element(&dtype).ok_or_else(|| wrong(format!("features cannot be {dtype}")))?;
        manifest.tables.push(TableSpec { name: table_name(name)?, dim, dtype, rows_per_block, row_offsets });
    }
    manifest.seal();
    manifest.check().map_err(|errors| wrong(errors.to_string()))?;
    Ok(manifest.to_toml())
}

fn element(name: &str) -> Option<Dtype> {
    Some(match name {
        "float32" => Dtype::F32,
        "float16" => Dtype::F16,
        "bfloat16" => Dtype::Bf16,
        "int8" => Dtype::I8,
        "uint8" => Dtype::U8,
        "int32" => Dtype::I32,
        "int64" => Dtype::I64,
        "float64" => Dtype::F64,
        _ => return None,
    })
}
