//! Storage nodes, the links to them, and what happens to both.

use super::{Cargo, Event, Simulation};
use crate::sim::network::{FlowId, LinkIndex, Path};
use crate::sim::spec::{Change, SimCompute, SimError};
use crate::sim::storage::{Next, Sent, Storage};
use rudder_policy::step::Reaction;
use rudder_topology::{Bytes, Generation, NodeId};

impl Simulation<'_> {
    pub(super) fn living(&mut self, node: NodeId, life: u32) -> Option<&mut Storage> {
        self.storages[node.index()].as_mut().filter(|storage| storage.life == life)
    }

    /// Lets the storage node serve what it may.
    pub(super) fn serve(&mut self, node: NodeId) {
        let (spec, now_ns) = (self.spec, self.now_ns);
        let Some(storage) = &mut self.storages[node.index()] else { return };
        let life = storage.life;
        match storage.next(&spec.costs, now_ns) {
            Next::Serve(sent) => {
                self.agenda.add(now_ns + spec.costs.serving(sent.bytes), Event::Served(node, life));
            }
            Next::NotBefore(at_ns) => self.agenda.add(at_ns.max(now_ns + 1), Event::Serve(node, life)),
            Next::Nothing => {}
        }
    }

    pub(super) fn send(&mut self, from: NodeId, sent: Sent) {
        let path = self.path(from, sent.to);
        let flow = self.network.start(path, self.spec.costs.wire_bytes(sent.bytes), self.now_ns);
        self.cargo.insert(flow, Cargo::Rows { from, to: sent.to });
    }

    pub(super) fn path(&self, from: NodeId, to: NodeId) -> Path {
        let mut path = vec![up(from), down(to)];
        path.extend(self.pairs.get(&(from, to)));
        path
    }

    pub(super) fn flow_ended(&mut self, flow: FlowId) {
        match self.cargo.remove(&flow) {
            Some(Cargo::Round(rank)) => self.round_sent(rank),
            Some(Cargo::Rows { from, to }) => {
                let Some(storage) = &mut self.storages[from.index()] else { return };
                let Some((sent, next)) = storage.sent(to) else { return };
                let generation = storage.generation.unwrap_or(Generation(0));
                let at_ns = self.now_ns + self.spec.latency.0 + self.spec.costs.receiving(sent.bytes);
                let transfer = sent.transfer;
                self.agenda.add(at_ns, Event::Received { at: to, transfer, generation });
                if let Some(next) = next {
                    self.send(from, next);
                }
                self.serve(from);
            }
            None => {}
        }
    }

    pub(super) fn change(&mut self, at: usize) -> Result<(), SimError> {
        let spec = self.spec;
        match spec.events[at].what {
            Change::Link { between: (a, b), rate } => {
                for pair in [(a, b), (b, a)] {
                    if let Some(&link) = self.pairs.get(&pair) {
                        self.network.set_capacity(link, rate.0 as f64, self.now_ns);
                    }
                }
            }
            Change::Interface { node, rate } => {
                for link in [up(node), down(node)] {
                    self.network.set_capacity(link, rate.0 as f64, self.now_ns);
                }
            }
            Change::Cache { node, left } => self.resize_cache(node, left)?,
            Change::Down { node } => self.node_down(node),
            Change::Up { node } => self.node_up(node),
        }
        Ok(())
    }

    /// Whoever has no data has no cache.
    fn resize_cache(&mut self, node: NodeId, left: f64) -> Result<(), SimError> {
        let spec = &self.spec.nodes[node.index()];
        let (Some(side), Some(_)) = (&spec.compute, &self.computes[node.index()]) else { return Ok(()) };
        let bytes = Bytes((side.cache.0 as f64 * left) as u64);
        let mut refused = None;
        self.stage(node, |engine, _| {
            engine.resize_cache(bytes).unwrap_or_else(|refusal| {
                refused = Some(SimError::Cache(spec.name.clone(), refusal));
                Reaction::default()
            })
        })?;
        refused.map_or(Ok(()), Err)
    }

    /// A storage node is gone; who was connected to it notices by its silence.
    pub(super) fn node_down(&mut self, node: NodeId) {
        let Some(storage) = self.storages[node.index()].as_mut().filter(|s| s.generation.is_some()) else {
            return;
        };
        storage.down(&self.spec.limits);
        let life = storage.life;
        let cut: Vec<FlowId> = self
            .cargo
            .iter()
            .filter(|(_, cargo)| matches!(cargo, Cargo::Rows { from, .. } if *from == node))
            .map(|(&flow, _)| flow)
            .collect();
        for flow in cut {
            self.network.cancel(flow, self.now_ns);
            self.cargo.remove(&flow);
        }
        self.staging_down(node);
        let noticed_ns = self.now_ns + self.spec.limits.heartbeat_timeout.0;
        for compute in self.connected(node) {
            self.agenda.add(noticed_ns, Event::LinkDown(compute, node, life));
        }
    }

    pub(super) fn node_up(&mut self, node: NodeId) {
        let Some(storage) = self.storages[node.index()].as_mut().filter(|s| s.generation.is_none()) else {
            return;
        };
        let generation = Generation(1 + u64::from(storage.life));
        storage.generation = Some(generation);
        let connected_ns = self.now_ns + self.spec.costs.reconnect.0 + self.spec.latency.0;
        for compute in self.connected(node) {
            self.agenda.add(connected_ns, Event::LinkUp(compute, node, generation));
        }
    }

    /// The compute nodes that may ask a storage node.
    pub(super) fn connected(&self, storage: NodeId) -> Vec<NodeId> {
        let asks = |compute: &SimCompute| compute.replicas.iter().flatten().any(|&(node, _)| node == storage);
        self.spec.compute_nodes().filter(|(_, compute)| asks(compute)).map(|(node, _)| node).collect()
    }
}

pub(super) fn up(node: NodeId) -> LinkIndex {
    LinkIndex(2 * u32::from(node.0))
}

pub(super) fn down(node: NodeId) -> LinkIndex {
    LinkIndex(2 * u32::from(node.0) + 1)
}
