//! The one clock of a node: nanoseconds since it started. Everything pure gets its time from here, as a number.

use rudder_topology::Nanos;
use std::time::{Duration, Instant};

/// Copies tell the same time.
#[derive(Clone, Copy, Debug)]
pub struct NodeClock {
    start: Instant,
}

impl NodeClock {
    #[must_use]
    pub fn start() -> Self {
        NodeClock { start: Instant::now() }
    }

    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The runtime's instant for a node's time; a time beyond what the runtime can tell is a year away.
    #[must_use]
    pub fn instant(&self, at: Nanos) -> tokio::time::Instant {
        let year = Duration::from_secs(365 * 86_400);
        let since_start = Duration::from_nanos(at.0).min(year);
        tokio::time::Instant::from_std(self.start + since_start)
    }
}
