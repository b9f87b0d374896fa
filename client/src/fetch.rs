//! Direct fetch: a client asks a storage node for rows itself, in pieces of bounded size. Blocking.

use crate::frame_stream::{FrameStream, StreamError};
use crate::frames::{FETCH_ITEMS_MAX, FailReason, Frame, Last, PAYLOAD_BYTES_MAX};
use crate::handshake::Dialed;
use rudder_graph::{BlockRows, Class, PartitionBook};
use rudder_topology::TransferId;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Why rows could not be fetched. The fetcher is of no use after any but `Refused`.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the storage node refused item {item}: {reason}")]
    Refused { item: usize, reason: FailReason },
    #[error("item {item} names a block or rows that the dataset does not have")]
    UnknownRows { item: usize },
    #[error("item {item} is larger than what the storage node sends at once")]
    TooLarge { item: usize },
    #[error("the storage node answered something else than what was asked")]
    Unexpected,
}

/// A session that fetches.
#[derive(Debug)]
pub struct Fetcher {
    frames: FrameStream,
    book: Arc<PartitionBook>,
    piece_bytes_max: u64,
    next: TransferId,
}

impl Fetcher {
    /// A fetcher of the session's dataset, whose geometry is `book`. An answer that takes longer than `timeout` ends it.
    pub fn new(dialed: Dialed, book: Arc<PartitionBook>, timeout: Duration) -> Result<Self, FetchError> {
        dialed.stream.set_read_timeout(Some(timeout)).map_err(StreamError::from)?;
        dialed.stream.set_write_timeout(Some(timeout)).map_err(StreamError::from)?;
        let frames = FrameStream::new(dialed.stream, &dialed.session);
        let piece_bytes_max = dialed.welcome.transfer_bytes_max.min(PAYLOAD_BYTES_MAX as u64);
        Ok(Fetcher { frames, book, piece_bytes_max, next: TransferId(0) })
    }

    /// Fetches rows and hands them over in order: positions of the items, and their rows packed. Memory: one frame.
    pub fn fetch(
        &mut self,
        items: &[BlockRows],
        class: Class,
        mut each: impl FnMut(Range<usize>, &[u8]),
    ) -> Result<(), FetchError> {
        let mut start = 0;
        while start < items.len() {
            let end = self.piece_end(items, start)?;
            self.fetch_piece(items, start..end, class, &mut each)?;
            start = end;
        }
        Ok(())
    }

    /// Fetches rows into one buffer, packed in order.
    pub fn fetch_packed(&mut self, items: &[BlockRows], class: Class) -> Result<Vec<u8>, FetchError> {
        let mut packed = Vec::new();
        self.fetch(items, class, |_, rows| packed.extend_from_slice(rows))?;
        Ok(packed)
    }

    fn bytes(&self, items: &[BlockRows], item: usize) -> Result<u64, FetchError> {
        let rows = items[item];
        self.book
            .block(rows.block)
            .filter(|place| rows.mask != 0 && rows.mask & !place.full_mask() == 0)
            .map(|place| u64::from(rows.rows()) * u64::from(place.row_bytes))
            .ok_or(FetchError::UnknownRows { item })
    }

    /// How far the piece that starts here goes.
    fn piece_end(&self, items: &[BlockRows], start: usize) -> Result<usize, FetchError> {
        let mut total = 0;
        for item in start..items.len().min(start + FETCH_ITEMS_MAX) {
            total += self.bytes(items, item)?;
            if total > self.piece_bytes_max {
                return if item == start { Err(FetchError::TooLarge { item }) } else { Ok(item) };
            }
        }
        Ok(items.len().min(start + FETCH_ITEMS_MAX))
    }

    fn fetch_piece(
        &mut self,
        items: &[BlockRows],
        piece: Range<usize>,
        class: Class,
        each: &mut impl FnMut(Range<usize>, &[u8]),
    ) -> Result<(), FetchError> {
        let id = self.next;
        self.next = TransferId(id.0 + 1);
        let fetch = Frame::Fetch { transfer: id, class, items: items[piece.clone()].to_vec() };
        self.frames.send(&fetch, &[])?;
        let mut at = piece.start;
        while at < piece.end {
            let (frame, _, payload) = self.frames.receive()?;
            let (first_item, count, last) = match frame {
                Frame::Rows { transfer, first_item, items, last } if transfer == id => {
                    (first_item as usize, items as usize, last)
                }
                Frame::Failed { transfer, item, reason } if transfer == id => {
                    return Err(FetchError::Refused { item: piece.start + item as usize, reason });
                }
                _ => return Err(FetchError::Unexpected),
            };
            let end = at + count;
            let in_order = piece.start + first_item == at && count > 0 && end <= piece.end;
            if !in_order || (last == Last::Last) != (end == piece.end) {
                return Err(FetchError::Unexpected);
            }
            let row_bytes =
                |item: usize| self.book.block(items[item].block).map_or(0, |place| place.row_bytes);
            let expected: usize =
                (at..end).map(|item| items[item].rows() as usize * row_bytes(item) as usize).sum();
            if expected != payload.len() {
                return Err(FetchError::Unexpected);
            }
            each(at..end, payload);
            at = end;
        }
        Ok(())
    }
}
