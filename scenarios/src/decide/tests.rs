use super::*;
use crate::arm::Arm;
use crate::sim::{run, run_steered};
use crate::stop::Stop;
use rudder_policy::advice::slow_loop::SlowConfig;
use rudder_topology::{Advisor, AdvisorBackend};

fn advisor(backend: AdvisorBackend) -> Advisor {
    Advisor { backend, ..Advisor::default() }
}

#[test]
fn a_seed_is_one_scenario() {
    for seed in 0..3 {
        let (once, again) = (draw(seed), draw(seed));
        assert_eq!(format!("{:?}", once.spec), format!("{:?}", again.spec));
        assert_eq!(once.rows, again.rows);
    }
    let kinds: std::collections::BTreeSet<Kind> = (0..40).map(|seed| draw(seed).kind).collect();
    assert_eq!(kinds.len(), Kind::ALL.len());
}

/// Looking at a cluster changes nothing, and neither does an advisor that says nothing.
#[test]
fn without_directives_the_run_is_what_it_was() {
    let drawn = draw::draw_kind(3, Kind::JobWithoutLookAhead);
    let plain = run(&drawn.spec, Some(Arm::Rudder), &drawn.rows).unwrap();
    let mut slow =
        slow::Slow::new(&drawn.spec, &advisor(AdvisorBackend::Never), SlowConfig::default()).unwrap();
    let watched = run_steered(&drawn.spec, Arm::Rudder, &drawn.rows, &mut |_| {}, &mut slow).unwrap();
    assert_eq!(format!("{plain:?}"), format!("{watched:?}"));
    assert!(slow.counts().states > 20, "{:?}", slow.counts());
}

#[test]
fn the_same_seeds_give_the_same_decisions() {
    let options = DecideOptions {
        seeds: 0..1,
        kind: Some(Kind::StorageSlows),
        advisors: vec![advisor(AdvisorBackend::Random)],
        is_exhaustive: false,
    };
    let decided = || decide(&options, &Stop::default(), &|| {}).unwrap().scenarios;
    assert_eq!(decided(), decided());
}

/// What is in no hurry comes while trainers compute, not while they exchange gradients over the same links.
#[test]
fn fetches_leave_links_free_for_gradients() {
    let options =
        DecideOptions { seeds: 1_000_068..1_000_069, kind: None, advisors: vec![], is_exhaustive: false };
    let decided = decide(&options, &Stop::default(), &|| {}).unwrap().scenarios;
    let stall_share = decided[0].never_s / decided[0].bound_s;
    // 0.044 where the same bytes come at any time of a step.
    assert!(stall_share < 0.01, "{stall_share}");
}

/// A consult is about edges, each of them once; and the loop misses nothing.
#[test]
fn node_groups_are_asked_about_at_most_once_an_edge() {
    let mut consults = 0;
    for (seed, kind) in [(1_000_401, Kind::StorageSlows), (4, Kind::CacheShrinks)] {
        let drawn = draw::draw_kind(seed, kind);
        let rules = advisor(AdvisorBackend::Rules);
        let mut slow = slow::Slow::new(&drawn.spec, &rules, SlowConfig::default()).unwrap();
        run_steered(&drawn.spec, Arm::Rudder, &drawn.rows, &mut |_| {}, &mut slow).unwrap();
        assert!(slow.groups.values().all(|group| group.consults <= group.edges), "{:?}", slow.groups);
        assert!(slow.groups.values().map(|group| group.edges).sum::<u64>() <= slow.counts().edges);
        consults += slow.counts().consults;
        let coverage = slow.coverage();
        assert_eq!((coverage.missed, coverage.due), (0, slow.counts().states));
        assert!(coverage.minibatches > 100 && coverage.minibatches == coverage.minibatches_covered);
    }
    assert!(consults > 0, "some of these are edges");
}

#[test]
fn what_was_tried_is_experience() {
    use rudder_policy::advice::directive::Directive;
    let drawn = draw::draw_kind(3, Kind::JobWithoutLookAhead);
    let (kind, change) = (Some(drawn.kind), drawn.change);
    let played = Played { seed: 3, kind, change, spec: &drawn.spec, rows: &drawn.rows };
    let state = exhaustive::state_at(&played, change.0 + 4_000_000_000).unwrap().unwrap();
    let grid = exhaustive::grid(&drawn.spec, &state);
    let tried = |(at, directive): (usize, Directive)| exhaustive::Tried {
        directive,
        changes: at > 0,
        predicted: -0.1,
        measured: -0.5,
    };
    let all: Vec<_> = grid.into_iter().enumerate().map(tried).collect();
    let single = all.iter().filter(|tried| tried.changes && tried.directive.actions.len() == 1).count();
    // Half of the stall of 10 s beside 10 s of steps is gone.
    let learned = experience::of(&state, &all, (10.0, 10.0, 10.0), 3);
    assert_eq!(learned.len(), all.len() - 1);
    for entry in &learned {
        let change = entry.outcome.measured.unwrap();
        assert!((change - (1.0 / 3.0 - 0.5)).abs() < 1e-6, "{change}");
        assert_eq!(entry.options.shown.len(), single);
    }
}

/// Minibatches that are a large part of the cache, known far ahead, do not push out of it what is used most: more
/// knowledge moves fewer bytes.
#[test]
fn looking_further_ahead_moves_fewer_bytes() {
    let drawn = draw::draw_kind(99, Kind::FanoutChanges);
    let bytes = |window| {
        let mut spec = drawn.spec.clone();
        spec.load.window = window;
        let run = run(&spec, Some(Arm::Rudder), &drawn.rows).unwrap();
        (run.counters.bytes_demand + run.counters.bytes_prefetch) as f64
    };
    let (near, far) = (bytes(1), bytes(16));
    // 0.78; 0.86 where the minibatch after the next one holds slots as well.
    assert!(far <= 0.81 * near, "{far} bytes with a window of 16, {near} with one of 1");
}
