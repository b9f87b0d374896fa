//! The bounded buffer into which a connection is received: frames are checked and used where they lie, while their
//! bytes are in the CPU's cache.

use crate::backend::Wire;
use rudder_client::frames::{FrameError, HEADER_BYTES, Header, Opener, PAYLOAD_BYTES_MAX};
use std::io;

/// Bytes of the buffer at most: one frame.
const BYTES_MAX: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX;

/// Received bytes that no frame has been made of yet.
pub(crate) struct ReceiveBuffer {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The header at `start`, once it was checked.
    opened: Option<Header>,
    /// Bytes of the buffer while frames are no longer.
    bytes: usize,
}

impl ReceiveBuffer {
    pub(crate) fn new(bytes: usize) -> Self {
        ReceiveBuffer { buffer: Vec::new(), start: 0, end: 0, opened: None, bytes }
    }

    /// Receives once; returns how many bytes came, zero at the end of the stream.
    pub(crate) async fn fill(&mut self, wire: &impl Wire) -> io::Result<usize> {
        self.make_room();
        let buffer = std::mem::take(&mut self.buffer);
        let (result, buffer) = wire.read(buffer, self.end).await;
        self.buffer = buffer;
        let bytes = result?;
        self.end += bytes;
        Ok(bytes)
    }

    /// Room for the rest of the frame at `start`, or of a header. Only a checked header makes the buffer grow.
    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let wanted = HEADER_BYTES + self.opened.map_or(0, |header| header.payload_bytes as usize);
        debug_assert!(wanted <= BYTES_MAX);
        if self.start + wanted > self.buffer.len() || self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() < wanted.max(self.bytes) {
            self.buffer.resize(wanted.max(self.bytes), 0);
        }
    }

    /// The next whole frame, or `None` until more was received. The payload is not checked yet.
    pub(crate) fn next_frame(&mut self, opener: &mut Opener) -> Result<Option<(Header, &[u8])>, FrameError> {
        let have = &self.buffer[self.start..self.end];
        let header = match self.opened {
            Some(header) => header,
            None => {
                let Some(bytes) = have.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
                *self.opened.insert(opener.open(bytes)?)
            }
        };
        let bytes = HEADER_BYTES + header.payload_bytes as usize;
        if have.len() < bytes {
            return Ok(None);
        }
        let payload = self.start + HEADER_BYTES..self.start + bytes;
        self.start += bytes;
        self.opened = None;
        Ok(Some((header, &self.buffer[payload])))
    }
}
