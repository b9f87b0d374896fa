//! How often and how recently blocks were used: an exponentially decayed count. 4 bytes a block.

use rudder_graph::BlockRows;
use rudder_topology::BlockId;

/// Decayed counts. With half-life H, a use at minibatch n weighs 2^(n / H) for ever, so nothing has to be decayed
/// later: only ratios of counts have a meaning, and those are what an order needs. Before a weight gets too large to
/// write down, all counts are divided by the same number, some of them with each minibatch.
#[derive(Clone, Debug)]
pub(crate) struct Frequency {
    counts: Vec<f32>,
    /// What a use counts now.
    weight: f64,
    /// Times that counts were divided.
    rescales: u32,
    /// Blocks below were divided as often as `rescales` says, blocks from here on once less.
    rescaled: usize,
    /// Minibatches recorded, decayed, and those that the prior stands for.
    minibatches: f64,
}

/// Counts are divided by 2^64.
const RESCALE_LOG2: u32 = 64;
const RESCALE: f64 = (1_u128 << RESCALE_LOG2) as f64;

/// Bits of a count's mantissa that its step keeps: 4 steps for each doubling.
const STEP_BITS: u32 = 2;
/// Steps of a count that is twice as large.
pub(super) const STEPS_PER_DOUBLING: u32 = 1 << STEP_BITS;

impl Frequency {
    pub fn new(blocks: u32) -> Self {
        let counts = vec![0.0; blocks as usize];
        Frequency { rescaled: counts.len(), counts, weight: 1.0, rescales: 0, minibatches: 0.0 }
    }

    /// Starts with a prior, expected uses per minibatch of each block, that weighs as much as so many minibatches and
    /// fades as they would: Gamma-Poisson shrinkage, see [`crate::predict::Shrunk`].
    pub fn with_prior(blocks: u32, prior: &[f32], minibatches: f32) -> Self {
        let mut frequency = Frequency::new(blocks);
        for (count, uses) in frequency.counts.iter_mut().zip(prior) {
            *count = uses.clamp(0.0, 1.0) * minibatches;
        }
        frequency.minibatches = f64::from(minibatches);
        frequency
    }

    /// Expected uses per minibatch.
    pub fn expected_uses(&self, block: BlockId) -> f32 {
        if self.minibatches == 0.0 {
            return 0.0;
        }
        (f64::from(self.score(block) - self.now()).exp2() / self.minibatches) as f32
    }

    /// One minibatch used these blocks.
    pub fn record(&mut self, blocks: &[BlockRows], half_life_minibatches: f32) {
        let half_life = f64::from(half_life_minibatches);
        self.minibatches = self.minibatches * (-half_life.recip()).exp2() + 1.0;
        self.weight *= half_life.recip().exp2();
        if self.weight >= RESCALE {
            self.rescale(self.counts.len());
            self.weight /= RESCALE;
            self.rescales += 1;
            self.rescaled = 0;
        }
        let weight = self.weight as f32;
        if self.rescaled == self.counts.len() {
            for rows in blocks {
                if let Some(count) = self.counts.get_mut(rows.block.index()) {
                    *count += weight;
                }
            }
            return;
        }
        let former = (self.weight * RESCALE) as f32;
        for rows in blocks {
            let at = rows.block.index();
            if let Some(count) = self.counts.get_mut(at) {
                *count += if at < self.rescaled { weight } else { former };
            }
        }
        // Done when half of the time to the next one has passed.
        let minibatches = (half_life * f64::from(RESCALE_LOG2) / 2.0).max(1.0);
        self.rescale((self.counts.len() as f64 / minibatches).ceil() as usize);
    }

    /// Divides the counts of that many blocks.
    fn rescale(&mut self, blocks: usize) {
        let end = self.counts.len().min(self.rescaled.saturating_add(blocks));
        for count in &mut self.counts[self.rescaled..end] {
            *count = (f64::from(*count) / RESCALE) as f32;
        }
        self.rescaled = end;
    }

    /// Times that this block's count was divided.
    fn rescales(&self, block: BlockId) -> u32 {
        if block.index() < self.rescaled { self.rescales } else { self.rescales - 1 }
    }

    /// log2 of what a single use by the newest minibatch counts.
    pub fn now(&self) -> f32 {
        self.weight.log2() as f32 + (self.rescales * RESCALE_LOG2) as f32
    }

    /// log2 of the weighted count; minus infinity where no use was recorded.
    pub fn score(&self, block: BlockId) -> f32 {
        let count = self.counts.get(block.index()).copied().unwrap_or(0.0);
        if count == 0.0 {
            return f32::NEG_INFINITY;
        }
        count.log2() + (self.rescales(block) * RESCALE_LOG2) as f32
    }

    /// The count in steps, four for each doubling: a block's step never falls. Exponent and first bits of the mantissa
    /// of a floating-point number are its logarithm, near enough.
    #[inline]
    pub fn step(&self, block: BlockId) -> u32 {
        let count = self.counts.get(block.index()).copied().unwrap_or(0.0);
        let step = count.to_bits() >> (f32::MANTISSA_DIGITS - 1 - STEP_BITS);
        step + ((self.rescales(block) * RESCALE_LOG2) << STEP_BITS)
    }

    /// Brings the counts of these blocks near.
    #[inline]
    pub fn touch(&self, blocks: impl Iterator<Item = u32>) {
        let read = |block: u32| self.counts.get(block as usize).map_or(0, |count| count.to_bits());
        std::hint::black_box(blocks.map(read).fold(0, |all, bits| all | bits));
    }

    pub fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(block: u32) -> BlockRows {
        BlockRows { block: BlockId(block), mask: 1 }
    }

    #[test]
    fn counts_decay_by_half_over_a_half_life() {
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
        assert!((frequency.now() - frequency.score(BlockId(2))).abs() < 1e-4);
        assert_eq!(Frequency::new(1).score(BlockId(0)), f32::NEG_INFINITY);
    }

    proptest! {
        /// Over several divisions, whose work is spread over minibatches, scores are what the definition says.
        #[test]
        fn dividing_changes_nothing_but_what_is_long_ago(
            uses in proptest::collection::vec(proptest::collection::vec(0_u32..40, 0..6), 1..400),
            half_life in 1.0_f32..3.0,
        ) {
            let mut frequency = Frequency::new(40);
            let mut twin = [0.0_f64; 40];
            let mut steps = [0; 40];
            for used in &uses {
                let blocks: Vec<_> = used.iter().map(|&block| rows(block)).collect();
                frequency.record(&blocks, half_life);
                twin.iter_mut().for_each(|count| *count /= (1.0 / f64::from(half_life)).exp2());
                used.iter().for_each(|&block| twin[block as usize] += 1.0);
                for block in 0..40 {
                    let step = frequency.step(BlockId(block as u32));
                    prop_assert!(step >= steps[block], "a step falls");
                    steps[block] = step;
                    let score = f64::from(frequency.score(BlockId(block as u32)) - frequency.now());
                    if twin[block] > 1e-12 {
                        prop_assert!((score - twin[block].log2()).abs() < 0.01, "{score} {}", twin[block]);
                    } else if twin[block] == 0.0 {
                        prop_assert_eq!(score, f64::from(f32::NEG_INFINITY));
                    }
                }
            }
        }
    }
}
