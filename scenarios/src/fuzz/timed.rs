//! A small timed cluster of a seed: links that slow down, storage nodes that go and come back, stragglers; judged after
//! each of its events. It ends only if every minibatch was served.

use super::dataset::Dataset;
use super::random::Random;
use super::trainer::Rows as DrawnRows;
use crate::arm::Arm;
use crate::sim::{
    Change, Costs, Load, Rows, Sharing, SimCompute, SimNode, SimSpec, Simulation, TimedEvent, Variation,
    Watch, run_watched,
};
use rudder_policy::geometry::Geometry;
use rudder_topology::{
    Bytes, BytesPerSecond, Limits, LinkCost, Nanos, NodeId, PolicySpec, TableId, TrainerRank,
};

/// Every trainer's minibatches.
struct Drawn(Vec<Vec<DrawnRows>>);

impl Rows for Drawn {
    fn of(&self, rank: TrainerRank, minibatch: u64) -> &[(TableId, Vec<u32>)] {
        &self.0[rank.index()][minibatch as usize]
    }
}

/// What holds of every engine at every time.
#[derive(Default)]
struct Facts {
    events: usize,
    /// When the last event was.
    now_ns: u64,
}

impl Watch for Facts {
    fn after(&mut self, simulation: &Simulation<'_>) -> Result<(), String> {
        self.events += 1;
        if simulation.now_ns() < self.now_ns {
            return Err(format!("time went back from {} ns", self.now_ns));
        }
        self.now_ns = simulation.now_ns();
        let spec = simulation.spec();
        for (node, engine) in simulation.engines() {
            let view = engine.view();
            let (used, all) = view.cache.occupancy_bytes();
            let budget = spec.nodes[node.index()].compute.as_ref().map_or(0, |compute| compute.cache.0);
            if used > all || all > budget {
                return Err(format!("{used} of {all} bytes are used on {node}, which has {budget}"));
            }
            let mut sum = 0;
            for (storage, link) in view.links.links() {
                sum += link.in_flight_bytes;
                let limit = spec.limits.link_in_flight_bytes.0.max(largest_transfer(spec));
                if link.in_flight_bytes > limit {
                    return Err(format!("{} bytes under way from {storage} to {node}", link.in_flight_bytes));
                }
            }
            if sum != view.links.in_flight_bytes() {
                return Err(format!("{sum} bytes under way on the links of {node}, which counts others"));
            }
        }
        Ok(())
    }
}

/// What is larger than its limit goes alone: a block, or a piece of a minibatch that passes by the cache.
fn largest_transfer(spec: &SimSpec) -> u64 {
    let tables = (0..spec.book.tables()).map(|table| TableId(table as u16));
    let block = tables.filter_map(|table| spec.book.block_bytes(table)).max().unwrap_or(0);
    spec.limits.transfer_bytes_max.0.max(u64::from(block))
}

/// Plays the cluster of a seed. Returns its events, or after which one of them something was wrong.
pub(super) fn play(seed: u64) -> Result<usize, (usize, String)> {
    let mut random = Random::new(seed ^ 0x71ED);
    let parts = random.between(1, 4);
    let dataset = Dataset::draw(&mut random, parts);
    let policy = *random.pick(&PolicySpec::ALL);
    let arm = Arm::named(policy.name()).unwrap_or(Arm::Rudder);
    let mut spec = cluster(&mut random, &dataset, seed, policy);
    spec.events = events(&mut random, &spec);
    let rows = rows(&mut random, &dataset, &spec);
    let mut facts = Facts::default();
    let played = run_watched(&spec, Some(arm), &rows, &mut |_| {}, Some(&mut facts));
    let run = played.map_err(|error| (facts.events, error.to_string()))?;
    let wanted = u64::from(spec.trainers()) * spec.load.minibatches;
    if run.minibatches() != wanted {
        return Err((facts.events, format!("{} of {wanted} minibatches were served", run.minibatches())));
    }
    Ok(facts.events)
}

/// Storage nodes first.
fn cluster(random: &mut Random, dataset: &Dataset, seed: u64, policy: PolicySpec) -> SimSpec {
    let storage = random.between(1, 3) as u16;
    let compute = random.between(1, 3) as u16;
    let rate = BytesPerSecond(random.between(50_000, 5_000_000));
    let cost = LinkCost { bandwidth: rate, latency: Nanos(random.between(0, 1_000_000)) };
    let mut cache = dataset.bytes() * random.between(1, 10) / 10;
    while Geometry::new(&dataset.book, Bytes(cache)).is_err() {
        cache += dataset.one_block_each();
    }
    let window = random.between(0, 6) as u32;
    let copies = random.between(1, u64::from(storage).min(2)) as u16;
    let replicas = |part: u16| (0..copies).map(|copy| (NodeId((part + copy) % storage), cost)).collect();
    let side = SimCompute {
        cache: Bytes(cache),
        credits: window + 2,
        ready_ahead: random.between(0, 1) as u32,
        replicas: (0..dataset.book.parts() as u16).map(replicas).collect(),
    };
    let node = |name, compute| SimNode { name, up: rate, down: rate, compute };
    let nodes = (0..storage).map(|n| node(format!("s{n}"), None));
    let limits = Limits {
        link_in_flight_bytes: Bytes(random.between(64, 4096)),
        node_in_flight_bytes: Bytes(random.between(128, 8192)),
        transfer_bytes_max: Bytes(random.between(32, 2048)),
        transfer_timeout: Nanos::from_millis(random.between(50, 2000)),
        heartbeat_timeout: Nanos::from_millis(random.between(10, 300)),
        link_rate_max: random.one_in(4).then(|| BytesPerSecond(random.between(50_000, 1_000_000))),
    };
    let compute_nodes = (0..compute).map(|n| node(format!("c{n}"), Some(side.clone())));
    SimSpec {
        seed,
        nodes: nodes.chain(compute_nodes).collect(),
        latency: cost.latency,
        burst: Bytes(random.below(2) * random.between(1, 5000)),
        book: dataset.book.clone(),
        limits,
        staging: crate::sim::STAGING,
        policy,
        prior: Some((0..dataset.book.blocks()).map(|block| (block % 7) as f32).collect()),
        load: Load {
            trainers_per_node: random.between(1, 2) as u32,
            window,
            minibatches: random.between(2, 6),
            replay: random.one_in(3),
            compute: Nanos(random.between(0, 5_000_000)),
            variation: Variation {
                jitter: if random.one_in(2) { 0.3 } else { 0.0 },
                stragglers: if random.one_in(3) { 0.2 } else { 0.0 },
                straggler_factor: 5.0,
            },
            allreduce: Bytes(if random.one_in(2) { random.between(1, 4096) } else { 0 }),
        },
        joins: Vec::new(),
        events: Vec::new(),
        sharing: if random.one_in(3) {
            Sharing::EqualShares { quantum_ns: 100_000 }
        } else {
            Sharing::MaxMin
        },
        costs: Costs::default(),
    }
}

/// Of a node's cache, what holds a block of each table.
fn smallest_share(spec: &SimSpec, node: NodeId) -> f64 {
    let cache = spec.nodes[node.index()].compute.as_ref().map_or(0, |side| side.cache.0);
    let holds = |&tenths: &u64| Geometry::new(&spec.book, Bytes(cache * tenths / 10)).is_ok();
    (1..10).find(holds).unwrap_or(10) as f64 / 10.0
}

/// What goes comes back, and what slows down recovers: the run must end.
fn events(random: &mut Random, spec: &SimSpec) -> Vec<TimedEvent> {
    let storage = spec.nodes.iter().filter(|node| node.compute.is_none()).count() as u64;
    let all = spec.nodes.len() as u64;
    let mut events = Vec::new();
    for _ in 0..random.below(4) {
        let at = random.between(0, 200_000_000);
        let until = at + random.between(1_000_000, 400_000_000);
        let node = NodeId(random.below(storage) as u16);
        let slow = BytesPerSecond(if random.one_in(3) { 0 } else { random.between(1_000, 50_000) });
        let other = NodeId((storage + random.below(all - storage)) as u16);
        let rate = spec.nodes[node.index()].up;
        let (what, back) = match random.below(4) {
            0 => (Change::Down { node }, Change::Up { node }),
            1 => {
                let left = smallest_share(spec, other).max(random.between(1, 9) as f64 / 10.0);
                (Change::Cache { node: other, left }, Change::Cache { node: other, left: 1.0 })
            }
            2 => (Change::Interface { node: other, rate: slow }, Change::Interface { node: other, rate }),
            _ => {
                let between = (node, other);
                (Change::Link { between, rate: slow }, Change::Link { between, rate })
            }
        };
        events.push(TimedEvent { at: Nanos(at), what });
        events.push(TimedEvent { at: Nanos(until), what: back });
    }
    events.sort_by_key(|event| event.at);
    events
}

fn rows(random: &mut Random, dataset: &Dataset, spec: &SimSpec) -> Drawn {
    let rows_max = random.between(1, 40);
    let minibatch = |random: &mut Random| super::trainer::draw_rows(random, dataset, rows_max);
    let mut of_trainer = || (0..spec.load.minibatches).map(|_| minibatch(random)).collect();
    Drawn((0..spec.trainers()).map(|_| of_trainer()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_played_the_same_twice() {
        assert_eq!(play(3), play(3));
    }
}
