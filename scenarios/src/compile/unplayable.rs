//! What real processes cannot play of a scenario, and why.

use crate::sim::Change;
use crate::spec::At;
use rudder_topology::{Advisor, AdvisorBackend};

/// An event or an advisor that needs a simulation, or links that can be shaped while processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplayable {
    #[error(
        "the rate of a node's interface changes only where namespaces shape it: give --mode netns or sim"
    )]
    Interface,
    #[error(
        "tbf shapes a node's interface, not what passes between two nodes: write node = \"...\", or give --mode sim"
    )]
    Link,
    #[error("a running node's cache keeps its size: give --mode sim")]
    Cache,
    #[error("nodes go and come back in simulations only: give --mode sim")]
    Down,
    #[error("a running trainer's sampler keeps its fanout: give --mode sim")]
    Fanout,
    #[error("jobs join in simulations only: give --mode sim")]
    Join,
    #[error("what advice is worth is measured where namespaces shape the links: give --mode netns or sim")]
    Advised,
    #[error(
        "`{0}` needs what no process in a namespace reaches, or a file that a scenario does not name; with --mode netns the back ends are never, always, random, first, rules, distilled"
    )]
    Served(&'static str),
}

impl Unplayable {
    pub(super) fn of(change: &Change) -> Unplayable {
        match change {
            Change::Interface { .. } => Unplayable::Interface,
            Change::Link { .. } => Unplayable::Link,
            Change::Cache { .. } => Unplayable::Cache,
            Change::Down { .. } | Change::Up { .. } => Unplayable::Down,
        }
    }

    /// Whether namespaces are all that it needs.
    pub(super) fn namespaces_can(self) -> bool {
        matches!(self, Unplayable::Interface | Unplayable::Advised)
    }
}

/// Of the advisors of a section that begins on this line.
pub(super) fn advisors(line: usize, advisors: &[Advisor]) -> Vec<At<Unplayable>> {
    let of = |advisor: &Advisor| match advisor.backend {
        AdvisorBackend::Auto | AdvisorBackend::Ollama | AdvisorBackend::OpenAi | AdvisorBackend::Replay => {
            Unplayable::Served(advisor.backend.name())
        }
        AdvisorBackend::Rules
        | AdvisorBackend::Never
        | AdvisorBackend::Always
        | AdvisorBackend::Random
        | AdvisorBackend::First
        | AdvisorBackend::Distilled => Unplayable::Advised,
    };
    advisors.iter().map(|advisor| At { line, value: of(advisor) }).collect()
}
