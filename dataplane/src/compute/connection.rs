//! One connection to a storage node: requests out, rows in through a bounded buffer.

use super::main::Mover;
use super::table::Via;
use crate::backend::Wire;
use crate::receive::ReceiveBuffer;
use crate::transfer::{LossReason, ProtocolError};
use rudder_client::frames::{Frame, Header, Opener, Sealer};
use rudder_client::handshake::Session;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A frame on its way out.
#[derive(Debug)]
pub(super) struct Outgoing(pub(super) Frame);

/// What is received at once: small enough to stay in the CPU's cache until it is copied to its slots.
const RECEIVE_BYTES: usize = 256 << 10;
/// Requests that are sent in one system call at most.
const BATCH_BYTES: usize = 64 << 10;

pub(super) async fn run<W: Wire>(
    mover: Rc<Mover>,
    via: Via,
    wire: W,
    session: Session,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    to_send: mpsc::UnboundedReceiver<Outgoing>,
) {
    let heard = Rc::new(Cell::new(Instant::now()));
    let writer =
        tokio::task::spawn_local(write(mover.clone(), wire.clone(), Sealer::new(session.send_key), to_send));
    let watch = tokio::task::spawn_local(watch(mover.clone(), via, heard.clone(), outgoing));
    let reason = read(&mover, via, &wire, Opener::new(session.recv_key), &heard).await;
    mover.lose(via, reason);
    wire.shutdown();
    watch.abort();
    // The writer ends by itself: with the peer's entry its channel closed, and the socket is shut down.
    drop(watch.await);
    drop(writer.await);
}

async fn read<W: Wire>(
    mover: &Mover,
    via: Via,
    wire: &W,
    mut opener: Opener,
    heard: &Cell<Instant>,
) -> LossReason {
    let mut received = ReceiveBuffer::new(RECEIVE_BYTES);
    loop {
        match received.fill(wire).await {
            Ok(0) => return LossReason::Closed,
            Ok(bytes) => {
                heard.set(Instant::now());
                mover.counters.bytes_protocol.fetch_add(bytes as u64, Relaxed);
            }
            Err(error) => return LossReason::Socket(error.kind()),
        }
        loop {
            match received.next_frame(&mut opener) {
                Ok(None) => break,
                Ok(Some((header, payload))) => {
                    if let Err(error) = receive(mover, via, &header, payload) {
                        return LossReason::Protocol(error);
                    }
                }
                Err(error) => return LossReason::Protocol(error.into()),
            }
        }
    }
}

/// Acts on one frame. Nothing awaits between the look into the table and the copy to the slots.
fn receive(mover: &Mover, via: Via, header: &Header, payload: &[u8]) -> Result<(), ProtocolError> {
    let completion = match Frame::parse(header, payload)? {
        Frame::Rows { last, .. } => {
            // Counted as payload by the table.
            mover.counters.bytes_protocol.fetch_sub(payload.len() as u64, Relaxed);
            mover.table.borrow_mut().rows(via, header, last, payload)?
        }
        Frame::Failed { transfer, item, reason } => {
            mover.table.borrow_mut().failed(via, transfer, item, reason)?
        }
        Frame::Pong => None,
        _ => return Err(ProtocolError::UnexpectedFrame),
    };
    if let Some(completion) = completion {
        mover.complete(completion);
    }
    Ok(())
}

async fn write<W: Wire>(
    mover: Rc<Mover>,
    wire: W,
    mut sealer: Sealer,
    mut to_send: mpsc::UnboundedReceiver<Outgoing>,
) {
    while let Some(Outgoing(frame)) = to_send.recv().await {
        let mut bytes = sealer.frame(&frame, &[]);
        while bytes.len() < BATCH_BYTES
            && let Ok(Outgoing(frame)) = to_send.try_recv()
        {
            bytes.extend_from_slice(&sealer.frame(&frame, &[]));
        }
        mover.counters.bytes_protocol.fetch_add(bytes.len() as u64, Relaxed);
        if wire.write_all(bytes).await.0.is_err() {
            // The reader finds the end of the connection and says why.
            wire.shutdown();
            return;
        }
    }
}

/// Pings the peer, and gives it up when it is silent.
async fn watch(
    mover: Rc<Mover>,
    via: Via,
    heard: Rc<Cell<Instant>>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
) {
    let beat = mover.peer_timeout / 3;
    loop {
        tokio::time::sleep_until(Instant::now() + beat).await;
        if heard.get().elapsed() >= mover.peer_timeout {
            return mover.lose(via, LossReason::Silent);
        }
        if outgoing.send(Outgoing(Frame::Ping)).is_err() {
            return;
        }
    }
}
