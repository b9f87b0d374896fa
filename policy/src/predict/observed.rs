//! What was used so far, newer uses weighing more.

use super::{Certainty, Horizon, Predictor};
use crate::arms::Frequency;
use rudder_graph::BlockRows;
use rudder_topology::BlockId;

/// Decayed use counts over decayed minibatches: of a use (or minibatch) one half-life ago half is left.
#[derive(Clone, Debug)]
pub struct Observed {
    frequency: Frequency,
    minibatches: f64,
}

impl Observed {
    /// Nothing was used yet.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        Observed { frequency: Frequency::new(blocks), minibatches: 0.0 }
    }

    /// A minibatch used these blocks.
    pub fn record(&mut self, blocks: &[BlockRows], half_life_minibatches: f32) {
        self.minibatches = self.minibatches * (-1.0 / f64::from(half_life_minibatches)).exp2() + 1.0;
        self.frequency.record(blocks, half_life_minibatches);
    }

    /// Decayed number of minibatches recorded: how much evidence there is. At most about 1.44 half-lives.
    #[must_use]
    pub fn minibatches(&self) -> f64 {
        self.minibatches
    }

    /// Decayed number of uses.
    #[must_use]
    pub fn uses(&self, block: BlockId) -> f64 {
        f64::from(self.frequency.score(block) - self.frequency.now()).exp2()
    }
}

impl Predictor for Observed {
    fn horizon(&self) -> Horizon {
        Horizon::Endless
    }

    fn certainty(&self) -> Certainty {
        Certainty::Likelihood
    }

    fn expected_uses(&self, block: BlockId) -> f32 {
        if self.minibatches == 0.0 {
            return 0.0;
        }
        ((self.uses(block) / self.minibatches) as f32).min(1.0)
    }
}
