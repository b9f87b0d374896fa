//! Only accepted steps move: every row under way was named by a step that the validator accepted, for that node and
//! that incarnation, and once.

use rudder_scenarios::fuzz::Judge;
use rudder_scenarios::fuzz::invariant::Sabotage;
use rudder_scenarios::fuzz::invariant::accepted::Accepted;
use rudder_tests::simulation::{holds, notices};

#[test]
fn only_accepted_steps_move() {
    holds(0..300, Accepted::default);
}

#[test]
fn rows_that_nobody_asked_for_are_noticed() {
    notices(Judge::Invariant, Sabotage::UnaskedRows, Accepted::default);
}
