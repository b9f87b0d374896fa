//! Typed ids and units, and the cluster specification: a TOML file compiled into a [`Cluster`].
//!
//! Reading order: ids, units, cluster, spec, compile, routes.

#![forbid(unsafe_code)]

pub mod cluster;
pub mod ids;
mod routes;
pub mod units;

pub use cluster::*;
pub use ids::*;
pub use units::*;
