//! From a request to frames: rows copied out of the mapping, or read with `O_DIRECT`.

use super::Counters;
use super::connection::{ConnectionId, Reply, RowsReply, fail};
use super::main::{Server, Work};
use super::upstream::Upstream;
use crate::backend::Io;
use crate::block_files::BlockFiles;
use crate::reader::DirectReader;
use rudder_client::frames::{FailReason, Frame, HEADER_BYTES, Last};
use rudder_graph::{BlockPlace, BlockRows};
use rudder_policy::queue::Queued;
use rudder_topology::BlockId;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Payload bytes of one frame, unless a single item is larger: small enough to stay in the CPU's cache between
/// reading, checking and sending.
const FRAME_BYTES: usize = 256 << 10;

/// A dataset that is served.
pub(super) struct Shelf<I: Io> {
    files: Rc<BlockFiles>,
    reader: Rc<DirectReader<I>>,
    upstream: Option<Upstream>,
}

impl<I: Io> Shelf<I> {
    pub(super) fn new(
        files: BlockFiles,
        upstream: Option<Upstream>,
        io: &I,
        counters: Arc<Counters>,
    ) -> std::io::Result<Self> {
        let files = Rc::new(files);
        let reader = Rc::new(DirectReader::new(files.clone(), io.clone(), counters)?);
        Ok(Shelf { files, reader, upstream })
    }

    /// `None`: blocks of other nodes are not served.
    pub(super) fn upstream(&self) -> Option<&Upstream> {
        self.upstream.as_ref()
    }

    /// A block that is not stored here, if it is asked of its owner.
    pub(super) fn relayed(&self, block: BlockId) -> Option<BlockPlace> {
        let place = self.files.book().block(block)?;
        self.upstream().filter(|upstream| upstream.relays(place.part)).map(|_| place)
    }

    pub(super) fn files(&self) -> &BlockFiles {
        &self.files
    }
}

type Transfer = Queued<ConnectionId, Work>;

/// Splits items into frames; every frame has at least one.
fn frames(files: &BlockFiles, items: &[BlockRows]) -> Vec<(Range<usize>, usize)> {
    let mut frames: Vec<(Range<usize>, usize)> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let row_bytes = files.book().block(item.block).map_or(0, |place| place.row_bytes);
        let bytes = item.rows() as usize * row_bytes as usize;
        match frames.last_mut() {
            Some((range, total)) if *total + bytes <= FRAME_BYTES => {
                range.end = at + 1;
                *total += bytes;
            }
            _ => frames.push((at..at + 1, bytes)),
        }
    }
    frames
}

fn rows_reply(transfer: &Transfer, range: &Range<usize>, bytes: Vec<u8>) -> Reply {
    let last = if range.end == transfer.work.items.len() { Last::Last } else { Last::MoreFollows };
    let frame = Frame::Rows {
        transfer: transfer.transfer,
        first_item: range.start as u32,
        items: range.len() as u32,
        last,
    };
    // The bytes were copied a moment ago: they are still in the CPU's cache.
    let payload_crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    Reply::Rows(RowsReply { frame, bytes, payload_crc, class: transfer.class })
}

fn give_up<I: Io>(server: &Server<I>, transfer: &Transfer, item: usize, reason: FailReason, bytes_left: u64) {
    fail(server, transfer.link, transfer.transfer, item as u32, reason);
    server.reply(transfer.link, Reply::Given { bytes: bytes_left });
}

/// Serves a transfer from mappings.
pub(super) fn mapped<I: Io>(server: &Server<I>, shelf: &Shelf<I>, transfer: &Transfer) {
    at_once(server, shelf, transfer, |item, out| append_mapped(&shelf.files, item, out));
}

/// Serves a relayed transfer from the copies, which may go then.
pub(super) fn copies<I: Io>(server: &Server<I>, shelf: &Shelf<I>, transfer: &Transfer) {
    let relay = shelf.upstream().map(|upstream| &upstream.relay);
    let relay = |item, out: &mut Vec<u8>| relay.ok_or(FailReason::Upstream)?.borrow().append(item, out);
    if at_once(server, shelf, transfer, relay) {
        let rows: u64 = transfer.work.items.iter().map(|item| u64::from(item.rows())).sum();
        server.counters.staged_rows_served.fetch_add(rows, Relaxed);
    }
    if let Some(upstream) = shelf.upstream() {
        upstream.relay.borrow_mut().end((transfer.link, transfer.transfer));
    }
}

/// Whether all of it could be served.
fn at_once<I: Io>(
    server: &Server<I>,
    shelf: &Shelf<I>,
    transfer: &Transfer,
    append: impl Fn(BlockRows, &mut Vec<u8>) -> Result<(), FailReason>,
) -> bool {
    let mut bytes_left = transfer.bytes.0;
    for (range, bytes) in frames(&shelf.files, &transfer.work.items) {
        let mut out = server.spare();
        out.clear();
        out.reserve(HEADER_BYTES + bytes);
        out.resize(HEADER_BYTES, 0);
        for at in range.clone() {
            if let Err(reason) = append(transfer.work.items[at], &mut out) {
                give_up(server, transfer, at, reason, bytes_left);
                return false;
            }
        }
        bytes_left = bytes_left.saturating_sub(bytes as u64);
        server.reply(transfer.link, rows_reply(transfer, &range, out));
    }
    server.counters.transfers_served.fetch_add(1, Relaxed);
    true
}

fn append_mapped(files: &BlockFiles, item: BlockRows, out: &mut Vec<u8>) -> Result<(), FailReason> {
    let located = files.locate(item)?;
    let block = files.mapped(&located)?.ok_or(FailReason::ReadFailed)?;
    crate::block_files::append_rows(block, located.place.row_bytes, item.mask, out);
    Ok(())
}

/// Serves a transfer by direct reads.
pub(super) async fn direct<I: Io>(server: Rc<Server<I>>, shelf: Rc<Shelf<I>>, transfer: Transfer) {
    let mut bytes_left = transfer.bytes.0;
    for (range, bytes) in frames(&shelf.files, &transfer.work.items) {
        // What a former frame left in the buffer is overwritten: every byte belongs to a row that is read.
        let mut out = server.spare();
        out.resize(HEADER_BYTES + bytes, 0);
        let items = transfer.work.items[range.clone()].to_vec();
        match shelf.reader.clone().read(items, out, HEADER_BYTES).await {
            Ok(out) => server.reply(transfer.link, rows_reply(&transfer, &range, out)),
            Err((at, reason)) => {
                return give_up(&server, &transfer, range.start + at, reason, bytes_left);
            }
        }
        bytes_left = bytes_left.saturating_sub(bytes as u64);
    }
    server.counters.transfers_served.fetch_add(1, Relaxed);
}
