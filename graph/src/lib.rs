//! Pure: CSC graph over slices, dataset manifest and on-disk layout, partition book, deterministic neighbor
//! sampler, VIP. No files, no runtime, no clock.

#![forbid(unsafe_code)]

pub mod dtype;
pub mod layout;

pub mod manifest;

pub mod book;

pub mod rows;

pub mod location;

pub mod random;

pub mod generate;

pub use book::{BlockPlace, PartitionBook, RowPlace};
pub use dtype::Dtype;
pub use layout::Split;
pub use manifest::{FileSpec, GraphSpec, Manifest, TableSpec};
pub use rows::{BlockRows, Class};
