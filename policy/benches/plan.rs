//! Plan and validate at scale: announce, plan, validate, arrive and release of large minibatches, in a steady state.
//!
//! `cargo bench -p rudder-policy --bench plan`. Prints, in thread time for each minibatch:
//! - `life`: all calls of plan and validate of its whole life (announced, arrived, wanted, released), and the longest;
//! - `facts`: the stages that only take facts in (announce, complete, want, release), so that nothing hides there;
//! - the control state's bytes a block, and those a slot, as the engine sums them up.
//!
//! With 100 million blocks it takes 3 GiB; `-- 1000000 10000000` names other sizes.

use rudder_graph::PartitionBook;
use rudder_graph::random::Key;
use rudder_policy::engine::{Engine, EngineConfig};
use rudder_policy::parameters::Parameters;
use rudder_policy::step::{Command, Event, Outcome, Reaction, TrainerId, Transfer};
use rudder_policy::testing::book_of_one;
use rudder_topology::{
    Bytes, BytesPerSecond, Generation, JobId, Limits, LinkCost, MinibatchId, Nanos, NodeId, PolicySpec,
    TableId, TrainerRank,
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
        "{ROWS} rows a minibatch, rows_per_block = 1, window {WINDOW}, cache 1/{CACHE_SHARE}, {MINIBATCHES} minibatches"
    );
    // Cargo adds an argument of its own.
    let mut sizes: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![1_000_000, 10_000_000, 100_000_000];
    }
    for blocks in sizes {
        for (name, policy) in [("rudder", PolicySpec::RUDDER), ("lru", PolicySpec::Lru)] {
            if policy == PolicySpec::Lru && blocks > 10_000_000 {
                continue;
            }
            let (lives, bytes, window_bytes) = run(blocks, policy);
            let of = |stage: fn(&Life) -> Duration| summary(lives.iter().map(stage).collect());
            println!("{blocks:>11} blocks  {name}");
            println!("    plan + validate, life  {}", of(|life| life.plan + life.validate));
            println!("    longest call           {}", of(|life| life.longest));
            println!("    plan                   {}", of(|life| life.plan));
            println!("    validate               {}", of(|life| life.validate));
            println!("    facts: announce        {}", of(|life| life.announce));
            println!("    facts: complete        {}", of(|life| life.complete));
            println!("    facts: want, release   {}", of(|life| life.want + life.release));
            println!("    all of it              {}", of(Life::all));
            let slots = blocks / CACHE_SHARE;
            println!(
                "    control state          {bytes} bytes: {:.2} a block with {slots} slots",
                bytes as f64 / blocks as f64
            );
            println!("    window                 {window_bytes} bytes of {WINDOW} minibatches and more");
        }
    }
}

/// What one minibatch cost.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    plan: Duration,
    validate: Duration,
    longest: Duration,
    announce: Duration,
    complete: Duration,
    want: Duration,
    release: Duration,
}

impl Life {
    fn all(&self) -> Duration {
        self.plan + self.validate + self.announce + self.complete + self.want + self.release
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
    life: Life,
    now_ns: u64,
    in_flight: Vec<Transfer>,
}

/// Runs a stage; returns how long it took.
fn timed<R>(stage: impl FnOnce() -> R) -> (Duration, R) {
    let start = cpu_time();
    let result = stage();
    (cpu_time() - start, result)
}

impl Driver {
    /// Plans and validates until nothing is accepted, as `Engine::settle` does.
    fn settle(&mut self, reaction: Reaction) {
        self.now_ns += 1_000_000;
        let Reaction { mut events, mut commands } = reaction;
        let mut call = Duration::ZERO;
        loop {
            let (plan, proposal) = timed(|| self.engine.plan(&events, self.now_ns));
            let (validate, mut verdicts) = timed(|| self.engine.validate(proposal, self.now_ns));
            self.life.plan += plan;
            self.life.validate += validate;
            call += plan + validate;
            commands.append(&mut verdicts.commands);
            events = verdicts.events;
            assert!(events.is_empty(), "planner and validator agree");
            if verdicts.accepted == 0 {
                break;
            }
        }
        self.life.longest = self.life.longest.max(call);
        self.in_flight.extend(commands.into_iter().filter_map(|command| match command {
            Command::Fetch(transfer) => Some(transfer),
            _ => None,
        }));
    }

    /// Everything in flight arrives; the planner hears of it at once.
    fn deliver(&mut self) {
        let mut reaction = Reaction::default();
        for transfer in std::mem::take(&mut self.in_flight) {
            let outcome = Outcome::Arrived { private: vec![] };
            let complete = || self.engine.complete(transfer.id, transfer.generation, outcome, self.now_ns);
            let (spent, mut ended) = timed(complete);
            self.life.complete += spent;
            reaction.events.append(&mut ended.events);
            reaction.commands.append(&mut ended.commands);
        }
        self.settle(reaction);
    }
}

/// What each minibatch after a warm-up cost, and the bytes of the control state and of the window at the end.
fn run(blocks: u64, policy: PolicySpec) -> (Vec<Life>, usize, usize) {
    let engine = engine(book_of_one(blocks, PARTS, 128, 1), blocks, policy);
    let mut driver = Driver { engine, life: Life::default(), now_ns: 0, in_flight: vec![] };
    let mut lives = vec![];
    for minibatch in 1..=MINIBATCHES {
        driver.life = Life::default();
        let rows = [(TableId(0), rows(blocks, minibatch))];
        let (spent, announced) = timed(|| driver.engine.announce(TRAINER, MinibatchId(minibatch), &rows));
        driver.life.announce += spent;
        driver.settle(announced.expect("announced in order"));
        driver.deliver();
        if minibatch > WINDOW {
            let oldest = MinibatchId(minibatch - WINDOW);
            let (spent, wanted) = timed(|| driver.engine.want(TRAINER, oldest, driver.now_ns));
            driver.life.want += spent;
            driver.settle(wanted.expect("announced"));
            while !driver.in_flight.is_empty() {
                driver.deliver();
            }
            let (spent, released) = timed(|| driver.engine.release(TRAINER, oldest, driver.now_ns));
            driver.life.release += spent;
            let released = released.expect("announced");
            assert!(released.events.iter().any(|event| matches!(event, Event::Released { .. })));
            driver.settle(released);
        }
        if minibatch > MINIBATCHES / 3 {
            lives.push(driver.life);
        }
    }
    (lives, driver.engine.memory_bytes(), driver.engine.view().window.minibatch_bytes())
}
