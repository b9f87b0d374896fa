//! Every lever that a directive may pull does something in the engine, and what it did ends with it.

use rudder_graph::Class;
use rudder_policy::links::LinkId;
use rudder_policy::parameters::{BlockRange, Posture};
use rudder_policy::step::{Outcome, TrainerId};
use rudder_policy::testing::{World, book, trainer};
use rudder_topology::{BlockId, JobId, NodeId, PartId, PolicySpec, TableId};

const T: TableId = TableId(0);

/// 2 parts on 2 storage nodes, each part on both; blocks of 4 rows of 8 bytes; a cache of `slots` blocks.
fn world(slots: u64, policy: PolicySpec) -> World {
    let mut world = World::new(book(400, 2, 4), slots * 32, policy, &[]);
    world.connect(trainer(0));
    world
}

fn rows(blocks: std::ops::Range<u32>) -> Vec<(TableId, Vec<u32>)> {
    vec![(T, blocks.flat_map(|block| block * 4..block * 4 + 4).collect())]
}

fn in_flight(world: &World, node: u16) -> u64 {
    let view = world.engine.view();
    view.links.link(NodeId(node)).map_or(0, |link| link.in_flight_bytes)
}

/// Blocks that are resident or on their way.
fn coming(world: &World) -> usize {
    (0..world.book.blocks())
        .filter(|&block| world.engine.view().cache.slot_of(BlockId(block)).is_some())
        .count()
}

#[test]
fn a_links_share_bounds_its_permits_and_turns_to_other_replicas() {
    let mut world = world(80, PolicySpec::RUDDER);
    world.set_parameters(|p| p.link_shares.extend([(NodeId(0), 25)]));
    world.announce(trainer(0), 0, rows(0..40));
    assert_eq!(in_flight(&world, 0), 64, "a quarter of 256");
    assert_eq!(in_flight(&world, 1), 256);
    assert!(world.engine.view().links.link(NodeId(0)).unwrap().bandwidth(u64::MAX).0 == (1 << 20) / 4);
    world.set_parameters(|p| p.link_shares.clear());
    assert_eq!((in_flight(&world, 0), in_flight(&world, 1)), (256, 256));
}

#[test]
fn a_staged_way_that_brings_nothing_rests_and_is_tried_again() {
    // Part 0 is on nodes 0 and 1; node 2 stages what 0 owns.
    let mut world = World::new(book(400, 3, 4), 80 * 32, PolicySpec::RUDDER, &[]);
    world.connect(trainer(0));
    world.set_parameters(|p| p.through.extend([(NodeId(0), NodeId(2))]));
    world.link_down(NodeId(0));
    world.link_down(NodeId(1));
    world.announce(trainer(0), 0, rows(0..1));
    world.want(trainer(0), 0);
    let staged = |world: &World| {
        let links: Vec<_> = world.in_flight.iter().map(|transfer| transfer.link()).collect();
        links == [LinkId { node: NodeId(2), staged: true }]
    };
    let tick = |world: &mut World, at_ms: u64| {
        world.now_ns = at_ms * 1_000_000;
        let reaction = world.engine.tick(world.now_ns);
        world.carry_out(reaction);
    };
    for rest_ms in [50, 100, 200, 400, 800, 800] {
        assert!(staged(&world), "{rest_ms}: {:?}", world.in_flight);
        let lost_ms = world.now_ns / 1_000_000;
        world.end(0, Outcome::Lost);
        assert!(world.in_flight.is_empty(), "{rest_ms}: it is not asked over and over");
        tick(&mut world, lost_ms + rest_ms - 1);
        assert!(world.in_flight.is_empty(), "{rest_ms}");
        tick(&mut world, lost_ms + rest_ms);
    }
    // The node itself came anew: no rest.
    world.end(0, Outcome::Lost);
    world.link_up(NodeId(2));
    assert!(staged(&world));
    // Rows of the same node's own part never rest.
    world.announce(trainer(0), 1, rows(99..100));
    world.end(1, Outcome::Lost);
    assert_eq!(world.in_flight.len(), 2, "asked again at once");
    while !world.in_flight.is_empty() {
        world.arrive(0);
    }
    assert_eq!(world.ready.len(), 2);
    // What it brought counts: the next rest is a short one.
    world.announce(trainer(0), 2, rows(1..2));
    assert!(staged(&world));
    let lost_ms = world.now_ns / 1_000_000;
    world.end(0, Outcome::Lost);
    tick(&mut world, lost_ms + 50);
    assert!(staged(&world));
    // An owner that is back is asked itself meanwhile.
    world.end(0, Outcome::Lost);
    world.link_up(NodeId(0));
    assert_eq!(world.in_flight[0].link(), LinkId::from(NodeId(0)));
}

#[test]
fn what_a_node_owns_may_be_asked_of_the_one_that_stages_it() {
    let mut world = World::new(book(600, 3, 4), 150 * 32, PolicySpec::RUDDER, &[]);
    world.connect(trainer(0));
    // Whoever stores part 0 is gone.
    world.link_down(NodeId(0));
    world.link_down(NodeId(1));
    world.announce(trainer(0), 0, rows(0..40));
    world.want(trainer(0), 0);
    assert_eq!(world.in_flight.len(), 0);
    world.set_parameters(|p| p.through.extend([(NodeId(0), NodeId(2))]));
    let staged = LinkId { node: NodeId(2), staged: true };
    assert!(!world.in_flight.is_empty() && world.in_flight.iter().all(|transfer| transfer.link() == staged));
    let under_way = |world: &World| world.engine.view().links.link(staged).unwrap().in_flight_bytes;
    assert_eq!((under_way(&world), in_flight(&world, 2)), (256, 0), "it has permits of its own");
    for _ in 0..5 {
        world.arrive(0);
    }
    // Taken back: what is under way comes, and nothing more is asked for.
    world.set_parameters(|p| p.through.clear());
    let left = world.in_flight.len();
    for _ in 0..left {
        world.arrive(0);
    }
    assert_eq!((world.in_flight.len(), world.ready.len(), under_way(&world)), (0, 0, 0));
    world.set_parameters(|p| p.through.extend([(NodeId(0), NodeId(2))]));
    while !world.in_flight.is_empty() {
        world.arrive(0);
    }
    assert_eq!(world.ready.len(), 1);
}

#[test]
fn who_stages_and_is_gone_is_gone_around() {
    let mut world = World::new(book(600, 3, 4), 150 * 32, PolicySpec::RUDDER, &[]);
    world.connect(trainer(0));
    world.set_parameters(|p| p.through = [(NodeId(0), NodeId(2)), (NodeId(1), NodeId(2))].into());
    world.announce(trainer(0), 0, rows(0..40));
    assert!(!world.in_flight.is_empty() && world.in_flight.iter().all(|transfer| transfer.staged));
    world.link_down(NodeId(2));
    assert!(!world.in_flight.is_empty() && world.in_flight.iter().all(|transfer| !transfer.staged));
    while !world.in_flight.is_empty() {
        world.arrive(0);
    }
    world.want(trainer(0), 0);
    assert_eq!(world.ready.len(), 1);
}

#[test]
fn nothing_is_asked_of_a_stranger_or_of_an_owner_as_staged() {
    let mut world = World::new(book(600, 3, 4), 150 * 32, PolicySpec::RUDDER, &[]);
    let sources = |world: &World| world.engine.view().links.sources(PartId(0)).to_vec();
    let owners = [NodeId(0), NodeId(1)].map(LinkId::from);
    assert_eq!(sources(&world), owners);
    world.set_parameters(|p| p.through.extend([(NodeId(0), NodeId(9)), (NodeId(1), NodeId(0))]));
    assert_eq!(sources(&world), owners);
    world.set_parameters(|p| p.through = [(NodeId(0), NodeId(2)), (NodeId(1), NodeId(2))].into());
    assert_eq!(sources(&world), [LinkId { node: NodeId(2), staged: true }]);
}

#[test]
fn posture_decides_what_prefetching_may_use() {
    for (posture, ahead) in [(Posture::Normal, 512), (Posture::DemandFirst, 128), (Posture::DemandOnly, 0)] {
        let mut world = world(80, PolicySpec::RUDDER);
        world.set_parameters(|p| p.posture = posture);
        world.announce(trainer(0), 0, rows(0..40));
        assert_eq!(in_flight(&world, 0) + in_flight(&world, 1), ahead, "{posture:?}");
        world.want(trainer(0), 0);
        assert_eq!(in_flight(&world, 0) + in_flight(&world, 1), 512, "{posture:?}: what is waited for");
        let demand = world.in_flight.iter().any(|transfer| transfer.class == Class::Demand);
        assert_eq!(demand, posture != Posture::Normal, "the permits were taken before");
        while !world.in_flight.is_empty() {
            world.arrive(0);
        }
        assert_eq!(world.ready.len(), 1, "{posture:?}");
    }
}

#[test]
fn a_jobs_horizon_leaves_the_cache_to_others() {
    let other = TrainerId { job: JobId(7), ..trainer(0) };
    let fetched = |horizon: Option<u32>| {
        let mut world = world(100, PolicySpec::RUDDER);
        world.connect(other);
        world.set_parameters(|p| p.job_horizons.extend(horizon.map(|h| (JobId(7), h))));
        for minibatch in 0..4 {
            world.announce(other, minibatch, rows(minibatch as u32 * 4..minibatch as u32 * 4 + 4));
        }
        while !world.in_flight.is_empty() {
            world.arrive(0);
        }
        world.announce(trainer(0), 0, rows(50..54));
        while !world.in_flight.is_empty() {
            world.arrive(0);
        }
        coming(&world)
    };
    assert_eq!(fetched(None), 20);
    assert_eq!(fetched(Some(1)), 8, "one minibatch of the job, and the other job's");
}

#[test]
fn what_is_warmed_takes_free_slots_and_nothing_else() {
    let warm = |world: &mut World, blocks: std::ops::Range<u32>| {
        let range = BlockRange { first: BlockId(blocks.start), end: BlockId(blocks.end) };
        world.set_parameters(|p| p.warm = vec![range]);
        while !world.in_flight.is_empty() {
            assert!(world.in_flight.iter().all(|transfer| transfer.class == Class::Prefetch));
            world.arrive(0);
        }
    };
    let mut one = world(40, PolicySpec::RUDDER);
    warm(&mut one, 3..9);
    let resident = |world: &World, block| world.engine.view().cache.valid(BlockId(block)) == 0xF;
    assert!((3..9).all(|block| resident(&one, block)) && coming(&one) == 6);
    warm(&mut one, 0..100);
    let full = coming(&one);
    assert!(full < 100 && (3..9).all(|block| resident(&one, block)), "{full}");
    assert_eq!(one.engine.statistics().evictions, 0);

    let mut none = world(40, PolicySpec::None);
    warm(&mut none, 3..9);
    assert_eq!(coming(&none), 0, "an arm that keeps nothing warms nothing");
}

#[test]
fn what_a_directive_set_ends_with_its_time_or_before() {
    let mut world = world(80, PolicySpec::RUDDER);
    let lasting = world.engine.lasting_parameters().clone();
    let directive = |p: &mut rudder_policy::parameters::Parameters| {
        p.posture = Posture::DemandOnly;
        p.expires_ns = Some(1_000_000_000);
    };
    world.set_parameters(directive);
    assert_eq!(world.engine.lasting_parameters(), &lasting);
    world.engine.tick(999_999_999);
    assert_eq!(world.engine.parameters().posture, Posture::DemandOnly);
    world.engine.tick(1_000_000_000);
    assert_eq!(world.engine.parameters().posture, Posture::Normal);
    assert!(world.engine.view().links.idle_takes(Class::Prefetch), "the links know, too");

    world.set_parameters(directive);
    assert!(!world.engine.revert_parameters().events.is_empty());
    assert_eq!(world.engine.parameters().posture, Posture::Normal);
    assert!(world.engine.revert_parameters().events.is_empty(), "there is nothing more to take back");
}

#[test]
fn waits_are_counted_from_asking_to_ready() {
    let mut world = world(80, PolicySpec::RUDDER);
    world.announce(trainer(0), 0, rows(0..4));
    world.want(trainer(0), 0);
    assert_eq!(world.engine.statistics().wait_ns, 0);
    while !world.in_flight.is_empty() {
        let transfer = world.in_flight.remove(0);
        world.now_ns += 5_000_000;
        let outcome = Outcome::Arrived { private: vec![] };
        world.engine.complete(transfer.id, transfer.generation, outcome, world.now_ns);
    }
    assert!(world.engine.statistics().wait_ns >= 5_000_000, "{:?}", world.engine.statistics());
}
