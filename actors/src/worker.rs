//! The frame of every local actor: takes items from its [`Mailbox`] and hands them to a [`Work`].

use crate::mailbox::Mailbox;
use crate::supervisor::{ChildSpec, Started};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use rudder_messages::{ActorName, Nudge};
use std::marker::PhantomData;
use std::sync::Arc;

/// Items handled in a row before others on the same thread get their turn.
const TURN_ITEMS: usize = 64;

/// What an actor does. A value lives as long as the actor: what has to survive a panic is shared with the
/// supervisor's side, and [`Work::begin`] finds it again.
pub trait Work: Send + 'static {
    type Item: Send + 'static;

    /// Called first in every life, before any item.
    fn begin(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }

    fn handle(&mut self, item: Self::Item) -> impl Future<Output = ()> + Send;

    /// Called when the queue was found empty after items: the moment to act on them all at once.
    fn settle(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

struct Frame<W>(PhantomData<fn() -> W>);

struct FrameState<W: Work> {
    work: W,
    mailbox: Mailbox<W::Item>,
}

impl<W: Work> Actor for Frame<W> {
    type Msg = Nudge;
    type State = FrameState<W>;
    type Arguments = (W, Mailbox<W::Item>);

    async fn pre_start(
        &self,
        _myself: ActorRef<Nudge>,
        (work, mailbox): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(FrameState { work, mailbox })
    }

    async fn post_start(
        &self,
        myself: ActorRef<Nudge>,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        state.work.begin().await;
        state.mailbox.attend(myself);
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<Nudge>,
        _nudge: Nudge,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        for _ in 0..TURN_ITEMS {
            let Some(item) = state.mailbox.take() else {
                state.work.settle().await;
                return Ok(());
            };
            state.work.handle(item).await;
        }
        state.work.settle().await;
        // What is left, if anything, was put on a queue that was not empty: nobody else nudges for it.
        myself.send_message(Nudge)?;
        Ok(())
    }
}

/// The child specification of an actor whose every life is made by `make`.
pub fn child<W: Work>(
    name: ActorName,
    mailbox: Mailbox<W::Item>,
    make: impl Fn() -> W + Send + Sync + 'static,
) -> ChildSpec {
    let (kind, dataset) = (name.kind, name.dataset.clone());
    let name = name.to_string();
    let start = move |supervisor: ractor::ActorCell| -> Started {
        let arguments = (make(), mailbox.clone());
        let name = name.clone();
        Box::pin(async move {
            let frame = Frame::<W>(PhantomData);
            let (actor, _) = Actor::spawn_linked(Some(name), frame, arguments, supervisor).await?;
            Ok(actor.get_cell())
        })
    };
    ChildSpec::worker(kind, dataset, Arc::new(start))
}
