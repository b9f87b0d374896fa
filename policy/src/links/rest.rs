//! Staged ways that bring nothing: the node that is asked is there, the one behind it is not. It answers so at once, and
//! is asked again only after a rest, longer each time.

use rudder_topology::Generation;

const BASE_NS: u64 = 50_000_000;
/// An owner that is back is found well within two seconds.
const MAX_NS: u64 = 800_000_000;

/// Whether a way rests, and how often it brought nothing since it last brought something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rest {
    until: Option<(u64, Generation)>,
    losses: u32,
}

impl Rest {
    /// It brought nothing; returns until when it rests. The incarnation that is connected is remembered.
    pub(super) fn begin(&mut self, connected: Generation, now_ns: u64) -> u64 {
        let ns = BASE_NS.saturating_mul(1 << self.losses.min(16)).min(MAX_NS);
        self.losses += 1;
        let until_ns = now_ns.saturating_add(ns);
        self.until = Some((until_ns, connected));
        until_ns
    }

    /// It brought something.
    pub(super) fn forget_losses(&mut self) {
        self.losses = 0;
    }

    /// The node came or went: what was before does not matter.
    pub(super) fn break_off(&mut self) {
        *self = Rest::default();
    }

    pub(super) fn until_ns(&self) -> Option<u64> {
        self.until.map(|(at_ns, _)| at_ns)
    }

    /// Ends it if its time has come; the incarnation that is connected again.
    pub(super) fn end(&mut self, now_ns: u64) -> Option<Generation> {
        let (_, connected) = self.until.take_if(|(until_ns, _)| *until_ns <= now_ns)?;
        Some(connected)
    }
}
