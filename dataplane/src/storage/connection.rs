//! One connection of a compute node: requests in, frames out.

use super::main::{Server, Source, Work};
use super::serve::Shelf;
use crate::backend::{Io, Wire};
use crate::receive::ReceiveBuffer;
use crate::transfer::ProtocolError;
use rudder_client::frames::{FailReason, Frame, HEADER_BYTES, Header, Opener, Sealer};
use rudder_client::handshake::{Scope, Session, Verbs};
use rudder_graph::{BlockRows, Class};
use rudder_policy::queue::Queued;
use rudder_topology::{Bytes, TransferId};
use std::cell::Cell;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// One connection of this mover's life; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ConnectionId(pub(super) u64);

/// A frame on its way out.
#[derive(Debug)]
pub(super) enum Reply {
    /// Without rows.
    Short(Frame),
    Rows(RowsReply),
    /// A transfer is over without all its rows: `bytes` of it will not come.
    Given {
        bytes: u64,
    },
}

/// Rows, with room for the header in front.
#[derive(Debug)]
pub(super) struct RowsReply {
    pub(super) frame: Frame,
    pub(super) bytes: Vec<u8>,
    pub(super) payload_crc: u32,
    pub(super) class: Class,
}

/// Unsent bytes that the kernel may hold for a connection: what is in it cannot be overtaken by demand any more.
const UNSENT_BYTES: u32 = 128 << 10;
/// A receive buffer of this size holds many requests.
const RECEIVE_BYTES: usize = 16 << 10;

/// Sets what the kernel needs to know of an accepted socket.
pub(super) fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_tcp_user_timeout(stream, 30_000)?;
    let unsent = UNSENT_BYTES as libc::c_int;
    // SAFETY: a valid descriptor, and a pointer to an int of the length that is given.
    let result = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(stream),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const unsent).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

pub(super) async fn run<I: Io>(
    server: Rc<Server<I>>,
    id: ConnectionId,
    wire: I::Wire,
    session: Session,
    to_send: mpsc::UnboundedReceiver<Reply>,
) {
    let Session { send_key, recv_key, peer, scope } = session;
    let heard = Rc::new(Cell::new(Instant::now()));
    let writer =
        tokio::task::spawn_local(write(server.clone(), id, wire.clone(), Sealer::new(send_key), to_send));
    let watch = tokio::task::spawn_local(watch(server.clone(), id, heard.clone()));
    let outcome = read(&server, id, &wire, Opener::new(recv_key), &scope, &heard).await;
    match outcome {
        Ok(()) => tracing::debug!(peer = %peer.name, "connection ended"),
        Err(error) => tracing::warn!(peer = %peer.name, %error, "connection dropped"),
    }
    server.close(id);
    wire.shutdown();
    watch.abort();
    drop(watch.await);
    drop(writer.await);
}

/// Closes a connection from which nothing comes. Compute nodes ping theirs.
async fn watch<I: Io>(server: Rc<Server<I>>, id: ConnectionId, heard: Rc<Cell<Instant>>) {
    loop {
        let until = heard.get() + server.config.idle_timeout;
        if until <= Instant::now() {
            return server.close(id);
        }
        tokio::time::sleep_until(until).await;
    }
}

async fn read<I: Io>(
    server: &Rc<Server<I>>,
    id: ConnectionId,
    wire: &I::Wire,
    mut opener: Opener,
    scope: &Scope,
    heard: &Cell<Instant>,
) -> Result<(), ProtocolError> {
    let mut received = ReceiveBuffer::new(RECEIVE_BYTES);
    loop {
        let Ok(bytes @ 1..) = received.fill(wire).await else { return Ok(()) };
        server.counters.bytes_protocol.fetch_add(bytes as u64, Relaxed);
        while let Some((header, payload)) = received.next_frame(&mut opener)? {
            // Only whole frames keep a connection alive: bytes that drip in do not.
            heard.set(Instant::now());
            receive(server, id, scope, &header, payload)?;
        }
    }
}

fn receive<I: Io>(
    server: &Rc<Server<I>>,
    id: ConnectionId,
    scope: &Scope,
    header: &Header,
    payload: &[u8],
) -> Result<(), ProtocolError> {
    match Frame::parse(header, payload)? {
        Frame::Fetch { transfer, class, items } => {
            fetch(server, id, scope, transfer, class, items)
                .unwrap_or_else(|(item, reason)| fail(server, id, transfer, item, reason));
        }
        Frame::Cancel { transfer } => server.cancel(id, transfer),
        Frame::Ping => server.reply(id, Reply::Short(Frame::Pong)),
        _ => return Err(ProtocolError::UnexpectedFrame),
    }
    Ok(())
}

pub(super) fn fail<I: Io>(
    server: &Server<I>,
    id: ConnectionId,
    transfer: TransferId,
    item: u32,
    reason: FailReason,
) {
    server.counters.transfers_refused.fetch_add(1, Relaxed);
    if reason == FailReason::Corrupt {
        server.counters.blocks_corrupt.fetch_add(1, Relaxed);
    }
    server.reply(id, Reply::Short(Frame::Failed { transfer, item, reason }));
}

/// Authorises a Fetch, checks every item, and puts it where it waits.
fn fetch<I: Io>(
    server: &Server<I>,
    link: ConnectionId,
    scope: &Scope,
    transfer: TransferId,
    class: Class,
    items: Vec<BlockRows>,
) -> Result<(), (u32, FailReason)> {
    if !scope.verbs.permits(Verbs::FETCH) {
        return Err((0, FailReason::Unauthorised));
    }
    let shelf = server.shelf(&scope.dataset).ok_or((0, FailReason::NotStored))?;
    let (bytes, source) = measure(&shelf, &items)?;
    if bytes > server.config.transfer_bytes_max.0 {
        return Err((0, FailReason::Overloaded));
    }
    let upstream = shelf.upstream().filter(|_| source == Source::Copies);
    if server.queued_bytes(link, &shelf).0 + bytes > server.config.queue_bytes_max.0 {
        // What it takes of others' blocks may be had elsewhere; of its own ones this is the node to ask.
        return Err((0, upstream.map_or(FailReason::Overloaded, |_| FailReason::Upstream)));
    }
    let queued = Queued { link, transfer, class, bytes: Bytes(bytes), work: Work { items, source } };
    match upstream {
        Some(upstream) => server.relay(upstream, queued),
        None => server.enqueue(queued),
    }
    Ok(())
}

/// The payload bytes of a request, and where all of them are to be found.
fn measure<I: Io>(shelf: &Shelf<I>, items: &[BlockRows]) -> Result<(u64, Source), (u32, FailReason)> {
    let (mut bytes, mut own, mut foreign) = (0, false, None);
    for (number, item) in items.iter().enumerate() {
        let number = number as u32;
        let row_bytes = match shelf.files().locate(*item) {
            Ok(located) => {
                own = true;
                located.place.row_bytes
            }
            Err(FailReason::NotStored) => {
                foreign.get_or_insert(number);
                shelf.relayed(item.block).ok_or((number, FailReason::NotStored))?.row_bytes
            }
            Err(reason) => return Err((number, reason)),
        };
        bytes += u64::from(item.rows()) * u64::from(row_bytes);
    }
    match foreign {
        // Own rows and others' come at different times: they are asked for apart.
        Some(number) if own => Err((number, FailReason::NotStored)),
        Some(_) => Ok((bytes, Source::Copies)),
        None => Ok((bytes, Source::Files)),
    }
}

async fn write<I: Io>(
    server: Rc<Server<I>>,
    id: ConnectionId,
    wire: I::Wire,
    mut sealer: Sealer,
    mut to_send: mpsc::UnboundedReceiver<Reply>,
) {
    let counters: Arc<super::Counters> = server.counters.clone();
    while let Some(reply) = to_send.recv().await {
        let (bytes, payload_bytes) = match reply {
            Reply::Given { bytes } => {
                server.sent_ahead(id, bytes);
                continue;
            }
            Reply::Short(frame) => {
                server.short_sent(id);
                (sealer.frame(&frame, &[]), 0)
            }
            Reply::Rows(RowsReply { frame, mut bytes, payload_crc, class }) => {
                sealer.seal_in_place(&frame, &mut bytes, payload_crc);
                let payload_bytes = (bytes.len() - HEADER_BYTES) as u64;
                let counter = match class {
                    Class::Demand => &counters.bytes_demand,
                    Class::Prefetch => &counters.bytes_prefetch,
                };
                counter.fetch_add(payload_bytes, Relaxed);
                (bytes, payload_bytes)
            }
        };
        counters.bytes_protocol.fetch_add(bytes.len() as u64 - payload_bytes, Relaxed);
        let (result, bytes) = wire.write_all(bytes).await;
        server.sent_ahead(id, payload_bytes);
        if result.is_err() {
            wire.shutdown();
            return;
        }
        server.recycle(bytes);
    }
}
