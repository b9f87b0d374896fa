use super::*;
use crate::step::Refusal;
use crate::testing::{World, book, trainer};
use crate::validate;
use rudder_topology::PolicySpec;

const TABLE: TableId = TableId(0);

fn tables(rows: &[u32]) -> Vec<(TableId, Vec<u32>)> {
    vec![(TABLE, rows.to_vec())]
}

/// A world with one trainer of which minibatches 0 to 3 are foreseen.
fn world() -> World {
    let mut world = World::new(book(64, 2, 1), 4096, PolicySpec::RUDDER, &[]);
    world.connect(trainer(0));
    for (minibatch, rows) in [[0, 40], [1, 41], [2, 42], [0, 43]].iter().enumerate() {
        let foreseen = world.engine.foresee(trainer(0), MinibatchId(minibatch as u64), &tables(rows));
        world.carry_out(foreseen.unwrap());
    }
    world
}

#[test]
fn what_is_foreseen_is_prefetched_and_nothing_else() {
    let mut world = world();
    assert_eq!(world.in_flight.iter().map(|t| t.items.len()).sum::<usize>(), 7, "row 0 once");
    while !world.in_flight.is_empty() {
        world.arrive(0);
    }
    let view = world.engine.view();
    assert_eq!((view.window.queued(trainer(0)), view.window.last_minibatch(trainer(0))), (0, None));
    assert!(world.ready.is_empty());
    let first = view.window.foreseen(trainer(0)).next().unwrap();
    assert_eq!(validate::reserve(first, &[], &view), Err(Refusal::AlreadyReserved));
    assert_eq!(validate::bypass(first, &view), Err(Refusal::AlreadyReserved));
    // Neither waited for nor released before it is announced.
    assert_eq!(world.engine.want(trainer(0), MinibatchId(0), 1), None);
    assert_eq!(world.engine.release(trainer(0), MinibatchId(0), 1), None);
    assert_eq!(world.engine.statistics().minibatches_announced, 0);
    assert_eq!(world.engine.statistics().minibatches_foreseen, 4);
    assert_eq!(world.engine.view().cache.pinned_slots(TABLE), 0);
    // Announced, it is like any other, ready at once.
    world.announce(trainer(0), 0, tables(&[0, 40]));
    assert!(world.ready.contains_key(&(trainer(0), MinibatchId(0))));
    world.want(trainer(0), 0);
    world.release(trainer(0), 0);
    let statistics = world.engine.statistics();
    assert_eq!((statistics.foreseen_confirmed, statistics.rows_resident, statistics.rows_demand), (1, 2, 0));
}

#[test]
fn foreseen_minibatches_take_no_credit() {
    let mut world = World::new(book(64, 2, 1), 4096, PolicySpec::RUDDER, &[]);
    world.connect(trainer(0));
    for minibatch in 0..20 {
        let foreseen = world.engine.foresee(trainer(0), MinibatchId(minibatch), &tables(&[minibatch as u32]));
        world.carry_out(foreseen.unwrap());
    }
    for minibatch in 0..6 {
        world.announce(trainer(0), minibatch, tables(&[minibatch as u32]));
    }
    let seventh = world.engine.announce(trainer(0), MinibatchId(6), &tables(&[6]));
    assert_eq!(seventh, Err(AnnounceRefusal::NoCredit));
    // The refused one is foreseen still.
    assert_eq!(world.engine.view().window.foreseen(trainer(0)).count(), 14);
    world.disconnect(trainer(0));
    assert_eq!(world.engine.view().window.by_time_of_use(), []);
    assert!(world.engine.foresight.expected.is_empty() && world.engine.foresight.bytes.is_empty());
}

#[test]
fn a_difference_raises_an_alarm_and_ends_the_replay() {
    let wrong: [(u64, &[u32]); 4] = [(0, &[0, 41]), (0, &[40, 0]), (0, &[0]), (1, &[1, 41])];
    for (minibatch, rows) in wrong {
        let mut world = world();
        world.announce(trainer(0), minibatch, tables(rows));
        let alarms = world.engine.take_replay_alarms();
        let [alarm] = alarms.as_slice() else { panic!("{alarms:?}") };
        assert_eq!((alarm.trainer, alarm.minibatch), (trainer(0), MinibatchId(minibatch)));
        assert_eq!(alarm.expected, (digest(MinibatchId(0), &tables(&[0, 40])), MinibatchId(0)));
        assert_eq!(alarm.found, digest(MinibatchId(minibatch), &tables(rows)));
        assert_eq!(world.engine.take_replay_alarms(), []);
        assert_eq!(world.engine.statistics().replay_alarms, 1);
        // What was announced stands, what was foreseen does not.
        let view = world.engine.view();
        assert_eq!((view.window.queued(trainer(0)), view.window.foreseen(trainer(0)).count()), (1, 0));
        assert_eq!(view.window.by_time_of_use().len(), 1);
        let next = world.engine.foresee(trainer(0), MinibatchId(5), &tables(&[9]));
        assert_eq!(next, Err(ForeseeRefusal::Distrusted));
        // It is served as ever.
        world.want(trainer(0), minibatch);
        while !world.in_flight.is_empty() {
            world.arrive(0);
        }
        assert!(world.ready.contains_key(&(trainer(0), MinibatchId(minibatch))));
        world.release(trainer(0), minibatch);
        // Another connection is trusted anew.
        world.disconnect(trainer(0));
        world.connect(trainer(0));
        assert!(world.engine.foresee(trainer(0), MinibatchId(5), &tables(&[9])).is_ok());
    }
}

#[test]
fn what_cannot_be_foreseen_is_refused() {
    let mut world = world();
    let foresee = |world: &mut World, minibatch, rows: &[u32]| {
        world.engine.foresee(trainer(0), MinibatchId(minibatch), &tables(rows)).map(|_| ())
    };
    assert_eq!(foresee(&mut world, 3, &[1]), Err(ForeseeRefusal::Behind(MinibatchId(3))));
    let unknown = Err(ForeseeRefusal::Rows(AnnounceRefusal::UnknownRow(TABLE, 64)));
    assert_eq!(foresee(&mut world, 4, &[64]), unknown);
    let stranger = world.engine.foresee(trainer(7), MinibatchId(0), &tables(&[1]));
    assert_eq!(stranger, Err(ForeseeRefusal::UnknownTrainer));
    let next = crate::parameters::Parameters {
        version: 1,
        foreseen_bytes_max: 2 * entry_bytes(2) + entry_bytes(2) / 2,
        ..world.engine.parameters().clone()
    };
    world.engine.set_parameters(next).unwrap();
    assert_eq!(foresee(&mut world, 4, &[1]), Err(ForeseeRefusal::Full));
    // A replay that the trainer has overtaken goes on behind it.
    for minibatch in 0..4 {
        world.announce(
            trainer(0),
            minibatch,
            tables(&[[0, 40], [1, 41], [2, 42], [0, 43]][minibatch as usize]),
        );
    }
    world.announce(trainer(0), 4, tables(&[5]));
    assert_eq!(foresee(&mut world, 4, &[5]), Err(ForeseeRefusal::Behind(MinibatchId(4))));
    assert_eq!(foresee(&mut world, 5, &[6]), Ok(()));
    // One that is larger than all the room is taken where it is the only one.
    world.announce(trainer(0), 5, tables(&[6]));
    let all: Vec<u32> = (0..64).collect();
    assert_eq!(foresee(&mut world, 6, &all), Ok(()));
    let mut lru = World::new(book(64, 2, 1), 4096, PolicySpec::Lru, &[]);
    lru.connect(trainer(0));
    assert_eq!(foresee(&mut lru, 0, &[1]), Err(ForeseeRefusal::Unused));
}
