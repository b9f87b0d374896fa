//! How busy links were in a simulated run.

use rudder_topology::{Bytes, BytesPerSecond, NodeId};

/// A link, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The sending side of a node's interface.
    OutOf(NodeId),
    /// The receiving side.
    Into(NodeId),
    /// What two nodes have for each other alone, in this direction.
    Between(NodeId, NodeId),
}

/// What a link carried, headers counted in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkUse {
    pub way: Way,
    pub rate: BytesPerSecond,
    pub bytes: Bytes,
    /// Share of the run's time that the link needed for that at its full rate.
    pub busy: f64,
}

impl LinkUse {
    pub(super) fn new(way: Way, bytes: f64, rate: f64, run_ns: u64) -> LinkUse {
        let possible = rate * run_ns as f64 / 1e9;
        let busy = if possible > 0.0 { (bytes / possible).clamp(0.0, 1.0) } else { 0.0 };
        LinkUse { way, rate: BytesPerSecond(rate as u64), bytes: Bytes(bytes.max(0.0) as u64), busy }
    }
}
