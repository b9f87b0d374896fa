//! Permits are never exceeded, and all return.
//!
//! Bytes under way towards the node, and on each link, stay within the limits; a transfer that is larger than its
//! limit goes alone.

use rudder_scenarios::fuzz::Judge;
use rudder_scenarios::fuzz::invariant::Sabotage;
use rudder_scenarios::fuzz::invariant::permits::Permits;
use rudder_tests::simulation::{holds, notices};

#[test]
fn permits_are_kept_and_return() {
    holds(0..300, Permits::default);
}

#[test]
fn bytes_beyond_a_permit_are_noticed() {
    notices(Judge::Invariant, Sabotage::PermitsIgnored, Permits::default);
}
