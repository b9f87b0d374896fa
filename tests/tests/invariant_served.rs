//! After the faults end, every minibatch is served and all queues drain. A minibatch fails only where a storage node
//! said that it has no sound copy of one of its blocks.

use rudder_scenarios::fuzz::Judge;
use rudder_scenarios::fuzz::invariant::Sabotage;
use rudder_scenarios::fuzz::invariant::served::EveryMinibatchServed;
use rudder_tests::simulation::{holds, notices};

#[test]
fn every_minibatch_is_served_and_queues_drain() {
    holds(0..600, EveryMinibatchServed::default);
}

#[test]
fn a_forgotten_minibatch_is_noticed() {
    notices(Judge::Schedule, Sabotage::MinibatchForgotten, EveryMinibatchServed::default);
}
