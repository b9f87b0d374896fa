//! The cluster in motion: engines, storage nodes, trainers, links, and one agenda.

use super::clock::Agenda;
use super::network::{FlowId, LinkIndex, Network};
use super::ring::Ring;
use super::spec::{Change, OnStep, Rows, SimError, SimSpec};
use super::steer::Steer;
use super::storage::{Sent, Storage};
use super::trainer::{Doing, Trainer};
use super::usage::{LinkUse, Way};
use super::watch::Watch;
use crate::record::Counters;
use rudder_policy::engine::{Engine, EngineConfig};
use rudder_policy::ledger::Statistics;
use rudder_policy::parameters::Parameters;
use rudder_policy::step::{Command, Outcome, Reaction};
use rudder_topology::{Bytes, Generation, JobId, MinibatchId, NodeId, TrainerRank, TransferId};
use std::collections::BTreeMap;

/// What happens at a time.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// At a compute node, from its trainer.
    Announce(TrainerRank, u64),
    Want(TrainerRank, u64),
    /// The node has sampled a minibatch ahead of the trainer.
    Foresee(TrainerRank),
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
    /// At a compute node: nothing comes.
    Lost {
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
    /// The trainers of a job come.
    Join(JobId),
    /// Observers report.
    Observe,
    /// What was asked for is there.
    Steer,
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
    relays: staging::Relays,
    trainers: Vec<Trainer>,
    /// By job: the rank of its first trainer, and its all-reduce where it has one.
    rings: Vec<(u32, Option<Ring>)>,
    /// Who is told what observers measure, and acts on it.
    steer: Option<&'a mut dyn Steer>,
    unfinished: usize,
    /// Trainers whose all-reduce just ended.
    through: Vec<TrainerRank>,
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
                    .map_err(|error| SimError::Engine(node.name.clone(), error))?;
                    Some(Compute { engine, busy_until_ns: 0, wake_ns: None })
                }
                _ => None,
            });
        }
        let mut storages: Vec<Option<Storage>> = spec.nodes.iter().map(|_| None).collect();
        let replicas = spec.compute_nodes().flat_map(|(_, compute)| compute.replicas.iter().flatten());
        for &(node, _) in replicas.filter(|_| with_data) {
            storages[node.index()].get_or_insert_with(|| Storage::new(&spec.limits, spec.staging));
        }
        let (mut trainers, mut rings) = (Vec::new(), Vec::new());
        for (job, load) in (0..).map(JobId).zip(spec.loads()) {
            let first = trainers.len() as u32;
            for (place, (node, _)) in spec.compute_nodes().enumerate() {
                for _ in 0..load.trainers_per_node {
                    trainers.push(Trainer::new(TrainerRank(trainers.len() as u32), job, node, place));
                }
            }
            let count = trainers.len() as u32 - first;
            rings.push((first, (load.allreduce.0 > 0).then(|| Ring::new(count, load.allreduce))));
        }
        Ok(Simulation {
            spec,
            rows,
            now_ns: 0,
            agenda: Agenda::default(),
            network: Network::new(&capacity, spec.burst.0 as f64, spec.sharing),
            cargo: BTreeMap::new(),
            pairs,
            computes,
            storages,
            relays: staging::Relays::default(),
            unfinished: trainers.len(),
            trainers,
            rings,
            steer: None,
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
        for (job, join) in (1..).map(JobId).zip(&self.spec.joins) {
            self.agenda.add(join.at.0, Event::Join(job));
        }
        if let Some(steer) = &self.steer {
            self.agenda.add(steer.period_ns(), Event::Observe);
        }
        self.join(JobId(0));
    }

    fn happen(&mut self, event: Event, on_step: OnStep<'_>) -> Result<(), SimError> {
        match event {
            Event::Announce(rank, minibatch) => return self.announce(rank, minibatch),
            Event::Foresee(rank) => self.foresee(rank)?,
            Event::Want(rank, minibatch) => {
                let trainer = self.trainers[rank.index()].id();
                self.stage_of(rank, |engine, now| {
                    engine.want(trainer, MinibatchId(minibatch), now).unwrap_or_default()
                })?;
            }
            Event::Release(rank, minibatch) => {
                let trainer = self.trainers[rank.index()].id();
                self.stage_of(rank, |engine, now| {
                    engine.release(trainer, MinibatchId(minibatch), now).unwrap_or_default()
                })?;
                self.sample_ahead(rank);
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
                if let Some((ring, own)) = self.ring(rank) {
                    ring.received(own);
                }
                self.go_on_with_ring(rank);
            }
            Event::Request(node, life, sent) if sent.staged => {
                if self.living(node, life).is_some() {
                    self.stage_rows(node, sent);
                }
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
            Event::Lost { at, transfer, generation } => {
                self.stage(at, |engine, now| engine.complete(transfer, generation, Outcome::Lost, now))?;
            }
            Event::Received { transfer, .. } if self.received_upstream(transfer) => {}
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
            Event::Change(at) => self.change(at)?,
            Event::Join(job) => self.join(job),
            Event::Observe => self.observe()?,
            Event::Steer => self.answer()?,
        }
        self.end_steps(on_step);
        Ok(())
    }

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
                let (bytes, staged) = (Bytes(transfer.bytes), transfer.staged);
                let sent = Sent { to, transfer: transfer.id, class, bytes, staged };
                let at_ns = self.now_ns + costs.request.0 + self.spec.latency.0;
                self.agenda.add(at_ns, Event::Request(transfer.node, storage.life, sent));
                if staged {
                    self.note_staged(&transfer, sent);
                }
            }
            Command::Cancel { transfer, node: storage } => {
                if let Some(storage) = &mut self.storages[storage.index()] {
                    storage.cancel(node, transfer);
                }
                self.cancel_staged(storage, node, transfer);
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

    /// The engines of the compute nodes.
    pub fn engines(&self) -> impl Iterator<Item = (NodeId, &Engine)> {
        self.computes
            .iter()
            .enumerate()
            .filter_map(|(at, compute)| Some((NodeId(at as u16), &compute.as_ref()?.engine)))
    }

    #[must_use]
    pub fn spec(&self) -> &SimSpec {
        self.spec
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
            minibatches_foreseen: statistics.minibatches_foreseen,
            replay_cpu_ns: statistics.replay_cpu_ns,
            replay_alarms: statistics.replay_alarms,
            bypasses: statistics.bypasses,
            guard_switches: statistics.guard_switches,
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

    /// How busy every link was, over all of the time so far.
    pub(super) fn link_uses(&self) -> Vec<LinkUse> {
        let nodes = (0..self.spec.nodes.len()).map(|node| NodeId(node as u16));
        let interfaces = nodes
            .flat_map(|node| [(Way::OutOf(node), fabric::up(node)), (Way::Into(node), fabric::down(node))]);
        let pairs = self.pairs.iter().map(|(&(from, to), &link)| (Way::Between(from, to), link));
        let used = |(way, link)| {
            let (bytes, rate) = self.network.carried(link);
            LinkUse::new(way, bytes, rate, self.now_ns)
        };
        interfaces.chain(pairs).map(used).collect()
    }

    /// Lets somebody steer the run.
    pub(super) fn steered_by(&mut self, steer: &'a mut dyn Steer) {
        self.steer = Some(steer);
    }

    pub(super) fn into_trainers(self) -> Vec<Trainer> {
        self.trainers
    }
}

mod fabric;
mod staging;
mod steering;
mod trainers;
