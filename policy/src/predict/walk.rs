//! Monte Carlo from seeds that are known to come, where the sampler's own draws are not.

use super::prior::{Counts, Training};
use super::{Certainty, Horizon, Predictor};
use rudder_graph::sampler::{SampleKey, Sampler};
use rudder_topology::{BlockId, VertexId};
use std::sync::Arc;

/// Walks from the seeds of each coming minibatch. A walk branches as the sampler does, up to the fan-out at every
/// vertex, with draws of its own. The share of walks that touch a block is its expected use; with more walks it tends
/// to the true one, its standard deviation at most 1 / (2 sqrt(walks x minibatches)).
#[derive(Clone, Debug)]
pub struct RandomWalk {
    minibatches: u32,
    uses: Arc<[f32]>,
}

impl RandomWalk {
    /// `coming[m]`: the seeds of the m-th coming minibatch. Walk w of a minibatch draws by (training.seed, w, m) alone.
    #[must_use]
    pub fn new(training: &Training<'_>, coming: &[&[VertexId]], walks: u32) -> Self {
        let mut counts = Counts::new(training);
        let mut sampler = Sampler::new(training.fanout.to_vec());
        let mut rows = vec![];
        for (minibatch, seeds) in (0..).zip(coming) {
            for walk in 0..u64::from(walks) {
                let key = SampleKey { seed: training.seed, epoch: walk, minibatch };
                let touched = sampler.sample(training.graph, key, seeds);
                rows.clear();
                rows.extend(touched.iter().map(|vertex| vertex.0));
                counts.add(&rows);
            }
        }
        RandomWalk { minibatches: coming.len() as u32, uses: counts.per_minibatch() }
    }
}

impl Predictor for RandomWalk {
    fn horizon(&self) -> Horizon {
        Horizon::Minibatches(self.minibatches)
    }

    fn certainty(&self) -> Certainty {
        Certainty::Likelihood
    }

    fn expected_uses(&self, block: BlockId) -> f32 {
        self.uses.get(block.index()).copied().unwrap_or(0.0)
    }
}
