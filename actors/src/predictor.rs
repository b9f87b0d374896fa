//! The predictor: takes in what trainers tell, and passes on what it means for the window.

use crate::dataset::Dataset;
use crate::replays::{Declaration, Replays};
use crate::worker::Work;
use rudder_messages::{NotAnnounced, PredictorMessage};
use rudder_policy::engine::Engine;
use rudder_policy::step::{AnnounceRefusal, Reaction, TrainerId};
use rudder_topology::{MinibatchId, TableId};
use std::sync::Arc;

/// The actor's work.
pub struct Predictor {
    dataset: Arc<Dataset>,
}

impl Predictor {
    #[must_use]
    pub fn new(dataset: Arc<Dataset>) -> Self {
        Predictor { dataset }
    }

    /// A fact about a minibatch, if it is in the window.
    fn known(&self, stage: impl FnOnce(&mut Engine, u64) -> Option<Reaction>) -> Result<(), NotAnnounced> {
        self.dataset.engine.with(|engine| {
            let reaction = stage(engine, self.dataset.now_ns()).ok_or(NotAnnounced)?;
            self.dataset.react(reaction);
            Ok(())
        })
    }

    fn announce(
        &self,
        trainer: TrainerId,
        minibatch: MinibatchId,
        tables: &[(TableId, Vec<u32>)],
    ) -> Result<(), AnnounceRefusal> {
        let announced = self.dataset.engine.with(|engine| {
            let reaction = engine.announce(trainer, minibatch, tables)?;
            for alarm in engine.take_replay_alarms() {
                tracing::error!(%alarm, "a trainer's sampler is not what it declared");
            }
            self.dataset.react(reaction);
            Ok(())
        });
        self.dataset.replays.nudge();
        announced
    }
}

impl Work for Predictor {
    type Item = PredictorMessage;

    async fn handle(&mut self, message: PredictorMessage) {
        // Whoever asked may be gone: then the acknowledgement is not needed.
        match message {
            PredictorMessage::Connect { trainer, reply } => {
                self.dataset.engine.with(|engine| engine.connect(trainer));
                let _ = reply.send(());
            }
            PredictorMessage::Disconnect { trainer, reply } => {
                self.dataset.stage(|engine, _| engine.disconnect(trainer));
                self.dataset.replays.forget(trainer);
                let _ = reply.send(());
            }
            PredictorMessage::Announce { trainer, minibatch, tables, reply } => {
                let _ = reply.send(self.announce(trainer, minibatch, &tables));
            }
            PredictorMessage::Want { trainer, minibatch, reply } => {
                let _ = reply.send(self.known(|engine, now| engine.want(trainer, minibatch, now)));
            }
            PredictorMessage::Release { trainer, minibatch, reply } => {
                let _ = reply.send(self.known(|engine, now| engine.release(trainer, minibatch, now)));
                self.dataset.replays.nudge();
            }
            PredictorMessage::Declare { trainer, spec, first, end, reply } => {
                Replays::declare(&self.dataset, Declaration { trainer, spec, first, end });
                let _ = reply.send(());
            }
            PredictorMessage::Fault => panic!("a fault was asked for"),
        }
    }
}
