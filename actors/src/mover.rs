//! The compute mover's actor: hands transfers to the mover's thread and what became of them to the engine.

use crate::dataset::{Dataset, PrivateBuffers};
use crate::mailbox::Mailbox;
use crate::worker::Work;
use rudder_client::frames::FailReason;
use rudder_dataplane::{
    Completion, ComputeHandle, Destination, TransferError, TransferItem, TransferRequest,
};
use rudder_messages::{MoverMessage, TransferEnd};
use rudder_policy::step::{self, Outcome, Transfer};
use rudder_topology::{Generation, NodeId, TransferId};
use std::sync::Arc;

/// The actor's work.
pub struct Mover {
    dataset: Arc<Dataset>,
    handle: ComputeHandle,
}

impl Mover {
    #[must_use]
    pub fn new(dataset: Arc<Dataset>, handle: ComputeHandle) -> Self {
        Mover { dataset, handle }
    }

    fn fetch(&self, transfer: Transfer) {
        let (id, generation) = (transfer.id, transfer.generation);
        if self.handle.submit(request(transfer)).is_err() {
            // The thread is gone: the node is stopping, or its supervisor is about to learn of it.
            self.end(id, generation, TransferEnd::Lost);
        }
    }

    fn end(&self, transfer: TransferId, generation: Generation, end: TransferEnd) {
        let private = self.dataset.private.take(transfer);
        let outcome = match end {
            TransferEnd::Arrived => Outcome::Arrived { private },
            TransferEnd::Lost => Outcome::Lost,
            TransferEnd::Corrupt { item } => Outcome::Corrupt { item },
            TransferEnd::Refused { item } => Outcome::Refused { item },
        };
        self.dataset.stage(|engine, now| engine.complete(transfer, generation, outcome, now));
    }

    fn ended(&self, transfer: TransferId, node: NodeId, generation: Option<Generation>, end: TransferEnd) {
        match generation {
            Some(generation) => self.end(transfer, generation, end),
            // The link went down before the transfer reached it, and `LinkDown`, which came first or comes next,
            // ends all that was under way there.
            None => {
                tracing::debug!(dataset = %self.dataset.name, %transfer, %node, "asked of a detached node")
            }
        }
    }
}

impl Work for Mover {
    type Item = MoverMessage;

    /// A wake-up may have been lost with a former life.
    async fn begin(&mut self) {
        self.dataset.stage(|engine, now| engine.tick(now));
    }

    async fn handle(&mut self, message: MoverMessage) {
        match message {
            MoverMessage::Fetch(transfer) => self.fetch(transfer),
            // A stopped thread has no transfers left to cancel.
            MoverMessage::Cancel(transfer) => drop(self.handle.cancel(transfer)),
            MoverMessage::Ended { transfer, node, generation, end } => {
                self.ended(transfer, node, generation, end);
            }
            MoverMessage::LinkUp { node, generation } => {
                self.dataset.stage(|engine, now| engine.link_up(node, generation, now));
            }
            MoverMessage::LinkDown { node } => {
                self.dataset.stage(|engine, now| engine.link_down(node, now));
            }
            MoverMessage::Tick => self.dataset.stage(|engine, now| engine.tick(now)),
            MoverMessage::Fault => panic!("a fault was asked for"),
        }
    }
}

fn request(transfer: Transfer) -> TransferRequest {
    let item = |item: step::Item| TransferItem {
        rows: item.rows,
        to: match item.to {
            step::Destination::Slot { chunk, offset } => Destination::Slot { chunk, offset },
            step::Destination::Private => Destination::Private,
        },
    };
    TransferRequest {
        id: transfer.id,
        node: transfer.node,
        class: transfer.class,
        items: transfer.items.into_iter().map(item).collect(),
    }
}

/// What a completion says, as a message; rows that came past the cache go to the private buffers. Runs on the
/// mover's thread.
pub fn completed(completion: Completion, private: &PrivateBuffers, mover: &Mailbox<MoverMessage>) {
    let Completion { transfer, node, generation, result, .. } = completion;
    let end = match result {
        Ok(arrived) => {
            if let Some(bytes) = arrived.private {
                private.put(transfer, bytes);
            }
            TransferEnd::Arrived
        }
        Err(error) => {
            if !matches!(error, TransferError::Cancelled) {
                tracing::debug!(%transfer, %node, %error, "a transfer failed");
            }
            match error {
                TransferError::Corrupt { item } => TransferEnd::Corrupt { item },
                // Another node's blocks: there may be no harm in them, nor in the way there a little later.
                TransferError::Refused { reason: FailReason::Upstream, .. } => TransferEnd::Lost,
                TransferError::Refused { item, .. } => TransferEnd::Refused { item },
                TransferError::NotAttached
                | TransferError::PeerLost
                | TransferError::Protocol(_)
                | TransferError::Cancelled => TransferEnd::Lost,
                TransferError::Invalid(reason) => {
                    tracing::error!(%transfer, %node, %reason, "the engine asked for what cannot be");
                    TransferEnd::Refused { item: 0 }
                }
            }
        }
    };
    mover.send(MoverMessage::Ended { transfer, node, generation, end });
}
