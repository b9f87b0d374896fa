//! The acceptor's mailbox: peers that knock at the data port.

use rudder_topology::DatasetName;
use std::net::TcpStream;

/// What the acceptor is told.
#[derive(Debug)]
pub enum AcceptorMessage {
    /// A peer connected; nothing is known of it yet.
    Accepted(TcpStream),
    /// A pushed dataset is complete in the node's directory.
    Pushed(DatasetName),
    /// With test faults enabled: panic.
    Fault,
}
