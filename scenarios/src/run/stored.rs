//! What storage nodes find under their folders: their own parts and no others. A node that found all of them would serve
//! what it does not own from its own disk, which no node of a cluster could: staging would come for nothing.

use crate::arm::Arm;
use crate::compile::Scenario;
use crate::run::files::Places;
use rudder_graph::layout;
use rudder_topology::PartId;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Why the parts are not where they belong.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    #[error("the scenario's cluster is no cluster: {reason}")]
    Topology { reason: String },
    #[error("cannot lay out {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
}

/// Gives each storage node the parts that the topology files place on it.
pub(super) fn lay_out(scenario: &Scenario, places: &Places) -> Result<(), StoredError> {
    for (node, parts) in placed(scenario, places)?.iter().enumerate() {
        let directory = places.storage_directory(node).join(&places.dataset_name);
        link(&places.dataset, &directory, parts)
            .map_err(|source| StoredError::Folder { path: directory, source })?;
    }
    Ok(())
}

/// By storage node.
fn placed(scenario: &Scenario, places: &Places) -> Result<Vec<Vec<PartId>>, StoredError> {
    let topology = |reason: String| StoredError::Topology { reason };
    // They are the same for every arm.
    let spec = places.spec(scenario, Arm::None, None, &places.nodes);
    let text = spec.to_toml().map_err(|error| topology(error.to_string()))?;
    let cluster = rudder_topology::compile(&text, &places.folder.join("topology.toml"))
        .map_err(|errors| topology(errors.to_string()))?;
    let mut parts = vec![Vec::new(); scenario.cluster.storage_nodes as usize];
    for (part, replicas) in cluster.datasets.iter().flat_map(|dataset| dataset.replicas.iter().enumerate()) {
        replicas.iter().for_each(|node| parts[node.index()].push(PartId(part as u16)));
    }
    Ok(parts)
}

/// Links the dataset's description and these parts of it into a folder.
fn link(dataset: &Path, directory: &Path, parts: &[PartId]) -> io::Result<()> {
    let paths = std::iter::once(layout::MANIFEST.to_owned()).chain(parts.iter().copied().map(layout::part));
    for path in paths {
        let to = directory.join(&path);
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        symlink(dataset.join(&path), to)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use crate::run::files::{Place, Role};
    use rudder_topology::{Bytes, NodeName};
    use std::net::SocketAddr;

    #[test]
    fn a_storage_node_finds_its_own_parts_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let dataset = folder.path().join("dataset");
        for part in 0..3 {
            fs::create_dir_all(dataset.join(layout::part(PartId(part)))).unwrap();
        }
        fs::write(dataset.join(layout::MANIFEST), "").unwrap();
        let text = "[dataset]\nimport = \"x\"\nparts = 3\n[cluster]\ncompute_nodes = 1\nstorage_nodes = 2\nbandwidth = \"50Mbit/s\"\n[trainer]\ncompute = \"1ms\"\nminibatches = 2\n";
        let scenario = compile(text, Path::new("x.toml")).unwrap();
        let place = |name: &str, role| {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            Place { name: NodeName::new(name).unwrap(), role, control: any, data: any }
        };
        let nodes = vec![place("s0", Role::Storage), place("s1", Role::Storage), place("c0", Role::Compute)];
        let places = Places {
            nodes,
            folder: folder.path().to_owned(),
            keys: None,
            dataset_name: "tiny".into(),
            dataset,
            parts: 3,
            cache: Bytes(4096),
        };
        lay_out(&scenario, &places).unwrap();
        let finds = |node: &str, part| {
            let found = folder.path().join(node).join("tiny");
            assert!(found.join(layout::MANIFEST).is_file());
            found.join(layout::part(PartId(part))).is_dir()
        };
        assert_eq!([0, 1, 2].map(|part| finds("s0", part)), [true, false, true]);
        assert_eq!([0, 1, 2].map(|part| finds("s1", part)), [false, true, false]);
    }
}
