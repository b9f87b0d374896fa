//! Pushes files of a dataset to a storage node: checksummed, and going on where a former push stopped. Blocking.

use crate::frame_stream::{FrameStream, StreamError};
use crate::frames::Frame;
use crate::handshake::Dialed;
use crate::put::{PutBegin, PutError, PutFile};
use rudder_topology::PartId;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of one chunk.
const CHUNK_BYTES: usize = 256 << 10;

/// Why a file was not pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error("cannot read {}: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{} changed while it was pushed", file.display())]
    Changed { file: PathBuf },
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the storage node refused the file: {0}")]
    Refused(PutError),
    #[error("the storage node answered something else than what was asked")]
    Unexpected,
}

/// What was pushed of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    pub size_bytes: u64,
    /// Less than the size where the receiver had some of it.
    pub sent_bytes: u64,
}

/// A session that pushes.
#[derive(Debug)]
pub struct Pusher {
    frames: FrameStream,
}

impl Pusher {
    /// An answer that takes longer than `timeout` (the receiver checks a whole file's digest meanwhile) ends it.
    pub fn new(dialed: Dialed, timeout: Duration) -> Result<Self, PushError> {
        dialed.stream.set_read_timeout(Some(timeout)).map_err(StreamError::from)?;
        dialed.stream.set_write_timeout(Some(timeout)).map_err(StreamError::from)?;
        Ok(Pusher { frames: FrameStream::new(dialed.stream, &dialed.session) })
    }

    /// Pushes a file. `progress` is told the bytes that the receiver has. Push the manifest last.
    pub fn push(
        &mut self,
        file: PutFile,
        part: PartId,
        path: &Path,
        mut progress: impl FnMut(u64),
    ) -> Result<Pushed, PushError> {
        let failed = |source| PushError::Read { file: path.to_owned(), source };
        let mut source = File::open(path).map_err(failed)?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let (size_bytes, digest) = digest(&mut source, &mut buffer).map_err(failed)?;
        self.frames.send(&Frame::PutBegin(PutBegin { file, part, size_bytes, digest }), &[])?;
        let have_bytes = self.status()?;
        if have_bytes == size_bytes {
            // There already, or whole but not yet checked: the end says which.
            return self.finish(size_bytes, 0);
        }
        source.seek(SeekFrom::Start(have_bytes)).map_err(failed)?;
        let mut offset = have_bytes;
        while offset < size_bytes {
            progress(offset);
            let wanted = CHUNK_BYTES.min(usize::try_from(size_bytes - offset).unwrap_or(CHUNK_BYTES));
            let bytes = source.read(&mut buffer[..wanted]).map_err(failed)?;
            if bytes == 0 {
                return Err(PushError::Changed { file: path.to_owned() });
            }
            if let Err(error) = self.frames.send(&Frame::PutChunk { offset }, &buffer[..bytes]) {
                // A receiver that refuses says why before it closes.
                return Err(self.status().err().unwrap_or(error.into()));
            }
            offset += bytes as u64;
        }
        progress(offset);
        self.finish(size_bytes, size_bytes - have_bytes)
    }

    fn finish(&mut self, size_bytes: u64, sent_bytes: u64) -> Result<Pushed, PushError> {
        self.frames.send(&Frame::PutEnd, &[])?;
        if self.status()? == size_bytes {
            Ok(Pushed { size_bytes, sent_bytes })
        } else {
            Err(PushError::Unexpected)
        }
    }

    fn status(&mut self) -> Result<u64, PushError> {
        match self.frames.receive()?.0 {
            Frame::PutStatus(status) => status.map_err(PushError::Refused),
            _ => Err(PushError::Unexpected),
        }
    }
}

fn digest(file: &mut File, buffer: &mut [u8]) -> io::Result<(u64, [u8; 32])> {
    let mut hasher = blake3::Hasher::new();
    let mut size = 0;
    loop {
        match file.read(buffer)? {
            0 => return Ok((size, *hasher.finalize().as_bytes())),
            bytes => {
                hasher.update(&buffer[..bytes]);
                size += bytes as u64;
            }
        }
    }
}
