//! Real processes: the built binaries, started and always ended.
//!
//! Reading order: wait, binaries, child, cluster.

mod binaries;
mod child;
pub mod cluster;
mod wait;

pub use binaries::binary;
pub use child::{Child, Exit};
pub use wait::{Late, await_until};
