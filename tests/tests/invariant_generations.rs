//! Nothing from an old generation is applied: what can be read came in an answer of the incarnation that was asked,
//! while its transfer was open, and nobody asks an incarnation that is gone.

use rudder_scenarios::fuzz::Judge;
use rudder_scenarios::fuzz::invariant::Sabotage;
use rudder_scenarios::fuzz::invariant::generations::Generations;
use rudder_tests::simulation::{holds, notices};

#[test]
fn nothing_of_an_old_generation_is_applied() {
    holds(0..300, Generations::default);
}

#[test]
fn an_old_answer_taken_for_a_new_one_is_noticed() {
    notices(Judge::Invariant, Sabotage::OldAnswersApplied, Generations::default);
}
