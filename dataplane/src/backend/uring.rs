//! io_uring through tokio-uring: sockets, and direct reads into registered buffers.

use super::{
    AlignedBuffer, Io, READ_BYTES_MAX, ReadBuffer, Registered, ThreadMain, Wire, WithBuffer, shutdown_both,
};
use std::fs::File;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::rc::Rc;
use tokio_uring::buf::BoundedBuf;
use tokio_uring::buf::fixed::{FixedBuf, FixedBufPool};

/// Sizes of the buffers and how many there are: 7 MiB, which fits the usual 8 MiB of `ulimit -l`.
const BUFFERS: [(usize, usize); 3] = [(READ_BYTES_MAX, 2), (256 << 10, 16), (16 << 10, 64)];
/// tokio-uring submits when the mover has nothing else to do, or when this many operations wait: few, so that the
/// device works while the mover still takes completions.
const SUBMIT_ENTRIES: u32 = 8;
/// Completions may be many at once: every connection has a read in flight.
const COMPLETION_ENTRIES: u32 = 4096;

#[derive(Clone)]
pub(crate) struct UringIo {
    pool: Rc<FixedBufPool<AlignedBuffer>>,
    registered: Registered,
}

/// Asks the kernel for a small ring.
pub(crate) fn probe() -> io::Result<()> {
    tokio_uring::Runtime::new(tokio_uring::builder().entries(8)).map(drop)
}

pub(crate) fn run(main: impl ThreadMain, started: impl FnOnce(Registered)) -> io::Result<()> {
    let buffers = AlignedBuffer::pool(&BUFFERS)?;
    let mut builder = tokio_uring::builder();
    builder
        .entries(SUBMIT_ENTRIES)
        .uring_builder(tokio_uring::uring_builder().setup_cqsize(COMPLETION_ENTRIES));
    let runtime = tokio_uring::Runtime::new(&builder)?;
    runtime.block_on(async move {
        let pool = FixedBufPool::new(buffers);
        let registered = match pool.register() {
            Ok(()) => Registered::Registered,
            Err(_) => Registered::NotRegistered,
        };
        started(registered);
        main.run(UringIo { pool: Rc::new(pool), registered }).await;
    });
    Ok(())
}

impl Io for UringIo {
    type Wire = UringWire;
    type File = Rc<tokio_uring::fs::File>;
    type Buffer = FixedBuf;

    fn wire(&self, stream: TcpStream) -> io::Result<UringWire> {
        // The kernel waits for a blocking socket itself; a non-blocking one would come back with EAGAIN.
        stream.set_nonblocking(false)?;
        Ok(UringWire(Rc::new(tokio_uring::net::TcpStream::from_std(stream))))
    }

    fn file(&self, file: &File) -> io::Result<Self::File> {
        Ok(Rc::new(tokio_uring::fs::File::from_std(file.try_clone()?)))
    }

    async fn buffer(&self, bytes: usize) -> FixedBuf {
        // The smallest that is large enough; the sizes descend.
        let class = BUFFERS.iter().rev().map(|&(size, _)| size).find(|&size| size >= bytes);
        self.pool.next(class.unwrap_or(READ_BYTES_MAX)).await
    }

    async fn read_at(
        &self,
        file: &Self::File,
        buffer: FixedBuf,
        range: Range<usize>,
        offset: u64,
    ) -> WithBuffer<usize, FixedBuf> {
        let offset = offset + range.start as u64;
        let slice = buffer.slice(range);
        let (result, slice) = match self.registered {
            Registered::Registered => file.read_fixed_at(slice, offset).await,
            Registered::NotRegistered => file.read_at(slice, offset).await,
        };
        (result, slice.into_inner())
    }
}

impl ReadBuffer for FixedBuf {
    fn filled(&self, bytes: usize) -> &[u8] {
        &self[..bytes]
    }
}

#[derive(Clone)]
pub(crate) struct UringWire(Rc<tokio_uring::net::TcpStream>);

impl Wire for UringWire {
    async fn read(&self, buffer: Vec<u8>, at: usize) -> WithBuffer<usize, Vec<u8>> {
        let end = buffer.len();
        let (result, slice) = self.0.read(buffer.slice(at..end)).await;
        (result, slice.into_inner())
    }

    async fn write_all(&self, buffer: Vec<u8>) -> WithBuffer<(), Vec<u8>> {
        self.0.write_all(buffer).await
    }

    fn shutdown(&self) {
        shutdown_both(self.0.shutdown(Shutdown::Both));
    }
}
