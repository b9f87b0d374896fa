//! Plan and validate at scale: announce, plan, validate, arrive and release of large minibatches, in a steady state.
//!
//! `cargo bench -p rudder-policy --bench plan`. Prints, in thread time, plan + validate of a minibatch's whole life
//! (announced, arrived, wanted, released), and of its longest single call.

use rudder_graph::random::Key;
use rudder_graph::{Dtype, Manifest, PartitionBook, TableSpec};
use rudder_policy::engine::{Engine, EngineConfig};
use rudder_policy::parameters::Parameters;
use rudder_policy::step::{Command, Event, Outcome, Reaction, TrainerId, Transfer};
use rudder_topology::{
    Bytes, BytesPerSecond, DatasetName, Generation, JobId, Limits, LinkCost, MinibatchId, Nanos, NodeId,
    PolicySpec, TableId, TableName, TrainerRank,
};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

const ROWS: usize = 100_000;
const MINIBATCHES: u64 = 40;
const WINDOW: u64 = 4;
const PARTS: u64 = 4;
/// A cache of a quarter, as in the scenarios.
const CACHE_SHARE: u64 = 4;
const TRAINER: TrainerId = TrainerId { job: JobId(0), rank: TrainerRank(0) };

fn main() {
    println!(
        "plan + validate, {ROWS} rows a minibatch, rows_per_block = 1, window {WINDOW}, cache 1/{CACHE_SHARE}"
    );
    for blocks in [1_000_000_u64, 10_000_000] {
        for (name, policy) in [("rudder", PolicySpec::Rudder), ("lru", PolicySpec::Lru)] {
            let (lives, calls) = run(blocks, policy).into_iter().unzip();
            println!(
                "{blocks:>11} blocks  {name:<7} life {}   longest call {}",
                summary(lives),
                summary(calls)
            );
        }
    }
}

fn summary(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    format!("p50 {:>9.2?} p99 {:>9.2?}", at(0.5), at(0.99))
}

/// Of this thread: other load on the machine does not count.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn book(rows: u64) -> PartitionBook {
    let offsets: Vec<u64> = (0..=PARTS).map(|p| rows * p / PARTS).collect();
    PartitionBook::new(&Manifest {
        format: 1,
        name: DatasetName::new("bench").expect("a name"),
        vertices: rows,
        edges: 0,
        digest: String::new(),
        part_offsets: offsets.clone(),
        graphs: vec![],
        tables: vec![TableSpec {
            name: TableName::new("x").expect("a name"),
            dim: 128,
            dtype: Dtype::F32,
            rows_per_block: 1,
            row_offsets: offsets,
        }],
        files: vec![],
        notes: vec![],
    })
}

fn engine(book: PartitionBook, blocks: u64, policy: PolicySpec) -> Engine {
    let cost = LinkCost { bandwidth: BytesPerSecond::from_mbit(10_000_000), latency: Nanos(50_000) };
    // Permits for a whole minibatch: the worst case for one call.
    let limits = Limits {
        link_in_flight_bytes: Bytes::GIB,
        node_in_flight_bytes: Bytes(4 << 30),
        transfer_bytes_max: Bytes::MIB,
        ..Limits::default()
    };
    let mut engine = Engine::new(EngineConfig {
        book,
        cache_bytes: Bytes(blocks * 512 / CACHE_SHARE),
        replicas: (0..PARTS as u16).map(|p| vec![(NodeId(p), cost)]).collect(),
        limits,
        parameters: Parameters::default(),
        policy,
        prior: None,
        credits: WINDOW as u32 + 2,
        ready_ahead: 1,
    })
    .expect("the cache holds a block");
    for node in 0..PARTS as u16 {
        engine.link_up(NodeId(node), Generation(1), 0);
    }
    engine.connect(TRAINER);
    engine
}

/// Distinct-ish rows with a skew like that of sampled neighbourhoods: half of them from the hottest tenth.
fn rows(blocks: u64, minibatch: u64) -> Vec<u32> {
    let key = Key::new(7).with(minibatch);
    (0..ROWS as u64)
        .map(|i| {
            let range = if i % 2 == 0 { blocks / 10 } else { blocks };
            key.below(i, range) as u32
        })
        .collect()
}

struct Driver {
    engine: Engine,
    longest: Duration,
    now_ns: u64,
    in_flight: Vec<Transfer>,
}

impl Driver {
    /// Plans and validates until nothing is accepted; returns how long that took.
    fn settle(&mut self, reaction: Reaction) -> Duration {
        self.now_ns += 1_000_000;
        let start = cpu_time();
        let commands = self.engine.settle(reaction, self.now_ns);
        let spent = cpu_time() - start;
        self.longest = self.longest.max(spent);
        self.in_flight.extend(commands.into_iter().filter_map(|command| match command {
            Command::Fetch(transfer) => Some(transfer),
            _ => None,
        }));
        spent
    }

    /// Everything in flight arrives; the planner hears of it at once.
    fn deliver(&mut self) -> Duration {
        let mut reaction = Reaction::default();
        for transfer in std::mem::take(&mut self.in_flight) {
            let outcome = Outcome::Arrived { private: vec![] };
            let ended = self.engine.complete(transfer.id, transfer.generation, outcome, self.now_ns);
            reaction.events.extend(ended.events);
        }
        self.settle(reaction)
    }
}

/// For each minibatch after a warm-up: time spent in plan + validate over its life, and in its longest call.
fn run(blocks: u64, policy: PolicySpec) -> Vec<(Duration, Duration)> {
    let engine = engine(book(blocks), blocks, policy);
    let mut driver = Driver { engine, longest: Duration::ZERO, now_ns: 0, in_flight: vec![] };
    let mut times = vec![];
    for minibatch in 1..=MINIBATCHES {
        driver.longest = Duration::ZERO;
        let announced = [(TableId(0), rows(blocks, minibatch))];
        let announced = driver.engine.announce(TRAINER, MinibatchId(minibatch), &announced);
        let mut spent = driver.settle(announced.expect("announced in order"));
        spent += driver.deliver();
        if minibatch > WINDOW {
            let oldest = MinibatchId(minibatch - WINDOW);
            let wanted = driver.engine.want(TRAINER, oldest, driver.now_ns).expect("announced");
            spent += driver.settle(wanted);
            while !driver.in_flight.is_empty() {
                spent += driver.deliver();
            }
            let released = driver.engine.release(TRAINER, oldest, driver.now_ns).expect("announced");
            debug_assert!(released.events.iter().any(|event| matches!(event, Event::Released { .. })));
            spent += driver.settle(released);
        }
        if minibatch > MINIBATCHES / 3 {
            times.push((spent, driver.longest));
        }
    }
    times
}
