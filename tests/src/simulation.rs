//! The product's fuzzing under one invariant at a time.

use rudder_scenarios::fuzz::invariant::{Invariant, Sabotage};
use rudder_scenarios::fuzz::{Judge, draw, run};

/// Runs many seeds under a fresh invariant each: `RUDDER_SEEDS` of them where that is set, or only `RUDDER_SEED`.
///
/// # Panics
/// If one is broken.
pub fn holds<I: Invariant>(seeds: std::ops::Range<u64>, new: impl Fn() -> I) {
    let number = |variable| std::env::var(variable).ok().and_then(|number| number.parse().ok());
    let many = number("RUDDER_SEEDS").map_or(seeds, |end| 0..end);
    let seeds = number("RUDDER_SEED").map_or(many, |seed| seed..seed + 1);
    for seed in seeds {
        let (options, dataset) = draw(seed);
        if let Err(violation) = run(options, dataset, &mut new()) {
            panic!("{violation}");
        }
    }
}

/// Runs seeds with a deliberate defect until the judge notices it.
///
/// # Panics
/// If it never does.
pub fn notices<I: Invariant>(judge: Judge, sabotage: Sabotage, new: impl Fn() -> I) {
    let noticed = (0..200).any(|seed| {
        let (mut options, dataset) = draw(seed);
        options.sabotage = sabotage;
        run(options, dataset, &mut new()).is_err_and(|violation| violation.judge == judge)
    });
    assert!(noticed, "{sabotage:?} went unnoticed");
}
