//! Spec to [`Cluster`]: names resolved, numbers checked, every error collected with its line.

mod advisor;
mod cores;
mod links;
mod nodes;
mod parts;
mod policy;

use crate::cluster::{Cluster, Node};
use crate::error::{
    FileError, NodeError, SpecError, TopologyError, TopologyErrorKind, TopologyErrors, ValueError,
};
use crate::ids::NodeId;
use crate::spec::{ClusterSpec, Source, read};
use crate::units::Bytes;
use nodes::Head;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A larger topology file is refused unread.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// More nodes are refused.
pub const NODES_MAX: usize = 4096;

/// Reads and compiles a topology file.
pub fn load(path: &Path) -> Result<Cluster, TopologyErrors> {
    let fail = |error: FileError| TopologyErrors {
        errors: vec![TopologyError { file: path.to_owned(), line: None, kind: error.into() }],
    };
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| fail(FileError::Read { reason: error.to_string() }))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(fail(FileError::TooBig { limit_bytes: FILE_BYTES_MAX }));
    }
    let text = String::from_utf8(bytes).map_err(|_| fail(FileError::NotText))?;
    compile(&text, path)
}

/// Compiles the text of a topology file. `file` is named in errors, and its folder is where relative paths start.
pub fn compile(text: &str, file: &Path) -> Result<Cluster, TopologyErrors> {
    let mut source = Source::new(text, file);
    if text.len() as u64 > FILE_BYTES_MAX {
        source.error("", FileError::TooBig { limit_bytes: FILE_BYTES_MAX });
        return Err(source.finish());
    }
    let spec = read(text, &mut source);
    let mut compiler = Compiler { spec: &spec, folder: folder_of(file), source, names: HashMap::new() };
    match compiler.cluster(file) {
        Some(cluster) if compiler.source.is_clean() => Ok(cluster),
        _ => Err(compiler.source.finish()),
    }
}

/// The folder of a file, absolute where the working directory is known, so that a later change of it does no harm.
fn folder_of(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new(""));
    std::path::absolute(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
        .unwrap_or_else(|_| folder.to_owned())
}

/// A cache must hold at least one block of every dataset it serves; called at a node's start, when manifests are known.
pub fn check_cache(node: &Node, block_bytes: Bytes) -> Result<(), NodeError> {
    match &node.compute {
        Some(compute) if compute.cache_bytes < block_bytes => {
            Err(NodeError::CacheTooSmall { cache_bytes: compute.cache_bytes.0, block_bytes: block_bytes.0 })
        }
        _ => Ok(()),
    }
}

struct Compiler<'a> {
    spec: &'a ClusterSpec,
    folder: PathBuf,
    source: Source,
    /// The first node of each name.
    names: HashMap<&'a str, NodeId>,
}

impl<'a> Compiler<'a> {
    fn cluster(&mut self, file: &Path) -> Option<Cluster> {
        if !self.sizes_allowed() {
            return None;
        }
        let keys = self.spec.keys.as_deref().and_then(|keys| self.path("keys", "keys", keys));
        let heads = self.heads();
        let nodes = self.nodes(&heads);
        self.check_addresses(&nodes);
        self.check_cores(&nodes);
        let datasets = self.datasets(&heads);
        let routes = self.routes(&heads);
        let limits = self.limits();
        let advisor = self.advisor();
        if !self.source.is_clean() {
            return None;
        }
        let nodes: Vec<Node> = nodes.into_iter().flatten().collect();
        let cluster = Cluster { file: file.to_owned(), nodes, datasets, limits, advisor, keys, routes };
        self.check_reachable(&cluster);
        Some(cluster)
    }

    fn sizes_allowed(&mut self) -> bool {
        let counts = [
            ("nodes", self.spec.nodes.len(), NODES_MAX),
            ("datasets", self.spec.datasets.len(), parts::DATASETS_MAX),
        ];
        for (what, count, max) in counts {
            if count > max {
                self.source.error(what, SpecError::TooMany { what, count, max });
                return false;
            }
        }
        if self.spec.nodes.is_empty() && !self.source.has("nodes") {
            // A syntax error has been said; an empty file has not.
            if self.source.is_clean() {
                self.source.error("", NodeError::None);
            }
            return false;
        }
        true
    }

    fn error(&mut self, path: &str, kind: impl Into<TopologyErrorKind>) {
        self.source.error(path, kind);
    }

    fn value_error(&mut self, path: &str, key: &'static str, text: &str, reason: impl Into<ValueError>) {
        let text = crate::spec::clip(text);
        self.source.error(path, SpecError::Value { key, text, reason: reason.into() });
    }

    /// Reads a text value, reporting at `path` what is wrong with it.
    fn parse<T: std::str::FromStr>(&mut self, path: &str, key: &'static str, text: &str) -> Option<T>
    where
        T::Err: Into<ValueError>,
    {
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.value_error(path, key, text, error);
                None
            }
        }
    }

    /// A required value; an unreadable one has been reported already.
    fn require<T>(
        &mut self,
        path: &str,
        table: &str,
        key: &'static str,
        example: &'static str,
        value: Option<T>,
    ) -> Option<T> {
        if value.is_none() && !self.source.has(&format!("{path}.{key}")) {
            let table = crate::spec::clip(table);
            self.source.error(path, SpecError::Missing { table, key, example });
        }
        value
    }

    fn path(&mut self, path: &str, key: &'static str, text: &str) -> Option<PathBuf> {
        let reason = if text.is_empty() {
            ValueError::EmptyPath
        } else if text.starts_with('~') {
            ValueError::Tilde
        } else {
            return Some(self.folder.join(text));
        };
        self.value_error(path, key, text, reason);
        None
    }

    fn node_of(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    fn name_hint(&self, name: &str) -> crate::error::NameHint {
        // Nearness is only worth looking for where it is cheap.
        let cheap = self.names.len() <= 256 && name.len() <= 64 && !self.source.is_full();
        let names = cheap.then(|| self.names.keys().copied());
        crate::error::NameHint::new(name, names.into_iter().flatten(), "name a node of the file")
    }

    fn storage_nodes(heads: &[Head]) -> Vec<NodeId> {
        let storage = heads.iter().filter(|head| head.roles.storage);
        storage.map(|head| head.id).collect()
    }
}
