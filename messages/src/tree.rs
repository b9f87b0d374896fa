//! A node's supervision tree as others see it, and how it is printed.

use crate::decisions::Decisions;
use crate::names::ActorKind;
use rudder_topology::{DatasetName, Generation, Nanos, NodeName};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Causes kept per actor, newest last.
pub const CAUSES_MAX: usize = 8;
/// Actors that an answer may list.
pub const ACTORS_MAX: usize = 4096;
/// Depth of an actor in an answer at most.
pub const DEPTH_MAX: u8 = 16;
/// Characters kept of a cause.
pub const CAUSE_CHARS_MAX: usize = 200;

/// Whether an actor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorState {
    Running,
    Restarting,
    Stopped,
}

/// One restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartCause {
    /// Since the node started.
    pub at: Nanos,
    /// What the failed actor said, or which actor pulled it along.
    pub cause: String,
}

impl RestartCause {
    /// Keeps the head of a long cause, on one line.
    #[must_use]
    pub fn new(at: Nanos, cause: &str) -> Self {
        let one_line = cause.chars().map(|c| if c.is_control() { ' ' } else { c });
        RestartCause { at, cause: one_line.take(CAUSE_CHARS_MAX).collect() }
    }
}

/// One actor and its supervisor's memory of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorEntry {
    /// Supervisors above it; lists are in preorder, so that this gives the tree (and no message can nest deeply).
    pub depth: u8,
    pub actor: ActorKind,
    pub dataset: Option<DatasetName>,
    pub state: ActorState,
    /// Since it was last started.
    pub uptime: Nanos,
    pub restarts: u32,
    /// The last restarts, at most [`CAUSES_MAX`].
    pub causes: Vec<RestartCause>,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub generation: Generation,
    pub uptime: Nanos,
    /// The supervision tree in preorder.
    pub actors: Vec<ActorEntry>,
    /// Its slow loops.
    pub decisions: Vec<Decisions>,
}

/// A node's answer, or that there was none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Answer {
    Up(NodeStatus),
    Unreachable { reason: String },
}

/// One node in `rudder tree`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeTree {
    pub node: NodeName,
    #[serde(flatten)]
    pub answer: Answer,
}

impl ActorEntry {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.actor)?;
        if let Some(dataset) = &self.dataset {
            write!(f, " [{dataset}]")?;
        }
        match self.state {
            ActorState::Running => write!(f, "  up {}", Age(self.uptime))?,
            ActorState::Restarting => write!(f, "  restarting")?,
            ActorState::Stopped => write!(f, "  stopped")?,
        }
        if self.restarts > 0 {
            write!(f, "  {} restart{}", self.restarts, if self.restarts == 1 { "" } else { "s" })?;
        }
        if let Some(last) = self.causes.last() {
            write!(f, ", last after {}: {}", Age(last.at), last.cause)?;
        }
        writeln!(f)
    }
}

/// Whether another child of the same supervisor follows at this depth.
fn continues(rest: &[ActorEntry], depth: u8) -> bool {
    rest.iter().find(|entry| entry.depth <= depth).is_some_and(|entry| entry.depth == depth)
}

impl fmt::Display for NodeTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.answer {
            Answer::Unreachable { reason } => writeln!(f, "{}  unreachable: {reason}", self.node),
            Answer::Up(status) => {
                writeln!(f, "{}  generation {}  up {}", self.node, status.generation.0, Age(status.uptime))?;
                for (index, entry) in status.actors.iter().enumerate() {
                    let rest = &status.actors[index + 1..];
                    for depth in 1..entry.depth {
                        f.write_str(if continues(rest, depth) { "│  " } else { "   " })?;
                    }
                    if entry.depth > 0 {
                        f.write_str(if continues(rest, entry.depth) { "├─ " } else { "└─ " })?;
                    }
                    entry.print(f)?;
                }
                status.decisions.iter().try_for_each(|decisions| writeln!(f, "   {decisions}"))
            }
        }
    }
}

/// A duration as a person reads it.
struct Age(Nanos);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.0 / 1_000_000_000;
        match seconds {
            0..60 => write!(f, "{:.1} s", self.0.as_secs_f64()),
            60..3600 => write!(f, "{} min {:02} s", seconds / 60, seconds % 60),
            _ => write!(f, "{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::LoopKind;

    fn entry(depth: u8, actor: ActorKind) -> ActorEntry {
        let uptime = Nanos::from_millis(1500);
        let state = ActorState::Running;
        ActorEntry { depth, actor, dataset: None, state, uptime, restarts: 0, causes: vec![] }
    }

    #[test]
    fn a_tree_prints_as_a_tree() {
        let mut inner = entry(1, ActorKind::Loop);
        inner.dataset = Some(DatasetName::new("cora").unwrap());
        let mut planner = entry(2, ActorKind::Planner);
        planner.restarts = 1;
        planner.causes = vec![RestartCause::new(Nanos::from_secs(75), "asked\nto panic")];
        let actors = vec![entry(0, ActorKind::Node), inner, planner, entry(1, ActorKind::Observer)];
        let status = NodeStatus {
            generation: Generation(7),
            uptime: Nanos::from_secs(7260),
            actors,
            decisions: vec![Decisions::new(LoopKind::Director, "its own rules", None)],
        };
        let tree = NodeTree { node: NodeName::new("c0").unwrap(), answer: Answer::Up(status) };
        let expected = "c0  generation 7  up 2 h 01 min\n\
                        node  up 1.5 s\n\
                        ├─ loop [cora]  up 1.5 s\n\
                        │  └─ planner  up 1.5 s  1 restart, last after 1 min 15 s: asked to panic\n\
                        └─ observer  up 1.5 s\n\
                        \u{20}  director decisions: by its own rules; 0 of 0 due made (100.0 %)\n";
        assert_eq!(tree.to_string(), expected);
    }

    #[test]
    fn causes_are_bounded() {
        assert_eq!(RestartCause::new(Nanos(0), &"x".repeat(5000)).cause.len(), CAUSE_CHARS_MAX);
    }
}
