//! Nodes: names and roles first, so that everything else can refer to them, then each role's settings.

use super::Compiler;
use crate::cluster::{Compute, Node, Roles, Storage, StorageMode};
use crate::error::{Hint, NodeError, SpecError, ValueError};
use crate::ids::{MachineName, NodeId, NodeName};
use crate::policy::PolicySpec;
use crate::spec::NodeSpec;
use crate::units::Bytes;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

const ROLES: &[&str] = &["compute", "storage", "scheduler"];
const MODES: &[&str] = &["memory", "direct", "auto"];

/// Minibatches a trainer announces ahead where the file does not say.
const LOOK_AHEAD_DEFAULT: u32 = 8;
const READY_AHEAD_MAX: u32 = 64;
const CREDITS_MAX: u32 = 1024;
const HOT_CACHE_DEFAULT: Bytes = Bytes(64 << 20);
const STAGING_DEFAULT: Bytes = Bytes(256 << 20);
/// `sun_path` has 108 bytes with its NUL; a little room stays for a temporary name beside it.
const SOCKET_PATH_MAX: usize = 100;

/// What other parts of the file need to know of a node.
pub(super) struct Head {
    pub(super) id: NodeId,
    pub(super) name: Option<NodeName>,
    pub(super) machine: Option<MachineName>,
    pub(super) roles: Roles,
    /// For messages: the name as written, or the position.
    pub(super) shown: String,
}

impl<'a> Compiler<'a> {
    /// A setting of node `n` with its place: the node's own, else the default.
    pub(super) fn setting<T>(
        &self,
        n: usize,
        key: &str,
        of: impl Fn(&'a NodeSpec) -> Option<T>,
    ) -> Option<(String, T)> {
        let spec = self.spec;
        of(&spec.nodes[n])
            .map(|value| (format!("nodes.{n}.{key}"), value))
            .or_else(|| of(&spec.defaults).map(|value| (format!("defaults.{key}"), value)))
    }

    pub(super) fn heads(&mut self) -> Vec<Head> {
        if let Some(name) = &self.spec.defaults.name {
            self.value_error(
                "defaults.name",
                "name",
                name,
                ValueError::Choice {
                    hint: Hint { nearest: None, known: &["what stands in each of [[nodes]]"] },
                },
            );
        }
        let heads: Vec<Head> = (0..self.spec.nodes.len()).map(|n| self.head(n)).collect();
        let mut schedulers = heads.iter().filter(|head| head.roles.scheduler);
        if let Some(first) = schedulers.next() {
            for second in schedulers {
                if let (Some(first), Some(second_name)) = (&first.name, &second.name) {
                    let error =
                        NodeError::TwoSchedulers { first: first.clone(), second: second_name.clone() };
                    self.source.error(&format!("nodes.{}.roles", second.id.index()), error);
                }
            }
        }
        heads
    }

    fn head(&mut self, n: usize) -> Head {
        let spec = self.spec;
        let path = format!("nodes.{n}");
        let id = NodeId(u16::try_from(n).unwrap_or(u16::MAX));
        let shown = match &spec.nodes[n].name {
            Some(name) => crate::spec::clip(name),
            None => format!("number {}", n + 1),
        };
        let text = spec.nodes[n].name.as_deref();
        let text = self.require(&path, "[[nodes]]", "name", "name = \"c0\"", text);
        let name = text.and_then(|text| self.parse_name(n, text, id));
        let machine = match self.setting(n, "machine", |node| node.machine.as_deref()) {
            Some((path, text)) => match MachineName::new(text) {
                Ok(machine) => Some(machine),
                Err(error) => {
                    self.value_error(&path, "machine", text, error);
                    None
                }
            },
            None => name.as_ref().and_then(|name| MachineName::new(name.as_str()).ok()),
        };
        let roles = self.roles(n, &shown);
        Head { id, name, machine, roles, shown }
    }

    fn parse_name(&mut self, n: usize, text: &'a str, id: NodeId) -> Option<NodeName> {
        let path = format!("nodes.{n}.name");
        let name = match NodeName::new(text) {
            Ok(name) => name,
            Err(error) => {
                self.value_error(&path, "name", text, error);
                return None;
            }
        };
        if text == "operator" || text == "ca" {
            self.error(&path, NodeError::OperatorName);
            return None;
        }
        if let Some(first) = self.names.get(text) {
            let first_line = self.source.line(&format!("nodes.{}.name", first.index())).unwrap_or(0);
            self.error(&path, NodeError::DuplicateName { name, first_line });
            return None;
        }
        self.names.insert(text, id);
        Some(name)
    }

    fn roles(&mut self, n: usize, shown: &str) -> Roles {
        let mut roles = Roles::default();
        let Some((path, texts)) = self.setting(n, "roles", |node| node.roles.as_ref()) else {
            if !self.source.has(&format!("nodes.{n}.roles")) {
                self.error(&format!("nodes.{n}"), NodeError::NoRole { node: shown.to_owned() });
            }
            return roles;
        };
        for text in texts {
            match text.as_str() {
                "compute" => roles.compute = true,
                "storage" => roles.storage = true,
                "scheduler" => roles.scheduler = true,
                other => {
                    let hint = Hint::new(other, ROLES);
                    self.value_error(&path, "roles", other, ValueError::Choice { hint });
                }
            }
        }
        if texts.is_empty() {
            self.error(&path, NodeError::NoRole { node: shown.to_owned() });
        }
        roles
    }

    /// `None` where a node has errors; positions stay.
    pub(super) fn nodes(&mut self, heads: &[Head]) -> Vec<Option<Node>> {
        heads.iter().map(|head| self.node(head)).collect()
    }

    fn node(&mut self, head: &Head) -> Option<Node> {
        let n = head.id.index();
        self.check_roles_of_keys(head);
        let control = self.setting(n, "control", |node| node.control.as_deref());
        let path = format!("nodes.{n}");
        let table = format!("node `{}`", head.shown);
        let control = self
            .require(&path, &table, "control", "control = \"127.0.0.1:0\"", control)
            .and_then(|(path, text)| self.address(&path, "control", text));
        let cores = self.cores(n, &head.shown);
        let storage = if head.roles.storage { self.storage(head).map(Some) } else { Some(None) };
        let compute = if head.roles.compute { self.compute(head).map(Some) } else { Some(None) };
        let (data_address, storage) = storage?.unzip();
        let (trainer_socket, compute) = compute?.unzip();
        Some(Node {
            id: head.id,
            name: head.name.clone()?,
            machine: head.machine.clone()?,
            roles: head.roles,
            control_address: control?,
            data_address,
            trainer_socket,
            compute,
            storage,
            cores: cores?,
        })
    }

    /// A setting of a role that the node does not have is a mistake, unless it is a default.
    fn check_roles_of_keys(&mut self, head: &Head) {
        let n = head.id.index();
        let keys: [(&'static str, &'static str, bool); 10] = [
            ("trainer_socket", "compute", head.roles.compute),
            ("cache", "compute", head.roles.compute),
            ("policy", "compute", head.roles.compute),
            ("ready_ahead", "compute", head.roles.compute),
            ("credits", "compute", head.roles.compute),
            ("data", "storage", head.roles.storage),
            ("storage_directory", "storage", head.roles.storage),
            ("storage_mode", "storage", head.roles.storage),
            ("hot_cache", "storage", head.roles.storage),
            ("staging", "storage", head.roles.storage),
        ];
        if head.roles == Roles::default() {
            return;
        }
        for (key, role, has) in keys {
            let path = format!("nodes.{n}.{key}");
            if !has && self.source.has(&path) {
                self.error(&path, NodeError::WrongRole { node: head.shown.clone(), key, role });
            }
        }
    }

    fn address(&mut self, path: &str, key: &'static str, text: &str) -> Option<SocketAddr> {
        let Ok(address) = text.parse::<SocketAddr>() else {
            self.value_error(path, key, text, ValueError::Address);
            return None;
        };
        if address.ip().is_unspecified() || address.ip().is_multicast() {
            self.value_error(path, key, text, ValueError::Unspecified);
            return None;
        }
        if self.spec.keys.is_none() && !self.source.has("keys") && !address.ip().is_loopback() {
            self.error(path, NodeError::OpenWithoutKeys { address });
            return None;
        }
        Some(address)
    }

    fn storage(&mut self, head: &Head) -> Option<(SocketAddr, Storage)> {
        let n = head.id.index();
        let path = format!("nodes.{n}");
        let table = format!("storage node `{}`", head.shown);
        let data = self.setting(n, "data", |node| node.data.as_deref());
        let data = self
            .require(&path, &table, "data", "data = \"127.0.0.1:0\"", data)
            .and_then(|(path, text)| self.address(&path, "data", text));
        let directory = self.setting(n, "storage_directory", |node| node.storage_directory.as_deref());
        let example = "storage_directory = \"DIR\"";
        let directory = self
            .require(&path, &table, "storage_directory", example, directory)
            .and_then(|(path, text)| self.path(&path, "storage_directory", &head.fill(text)));
        let mode = match self.setting(n, "storage_mode", |node| node.storage_mode.as_deref()) {
            None | Some((_, "auto")) => Some(StorageMode::Auto),
            Some((_, "memory")) => Some(StorageMode::Memory),
            Some((_, "direct")) => Some(StorageMode::Direct),
            Some((path, text)) => {
                let hint = Hint::new(text, MODES);
                self.value_error(&path, "storage_mode", text, ValueError::Choice { hint });
                None
            }
        };
        let hot_cache_bytes = match self.setting(n, "hot_cache", |node| node.hot_cache.as_deref()) {
            Some((path, text)) => self.parse(&path, "hot_cache", text),
            None => Some(HOT_CACHE_DEFAULT),
        };
        let staging_bytes = match self.setting(n, "staging", |node| node.staging.as_deref()) {
            Some((path, text)) => self.parse(&path, "staging", text),
            None => Some(STAGING_DEFAULT),
        };
        let storage = Storage {
            directory: directory?,
            mode: mode?,
            hot_cache_bytes: hot_cache_bytes?,
            staging_bytes: staging_bytes?,
        };
        Some((data?, storage))
    }

    fn compute(&mut self, head: &Head) -> Option<(PathBuf, Compute)> {
        let n = head.id.index();
        let path = format!("nodes.{n}");
        let table = format!("compute node `{}`", head.shown);
        let socket = self.setting(n, "trainer_socket", |node| node.trainer_socket.as_deref());
        let example = "trainer_socket = \"/run/rudder/c0.sock\"";
        let socket = self
            .require(&path, &table, "trainer_socket", example, socket)
            .and_then(|(path, text)| self.socket_path(&path, &head.fill(text)));
        let cache = self.setting(n, "cache", |node| node.cache.as_deref());
        let cache = self
            .require(&path, &table, "cache", "cache = \"64MiB\"", cache)
            .and_then(|(path, text)| self.cache(&path, text));
        let policy = self.policy(n);
        let (ready_ahead, credits) = self.credits(n, policy)?;
        let compute = Compute { cache_bytes: cache?, policy: policy?, ready_ahead, credits };
        Some((socket?, compute))
    }

    fn socket_path(&mut self, path: &str, text: &str) -> Option<PathBuf> {
        let socket = self.path(path, "trainer_socket", text)?;
        let bytes = socket.as_os_str().len();
        if bytes > SOCKET_PATH_MAX {
            self.value_error(path, "trainer_socket", text, ValueError::SocketPath { bytes });
            return None;
        }
        Some(socket)
    }

    fn cache(&mut self, path: &str, text: &str) -> Option<Bytes> {
        let cache: Bytes = self.parse(path, "cache", text)?;
        if cache == Bytes(0) {
            self.error(path, NodeError::EmptyCache);
            return None;
        }
        let spec = self.spec;
        let blocks =
            spec.datasets.iter().filter_map(|dataset| dataset.block_bytes_max.as_ref()?.parse().ok());
        let block = blocks.max().unwrap_or(Bytes(0));
        if cache < block {
            self.error(path, NodeError::CacheTooSmall { cache_bytes: cache.0, block_bytes: block.0 });
            return None;
        }
        Some(cache)
    }

    fn credits(&mut self, n: usize, policy: Option<PolicySpec>) -> Option<(u32, u32)> {
        let ready_ahead = match self.setting(n, "ready_ahead", |node| node.ready_ahead) {
            Some((path, value)) => self.in_range(&path, "ready_ahead", value, 0, READY_AHEAD_MAX)?,
            None => 1,
        };
        let look_ahead = policy.and_then(PolicySpec::look_ahead_minibatches).unwrap_or(0);
        // What is announced, the minibatch in use, and those that may be ready beside it.
        let suits = LOOK_AHEAD_DEFAULT.max(look_ahead) + ready_ahead + 1;
        let (path, credits) = match self.setting(n, "credits", |node| node.credits) {
            Some((path, value)) => {
                let credits = self.in_range(&path, "credits", value, 0, CREDITS_MAX)?;
                let least = ready_ahead + 2;
                if credits < least {
                    self.error(&path, NodeError::TooFewCredits { credits, ready_ahead, least });
                    return None;
                }
                (path, credits)
            }
            None => (format!("nodes.{n}.ready_ahead"), suits.min(CREDITS_MAX)),
        };
        let least = look_ahead + ready_ahead + 1;
        if let Some(policy) = policy.filter(|_| look_ahead > 0 && credits < least) {
            let policy = policy.to_string();
            self.error(&path, NodeError::TooFewCreditsForPolicy { credits, policy, look_ahead, least });
            return None;
        }
        Some((ready_ahead, credits))
    }

    pub(super) fn in_range(&mut self, path: &str, key: &str, value: u32, min: u32, max: u32) -> Option<u32> {
        if (min..=max).contains(&value) {
            return Some(value);
        }
        let error = SpecError::Range {
            key: key.to_owned(),
            value: i64::from(value),
            min: u64::from(min),
            max: u64::from(max),
        };
        self.error(path, error);
        None
    }

    /// No two sockets may share an address; loopback and Unix sockets are one space per machine.
    pub(super) fn check_addresses(&mut self, nodes: &[Option<Node>]) {
        let mut taken: HashMap<(Option<&MachineName>, String), &Node> = HashMap::new();
        for node in nodes.iter().flatten() {
            let n = node.id.index();
            let addresses = [("control", Some(node.control_address)), ("data", node.data_address)];
            let sockets = addresses.into_iter().filter_map(|(key, address)| {
                let address = address.filter(|address| address.port() != 0)?;
                let machine = address.ip().is_loopback().then_some(&node.machine);
                Some((key, machine, address.to_string()))
            });
            let trainer = node
                .trainer_socket
                .iter()
                .map(|path| ("trainer_socket", Some(&node.machine), path.display().to_string()));
            for (key, machine, text) in sockets.chain(trainer) {
                if let Some(first) = taken.get(&(machine, text.clone())) {
                    let error = NodeError::SameAddress { text, first: first.name.clone() };
                    self.source.error(&format!("nodes.{n}.{key}"), error);
                } else {
                    taken.insert((machine, text), node);
                }
            }
        }
    }
}

impl Head {
    /// Puts the node's name where a path says `{name}`.
    fn fill(&self, path: &str) -> String {
        match &self.name {
            Some(name) => path.replace("{name}", name.as_str()),
            None => path.to_owned(),
        }
    }
}
