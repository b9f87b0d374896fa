//! No pinned block is evicted: from ready to release, every row of a minibatch stays where the trainer was told, and
//! its bytes stay the same.

use rudder_scenarios::fuzz::Judge;
use rudder_scenarios::fuzz::invariant::Sabotage;
use rudder_scenarios::fuzz::invariant::pins::Pins;
use rudder_tests::simulation::{holds, notices};

#[test]
fn no_pinned_block_is_evicted() {
    holds(0..300, Pins::default);
}

#[test]
fn a_pinned_slot_that_is_used_again_is_noticed() {
    notices(Judge::Invariant, Sabotage::PinnedSlotReused, Pins::default);
}
