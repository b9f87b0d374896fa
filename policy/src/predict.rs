//! Which blocks will be used: exactly where a future is known, by likelihood beyond it.
//!
//! Every predictor answers in the same unit: **expected uses of a block by one minibatch** of the kind that the
//! node's trainers ask for, between 0 and 1, where a use is a minibatch that reads any row of the block. So answers
//! of different predictors can be compared and mixed.
//!
//! | predictor | certainty | horizon | source |
//! |---|---|---|---|
//! | [`ExactWindow`] | exact | what is announced or foreseen | the trainers, or a replay of their sampler |
//! | [`RandomWalk`] | likelihood | the minibatches whose seeds it was given | Monte Carlo with the fan-out |
//! | [`Prior`] `Presc` | likelihood | an epoch | visit counts over K pre-sampled epochs (GNNLab) |
//! | [`Prior`] `Vip` | likelihood | an epoch | analytic inclusion probabilities (SALIENT++) |
//! | [`Prior`] `Degree` | likelihood | endless | in-degree (PaGraph, Quiver) |
//! | [`Observed`] | likelihood | endless | decayed use counts |
//! | [`Shrunk`] | likelihood | endless | a prior that gives way to what is observed |
//! | [`Combined`] | exact, then likelihood | that of its likelihood part | any of the above |
//!
//! Reading order: this, prior, walk, observed, combined, exact.

use rudder_topology::BlockId;
use std::cmp::Ordering;

mod combined;
mod exact;
mod observed;
mod prior;
mod walk;

pub use combined::{Combined, Shrunk};
pub use exact::ExactWindow;
pub use observed::Observed;
pub use prior::{Prior, PriorKind, Training, prior};
pub use walk::RandomWalk;

/// How far a predictor sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    /// So many minibatches.
    Minibatches(u32),
    /// One pass over the training vertices, in whatever order.
    Epoch,
    Endless,
}

/// What a predictor's answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Within its horizon there are the uses that it names, and no others.
    Exact,
    Likelihood,
}

/// A known use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextUse {
    /// Minibatches of its trainer that are used before.
    pub minibatches_ahead: u32,
    /// Estimated time until then, in nanoseconds.
    pub in_ns: u64,
}

/// Says which blocks will be used. Pure: the same facts and the same seed give the same answers.
pub trait Predictor {
    fn horizon(&self) -> Horizon;

    fn certainty(&self) -> Certainty;

    /// Uses of the block that one minibatch within the horizon is expected to make, from 0 to 1.
    fn expected_uses(&self, block: BlockId) -> f32;

    /// The next use, where it is known. Predictors of likelihood know none.
    fn next_use(&self, _block: BlockId) -> Option<NextUse> {
        None
    }

    fn outlook(&self, block: BlockId) -> Outlook {
        match self.next_use(block) {
            Some(next) => Outlook::Known(next),
            None => Outlook::Likely(self.expected_uses(block)),
        }
    }
}

/// What is to be expected of a block. The greater is needed sooner: a known use comes before every unknown one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outlook {
    Known(NextUse),
    /// Expected uses per minibatch.
    Likely(f32),
}

impl Outlook {
    /// Orders by how soon the block is needed, soonest greatest.
    #[must_use]
    pub fn compare(&self, other: &Outlook) -> Ordering {
        match (self, other) {
            (Outlook::Known(a), Outlook::Known(b)) => b.in_ns.cmp(&a.in_ns),
            (Outlook::Known(_), Outlook::Likely(_)) => Ordering::Greater,
            (Outlook::Likely(_), Outlook::Known(_)) => Ordering::Less,
            (Outlook::Likely(a), Outlook::Likely(b)) => a.total_cmp(b),
        }
    }
}

#[cfg(test)]
mod tests;
