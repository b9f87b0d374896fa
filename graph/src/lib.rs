//! Pure: CSC graph over slices, dataset manifest and on-disk layout, partition book, deterministic neighbor
//! sampler, VIP. No files, no runtime, no clock.
//!
//! Reading order: dtype, manifest, book, rows.

#![forbid(unsafe_code)]

pub mod book;
pub mod dtype;
pub mod manifest;
pub mod rows;

pub use book::{BlockPlace, PartitionBook, RowPlace};
pub use dtype::Dtype;
pub use manifest::{GraphSpec, Manifest, TableSpec};
pub use rows::{BlockRows, Class};
