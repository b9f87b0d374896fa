//! The topology files of a run. Each node has its own: the same cluster, with the addresses by which that node
//! reaches the others.

use crate::arm::Arm;
use crate::compile::Scenario;
use rudder_topology::spec::{AdvisorSpec, ClusterSpec, DatasetSpec, LimitsSpec, LinkSpec, NodeSpec};
use rudder_topology::{Advisor, Bytes, Nanos, NodeName};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What is known of every node: storage nodes first, then compute nodes. The first storage node is the scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub nodes: Vec<Place>,
    pub folder: PathBuf,
    pub keys: Option<PathBuf>,
    pub dataset_name: String,
    pub dataset: PathBuf,
    pub parts: u32,
    pub cache: Bytes,
}

#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub name: NodeName,
    pub role: Role,
    /// As this run's files say it: what to bind before the node is up, what to dial after.
    pub control: SocketAddr,
    pub data: SocketAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Storage,
    Compute,
}

impl Places {
    pub(super) fn socket(&self, node: usize) -> PathBuf {
        self.folder.join(format!("{}.sock", self.nodes[node].name))
    }

    /// Folder with the datasets of a storage node.
    pub(super) fn storage_directory(&self, node: usize) -> PathBuf {
        self.folder.join(self.nodes[node].name.as_str())
    }

    /// The cluster as `reach` says that nodes are reached. Without an advisor the file names none.
    pub(crate) fn spec(
        &self,
        scenario: &Scenario,
        arm: Arm,
        advisor: Option<&Advisor>,
        reach: &[Place],
    ) -> ClusterSpec {
        let nodes = reach.iter().enumerate().map(|(at, place)| self.node(scenario, arm, at, place)).collect();
        let link = LinkSpec {
            bandwidth: Some(scenario.cluster.bandwidth.spec_text()),
            latency: Some(scenario.cluster.latency.max(Nanos(100_000)).spec_text()),
            ..LinkSpec::default()
        };
        ClusterSpec {
            keys: self.keys.as_deref().map(text),
            nodes,
            datasets: vec![DatasetSpec {
                name: Some(self.dataset_name.clone()),
                directory: Some(text(&self.dataset)),
                parts: Some(self.parts),
                placement: Some("round_robin".to_owned()),
                ..DatasetSpec::default()
            }],
            default_link: Some(link),
            advisor: advisor.map(advised),
            limits: LimitsSpec {
                heartbeat_timeout: scenario.cluster.heartbeat_timeout.map(Nanos::spec_text),
                ..LimitsSpec::default()
            },
            ..ClusterSpec::default()
        }
    }

    fn node(&self, scenario: &Scenario, arm: Arm, at: usize, place: &Place) -> NodeSpec {
        let common = NodeSpec {
            name: Some(place.name.to_string()),
            machine: Some(place.name.to_string()),
            control: Some(place.control.to_string()),
            cores: Some("shared".to_owned()),
            ..NodeSpec::default()
        };
        match place.role {
            Role::Storage => {
                let roles = if at == 0 { vec!["storage", "scheduler"] } else { vec!["storage"] };
                NodeSpec {
                    roles: Some(roles.into_iter().map(str::to_owned).collect()),
                    data: Some(place.data.to_string()),
                    storage_directory: Some(text(&self.storage_directory(at))),
                    storage_mode: Some(scenario.cluster.storage_mode.clone()),
                    ..common
                }
            }
            Role::Compute => NodeSpec {
                roles: Some(vec!["compute".to_owned()]),
                trainer_socket: Some(text(&self.socket(at))),
                cache: Some(self.cache.spec_text()),
                policy: Some(arm.policy(&scenario.trainer)),
                ready_ahead: Some(1),
                // The window, the minibatch in use, and the one that may be ready beside it.
                credits: Some(scenario.trainer.window.max(2) + 2),
                ..common
            },
        }
    }
}

fn advised(advisor: &Advisor) -> AdvisorSpec {
    AdvisorSpec {
        backend: Some(advisor.backend.name().to_owned()),
        // The topology file lies elsewhere than the scenario's, to whose folder the path was relative.
        distilled: advisor
            .distilled
            .as_deref()
            .map(|path| text(&std::path::absolute(path).unwrap_or_default())),
        ..AdvisorSpec::default()
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use rudder_topology::AdvisorBackend;

    #[test]
    fn every_arms_file_compiles_as_a_cluster() {
        let text = "[dataset]\nimport = \"x\"\n[cluster]\ncompute_nodes = 2\nstorage_nodes = 2\nbandwidth = \"50Mbit/s\"\n[trainer]\ncompute = \"1ms\"\nminibatches = 2\n";
        let scenario = compile(text, Path::new("x.toml")).unwrap();
        let place = |name: &str, role, port: u16| Place {
            name: NodeName::new(name).unwrap(),
            role,
            control: SocketAddr::from(([127, 0, 0, 1], port)),
            data: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        let nodes = vec![
            place("s0", Role::Storage, 4000),
            place("s1", Role::Storage, 0),
            place("c0", Role::Compute, 0),
            place("c1", Role::Compute, 0),
        ];
        let places = Places {
            nodes: nodes.clone(),
            folder: "folder".into(),
            keys: None,
            dataset_name: "tiny".into(),
            dataset: "data".into(),
            parts: 3,
            cache: Bytes(4096),
        };
        let distilled = Some("d.json".into());
        let advisor = Advisor { backend: AdvisorBackend::Distilled, distilled, ..Advisor::default() };
        for (arm, advisor) in Arm::ALL.into_iter().flat_map(|arm| [(arm, None), (arm, Some(&advisor))]) {
            let text = places.spec(&scenario, arm, advisor, &nodes).to_toml().unwrap();
            let cluster = rudder_topology::compile(&text, Path::new("c.toml"));
            let cluster = cluster.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
            assert_eq!(cluster.nodes.len(), 4);
            assert!(cluster.scheduler().is_some());
            let backend = advisor.map_or(AdvisorBackend::Rules, |advisor| advisor.backend);
            assert_eq!(cluster.advisor.backend, backend);
            assert!(
                cluster.advisor.distilled.as_deref().is_none_or(|path| {
                    path.is_absolute() && path == std::path::absolute("d.json").unwrap()
                })
            );
        }
    }
}
