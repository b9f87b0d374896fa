//! Typed identifiers. No id crosses a public signature as a bare integer or string.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The id as an index into a dense table.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// 1 to 64 of `a-z A-Z 0-9 . _ -`, not starting with a dot or dash: safe in file names,
            /// certificates, metrics and log lines.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                match check_name(&text) {
                    Ok(()) => Ok(Self(text)),
                    Err(reason) => Err(NameError { text: text.chars().take(80).collect(), reason }),
                }
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a name: {reason}")]
pub struct NameError {
    pub text: String,
    pub reason: &'static str,
}

fn check_name(text: &str) -> Result<(), &'static str> {
    if text.is_empty() || text.len() > 64 {
        return Err("a name has 1 to 64 characters");
    }
    if text.starts_with(['.', '-']) {
        return Err("a name does not start with `.` or `-`");
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !text.chars().all(allowed) {
        return Err("a name is made of a-z A-Z 0-9 . _ -");
    }
    Ok(())
}

id!(/// A node of the cluster: its position in the topology file.
    NodeId(u16), "N");
id!(/// A part: the blocks owned by one storage node (or its replicas).
    PartId(u16), "P");
id!(/// A block, unique over all feature tables of its dataset.
    BlockId(u32), "B");
id!(/// A feature table of a dataset: its position in the manifest.
    TableId(u16), "T");
id!(/// A dataset id of a vertex (after import's renumbering).
    VertexId(u32), "v");
id!(/// A training run.
    JobId(u32), "J");
id!(/// A trainer process within its job.
    TrainerRank(u32), "R");
id!(/// A minibatch of one trainer, counted over the whole run, never reused.
    MinibatchId(u64), "M");
id!(/// An incarnation of a node. Replies of an older one are refused.
    Generation(u64), "G");
id!(/// A transfer: one request to a storage node, unique within the asking node's incarnation.
    TransferId(u64), "X");
id!(/// A memory chunk of a cache.
    ChunkId(u16), "C");
id!(/// A slot: where a block is resident in a compute node's shared memory.
    SlotId(u32), "S");

name!(/// A node's name, as in the topology file and its certificate.
    NodeName);
name!(/// What shares one memory: nodes of the same machine can map each other's parts.
    MachineName);
name!(/// A dataset's name, as in its manifest and the topology file.
    DatasetName);
name!(/// A feature table's name.
    TableName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_refuse_what_would_bite_in_paths_and_logs() {
        for bad in ["", ".", "-x", "a b", "a/b", "ä", "a\n", &"x".repeat(65)] {
            assert!(NodeName::new(bad).is_err(), "{bad:?}");
        }
        for good in ["c0", "storage-1", "A.b_c", &"x".repeat(64)] {
            assert_eq!(NodeName::new(good).unwrap().as_str(), good);
        }
    }
}
