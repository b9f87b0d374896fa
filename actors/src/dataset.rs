//! What the fast loop of one dataset shares. All of it belongs to the supervisor's side and outlives every actor.

use crate::clock::NodeClock;
use crate::mailbox::Mailbox;
use crate::replays::Replays;
use crate::timer::Timer;
use crate::trainers::Trainers;
use rudder_client::trainer_protocol::{self, MappingSpec, ToTrainer};
use rudder_messages::{MoverMessage, PlannerMessage, PredictorMessage, ValidatorMessage};
use rudder_policy::engine::Engine;
use rudder_policy::step::{Command, Event, Failure, Reaction};
use rudder_topology::{DatasetName, NodeId, TransferId};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// One dataset that this node serves to trainers.
pub struct Dataset {
    pub name: DatasetName,
    pub engine: SharedEngine,
    pub predictor: Mailbox<PredictorMessage>,
    pub planner: Mailbox<PlannerMessage>,
    pub planning: Mutex<Planning>,
    pub validator: Mailbox<ValidatorMessage>,
    pub mover: Mailbox<MoverMessage>,
    pub private: PrivateBuffers,
    pub trainers: Trainers,
    pub greeting: Greeting,
    pub timer: Timer,
    pub replays: Replays,
    pub clock: NodeClock,
}

/// What a trainer is told when it comes.
#[derive(Debug)]
pub struct Greeting {
    pub credits: u32,
    pub ready_ahead: u32,
    /// Of the manifest that the node serves.
    pub digest: String,
    pub row_bytes: Vec<u32>,
    /// Cache chunks and co-located feature files.
    pub mappings: Vec<(MappingSpec, Arc<OwnedFd>)>,
}

/// The planner's memory.
#[derive(Debug, Default)]
pub struct Planning {
    /// What happened since the last plan.
    pub events: Vec<Event>,
    /// A proposal is with the validator; there is never more than one.
    pub outstanding: bool,
    /// Proposals in a row of which nothing was accepted.
    pub fruitless: u32,
}

/// The engine behind its lock.
pub struct SharedEngine {
    engine: Mutex<Engine>,
}

impl SharedEngine {
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        SharedEngine { engine: Mutex::new(engine) }
    }

    /// Works on the engine. After a panic inside a former call the facts stand, and orders are made anew.
    pub fn with<R>(&self, work: impl FnOnce(&mut Engine) -> R) -> R {
        let mut engine = match self.engine.lock() {
            Ok(engine) => engine,
            Err(poisoned) => {
                self.engine.clear_poison();
                let mut engine = poisoned.into_inner();
                engine.recover();
                engine
            }
        };
        work(&mut engine)
    }
}

/// Rows that arrived past the cache and wait for the engine, by transfer: bytes never travel in messages.
#[derive(Clone, Debug, Default)]
pub struct PrivateBuffers {
    waiting: Arc<Mutex<HashMap<TransferId, Vec<u8>>>>,
}

impl PrivateBuffers {
    pub fn put(&self, transfer: TransferId, bytes: Vec<u8>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(transfer, bytes);
    }

    /// Empty where nothing was put.
    #[must_use]
    pub fn take(&self, transfer: TransferId) -> Vec<u8> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&transfer).unwrap_or_default()
    }
}

impl Dataset {
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.clock.now().0
    }

    /// Runs a stage of the engine and carries out what it says. Commands are handed out before anybody else gets at
    /// the engine: a slot that one stage took back must be cancelled before another lends it again.
    pub fn stage(&self, stage: impl FnOnce(&mut Engine, u64) -> Reaction) {
        self.engine.with(|engine| self.react(stage(engine, self.now_ns())));
    }

    /// Carries out a stage's commands and tells the planner what happened. Called while the engine is held.
    pub fn react(&self, reaction: Reaction) {
        self.dispatch(reaction.commands);
        if !reaction.events.is_empty() {
            self.planner.send(PlannerMessage::Events(reaction.events));
        }
    }

    /// Hands commands to whom they concern. Called while the engine is held.
    pub fn dispatch(&self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Fetch(transfer) => self.mover.send(MoverMessage::Fetch(transfer)),
                Command::Cancel { transfer, node: NodeId(_) } => {
                    self.mover.send(MoverMessage::Cancel(transfer))
                }
                Command::Ready { trainer, minibatch, tables } => {
                    self.trainers.send(trainer, ToTrainer::Ready { minibatch, tables });
                }
                Command::Piece { trainer, minibatch, bytes } => {
                    for piece in bytes.chunks(trainer_protocol::PIECE_BYTES_MAX) {
                        self.trainers.send(trainer, ToTrainer::Piece { minibatch, bytes: piece.to_vec() });
                    }
                }
                Command::Fail { trainer, minibatch, failure } => {
                    let refusal = match failure {
                        Failure::Corrupt => trainer_protocol::Refusal::Corrupt,
                        Failure::StorageRefused => trainer_protocol::Refusal::StorageRefused,
                    };
                    self.trainers.send(trainer, ToTrainer::Failed { minibatch, refusal });
                }
                Command::WakeAt { at_ns } => self.timer.wake_at(at_ns),
            }
        }
    }
}
