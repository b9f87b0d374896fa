//! A way to end a call that waits: for languages that must look at their signals.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait without a question.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// Whether a call that waits is to end with [`super::ClientError::Interrupted`]: asked at least every 100 ms of the wait
/// and after every signal, by the thread that waits. By default nobody is asked, and nothing ends a wait early.
#[derive(Clone, Default)]
pub struct Interrupt(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Interrupt {
    pub fn new(is_raised: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Interrupt(Some(Arc::new(is_raised)))
    }

    /// How long to wait now, of the time that is left.
    pub(super) fn slice(&self, left: Duration) -> Duration {
        if self.0.is_some() { left.min(ASKED_EVERY) } else { left }
    }

    /// Fails if the call is to end.
    pub(super) fn ask(&self) -> io::Result<()> {
        match &self.0 {
            Some(is_raised) if is_raised() => Err(io::ErrorKind::Interrupted.into()),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Interrupt(asked)" } else { "Interrupt(never)" })
    }
}
