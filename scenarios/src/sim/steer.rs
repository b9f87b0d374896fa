//! Who looks at a running cluster every few seconds and changes parameters: the slow loop, or a directive that is given
//! at a time.

use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::sample::ComputeSample;
use rudder_topology::NodeId;

/// What is to be done with the engines of all compute nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Steering {
    Enact(Directive),
    /// The former parameters come back.
    Revert,
    /// [`Steer::answer`] is to be called after so many nanoseconds.
    AnswerAfter(u64),
}

/// See the module.
pub trait Steer {
    /// Time between two looks, in nanoseconds.
    fn period_ns(&self) -> u64;

    /// What observers measured: a sample of each compute node.
    fn observe(&mut self, now_ns: u64, samples: Vec<(NodeId, ComputeSample)>) -> Vec<Steering>;

    /// The time that was asked for has passed.
    fn answer(&mut self, now_ns: u64) -> Vec<Steering>;
}
