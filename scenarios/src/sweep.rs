//! Many scenarios on many graphs with many cache sizes, simulated: is `rudder` ever worse than the best other arm?
//!
//! A *cell* is one scenario on one graph with one cache size. All arms of a cell serve the same requests.

mod cells;
pub mod table;

pub use cells::{SweepError, SweepOptions, sweep};

use crate::arm::Arm;
use crate::record::{Outcome, fastest};
use crate::report::Reference;
use serde::Serialize;

/// `rudder` may be worse than the best other arm by this share of its throughput.
pub const WORSE_MAX: f64 = 0.01;
/// Minibatches that touch more of the vertices than this have nearly all of the graph in common.
pub const VERTEX_SHARE_MAX: f64 = 0.01;

/// All cells, in the order of scenarios, then graphs, then cache sizes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sweep {
    pub cells: Vec<Cell>,
    /// Simulations that did not come to an end, and why. Empty where all is well.
    pub failures: Vec<String>,
    /// It was stopped on request: the cells are those of the scenarios and graphs that were done before.
    pub stopped: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub scenario: String,
    pub graph: String,
    pub vertices: u64,
    pub row_bytes: u64,
    pub rows_per_block: u32,
    pub seed: u64,
    /// Of each trainer.
    pub minibatches: u32,
    /// Of the vertices, that a minibatch touches.
    pub vertex_share: f64,
    /// Of the remote bytes, that the cache of a compute node holds.
    pub cache_share: f64,
    pub arms: Vec<Outcome>,
    pub bound: Option<Reference>,
    pub oracle: Option<Reference>,
}

impl Cell {
    #[must_use]
    pub fn rudder(&self) -> Option<&Outcome> {
        self.arms.iter().find(|arm| arm.arm == Arm::Rudder)
    }

    /// The fastest arm beside `rudder`.
    #[must_use]
    pub fn best_other(&self) -> Option<&Outcome> {
        fastest(self.arms.iter().filter(|arm| arm.arm != Arm::Rudder))
    }

    /// Throughput of `rudder` over that of the best other arm.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let other = self.best_other()?.minibatches_per_s;
        let rudder = self.rudder()?.minibatches_per_s;
        (other > 0.0).then(|| rudder / other)
    }

    /// Whether `rudder` is worse than it may be.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.ratio().is_some_and(|ratio| ratio < 1.0 - WORSE_MAX)
    }

    #[must_use]
    pub fn touches_too_much(&self) -> bool {
        self.vertex_share > VERTEX_SHARE_MAX
    }
}

#[cfg(test)]
mod tests;
