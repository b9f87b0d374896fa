//! What a dataset directory says about itself.

use crate::error::raise;
use pyo3::prelude::*;
use rudder_client::dataset::read_manifest;
use rudder_graph::{Dtype, Manifest, layout};
use std::path::PathBuf;

/// A checked `dataset.toml`.
#[pyclass(frozen, module = "rudder._native", name = "Manifest")]
pub(crate) struct DatasetManifest {
    manifest: Manifest,
}

#[pymethods]
impl DatasetManifest {
    #[new]
    fn new(py: Python<'_>, directory: PathBuf) -> PyResult<Self> {
        let manifest = py.detach(|| read_manifest(&directory.join(layout::MANIFEST)));
        let manifest = manifest.map_err(|error| {
            let advice = "give a directory that `rudder import` wrote";
            raise(py, "DatasetError", &format!("{error}; {advice}"))
        })?;
        Ok(DatasetManifest { manifest })
    }

    #[getter]
    fn name(&self) -> String {
        self.manifest.name.to_string()
    }

    #[getter]
    fn digest(&self) -> &str {
        &self.manifest.digest
    }

    #[getter]
    fn vertices(&self) -> u64 {
        self.manifest.vertices
    }

    #[getter]
    fn part_offsets(&self) -> Vec<u64> {
        self.manifest.part_offsets.clone()
    }

    /// (name, edges) of each graph.
    #[getter]
    fn graphs(&self) -> Vec<(String, u64)> {
        self.manifest.graphs.iter().map(|graph| (graph.name.to_string(), graph.edges)).collect()
    }

    /// (name, columns, dtype, row offsets of the parts) of each table.
    #[getter]
    fn tables(&self) -> Vec<(String, u32, &'static str, Vec<u64>)> {
        let table = |table: &rudder_graph::TableSpec| {
            (table.name.to_string(), table.dim, dtype(table.dtype), table.row_offsets.clone())
        };
        self.manifest.tables.iter().map(table).collect()
    }

    /// Whether the dataset lists the file.
    fn has(&self, path: &str) -> bool {
        self.manifest.file(path).is_some()
    }
}

fn dtype(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float32",
        Dtype::F16 => "float16",
        Dtype::Bf16 => "bfloat16",
        Dtype::I8 => "int8",
        Dtype::U8 => "uint8",
        Dtype::I32 => "int32",
        Dtype::I64 => "int64",
        Dtype::F64 => "float64",
    }
}
