//! Delivered bytes are the right ones, for as long as a trainer may read them.

use rudder_scenarios::fuzz::Judge;
use rudder_scenarios::fuzz::invariant::Sabotage;
use rudder_scenarios::fuzz::invariant::bytes::RightBytes;
use rudder_tests::simulation::{holds, notices};

#[test]
fn delivered_bytes_are_the_right_ones() {
    holds(0..300, || RightBytes);
}

#[test]
fn rows_of_a_neighbour_are_noticed() {
    notices(Judge::Invariant, Sabotage::WrongRows, || RightBytes);
}
