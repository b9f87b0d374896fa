//! A storage node: the product's queue decides what is served next, one transfer at a time, and each compute node's
//! connection carries its transfers one after the other.

use super::costs::Costs;
use rudder_client::frames::HEADER_BYTES;
use rudder_graph::Class;
use rudder_policy::pacing::{NotBefore, TokenBucket};
use rudder_policy::queue::{ClassQueue, QUANTUM, Queued};
use rudder_policy::staging::Staging;
use rudder_topology::{Bytes, Generation, Limits, Nanos, NodeId, TransferId};
use std::collections::{BTreeMap, VecDeque};

/// What the rate limiter lets through at once; as in the storage mover.
const BURST: Bytes = Bytes(64 << 10);

/// Of an item in a request.
const ITEM_BYTES: usize = 12;

/// A transfer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub to: NodeId,
    pub transfer: TransferId,
    pub class: Class,
    pub bytes: Bytes,
    /// Copies of what others own.
    pub staged: bool,
}

#[derive(Debug)]
struct Connection {
    bucket: Option<TokenBucket>,
    /// Payload bytes between queue and socket.
    ahead: u64,
    /// Served and not sent, oldest first; the first is being sent.
    sending: VecDeque<Sent>,
}

#[derive(Debug)]
pub(super) struct Storage {
    /// `None`: gone.
    pub generation: Option<Generation>,
    /// Raised whenever it goes, so that events of a former life find nothing.
    pub life: u32,
    queue: ClassQueue<NodeId, bool>,
    /// Copies of what others own; a request is named by who asks and its number there.
    pub staging: Staging<(NodeId, TransferId)>,
    connections: BTreeMap<NodeId, Connection>,
    pub serving: Option<Sent>,
    pub bytes_demand: u64,
    pub bytes_prefetch: u64,
    pub bytes_protocol: u64,
}

/// What to do next.
pub(super) enum Next {
    Serve(Sent),
    /// Ask again at this time.
    NotBefore(u64),
    Nothing,
}

impl Storage {
    pub(super) fn new(limits: &Limits, staging: Bytes) -> Self {
        Storage {
            generation: Some(Generation(1)),
            life: 0,
            queue: ClassQueue::new(limits.transfer_bytes_max.min(QUANTUM)),
            staging: Staging::new(staging.0),
            connections: BTreeMap::new(),
            serving: None,
            bytes_demand: 0,
            bytes_prefetch: 0,
            bytes_protocol: 0,
        }
    }

    pub(super) fn request(&mut self, sent: Sent, limits: &Limits, now_ns: u64) {
        let Sent { to, transfer, class, bytes, .. } = sent;
        let bucket = || limits.link_rate_max.map(|rate| TokenBucket::new(rate, BURST, Nanos(now_ns)));
        self.connections.entry(to).or_insert_with(|| Connection {
            bucket: bucket(),
            ahead: 0,
            sending: VecDeque::new(),
        });
        self.queue.push(Queued { link: to, transfer, class, bytes, work: sent.staged });
    }

    pub(super) fn cancel(&mut self, to: NodeId, transfer: TransferId) {
        self.queue.cancel(to, transfer);
    }

    /// Takes the next transfer to serve, if none is being served.
    pub(super) fn next(&mut self, costs: &Costs, now_ns: u64) -> Next {
        if self.serving.is_some() || self.generation.is_none() {
            return Next::Nothing;
        }
        let (connections, now) = (&mut self.connections, Nanos(now_ns));
        let mut wake: Option<u64> = None;
        let next = self.queue.pop(|queued| {
            connections.get_mut(&queued.link).is_some_and(|connection| {
                if connection.ahead >= costs.ahead.0 {
                    return false;
                }
                match connection.bucket.as_mut().map_or(Ok(()), |bucket| bucket.ready(queued.bytes, now)) {
                    Ok(()) => true,
                    Err(NotBefore(at)) => {
                        wake = Some(wake.map_or(at.0, |other| other.min(at.0)));
                        false
                    }
                }
            })
        });
        let Some(Queued { link: to, transfer, class, bytes, work: staged }) = next else {
            return wake.filter(|&at| at < u64::MAX / 2).map_or(Next::Nothing, Next::NotBefore);
        };
        if let Some(connection) = self.connections.get_mut(&to) {
            connection.ahead += bytes.0;
            if let Some(bucket) = &mut connection.bucket {
                let taken = bucket.take(bytes, now);
                debug_assert!(taken.is_ok(), "it was ready a moment ago");
            }
        }
        let sent = Sent { to, transfer, class, bytes, staged };
        self.serving = Some(sent);
        Next::Serve(sent)
    }

    /// The transfer that was being served is ready to be sent; true where its connection is idle.
    pub(super) fn served(&mut self) -> Option<(Sent, bool)> {
        let sent = self.serving.take()?;
        match sent.class {
            Class::Demand => self.bytes_demand += sent.bytes.0,
            Class::Prefetch => self.bytes_prefetch += sent.bytes.0,
        }
        let connection = self.connections.get_mut(&sent.to)?;
        connection.sending.push_back(sent);
        Some((sent, connection.sending.len() == 1))
    }

    /// The first transfer of the connection is sent; then comes the next.
    pub(super) fn sent(&mut self, to: NodeId) -> Option<(Sent, Option<Sent>)> {
        let connection = self.connections.get_mut(&to)?;
        let sent = connection.sending.pop_front()?;
        connection.ahead = connection.ahead.saturating_sub(sent.bytes.0);
        Some((sent, connection.sending.front().copied()))
    }

    /// It goes: whatever it had to do is lost.
    pub(super) fn down(&mut self, limits: &Limits) {
        self.generation = None;
        self.life += 1;
        self.queue = ClassQueue::new(limits.transfer_bytes_max.min(QUANTUM));
        self.staging.clear();
        self.connections.clear();
        self.serving = None;
    }

    /// Bytes beside payload: the request, and the header of the answer.
    pub(super) fn note_request(&mut self, items: usize) {
        self.bytes_protocol += (2 * HEADER_BYTES + items * ITEM_BYTES) as u64;
    }
}
