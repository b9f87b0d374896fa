//! How a long run tells where it is, and how it is told to stop.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A stretch of work, in the order in which a run passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Compressed or textual input goes to a scratch file.
    Unpack,
    Edges,
    Partition,
    Order,
    BlockSize,
    Features,
    Graph,
    /// Everything goes to the disk.
    Sync,
    Digest,
    Verify,
}

impl Phase {
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Phase::Unpack => "unpack",
            Phase::Edges => "edges",
            Phase::Partition => "partition",
            Phase::Order => "order",
            Phase::BlockSize => "block size",
            Phase::Features => "features",
            Phase::Graph => "graph",
            Phase::Sync => "sync",
            Phase::Digest => "digest",
            Phase::Verify => "verify",
        }
    }
}

/// How much work a phase has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    Bytes(u64),
    Items(u64),
    /// Not known beforehand.
    Open,
}

/// Where a run reports to. Calls come in order: `begin`, any number of `advance`, `end`.
pub trait Progress {
    fn begin(&mut self, phase: Phase, total: Total);
    /// `done` more bytes or items of the phase.
    fn advance(&mut self, done: u64);
    fn end(&mut self, phase: Phase);
}

/// Reports nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _phase: Phase, _total: Total) {}
    fn advance(&mut self, _done: u64) {}
    fn end(&mut self, _phase: Phase) {}
}

/// Bars on standard error, one a phase, with rate, share and time left; silent where that is no terminal.
#[derive(Debug, Default)]
pub struct Bars {
    bar: Option<ProgressBar>,
}

const BYTES: &str = "{prefix:>10} {wide_bar} {percent:>3}% {bytes}/{total_bytes} {bytes_per_sec} {eta}";
const ITEMS: &str = "{prefix:>10} {wide_bar} {percent:>3}% {human_pos}/{human_len} {eta}";
const OPEN: &str = "{prefix:>10} {spinner} {elapsed}";

impl Progress for Bars {
    fn begin(&mut self, phase: Phase, total: Total) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        let (bar, template) = match total {
            Total::Bytes(bytes) => (ProgressBar::new(bytes), BYTES),
            Total::Items(items) => (ProgressBar::new(items), ITEMS),
            Total::Open => (ProgressBar::new_spinner(), OPEN),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(phase.label());
        bar.enable_steady_tick(Duration::from_millis(120));
        self.bar = Some(bar);
    }

    fn advance(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(done);
        }
    }

    fn end(&mut self, _phase: Phase) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// A flag that stops a run at its next check. Clones share it; setting it is safe in a signal handler's thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The run was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped on request; nothing was left behind")]
pub struct Cancelled;

/// What every loop of a run carries: where to report and whether to go on.
pub(crate) struct Run<'a> {
    progress: &'a mut dyn Progress,
    cancel: Cancel,
}

impl<'a> Run<'a> {
    pub(crate) fn new(progress: &'a mut dyn Progress, cancel: Cancel) -> Self {
        Run { progress, cancel }
    }

    pub(crate) fn begin(&mut self, phase: Phase, total: Total) {
        self.progress.begin(phase, total);
    }

    /// Reports work done, and says whether to go on.
    pub(crate) fn advance(&mut self, done: u64) -> Result<(), Cancelled> {
        self.progress.advance(done);
        if self.cancel.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }

    pub(crate) fn end(&mut self, phase: Phase) {
        self.progress.end(phase);
    }

    /// What stops this run, for one within it that reports elsewhere.
    pub(crate) fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }
}
