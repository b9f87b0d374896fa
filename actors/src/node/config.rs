//! How a node is started, and why it was not.

use crate::gateway::listener::SocketError;
use ractor::SpawnErr;
use rudder_client::dataset::DatasetError;
use rudder_client::identity::IdentityError;
use rudder_dataplane::{BackendChoice, CacheMemoryError};
use rudder_membership::MembershipError;
use rudder_policy::engine::EngineRefusal;
use rudder_topology::{Cluster, DatasetName, Node, NodeName, PartId};
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// How a node is started.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub cluster: Cluster,
    pub node: NodeName,
    pub backend: BackendChoice,
    /// Data ports that are elsewhere than the topology says, such as where it says port 0.
    pub peers: Vec<(NodeName, SocketAddr)>,
    /// Where the scheduler's control plane is, if elsewhere than the topology says.
    pub scheduler_address: Option<SocketAddr>,
    /// Another file than the driver's own NVML.
    pub nvml_library: Option<OsString>,
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("{file} has no node `{name}`; it has {known}")]
    UnknownNode { file: String, name: NodeName, known: String },
    #[error("`--peer {0}` names no node of the topology")]
    UnknownPeer(NodeName),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("without keys only loopback is served, and {0} is not: run `rudder keys init`, or use 127.0.0.1")]
    OpenWithoutKeys(SocketAddr),
    #[error("cannot listen at {address} for the data port: {source}{hint}")]
    DataPort { address: SocketAddr, source: io::Error, hint: &'static str },
    #[error("the topology gives `{0}` no address for its data port")]
    NoDataAddress(NodeName),
    #[error("the topology gives `{0}` no trainer_socket")]
    NoTrainerSocket(NodeName),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("the directory {} for datasets cannot be made: {source}", path.display())]
    StorageDirectory { path: PathBuf, source: io::Error },
    #[error("cannot read {}: {source}; a compute node needs the dataset's manifest (`rudder import` writes it)", path.display())]
    ManifestRead { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Manifest { path: PathBuf, source: rudder_graph::manifest::ManifestErrors },
    #[error("{} holds dataset `{found}`, the topology calls it `{expected}`", path.display())]
    WrongDataset { path: PathBuf, expected: DatasetName, found: DatasetName },
    #[error("dataset `{dataset}` has {found} parts, the topology says {expected}")]
    WrongParts { dataset: DatasetName, expected: usize, found: usize },
    #[error("no link leads from any node that stores {part} of `{dataset}` to this one")]
    NoRoute { dataset: DatasetName, part: PartId },
    #[error("dataset `{dataset}` has {files} co-located feature files, and a trainer maps at most {max}")]
    TooManyLocalFiles { dataset: DatasetName, files: usize, max: usize },
    #[error("dataset `{dataset}`: {source}")]
    Engine { dataset: DatasetName, source: EngineRefusal },
    #[error("the policy {policy} decides by the graph of dataset `{dataset}`, and {} has none: put the dataset's `graph` folder there, or choose a policy that needs no graph", path.display())]
    NoGraph { policy: &'static str, dataset: DatasetName, path: PathBuf },
    #[error(
        "the policy {policy} decides by the graph of dataset `{dataset}`, which cannot be read: {source}"
    )]
    Graph { policy: &'static str, dataset: DatasetName, source: Box<DatasetError> },
    #[error(transparent)]
    CacheMemory(#[from] CacheMemoryError),
    #[error("the mover did not start: {0}")]
    Mover(#[from] rudder_dataplane::StartError),
    #[error(transparent)]
    Membership(#[from] MembershipError),
    #[error("the supervision tree did not start: {0}")]
    Spawn(#[from] SpawnErr),
    #[error("the trainers' socket cannot be served: {0}")]
    Serve(io::Error),
}

impl NodeConfig {
    /// The cluster with what was overridden, and this node in it.
    pub(super) fn resolve(&mut self) -> Result<(Arc<Cluster>, Node), NodeError> {
        for (name, address) in &self.peers {
            let peer = self.cluster.nodes.iter_mut().find(|node| node.name == *name);
            peer.ok_or_else(|| NodeError::UnknownPeer(name.clone()))?.data_address = Some(*address);
        }
        let node = self.cluster.node_named(&self.node).cloned().ok_or_else(|| NodeError::UnknownNode {
            file: self.cluster.file.display().to_string(),
            name: self.node.clone(),
            known: known(&self.cluster),
        })?;
        Ok((Arc::new(self.cluster.clone()), node))
    }
}

/// The names of the first nodes, for an error message.
fn known(cluster: &Cluster) -> String {
    let names: Vec<_> = cluster.nodes.iter().take(8).map(|node| format!("`{}`", node.name)).collect();
    let more = if cluster.nodes.len() > names.len() { ", .." } else { "" };
    format!("{}{more}", names.join(", "))
}
