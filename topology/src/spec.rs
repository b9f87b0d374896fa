//! The topology file as written: names and texts, nothing resolved. [`crate::compile`] reads one; programs that
//! generate clusters fill one and write it with [`ClusterSpec::to_toml`].

mod policy;
mod read;

pub use policy::{
    ControllerText, MassiveGnnText, PolicyText, RudderPaperText, SamplingText, WindowStaticText,
};
pub(crate) use read::{Source, clip, read};

use serde::Serialize;

/// A topology file.
///
/// Sizes are texts such as `64MiB`, rates such as `100Mbit/s`, times such as `0.1ms`. Relative paths start at the
/// folder of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterSpec {
    /// Folder with the cluster's keys (made by `rudder keys init`). Without it every node must bind loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// What holds for every node that does not say otherwise: everything but `name`. Settings of a role are ignored by
    /// nodes without it.
    #[serde(skip_serializing_if = "NodeSpec::is_empty")]
    pub defaults: NodeSpec,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeSpec>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<DatasetSpec>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartSpec>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkSpec>,
    /// Links every pair of nodes that has no link of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_link: Option<LinkSpec>,
    #[serde(skip_serializing_if = "LimitsSpec::is_empty")]
    pub limits: LimitsSpec,
    /// Without it the built-in rules advise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advisor: Option<AdvisorSpec>,
}

/// One node, `[[nodes]]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What shares one memory. Default: the node's own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Of `compute`, `storage`, `scheduler`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<String>>,
    /// Control plane, `IP:port`; port 0 takes a free one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// Data port of a storage node, `IP:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Unix socket of a compute node; `{name}` stands for the node's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trainer_socket: Option<String>,
    /// Cache budget of a compute node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyText>,
    /// Pinned minibatches beyond the one in use, per trainer. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_ahead: Option<u32>,
    /// Announced, unreleased minibatches per trainer. Default `8 + ready_ahead + 1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credits: Option<u32>,
    /// Folder with the storage node's datasets, one folder each; `{name}` stands for the node's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_directory: Option<String>,
    /// `memory`, `direct` or `auto` (the default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_mode: Option<String>,
    /// Bound of the hot cache in `direct` mode. Default 64 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot_cache: Option<String>,
    /// Memory of a storage node for copies of blocks that others own, taken as it is used. Default 256 MiB; `0`: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staging: Option<String>,
    /// `shared` (the default): movers share cores with training. `reserved`: see the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<String>,
    /// Such as `0-3,8`, `core:2`, `numa:0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mover_cores: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_cores: Option<String>,
}

impl NodeSpec {
    fn is_empty(&self) -> bool {
        *self == NodeSpec::default()
    }
}

/// One dataset, `[[datasets]]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DatasetSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where manifest and graph lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Number of parts, as at import.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<u32>,
    /// `round_robin` gives part p to the p-th storage node (and the next ones, with `replicas`), unless `[[parts]]` says otherwise.
    /// `stated` (the default): `[[parts]]` names the nodes of every part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    /// Copies of each part under `round_robin`. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// The dataset's largest block, so that a cache that cannot hold one is found here and not at the node's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes_max: Option<String>,
}

/// Who stores a part, `[[parts]]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PartSpec {
    /// May be left out where there is one dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<String>>,
}

/// One link, `[[links]]`: `from` and `to`, or `between` for both directions. `[default_link]` has neither.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<String>,
    /// Default 0.1 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<String>,
}

/// `[limits]`, as [`crate::Limits`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LimitsSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_in_flight_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_in_flight_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_bytes_max: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_rate_max: Option<String>,
}

impl LimitsSpec {
    fn is_empty(&self) -> bool {
        *self == LimitsSpec::default()
    }
}

/// `[advisor]`, as [`crate::Advisor`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AdvisorSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `options` (the default) or `actions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_tokens_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub similarity_percent: Option<u32>,
    /// File whose first line is the key of an OpenAI-compatible server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
    /// Or the name of the environment variable that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_environment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experience: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluator: Option<String>,
    /// File of the certificates in PEM form that an `https` server's has to come from. Default: the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
    /// File of the distilled advisor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distilled: Option<String>,
}

impl ClusterSpec {
    /// The file that reads back as this value.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}
