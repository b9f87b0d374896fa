//! The scenarios of seeds.
//!
//! The distribution. Uniform where nothing else is said; everything follows from the seed alone.
//!
//! | what | drawn from |
//! |---|---|
//! | storage nodes, compute nodes, trainers a compute node | 2 or 3; 1 or 2; 1 or 2 |
//! | copies of each part (a part a storage node) | 2 in two of three, else 1 |
//! | rows, bytes a row, rows a block | 2,000 to 5,000; 2 or 4 KiB; 1 |
//! | a minibatch | 25 to 60 distinct rows, popularity a power law of exponent 1.5 to 3 within a part |
//! | cache | 10 to 40 % of the rows |
//! | compute | 150 to 300 ms, jitter 0.05 to 0.2 |
//! | links | what a trainer's node would use without a cache, over 0.6 to 1.2; latency 0.1 to 1 ms |
//! | window | 2, 4, 8 or 16 minibatches |
//! | all-reduce | what a link carries in 3 to 12 % of the compute time in seven of ten, else trainers are on their own |
//! | length | 160 s of computing; the change comes after 20 to 28 s of time and stays |
//! | the change | one of [`Kind`], each as likely |
//!
//! A degraded link or interface keeps 5 to 40 % of its rate. A changed fan-out asks for 1.5 to 3 times the rows, of a
//! flatter distribution. A job that joins has a trainer on each compute node, half to twice the rows of the first job's
//! minibatches, its window and no all-reduce; one without look-ahead has window 0. A cache that shrinks keeps 15 to 60 %
//! of its bytes, on one compute node. A node that goes comes back after 10 to 25 s.

use crate::sim::{
    Change, Costs, Join, Load, Rows, Sharing, SimCompute, SimNode, SimSpec, TimedEvent, Variation,
};
use crate::workload::Tables;
use rudder_graph::random::Key;
use rudder_graph::{Dtype, Manifest, PartitionBook, TableSpec, manifest};
use rudder_topology::{
    Bytes, BytesPerSecond, DatasetName, Limits, LinkCost, Nanos, NodeId, PolicySpec, TableId, TableName,
    TrainerRank,
};
use serde::{Deserialize, Serialize};

/// What changes midway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Nothing.
    Steady,
    /// The link between a storage node and a compute node.
    LinkDegrades,
    /// The interface of a storage node.
    StorageSlows,
    /// A storage node goes and comes back.
    StorageGoes,
    /// The sampler asks for more rows.
    FanoutChanges,
    /// The cache of a compute node.
    CacheShrinks,
    /// A second job.
    JobJoins,
    /// A second job whose trainers announce nothing ahead.
    JobWithoutLookAhead,
}

impl Kind {
    pub const ALL: [Kind; 8] = [
        Kind::Steady,
        Kind::LinkDegrades,
        Kind::StorageSlows,
        Kind::StorageGoes,
        Kind::FanoutChanges,
        Kind::CacheShrinks,
        Kind::JobJoins,
        Kind::JobWithoutLookAhead,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Steady => "steady",
            Kind::LinkDegrades => "link degrades",
            Kind::StorageSlows => "storage slows",
            Kind::StorageGoes => "storage goes",
            Kind::FanoutChanges => "fan-out changes",
            Kind::CacheShrinks => "cache shrinks",
            Kind::JobJoins => "job joins",
            Kind::JobWithoutLookAhead => "no look-ahead",
        }
    }
}

/// A scenario of a seed.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub seed: u64,
    pub kind: Kind,
    /// When it changes.
    pub change: Nanos,
    pub spec: SimSpec,
    pub rows: DrawnRows,
}

/// The rows of every minibatch, by rank.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnRows(Vec<Vec<Tables>>);

impl Rows for DrawnRows {
    fn of(&self, rank: TrainerRank, minibatch: u64) -> &[(TableId, Vec<u32>)] {
        let found = self.0.get(rank.index()).and_then(|all| all.get(minibatch as usize));
        found.map_or(&[], <[_; 1]>::as_slice)
    }
}

/// Draws one after the other.
struct Draws {
    key: Key,
    count: u64,
}

impl Draws {
    fn unit(&mut self) -> f64 {
        self.count += 1;
        self.key.unit(self.count)
    }

    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.unit() * all.len() as f64) as usize % all.len()]
    }
}

/// Seconds of computing.
const LENGTH_S: f64 = 160.0;

/// How a job's minibatches are made.
#[derive(Clone, Copy, Debug)]
struct Popularity {
    rows: f64,
    exponent: f64,
}

/// The scenario of a seed, the change drawn as well.
#[must_use]
pub fn draw(seed: u64) -> Drawn {
    let kind = Kind::ALL[Key::new(seed).with(0x6B).below(0, Kind::ALL.len() as u64) as usize];
    draw_kind(seed, kind)
}

/// The scenario of a seed with this change.
#[must_use]
pub fn draw_kind(seed: u64, kind: Kind) -> Drawn {
    let mut draws = Draws { key: Key::new(seed).with(0xD7), count: 0 };
    let storage = draws.one_of(&[2_u16, 3]);
    let compute_nodes = draws.one_of(&[1_u16, 2]);
    let trainers_per_node = draws.one_of(&[1_u32, 2]);
    let copies = draws.one_of(&[1_u16, 2, 2]);
    let rows = draws.within(2_000.0, 5_000.0) as u64;
    let dim = draws.one_of(&[512_u32, 1024]);
    let first = Popularity { rows: draws.within(25.0, 60.0), exponent: draws.within(1.5, 3.0) };
    let row_bytes = u64::from(dim) * 4;
    let cache = Bytes((draws.within(0.1, 0.4) * rows as f64) as u64 * row_bytes);
    let compute_s = draws.within(0.15, 0.3);
    let wanted = first.rows * row_bytes as f64 * f64::from(trainers_per_node) / compute_s;
    let rate = BytesPerSecond((wanted / draws.within(0.6, 1.2)) as u64);
    let latency = Nanos(draws.within(1e5, 1e6) as u64);
    let load = Load {
        trainers_per_node,
        window: draws.one_of(&[2, 4, 8, 16]),
        minibatches: (LENGTH_S / compute_s) as u64,
        replay: false,
        compute: Nanos((compute_s * 1e9) as u64),
        variation: Variation { jitter: draws.within(0.05, 0.2), ..Variation::default() },
        allreduce: Bytes(match draws.unit() < 0.7 {
            true => (rate.0 as f64 * compute_s * draws.within(0.03, 0.12)) as u64,
            false => 0,
        }),
    };
    let change = Nanos((draws.within(20.0, 28.0) * 1e9) as u64);
    let cost = LinkCost { bandwidth: rate, latency };
    let replicas = |part: u16| (0..copies).map(|copy| (NodeId((part + copy) % storage), cost)).collect();
    let side = SimCompute {
        cache,
        credits: load.window + 2,
        ready_ahead: 1,
        replicas: (0..storage).map(replicas).collect(),
    };
    let node = |name, compute| SimNode { name, up: rate, down: rate, compute };
    let nodes = (0..storage).map(|n| node(format!("s{n}"), None));
    let mut spec = SimSpec {
        seed,
        nodes: nodes.chain((0..compute_nodes).map(|n| node(format!("c{n}"), Some(side.clone())))).collect(),
        latency,
        burst: Bytes(0),
        book: book(storage, rows, dim),
        limits: Limits::default(),
        staging: crate::sim::STAGING,
        policy: PolicySpec::RUDDER,
        prior: None,
        load,
        joins: Vec::new(),
        events: Vec::new(),
        sharing: Sharing::MaxMin,
        costs: Costs::default(),
    };
    let mut later = first;
    change_of(kind, change, &mut spec, &mut draws);
    if kind == Kind::FanoutChanges {
        later = Popularity {
            rows: first.rows * draws.within(1.5, 3.0),
            exponent: draws.within(1.0, first.exponent),
        };
    }
    let joined = Popularity { rows: first.rows * draws.within(0.5, 2.0), ..first };
    let rows = all_rows(&spec, change, [first, later, joined]);
    Drawn { seed, kind, change, spec, rows }
}

fn change_of(kind: Kind, at: Nanos, spec: &mut SimSpec, draws: &mut Draws) {
    let storage = spec.nodes.iter().filter(|node| node.compute.is_none()).count();
    let node = NodeId((draws.unit() * storage as f64) as u16);
    let compute = NodeId((storage as f64 + draws.unit() * (spec.nodes.len() - storage) as f64) as u16);
    let rate = BytesPerSecond((spec.nodes[node.index()].up.0 as f64 * draws.within(0.05, 0.4)) as u64);
    let mut add = |at, what| spec.events.push(TimedEvent { at, what });
    match kind {
        Kind::Steady | Kind::FanoutChanges => {}
        Kind::LinkDegrades => add(at, Change::Link { between: (node, compute), rate }),
        Kind::StorageSlows => add(at, Change::Interface { node, rate }),
        Kind::CacheShrinks => {
            let left = draws.within(0.15, 0.6);
            add(at, Change::Cache { node: compute, left });
        }
        Kind::StorageGoes => {
            add(at, Change::Down { node });
            add(Nanos(at.0 + (draws.within(10.0, 25.0) * 1e9) as u64), Change::Up { node });
        }
        Kind::JobJoins | Kind::JobWithoutLookAhead => {
            let window = if kind == Kind::JobJoins { spec.load.window } else { 0 };
            let left = 1.0 - at.as_secs_f64() / LENGTH_S;
            let minibatches = ((spec.load.minibatches as f64 * left) as u64).max(1);
            // Two all-reduces would meet on links by chance, and the bound would be none.
            let allreduce = Bytes(0);
            let load = Load { trainers_per_node: 1, window, minibatches, allreduce, ..spec.load.clone() };
            spec.joins.push(Join { at, load });
        }
    }
}

/// A part a storage node, one table, a row a block.
fn book(parts: u16, rows: u64, dim: u32) -> PartitionBook {
    let offsets: Vec<u64> = (0..=u64::from(parts)).map(|part| part * rows / u64::from(parts)).collect();
    let name = |text: &str| TableName::new(text).expect("letters");
    PartitionBook::new(&Manifest {
        format: manifest::FORMAT_VERSION,
        name: DatasetName::new("drawn").expect("letters"),
        vertices: rows,
        edges: 0,
        digest: String::new(),
        part_offsets: offsets.clone(),
        graphs: Vec::new(),
        tables: vec![TableSpec {
            name: name("features"),
            dim,
            dtype: Dtype::F32,
            rows_per_block: 1,
            row_offsets: offsets,
        }],
        files: Vec::new(),
        notes: Vec::new(),
    })
}

/// The first job's before and after the change, and the joined one's.
fn all_rows(spec: &SimSpec, change: Nanos, [first, later, joined]: [Popularity; 3]) -> DrawnRows {
    let main = spec.compute_nodes().count() as u32 * spec.load.trainers_per_node;
    // Stalls move it: in minibatches it comes when it would without any.
    let changes_at = change.0 / spec.load.compute.0.max(1);
    let trainer = |rank: u32| {
        let (of, minibatches) = match spec.joins.first().filter(|_| rank >= main) {
            Some(join) => (None, join.load.minibatches),
            None => (Some((first, later)), spec.load.minibatches),
        };
        let minibatch = |n: u64| {
            let popularity = of.map_or(joined, |(first, later)| if n < changes_at { first } else { later });
            [(TableId(0), minibatch(spec, popularity, Key::new(spec.seed).with(u64::from(rank)).with(n)))]
        };
        (0..minibatches).map(minibatch).collect()
    };
    DrawnRows((0..spec.trainers()).map(trainer).collect())
}

/// Distinct rows of all parts; the low rows of a part are its popular ones, as import orders them.
fn minibatch(spec: &SimSpec, popularity: Popularity, key: Key) -> Vec<u32> {
    let parts = spec.book.parts() as u64;
    let rows = spec.book.rows(TableId(0));
    let count = (popularity.rows as usize).clamp(1, rows as usize / 2);
    let mut seen = std::collections::BTreeSet::new();
    let mut all = Vec::with_capacity(count);
    for draw in 0_u64.. {
        let part = key.below(2 * draw, parts);
        let (start, end) = (part * rows / parts, (part + 1) * rows / parts);
        let place = key.unit(2 * draw + 1).powf(popularity.exponent) * (end - start) as f64;
        let row = (start + place as u64).min(end - 1) as u32;
        if seen.insert(row) {
            all.push(row);
        }
        if all.len() == count {
            break;
        }
    }
    all
}
