//! How actors are named and found. Registered names are unique over the cluster, since they carry the node's name:
//! a leaving peer must not unregister ours. Other nodes are reached through process groups only.

use rudder_topology::{DatasetName, NodeName};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What an actor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// Root of a node's tree.
    Node,
    /// Supervises the fast loop of one dataset.
    Loop,
    Gateway,
    Predictor,
    Planner,
    Validator,
    Mover,
    /// Supervises the storage side.
    Storage,
    Acceptor,
    Observer,
    Responder,
    Collector,
    Advisor,
    Director,
}

impl ActorKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ActorKind::Node => "node",
            ActorKind::Loop => "loop",
            ActorKind::Gateway => "gateway",
            ActorKind::Predictor => "predictor",
            ActorKind::Planner => "planner",
            ActorKind::Validator => "validator",
            ActorKind::Mover => "mover",
            ActorKind::Storage => "storage",
            ActorKind::Acceptor => "acceptor",
            ActorKind::Observer => "observer",
            ActorKind::Responder => "responder",
            ActorKind::Collector => "collector",
            ActorKind::Advisor => "advisor",
            ActorKind::Director => "director",
        }
    }
}

impl fmt::Display for ActorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The registered name of an actor: `rudder/<node>/<kind>` or `rudder/<node>/<dataset>/<kind>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorName {
    pub node: NodeName,
    pub dataset: Option<DatasetName>,
    pub kind: ActorKind,
}

impl ActorName {
    #[must_use]
    pub fn of_node(node: &NodeName, kind: ActorKind) -> Self {
        ActorName { node: node.clone(), dataset: None, kind }
    }

    #[must_use]
    pub fn of_dataset(node: &NodeName, dataset: &DatasetName, kind: ActorKind) -> Self {
        ActorName { node: node.clone(), dataset: Some(dataset.clone()), kind }
    }
}

impl fmt::Display for ActorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dataset {
            None => write!(f, "rudder/{}/{}", self.node, self.kind),
            Some(dataset) => write!(f, "rudder/{}/{dataset}/{}", self.node, self.kind),
        }
    }
}

/// The process group that holds a node's responder, and nothing else.
#[must_use]
pub fn responder_group(node: &NodeName) -> String {
    format!("rudder/{node}/responder")
}

/// The process group that holds the directors (on compute nodes).
#[must_use]
pub fn director_group() -> String {
    "rudder/director".to_owned()
}

/// The process group that holds the collectors of state reports (on scheduler nodes).
#[must_use]
pub fn collector_group() -> String {
    "rudder/collector".to_owned()
}
