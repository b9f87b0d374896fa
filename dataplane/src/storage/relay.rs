//! What others own and this node serves all the same: asked of an owner, kept as a copy, served from it. Decides only:
//! no sockets, no clock; the thread does what its [`Act`]s say.
//!
//! It asks owners and nobody else, and owners serve nothing but what they store: a request goes one step, never round.

use super::connection::ConnectionId;
use super::owners::Owners;
use crate::transfer::{Completion, Destination, TransferError, TransferItem, TransferRequest};
use rudder_client::frames::FailReason;
use rudder_graph::{BlockPlace, BlockRows, Class, PartitionBook};
use rudder_policy::staging::{Asked, Staging};
use rudder_topology::{BlockId, Bytes, Nanos, NodeId, PartId, TransferId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// A request of a compute node.
pub(super) type Request = (ConnectionId, TransferId);

/// Relayed requests of one dataset, and the copies.
pub(super) struct Relay {
    book: Arc<PartitionBook>,
    owners: Owners,
    time_out: Nanos,
    staging: Staging<Request>,
    /// Whole blocks; which rows of them are there is for `staging` to say.
    copies: HashMap<BlockId, Box<[u8]>>,
    requests: BTreeMap<Request, Held>,
    waiting: Waiting,
    fetches: BTreeMap<TransferId, Fetch>,
    /// When fetches are given up, soonest first; those that ended before are skipped.
    deadlines: VecDeque<(Nanos, TransferId)>,
    next_fetch: u64,
}

/// A request that has not ended. Its copies stay.
struct Held {
    class: Class,
    bytes: Bytes,
    /// None any more once it waits for its turn to be sent.
    items: Vec<BlockRows>,
}

/// Requests of which something is not here yet, with their payload bytes.
#[derive(Default)]
struct Waiting {
    by_connection: BTreeMap<ConnectionId, u64>,
    requests: u64,
    bytes: u64,
}

impl Waiting {
    fn begin(&mut self, connection: ConnectionId, Bytes(bytes): Bytes) {
        *self.by_connection.entry(connection).or_default() += bytes;
        self.requests += 1;
        self.bytes += bytes;
    }

    fn end(&mut self, connection: ConnectionId, Bytes(bytes): Bytes) {
        self.requests -= 1;
        self.bytes -= bytes;
        if let Some(waiting) = self.by_connection.get_mut(&connection) {
            *waiting -= bytes;
            if *waiting == 0 {
                self.by_connection.remove(&connection);
            }
        }
    }
}

/// Rows that are asked of owners, one after the other until one serves them.
struct Fetch {
    class: Class,
    rows: Vec<BlockRows>,
    /// Owners that have not been asked, cheapest first.
    untried: Vec<NodeId>,
    /// Who is asked now.
    asked: Option<NodeId>,
    /// A block of which the owners asked so far have no good copy.
    corrupt: Option<BlockId>,
    /// An owner failed that may have a good one.
    in_doubt: bool,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Everything is here: wait for the turn to be sent.
    Enqueue {
        request: Request,
        class: Class,
        bytes: Bytes,
        items: Vec<BlockRows>,
    },
    Fail {
        request: Request,
        item: u32,
        reason: FailReason,
    },
    Dial(NodeId),
    Submit(TransferRequest),
    Cancel(TransferId),
}

impl Relay {
    /// `owners[part]`: whom to ask, cheapest first; empty where this node is an owner itself.
    pub(super) fn new(
        book: Arc<PartitionBook>,
        owners: Vec<Vec<NodeId>>,
        bytes_max: Bytes,
        time_out: Nanos,
    ) -> Self {
        Relay {
            book,
            owners: Owners::new(owners),
            time_out,
            staging: Staging::new(bytes_max.0),
            copies: HashMap::new(),
            requests: BTreeMap::new(),
            waiting: Waiting::default(),
            fetches: BTreeMap::new(),
            deadlines: VecDeque::new(),
            next_fetch: 0,
        }
    }

    pub(super) fn relays(&self, part: PartId) -> bool {
        !self.owners.of(part).is_empty()
    }

    /// Parts that are asked of a node.
    pub(super) fn parts_of(&self, node: NodeId) -> Vec<PartId> {
        self.owners.parts_of(node)
    }

    /// Memory of the copies that are here or on their way.
    pub(super) fn bytes(&self) -> u64 {
        self.staging.bytes()
    }

    pub(super) fn blocks(&self) -> u64 {
        self.staging.blocks() as u64
    }

    /// Payload bytes of what a connection waits for and is not here yet.
    pub(super) fn waiting_bytes(&self, connection: ConnectionId) -> u64 {
        self.waiting.by_connection.get(&connection).copied().unwrap_or(0)
    }

    /// Requests and their payload bytes that wait for owners.
    pub(super) fn waiting(&self) -> (u64, u64) {
        (self.waiting.requests, self.waiting.bytes)
    }

    /// Takes a request whose rows exist and whose parts are relayed. `bytes`: its payload.
    pub(super) fn ask(
        &mut self,
        request: Request,
        class: Class,
        bytes: Bytes,
        items: Vec<BlockRows>,
        now: Nanos,
    ) -> Result<Vec<Act>, FailReason> {
        self.end(request);
        let whole = |&rows: &BlockRows| Some((rows, block_bytes(self.book.block(rows.block)?) as u64));
        let whole: Vec<_> = items.iter().filter_map(whole).collect();
        let Asked { fetch, evicted, here } =
            self.staging.ask(request, &whole).map_err(|_| FailReason::Upstream)?;
        for block in evicted {
            self.copies.remove(&block);
        }
        if here {
            self.requests.insert(request, Held { class, bytes, items: Vec::new() });
            return Ok(vec![Act::Enqueue { request, class, bytes, items }]);
        }
        self.requests.insert(request, Held { class, bytes, items });
        self.waiting.begin(request.0, bytes);
        let mut acts = Vec::new();
        for (untried, rows) in self.by_owners(fetch) {
            let id = TransferId(self.next_fetch);
            self.next_fetch += 1;
            let fetch = Fetch { class, rows, untried, asked: None, corrupt: None, in_doubt: false };
            self.fetches.insert(id, fetch);
            self.deadlines.push_back((Nanos(now.0.saturating_add(self.time_out.0)), id));
            self.place(id, &mut acts);
        }
        Ok(acts)
    }

    /// Rows that the same nodes own are asked for together.
    fn by_owners(&self, fetch: Vec<BlockRows>) -> BTreeMap<Vec<NodeId>, Vec<BlockRows>> {
        let mut groups: BTreeMap<Vec<NodeId>, Vec<BlockRows>> = BTreeMap::new();
        for rows in fetch {
            let part = self.book.block(rows.block).map(|place| place.part);
            let owners = part.map_or(&[][..], |part| self.owners.of(part));
            groups.entry(owners.to_vec()).or_default().push(rows);
        }
        groups
    }

    /// Asks the cheapest owner that is connected. Where none is, those that may be soon are waited for.
    fn place(&mut self, id: TransferId, acts: &mut Vec<Act>) {
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        let choice = self.owners.choose(&fetch.untried);
        acts.extend(choice.dial.into_iter().map(Act::Dial));
        if let Some(node) = choice.ask {
            fetch.asked = Some(node);
            fetch.untried.retain(|&other| other != node);
            let item = |&rows: &BlockRows| TransferItem { rows, to: Destination::Private };
            let items = fetch.rows.iter().map(item).collect();
            acts.push(Act::Submit(TransferRequest { id, node, class: fetch.class, items }));
        } else if !choice.wait {
            self.give_up(id, acts);
        }
    }

    fn give_up(&mut self, id: TransferId, acts: &mut Vec<Act>) {
        let Some(fetch) = self.fetches.remove(&id) else { return };
        if fetch.asked.is_some() {
            acts.push(Act::Cancel(id));
        }
        let corrupt = fetch.corrupt.filter(|_| !fetch.in_doubt && fetch.untried.is_empty());
        for request in self.staging.failed(&fetch.rows) {
            let Some(held) = self.forget(request) else { continue };
            let at = |block| held.items.iter().position(|rows| rows.block == block);
            let (item, reason) = match corrupt.and_then(at) {
                Some(at) => (at as u32, FailReason::Corrupt),
                None => (0, FailReason::Upstream),
            };
            acts.push(Act::Fail { request, item, reason });
        }
    }

    /// Rows that were asked of an owner under this name, and have not come.
    pub(super) fn rows_of(&self, id: TransferId) -> u64 {
        self.fetches.get(&id).map_or(0, |fetch| fetch.rows.iter().map(|rows| u64::from(rows.rows())).sum())
    }

    /// What an owner answered.
    pub(super) fn answered(&mut self, completion: Completion) -> Vec<Act> {
        let mut acts = Vec::new();
        let id = completion.transfer;
        // One that was given up has ended.
        let Some(fetch) = self.fetches.get_mut(&id) else { return acts };
        match completion.result {
            Ok(arrived) => self.arrived(id, &arrived.private.unwrap_or_default(), &mut acts),
            Err(error) => {
                fetch.asked = None;
                match error {
                    TransferError::Corrupt { item } => {
                        fetch.corrupt = fetch.rows.get(item as usize).map(|rows| rows.block);
                    }
                    _ => fetch.in_doubt = true,
                }
                self.place(id, &mut acts);
            }
        }
        acts
    }

    fn arrived(&mut self, id: TransferId, mut rest: &[u8], acts: &mut Vec<Act>) {
        let Some(fetch) = self.fetches.remove(&id) else { return };
        for rows in &fetch.rows {
            let Some(place) = self.book.block(rows.block) else { continue };
            let bytes = rows.rows() as usize * place.row_bytes as usize;
            let Some((packed, after)) = rest.split_at_checked(bytes) else { continue };
            rest = after;
            let copy = self.copies.entry(rows.block).or_insert_with(|| vec![0; block_bytes(place)].into());
            crate::block_files::place_rows(packed, place.row_bytes, rows.mask, copy);
        }
        for request in self.staging.arrived(&fetch.rows) {
            let Some(held) = self.requests.get_mut(&request) else { continue };
            let items = std::mem::take(&mut held.items);
            let (class, bytes) = (held.class, held.bytes);
            self.waiting.end(request.0, bytes);
            acts.push(Act::Enqueue { request, class, bytes, items });
        }
        for rows in &fetch.rows {
            if self.staging.valid(rows.block) == 0 {
                self.copies.remove(&rows.block);
            }
        }
    }

    /// Appends rows of a request that is being sent.
    pub(super) fn append(&self, rows: BlockRows, out: &mut Vec<u8>) -> Result<(), FailReason> {
        let place = self.book.block(rows.block).ok_or(FailReason::UnknownBlock)?;
        let copy = self.copies.get(&rows.block).filter(|_| rows.mask & !self.staging.valid(rows.block) == 0);
        let copy = copy.ok_or(FailReason::Upstream)?;
        crate::block_files::append_rows(copy, place.row_bytes, rows.mask, out);
        Ok(())
    }

    /// A request was sent, failed, or is not wanted any more.
    pub(super) fn end(&mut self, request: Request) {
        self.staging.end(request);
        self.forget(request);
    }

    /// Everything that a connection asked for is not wanted any more.
    pub(super) fn end_connection(&mut self, connection: ConnectionId) {
        let range = (connection, TransferId(0))..=(connection, TransferId(u64::MAX));
        let requests: Vec<Request> = self.requests.range(range).map(|(&request, _)| request).collect();
        for request in requests {
            self.end(request);
        }
    }

    /// Ends everything. The requests that had not ended.
    pub(super) fn clear(&mut self) -> Vec<Request> {
        let over: Vec<Request> = std::mem::take(&mut self.requests).into_keys().collect();
        self.staging.clear();
        self.copies.clear();
        self.waiting = Waiting::default();
        self.fetches.clear();
        self.deadlines.clear();
        over
    }

    fn forget(&mut self, request: Request) -> Option<Held> {
        let held = self.requests.remove(&request)?;
        if !held.items.is_empty() {
            self.waiting.end(request.0, held.bytes);
        }
        Some(held)
    }

    /// An owner is connected, or is not: `false` also where it could not be dialed.
    pub(super) fn connected(&mut self, node: NodeId, is_up: bool) -> Vec<Act> {
        self.owners.set(node, is_up);
        let idle = self.fetches.iter().filter(|(_, fetch)| fetch.asked.is_none());
        let idle: Vec<TransferId> = idle.map(|(&id, _)| id).collect();
        let mut acts = Vec::new();
        for id in idle {
            self.place(id, &mut acts);
        }
        acts
    }

    /// Gives up what has taken too long.
    pub(super) fn expire(&mut self, now: Nanos) -> Vec<Act> {
        let mut acts = Vec::new();
        while let Some(&(at, id)) = self.deadlines.front() {
            if at > now && self.fetches.contains_key(&id) {
                break;
            }
            self.deadlines.pop_front();
            self.give_up(id, &mut acts);
        }
        acts
    }

    /// When [`Relay::expire`] has something to do again.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.deadlines.front().map(|&(at, _)| at)
    }
}

fn block_bytes(place: BlockPlace) -> usize {
    usize::from(place.rows) * place.row_bytes as usize
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
