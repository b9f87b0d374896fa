//! The cluster in motion: engines, storage nodes, trainers, links, and one agenda.

use super::clock::Agenda;
use super::network::{FlowId, LinkIndex, Network, Path};
use super::ring::Ring;
use super::spec::{Change, OnStep, Rows, SimCompute, SimError, SimSpec};
use super::storage::{Next, Sent, Storage};
use super::trainer::{Doing, Trainer};
use super::watch::Watch;
use crate::record::Counters;
use rudder_policy::engine::{Engine, EngineConfig};
use rudder_policy::ledger::Statistics;
use rudder_policy::parameters::Parameters;
use rudder_policy::step::{Command, Outcome, Reaction, TrainerId};
use rudder_topology::{Bytes, Generation, JobId, MinibatchId, NodeId, TrainerRank, TransferId};
use std::collections::BTreeMap;

/// What happens at a time.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// At a compute node, from its trainer.
    Announce(TrainerRank, u64),
    Want(TrainerRank, u64),
    Release(TrainerRank, u64),
    /// At a trainer.
    Ready(TrainerRank, u64),
    Gathered(TrainerRank),
    Computed(TrainerRank),
    LookedAhead(TrainerRank),
    RoundSent(TrainerRank),
    RoundReceived(TrainerRank),
    /// At a storage node; the number is its life.
    Request(NodeId, u32, Sent),
    Served(NodeId, u32),
    Serve(NodeId, u32),
    /// At a compute node.
    Received {
        at: NodeId,
        transfer: TransferId,
        generation: Generation,
    },
    /// The number tells ticks that were overtaken by an earlier one.
    Tick(NodeId, u64),
    LinkUp(NodeId, NodeId, Generation),
    /// The number is the life that ended.
    LinkDown(NodeId, NodeId, u32),
    /// Of the specification, by position.
    Change(usize),
}

/// What a flow carries.
#[derive(Clone, Copy, Debug)]
enum Cargo {
    Rows { from: NodeId, to: NodeId },
    Round(TrainerRank),
}

/// A compute node.
pub struct Compute {
    pub engine: Engine,
    /// When it has worked off what came so far.
    busy_until_ns: u64,
    /// Ticks that are on the agenda: the earliest.
    wake_ns: Option<u64>,
}

/// See the module.
pub struct Simulation<'a> {
    spec: &'a SimSpec,
    rows: &'a dyn Rows,
    now_ns: u64,
    agenda: Agenda<Event>,
    network: Network,
    cargo: BTreeMap<FlowId, Cargo>,
    /// Links that only two nodes share, where an event names them.
    pairs: BTreeMap<(NodeId, NodeId), LinkIndex>,
    /// By node; empty for the bound.
    computes: Vec<Option<Compute>>,
    storages: Vec<Option<Storage>>,
    trainers: Vec<Trainer>,
    ring: Option<Ring>,
    unfinished: usize,
    /// Trainers whose all-reduce just ended.
    through: Vec<TrainerRank>,
}

const JOB: JobId = JobId(0);

fn trainer_id(rank: TrainerRank) -> TrainerId {
    TrainerId { job: JOB, rank }
}

impl<'a> Simulation<'a> {
    /// Without data, it is the bound.
    pub(super) fn new(spec: &'a SimSpec, rows: &'a dyn Rows, with_data: bool) -> Result<Self, SimError> {
        let mut capacity = Vec::new();
        for node in &spec.nodes {
            capacity.extend([node.up.0 as f64, node.down.0 as f64]);
        }
        let mut pairs = BTreeMap::new();
        for event in &spec.events {
            if let Change::Link { between: (a, b), .. } = event.what {
                for pair in [(a, b), (b, a)] {
                    pairs.entry(pair).or_insert_with(|| {
                        capacity.push(f64::MAX);
                        LinkIndex(capacity.len() as u32 - 1)
                    });
                }
            }
        }
        let mut computes = Vec::new();
        for node in &spec.nodes {
            computes.push(match &node.compute {
                Some(compute) if with_data => {
                    let engine = Engine::new(EngineConfig {
                        book: spec.book.clone(),
                        cache_bytes: compute.cache,
                        replicas: compute.replicas.clone(),
                        limits: spec.limits,
                        parameters: Parameters::default(),
                        policy: spec.policy,
                        prior: spec.prior.clone(),
                        credits: compute.credits,
                        ready_ahead: compute.ready_ahead,
                    })
                    .map_err(|error| SimError::Cache(node.name.clone(), error))?;
                    Some(Compute { engine, busy_until_ns: 0, wake_ns: None })
                }
                _ => None,
            });
        }
        let mut storages: Vec<Option<Storage>> = spec.nodes.iter().map(|_| None).collect();
        let replicas = spec.compute_nodes().flat_map(|(_, compute)| compute.replicas.iter().flatten());
        for &(node, _) in replicas.filter(|_| with_data) {
            storages[node.index()].get_or_insert_with(|| Storage::new(&spec.limits));
        }
        let mut trainers = Vec::new();
        for (place, (node, _)) in spec.compute_nodes().enumerate() {
            for _ in 0..spec.load.trainers_per_node {
                trainers.push(Trainer::new(TrainerRank(trainers.len() as u32), node, place));
            }
        }
        let ring = (spec.load.allreduce.0 > 0).then(|| Ring::new(spec.trainers(), spec.load.allreduce));
        Ok(Simulation {
            spec,
            rows,
            now_ns: 0,
            agenda: Agenda::default(),
            network: Network::new(&capacity, spec.sharing),
            cargo: BTreeMap::new(),
            pairs,
            computes,
            storages,
            unfinished: trainers.len(),
            trainers,
            ring,
            through: Vec::new(),
        })
    }

    /// Plays to the end.
    pub(super) fn play(
        &mut self,
        on_step: OnStep<'_>,
        mut watch: Option<&mut dyn Watch>,
    ) -> Result<(), SimError> {
        self.open();
        self.end_steps(on_step);
        while self.unfinished > 0 {
            let own = self.network.next_ns(self.now_ns);
            let due = self.agenda.next_ns();
            match (own, due) {
                (Some(flow), due) if due.is_none_or(|due| flow <= due) => {
                    self.now_ns = self.now_ns.max(flow);
                    while let Some(flow) = self.network.pop_ended(self.now_ns) {
                        self.flow_ended(flow);
                    }
                    self.end_steps(on_step);
                }
                (_, Some(_)) => {
                    let Some((at_ns, event)) = self.agenda.pop() else { continue };
                    self.now_ns = self.now_ns.max(at_ns);
                    self.happen(event, on_step)?;
                }
                (_, None) => {
                    return Err(self.stuck());
                }
            }
            if let Some(watch) = &mut watch {
                watch.after(self).map_err(|what| {
                    SimError::Violation(format!("{what}; at {} ns, seed {}", self.now_ns, self.spec.seed))
                })?;
            }
        }
        Ok(())
    }

    fn open(&mut self) {
        for (at, event) in self.spec.events.iter().enumerate() {
            self.agenda.add(event.at.0, Event::Change(at));
        }
        let pairs: Vec<(NodeId, NodeId)> = self
            .spec
            .compute_nodes()
            .flat_map(|(node, compute)| {
                let mut storage: Vec<NodeId> =
                    compute.replicas.iter().flatten().map(|&(storage, _)| storage).collect();
                storage.sort_unstable();
                storage.dedup();
                storage.into_iter().map(move |storage| (node, storage))
            })
            .collect();
        for (node, storage) in pairs {
            if self.computes[node.index()].is_some() {
                self.agenda.add(0, Event::LinkUp(node, storage, Generation(1)));
            }
        }
        for rank in (0..self.trainers.len() as u32).map(TrainerRank) {
            if let Some(compute) = &mut self.computes[self.trainers[rank.index()].node.index()] {
                compute.engine.connect(trainer_id(rank));
            }
            // The first all-reduce lets trainers begin together.
            self.trainers[rank.index()].doing = Doing::Reducing;
            self.enter_ring(rank);
        }
    }

    fn happen(&mut self, event: Event, on_step: OnStep<'_>) -> Result<(), SimError> {
        match event {
            Event::Announce(rank, minibatch) => return self.announce(rank, minibatch),
            Event::Want(rank, minibatch) => {
                self.stage_of(rank, |engine, now| {
                    engine.want(trainer_id(rank), MinibatchId(minibatch), now).unwrap_or_default()
                })?;
            }
            Event::Release(rank, minibatch) => {
                self.stage_of(rank, |engine, now| {
                    engine.release(trainer_id(rank), MinibatchId(minibatch), now).unwrap_or_default()
                })?;
            }
            Event::Ready(rank, minibatch) => {
                self.trainers[rank.index()].ready.insert(minibatch);
                self.gather(rank);
            }
            Event::Gathered(rank) => self.compute(rank),
            Event::LookedAhead(rank) => self.ask(rank),
            Event::Computed(rank) => {
                let trainer = &mut self.trainers[rank.index()];
                trainer.doing = Doing::Reducing;
                trainer.reduce_ns = self.now_ns;
                self.enter_ring(rank);
            }
            Event::RoundSent(rank) => self.round_sent(rank),
            Event::RoundReceived(rank) => {
                if let Some(ring) = &mut self.ring {
                    ring.received(rank);
                }
                self.go_on_with_ring(rank);
            }
            Event::Request(node, life, sent) => {
                let (limits, now_ns) = (self.spec.limits, self.now_ns);
                if let Some(storage) = self.living(node, life) {
                    storage.request(sent, &limits, now_ns);
                    self.serve(node);
                }
            }
            Event::Serve(node, life) => {
                if self.living(node, life).is_some() {
                    self.serve(node);
                }
            }
            Event::Served(node, life) => {
                if let Some((sent, idle)) = self.living(node, life).and_then(Storage::served) {
                    if idle {
                        self.send(node, sent);
                    }
                    self.serve(node);
                }
            }
            Event::Received { at, transfer, generation } => {
                let arrived = Outcome::Arrived { private: Vec::new() };
                self.stage(at, |engine, now| engine.complete(transfer, generation, arrived, now))?;
            }
            Event::Tick(node, at_ns) => {
                let compute = self.computes[node.index()].as_mut();
                if let Some(compute) = compute.filter(|compute| compute.wake_ns == Some(at_ns)) {
                    compute.wake_ns = None;
                    self.stage(node, Engine::tick)?;
                }
            }
            Event::LinkUp(node, storage, generation) => {
                // It may be gone again.
                if self.storages[storage.index()].as_ref().and_then(|s| s.generation) == Some(generation) {
                    self.stage(node, |engine, now| engine.link_up(storage, generation, now))?;
                }
            }
            Event::LinkDown(node, storage, life) => {
                // Back before it was missed: its new generation says what is lost.
                if self.living(storage, life).is_some_and(|storage| storage.generation.is_none()) {
                    self.stage(node, |engine, now| engine.link_down(storage, now))?;
                }
            }
            Event::Change(at) => self.change(at),
        }
        self.end_steps(on_step);
        Ok(())
    }

    // Trainers.

    /// Samples and announces what the window allows; returns when that is done.
    fn look_ahead(&mut self, rank: TrainerRank, current: u64) -> u64 {
        let (spec, now_ns) = (self.spec, self.now_ns);
        let trainer = &mut self.trainers[rank.index()];
        let credits = spec.nodes[trainer.node.index()].compute.as_ref().map_or(1, |compute| compute.credits);
        let window = u64::from(spec.load.window).min(u64::from(credits).saturating_sub(1));
        let ahead = trainer.ahead(current, window, spec.load.minibatches);
        trainer.announced = ahead.end;
        let node = trainer.node;
        let mut sampled_ns = now_ns;
        for minibatch in ahead {
            let rows: usize = self.rows.of(rank, minibatch).iter().map(|(_, rows)| rows.len()).sum();
            sampled_ns += spec.costs.sampling(rows);
            // The node takes in one announcement after the other.
            let Some(compute) = &mut self.computes[node.index()] else { continue };
            let taken_ns = compute.busy_until_ns.max(sampled_ns) + spec.costs.announcing(rows);
            compute.busy_until_ns = taken_ns;
            self.agenda.add(taken_ns, Event::Announce(rank, minibatch));
        }
        self.trainers[rank.index()].lap.sample_ns += sampled_ns - now_ns;
        sampled_ns
    }

    fn announce(&mut self, rank: TrainerRank, minibatch: u64) -> Result<(), SimError> {
        let rows = self.rows;
        let mut refused = None;
        self.stage_of(rank, |engine, _| {
            match engine.announce(trainer_id(rank), MinibatchId(minibatch), rows.of(rank, minibatch)) {
                Ok(reaction) => reaction,
                Err(refusal) => {
                    refused = Some(refusal);
                    Reaction::default()
                }
            }
        })?;
        refused.map_or(Ok(()), |refusal| Err(SimError::Announce { rank, reason: refusal.to_string() }))
    }

    /// A step begins.
    fn begin_step(&mut self, rank: TrainerRank) {
        let minibatch = self.trainers[rank.index()].minibatch;
        self.trainers[rank.index()].doing = Doing::LookingAhead;
        if self.computes[self.trainers[rank.index()].node.index()].is_none() {
            // The bound: nothing to wait for.
            self.trainers[rank.index()].doing = Doing::Computing;
            let computed_ns = self.now_ns + self.spec.compute_ns(rank, minibatch);
            self.agenda.add(computed_ns, Event::Computed(rank));
            return;
        }
        let sampled_ns = self.look_ahead(rank, minibatch);
        self.agenda.add(sampled_ns, Event::LookedAhead(rank));
    }

    fn ask(&mut self, rank: TrainerRank) {
        let trainer = &mut self.trainers[rank.index()];
        trainer.doing = Doing::Waiting;
        let Some(compute) = &self.computes[trainer.node.index()] else { return };
        // Behind its own announcements.
        let at_ns = compute.busy_until_ns.max(self.now_ns) + self.spec.costs.message.0;
        self.agenda.add(at_ns, Event::Want(rank, trainer.minibatch));
        // It may have been ready before it was asked for.
        self.gather(rank);
    }

    /// Gathers the minibatch that the trainer waits for, if it is ready.
    fn gather(&mut self, rank: TrainerRank) {
        let trainer = &mut self.trainers[rank.index()];
        if trainer.doing != Doing::Waiting || !trainer.ready.remove(&trainer.minibatch) {
            return;
        }
        trainer.doing = Doing::Gathering;
        for (table, rows) in self.rows.of(rank, trainer.minibatch) {
            let row_bytes = self.spec.book.row_bytes(*table).unwrap_or(0);
            trainer.lap.gather_ns += self.spec.costs.gathering(rows.len(), row_bytes);
            trainer.lap.rows += rows.len() as u64;
            trainer.lap.bytes += rows.len() as u64 * u64::from(row_bytes);
        }
        self.agenda.add(self.now_ns + trainer.lap.gather_ns, Event::Gathered(rank));
    }

    /// The minibatch is gathered: it goes back to the node, and while the device computes, the next one is sampled.
    fn compute(&mut self, rank: TrainerRank) {
        let trainer = &mut self.trainers[rank.index()];
        trainer.doing = Doing::Computing;
        trainer.lap.wait_ns = self.now_ns - trainer.step_ns;
        let minibatch = trainer.minibatch;
        self.agenda.add(self.now_ns + self.spec.costs.message.0, Event::Release(rank, minibatch));
        let computed_ns = self.now_ns + self.spec.compute_ns(rank, minibatch);
        let sampled_ns = self.look_ahead(rank, minibatch + 1);
        self.trainers[rank.index()].lap.wait_ns += sampled_ns.saturating_sub(computed_ns);
        self.agenda.add(computed_ns.max(sampled_ns), Event::Computed(rank));
    }

    /// Ends the steps of trainers whose all-reduce ended, and begins their next ones.
    fn end_steps(&mut self, on_step: OnStep<'_>) {
        for rank in std::mem::take(&mut self.through) {
            let trainer = &mut self.trainers[rank.index()];
            if trainer.has_begun {
                on_step(&trainer.end_step(self.now_ns));
            }
            trainer.has_begun = true;
            trainer.step_ns = self.now_ns;
            if trainer.minibatch < self.spec.load.minibatches {
                self.begin_step(rank);
            } else {
                self.trainers[rank.index()].doing = Doing::Done;
                self.unfinished -= 1;
            }
        }
    }

    // The all-reduce.

    fn enter_ring(&mut self, rank: TrainerRank) {
        match &mut self.ring {
            Some(ring) => {
                ring.enter(rank);
                self.go_on_with_ring(rank);
            }
            None => self.through.push(rank),
        }
    }

    fn go_on_with_ring(&mut self, rank: TrainerRank) {
        let Some(ring) = &mut self.ring else { return };
        if ring.begins_round(rank) {
            let (next, bytes) = (ring.next(rank), ring.share());
            let ends = (self.trainers[rank.index()].node, self.trainers[next.index()].node);
            if ends.0 == ends.1 {
                let copied_ns = (bytes * self.spec.costs.local_byte_ns) as u64;
                self.agenda.add(self.now_ns + copied_ns, Event::RoundSent(rank));
            } else {
                let path = self.path(ends.0, ends.1);
                let flow = self.network.start(path, bytes * self.spec.costs.wire_factor, self.now_ns);
                self.cargo.insert(flow, Cargo::Round(rank));
            }
        }
        if let Some(ring) = &mut self.ring {
            self.through.extend(ring.ends(rank));
        }
    }

    fn round_sent(&mut self, rank: TrainerRank) {
        let Some(ring) = &mut self.ring else { return };
        ring.sent(rank);
        let latency_ns = (self.spec.latency.0 + self.spec.costs.round.0) * ring.latencies_of_round();
        self.agenda.add(self.now_ns + latency_ns, Event::RoundReceived(ring.next(rank)));
        self.go_on_with_ring(rank);
    }

    // Engines.

    fn stage_of(
        &mut self,
        rank: TrainerRank,
        stage: impl FnOnce(&mut Engine, u64) -> Reaction,
    ) -> Result<(), SimError> {
        self.stage(self.trainers[rank.index()].node, stage)
    }

    /// One stage of a node's engine, and whatever it leads to.
    fn stage(
        &mut self,
        node: NodeId,
        stage: impl FnOnce(&mut Engine, u64) -> Reaction,
    ) -> Result<(), SimError> {
        let now_ns = self.now_ns;
        let Some(compute) = &mut self.computes[node.index()] else { return Ok(()) };
        let reaction = stage(&mut compute.engine, now_ns);
        let commands = compute.engine.settle(reaction, now_ns);
        commands.into_iter().try_for_each(|command| self.command(node, command))
    }

    fn command(&mut self, node: NodeId, command: Command) -> Result<(), SimError> {
        let costs = &self.spec.costs;
        match command {
            Command::Fetch(transfer) => {
                let Some(storage) = &mut self.storages[transfer.node.index()] else { return Ok(()) };
                storage.note_request(transfer.items.len());
                let (to, class) = (node, transfer.class);
                let sent = Sent { to, transfer: transfer.id, class, bytes: Bytes(transfer.bytes) };
                let at_ns = self.now_ns + costs.request.0 + self.spec.latency.0;
                self.agenda.add(at_ns, Event::Request(transfer.node, storage.life, sent));
            }
            Command::Cancel { transfer, node: storage } => {
                if let Some(storage) = &mut self.storages[storage.index()] {
                    storage.cancel(node, transfer);
                }
            }
            Command::Ready { trainer, minibatch, .. } => {
                self.agenda.add(self.now_ns + costs.message.0, Event::Ready(trainer.rank, minibatch.0));
            }
            Command::Piece { .. } => {}
            Command::Fail { trainer, minibatch, failure } => {
                let (rank, minibatch) = (trainer.rank, minibatch.0);
                return Err(SimError::Failed { rank, minibatch, reason: format!("{failure:?}") });
            }
            Command::WakeAt { at_ns } => {
                let Some(compute) = &mut self.computes[node.index()] else { return Ok(()) };
                if compute.wake_ns.is_none_or(|wake_ns| at_ns < wake_ns) {
                    compute.wake_ns = Some(at_ns);
                    self.agenda.add(at_ns.max(self.now_ns), Event::Tick(node, at_ns));
                }
            }
        }
        Ok(())
    }

    // Storage nodes and links.

    fn living(&mut self, node: NodeId, life: u32) -> Option<&mut Storage> {
        self.storages[node.index()].as_mut().filter(|storage| storage.life == life)
    }

    /// Lets the storage node serve what it may.
    fn serve(&mut self, node: NodeId) {
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

    fn send(&mut self, from: NodeId, sent: Sent) {
        let path = self.path(from, sent.to);
        let flow = self.network.start(path, self.spec.costs.wire_bytes(sent.bytes), self.now_ns);
        self.cargo.insert(flow, Cargo::Rows { from, to: sent.to });
    }

    fn path(&self, from: NodeId, to: NodeId) -> Path {
        let mut path = vec![up(from), down(to)];
        path.extend(self.pairs.get(&(from, to)));
        path
    }

    fn flow_ended(&mut self, flow: FlowId) {
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

    fn change(&mut self, at: usize) {
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
            Change::Down { node } => self.node_down(node),
            Change::Up { node } => self.node_up(node),
        }
    }

    /// A storage node is gone; who was connected to it notices by its silence.
    fn node_down(&mut self, node: NodeId) {
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
        let noticed_ns = self.now_ns + self.spec.limits.heartbeat_timeout.0;
        for compute in self.connected(node) {
            self.agenda.add(noticed_ns, Event::LinkDown(compute, node, life));
        }
    }

    fn node_up(&mut self, node: NodeId) {
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
    fn connected(&self, storage: NodeId) -> Vec<NodeId> {
        let asks = |compute: &SimCompute| compute.replicas.iter().flatten().any(|&(node, _)| node == storage);
        self.spec.compute_nodes().filter(|(_, compute)| asks(compute)).map(|(node, _)| node).collect()
    }

    /// What stands still, and why it may.
    fn stuck(&self) -> SimError {
        let mut lines = Vec::new();
        for trainer in &self.trainers {
            let Trainer { rank, doing, minibatch, announced, .. } = trainer;
            lines.push(format!("  trainer {rank}: {doing:?}, minibatch {minibatch}, {announced} announced"));
        }
        for (node, engine) in self.engines() {
            let view = engine.view();
            let (used, all) = view.cache.occupancy_bytes();
            let phases: Vec<String> = view
                .window
                .trainers()
                .flat_map(|trainer| view.window.queue(trainer))
                .filter_map(|id| view.window.entry(id))
                .map(|entry| format!("{} {:?} lacks {}", entry.minibatch, entry.phase, entry.missing))
                .collect();
            lines.push(format!(
                "  node {node}: {} bytes in flight, {used} of {all} bytes used, {phases:?}",
                view.links.in_flight_bytes()
            ));
        }
        for (node, storage) in self.storages.iter().enumerate() {
            lines.extend(storage.as_ref().map(|storage| format!("  node {node}: {storage:?}")));
        }
        SimError::Stuck { at_ns: self.now_ns, unfinished: self.unfinished, state: lines.join("\n") }
    }

    // What is left behind.

    /// The engines of the compute nodes.
    pub fn engines(&self) -> impl Iterator<Item = (NodeId, &Engine)> {
        self.computes
            .iter()
            .enumerate()
            .filter_map(|(at, compute)| Some((NodeId(at as u16), &compute.as_ref()?.engine)))
    }

    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(super) fn counters(&self) -> Counters {
        let mut statistics = Statistics::default();
        for (_, engine) in self.engines() {
            statistics += &engine.statistics();
        }
        let mut counters = Counters {
            rows_wanted: statistics.rows_wanted,
            rows_resident: statistics.rows_resident,
            rows_demand: statistics.rows_demand,
            rows_prefetched: statistics.rows_prefetched,
            prefetched_used: statistics.prefetched_used,
            prefetched_wasted: statistics.prefetched_wasted,
            minibatches_released: statistics.minibatches_released,
            bypasses: statistics.bypasses,
            distinct_bytes_wanted: statistics.distinct_bytes_wanted,
            ..Counters::default()
        };
        for storage in self.storages.iter().flatten() {
            counters.bytes_demand += storage.bytes_demand;
            counters.bytes_prefetch += storage.bytes_prefetch;
            counters.bytes_protocol += storage.bytes_protocol;
        }
        counters
    }

    pub(super) fn into_trainers(self) -> Vec<Trainer> {
        self.trainers
    }
}

fn up(node: NodeId) -> LinkIndex {
    LinkIndex(2 * u32::from(node.0))
}

fn down(node: NodeId) -> LinkIndex {
    LinkIndex(2 * u32::from(node.0) + 1)
}
