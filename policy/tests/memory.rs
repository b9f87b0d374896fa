//! The control state stays within 16 bytes a block and 32 a slot, summed up from what its structures hold.

use rudder_graph::random::Key;
use rudder_policy::engine::{Engine, EngineConfig};
use rudder_policy::parameters::Parameters;
use rudder_policy::step::{Command, Outcome, Reaction, TrainerId};
use rudder_policy::testing::book_of_one;
use rudder_topology::{
    Bytes, BytesPerSecond, Generation, JobId, Limits, LinkCost, MinibatchId, Nanos, NodeId, PolicySpec,
    TableId, TrainerRank,
};
use std::collections::VecDeque;

const TRAINER: TrainerId = TrainerId { job: JobId(0), rank: TrainerRank(0) };
const WINDOW: u64 = 3;

/// Plays minibatches until the cache has been full for long; returns the most bytes that the control state had.
fn peak_bytes(policy: PolicySpec, blocks: u64, rows_per_block: u32, slots: u64) -> u64 {
    let cost = LinkCost { bandwidth: BytesPerSecond::from_mbit(10_000), latency: Nanos(50_000) };
    let engine = Engine::new(EngineConfig {
        book: book_of_one(blocks * u64::from(rows_per_block), 1, 16, rows_per_block),
        cache_bytes: Bytes(slots * 64 * u64::from(rows_per_block)),
        replicas: vec![vec![(NodeId(0), cost)]],
        limits: Limits {
            link_in_flight_bytes: Bytes(1 << 16),
            node_in_flight_bytes: Bytes(1 << 16),
            transfer_bytes_max: Bytes(1 << 14),
            ..Limits::default()
        },
        parameters: Parameters::default(),
        policy,
        prior: None,
        credits: WINDOW as u32 + 2,
        ready_ahead: 1,
    });
    let mut engine = engine.expect("the cache holds a block");
    assert_eq!(engine.view().cache.geometry().slots(), slots as u32);
    let mut in_flight = VecDeque::new();
    let mut now_ns = 0;
    let mut peak = 0;
    let mut settle = |engine: &mut Engine, reaction: Reaction, in_flight: &mut VecDeque<_>| {
        now_ns += 1_000_000;
        in_flight.extend(engine.settle(reaction, now_ns).into_iter().filter_map(|command| match command {
            Command::Fetch(transfer) => Some(transfer),
            _ => None,
        }));
        peak = peak.max(engine.memory_bytes() as u64);
    };
    let up = engine.link_up(NodeId(0), Generation(1), 0);
    settle(&mut engine, up, &mut in_flight);
    engine.connect(TRAINER);
    let rows_all = blocks * u64::from(rows_per_block);
    for minibatch in 1..=30_u64 {
        let key = Key::new(3).with(minibatch);
        let hot = |i| if i % 2 == 0 { rows_all / 10 } else { rows_all };
        let rows = (0..slots / 5).map(|i| key.below(i, hot(i)) as u32).collect();
        let announced = engine.announce(TRAINER, MinibatchId(minibatch), &[(TableId(0), rows)]);
        settle(&mut engine, announced.expect("announced in order"), &mut in_flight);
        let Some(oldest) = minibatch.checked_sub(WINDOW).filter(|&m| m > 0).map(MinibatchId) else {
            continue;
        };
        let wanted = engine.want(TRAINER, oldest, 0).expect("announced");
        settle(&mut engine, wanted, &mut in_flight);
        while let Some(transfer) = in_flight.pop_front() {
            let outcome = Outcome::Arrived { private: vec![] };
            let ended = engine.complete(transfer.id, transfer.generation, outcome, 0);
            settle(&mut engine, ended, &mut in_flight);
        }
        let released = engine.release(TRAINER, oldest, 0).expect("announced");
        settle(&mut engine, released, &mut in_flight);
    }
    assert!(engine.statistics().evictions > 0, "the cache was full");
    peak
}

#[test]
fn control_state_takes_16_bytes_a_block_and_32_a_slot_at_most() {
    for policy in [PolicySpec::RUDDER, PolicySpec::Lru] {
        for rows_per_block in [1, 64] {
            for (blocks, slots) in [(200_000, 20_000), (40_000, 20_000)] {
                let bytes = peak_bytes(policy, blocks, rows_per_block, slots);
                let most = 16 * blocks + 32 * slots;
                println!(
                    "{policy:?}, {rows_per_block} rows a block, {blocks} blocks, {slots} slots: {bytes} of {most}"
                );
                assert!(
                    bytes <= most,
                    "{policy:?} with {rows_per_block} rows a block: {bytes} bytes, over {most}"
                );
                // It counts what cannot be missing: the slot of each block, and how often it was used or who will.
                assert!(bytes >= 10 * blocks, "{policy:?}: {bytes} bytes are too few to be true");
            }
        }
    }
}
