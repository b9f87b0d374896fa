//! Which crate may use which, and what the pure crates must never reach.

use cargo_metadata::{DependencyKind, Metadata, PackageId};
use std::collections::{BTreeMap, BTreeSet};

/// The arrows of the architecture: (user, used). Using anything further upstream is allowed as well.
pub const ARROWS: [(&str, &str); 26] = [
    ("rudder-graph", "rudder-topology"),
    ("rudder-policy", "rudder-graph"),
    ("rudder-advisor", "rudder-policy"),
    ("rudder-messages", "rudder-policy"),
    ("rudder-membership", "rudder-messages"),
    ("rudder-membership", "rudder-client"),
    ("rudder-actors", "rudder-membership"),
    ("rudder-actors", "rudder-dataplane"),
    ("rudder-actors", "rudder-advisor"),
    ("rudder-node", "rudder-actors"),
    ("rudder-importer", "rudder-graph"),
    ("rudder", "rudder-importer"),
    ("rudder", "rudder-advisor"),
    ("rudder", "rudder-scenarios"),
    ("rudder-client", "rudder-graph"),
    ("rudder-dataplane", "rudder-client"),
    ("rudder-dataplane", "rudder-policy"),
    ("rudder-scenarios", "rudder-client"),
    ("rudder-scenarios", "rudder-policy"),
    ("rudder-scenarios", "rudder-advisor"),
    ("rudder-scenarios", "rudder-messages"),
    ("rudder-scenarios", "rudder-membership"),
    ("rudder-python", "rudder-graph"),
    ("rudder-python", "rudder-client"),
    ("rudder-monitor", "rudder-messages"),
    ("rudder-monitor", "rudder-membership"),
];

/// This package tests all the others, so it may use all of them.
const TESTS: &str = "rudder-tests";

/// Crates that have no file, socket, clock, thread pool or randomness of their own.
pub const PURE: [&str; 3] = ["rudder-topology", "rudder-graph", "rudder-policy"];

/// Runtimes, operating-system bindings, clocks and global randomness: by name, or by the start of one that ends in `-`.
const IMPURE: [&str; 24] = [
    "tokio",
    "tokio-",
    "ractor",
    "ractor_cluster",
    "async-std",
    "smol",
    "mio",
    "socket2",
    "rustls",
    "rustix",
    "libc",
    "nix",
    "memmap2",
    "rand",
    "rand_core",
    "getrandom",
    "fastrand",
    "chrono",
    "time",
    "jiff",
    "rayon",
    "hwlocality",
    "io-uring",
    "metis",
];

/// A use of one package by another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub user: String,
    pub used: String,
}

/// The uses among the workspace's own packages, dev- and build-dependencies counted in.
#[must_use]
pub fn workspace_uses(metadata: &Metadata) -> Vec<Use> {
    let packages = metadata.workspace_packages();
    let own: BTreeSet<String> = packages.iter().map(|package| package.name.to_string()).collect();
    let mut uses: Vec<_> = packages
        .iter()
        .flat_map(|package| package.dependencies.iter().map(|d| (package.name.to_string(), d.name.clone())))
        .filter(|(_, used)| own.contains(used))
        .map(|(user, used)| Use { user, used })
        .collect();
    uses.sort();
    uses.dedup();
    uses
}

/// The uses that no chain of arrows allows.
#[must_use]
pub fn forbidden(uses: &[Use]) -> Vec<Use> {
    uses.iter()
        .filter(|one| one.user != TESTS && !upstream(&one.user).contains(&*one.used))
        .cloned()
        .collect()
}

/// Everything reachable from a package along the arrows.
fn upstream(package: &str) -> BTreeSet<&'static str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = vec![package];
    while let Some(user) = next.pop() {
        for (_, used) in ARROWS.iter().filter(|(from, _)| *from == user) {
            if reached.insert(*used) {
                next.push(used);
            }
        }
    }
    reached
}

/// A package as far as purity is concerned.
#[derive(Clone, Debug, Default)]
pub struct Ingredient {
    pub name: String,
    /// The native library it links, if any.
    pub links: Option<String>,
    /// Its build script may compile C.
    pub compiles_c: bool,
    pub features: BTreeSet<String>,
}

/// Why a pure crate may not contain the package, if it may not.
#[must_use]
pub fn impurity(package: &Ingredient) -> Option<String> {
    let named = |entry: &str| match entry.strip_suffix('-') {
        Some(_) => package.name.starts_with(entry),
        None => package.name == entry,
    };
    if IMPURE.iter().any(|entry| named(entry)) {
        return Some(format!("{} is banned", package.name));
    }
    if let Some(library) = &package.links {
        return Some(format!("{} links the native library {library}", package.name));
    }
    // BLAKE3 leaves its C and assembly out with this feature.
    let without_c = package.name == "blake3" && package.features.contains("pure");
    (package.compiles_c && !without_c).then(|| format!("{} compiles C", package.name))
}

/// Everything that a package of the workspace contains when built: its normal dependencies, transitively.
///
/// # Panics
/// If the metadata was read without the dependency graph.
#[must_use]
pub fn ingredients(metadata: &Metadata, package: &str) -> Vec<Ingredient> {
    let resolve = metadata.resolve.as_ref().expect("metadata with a dependency graph");
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let workspace = metadata.workspace_packages();
    let first = workspace.iter().find(|p| p.name.as_str() == package).map(|p| &p.id);
    let mut reached: BTreeSet<&PackageId> = first.into_iter().collect();
    let mut next: Vec<&PackageId> = reached.iter().copied().collect();
    while let Some(id) = next.pop() {
        for dependency in &nodes[id].deps {
            let normal = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if normal && reached.insert(&dependency.pkg) {
                next.push(&dependency.pkg);
            }
        }
    }
    reached.iter().map(|id| ingredient(&metadata[*id], nodes[*id])).collect()
}

fn ingredient(package: &cargo_metadata::Package, node: &cargo_metadata::Node) -> Ingredient {
    let builders = ["cc", "cmake", "bindgen", "pkg-config"];
    let compiles_c = package
        .dependencies
        .iter()
        .any(|d| d.kind == DependencyKind::Build && !d.optional && builders.contains(&d.name.as_str()));
    Ingredient {
        name: package.name.to_string(),
        links: package.links.clone(),
        compiles_c,
        features: node.features.iter().map(ToString::to_string).collect(),
    }
}
