//! Pure: CSC graph over slices, dataset manifest and on-disk layout, partition book, deterministic neighbor
//! sampler, VIP. No files, no runtime, no clock.
//!
//! Reading order: as declared below.

#![forbid(unsafe_code)]

pub mod dtype;
pub mod layout;

pub mod manifest;

pub mod npy;

pub mod crc;

pub mod book;

pub mod rows;

pub mod demand;

pub mod location;

pub mod csc;

pub mod random;

pub mod sampler;

pub mod seeds;

pub mod trace;

pub mod vip;

pub mod generate;

pub use book::{BlockPlace, PartitionBook, RowPlace};
pub use csc::Csc;
pub use demand::{Demand, DemandMapper, UnknownRow, rows_to_blocks};
pub use dtype::Dtype;
pub use layout::Split;
pub use manifest::{FileSpec, GraphSpec, Manifest, TableSpec};
pub use rows::{BlockRows, Class};
pub use sampler::{SampleKey, Sampler};
pub use seeds::{Deal, EpochSeeds};
pub use trace::{Trace, TraceDigest, TraceSpec};
