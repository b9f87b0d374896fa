//! One arm, once: nodes up, trainers to their end, nodes down, counters in.

use crate::arm::Arm;
use crate::compile::Scenario;
use crate::record::{CounterError, Counters, Run, Side, TrainerRun};
use crate::run::command::{TrainerPlace, trainer_command};
use crate::run::files::{Place, Places, Role};
use crate::run::links::{Kind, LinkError, Links, Routes};
use crate::run::plays::Play;
use crate::run::process::{Group, Output, ProcessError, ProcessIndex};
use crate::run::timetable::Timetable;
use crate::run::{Binaries, netns};
use crate::stop::Stop;
use crate::trainer::event::{Event, EventError};
use rudder_topology::TrainerRank;
use serde::Deserialize;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("trainer {rank}: {reason}")]
    Trainer { rank: TrainerRank, reason: String },
    #[error("trainer {rank}: {source}")]
    Event { rank: TrainerRank, source: EventError },
    #[error("trainer {rank} said `{event}` where it should not")]
    Unexpected { rank: TrainerRank, event: String },
    #[error("trainer {rank} reported {reported} of {wanted} minibatches")]
    Short { rank: TrainerRank, reported: usize, wanted: u32 },
    #[error("{node} printed `{line}` instead of a ready line")]
    Ready { node: String, line: String },
    #[error("{node} stopped without its statistics")]
    NoStatistics { node: String },
    #[error(transparent)]
    Counters(#[from] CounterError),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("cannot write a topology file: {reason}")]
    Topology { reason: String },
}

/// What all runs of a scenario share.
pub(super) struct Stage<'a> {
    pub scenario: &'a Scenario,
    pub binaries: &'a Binaries,
    pub places: &'a Places,
    pub links: &'a Links,
    pub stop: &'a Stop,
    /// Told of every step.
    pub on_step: &'a dyn Fn(),
}

const NODE_PATIENCE: Duration = Duration::from_secs(20);
const STOP_PATIENCE: Duration = Duration::from_secs(8);
const RING_PATIENCE: Duration = Duration::from_secs(15);

/// A node's first line.
#[derive(Deserialize)]
struct ReadyLine {
    event: String,
    control: SocketAddr,
    data: Option<SocketAddr>,
}

/// A node's last line.
#[derive(Deserialize)]
struct StoppedLine {
    event: String,
    statistics: Value,
}

struct NodeProcess {
    index: ProcessIndex,
    side: Side,
    /// What its interface had sent when it came up.
    sent_before: Option<u64>,
}

struct Once<'a> {
    stage: &'a Stage<'a>,
    play: Play<'a>,
    group: Group,
    routes: Routes,
    nodes: Vec<NodeProcess>,
    /// By rank.
    trainers: Vec<ProcessIndex>,
}

/// Runs an arm, or the bound.
pub(super) fn once<'a>(stage: &'a Stage<'a>, play: Play<'a>) -> Result<Run, OnceError> {
    let timetable = Timetable::new(&stage.scenario.events);
    // What the run before this one changed.
    for node in timetable.nodes() {
        stage.links.set_rate(node.index(), stage.links.shape.rate)?;
    }
    let mut group = Group::new(&stage.binaries.rudder);
    let log = stage.log("relay");
    let routes = Routes::new(stage.links, &mut group, &stage.binaries.rudder, &log)?;
    let mut once = Once { stage, play, group, routes, nodes: Vec::new(), trainers: Vec::new() };
    if let Some(arm) = play.arm {
        once.start_nodes(arm)?;
        once.settle()?;
    }
    once.start_trainers()?;
    if stage.scenario.trainer.allreduce.0 > 0 {
        once.close_ring()?;
    }
    let trainers = once.follow_trainers(timetable)?;
    let (counters, interface_bytes) = once.stop_nodes()?;
    let advised = play.advisor.filter(|_| play.is_advised).map(|advisor| advisor.backend);
    Ok(Run { arm: play.arm, advised, repeat: play.repeat, trainers, counters, interface_bytes })
}

impl Stage<'_> {
    fn log(&self, name: &str) -> PathBuf {
        self.places.folder.join(format!("{name}.log"))
    }

    /// The compute node of a rank, among all nodes.
    fn node_of(&self, rank: u32) -> usize {
        let compute = rank / self.scenario.cluster.trainers_per_node;
        (self.scenario.cluster.storage_nodes + compute) as usize
    }
}

impl Once<'_> {
    /// Storage nodes first, since the others need to know where they are.
    fn start_nodes(&mut self, arm: Arm) -> Result<(), OnceError> {
        let mut reach = self.stage.places.nodes.clone();
        for node in 0..reach.len() {
            let seen = match reach[node].role {
                Role::Storage => reach.clone(),
                Role::Compute => self.seen_from(node, &reach)?,
            };
            let ready = self.start_node(node, arm, &seen)?;
            reach[node].control = ready.control;
            reach[node].data = ready.data.unwrap_or(reach[node].data);
        }
        Ok(())
    }

    /// Lets the nodes connect. One that ends meanwhile ends the run.
    fn settle(&mut self) -> Result<(), OnceError> {
        let deadline = Instant::now() + Duration::from_nanos(self.stage.scenario.cluster.settle.0);
        while let Some((index, output)) = self.group.next(deadline, self.stage.stop)? {
            if matches!(output, Output::End) {
                return Err(self.group.ended(index).into());
            }
        }
        Ok(())
    }

    /// The cluster as a compute node dials it.
    fn seen_from(&mut self, node: usize, reach: &[Place]) -> Result<Vec<Place>, OnceError> {
        let mut seen = reach.to_vec();
        for place in seen.iter_mut().filter(|place| place.role == Role::Storage) {
            let ends = (&reach[node].name, &place.name);
            place.data = self.routes.dial(&mut self.group, ends, place.data, self.stage.stop)?;
        }
        Ok(seen)
    }

    fn start_node(&mut self, node: usize, arm: Arm, seen: &[Place]) -> Result<ReadyLine, OnceError> {
        let places = self.stage.places;
        let name = places.nodes[node].name.to_string();
        let spec = places.spec(self.stage.scenario, arm, self.play.advisor, seen);
        let text = spec.to_toml().map_err(|error| OnceError::Topology { reason: error.to_string() })?;
        let file = places.folder.join(format!("{name}.toml"));
        std::fs::write(&file, text).map_err(|source| OnceError::Write { path: file.clone(), source })?;
        let command = [
            self.stage.binaries.node.clone().into_os_string(),
            "--topology".into(),
            file.into_os_string(),
            "--node".into(),
            name.clone().into(),
            "--json".into(),
        ];
        let namespace = self.stage.links.namespace(node);
        let index = self.group.start(&name, namespace.as_deref(), &command, &self.stage.log(&name))?;
        let line = self.group.line_of(index, "become ready", NODE_PATIENCE, self.stage.stop)?;
        let ready: ReadyLine = serde_json::from_str(&line)
            .ok()
            .filter(|ready: &ReadyLine| ready.event == "ready")
            .ok_or_else(|| OnceError::Ready { node: name, line: line.chars().take(200).collect() })?;
        let side = match places.nodes[node].role {
            Role::Storage => Side::Storage,
            Role::Compute => Side::Compute,
        };
        let shaped = matches!(self.stage.links.kind, Kind::Netns(_));
        let sent_before = shaped.then(|| netns::bytes_sent(self.group.process_id(index))).flatten();
        self.nodes.push(NodeProcess { index, side, sent_before });
        Ok(ready)
    }

    fn start_trainers(&mut self) -> Result<(), OnceError> {
        for rank in 0..self.stage.scenario.trainers() {
            let node = self.stage.node_of(rank);
            let socket = self.stage.places.socket(node);
            let place = TrainerPlace {
                rank,
                socket: self.play.arm.map(|_| socket.as_path()),
                dataset: &self.stage.places.dataset,
                address: self.stage.links.address(node),
            };
            let command = trainer_command(self.stage.scenario, &self.stage.binaries.rudder, &place);
            let name = format!("trainer{rank}");
            let namespace = self.stage.links.namespace(node);
            let index = self.group.start(&name, namespace.as_deref(), &command, &self.stage.log(&name))?;
            self.trainers.push(index);
        }
        Ok(())
    }

    fn rank_of(&self, index: ProcessIndex) -> Option<usize> {
        self.trainers.iter().position(|&trainer| trainer == index)
    }

    /// Waits for every trainer's address, then tells each how it reaches the others.
    fn close_ring(&mut self) -> Result<(), OnceError> {
        let deadline = Instant::now() + RING_PATIENCE;
        let mut bound: Vec<Option<SocketAddr>> = vec![None; self.trainers.len()];
        while let Some(silent) = bound.iter().position(Option::is_none) {
            let next = self.group.next(deadline, self.stage.stop)?;
            let Some((index, output)) = next else {
                let what = "say where its ring listens";
                return Err(self.group.late(self.trainers[silent], what, RING_PATIENCE).into());
            };
            let Output::Line(line) = output else { return Err(self.group.ended(index).into()) };
            let Some(at) = self.rank_of(index) else { continue };
            let rank = TrainerRank(at as u32);
            match Event::parse(&line).map_err(|source| OnceError::Event { rank, source })? {
                Event::Listening { ring } => bound[at] = Some(ring),
                Event::Failed { reason } => return Err(OnceError::Trainer { rank, reason }),
                other => return Err(OnceError::Unexpected { rank, event: other.line().trim().to_owned() }),
            }
        }
        let bound: Vec<SocketAddr> = bound.into_iter().flatten().collect();
        for rank in 0..bound.len() {
            let next = (rank + 1) % bound.len();
            let nodes = &self.stage.places.nodes;
            let name = |rank: usize| &nodes[self.stage.node_of(rank as u32)].name;
            let mut peers = bound.clone();
            let ends = (name(rank), name(next));
            peers[next] = self.routes.dial(&mut self.group, ends, bound[next], self.stage.stop)?;
            let line = peers.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
            self.group.write_line(self.trainers[rank], &line)?;
        }
        Ok(())
    }

    /// Takes in what trainers say until all are done, and changes the links meanwhile.
    fn follow_trainers(&mut self, mut timetable: Timetable) -> Result<Vec<TrainerRun>, OnceError> {
        let mut began: Option<Instant> = None;
        let limit = Duration::from_nanos(self.stage.scenario.trainer.time_limit.0);
        let deadline = Instant::now() + limit;
        let mut runs: Vec<TrainerRun> = (0..self.trainers.len())
            .map(|rank| TrainerRun {
                rank: TrainerRank(rank as u32),
                compute_node: rank / self.stage.scenario.cluster.trainers_per_node as usize,
                ..TrainerRun::default()
            })
            .collect();
        let mut finished = vec![false; runs.len()];
        while let Some(unfinished) = finished.iter().position(|done| !done) {
            if let Some(began) = began {
                for change in timetable.take_due(began.elapsed()) {
                    self.stage.links.set_rate(change.node.index(), change.rate)?;
                }
            }
            let next = began.zip(timetable.next()).map(|(began, at)| began + at);
            let until = next.map_or(deadline, |next| next.min(deadline));
            let Some((index, output)) = self.group.next(until, self.stage.stop)? else {
                if until < deadline {
                    continue;
                }
                return Err(self.group.late(self.trainers[unfinished], "finish", limit).into());
            };
            match (self.rank_of(index), output) {
                (Some(at), Output::Line(line)) => {
                    finished[at] |= self.note(&mut runs[at], &line)?;
                    if began.is_none() && runs[at].started_ns > 0 {
                        began = Some(Instant::now());
                    }
                }
                (Some(at), Output::End) if finished[at] => {}
                (_, Output::End) => return Err(self.group.ended(index).into()),
                (None, Output::Line(_)) => {}
            }
        }
        Ok(runs)
    }

    /// Takes in a trainer's line; true when it was the last.
    fn note(&self, run: &mut TrainerRun, line: &str) -> Result<bool, OnceError> {
        let rank = run.rank;
        let wanted = self.stage.scenario.trainer.minibatches;
        match Event::parse(line).map_err(|source| OnceError::Event { rank, source })? {
            Event::Step(_) if run.steps.len() >= wanted as usize => {
                Err(OnceError::Unexpected { rank, event: "a step beyond the last".to_owned() })
            }
            Event::Step(step) => {
                if run.started_ns == 0 {
                    // A trainer of somebody else's that does not say when it starts.
                    run.started_ns = step.at_ns.saturating_sub(step.step_ns).max(1);
                }
                run.bytes_wrong += step.bytes_wrong;
                run.steps.push(step);
                (self.stage.on_step)();
                Ok(false)
            }
            Event::Finished(finished) if run.steps.len() == wanted as usize => {
                run.trace_digest = finished.trace_digest;
                run.bytes_wrong = run.bytes_wrong.max(finished.bytes_wrong);
                Ok(true)
            }
            Event::Finished(_) => Err(OnceError::Short { rank, reported: run.steps.len(), wanted }),
            Event::Failed { reason } => Err(OnceError::Trainer { rank, reason }),
            Event::Started { at_ns, .. } => {
                run.started_ns = at_ns.max(1);
                Ok(false)
            }
            Event::Listening { .. } => Ok(false),
        }
    }

    /// Compute nodes first: what they still ask for is counted.
    fn stop_nodes(&mut self) -> Result<(Counters, Option<u64>), OnceError> {
        let mut counters = Counters::default();
        self.stop_side(Side::Compute, &mut counters)?;
        let sent = |node: &NodeProcess| {
            let now = netns::bytes_sent(self.group.process_id(node.index))?;
            Some(now.saturating_sub(node.sent_before?))
        };
        let storage = self.nodes.iter().filter(|node| node.side == Side::Storage);
        let interface_bytes: Option<Vec<u64>> = storage.map(sent).collect();
        self.stop_side(Side::Storage, &mut counters)?;
        let interface_bytes = interface_bytes.filter(|bytes| !bytes.is_empty());
        Ok((counters, interface_bytes.map(|bytes| bytes.iter().sum())))
    }

    fn stop_side(&mut self, side: Side, counters: &mut Counters) -> Result<(), OnceError> {
        let mut waiting: Vec<ProcessIndex> =
            self.nodes.iter().filter(|node| node.side == side).map(|node| node.index).collect();
        for &index in &waiting {
            self.group.terminate(index);
        }
        let deadline = Instant::now() + STOP_PATIENCE;
        while let Some(&first) = waiting.first() {
            match self.group.next(deadline, self.stage.stop)? {
                Some((index, Output::Line(line))) => {
                    let Ok(stopped) = serde_json::from_str::<StoppedLine>(&line) else { continue };
                    if stopped.event == "stopped" && waiting.contains(&index) {
                        counters.add(self.group.name(index), side, &stopped.statistics)?;
                        waiting.retain(|&other| other != index);
                    }
                }
                Some((index, Output::End)) if waiting.contains(&index) => {
                    return Err(OnceError::NoStatistics { node: self.group.name(index).to_owned() });
                }
                Some(_) => {}
                None => return Err(self.group.late(first, "stop", STOP_PATIENCE).into()),
            }
        }
        Ok(())
    }
}
