use super::ResizeRefusal;
use crate::testing::{World, book, book_of_one, trainer};
use rudder_topology::{BlockId, Bytes, MinibatchId, PolicySpec, TableId};

const TABLE: TableId = TableId(0);

fn tables(rows: &[u32]) -> Vec<(TableId, Vec<u32>)> {
    vec![(TABLE, rows.to_vec())]
}

fn arrive_all(world: &mut World) {
    while !world.in_flight.is_empty() {
        world.arrive(0);
    }
}

/// A cache of 8 slots of 8 bytes; the trainer holds minibatch 0, which fills it.
fn full(policy: PolicySpec) -> World {
    let mut world = World::new(book_of_one(64, 2, 2, 1), 64, policy, &[]);
    world.connect(trainer(0));
    world.announce(trainer(0), 0, tables(&[0, 1, 2, 3, 4, 5, 6, 7]));
    world.want(trainer(0), 0);
    arrive_all(&mut world);
    world
}

fn is_ready(world: &World, minibatch: u64) -> bool {
    world.ready.contains_key(&(trainer(0), MinibatchId(minibatch)))
}

#[test]
fn what_is_beyond_the_limit_goes_when_its_minibatch_is_released() {
    for policy in PolicySpec::ALL {
        let mut world = full(policy);
        world.resize(24);
        let cache = world.engine.view().cache;
        assert_eq!((cache.slots(TABLE), cache.stranded_slots()), (3, 5), "{policy}");
        world.release(trainer(0), 0);
        let cache = world.engine.view().cache;
        assert_eq!(cache.stranded_slots(), 0, "{policy}");
        assert!(cache.resident().count() <= 3, "{policy}");
    }
}

#[test]
fn what_is_not_pinned_goes_at_once() {
    let mut world = full(PolicySpec::RUDDER);
    world.release(trainer(0), 0);
    assert_eq!(world.engine.view().cache.resident().count(), 8);
    world.resize(24);
    let cache = world.engine.view().cache;
    assert_eq!((cache.resident().count(), cache.stranded_slots()), (3, 0));
    assert_eq!(cache.occupancy_bytes(), (24, 24));
}

#[test]
fn a_minibatch_that_was_planned_for_the_larger_cache_is_served() {
    for policy in PolicySpec::ALL {
        let mut world = full(policy);
        world.announce(trainer(0), 1, tables(&[4, 5, 6, 7, 40, 41]));
        arrive_all(&mut world);
        world.resize(8);
        // While 0 is held, 4 to 7 cannot be pinned again: they come past the cache.
        world.want(trainer(0), 1);
        arrive_all(&mut world);
        assert!(is_ready(&world, 1), "{policy}");
        world.release(trainer(0), 0);
        assert_eq!(world.engine.view().cache.stranded_slots(), 0, "{policy}");
        world.release(trainer(0), 1);
    }
}

#[test]
fn a_block_that_every_minibatch_uses_leaves_its_slot_too() {
    let mut world = full(PolicySpec::RUDDER);
    world.resize(32);
    for minibatch in 1..6 {
        world.announce(trainer(0), minibatch, tables(&[6, 7]));
        world.want(trainer(0), minibatch);
        arrive_all(&mut world);
        assert!(is_ready(&world, minibatch));
        world.release(trainer(0), minibatch - 1);
        assert_eq!(world.engine.view().cache.stranded_slots(), 0, "{minibatch}");
    }
}

#[test]
fn it_grows_back_and_what_had_to_go_may_stay() {
    let mut world = full(PolicySpec::RUDDER);
    world.resize(24);
    world.resize(64);
    let cache = world.engine.view().cache;
    assert_eq!((cache.slots(TABLE), cache.stranded_slots(), cache.free_slots(TABLE)), (8, 0, 0));
    world.release(trainer(0), 0);
    assert_eq!(world.engine.view().cache.resident().count(), 8);
    world.resize(24);
    world.resize(64);
    assert_eq!(world.engine.view().cache.free_slots(TABLE), 5);
    world.announce(trainer(0), 1, tables(&[20, 21, 22, 23, 24, 25, 26, 27]));
    world.want(trainer(0), 1);
    arrive_all(&mut world);
    assert!(is_ready(&world, 1));
    assert_eq!(world.engine.statistics().bypasses, 0);
}

/// A minibatch two steps ahead takes the place of blocks that nobody needs, unless those before it and it are much of
/// the cache.
#[test]
fn near_minibatches_follow_the_limit() {
    let is_brought = |limit: u64| {
        let mut world = World::new(book_of_one(64, 2, 2, 1), 320, PolicySpec::RUDDER, &[]);
        world.connect(trainer(0));
        world.announce(trainer(0), 0, tables(&(0..40).collect::<Vec<_>>()));
        world.want(trainer(0), 0);
        arrive_all(&mut world);
        world.release(trainer(0), 0);
        world.resize(limit);
        assert_eq!(world.engine.view().cache.free_slots(TABLE), 0);
        world.announce(trainer(0), 1, tables(&[40]));
        world.announce(trainer(0), 2, tables(&[41]));
        world.announce(trainer(0), 3, tables(&[50, 51, 52, 53]));
        world.want(trainer(0), 1);
        arrive_all(&mut world);
        assert!(is_ready(&world, 1));
        world.engine.view().cache.has_slot(BlockId(50))
    };
    assert_eq!((is_brought(320), is_brought(48)), (true, false));
}

#[test]
fn sizes_out_of_bounds_are_refused() {
    let mut world = World::new(book(64, 2, 1), 128, PolicySpec::RUDDER, &[]);
    let refusal = world.engine.resize_cache(Bytes(129)).unwrap_err();
    assert_eq!(refusal, ResizeRefusal::TooLarge { asked: Bytes(129), has: Bytes(128) });
    assert!(matches!(world.engine.resize_cache(Bytes(8)), Err(ResizeRefusal::TooSmall(_))));
    assert_eq!(world.engine.view().cache.slots(TABLE), 8);
}
