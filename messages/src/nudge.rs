//! The only thing that a local actor's ractor mailbox carries: its work lies in a queue that outlives it.

use ractor::Message;

/// There is work in the queue. Coalesced: one for many items.
#[derive(Clone, Copy, Debug)]
pub struct Nudge;

impl Message for Nudge {}
