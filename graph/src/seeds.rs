//! Which training vertices an epoch visits, in which minibatch of which trainer.

use crate::random::Key;
use rudder_topology::VertexId;

/// One trainer's share of an epoch: shuffled, of the same number of minibatches for every trainer of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochSeeds {
    seeds: Vec<VertexId>,
    batch: usize,
}

/// How an epoch is dealt to the trainers of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    /// The training run's seed.
    pub seed: u64,
    pub epoch: u64,
    /// Seeds of one minibatch of one trainer; 0 counts as 1.
    pub batch: usize,
    /// This trainer's position among the job's, below `world`.
    pub rank: usize,
    /// Trainers of the job; 0 counts as 1.
    pub world: usize,
}

impl EpochSeeds {
    /// Shuffles `train_ids` by (seed, epoch) and deals them round robin. Trainers that would get one seed less
    /// take one from the start of the shuffle, as PyTorch's `DistributedSampler` does, so that all make the same
    /// number of steps. A rank outside the world gets nothing.
    #[must_use]
    pub fn new(deal: Deal, train_ids: &[VertexId]) -> Self {
        let (world, batch) = (deal.world.max(1), deal.batch.max(1));
        if train_ids.is_empty() || deal.rank >= world {
            return EpochSeeds { seeds: Vec::new(), batch };
        }
        let shuffled = shuffle(Key::new(deal.seed).with(0x5EED).with(deal.epoch), train_ids);
        let share = shuffled.len().div_ceil(world);
        let seeds = (0..share).map(|turn| shuffled[(turn * world + deal.rank) % shuffled.len()]).collect();
        EpochSeeds { seeds, batch }
    }

    #[must_use]
    pub fn minibatches(&self) -> u64 {
        self.seeds.len().div_ceil(self.batch) as u64
    }

    /// Seeds of a minibatch of the epoch; the last may be short; empty beyond.
    #[must_use]
    pub fn minibatch(&self, minibatch: u64) -> &[VertexId] {
        let start = usize::try_from(minibatch).ok().and_then(|m| m.checked_mul(self.batch));
        let rest = start.and_then(|start| self.seeds.get(start..)).unwrap_or_default();
        &rest[..rest.len().min(self.batch)]
    }
}

/// Fisher and Yates.
fn shuffle(draws: Key, ids: &[VertexId]) -> Vec<VertexId> {
    let mut shuffled = ids.to_vec();
    for last in (1..shuffled.len()).rev() {
        shuffled.swap(last, draws.below(last as u64, last as u64 + 1) as usize);
    }
    shuffled
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn ids(n: u32) -> Vec<VertexId> {
        (0..n).map(|v| VertexId(3 * v)).collect()
    }

    #[test]
    fn epochs_are_shuffled_differently_and_repeatably() {
        let deal = Deal { seed: 1, epoch: 0, batch: 10, rank: 0, world: 1 };
        let first = EpochSeeds::new(deal, &ids(100));
        assert_eq!(first, EpochSeeds::new(deal, &ids(100)));
        assert_ne!(first, EpochSeeds::new(Deal { epoch: 1, ..deal }, &ids(100)));
        assert_ne!(first, EpochSeeds::new(Deal { seed: 2, ..deal }, &ids(100)));
        assert_ne!(first.seeds, ids(100));
    }

    #[test]
    fn shuffles_are_even() {
        let mut at_front = [0_u32; 5];
        for epoch in 0..10_000 {
            at_front[shuffle(Key::new(3).with(epoch), &ids(5))[0].index() / 3] += 1;
        }
        // 2000 expected, standard deviation 40.
        assert!(at_front.iter().all(|n| (1780..2220).contains(n)), "{at_front:?}");
    }

    #[test]
    fn what_does_not_exist_is_empty() {
        let deal = Deal { seed: 1, epoch: 0, batch: 0, rank: 1, world: 0 };
        assert_eq!(EpochSeeds::new(deal, &ids(9)).minibatches(), 0);
        assert_eq!(EpochSeeds::new(Deal { rank: 0, ..deal }, &ids(9)).minibatches(), 9);
        assert_eq!(EpochSeeds::new(Deal { rank: 0, ..deal }, &[]).minibatches(), 0);
        assert!(EpochSeeds::new(Deal { rank: 0, ..deal }, &ids(9)).minibatch(u64::MAX).is_empty());
    }

    proptest! {
        #[test]
        fn trainers_cover_the_ids_in_equal_steps(n in 1_u32..200, world in 1_usize..9, batch in 1_usize..20) {
            let share = |rank| EpochSeeds::new(Deal { seed: 4, epoch: 2, batch, rank, world }, &ids(n));
            let mut dealt = Vec::new();
            for rank in 0..world {
                let share = share(rank);
                prop_assert_eq!(share.minibatches(), (n as u64).div_ceil(world as u64).div_ceil(batch as u64));
                let before = dealt.len();
                for minibatch in 0..share.minibatches() {
                    prop_assert!((1..=batch).contains(&share.minibatch(minibatch).len()));
                    dealt.extend_from_slice(share.minibatch(minibatch));
                }
                prop_assert_eq!(dealt.len() - before, (n as usize).div_ceil(world));
                prop_assert!(share.minibatch(share.minibatches()).is_empty());
            }
            let distinct: HashSet<_> = dealt.iter().collect();
            prop_assert_eq!(distinct.len(), n as usize);
            prop_assert!(dealt.len() - distinct.len() < world);
        }
    }
}
