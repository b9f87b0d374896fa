//! A trainer's loop in virtual time: what `trainer/steps.rs` does and times, step by step.

use crate::trainer::event::Step;
use crate::trainer::feed::announced_until;
use rudder_policy::step::TrainerId;
use rudder_topology::{JobId, MinibatchId, NodeId, TrainerRank};
use std::collections::BTreeSet;

/// Where in a step a trainer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Samples before it can ask.
    LookingAhead,
    Waiting,
    Gathering,
    Computing,
    Reducing,
    Done,
}

#[derive(Debug)]
pub(super) struct Trainer {
    pub rank: TrainerRank,
    pub job: JobId,
    /// The node, and its position among those with trainers.
    pub node: NodeId,
    pub place: usize,
    pub doing: Doing,
    /// All trainers are there: its steps count.
    pub has_begun: bool,
    /// The minibatch in use.
    pub minibatch: u64,
    /// Ready, and not gathered yet.
    pub ready: BTreeSet<u64>,
    /// The next minibatch that its node samples ahead, while it does.
    pub foresees: u64,
    pub is_replayed: bool,
    /// Minibatches sampled ahead: the last one may still wait for room.
    pub sampled_ahead: u64,
    /// Announced so far.
    pub announced: u64,
    /// When the step began, and its all-reduce.
    pub step_ns: u64,
    pub reduce_ns: u64,
    pub lap: Step,
    pub steps: Vec<Step>,
}

impl Trainer {
    pub(super) fn new(rank: TrainerRank, job: JobId, node: NodeId, place: usize) -> Self {
        Trainer {
            rank,
            job,
            node,
            place,
            doing: Doing::LookingAhead,
            has_begun: false,
            minibatch: 0,
            ready: BTreeSet::new(),
            foresees: 0,
            is_replayed: false,
            sampled_ahead: 0,
            announced: 0,
            step_ns: 0,
            reduce_ns: 0,
            lap: Step::default(),
            steps: Vec::new(),
        }
    }

    pub(super) fn id(&self) -> TrainerId {
        TrainerId { job: self.job, rank: self.rank }
    }

    /// The minibatches that the window of `current` allows to announce and that are not announced.
    pub(super) fn ahead(&self, current: u64, window: u64, length: u64) -> std::ops::Range<u64> {
        self.announced..announced_until(MinibatchId(current), window, length).max(self.announced)
    }

    /// Ends the step.
    pub(super) fn end_step(&mut self, now_ns: u64) -> Step {
        let step = Step {
            minibatch: MinibatchId(self.minibatch),
            at_ns: now_ns,
            step_ns: now_ns - self.step_ns,
            allreduce_ns: now_ns - self.reduce_ns,
            ..std::mem::take(&mut self.lap)
        };
        self.steps.push(step);
        self.step_ns = now_ns;
        self.minibatch += 1;
        step
    }
}
