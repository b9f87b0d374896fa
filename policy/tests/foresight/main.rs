//! What looking further ahead is worth, on graphs that ship.

mod harness;

use harness::{Graph, Setup, blocks, run};
use rudder_graph::trace::TraceSpec;
use rudder_policy::oracle;
use rudder_policy::parameters::Parameters;
use rudder_topology::{PolicySpec, TrainerRank};

fn setup(policy: PolicySpec, slots: u64) -> Setup {
    Setup {
        policy,
        slots,
        window: 0,
        replay: false,
        minibatches: 605,
        spec: TraceSpec { seed: 1, rank: TrainerRank(0), world: 2, seeds: 32, fanout: vec![10, 5] },
        bandwidth: 2_500_000,
        compute_ns: 20_000_000,
        parameters: Parameters::default(),
        prior: None,
    }
}

/// Rows that have to move at least, with a cache of so many slots.
fn least(graph: &Graph, setup: &Setup) -> u64 {
    let trace = blocks(graph, &setup.spec, setup.minibatches);
    oracle::belady(&trace, setup.slots as usize).iter().flatten().map(|rows| u64::from(rows.rows())).sum()
}

/// One graph, a whole epoch of one of two trainers.
#[test]
fn a_replay_of_an_epoch_moves_little_more_than_perfect_knowledge() {
    let graph = Graph::shipped("debian");
    for share in [20, 4] {
        let demand = setup(PolicySpec::RUDDER, graph.csc().vertices() / share);
        let least = least(&graph, &demand);
        let replay = Setup { replay: true, ..demand.clone() };
        let (replayed, demanded) = (run(&graph, &replay), run(&graph, &demand));
        let moved = replayed.rows_moved();
        assert!(moved >= least, "nothing moves less than the bound: {moved} {least}");
        assert!(moved as f64 <= 1.05 * least as f64, "1/{share}: {moved} rows moved, {least} are the least");
        assert!(moved < demanded.rows_moved(), "foreseeing moves less than not to: {moved}");
        let wait = (replayed.wait_ns, demanded.wait_ns);
        assert!(wait.0 * 10 < wait.1, "links that could keep up do: {wait:?}");
        let statistics = replayed.statistics;
        assert_eq!(statistics.foreseen_confirmed, replay.minibatches);
        assert_eq!(statistics.replay_alarms, 0);
        assert!(statistics.rows_demand * 100 <= moved, "{} rows were waited for", statistics.rows_demand);
        assert_eq!(run(&graph, &replay).statistics, statistics, "the same run twice");
    }
}

#[test]
fn a_little_memory_for_what_is_foreseen_is_better_than_none() {
    let graph = Graph::shipped("debian");
    let demand = setup(PolicySpec::RUDDER, graph.csc().vertices() / 10);
    let parameters = Parameters { foreseen_bytes_max: 200_000, ..Parameters::default() };
    let some = Setup { replay: true, parameters, ..demand.clone() };
    let (some, none) = (run(&graph, &some), run(&graph, &demand));
    assert!(some.wait_ns < none.wait_ns);
    assert!(some.rows_moved() <= none.rows_moved() * 101 / 100, "{some:?} {none:?}");
}

#[test]
fn arms_that_make_no_use_of_it_are_not_given_a_replay() {
    let graph = Graph::shipped("cora");
    let lru = setup(PolicySpec::Lru, 500);
    let lru = Setup { minibatches: 30, ..lru };
    let replayed = run(&graph, &Setup { replay: true, ..lru.clone() });
    assert_eq!(replayed.statistics, run(&graph, &lru).statistics);
    assert_eq!(replayed.statistics.minibatches_foreseen, 0);
}

/// The cache and links of the scenario `bound_links`, every minibatch a surprise: what is fetched between minibatches
/// is guessed from graph and training set.
#[test]
fn guesses_are_right_as_often_as_is_asked_and_save_waiting() {
    let graph = Graph::shipped("debian");
    let base = setup(PolicySpec::RUDDER, graph.csc().vertices() / 20);
    let base = Setup { minibatches: 70, ..base };
    let guessing = run(&graph, &Setup { prior: Some(graph.vip(&base.spec)), ..base.clone() });
    let known = guessing.statistics.rows_prefetched - guessing.rows_guessed;
    let used = guessing.statistics.prefetched_used - known;
    let accuracy = used as f64 / guessing.rows_guessed as f64;
    assert!(guessing.rows_guessed > 500, "{guessing:?}");
    assert!(accuracy >= 0.76, "{accuracy} of {} guessed rows were used", guessing.rows_guessed);
    for policy in [PolicySpec::Lru, PolicySpec::Sieve, PolicySpec::S3Fifo, PolicySpec::LruPrefetch] {
        let other = run(&graph, &Setup { policy, ..base.clone() });
        assert!(other.wait_ns as f64 >= 1.1 * guessing.wait_ns as f64, "{policy}: {}", other.wait_ns);
    }
    // Without a prior there is no guess; who asks for more certainty gets fewer.
    assert_eq!(run(&graph, &base).rows_guessed, 0);
    let certain = Parameters { likely_accuracy_min: 0.999, ..Parameters::default() };
    let fewer = Setup { prior: Some(graph.vip(&base.spec)), parameters: certain, ..base };
    assert!(run(&graph, &fewer).rows_guessed < guessing.rows_guessed / 2);
}
