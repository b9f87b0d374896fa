//! Typed ids and units, and the cluster specification: a TOML file compiled into a [`Cluster`].
//!
//! Reading order: ids, units, quantity, policy, advisor, cluster, spec, compile, routes, show.

#![forbid(unsafe_code)]

pub mod advisor;
pub mod cluster;
mod compile;
pub mod error;
pub mod ids;
pub mod policy;
pub mod quantity;
mod routes;
pub mod show;
pub mod spec;
pub mod units;

pub use advisor::{Advisor, AdvisorBackend, AnswerForm, SecretPlace};
pub use cluster::*;
pub use compile::{FILE_BYTES_MAX, NODES_MAX, check_cache, compile, load};
pub use error::{TopologyError, TopologyErrorKind, TopologyErrors};
pub use ids::*;
pub use policy::*;
pub use units::*;
