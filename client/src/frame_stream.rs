//! Frames over a blocking socket: for direct fetches, pushes and tests. Movers have their own way.

use crate::frames::{Frame, FrameError, HEADER_BYTES, Header, Opener, Sealer};
use crate::handshake::Session;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// One end of a session.
#[derive(Debug)]
pub struct FrameStream {
    stream: TcpStream,
    sealer: Sealer,
    opener: Opener,
    payload: Vec<u8>,
}

/// Why no frame came or went.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("the peer closed the connection")]
    Closed,
    #[error("nothing came in time")]
    TimedOut,
    #[error("the socket failed: {0}")]
    Socket(io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => StreamError::TimedOut,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => StreamError::Closed,
            _ => StreamError::Socket(error),
        }
    }
}

impl FrameStream {
    /// Takes over a blocking socket after the handshake.
    #[must_use]
    pub fn new(stream: TcpStream, session: &Session) -> Self {
        FrameStream {
            stream,
            sealer: Sealer::new(session.send_key.clone()),
            opener: Opener::new(session.recv_key.clone()),
            payload: Vec::new(),
        }
    }

    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    pub fn send(&mut self, frame: &Frame, payload: &[u8]) -> Result<(), StreamError> {
        Ok(self.stream.write_all(&self.sealer.frame(frame, payload))?)
    }

    /// The next frame with its header and payload, all checked. Memory: one payload.
    pub fn receive(&mut self) -> Result<(Frame, Header, &[u8]), StreamError> {
        let mut bytes = [0; HEADER_BYTES];
        self.stream.read_exact(&mut bytes)?;
        let header = self.opener.open(&bytes)?;
        self.payload.resize(header.payload_bytes as usize, 0);
        self.stream.read_exact(&mut self.payload)?;
        let frame = Frame::parse(&header, &self.payload)?;
        Ok((frame, header, &self.payload))
    }
}
