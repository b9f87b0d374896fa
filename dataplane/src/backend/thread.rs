//! The one thread of a mover: bound, given a backend, told to stop within a time.

use super::{Backend, BackendChoice, DirectReads, Registered, ThreadMain, pread, uring};
use crate::cores::{self, Placement, PlacementError};
use rudder_topology::Cores;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Why a mover did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error("io_uring is refused here: {0}; use the pread backend")]
    UringRefused(String),
    #[error("the runtime could not be made: {0}")]
    Runtime(std::io::Error),
    #[error("the thread could not be made: {0}")]
    Thread(std::io::Error),
    #[error("the thread ended while it started")]
    Ended,
}

/// The thread did not end in time; it is left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the mover's thread did not end within {within:?}")]
pub struct StopTimeout {
    pub within: Duration,
}

#[derive(Debug)]
pub(crate) struct MoverThread {
    backend: Backend,
    placement: Placement,
    ended: Arc<Ended>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Ended {
    flag: Mutex<bool>,
    changed: Condvar,
}

/// Says that the thread is over, however it ends.
struct SayEnded(Arc<Ended>);

impl Drop for SayEnded {
    fn drop(&mut self) {
        *self.0.flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

type Report = Result<(Backend, Placement), StartError>;

impl MoverThread {
    pub(crate) fn start(
        name: &str,
        choice: BackendChoice,
        cores: &Cores,
        main: impl ThreadMain,
    ) -> Result<MoverThread, StartError> {
        let (report, started) = mpsc::channel();
        let ended = Arc::new(Ended::default());
        let say_ended = SayEnded(ended.clone());
        let cores = cores.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _say_ended = say_ended;
                run(choice, &cores, main, &report);
            })
            .map_err(StartError::Thread)?;
        match started.recv() {
            Ok(Ok((backend, placement))) => {
                Ok(MoverThread { backend, placement, ended, thread: Mutex::new(Some(thread)) })
            }
            Ok(Err(error)) => Err(error),
            Err(mpsc::RecvError) => Err(StartError::Ended),
        }
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    pub(crate) fn join_within(&self, within: Duration) -> Result<(), StopTimeout> {
        let flag = self.ended.flag.lock().unwrap_or_else(PoisonError::into_inner);
        let (flag, _) = self
            .ended
            .changed
            .wait_timeout_while(flag, within, |ended| !*ended)
            .unwrap_or_else(PoisonError::into_inner);
        if !*flag {
            return Err(StopTimeout { within });
        }
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A panic of the thread was printed where it happened; here it is only over.
            let _ = thread.join();
        }
        Ok(())
    }
}

fn run(choice: BackendChoice, cores: &Cores, main: impl ThreadMain, report: &mpsc::Sender<Report>) {
    let say = |outcome: Report| {
        // The starter waits for this; if it is gone, nobody wants the thread, and its channels end it.
        let _ = report.send(outcome);
    };
    let placement = match cores::place_mover(cores) {
        Ok(placement) => placement,
        Err(error) => return say(Err(error.into())),
    };
    let refused = match choice {
        BackendChoice::Pread | BackendChoice::PreadThreads => None,
        BackendChoice::Auto | BackendChoice::Uring => match uring::probe() {
            Ok(()) => {
                let outcome = uring::run(main, |registered: Registered| {
                    say(Ok((Backend::Uring { registered }, placement)));
                });
                return outcome.unwrap_or_else(|error| say(Err(StartError::Runtime(error))));
            }
            Err(error) => Some(error.to_string()),
        },
    };
    if choice == BackendChoice::Uring {
        return say(Err(StartError::UringRefused(refused.unwrap_or_default())));
    }
    let wanted = if choice == BackendChoice::PreadThreads { DirectReads::Threads } else { DirectReads::Aio };
    let outcome = pread::run(main, wanted, |reads| say(Ok((Backend::Pread { refused, reads }, placement))));
    outcome.unwrap_or_else(|error| say(Err(StartError::Runtime(error))));
}
