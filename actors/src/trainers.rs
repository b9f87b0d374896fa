//! The trainers that are connected, and the queues towards them. Lives on the supervisor's side: an actor that
//! restarts finds every trainer still there.

use rudder_client::trainer_protocol::ToTrainer;
use rudder_policy::step::TrainerId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};

/// Bytes that may wait for one trainer. What a trainer asked for fits; one that does not read is cut off.
pub const QUEUE_BYTES_MAX: u64 = 512 << 20;

/// The queue towards one trainer.
#[derive(Clone, Debug)]
pub struct Outbox {
    sender: mpsc::UnboundedSender<ToTrainer>,
    load: Arc<Load>,
}

#[derive(Debug, Default)]
struct Load {
    bytes: AtomicU64,
    overflow: Notify,
}

/// The connection's end of the queue.
#[derive(Debug)]
pub struct OutboxReader {
    receiver: mpsc::UnboundedReceiver<ToTrainer>,
    load: Arc<Load>,
}

/// A queue and its two ends.
#[must_use]
pub fn outbox() -> (Outbox, OutboxReader) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let load = Arc::new(Load::default());
    (Outbox { sender, load: load.clone() }, OutboxReader { receiver, load })
}

fn weight(message: &ToTrainer) -> u64 {
    let body = match message {
        ToTrainer::Ready { tables, .. } => tables.iter().map(|(_, locations)| locations.len() * 8).sum(),
        ToTrainer::Piece { bytes, .. } => bytes.len(),
        ToTrainer::Statistics(text) => text.len(),
        _ => 0,
    };
    body as u64 + 64
}

impl Outbox {
    /// Queues a message; a trainer with too much waiting is cut off instead.
    pub fn send(&self, message: ToTrainer) {
        let weight = weight(&message);
        if self.load.bytes.fetch_add(weight, Relaxed) + weight > QUEUE_BYTES_MAX {
            self.load.overflow.notify_one();
            return;
        }
        // A closed channel is a trainer that has just gone: its pins are being dropped.
        let _ = self.sender.send(message);
    }
}

impl OutboxReader {
    /// The next message; `None` when the trainer has too much waiting, or nobody can send any more.
    pub async fn next(&mut self) -> Option<ToTrainer> {
        let message = tokio::select! {
            biased;
            () = self.load.overflow.notified() => None,
            message = self.receiver.recv() => message,
        }?;
        self.load.bytes.fetch_sub(weight(&message), Relaxed);
        Some(message)
    }
}

/// All trainers of one dataset.
#[derive(Clone, Debug, Default)]
pub struct Trainers {
    connected: Arc<Mutex<HashMap<TrainerId, Outbox>>>,
}

/// The same job and rank is connected already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is connected already")]
pub struct InUse(pub TrainerId);

impl Trainers {
    fn lock(&self) -> MutexGuard<'_, HashMap<TrainerId, Outbox>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the trainer in until [`Trainers::leave`].
    pub fn join(&self, trainer: TrainerId, outbox: Outbox) -> Result<(), InUse> {
        let mut connected = self.lock();
        if connected.contains_key(&trainer) {
            return Err(InUse(trainer));
        }
        connected.insert(trainer, outbox);
        Ok(())
    }

    pub fn leave(&self, trainer: TrainerId) {
        self.lock().remove(&trainer);
    }

    /// Queues a message for a trainer; one that is gone needs it no more.
    pub fn send(&self, trainer: TrainerId, message: ToTrainer) {
        if let Some(outbox) = self.lock().get(&trainer) {
            outbox.send(message);
        }
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rudder_topology::{JobId, MinibatchId, TrainerRank};

    fn trainer(rank: u32) -> TrainerId {
        TrainerId { job: JobId(1), rank: TrainerRank(rank) }
    }

    #[tokio::test]
    async fn messages_reach_their_trainer_in_order() {
        let trainers = Trainers::default();
        let (outbox, mut reader) = outbox();
        trainers.join(trainer(0), outbox.clone()).unwrap();
        assert_eq!(trainers.join(trainer(0), outbox), Err(InUse(trainer(0))));
        for text in ["a", "b"] {
            trainers.send(trainer(0), ToTrainer::Statistics(text.into()));
            trainers.send(trainer(1), ToTrainer::Statistics("lost".into()));
        }
        assert_eq!(reader.next().await, Some(ToTrainer::Statistics("a".into())));
        assert_eq!(reader.next().await, Some(ToTrainer::Statistics("b".into())));
        trainers.leave(trainer(0));
        assert_eq!(reader.next().await, None);
        assert_eq!(trainers.count(), 0);
    }

    #[tokio::test]
    async fn a_trainer_that_does_not_read_is_cut_off() {
        let (outbox, mut reader) = outbox();
        let piece = || ToTrainer::Piece { minibatch: MinibatchId(0), bytes: vec![0; 1 << 20] };
        // The queue holds what fits, however much is sent.
        for _ in 0..8 {
            outbox.send(piece());
        }
        outbox.load.bytes.store(QUEUE_BYTES_MAX, Relaxed);
        outbox.send(piece());
        assert_eq!(reader.next().await, None);
    }
}
