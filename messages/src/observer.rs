//! The observer's mailbox.

use crate::report::Report;
use ractor::RpcReplyPort;

/// What the observer is told.
#[derive(Debug)]
pub enum ObserverMessage {
    /// Measure, and send the report to the collectors.
    Observe,
    /// Measure, and answer.
    Report(RpcReplyPort<Report>),
    /// With test faults enabled: panic.
    Fault,
}
