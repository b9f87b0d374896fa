//! One compute node, its trainer and its storage links in virtual time: enough to count misses and stalls of an arm on
//! a real graph. Links serve demand first, one transfer at a time.

use rudder_graph::npy::NpyHeader;
use rudder_graph::trace::{Trace, TraceSpec};
use rudder_graph::{BlockRows, Class, Csc, PartitionBook, rows_to_blocks};
use rudder_policy::engine::{Engine, EngineConfig};
use rudder_policy::ledger::Statistics;
use rudder_policy::parameters::Parameters;
use rudder_policy::predict::{PriorKind, Training, prior};
use rudder_policy::replay::{Offer, Replay};
use rudder_policy::step::{Command, Outcome, Reaction, TrainerId, Transfer};
use rudder_policy::testing::book_of_one;
use rudder_topology::{
    Bytes, BytesPerSecond, Generation, JobId, Limits, LinkCost, MinibatchId, Nanos, NodeId, PolicySpec,
    TableId, TrainerRank, VertexId,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::Path;
use std::sync::Arc;

pub const TABLE: TableId = TableId(0);
pub const ROW_BYTES: u64 = 512;
const PARTS: u16 = 2;

/// A graph in memory.
pub struct Graph {
    indptr: Vec<u64>,
    indices: Vec<u32>,
}

impl Graph {
    /// One of the graphs that ship: `edges.npy`, sources then destinations.
    pub fn shipped(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets").join(name).join("edges.npy");
        let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (header, data) = NpyHeader::parse_file(&file).expect("an npy file");
        let width = data.len() / header.elements() as usize;
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |value, &byte| value << 8 | u64::from(byte)) as u32;
        let ids: Vec<u32> = data.chunks_exact(width).map(number).collect();
        let (sources, targets) = ids.split_at(ids.len() / 2);
        let vertices = ids.iter().max().map_or(0, |&id| id as usize + 1);
        let mut indptr = vec![0_u64; vertices + 1];
        targets.iter().for_each(|&to| indptr[to as usize + 1] += 1);
        (0..vertices).for_each(|v| indptr[v + 1] += indptr[v]);
        let (mut next, mut indices) = (indptr.clone(), vec![0; targets.len()]);
        for (&from, &to) in sources.iter().zip(targets) {
            indices[next[to as usize] as usize] = from;
            next[to as usize] += 1;
        }
        Graph { indptr, indices }
    }

    pub fn csc(&self) -> Csc<'_> {
        Csc::new(&self.indptr, &self.indices).expect("a graph")
    }

    /// Rows of 512 bytes, one a block, over two parts.
    pub fn book(&self) -> PartitionBook {
        book_of_one(self.csc().vertices(), 2, 128, 1)
    }

    /// Expected uses of each block by a minibatch, from graph and training set alone.
    pub fn vip(&self, spec: &TraceSpec) -> Arc<[f32]> {
        let (book, train_ids) = (self.book(), self.train_ids());
        let training = Training {
            graph: self.csc(),
            book: &book,
            table: TABLE,
            train_ids: &train_ids,
            fanout: &spec.fanout,
            seeds_per_minibatch: spec.seeds,
            seed: 0,
        };
        prior(PriorKind::Vip, &training)
    }

    /// Three vertices of five, drawn.
    pub fn train_ids(&self) -> Vec<VertexId> {
        let key = rudder_graph::random::Key::new(7);
        (0..self.csc().vertices()).filter(|&v| key.below(v, 5) < 3).map(|v| VertexId(v as u32)).collect()
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Setup {
    pub policy: PolicySpec,
    pub slots: u64,
    /// Minibatches announced ahead of the one in use.
    pub window: u64,
    pub replay: bool,
    pub minibatches: u64,
    pub spec: TraceSpec,
    pub bandwidth: u64,
    pub compute_ns: u64,
    pub parameters: Parameters,
    pub prior: Option<Arc<[f32]>>,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    pub statistics: Statistics,
    pub wait_ns: u64,
    /// Rows fetched while no announced minibatch was unreleased.
    pub rows_guessed: u64,
}

impl Ran {
    pub fn rows_moved(&self) -> u64 {
        self.statistics.rows_demand + self.statistics.rows_prefetched
    }
}

pub const TRAINER: TrainerId = TrainerId { job: JobId(0), rank: TrainerRank(0) };

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrives(u16),
    Computed,
}

#[derive(Default)]
struct Wire {
    queues: [VecDeque<Transfer>; 2],
    moving: Option<Transfer>,
}

struct World<'g> {
    setup: Setup,
    engine: Engine,
    trace: Trace<'g>,
    replay: Option<Replay<'g>>,
    wires: Vec<Wire>,
    happenings: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    happened: u64,
    now_ns: u64,
    announced: u64,
    current: u64,
    /// One past the last minibatch that is ready.
    ready_until: u64,
    wanted_ns: Option<u64>,
    wait_ns: u64,
    rows_guessed: u64,
}

/// Rows of each minibatch as blocks.
pub fn blocks(graph: &Graph, spec: &TraceSpec, minibatches: u64) -> Vec<Vec<BlockRows>> {
    let book = graph.book();
    let mut trace = Trace::new(spec.clone(), graph.csc(), graph.train_ids());
    let blocks = |m| rows_to_blocks(&book, TABLE, trace.rows(MinibatchId(m))).expect("known rows").blocks;
    (0..minibatches).map(blocks).collect()
}

pub fn run(graph: &Graph, setup: &Setup) -> Ran {
    let cost = LinkCost { bandwidth: BytesPerSecond(setup.bandwidth), latency: Nanos(200_000) };
    let engine = Engine::new(EngineConfig {
        book: graph.book(),
        cache_bytes: Bytes(setup.slots * ROW_BYTES),
        replicas: (0..PARTS).map(|p| vec![(NodeId(p), cost)]).collect(),
        limits: Limits::default(),
        parameters: setup.parameters.clone(),
        policy: setup.policy,
        credits: setup.window as u32 + 2,
        ready_ahead: 1,
        prior: setup.prior.clone(),
    });
    let trace = || Trace::new(setup.spec.clone(), graph.csc(), graph.train_ids());
    let replay =
        setup.replay.then(|| Replay::new(TRAINER, trace(), TABLE, MinibatchId(0), setup.minibatches));
    let mut world = World {
        setup: setup.clone(),
        engine: engine.expect("a cache of a block"),
        trace: trace(),
        replay,
        wires: (0..PARTS).map(|_| Wire::default()).collect(),
        happenings: BinaryHeap::new(),
        happened: 0,
        now_ns: 0,
        announced: 0,
        current: 0,
        ready_until: 0,
        wanted_ns: None,
        wait_ns: 0,
        rows_guessed: 0,
    };
    for node in 0..PARTS {
        let reaction = world.engine.link_up(NodeId(node), Generation(1), 0);
        world.react(reaction);
    }
    world.engine.connect(TRAINER);
    world.look_ahead();
    world.begin();
    while let Some(Reverse((at_ns, _, happening))) = world.happenings.pop() {
        world.now_ns = at_ns;
        match happening {
            Happening::Arrives(link) => world.arrives(link),
            Happening::Computed => {
                world.current += 1;
                if world.current == setup.minibatches {
                    break;
                }
                world.begin();
            }
        }
    }
    assert_eq!(world.current, setup.minibatches, "every minibatch is served");
    Ran { statistics: world.engine.statistics(), wait_ns: world.wait_ns, rows_guessed: world.rows_guessed }
}

impl World<'_> {
    fn at(&mut self, at_ns: u64, happening: Happening) {
        self.happened += 1;
        self.happenings.push(Reverse((at_ns, self.happened, happening)));
    }

    /// The trainer announces its window and waits for the current minibatch.
    fn begin(&mut self) {
        let until = (self.current + self.setup.window + 1).min(self.setup.minibatches);
        for minibatch in (self.announced..until).map(MinibatchId) {
            let rows = self.trace.rows(minibatch).to_vec();
            let reaction = self.engine.announce(TRAINER, minibatch, &[(TABLE, rows)]);
            self.react(reaction.expect("announced in order"));
        }
        self.announced = until;
        let reaction = self.engine.want(TRAINER, MinibatchId(self.current), self.now_ns);
        self.react(reaction.expect("announced"));
        self.wanted_ns = Some(self.now_ns);
        self.ready();
    }

    fn look_ahead(&mut self) {
        let Some(mut replay) = self.replay.take() else { return };
        while replay.sample() {
            match replay.offer(&mut self.engine) {
                Offer::Taken(reaction) => self.react(reaction),
                Offer::Behind => {}
                Offer::Later => break,
                Offer::Over(_) => return,
            }
        }
        self.replay = Some(replay);
    }

    fn react(&mut self, reaction: Reaction) {
        for command in self.engine.settle(reaction, self.now_ns) {
            match command {
                Command::Fetch(transfer) => {
                    if self.engine.view().window.queued(TRAINER) == 0 {
                        self.rows_guessed +=
                            transfer.items.iter().map(|item| u64::from(item.rows.rows())).sum::<u64>();
                    }
                    let wire = &mut self.wires[transfer.node.index()];
                    let node = transfer.node.0;
                    wire.queues[usize::from(transfer.class == Class::Prefetch)].push_back(transfer);
                    self.start(node);
                }
                Command::Ready { minibatch, .. } => {
                    self.ready_until = minibatch.0 + 1;
                    self.ready();
                }
                Command::Piece { .. } | Command::Fail { .. } => panic!("the cache is large enough"),
                _ => {}
            }
        }
    }

    fn ready(&mut self) {
        if self.ready_until <= self.current {
            return;
        }
        let Some(since) = self.wanted_ns.take() else { return };
        self.wait_ns += self.now_ns - since;
        self.at(self.now_ns + self.setup.compute_ns, Happening::Computed);
        let released = self.engine.release(TRAINER, MinibatchId(self.current), self.now_ns);
        self.react(released.expect("ready"));
        self.look_ahead();
    }

    fn start(&mut self, link: u16) {
        let wire = &mut self.wires[usize::from(link)];
        if wire.moving.is_some() {
            return;
        }
        let [demand, prefetch] = &mut wire.queues;
        let Some(next) = demand.pop_front().or_else(|| prefetch.pop_front()) else { return };
        let takes_ns = next.bytes * 1_000_000_000 / self.setup.bandwidth + 20_000;
        wire.moving = Some(next);
        self.at(self.now_ns + takes_ns, Happening::Arrives(link));
    }

    fn arrives(&mut self, link: u16) {
        let Some(moved) = self.wires[usize::from(link)].moving.take() else { return };
        self.start(link);
        let outcome = Outcome::Arrived { private: vec![] };
        let reaction = self.engine.complete(moved.id, moved.generation, outcome, self.now_ns);
        self.react(reaction);
    }
}
