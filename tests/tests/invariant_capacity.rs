//! Resident bytes stay within capacity, and no two blocks share a byte of it.

use rudder_scenarios::fuzz::Judge;
use rudder_scenarios::fuzz::invariant::Sabotage;
use rudder_scenarios::fuzz::invariant::capacity::Capacity;
use rudder_tests::simulation::{holds, notices};

#[test]
fn resident_bytes_stay_within_capacity() {
    holds(0..300, || Capacity);
}

#[test]
fn a_cache_larger_than_the_budget_is_noticed() {
    notices(Judge::Invariant, Sabotage::CacheTwiceAsLarge, || Capacity);
}
