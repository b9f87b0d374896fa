use crate::step::Outcome;
use crate::testing::{World, book, trainer};
use rudder_topology::{MinibatchId, PolicySpec, TableId};

const TABLE: TableId = TableId(0);

fn tables(rows: &[u32]) -> Vec<(TableId, Vec<u32>)> {
    vec![(TABLE, rows.to_vec())]
}

/// A trainer that holds minibatch 0, rows 0 to 3, of a cache with 8 slots a table, and waits for minibatch 1.
fn holds_one_and_wants(rows: &[u32], policy: PolicySpec) -> World {
    let mut world = World::new(book(64, 2, 1), 128, policy, &[]);
    assert_eq!(world.engine.view().cache.geometry().class_slots(TABLE).len(), 8);
    world.connect(trainer(0));
    world.announce(trainer(0), 0, tables(&[0, 1, 2, 3]));
    world.want(trainer(0), 0);
    while !world.in_flight.is_empty() {
        world.arrive(0);
    }
    world.announce(trainer(0), 1, tables(rows));
    world.want(trainer(0), 1);
    world
}

fn is_ready(world: &World, minibatch: u64) -> bool {
    world.ready.contains_key(&(trainer(0), MinibatchId(minibatch)))
}

#[test]
fn what_does_not_fit_beside_a_held_minibatch_passes_by_and_uses_what_is_there() {
    for policy in [PolicySpec::RUDDER, PolicySpec::Lru, PolicySpec::None] {
        let mut world = holds_one_and_wants(&[2, 3, 10, 11, 12, 40, 41, 42], policy);
        while !world.in_flight.is_empty() {
            world.arrive(0);
        }
        assert!(is_ready(&world, 0) && is_ready(&world, 1), "{policy}");
        let statistics = world.engine.statistics();
        let bytes = statistics.bytes_demand + statistics.bytes_prefetch;
        // What was on its way to the cache before the trainer asked comes twice.
        let twice: u64 = if policy == PolicySpec::RUDDER { 3 } else { 0 };
        assert_eq!((statistics.bypasses, bytes), (1, (4 + 6 + twice) * 8), "{policy}");
        // Pinned by both; each release compares the bytes.
        world.release(trainer(0), 0);
        let pinned = world.engine.view().cache.pinned_slots(TABLE);
        assert!((2..=2 + twice as usize).contains(&pinned), "{policy}: {pinned}");
        world.release(trainer(0), 1);
        assert_eq!(world.engine.view().cache.pinned_slots(TABLE), 0, "{policy}");
    }
}

#[test]
fn a_minibatch_that_is_passed_over_holds_nothing_up() {
    let large: Vec<u32> = (0..30).collect();
    for rows in [vec![40, 41], (20..50).collect()] {
        for policy in [PolicySpec::RUDDER, PolicySpec::Lru, PolicySpec::None] {
            let mut world = World::new(book(64, 2, 1), 128, policy, &[]);
            world.connect(trainer(0));
            world.announce(trainer(0), 0, tables(&large));
            world.announce(trainer(0), 1, tables(&rows));
            world.want(trainer(0), 1);
            while !world.in_flight.is_empty() {
                world.arrive(0);
            }
            assert!(is_ready(&world, 1), "{policy}, {} rows", rows.len());
            // It may still ask for the first.
            world.want(trainer(0), 0);
            while !world.in_flight.is_empty() {
                world.arrive(0);
            }
            assert!(is_ready(&world, 0), "{policy}, {} rows", rows.len());
        }
    }
}

#[test]
fn what_was_pinned_in_passing_can_go_again() {
    let mut world = holds_one_and_wants(&[0, 1, 2, 3, 10, 11, 12, 13, 14, 40], PolicySpec::RUDDER);
    while !world.in_flight.is_empty() {
        world.arrive(0);
    }
    world.release(trainer(0), 0);
    world.release(trainer(0), 1);
    // All of the cache is needed: whatever was pinned has to make room.
    world.announce(trainer(0), 2, tables(&[20, 21, 22, 23, 24, 50, 51, 52]));
    world.want(trainer(0), 2);
    while !world.in_flight.is_empty() {
        world.arrive(0);
    }
    assert!(is_ready(&world, 2));
    assert_eq!(world.engine.statistics().bypasses, 1);
    world.release(trainer(0), 2);
}

#[test]
fn a_piece_that_is_lost_comes_again() {
    let mut world = holds_one_and_wants(&[2, 10, 11, 12, 13, 40, 41, 42, 43], PolicySpec::RUDDER);
    assert!(!world.in_flight.is_empty());
    while let Some(at) = (0..world.in_flight.len()).next() {
        let first = world.engine.statistics().transfers_lost == 0;
        if first { world.end(at, Outcome::Lost) } else { world.arrive(at) }
    }
    assert!(is_ready(&world, 1));
    world.release(trainer(0), 1);
    world.release(trainer(0), 0);
}
