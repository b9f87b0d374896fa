//! Names of the files of a dataset directory, relative to it, with `/` between their parts.

use rudder_topology::{PartId, TableName};
use serde::{Deserialize, Serialize};

pub const MANIFEST: &str = "dataset.toml";
pub const LABELS: &str = "labels.npy";
/// Dataset id -> original id.
pub const ORIGINAL_ID: &str = "original_id.npy";
/// Original id -> dataset id.
pub const DATASET_ID: &str = "dataset_id.npy";

/// Which vertices are used for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    Train,
    Valid,
    Test,
}

impl Split {
    pub const ALL: [Split; 3] = [Split::Train, Split::Valid, Split::Test];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Valid => "valid",
            Split::Test => "test",
        }
    }
}

#[must_use]
pub fn indptr(graph: &TableName) -> String {
    format!("graph/{graph}.indptr.npy")
}

#[must_use]
pub fn indices(graph: &TableName) -> String {
    format!("graph/{graph}.indices.npy")
}

#[must_use]
pub fn split(split: Split) -> String {
    format!("split_{}.npy", split.name())
}

/// Directory of a part.
#[must_use]
pub fn part(part: PartId) -> String {
    format!("parts/{}", part.0)
}

/// Feature rows of a table in a part.
#[must_use]
pub fn features(part: PartId, table: &TableName) -> String {
    format!("parts/{}/{table}.npy", part.0)
}

/// Checksum table beside [`features`].
#[must_use]
pub fn checksums(part: PartId, table: &TableName) -> String {
    format!("parts/{}/{table}.crc.npy", part.0)
}
