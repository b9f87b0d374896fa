//! The model's constants: what the simulation takes each piece of work to cost. This is the one place for them.
//!
//! They were set so that the shipped scenarios give in simulation what they gave with real processes on a machine of
//! two cores; `rudder scenario calibrate` shows both side by side and is how to check them on another machine.

use rudder_client::frames::HEADER_BYTES;
use rudder_topology::{Bytes, Nanos};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A trainer samples: for each row of the minibatch.
    pub sample_row_ns: f64,
    /// A trainer gathers: for each row, and for each byte.
    pub gather_row_ns: f64,
    pub gather_byte_ns: f64,
    /// A trainer goes on once it is told: it is woken up, on a core that others use too, and reads the answer.
    pub wake: Nanos,
    /// The compute node takes an announcement in (socket, decoding, window, plan): for each row.
    pub announce_row_ns: f64,
    /// A message between trainer and node, or between two actors of a node, until it is handled.
    pub message: Nanos,
    /// A transfer from the planner's decision to the storage node's queue, without the link.
    pub request: Nanos,
    /// The storage node serves a transfer: each, and for each byte.
    pub serve: Nanos,
    pub serve_byte_ns: f64,
    /// The compute node takes rows in (checksum, copy, engine, plan): each transfer, and each byte.
    pub receive: Nanos,
    pub receive_byte_ns: f64,
    /// A round of the all-reduce, without the link.
    pub round: Nanos,
    /// Bytes on a link for each byte of payload: headers of Ethernet, IP and TCP on full segments.
    pub wire_factor: f64,
    /// Payload bytes that a storage node reads ahead of a connection's socket.
    pub ahead: Bytes,
    /// From a storage node's return until a compute node is connected to it again.
    pub reconnect: Nanos,
    /// Memory of one machine, for trainers that sum gradients with a neighbour on it: nanoseconds a byte.
    pub local_byte_ns: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            sample_row_ns: 150.0,
            gather_row_ns: 60.0,
            gather_byte_ns: 0.15,
            wake: Nanos(200_000),
            announce_row_ns: 150.0,
            message: Nanos(40_000),
            request: Nanos(150_000),
            serve: Nanos(40_000),
            serve_byte_ns: 0.5,
            receive: Nanos(100_000),
            receive_byte_ns: 0.5,
            round: Nanos(100_000),
            // 1448 bytes of payload in 1514 of a frame.
            wire_factor: 1514.0 / 1448.0,
            // As in the storage mover.
            ahead: Bytes(128 << 10),
            reconnect: Nanos::from_millis(100),
            local_byte_ns: 0.5,
        }
    }
}

impl Costs {
    /// Bytes on the link of a transfer's rows: the frame's header, the payload, and what carries them.
    #[must_use]
    pub fn wire_bytes(&self, payload: Bytes) -> f64 {
        (payload.0 as f64 + HEADER_BYTES as f64) * self.wire_factor
    }

    /// Where a sampled row stands for `rate` rows: its bytes say so themselves, its count does not.
    #[must_use]
    pub fn of_sampled_rows(mut self, rate: u32) -> Costs {
        let rate = f64::from(rate);
        self.sample_row_ns *= rate;
        self.gather_row_ns *= rate;
        self.announce_row_ns *= rate;
        self
    }

    #[must_use]
    pub fn sampling(&self, rows: usize) -> u64 {
        (rows as f64 * self.sample_row_ns) as u64
    }

    #[must_use]
    pub fn gathering(&self, rows: usize, row_bytes: u32) -> u64 {
        (rows as f64 * (self.gather_row_ns + f64::from(row_bytes) * self.gather_byte_ns)) as u64
    }

    #[must_use]
    pub fn announcing(&self, rows: usize) -> u64 {
        self.message.0 + (rows as f64 * self.announce_row_ns) as u64
    }

    #[must_use]
    pub fn serving(&self, payload: Bytes) -> u64 {
        self.serve.0 + (payload.0 as f64 * self.serve_byte_ns) as u64
    }

    #[must_use]
    pub fn receiving(&self, payload: Bytes) -> u64 {
        self.receive.0 + (payload.0 as f64 * self.receive_byte_ns) as u64
    }
}
