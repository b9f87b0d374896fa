//! The whole cluster around the pure engine, in one thread, from one seed: first with faults, then without, and then
//! everything must be served.
//!
//! The engine is the product's; memory, network, storage nodes, trainers and time are simulated. A failure prints
//! the line that plays it again.
//!
//! [`campaign`] plays many, each under all invariants at once, and beside it a small timed cluster (`timed`).
//!
//! Reading order: random, dataset, trainer, invariant, world, progress, faults, timed, campaign.

mod campaign;
pub mod dataset;
mod faults;
pub mod invariant;
mod progress;
pub mod random;
mod timed;
pub mod trainer;
pub mod world;

pub use campaign::{Campaign, campaign, seed};
use dataset::Dataset;
use invariant::{Invariant, Sabotage};
use random::Random;
use rudder_policy::engine::{Engine, EngineConfig};
use rudder_policy::geometry::Geometry;
use rudder_policy::parameters::Parameters;
use rudder_topology::{
    Bytes, BytesPerSecond, ControllerSpec, Limits, LinkCost, MassiveGnnSpec, Nanos, NodeId, PolicySpec,
    Share, WindowStaticSpec,
};
use world::World;

/// How many rows a minibatch asks for.
#[derive(Clone, Copy, Debug)]
pub enum MinibatchRows {
    /// 1 to this many of each table, repeats possible.
    UpTo(u64),
    /// So many distinct rows of the first table.
    Exactly(usize),
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub policy: PolicySpec,
    pub trainers: u32,
    /// Of each trainer.
    pub minibatches: usize,
    pub minibatch_rows: MinibatchRows,
    /// Minibatches announced ahead.
    pub window: usize,
    pub ready_ahead: u32,
    pub nodes: u16,
    pub cache_bytes: u64,
    pub limits: Limits,
    pub transfer_timeout_ns: u64,
    /// Every step of the trainers ends together.
    pub barrier: bool,
    /// Faults in the first phase of the run.
    pub faults: bool,
    pub sabotage: Sabotage,
}

/// Who saw the violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Judge {
    Invariant,
    /// The run itself did not begin, go on or end.
    Schedule,
}

/// A broken invariant, with all that is needed to see it again.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Violation {
    pub seed: u64,
    pub judge: Judge,
    pub event: usize,
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Violation { seed, event, what, .. } = self;
        writeln!(f, "{what}\n  in the state after event {event}; to see it again:")?;
        write!(f, "  rudder scenario fuzz --seed {seed}")
    }
}

/// Events under faults.
const FAULTY_EVENTS: u64 = 250;
/// Events after the faults; a run that needs more does not come to an end.
const FAIR_EVENTS_MAX: usize = 50_000;

const POLICIES: [PolicySpec; 17] = [
    PolicySpec::RUDDER,
    PolicySpec::RUDDER,
    PolicySpec::RUDDER,
    PolicySpec::None,
    PolicySpec::NoneOverlap,
    PolicySpec::FixedWindow { minibatches: 2 },
    PolicySpec::Lru,
    PolicySpec::LruPrefetch,
    PolicySpec::Lfu,
    PolicySpec::Clock,
    PolicySpec::Sieve,
    PolicySpec::S3Fifo,
    // Of the caches of a fixed set one stands for all: they differ in their prior alone.
    PolicySpec::Degree,
    PolicySpec::MassiveGnn(MassiveGnnSpec { delta: 2, ..MassiveGnnSpec::PUBLISHED }),
    PolicySpec::RudderPaper {
        scoring: MassiveGnnSpec { delta: 1, ..MassiveGnnSpec::PUBLISHED },
        controller: ControllerSpec::Random { probability: Share::from_millionths(500_000) },
    },
    PolicySpec::WindowStatic(WindowStaticSpec { minibatches: 2, ..WindowStaticSpec::DEFAULT }),
    PolicySpec::BeladySuperbatch { minibatches: 3 },
];

/// Options and dataset of a seed: small, crowded and different each time.
#[must_use]
pub fn draw(seed: u64) -> (Options, Dataset) {
    let mut random = Random::new(seed);
    let parts = random.between(1, 4);
    let dataset = Dataset::draw(&mut random, parts);
    let transfer_timeout = Nanos(random.between(5, 50) * 1_000_000);
    let limits = Limits {
        link_in_flight_bytes: Bytes(random.between(64, 2048)),
        node_in_flight_bytes: Bytes(random.between(128, 4096)),
        transfer_bytes_max: Bytes(random.between(32, 1024)),
        transfer_timeout,
        ..Limits::default()
    };
    let options = Options {
        seed,
        policy: *random.pick(&POLICIES),
        trainers: random.between(1, 4) as u32,
        minibatches: random.between(3, 8) as usize,
        minibatch_rows: MinibatchRows::UpTo(random.between(1, 40)),
        window: random.between(1, 6) as usize,
        ready_ahead: random.between(0, 2) as u32,
        nodes: random.between(1, 3) as u16,
        cache_bytes: draw_cache(&mut random, &dataset),
        limits,
        transfer_timeout_ns: transfer_timeout.0,
        barrier: false,
        faults: true,
        sabotage: Sabotage::Nothing,
    };
    (options, dataset)
}

/// From the smallest cache that can be made up to one that holds everything.
fn draw_cache(random: &mut Random, dataset: &Dataset) -> u64 {
    let mut bytes = dataset.bytes() * random.between(1, 10) / 10;
    while Geometry::new(&dataset.book, Bytes(bytes)).is_err() {
        bytes += dataset.one_block_each();
    }
    bytes
}

/// Plays one run under the eye of one invariant. Returns the number of events.
pub fn run(options: Options, dataset: Dataset, invariant: &mut dyn Invariant) -> Result<usize, Violation> {
    let seed = options.seed;
    let mut random = Random::new(seed ^ 0x5eed);
    let violation = |judge, event, what| Violation { seed, judge, event, what };
    let engine = Engine::new(config(&options, &dataset, &mut random))
        .map_err(|error| violation(Judge::Schedule, 0, format!("the engine was not made: {error}")))?;
    let mut world = World::new(options, dataset, engine, random);
    let mut events = 0;
    let mut judge = |world: &mut World, invariant: &mut dyn Invariant| {
        events += 1;
        let notes = std::mem::take(&mut world.notes);
        invariant
            .after(world, &notes)
            .map(|()| events)
            .map_err(|what| violation(Judge::Invariant, events, what))
    };
    world.open();
    if world.options.faults {
        for _ in 0..FAULTY_EVENTS {
            faults::any_event(&mut world);
            judge(&mut world, invariant)?;
        }
    }
    world.options.faults = false;
    for node in 0..world.nodes.len() {
        world.node_up(node);
        judge(&mut world, invariant)?;
    }
    for _ in 0..FAIR_EVENTS_MAX {
        if world.trainers.iter().all(trainer::Trainer::is_done) && world.flights.is_empty() {
            let end = invariant.at_end(&world);
            return end.map(|()| events).map_err(|what| violation(Judge::Invariant, events, what));
        }
        let goes_on = progress::fair_event(&mut world);
        let event = judge(&mut world, invariant)?;
        if !goes_on {
            let what = format!("nothing happens any more\n{}", describe(&world));
            return Err(violation(Judge::Schedule, event, what));
        }
    }
    Err(violation(Judge::Schedule, events, format!("the run does not end\n{}", describe(&world))))
}

fn config(options: &Options, dataset: &Dataset, random: &mut Random) -> EngineConfig {
    let replicas = (0..dataset.book.parts()).map(|part| {
        // A part of several may be co-located: then nobody is asked for it.
        if part > 0 && random.one_in(6) {
            return Vec::new();
        }
        let copies = random.between(1, u64::from(options.nodes).min(2));
        let first = random.below(u64::from(options.nodes));
        let node = |copy| NodeId(((first + copy) % u64::from(options.nodes)) as u16);
        let cost = LinkCost { bandwidth: BytesPerSecond::from_mbit(100), latency: Nanos::from_millis(1) };
        (0..copies).map(|copy| (node(copy), cost)).collect()
    });
    let believed = if options.sabotage == Sabotage::CacheTwiceAsLarge { 2 } else { 1 };
    EngineConfig {
        book: dataset.book.clone(),
        cache_bytes: Bytes(options.cache_bytes * believed),
        replicas: replicas.collect(),
        limits: options.limits,
        parameters: Parameters::default(),
        policy: options.policy,
        prior: Some((0..dataset.book.blocks()).map(|block| (block % 7) as f32).collect()),
        credits: options.window as u32,
        ready_ahead: options.ready_ahead,
    }
}

/// What stands still, for the message.
fn describe(world: &World) -> String {
    let view = world.engine.view();
    let mut lines = vec![format!(
        "  {:?}, {} in flight, occupancy {:?}, {} transfers open, refusals not seen: {:?}",
        world.options.policy,
        view.links.in_flight_bytes(),
        view.cache.occupancy_bytes(),
        world.flights.len(),
        world.unseen()
    )];
    for trainer in &world.trainers {
        let phases: Vec<_> = view
            .window
            .queue(trainer.id)
            .filter_map(|id| view.window.entry(id))
            .map(|entry| {
                format!(
                    "{} {:?} missing {} of {}",
                    entry.minibatch,
                    entry.phase,
                    entry.missing,
                    entry.blocks.len()
                )
            })
            .collect();
        lines.push(format!("  {} waits {} steps {}: {phases:?}", trainer.id, trainer.waits, trainer.steps()));
    }
    lines.join("\n")
}
