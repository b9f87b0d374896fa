//! A storage node that is asked for what others own: it fetches it there once, keeps it, and serves it from then on.

use super::{Event, Simulation};
use crate::sim::storage::Sent;
use rudder_graph::BlockRows;
use rudder_policy::step::Transfer;
use rudder_topology::{Bytes, NodeId, PartId, TransferId};
use std::collections::BTreeMap;

/// Of transfers between storage nodes; far above any number that an engine reaches.
const FIRST_ID: u64 = 1 << 48;

/// What goes through other storage nodes.
#[derive(Default)]
pub(super) struct Relays {
    /// Requests that were not queued for sending yet, by the node that is asked, the one that asks, and its number.
    waiting: BTreeMap<(NodeId, NodeId, TransferId), (Sent, Vec<BlockRows>)>,
    upstream: BTreeMap<TransferId, Upstream>,
    count: u64,
}

/// Rows on their way from their owner.
struct Upstream {
    from: NodeId,
    at: NodeId,
    rows: Vec<BlockRows>,
}

impl Simulation<'_> {
    /// A compute node asks for copies.
    pub(super) fn note_staged(&mut self, transfer: &Transfer, sent: Sent) {
        let items = transfer.items.iter().map(|item| item.rows).collect();
        self.relays.waiting.insert((transfer.node, sent.to, sent.transfer), (sent, items));
    }

    /// The request is there.
    pub(super) fn stage_rows(&mut self, node: NodeId, sent: Sent) {
        let Some((_, items)) = self.relays.waiting.get(&(node, sent.to, sent.transfer)) else { return };
        let book = &self.spec.book;
        let block_bytes = |rows: &BlockRows| {
            book.block(rows.block)
                .map_or(0, |place| u64::from(place.full_mask().count_ones()) * u64::from(place.row_bytes))
        };
        let items: Vec<_> = items.iter().map(|rows| (*rows, block_bytes(rows))).collect();
        let Some(storage) = &mut self.storages[node.index()] else { return };
        match storage.staging.ask((sent.to, sent.transfer), &items) {
            Err(_) => self.not_staged(node, (sent.to, sent.transfer)),
            Ok(asked) if asked.here => self.send_staged(node, (sent.to, sent.transfer)),
            Ok(asked) => {
                let mut by_owner: BTreeMap<Option<NodeId>, Vec<BlockRows>> = BTreeMap::new();
                for rows in asked.fetch {
                    let part = self.spec.book.block(rows.block).map(|place| place.part);
                    let owner = part.and_then(|part| self.owner(part, node));
                    by_owner.entry(owner).or_default().push(rows);
                }
                for (owner, rows) in by_owner {
                    match owner {
                        Some(owner) => self.fetch_from_owner(owner, node, rows, sent),
                        None => self.rows_failed(node, &rows),
                    }
                }
            }
        }
    }

    /// The cheapest node that stores the part and is up.
    fn owner(&self, part: PartId, other_than: NodeId) -> Option<NodeId> {
        let replicas = self.spec.compute_nodes().filter_map(|(_, side)| side.replicas.get(part.index()));
        let up = |node: &NodeId| {
            *node != other_than
                && self.storages[node.index()].as_ref().is_some_and(|s| s.generation.is_some())
        };
        replicas.flatten().map(|&(node, _)| node).find(up)
    }

    fn fetch_from_owner(&mut self, owner: NodeId, node: NodeId, rows: Vec<BlockRows>, asked: Sent) {
        let book = &self.spec.book;
        let row_bytes = |rows: &BlockRows| book.block(rows.block).map_or(0, |place| place.row_bytes);
        let bytes = rows.iter().map(|rows| u64::from(rows.rows()) * u64::from(row_bytes(rows))).sum();
        let Some(storage) = &mut self.storages[owner.index()] else { return };
        storage.note_request(rows.len());
        self.relays.count += 1;
        let transfer = TransferId(FIRST_ID + self.relays.count);
        let sent = Sent { to: node, transfer, class: asked.class, bytes: Bytes(bytes), staged: false };
        let at_ns = self.now_ns + self.spec.costs.request.0 + self.spec.latency.0;
        self.agenda.add(at_ns, Event::Request(owner, storage.life, sent));
        self.relays.upstream.insert(transfer, Upstream { from: owner, at: node, rows });
    }

    /// Whether a transfer that was received was one between storage nodes.
    pub(super) fn received_upstream(&mut self, transfer: TransferId) -> bool {
        let Some(Upstream { at, rows, .. }) = self.relays.upstream.remove(&transfer) else {
            return transfer.0 >= FIRST_ID;
        };
        let storage = self.storages[at.index()].as_mut();
        for request in storage.map(|storage| storage.staging.arrived(&rows)).unwrap_or_default() {
            self.send_staged(at, request);
        }
        true
    }

    /// Everything is here: it waits to be sent, as the node's own rows do.
    fn send_staged(&mut self, node: NodeId, (to, transfer): (NodeId, TransferId)) {
        let Some((sent, _)) = self.relays.waiting.remove(&(node, to, transfer)) else { return };
        let (limits, now_ns) = (self.spec.limits, self.now_ns);
        let Some(storage) = &mut self.storages[node.index()] else { return };
        storage.staging.end((to, transfer));
        storage.request(sent, &limits, now_ns);
        self.serve(node);
    }

    fn rows_failed(&mut self, node: NodeId, rows: &[BlockRows]) {
        let storage = self.storages[node.index()].as_mut();
        for request in storage.map(|storage| storage.staging.failed(rows)).unwrap_or_default() {
            self.not_staged(node, request);
        }
    }

    /// The compute node is told so.
    fn not_staged(&mut self, node: NodeId, (to, transfer): (NodeId, TransferId)) {
        if self.relays.waiting.remove(&(node, to, transfer)).is_none() {
            return;
        }
        let generation = self.storages[node.index()].as_ref().and_then(|storage| storage.generation);
        let Some(generation) = generation else { return };
        let at_ns = self.now_ns + self.spec.costs.message.0 + self.spec.latency.0;
        self.agenda.add(at_ns, Event::Lost { at: to, transfer, generation });
    }

    /// The compute node does not want it any more.
    pub(super) fn cancel_staged(&mut self, node: NodeId, to: NodeId, transfer: TransferId) {
        if self.relays.waiting.remove(&(node, to, transfer)).is_some()
            && let Some(storage) = &mut self.storages[node.index()]
        {
            storage.staging.end((to, transfer));
        }
    }

    /// A storage node went: what it had is gone, and what it was to send to others.
    pub(super) fn staging_down(&mut self, node: NodeId) {
        self.relays.waiting.retain(|&(through, _, _), _| through != node);
        self.relays.upstream.retain(|_, upstream| upstream.at != node);
        let lost = self.relays.upstream.extract_if(.., |_, upstream| upstream.from == node);
        let lost: Vec<Upstream> = lost.map(|(_, upstream)| upstream).collect();
        for Upstream { at, rows, .. } in lost {
            self.rows_failed(at, &rows);
        }
    }
}
