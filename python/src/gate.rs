//! One user of the connection at a time, and Ctrl-C while one waits for another or for the node.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// Longest time between two looks at the interpreter's signals while another thread uses the connection.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a signal's handler raised while a call waited. Handlers run in the main thread alone.
#[derive(Default)]
pub(crate) struct Signals {
    raised: Mutex<Option<PyErr>>,
    /// Not where nobody could pass on what a handler raises.
    is_deaf: AtomicBool,
}

impl Signals {
    /// Runs the handlers of signals that have come. Whether one has raised an exception: then the wait is to end.
    pub(crate) fn are_raised(&self) -> bool {
        if self.is_deaf.load(Relaxed) {
            return false;
        }
        // The interpreter may be ending; then no handler runs any more.
        let Some(Some(error)) = Python::try_attach(|py| py.check_signals().err()) else { return false };
        *lock(&self.raised) = Some(error);
        true
    }

    pub(crate) fn take(&self) -> Option<PyErr> {
        lock(&self.raised).take()
    }

    /// Runs work that no signal ends. Only for who has the connection.
    pub(crate) fn deaf<R>(&self, work: impl FnOnce() -> R) -> R {
        self.is_deaf.store(true, Relaxed);
        let result = work();
        self.is_deaf.store(false, Relaxed);
        result
    }
}

/// Why the gate did not open.
pub(crate) enum Closed {
    Interrupted,
    /// This very thread is inside: a signal's handler wants what the call that it interrupted uses.
    Inside,
}

/// Lets one thread in at a time.
#[derive(Default)]
pub(crate) struct Gate {
    inside: Mutex<Option<ThreadId>>,
    left: Condvar,
}

pub(crate) struct Entered<'a>(&'a Gate);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        *lock(&self.0.inside) = None;
        self.0.left.notify_one();
    }
}

impl Gate {
    pub(crate) fn enter(&self, signals: &Arc<Signals>) -> Result<Entered<'_>, Closed> {
        let own = std::thread::current().id();
        loop {
            let mut inside = lock(&self.inside);
            match *inside {
                None => {
                    *inside = Some(own);
                    return Ok(Entered(self));
                }
                Some(other) if other == own => return Err(Closed::Inside),
                Some(_) => {
                    let waited = self.left.wait_timeout(inside, LOOK);
                    // A handler may want in itself.
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                    if signals.are_raised() {
                        return Err(Closed::Interrupted);
                    }
                }
            }
        }
    }

    /// Enters if nobody is inside.
    pub(crate) fn try_enter(&self) -> Option<Entered<'_>> {
        let mut inside = lock(&self.inside);
        if inside.is_some() {
            return None;
        }
        *inside = Some(std::thread::current().id());
        Some(Entered(self))
    }
}
