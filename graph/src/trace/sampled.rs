//! What a trainer will ask for: seeds of its share of every epoch, sampled. Trainer, replay and report sample alike.

use crate::csc::Csc;
use crate::sampler::{SampleKey, Sampler};
use crate::seeds::{Deal, EpochSeeds};
use rudder_topology::{MinibatchId, TrainerRank, VertexId};

/// Which trace: everything that a minibatch depends on beside the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpec {
    pub seed: u64,
    pub rank: TrainerRank,
    /// Trainers of the job.
    pub world: u32,
    /// Seeds of a minibatch.
    pub seeds: u32,
    pub fanout: Vec<u32>,
}

/// One trainer's minibatches, sampled one at a time.
#[derive(Debug)]
pub struct Trace<'g> {
    spec: TraceSpec,
    graph: Csc<'g>,
    train_ids: Vec<VertexId>,
    sampler: Sampler,
    epoch: u64,
    dealt: EpochSeeds,
    rows: Vec<u32>,
}

impl<'g> Trace<'g> {
    /// Trains on `train_ids`, or on every vertex where there are none.
    #[must_use]
    pub fn new(spec: TraceSpec, graph: Csc<'g>, train_ids: Vec<VertexId>) -> Self {
        let all = || (0..graph.vertices() as u32).map(VertexId).collect();
        let train_ids = if train_ids.is_empty() { all() } else { train_ids };
        let dealt = deal(&spec, 0, &train_ids);
        let sampler = Sampler::new(spec.fanout.clone());
        Trace { spec, graph, train_ids, sampler, epoch: 0, dealt, rows: Vec::new() }
    }

    /// Minibatches of an epoch of this trainer.
    #[must_use]
    pub fn epoch_minibatches(&self) -> u64 {
        self.dealt.minibatches()
    }

    #[must_use]
    pub fn spec(&self) -> &TraceSpec {
        &self.spec
    }

    /// The vertices that the minibatch trains on; empty where there is none.
    pub fn seeds(&mut self, minibatch: MinibatchId) -> &[VertexId] {
        let (_, within) = self.turn_to(minibatch);
        self.dealt.minibatch(within)
    }

    /// The epoch and the position in it; the epoch's seeds are dealt then.
    fn turn_to(&mut self, minibatch: MinibatchId) -> (u64, u64) {
        let per_epoch = self.dealt.minibatches().max(1);
        let epoch = minibatch.0 / per_epoch;
        let within = minibatch.0 % per_epoch;
        if epoch != self.epoch {
            self.dealt = deal(&self.spec, epoch, &self.train_ids);
            self.epoch = epoch;
        }
        (epoch, within)
    }

    /// The distinct vertices that the minibatch reads, seeds first.
    pub fn rows(&mut self, minibatch: MinibatchId) -> &[u32] {
        let (epoch, within) = self.turn_to(minibatch);
        let key = SampleKey { seed: self.spec.seed, epoch, minibatch: within };
        let vertices = self.sampler.sample(self.graph, key, self.dealt.minibatch(within));
        self.rows.clear();
        self.rows.extend(vertices.iter().map(|vertex| vertex.0));
        &self.rows
    }
}

fn deal(spec: &TraceSpec, epoch: u64, train_ids: &[VertexId]) -> EpochSeeds {
    let deal = Deal {
        seed: spec.seed,
        epoch,
        batch: spec.seeds as usize,
        rank: spec.rank.index(),
        world: spec.world as usize,
    };
    EpochSeeds::new(deal, train_ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn spec(rank: u32) -> TraceSpec {
        TraceSpec { seed: 5, rank: TrainerRank(rank), world: 2, seeds: 2, fanout: vec![1] }
    }

    /// A ring of eight vertices: each has its predecessor as neighbour.
    const INDPTR: [u64; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
    const INDICES: [u32; 8] = [7, 0, 1, 2, 3, 4, 5, 6];

    #[test]
    fn an_epoch_of_all_trainers_visits_every_vertex_once_as_seed() {
        let graph = Csc::new(&INDPTR, &INDICES).unwrap();
        let mut seeds = HashSet::new();
        for rank in 0..2 {
            let mut trace = Trace::new(spec(rank), graph, Vec::new());
            assert_eq!(trace.epoch_minibatches(), 2);
            for minibatch in 0..2 {
                seeds.extend(trace.rows(MinibatchId(minibatch))[..2].to_vec());
            }
        }
        assert_eq!(seeds.len(), 8);
    }

    #[test]
    fn minibatches_do_not_depend_on_the_order_in_which_they_are_asked_for() {
        let graph = Csc::new(&INDPTR, &INDICES).unwrap();
        let mut forwards = Trace::new(spec(0), graph, Vec::new());
        let mut backwards = Trace::new(spec(0), graph, Vec::new());
        let first: Vec<_> = (0..9).map(|m| forwards.rows(MinibatchId(m)).to_vec()).collect();
        let mut last: Vec<_> = (0..9).rev().map(|m| backwards.rows(MinibatchId(m)).to_vec()).collect();
        last.reverse();
        assert_eq!(first, last);
        assert!(first.iter().all(|rows| (2..=4).contains(&rows.len())), "{first:?}");
    }
}
