//! What a simulation shows to the invariant that watches it.

pub mod accepted;
pub mod bytes;
pub mod capacity;
pub mod generations;
pub mod permits;
pub mod pins;
pub mod served;

use super::world::World;
use rudder_policy::step::{Outcome, Refusal, Step, TrainerId, Transfer};
use rudder_topology::{Generation, NodeId, TransferId};

/// Something that happened, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    Accepted(Step),
    Refused(Step, Refusal),
    /// A transfer started. Its bytes may arrive from now on.
    Started(Transfer),
    /// The engine gave a transfer up.
    Cancelled(TransferId),
    /// The engine was told how a transfer ended.
    Ended {
        transfer: Transfer,
        outcome: Outcome,
    },
    /// The engine was told of the end of a transfer that had ended before, or of another incarnation's.
    Stale {
        transfer: TransferId,
        generation: Generation,
    },
    NodeUp(NodeId, Generation),
    NodeDown(NodeId),
    Served {
        trainer: TrainerId,
        minibatch: usize,
    },
    Failed {
        trainer: TrainerId,
        minibatch: usize,
    },
    /// A trainer was told of a minibatch that it does not wait for, or twice.
    Unexpected {
        trainer: TrainerId,
        what: &'static str,
    },
    TrainerLost(TrainerId),
}

/// A rule that holds after every event of every schedule.
pub trait Invariant {
    /// Judges the state after an event and what happened in it.
    fn after(&mut self, world: &World, notes: &[Note]) -> Result<(), String>;

    /// Judges the end: faults are over, every trainer has had all of its minibatches.
    fn at_end(&mut self, _world: &World) -> Result<(), String> {
        Ok(())
    }
}

/// Every invariant, over one run.
pub struct All(Vec<Box<dyn Invariant>>);

impl Default for All {
    fn default() -> Self {
        All(vec![
            Box::new(capacity::Capacity),
            Box::new(pins::Pins::default()),
            Box::new(accepted::Accepted::default()),
            Box::new(bytes::RightBytes),
            Box::new(generations::Generations::default()),
            Box::new(permits::Permits::default()),
            Box::new(served::EveryMinibatchServed::default()),
        ])
    }
}

impl Invariant for All {
    fn after(&mut self, world: &World, notes: &[Note]) -> Result<(), String> {
        self.0.iter_mut().try_for_each(|invariant| invariant.after(world, notes))
    }

    fn at_end(&mut self, world: &World) -> Result<(), String> {
        self.0.iter_mut().try_for_each(|invariant| invariant.at_end(world))
    }
}

/// A deliberate defect, to show that an invariant notices it. Only tests make one: what the product plays has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    #[default]
    Nothing,
    /// The engine believes in a cache of twice the bytes that there are.
    CacheTwiceAsLarge,
    /// Rows arrive in the slot of a pinned block, as if it had been evicted.
    PinnedSlotReused,
    /// A transfer brings rows that no accepted step named.
    UnaskedRows,
    /// A storage node answers with the rows of a neighbour.
    WrongRows,
    /// An answer of an old incarnation is taken for one of the present.
    OldAnswersApplied,
    /// Transfers are larger than their permits.
    PermitsIgnored,
    /// A trainer's minibatch is forgotten.
    MinibatchForgotten,
}
