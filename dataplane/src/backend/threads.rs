//! Threads that read, where the kernel offers nothing better.

use super::{AlignedBuffer, WithBuffer};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Reads that may wait in the kernel at once. A thread that waits costs its stack; more do not make disks faster.
const READERS: usize = 32;

pub(super) struct Ask {
    pub(super) file: Arc<File>,
    pub(super) memory: AlignedBuffer,
    pub(super) range: Range<usize>,
    /// Where the buffer's start lies in the file.
    pub(super) offset: u64,
    pub(super) answer: oneshot::Sender<WithBuffer<usize, AlignedBuffer>>,
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
pub(super) struct Readers {
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
    pub(super) fn ask(&self, ask: Ask) {
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
