//! Where a row can be read: one u64 that trainers, node and gather share.
//!
//! ```text
//! bits 63..48  mapping: 0 .. 0x7fff cache chunk n, 0x8000 .. 0xfffe local feature file n, 0xffff private buffer
//! bits 47..0   byte offset in the mapping
//! ```

use serde::{Deserialize, Serialize};

/// First mapping index of the co-located feature files.
pub const LOCAL_MAPPINGS: u16 = 0x8000;
/// The client's private buffer, for rows that came in pieces past the cache.
pub const PRIVATE_MAPPING: u16 = 0xffff;

/// A row's place: (mapping, byte offset).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Location(pub u64);

impl Location {
    /// # Panics
    /// In debug builds, if the offset does not fit 48 bits.
    #[must_use]
    pub fn new(mapping: u16, offset: u64) -> Self {
        debug_assert!(offset < 1 << 48);
        Location(u64::from(mapping) << 48 | offset)
    }

    #[must_use]
    pub fn mapping(self) -> u16 {
        (self.0 >> 48) as u16
    }

    #[must_use]
    pub fn offset(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }
}
