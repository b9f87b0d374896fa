//! A trainer's sampler run ahead of it: what it will ask for, from the same seeds.
//!
//! ```text
//! while replay.sample() {                    // costs what the trainer's own sampling costs
//!     match replay.offer(&mut engine) {      // cheap
//!         Offer::Taken(reaction) => ...      // hand it on, go on
//!         Offer::Later => break,             // go on after a release
//!         Offer::Over(_) => ...              // drop the replay
//!     }
//! }
//! ```
//!
//! The engine decides how far ahead that goes (its memory for what is foreseen) and when it ends.

use crate::engine::{Engine, ForeseeRefusal};
use crate::step::{Reaction, TrainerId};
use rudder_graph::trace::{Trace, TraceSpec};
use rudder_topology::{MinibatchId, TableId};

/// Most hops that a declared sampler may have.
pub const HOPS_MAX: usize = 16;
/// Most vertices that a minibatch of a declared sampler may reach, each hop counted with its whole fan-out.
pub const REACH_MAX: u64 = 64 << 20;

/// Why a declared sampler is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplerRefusal {
    #[error("a world of {world} trainers has no rank {rank}")]
    Rank { rank: u32, world: u32 },
    #[error("a minibatch of no seeds")]
    NoSeeds,
    #[error("a fan-out of {0} hops: between 1 and {HOPS_MAX} can be replayed")]
    Hops(usize),
    #[error("a minibatch could reach more than {REACH_MAX} vertices: too many to sample ahead")]
    Reach,
}

/// Checks what a trainer declares, before anything is sampled by it. A fan-out that takes every neighbour counts by
/// the vertices of the graph.
pub fn check(spec: &TraceSpec, vertices: u64) -> Result<(), SamplerRefusal> {
    if spec.rank.0 >= spec.world {
        return Err(SamplerRefusal::Rank { rank: spec.rank.0, world: spec.world });
    }
    if spec.seeds == 0 {
        return Err(SamplerRefusal::NoSeeds);
    }
    if spec.fanout.is_empty() || spec.fanout.len() > HOPS_MAX {
        return Err(SamplerRefusal::Hops(spec.fanout.len()));
    }
    let (mut hop, mut all) = (u64::from(spec.seeds).min(vertices), 0_u64);
    for &fanout in &spec.fanout {
        // No hop has more new vertices than the graph.
        hop = hop.saturating_mul(u64::from(fanout)).min(vertices);
        all += hop;
    }
    if all > REACH_MAX { Err(SamplerRefusal::Reach) } else { Ok(()) }
}

/// See the module.
#[derive(Debug)]
pub struct Replay<'g> {
    trainer: TrainerId,
    trace: Trace<'g>,
    table: TableId,
    next: MinibatchId,
    /// One past the last minibatch.
    end: u64,
    sampled: Option<Vec<(TableId, Vec<u32>)>>,
}

/// What became of a sampled minibatch.
#[derive(Debug)]
pub enum Offer {
    /// It stands in the window.
    Taken(Reaction),
    /// The trainer was quicker; the replay goes on behind what it announced.
    Behind,
    /// There is no room now.
    Later,
    /// Nothing more will be taken.
    Over(ForeseeRefusal),
}

impl<'g> Replay<'g> {
    /// Replays the minibatches of a trainer from `first` to before `end`; `table` is the feature table of the graph's
    /// vertices.
    #[must_use]
    pub fn new(trainer: TrainerId, trace: Trace<'g>, table: TableId, first: MinibatchId, end: u64) -> Self {
        Replay { trainer, trace, table, next: first, end, sampled: None }
    }

    #[must_use]
    pub fn trainer(&self) -> TrainerId {
        self.trainer
    }

    /// The minibatch that is sampled next, or was and waits for room.
    #[must_use]
    pub fn next(&self) -> MinibatchId {
        self.next
    }

    /// Samples the next minibatch, unless one is sampled already; `false` at the end.
    pub fn sample(&mut self) -> bool {
        if self.next.0 >= self.end {
            return false;
        }
        if self.sampled.is_none() {
            self.sampled = Some(vec![(self.table, self.trace.rows(self.next).to_vec())]);
        }
        true
    }

    /// Offers what was sampled to the engine.
    pub fn offer(&mut self, engine: &mut Engine) -> Offer {
        let Some(tables) = &self.sampled else { return Offer::Later };
        match engine.foresee(self.trainer, self.next, tables) {
            Ok(reaction) => {
                self.sampled = None;
                self.next.0 += 1;
                Offer::Taken(reaction)
            }
            Err(ForeseeRefusal::Behind(last)) => {
                self.sampled = None;
                self.next = MinibatchId(last.0 + 1);
                Offer::Behind
            }
            Err(ForeseeRefusal::Full) => Offer::Later,
            Err(refusal) => Offer::Over(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rudder_topology::TrainerRank;

    #[test]
    fn declarations_have_bounds() {
        let spec = |rank, world, seeds, fanout: &[u32]| TraceSpec {
            seed: 1,
            rank: TrainerRank(rank),
            world,
            seeds,
            fanout: fanout.to_vec(),
        };
        let check = |spec: TraceSpec| check(&spec, 1 << 40);
        assert_eq!(check(spec(0, 1, 1024, &[15, 10, 5])), Ok(()));
        assert_eq!(check(spec(1, 1, 1, &[1])), Err(SamplerRefusal::Rank { rank: 1, world: 1 }));
        assert_eq!(check(spec(0, 0, 1, &[1])), Err(SamplerRefusal::Rank { rank: 0, world: 0 }));
        assert_eq!(check(spec(0, 1, 0, &[1])), Err(SamplerRefusal::NoSeeds));
        assert_eq!(check(spec(0, 1, 1, &[])), Err(SamplerRefusal::Hops(0)));
        assert_eq!(check(spec(0, 1, 1, &[1; 17])), Err(SamplerRefusal::Hops(17)));
        assert_eq!(check(spec(0, 1, u32::MAX, &[u32::MAX; 16])), Err(SamplerRefusal::Reach));
        // On a small graph every neighbour may be taken.
        assert_eq!(super::check(&spec(0, 1, u32::MAX, &[u32::MAX; 16]), 2708), Ok(()));
    }
}
