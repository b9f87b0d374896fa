//! Trainers that wait for each other never wait for ever, however small the cache.

use rudder_scenarios::fuzz::dataset::Dataset;
use rudder_scenarios::fuzz::invariant::{Invariant, Note, Sabotage};
use rudder_scenarios::fuzz::world::World;
use rudder_scenarios::fuzz::{MinibatchRows, Options, run};
use rudder_topology::{Limits, PolicySpec};

const TRAINERS: u32 = 8;
const WINDOW: usize = 4;
const ROWS: usize = 20;
const MINIBATCHES: usize = 12;

/// Counts steps; the run itself fails if it stands still.
#[derive(Default)]
struct Steps;

impl Invariant for Steps {
    fn after(&mut self, _world: &World, _notes: &[Note]) -> Result<(), String> {
        Ok(())
    }

    fn at_end(&mut self, world: &World) -> Result<(), String> {
        let released: usize = world.trainers.iter().map(|trainer| trainer.released).sum();
        if released == TRAINERS as usize * MINIBATCHES {
            Ok(())
        } else {
            Err(format!("{released} were released"))
        }
    }
}

fn options(policy: PolicySpec, cache_rows: u64, seed: u64) -> Options {
    let limits = Limits::default();
    Options {
        seed,
        policy,
        trainers: TRAINERS,
        minibatches: MINIBATCHES,
        minibatch_rows: MinibatchRows::Exactly(ROWS),
        window: WINDOW,
        ready_ahead: 1,
        nodes: 2,
        cache_bytes: cache_rows * 8,
        limits,
        transfer_timeout_ns: limits.transfer_timeout.0,
        barrier: true,
        faults: false,
        sabotage: Sabotage::Nothing,
    }
}

fn goes_through(cache_rows: u64) {
    for policy in PolicySpec::ALL {
        for seed in 0..6 {
            let dataset = Dataset::plain(4_000);
            if let Err(violation) = run(options(policy, cache_rows, seed), dataset, &mut Steps) {
                panic!("{policy:?} with a cache of {cache_rows} rows: {violation}");
            }
        }
    }
}

/// Half of what the windows of all trainers hold together.
#[test]
fn eight_trainers_behind_a_barrier_with_half_their_windows() {
    goes_through((TRAINERS as usize * WINDOW * ROWS) as u64 / 2);
}

/// The pinned minibatches alone do not fit: some pass by the cache.
#[test]
fn eight_trainers_behind_a_barrier_with_two_minibatches() {
    goes_through(2 * ROWS as u64);
}

/// No minibatch fits at all: every one passes by the cache.
#[test]
fn eight_trainers_behind_a_barrier_with_half_a_minibatch() {
    goes_through(ROWS as u64 / 2);
}
