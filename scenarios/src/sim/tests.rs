use super::*;
use crate::record::Counters;
use crate::workload::Tables;
use rudder_graph::random::Key;
use rudder_graph::{Dtype, Manifest, PartitionBook, TableSpec};
use rudder_policy::advice::directive::{self as action, Directive};
use rudder_policy::advice::sample::ComputeSample;
use rudder_topology::{
    Bytes, BytesPerSecond, DatasetName, Limits, LinkCost, Nanos, NodeId, PolicySpec, TableId, TableName,
    TrainerRank,
};

const ROWS: u64 = 2000;
const ROW_BYTES: u64 = 400;
const RATE: BytesPerSecond = BytesPerSecond(5_000_000);

/// Two parts of rows of 400 bytes, a row a block.
fn book() -> PartitionBook {
    let offsets = vec![0, ROWS / 2, ROWS];
    PartitionBook::new(&Manifest {
        format: rudder_graph::manifest::FORMAT_VERSION,
        name: DatasetName::new("simulated").unwrap(),
        vertices: ROWS,
        edges: 0,
        digest: String::new(),
        part_offsets: offsets.clone(),
        graphs: Vec::new(),
        tables: vec![TableSpec {
            name: TableName::new("features").unwrap(),
            dim: 100,
            dtype: Dtype::F32,
            rows_per_block: 1,
            row_offsets: offsets,
        }],
        files: Vec::new(),
        notes: Vec::new(),
    })
}

/// Nodes 0 and 1 store a part each; `compute` more nodes have a trainer each.
fn spec(policy: PolicySpec, compute: u16) -> SimSpec {
    let cost = LinkCost { bandwidth: RATE, latency: Nanos::from_millis(1) };
    let node = |name: String, compute| SimNode { name, up: RATE, down: RATE, compute };
    let side = || SimCompute {
        cache: Bytes(ROWS * ROW_BYTES / 4),
        credits: 10,
        ready_ahead: 1,
        replicas: vec![vec![(NodeId(0), cost)], vec![(NodeId(1), cost)]],
    };
    let storage = (0..2).map(|n| node(format!("s{n}"), None));
    let computes = (0..compute).map(|n| node(format!("c{n}"), Some(side())));
    SimSpec {
        seed: 1,
        nodes: storage.chain(computes).collect(),
        latency: Nanos(200_000),
        burst: Bytes(0),
        book: book(),
        limits: Limits::default(),
        staging: crate::sim::STAGING,
        policy,
        prior: None,
        load: Load {
            trainers_per_node: 1,
            window: 8,
            minibatches: 40,
            replay: false,
            compute: Nanos::from_millis(5),
            variation: Variation::default(),
            allreduce: Bytes(4000),
        },
        joins: Vec::new(),
        events: Vec::new(),
        sharing: Sharing::MaxMin,
        costs: Costs::default(),
    }
}

/// A hundred rows a minibatch, low ones more often.
struct Skewed(Vec<Vec<Tables>>);

impl Skewed {
    fn new(trainers: u32, minibatches: u64) -> Self {
        let minibatch = |rank: u32, minibatch: u64| {
            let key = Key::new(9).with(u64::from(rank)).with(minibatch);
            let drawn = (0..150).map(|n| (key.unit(n).powi(2) * ROWS as f64) as u32);
            let mut seen = std::collections::BTreeSet::new();
            let rows: Vec<u32> = drawn.filter(|&row| seen.insert(row)).take(100).collect();
            [(TableId(0), rows)]
        };
        Skewed((0..trainers).map(|rank| (0..minibatches).map(|m| minibatch(rank, m)).collect()).collect())
    }
}

impl Rows for Skewed {
    fn of(&self, rank: TrainerRank, minibatch: u64) -> &[(TableId, Vec<u32>)] {
        &self.0[rank.index()][minibatch as usize]
    }
}

fn play(spec: &SimSpec, arm: Option<Arm>) -> Run {
    run(spec, arm, &Skewed::new(spec.trainers(), spec.load.minibatches)).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut varied = spec(PolicySpec::RUDDER, 3);
    varied.load.variation = Variation { jitter: 0.2, stragglers: 0.1, straggler_factor: 3.0 };
    let text = |spec: &SimSpec| format!("{:?}", play(spec, Some(Arm::Rudder)));
    let first = text(&varied);
    assert_eq!(first, text(&varied));
    varied.seed = 2;
    assert_ne!(first, text(&varied));
}

#[test]
fn a_job_that_joins_trains_beside_the_first() {
    let mut joined = spec(PolicySpec::RUDDER, 2);
    let at = Nanos::from_millis(100);
    joined.joins.push(Join { at, load: Load { window: 0, minibatches: 10, ..joined.load.clone() } });
    let run = play(&joined, Some(Arm::Rudder));
    let steps: Vec<usize> = run.trainers.iter().map(|trainer| trainer.steps.len()).collect();
    assert_eq!(steps, [40, 40, 10, 10]);
    let begins = run.trainers[2].steps.first().map(|step| step.at_ns - step.step_ns);
    assert!(begins.is_some_and(|begins| begins >= at.0), "{begins:?}");
    // Until then nothing is different.
    let alone = play(&spec(PolicySpec::RUDDER, 2), Some(Arm::Rudder));
    let early =
        |run: &Run| run.trainers[0].steps.iter().filter(|s| s.at_ns < at.0).copied().collect::<Vec<_>>();
    assert!(!early(&alone).is_empty());
    assert_eq!(early(&alone), early(&run));
}

#[test]
fn the_bound_computes_and_reduces_and_nothing_else() {
    let bound = play(&spec(PolicySpec::None, 2), None);
    assert_eq!(bound.counters, Counters::default());
    for step in bound.trainers.iter().flat_map(|trainer| &trainer.steps) {
        // Two rounds of half the vector: 2000 bytes and headers at 5 MB/s, a latency and a round's own time.
        let costs = Costs::default();
        let round_ns = 2000.0 * costs.wire_factor / 5e6 * 1e9 + 200_000.0 + costs.round.0 as f64;
        let want = 5e6 + 2.0 * round_ns;
        assert!((step.step_ns as f64 - want).abs() < 10.0, "{} {want}", step.step_ns);
        assert_eq!(step.wait_ns, 0);
    }
}

#[test]
fn every_row_that_is_wanted_moves_and_waiting_is_what_is_left_of_a_step() {
    let spec = spec(PolicySpec::None, 2);
    let run = play(&spec, Some(Arm::None));
    assert_eq!(run.minibatches(), 80);
    assert_eq!(run.counters.minibatches_released, 80);
    assert_eq!(run.counters.bytes_demand, run.counters.rows_wanted * ROW_BYTES);
    for step in run.trainers.iter().flat_map(|trainer| &trainer.steps) {
        assert_eq!(step.step_ns, step.wait_ns + 5_000_000 + step.allreduce_ns);
    }
    // 100 rows of 400 bytes at 5 MB/s into each node are 8 ms; seven in ten come from the first storage node,
    // which serves both: 11 ms, and what each transfer costs.
    let wait_ms = run.stall_s() * 1000.0 / 40.0;
    assert!((10.0..15.0).contains(&wait_ms), "{wait_ms}");
}

#[test]
fn looking_ahead_waits_less_than_caching_and_caching_less_than_nothing() {
    let throughput = |policy, arm| play(&spec(policy, 2), Some(arm)).minibatches_per_s();
    let none = throughput(PolicySpec::None, Arm::None);
    let lru = throughput(PolicySpec::Lru, Arm::Lru);
    let rudder = throughput(PolicySpec::RUDDER, Arm::Rudder);
    assert!(none * 1.05 < lru && lru * 1.05 < rudder, "{none} {lru} {rudder}");
}

#[test]
fn a_replay_sees_the_whole_run_and_moves_fewer_bytes() {
    let mut spec = spec(PolicySpec::RUDDER, 2);
    let window = play(&spec, Some(Arm::Rudder));
    spec.load.replay = true;
    let replay = play(&spec, Some(Arm::Rudder));
    assert_eq!((window.counters.minibatches_foreseen, replay.counters.replay_alarms), (0, 0));
    assert!(replay.counters.minibatches_foreseen > 50 && replay.counters.replay_cpu_ns > 0);
    assert!(replay.counters.bytes_moved() < window.counters.bytes_moved());
}

#[test]
fn the_quick_network_is_close_to_the_exact_one() {
    let mut spec = spec(PolicySpec::RUDDER, 4);
    let exact = play(&spec, Some(Arm::Rudder));
    spec.sharing = Sharing::EqualShares { quantum_ns: 500_000 };
    let quick = play(&spec, Some(Arm::Rudder));
    let ratio = quick.minibatches_per_s() / exact.minibatches_per_s();
    assert!((0.93..1.05).contains(&ratio), "{ratio}");
}

#[test]
fn a_storage_node_that_goes_and_comes_back_delays_and_no_more() {
    let calm = spec(PolicySpec::RUDDER, 2);
    let mut lost = calm.clone();
    lost.limits.heartbeat_timeout = Nanos::from_millis(50);
    lost.events = vec![
        TimedEvent { at: Nanos::from_millis(100), what: Change::Down { node: NodeId(1) } },
        TimedEvent { at: Nanos::from_millis(600), what: Change::Up { node: NodeId(1) } },
    ];
    let (calm, lost) = (play(&calm, Some(Arm::Rudder)), play(&lost, Some(Arm::Rudder)));
    assert_eq!(lost.minibatches(), calm.minibatches());
    // It is away for half a second and a tenth until it is connected; meanwhile the other one runs ahead.
    let delay_s = lost.stall_s() - calm.stall_s();
    assert!((0.2..0.7).contains(&delay_s), "{delay_s}");
}

#[test]
fn a_slow_link_costs_and_a_link_back_at_speed_does_not() {
    let calm = spec(PolicySpec::None, 1);
    let mut slow = calm.clone();
    let between = (NodeId(0), NodeId(2));
    let at = |ms, rate| TimedEvent { at: Nanos::from_millis(ms), what: Change::Link { between, rate } };
    slow.events = vec![at(0, BytesPerSecond(500_000))];
    let mut brief = calm.clone();
    brief.events = vec![at(0, BytesPerSecond(500_000)), at(200, RATE)];
    let [calm, slow, brief] = [calm, slow, brief].map(|spec| play(&spec, Some(Arm::None)).stall_s());
    assert!(calm < brief && brief < slow, "{calm} {brief} {slow}");
    // Half of the rows at a tenth of the rate.
    assert!((3.0..12.0).contains(&(slow / calm)), "{calm} {slow}");
}

#[test]
fn jitter_keeps_the_mean_and_stragglers_raise_it() {
    let mut spec = spec(PolicySpec::None, 1);
    let mean = |spec: &SimSpec| {
        let all = (0..20_000).map(|minibatch| spec.compute_ns(&spec.load, TrainerRank(0), minibatch) as f64);
        all.sum::<f64>() / 20_000.0 / spec.load.compute.0 as f64
    };
    spec.load.variation.jitter = 0.3;
    // Standard deviation of the mean: 0.002.
    assert!((mean(&spec) - 1.0).abs() < 0.01, "{}", mean(&spec));
    spec.load.variation.stragglers = 0.1;
    spec.load.variation.straggler_factor = 5.0;
    assert!((mean(&spec) - 1.4).abs() < 0.04, "{}", mean(&spec));
}

/// Gives a directive at the first look.
struct Gives(Option<Directive>);

impl Steer for Gives {
    fn period_ns(&self) -> u64 {
        1_000_000
    }

    fn observe(&mut self, _: u64, _: Vec<(NodeId, ComputeSample)>) -> Vec<Steering> {
        self.0.take().map(Steering::Enact).into_iter().collect()
    }

    fn answer(&mut self, _: u64) -> Vec<Steering> {
        vec![]
    }
}

/// How long it takes where the nodes `ask` of node 1 what node 0 owns, in units of what it takes without.
fn staged(spec: &SimSpec, ask: &[u16]) -> f64 {
    let rows = Skewed::new(spec.trainers(), spec.load.minibatches);
    let length = |directive: Option<Directive>| {
        let run = run_steered(spec, Arm::Rudder, &rows, &mut |_| {}, &mut Gives(directive)).unwrap();
        run.trainers.iter().filter_map(|t| t.steps.last()).map(|step| step.at_ns).max().unwrap() as f64
    };
    let change = action::Change::Stage { storage: NodeId(0), through: NodeId(1) };
    let action = |&node: &u16| action::Action { compute: NodeId(node), change, ttl_s: 600 };
    let directive = Directive { actions: ask.iter().map(action).collect() };
    length(Some(directive)) / length(None)
}

#[test]
fn a_slow_link_is_gone_around_through_a_node_that_stages() {
    let mut slow = spec(PolicySpec::RUDDER, 2);
    let rate = BytesPerSecond(RATE.0 / 20);
    let what = Change::Link { between: (NodeId(0), NodeId(2)), rate };
    slow.events.push(TimedEvent { at: Nanos(0), what });
    let ratio = staged(&slow, &[2]);
    assert!(ratio < 0.6, "{ratio}");
    // Nobody else's blocks are asked for there.
    assert!((staged(&slow, &[3]) - 1.0).abs() < 0.1);
}

#[test]
fn what_a_slow_node_owns_leaves_it_once() {
    let mut slow = spec(PolicySpec::RUDDER, 2);
    let rate = BytesPerSecond(RATE.0 / 10);
    slow.load.minibatches = 200;
    slow.events.push(TimedEvent { at: Nanos(0), what: Change::Interface { node: NodeId(0), rate } });
    let ratio = staged(&slow, &[2, 3]);
    assert!(ratio < 0.8, "{ratio}");
    // With no memory for copies nothing is staged, and nothing is stuck.
    let none = SimSpec { staging: Bytes(0), ..slow.clone() };
    let ratio = staged(&none, &[2, 3]);
    assert!((0.9..1.2).contains(&ratio), "{ratio}");
    // One that keeps going away neither.
    for at in 1..20 {
        let node = NodeId(at % 2);
        let at = Nanos::from_millis(u64::from(at) * 100);
        slow.events.push(TimedEvent { at, what: Change::Down { node } });
        let at = Nanos(at.0 + 90_000_000);
        slow.events.push(TimedEvent { at, what: Change::Up { node } });
    }
    slow.limits.heartbeat_timeout = Nanos::from_millis(50);
    assert!(staged(&slow, &[2, 3]) < 1.5);
}
