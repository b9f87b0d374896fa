//! How often and how recently blocks were used: an exponentially decayed count. 4 bytes a block.

use rudder_graph::BlockRows;
use rudder_topology::BlockId;

/// Decayed counts in the log domain. With half-life H, a use at minibatch n weighs 2^(n / H) for ever, so nothing
/// has to be decayed later: only ratios of counts have a meaning, and those are what an order needs.
#[derive(Clone, Debug)]
pub(crate) struct Frequency {
    /// log2 of the weighted count.
    scores: Vec<f32>,
    /// log2 weight of a use now.
    weight: f64,
}

impl Frequency {
    pub fn new(blocks: u32) -> Self {
        Frequency { scores: vec![f32::NEG_INFINITY; blocks as usize], weight: 0.0 }
    }

    /// One minibatch used these blocks.
    pub fn record(&mut self, blocks: &[BlockRows], half_life_minibatches: f32) {
        self.weight += 1.0 / f64::from(half_life_minibatches);
        let weight = self.weight as f32;
        for rows in blocks {
            let score = &mut self.scores[rows.block.index()];
            let (low, high) = if *score < weight { (*score, weight) } else { (weight, *score) };
            // Below 2^-24 of it the smaller count is lost in the larger one's rounding.
            if high - low > 24.0 {
                *score = high;
                continue;
            }
            *score = high + (low - high).exp2().ln_1p() * std::f32::consts::LOG2_E;
        }
    }

    /// log2 of what a single use by the newest minibatch counts.
    pub fn now(&self) -> f32 {
        self.weight as f32
    }

    /// log2 of the weighted count.
    pub fn score(&self, block: BlockId) -> f32 {
        self.scores.get(block.index()).copied().unwrap_or(f32::NEG_INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_decay_by_half_over_a_half_life() {
        let rows = |block| BlockRows { block: BlockId(block), mask: 1 };
        let mut frequency = Frequency::new(3);
        frequency.record(&[rows(0), rows(1)], 4.0);
        for _ in 0..4 {
            frequency.record(&[], 4.0);
        }
        frequency.record(&[rows(1), rows(2)], 4.0);
        // Block 0 was used once 5 minibatches ago, block 2 once now: 2^(5/4) between them.
        let ratio = frequency.score(BlockId(2)) - frequency.score(BlockId(0));
        assert!((ratio - 1.25).abs() < 1e-4, "{ratio}");
        // Block 1 has both uses.
        let both = (1.0_f32 + (-1.25_f32).exp2()).log2();
        assert!((frequency.score(BlockId(1)) - frequency.score(BlockId(2)) - both).abs() < 1e-4);
        assert_eq!(Frequency::new(1).score(BlockId(0)), f32::NEG_INFINITY);
    }
}
