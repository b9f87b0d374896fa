//! The advisor's mailbox. From this process only; it outlives the actor.

use rudder_policy::advice::directive::Directive;

/// What the advisor is told.
#[derive(Clone, Debug, PartialEq)]
pub enum AdvisorMessage {
    /// Time passed: look at the reports.
    Tick,
    /// A consult ended.
    Answered {
        directive: Box<Directive>,
        /// The change of the wait share that is expected of it.
        predicted: f32,
    },
    /// With test faults enabled only: panic.
    Fault,
}
