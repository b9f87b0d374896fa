//! Without io_uring: readiness for sockets; direct reads by the kernel's older asynchronous interface, which containers
//! seldom refuse, or else by a few threads that call pread.

use super::aio::Aio;
use super::threads::{Ask, Readers};
use super::{
    AlignedBuffer, DirectReads, Io, READ_BYTES_MAX, ReadBuffer, ThreadMain, Wire, WithBuffer, shutdown_std,
};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot};

/// Sizes of the buffers and how many there are: 13 MiB. They bound the depth of reads.
const BUFFERS: [(usize, usize); 3] = [(READ_BYTES_MAX, 8), (256 << 10, 16), (16 << 10, 64)];
/// Reads that the kernel may have at once.
const DEPTH: usize = 8 + 16 + 64;

#[derive(Clone)]
pub(crate) struct PreadIo {
    reads: Reads,
    classes: Rc<[Class; 3]>,
}

/// The buffers of one size.
struct Class {
    bytes: usize,
    free: Arc<Semaphore>,
    buffers: Rc<RefCell<Vec<AlignedBuffer>>>,
}

#[derive(Clone)]
enum Reads {
    Aio(Rc<Aio>),
    Threads(Rc<Readers>),
}

pub(crate) fn run(
    main: impl ThreadMain,
    wanted: DirectReads,
    started: impl FnOnce(DirectReads),
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut buffers = AlignedBuffer::pool(&BUFFERS)?;
    let classes = BUFFERS.map(|(bytes, count)| Class {
        bytes,
        free: Arc::new(Semaphore::new(count)),
        buffers: Rc::new(RefCell::new(buffers.drain(..count).collect())),
    });
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let aio = match wanted {
            DirectReads::Aio => Aio::start(DEPTH).ok(),
            DirectReads::Threads => None,
        };
        let (reads, by) = match aio {
            Some(aio) => (Reads::Aio(aio), DirectReads::Aio),
            None => (Reads::Threads(Rc::default()), DirectReads::Threads),
        };
        started(by);
        main.run(PreadIo { reads, classes: Rc::new(classes) }).await;
    });
    Ok(())
}

/// A buffer that goes back to its class.
pub(crate) struct PooledBuffer {
    buffer: Option<AlignedBuffer>,
    class: Rc<RefCell<Vec<AlignedBuffer>>>,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        // Before the permit goes: who gets it finds the buffer.
        self.class.borrow_mut().extend(self.buffer.take());
    }
}

impl ReadBuffer for PooledBuffer {
    fn filled(&self, bytes: usize) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer.as_slice()[..bytes])
    }
}

impl Io for PreadIo {
    type Wire = PreadWire;
    type File = Arc<File>;
    type Buffer = PooledBuffer;

    fn wire(&self, stream: TcpStream) -> io::Result<PreadWire> {
        stream.set_nonblocking(true)?;
        let closer = stream.try_clone()?;
        Ok(PreadWire(Rc::new(Socket { stream: tokio::net::TcpStream::from_std(stream)?, closer })))
    }

    fn file(&self, file: &File) -> io::Result<Arc<File>> {
        Ok(Arc::new(file.try_clone()?))
    }

    async fn buffer(&self, bytes: usize) -> PooledBuffer {
        let fitting = self.classes.iter().rev().find(|class| class.bytes >= bytes);
        let class = fitting.unwrap_or(&self.classes[0]);
        let permit = class.free.clone().acquire_owned().await.expect("the semaphore is never closed");
        let buffer = class.buffers.borrow_mut().pop();
        PooledBuffer { buffer, class: class.buffers.clone(), _permit: permit }
    }

    async fn read_at(
        &self,
        file: &Arc<File>,
        mut buffer: PooledBuffer,
        range: Range<usize>,
        offset: u64,
    ) -> WithBuffer<usize, PooledBuffer> {
        let Some(memory) = buffer.buffer.take() else {
            return (Err(io::ErrorKind::OutOfMemory.into()), buffer);
        };
        let (answer, answered) = oneshot::channel();
        let ask = Ask { file: file.clone(), memory, range, offset, answer };
        match &self.reads {
            Reads::Aio(aio) => aio.ask(ask),
            Reads::Threads(readers) => readers.ask(ask),
        }
        match answered.await {
            Ok((result, memory)) => {
                buffer.buffer = Some(memory);
                (result, buffer)
            }
            Err(_) => (Err(io::ErrorKind::BrokenPipe.into()), buffer),
        }
    }
}

#[derive(Clone)]
pub(crate) struct PreadWire(Rc<Socket>);

struct Socket {
    stream: tokio::net::TcpStream,
    /// The same socket: shutting down needs no runtime.
    closer: TcpStream,
}

impl Wire for PreadWire {
    async fn read(&self, mut buffer: Vec<u8>, at: usize) -> WithBuffer<usize, Vec<u8>> {
        loop {
            match self.0.stream.try_read(&mut buffer[at..]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Err(error) = self.0.stream.readable().await {
                        return (Err(error), buffer);
                    }
                }
                result => return (result, buffer),
            }
        }
    }

    async fn write_all(&self, buffer: Vec<u8>) -> WithBuffer<(), Vec<u8>> {
        let mut sent = 0;
        while sent < buffer.len() {
            match self.0.stream.try_write(&buffer[sent..]) {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), buffer),
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Err(error) = self.0.stream.writable().await {
                        return (Err(error), buffer);
                    }
                }
                Err(error) => return (Err(error), buffer),
            }
        }
        (Ok(()), buffer)
    }

    fn shutdown(&self) {
        shutdown_std(&self.0.closer);
    }
}
