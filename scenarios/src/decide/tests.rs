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
