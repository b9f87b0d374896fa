//! `dataset.toml`: what a dataset directory holds.
//!
//! ```text
//! DIR/dataset.toml
//! DIR/graph/<name>.indptr.npy      u64 [vertices + 1]   CSC: in-neighbours of each vertex
//! DIR/graph/<name>.indices.npy     u32 [edges]
//! DIR/labels.npy                   i64 [vertices]       -1: none (file absent: no labels)
//! DIR/split_{train,valid,test}.npy u32 [n]              dataset ids (absent: no split)
//! DIR/original_id.npy              u64 [vertices]       dataset id -> original id
//! DIR/dataset_id.npy               u32 [vertices]       original id -> dataset id
//! DIR/parts/<p>/<table>.npy        [rows, dim]          rows of the part; data starts at byte 4096
//! DIR/parts/<p>/<table>.crc.npy    u32 [blocks]         CRC32C of each block's bytes
//! ```
//!
//! All vertex ids inside are dataset ids: import numbers vertices part by part.

use crate::dtype::Dtype;
use rudder_topology::{DatasetName, TableName};
use serde::{Deserialize, Serialize};

/// Feature data starts here in its `.npy` file, so that blocks can be read with `O_DIRECT`.
pub const FEATURE_DATA_OFFSET: u64 = 4096;

/// The layout's version; a reader refuses others.
pub const FORMAT_VERSION: u32 = 1;

/// The parsed manifest. [`Manifest::check`] has passed on every value that a reader returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub name: DatasetName,
    pub vertices: u64,
    pub edges: u64,
    /// BLAKE3 over the graph files, the checksum tables and the manifest without this field; hex.
    pub digest: String,
    /// `part_offsets[p] .. part_offsets[p + 1]` are the vertices of part p. At least two entries; empty parts are valid.
    pub part_offsets: Vec<u64>,
    pub graphs: Vec<GraphSpec>,
    pub tables: Vec<TableSpec>,
    /// What import weighed, for `rudder inspect`. Free text, one line each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A typed graph in CSC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSpec {
    pub name: TableName,
    pub edges: u64,
}

/// A feature table. Vertex tables have one row a vertex; other tables state their own part offsets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    pub name: TableName,
    pub dim: u32,
    pub dtype: Dtype,
    /// A power of two, 1 to 64.
    pub rows_per_block: u32,
    /// `row_offsets[p] .. row_offsets[p + 1]` are the rows of part p.
    pub row_offsets: Vec<u64>,
}

impl TableSpec {
    /// Bytes of one row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.dim as usize * self.dtype.size()
    }

    /// Bytes of one full block, which is also its slot's size class.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.row_bytes() * self.rows_per_block as usize
    }
}
