//! The planner's mailbox.

use rudder_policy::step::Event;

/// What the planner is told.
#[derive(Clone, Debug, PartialEq)]
pub enum PlannerMessage {
    /// Something happened.
    Events(Vec<Event>),
    /// The validator has judged the proposal that was out.
    Judged {
        accepted: usize,
        /// What was refused and why.
        events: Vec<Event>,
    },
    /// Facts outlived an actor that failed, orders did not: make them anew.
    Recover,
    /// With test faults enabled: panic.
    Fault,
}
