//! The gateway's mailbox: trainers that knock.

use std::os::fd::OwnedFd;

/// What the gateway is told.
#[derive(Debug)]
pub enum GatewayMessage {
    /// A trainer connected to the Unix socket.
    Accepted(OwnedFd),
    /// With test faults enabled: panic.
    Fault,
}
