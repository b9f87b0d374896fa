//! Receives files of a dataset from the operator, on a thread of its own.
//!
//! A file is written beside its place under a name made of its digest, so that a push that broke off goes on where it
//! stopped; it is checked, made durable and renamed when it is whole.

use super::OnPushed;
use crate::block_files::parse_manifest;
use rudder_client::frame_stream::{FrameStream, StreamError};
use rudder_client::frames::Frame;
use rudder_client::handshake::Session;
use rudder_client::put::{PutBegin, PutError, PutFile};
use rudder_topology::DatasetName;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Pushes at once; the operator is one person.
const PUSHES_MAX: usize = 4;
/// A push from which nothing comes for so long is over.
const IDLE: Duration = Duration::from_secs(30);

static PUSHES: AtomicUsize = AtomicUsize::new(0);

struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        PUSHES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a session that may push.
pub(super) fn start(directory: PathBuf, on_pushed: Option<OnPushed>, stream: TcpStream, session: Session) {
    let running = PUSHES.fetch_add(1, Ordering::Relaxed);
    let guard = Running;
    if running >= PUSHES_MAX {
        tracing::warn!(peer = %session.peer.name, "refused a push: {running} run already");
        return;
    }
    let dataset = session.scope.dataset.clone();
    let spawned = std::thread::Builder::new().name("push".to_owned()).spawn(move || {
        let _guard = guard;
        let mut receiver =
            Receiver { root: directory.join(dataset.as_str()), dataset, on_pushed, file: None };
        if let Err(error) = receiver.run(stream, &session) {
            tracing::info!(dataset = %receiver.dataset, %error, "a push ended");
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread for a push");
    }
}

struct Receiver {
    root: PathBuf,
    dataset: DatasetName,
    on_pushed: Option<OnPushed>,
    file: Option<Incoming>,
}

enum Incoming {
    /// The very file is in its place already.
    There(PutBegin),
    Coming(Coming),
}

struct Coming {
    begin: PutBegin,
    file: File,
    partial: PathBuf,
    place: PathBuf,
    have_bytes: u64,
}

impl Receiver {
    fn run(&mut self, stream: TcpStream, session: &Session) -> Result<(), StreamError> {
        stream.set_read_timeout(Some(IDLE))?;
        stream.set_write_timeout(Some(IDLE))?;
        let mut frames = FrameStream::new(stream, session);
        loop {
            let (frame, _, payload) = match frames.receive() {
                Err(StreamError::Closed) => return Ok(()),
                received => received?,
            };
            let answer = match frame {
                Frame::PutBegin(begin) => Some(self.begin(begin)),
                Frame::PutChunk { offset } => self.chunk(offset, payload).err().map(Err),
                Frame::PutEnd => Some(self.end()),
                Frame::Ping => {
                    frames.send(&Frame::Pong, &[])?;
                    continue;
                }
                _ => Some(Err(PutError::Order)),
            };
            if let Some(answer) = answer {
                frames.send(&Frame::PutStatus(answer), &[])?;
                if answer.is_err() {
                    // What follows would be chunks of the refused file.
                    self.file = None;
                    return Ok(());
                }
            }
        }
    }

    /// Opens the file and says how much of it is here already.
    fn begin(&mut self, begin: PutBegin) -> Result<u64, PutError> {
        self.file = None;
        let place = self.root.join(begin.file.relative_path(begin.part));
        if digest_of(&place).ok() == Some((begin.size_bytes, begin.digest)) {
            let size_bytes = begin.size_bytes;
            self.file = Some(Incoming::There(begin));
            return Ok(size_bytes);
        }
        let failed = |error: io::Error| write_failed(&place, &error);
        let parent = place.parent().unwrap_or(&self.root);
        std::fs::create_dir_all(parent).map_err(failed)?;
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let digest: String = begin.digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let partial = parent.join(format!(".{name}.{digest}.partial"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&partial)
            .map_err(failed)?;
        let mut have_bytes = file.metadata().map_err(failed)?.len();
        if have_bytes > begin.size_bytes {
            file.set_len(0).map_err(failed)?;
            have_bytes = 0;
        }
        let room = rustix::fs::fstatvfs(&file).map_err(|errno| failed(errno.into()))?;
        if begin.size_bytes - have_bytes > room.f_bavail.saturating_mul(room.f_frsize) {
            return Err(PutError::NoRoom);
        }
        self.file = Some(Incoming::Coming(Coming { begin, file, partial, place, have_bytes }));
        Ok(have_bytes)
    }

    fn chunk(&mut self, offset: u64, bytes: &[u8]) -> Result<(), PutError> {
        let Some(Incoming::Coming(incoming)) = &mut self.file else { return Err(PutError::Order) };
        if offset != incoming.have_bytes || incoming.begin.size_bytes - offset < bytes.len() as u64 {
            return Err(PutError::Offset);
        }
        incoming.file.write_all_at(bytes, offset).map_err(|error| write_failed(&incoming.partial, &error))?;
        incoming.have_bytes += bytes.len() as u64;
        Ok(())
    }

    fn end(&mut self) -> Result<u64, PutError> {
        let coming = match self.file.take().ok_or(PutError::Order)? {
            Incoming::Coming(coming) => coming,
            Incoming::There(begin) => {
                self.published(&begin.file);
                return Ok(begin.size_bytes);
            }
        };
        let Coming { begin, file, partial, place, have_bytes } = coming;
        if have_bytes != begin.size_bytes {
            return Err(PutError::Offset);
        }
        let failed = |error: io::Error| write_failed(&place, &error);
        if digest_of(&partial).map_err(failed)? != (begin.size_bytes, begin.digest) {
            // Nothing of it can be used; the next push starts over.
            std::fs::remove_file(&partial).map_err(failed)?;
            return Err(PutError::Digest);
        }
        if begin.file == PutFile::Manifest && !self.is_ours(&partial) {
            std::fs::remove_file(&partial).map_err(failed)?;
            return Err(PutError::Manifest);
        }
        file.sync_all().map_err(failed)?;
        std::fs::rename(&partial, &place).map_err(failed)?;
        let parent = place.parent().unwrap_or(&self.root);
        File::open(parent).and_then(|directory| directory.sync_all()).map_err(failed)?;
        self.published(&begin.file);
        Ok(begin.size_bytes)
    }

    fn is_ours(&self, manifest: &Path) -> bool {
        parse_manifest(manifest).is_ok_and(|manifest| manifest.name == self.dataset)
    }

    fn published(&self, file: &PutFile) {
        if let (PutFile::Manifest, Some(OnPushed(call))) = (file, &self.on_pushed) {
            call(self.dataset.clone());
        }
    }
}

fn write_failed(path: &Path, error: &io::Error) -> PutError {
    tracing::warn!(path = %path.display(), %error, "cannot take a pushed file");
    PutError::WriteFailed
}

fn digest_of(path: &Path) -> io::Result<(u64, [u8; 32])> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    let mut size = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((size, *hasher.finalize().as_bytes())),
            bytes => {
                hasher.update(&buffer[..bytes]);
                size += bytes as u64;
            }
        }
    }
}
