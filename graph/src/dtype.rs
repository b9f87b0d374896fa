//! Element types of feature rows. Bytes stay bytes: nothing here converts.

use serde::{Deserialize, Serialize};

/// The declared type of a feature element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    F32,
    F16,
    /// numpy has no bfloat16: stored as `u2`, declared in the manifest.
    Bf16,
    I8,
    U8,
    I32,
    I64,
    F64,
}

impl Dtype {
    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Dtype::I8 | Dtype::U8 => 1,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::I64 | Dtype::F64 => 8,
        }
    }
}
