//! A mailbox that outlives its actor.
//!
//! ractor's own queue dies with the actor, and what waits in it is lost. Here the queue belongs to the supervisor's
//! side; the actor's ractor queue carries only [`Nudge`]s. An actor that panics loses the one item it worked on;
//! its successor finds the rest. Senders never wait; what may be in a queue is bounded by credits and permits.

use ractor::{ActorRef, RpcReplyPort};
use rudder_messages::Nudge;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Both ends of a mailbox; clones are the same mailbox.
pub struct Mailbox<T> {
    inner: Arc<Mutex<Inner<T>>>,
}

struct Inner<T> {
    queue: VecDeque<T>,
    actor: Option<ActorRef<Nudge>>,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Mailbox { inner: self.inner.clone() }
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Mailbox { inner: Arc::new(Mutex::new(Inner { queue: VecDeque::new(), actor: None })) }
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailbox({} waiting)", self.lock().queue.len())
    }
}

/// Why a call had no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("the actor failed while it worked on the call")]
    Failed,
    #[error("the actor did not answer in time")]
    TimedOut,
}

impl<T> Mailbox<T> {
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        // Nothing in this module can panic half-way through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an item at the end. Whoever finds the queue empty nudges; until the queue is empty again the actor is
    /// on its way or at work.
    pub fn send(&self, item: T) {
        let mut inner = self.lock();
        let was_empty = inner.queue.is_empty();
        inner.queue.push_back(item);
        if was_empty && let Some(actor) = &inner.actor {
            // A failure means that the actor is gone: its successor looks into the queue when it starts.
            let _ = actor.send_message(Nudge);
        }
    }

    /// The next item.
    #[must_use]
    pub fn take(&self) -> Option<T> {
        self.lock().queue.pop_front()
    }

    /// Items that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    /// From now on this actor is nudged; at once, if something waits.
    pub fn attend(&self, actor: ActorRef<Nudge>) {
        let mut inner = self.lock();
        if !inner.queue.is_empty() {
            // It has just been started, so it takes messages.
            let _ = actor.send_message(Nudge);
        }
        inner.actor = Some(actor);
    }

    /// Sends an item that carries a reply port and awaits the reply.
    pub async fn call<R>(
        &self,
        item: impl FnOnce(RpcReplyPort<R>) -> T,
        time_max: Duration,
    ) -> Result<R, CallError> {
        let (sender, receiver) = ractor::concurrency::oneshot();
        self.send(item(sender.into()));
        match tokio::time::timeout(time_max, receiver).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) => Err(CallError::Failed),
            Err(_) => Err(CallError::TimedOut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_wait_for_an_actor_and_keep_their_order() {
        let mailbox = Mailbox::default();
        for item in 0..5 {
            mailbox.send(item);
        }
        assert_eq!(mailbox.waiting(), 5);
        let taken: Vec<_> = std::iter::from_fn(|| mailbox.take()).collect();
        assert_eq!(taken, [0, 1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn a_dropped_reply_port_is_an_error() {
        let mailbox: Mailbox<RpcReplyPort<u8>> = Mailbox::default();
        let call = mailbox.call(|port| port, Duration::from_secs(60));
        let serve = async { drop(mailbox.take()) };
        let (answer, ()) = tokio::join!(call, serve);
        assert_eq!(answer, Err(CallError::Failed));
    }
}
