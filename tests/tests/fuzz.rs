//! Many seeds under every invariant at once, as `rudder scenario fuzz` plays them.

use rudder_scenarios::fuzz::invariant::{All, Sabotage};
use rudder_scenarios::fuzz::{campaign, draw, run};
use rudder_scenarios::stop::Stop;

const SEEDS: u64 = 1000;

#[test]
fn a_thousand_seeds_break_no_invariant() {
    let found = campaign(0..SEEDS, &Stop::default(), &|| {});
    assert!(found.violations.is_empty(), "{found}");
    assert_eq!(found.seeds, SEEDS);
}

/// All of them together notice what each of them notices alone.
#[test]
fn every_defect_is_noticed() {
    for sabotage in [
        Sabotage::CacheTwiceAsLarge,
        Sabotage::PinnedSlotReused,
        Sabotage::UnaskedRows,
        Sabotage::WrongRows,
        Sabotage::OldAnswersApplied,
        Sabotage::PermitsIgnored,
        Sabotage::MinibatchForgotten,
    ] {
        let noticed = (0..200).any(|seed| {
            let (mut options, dataset) = draw(seed);
            options.sabotage = sabotage;
            run(options, dataset, &mut All::default()).is_err()
        });
        assert!(noticed, "{sabotage:?} went unnoticed");
    }
}
