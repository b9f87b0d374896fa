//! What differs between io_uring and plain system calls, and the thread a mover runs on.
//!
//! The movers' code is generic over [`Io`] and [`Wire`]. Buffers are owned by an operation until the kernel is done
//! with them; no operation is ever dropped to cancel it: closing the socket ends it.

mod aio;
mod aligned;
mod pread;
mod thread;
mod threads;
mod uring;

pub(crate) use aligned::AlignedBuffer;
pub(crate) use thread::MoverThread;
pub use thread::{StartError, StopTimeout};

use std::fs::File;
use std::future::Future;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::ops::Range;

/// Which backend to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// io_uring where the kernel lets us, else pread.
    #[default]
    Auto,
    /// io_uring, or no start.
    Uring,
    Pread,
    /// pread, without io_submit even where the kernel offers it.
    PreadThreads,
}

/// The backend that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `registered`: whether the kernel took the direct-read buffers; refused where `ulimit -l` is too small.
    Uring { registered: Registered },
    /// `refused`: what io_uring said, if it was tried.
    Pread { refused: Option<String>, reads: DirectReads },
}

/// How the pread backend reads with `O_DIRECT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectReads {
    /// io_submit: the kernel's older asynchronous interface.
    Aio,
    /// pread on a few threads.
    Threads,
}

/// Whether direct reads use buffers that the kernel has pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    Registered,
    NotRegistered,
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Backend::Uring { registered: Registered::Registered } => {
                f.write_str("io_uring, registered buffers")
            }
            Backend::Uring { registered: Registered::NotRegistered } => {
                f.write_str("io_uring, buffers not registered (raise `ulimit -l`)")
            }
            Backend::Pread { refused, reads } => {
                f.write_str(match reads {
                    DirectReads::Aio => "pread, direct reads by io_submit",
                    DirectReads::Threads => "pread, direct reads by threads",
                })?;
                refused.as_ref().map_or(Ok(()), |reason| write!(f, " (io_uring refused: {reason})"))
            }
        }
    }
}

impl Backend {
    /// Whether this process may use io_uring here.
    pub fn probe() -> Result<(), String> {
        uring::probe().map_err(|error| error.to_string())
    }
}

/// A result and the buffer that comes back with it.
pub(crate) type WithBuffer<T, B> = (io::Result<T>, B);

/// Bytes of the largest direct read.
pub(crate) const READ_BYTES_MAX: usize = 1 << 20;

/// Sockets and direct reads on one thread.
pub(crate) trait Io: Clone + 'static {
    type Wire: Wire;
    type File: Clone + 'static;
    /// A buffer aligned for direct reads.
    type Buffer: ReadBuffer;

    fn wire(&self, stream: TcpStream) -> io::Result<Self::Wire>;

    fn file(&self, file: &File) -> io::Result<Self::File>;

    /// A buffer of at least `bytes`, which are at most [`READ_BYTES_MAX`]. Waits while too many are out: this bounds
    /// the depth of reads.
    fn buffer(&self, bytes: usize) -> impl Future<Output = Self::Buffer>;

    /// One read into `buffer[range]`, where the buffer's start stands for `offset` of the file. May come back short.
    fn read_at(
        &self,
        file: &Self::File,
        buffer: Self::Buffer,
        range: Range<usize>,
        offset: u64,
    ) -> impl Future<Output = WithBuffer<usize, Self::Buffer>>;
}

/// What a read filled.
pub(crate) trait ReadBuffer: 'static {
    /// The first `bytes` of the buffer.
    fn filled(&self, bytes: usize) -> &[u8];
}

/// A connected socket. Clones are the same socket.
pub(crate) trait Wire: Clone + 'static {
    /// Reads at least one byte into `buffer[at..]`; zero is the end of the stream.
    fn read(&self, buffer: Vec<u8>, at: usize) -> impl Future<Output = WithBuffer<usize, Vec<u8>>>;

    fn write_all(&self, buffer: Vec<u8>) -> impl Future<Output = WithBuffer<(), Vec<u8>>>;

    /// Ends reads and writes that wait, here and at the peer.
    fn shutdown(&self);
}

/// What a mover's thread does, on either backend.
pub(crate) trait ThreadMain: Send + 'static {
    fn run<I: Io>(self, io: I) -> impl Future<Output = ()>;
}

fn shutdown_both(result: io::Result<()>) {
    // A socket that is not connected any more is as good as one that was shut down.
    drop(result);
}

fn shutdown_std(stream: &TcpStream) {
    shutdown_both(stream.shutdown(Shutdown::Both));
}
