//! Plain system calls: readiness for sockets, a few threads for direct reads. For kernels and containers that refuse
//! io_uring.

use super::{AlignedBuffer, Io, ReadBuffer, ThreadMain, Wire, WithBuffer, shutdown_std};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use tokio::sync::{Semaphore, oneshot};

/// Reads that may wait in the kernel at once. A thread that waits costs its stack; more do not make disks faster.
const READERS: usize = 32;
/// Buffers that may be out at once: as many as the io_uring backend has.
const DEPTH: usize = 64;

#[derive(Clone)]
pub(crate) struct PreadIo {
    readers: Rc<Readers>,
    depth: Arc<Semaphore>,
    spare: Rc<std::cell::RefCell<Vec<AlignedBuffer>>>,
}

pub(crate) fn run(main: impl ThreadMain, started: impl FnOnce()) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let io = PreadIo {
        readers: Rc::new(Readers::default()),
        depth: Arc::new(Semaphore::new(DEPTH)),
        spare: Rc::default(),
    };
    started();
    tokio::task::LocalSet::new().block_on(&runtime, main.run(io));
    Ok(())
}

/// A buffer that goes back to the spare ones.
pub(crate) struct PooledBuffer {
    buffer: Option<AlignedBuffer>,
    spare: Rc<std::cell::RefCell<Vec<AlignedBuffer>>>,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        self.spare.borrow_mut().extend(self.buffer.take());
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
        let permit = self.depth.clone().acquire_owned().await.expect("the semaphore is never closed");
        let fitting = {
            let mut spare = self.spare.borrow_mut();
            let at = spare.iter().rposition(|buffer| (bytes..=4 * bytes).contains(&buffer.len()));
            // Where none fits, one of the spare buffers makes room: their number stays below the depth.
            let at = at.or_else(|| (spare.len() + 1 >= DEPTH).then_some(0));
            at.map(|at| spare.swap_remove(at)).filter(|buffer| buffer.len() >= bytes)
        };
        let buffer = match fitting {
            Some(buffer) => Some(buffer),
            // Without memory the buffer is empty, and the read that follows fails with that error.
            None => AlignedBuffer::new(bytes.next_power_of_two().max(16 << 10)).ok(),
        };
        PooledBuffer { buffer, spare: self.spare.clone(), _permit: permit }
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
        self.readers.ask(Ask { file: file.clone(), memory, range, offset, answer });
        match answered.await {
            Ok((result, memory)) => {
                buffer.buffer = Some(memory);
                (result, buffer)
            }
            Err(_) => (Err(io::ErrorKind::BrokenPipe.into()), buffer),
        }
    }
}

struct Ask {
    file: Arc<File>,
    memory: AlignedBuffer,
    range: Range<usize>,
    offset: u64,
    answer: oneshot::Sender<WithBuffer<usize, AlignedBuffer>>,
}

impl Ask {
    fn read(mut self) {
        let result = loop {
            let into = &mut self.memory.as_mut_slice()[self.range.clone()];
            match self.file.read_at(into, self.offset + self.range.start as u64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        // A mover that does not wait any more has no use for the buffer either.
        let _ = self.answer.send((result, self.memory));
    }
}

/// Threads that read, started as they are needed.
#[derive(Default)]
struct Readers {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    asked: VecDeque<Ask>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Readers {
    fn ask(&self, ask: Ask) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked.push_back(ask);
        if state.asked.len() <= state.idle {
            self.shared.changed.notify_one();
            return;
        }
        if state.threads >= READERS {
            return;
        }
        let shared = self.shared.clone();
        if std::thread::Builder::new()
            .name("pread".to_owned())
            .stack_size(64 << 10)
            .spawn(move || shared.serve())
            .is_ok()
        {
            state.threads += 1;
        } else if state.threads == 0 {
            // No thread can be had: the mover reads itself.
            let asked = std::mem::take(&mut state.asked);
            drop(state);
            asked.into_iter().for_each(Ask::read);
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(ask) = state.asked.pop_front() {
                drop(state);
                ask.read();
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
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
