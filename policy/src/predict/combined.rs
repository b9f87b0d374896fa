//! Predictors made of others.

use super::{Certainty, Horizon, NextUse, Observed, Predictor};
use rudder_graph::BlockRows;
use rudder_topology::BlockId;
use std::sync::Arc;

/// A prior that gives way to what is observed. A block's uses per minibatch are taken for Poisson, their rate for
/// Gamma-distributed with shape k q and rate k, where q is the prior's expectation and k its weight in minibatches;
/// after n uses in N minibatches (both decayed) the expected rate is (k q + n) / (k + N).
#[derive(Clone, Debug)]
pub struct Shrunk {
    prior: Arc<[f32]>,
    weight_minibatches: f64,
    observed: Observed,
}

impl Shrunk {
    /// `prior[b]`: expected uses per minibatch of block b; a block that it does not reach has 0.
    #[must_use]
    pub fn new(prior: Arc<[f32]>, weight_minibatches: f32, blocks: u32) -> Self {
        let weight_minibatches = f64::from(weight_minibatches.max(0.0));
        Shrunk { prior, weight_minibatches, observed: Observed::new(blocks) }
    }

    /// A minibatch used these blocks.
    pub fn record(&mut self, blocks: &[BlockRows], half_life_minibatches: f32) {
        self.observed.record(blocks, half_life_minibatches);
    }
}

impl Predictor for Shrunk {
    fn horizon(&self) -> Horizon {
        Horizon::Endless
    }

    fn certainty(&self) -> Certainty {
        Certainty::Likelihood
    }

    fn expected_uses(&self, block: BlockId) -> f32 {
        let evidence = self.weight_minibatches + self.observed.minibatches();
        if evidence == 0.0 {
            return 0.0;
        }
        let prior = f64::from(self.prior.get(block.index()).copied().unwrap_or(0.0));
        let expected = (self.weight_minibatches * prior + self.observed.uses(block)) / evidence;
        (expected as f32).min(1.0)
    }
}

/// Exact where a use is known, likelihood beyond.
#[derive(Clone, Copy, Debug)]
pub struct Combined<E, L> {
    pub exact: E,
    pub likelihood: L,
}

impl<E: Predictor, L: Predictor> Predictor for Combined<E, L> {
    fn horizon(&self) -> Horizon {
        self.likelihood.horizon()
    }

    fn certainty(&self) -> Certainty {
        Certainty::Likelihood
    }

    /// What the likelihood part expects: of minibatches that nobody knows yet.
    fn expected_uses(&self, block: BlockId) -> f32 {
        self.likelihood.expected_uses(block)
    }

    fn next_use(&self, block: BlockId) -> Option<NextUse> {
        self.exact.next_use(block)
    }
}
