//! The validator's mailbox.

use rudder_policy::step::Proposal;

/// What the validator is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum ValidatorMessage {
    /// Judge, apply what is accepted, hand out the commands. Answered by `PlannerMessage::Judged`.
    Judge(Proposal),
    /// With test faults enabled: panic.
    Fault,
}
