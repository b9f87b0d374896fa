//! Every arm, under random schedules of trainers, answers, losses and restarts: what is ready holds the right rows,
//! and once faults end everything is served.

use proptest::prelude::*;
use rudder_policy::step::Outcome;
use rudder_policy::testing::{World, book, trainer};
use rudder_topology::{ControllerSpec, MassiveGnnSpec, NodeId, PolicySpec, Share, TableId, WindowStaticSpec};

#[derive(Clone, Debug)]
enum Move {
    Announce {
        rank: u32,
        x: Vec<u32>,
        y: Vec<u32>,
    },
    WantOldest {
        rank: u32,
    },
    ReleaseOldest {
        rank: u32,
    },
    Arrive {
        pick: usize,
    },
    Lose {
        pick: usize,
    },
    Down {
        node: u16,
    },
    Up {
        node: u16,
    },
    Die {
        rank: u32,
    },
    /// Of the cache's bytes, in percent.
    Resize {
        percent: u64,
    },
    Panic,
}

/// The arm with parameters that matter in a window of six minibatches.
fn small(arm: PolicySpec) -> PolicySpec {
    match arm {
        PolicySpec::FixedWindow { .. } => PolicySpec::FixedWindow { minibatches: 2 },
        PolicySpec::MassiveGnn(scoring) => PolicySpec::MassiveGnn(MassiveGnnSpec { delta: 2, ..scoring }),
        PolicySpec::RudderPaper { scoring, .. } => PolicySpec::RudderPaper {
            scoring: MassiveGnnSpec { delta: 1, ..scoring },
            controller: ControllerSpec::Random { probability: Share::from_millionths(500_000) },
        },
        PolicySpec::WindowStatic(spec) => {
            PolicySpec::WindowStatic(WindowStaticSpec { minibatches: 2, ..spec })
        }
        PolicySpec::BeladySuperbatch { .. } => PolicySpec::BeladySuperbatch { minibatches: 3 },
        other => other,
    }
}

const ROWS: u32 = 120;
const PARTS: u16 = 3;

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let rows = || proptest::collection::vec(0..ROWS, 0..20);
    let one = prop_oneof![
        6 => (0_u32..3, rows(), rows()).prop_map(|(rank, x, y)| Move::Announce { rank, x, y }),
        4 => (0_u32..3).prop_map(|rank| Move::WantOldest { rank }),
        4 => (0_u32..3).prop_map(|rank| Move::ReleaseOldest { rank }),
        12 => any::<usize>().prop_map(|pick| Move::Arrive { pick }),
        1 => any::<usize>().prop_map(|pick| Move::Lose { pick }),
        1 => (0..PARTS).prop_map(|node| Move::Down { node }),
        2 => (0..PARTS).prop_map(|node| Move::Up { node }),
        1 => (0_u32..3).prop_map(|rank| Move::Die { rank }),
        1 => (10_u64..=100).prop_map(|percent| Move::Resize { percent }),
        1 => Just(Move::Panic),
    ];
    proptest::collection::vec(one, 0..150)
}

/// The oldest unreleased minibatch of a trainer.
fn oldest(world: &World, rank: u32) -> Option<u64> {
    let key = world.announced.keys().find(|key| key.0 == trainer(rank))?;
    Some(key.1.0)
}

fn step(world: &mut World, cache_bytes: u64, next: &mut [u64; 3], step: Move) {
    match step {
        Move::Announce { rank, x, y } => {
            let queued = world.announced.keys().filter(|key| key.0 == trainer(rank)).count();
            if queued < 6 {
                next[rank as usize] += 1;
                let tables = vec![(TableId(1), y), (TableId(0), x)];
                world.announce(trainer(rank), next[rank as usize], tables);
            }
        }
        Move::WantOldest { rank } => {
            if let Some(minibatch) = oldest(world, rank) {
                world.want(trainer(rank), minibatch);
            }
        }
        Move::ReleaseOldest { rank } => {
            if let Some(minibatch) = oldest(world, rank)
                && world.ready.keys().any(|key| key.0 == trainer(rank) && key.1.0 == minibatch)
            {
                world.release(trainer(rank), minibatch);
            }
        }
        Move::Arrive { pick } => {
            if !world.in_flight.is_empty() {
                world.arrive(pick % world.in_flight.len());
            }
        }
        Move::Lose { pick } => {
            if !world.in_flight.is_empty() {
                world.end(pick % world.in_flight.len(), Outcome::Lost);
            }
        }
        Move::Down { node } => world.link_down(NodeId(node)),
        Move::Up { node } => world.link_up(NodeId(node)),
        Move::Die { rank } => {
            world.disconnect(trainer(rank));
            world.connect(trainer(rank));
            // A new connection may count anew; going on is what a client that reconnects does.
        }
        // Not below a block of each table.
        Move::Resize { percent } => world.resize((cache_bytes * percent / 100).max(64)),
        Move::Panic => world.engine.recover(),
    }
}

/// After faults end every minibatch is served in bounded work, and nothing stays in flight.
fn drain(world: &mut World) {
    for node in 0..PARTS {
        world.link_up(NodeId(node));
    }
    for _ in 0..10_000 {
        if !world.in_flight.is_empty() {
            world.arrive(0);
            continue;
        }
        if world.announced.is_empty() {
            return;
        }
        for rank in 0..3 {
            let Some(minibatch) = oldest(world, rank) else { continue };
            world.want(trainer(rank), minibatch);
            if world.ready.keys().any(|key| key.0 == trainer(rank) && key.1.0 == minibatch) {
                world.release(trainer(rank), minibatch);
            }
        }
    }
    let view = world.engine.view();
    let blocks = view
        .cache
        .resident()
        .map(|b| (b, view.cache.valid(b), view.cache.is_pinned(b), view.cache.is_evictable(b)));
    let entries = view.window.by_time_of_use().into_iter().map(|f| view.window.entry(f.entry).cloned());
    panic!("not drained: {:#?} {:?}", entries.collect::<Vec<_>>(), blocks.collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_right_and_everything_is_served(
        arm in 0..PolicySpec::ALL.len(),
        // From less than one minibatch to nearly everything.
        cache_bytes in 64_u64..1600,
        rows_per_block in prop_oneof![Just(1_u32), Just(4)],
        local in any::<bool>(),
        moves in moves(),
    ) {
        let local: &[u16] = if local { &[0] } else { &[] };
        let book = book(u64::from(ROWS), u64::from(PARTS), rows_per_block);
        let mut world = World::new(book, cache_bytes, small(PolicySpec::ALL[arm]), local);
        for rank in 0..3 {
            world.connect(trainer(rank));
        }
        let mut next = [0; 3];
        for one in moves {
            step(&mut world, cache_bytes, &mut next, one);
        }
        drain(&mut world);
        prop_assert!(world.failed.is_empty());
        prop_assert_eq!(world.engine.view().links.in_flight_bytes(), 0);
        let pinned: usize = (0..2).map(|t| world.engine.view().cache.pinned_slots(TableId(t))).sum();
        prop_assert_eq!(pinned, 0);
        // Planner and validator share the facts here, so they agree.
        prop_assert_eq!(world.refusals(), 0);
    }
}
