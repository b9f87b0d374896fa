//! Datasets and who stores their parts.

use super::Compiler;
use super::nodes::Head;
use crate::cluster::{Cluster, Dataset};
use crate::error::{AndMore, Hint, NameHint, PlacementError, ValueError};
use crate::ids::{DatasetName, NodeId};
use crate::spec::{DatasetSpec, PartSpec};
use crate::units::Bytes;
use std::collections::HashMap;

pub(super) const DATASETS_MAX: usize = 64;
/// Parts times replicas over all datasets: bounds what a short file can ask for.
const REPLICAS_MAX: usize = 1 << 20;
const PARTS_MAX: u32 = 65_535;
const REPLICAS_OF_A_PART_MAX: u32 = 16;
const PLACEMENTS: &[&str] = &["stated", "round_robin"];

/// A dataset being placed.
struct Placing<'a> {
    shown: &'a str,
    dataset: Option<Dataset>,
    /// Line of the `[[parts]]` that placed each part.
    stated: HashMap<u32, u32>,
    parts: u32,
}

impl<'a> Compiler<'a> {
    pub(super) fn datasets(&mut self, heads: &[Head]) -> Vec<Dataset> {
        let spec = self.spec;
        let storage = Self::storage_nodes(heads);
        let mut budget = REPLICAS_MAX;
        let mut placing: Vec<Placing<'a>> = Vec::new();
        for (n, dataset) in spec.datasets.iter().enumerate() {
            let one = self.dataset(n, dataset, &storage, &mut budget, &placing);
            placing.push(one);
        }
        for (n, part) in spec.parts.iter().enumerate() {
            self.place(n, part, heads, &mut placing);
        }
        for (n, one) in placing.iter().enumerate() {
            self.check_stored(n, one);
        }
        placing.into_iter().filter_map(|one| one.dataset).collect()
    }

    fn dataset(
        &mut self,
        n: usize,
        spec: &'a DatasetSpec,
        storage: &[NodeId],
        budget: &mut usize,
        before: &[Placing<'a>],
    ) -> Placing<'a> {
        let path = format!("datasets.{n}");
        let text = self.require(&path, "[[datasets]]", "name", "name = \"cora\"", spec.name.as_deref());
        let name = text.and_then(|text| self.dataset_name(n, text, before));
        let example = "directory = \"DIR\"";
        let directory = self
            .require(&path, "[[datasets]]", "directory", example, spec.directory.as_deref())
            .and_then(|text| self.path(&format!("{path}.directory"), "directory", text));
        let parts = self
            .require(&path, "[[datasets]]", "parts", "parts = 2", spec.parts)
            .and_then(|parts| self.in_range(&format!("{path}.parts"), "parts", parts, 1, PARTS_MAX));
        if let Some(text) = &spec.block_bytes_max {
            self.parse::<Bytes>(&format!("{path}.block_bytes_max"), "block_bytes_max", text);
        }
        let replicas = parts.and_then(|parts| self.placement(n, spec, parts, storage, budget));
        let dataset = match (name, directory, replicas) {
            (Some(name), Some(directory), Some(replicas)) => Some(Dataset { name, directory, replicas }),
            _ => None,
        };
        Placing {
            shown: text.unwrap_or_default(),
            dataset,
            stated: HashMap::new(),
            parts: parts.unwrap_or(0),
        }
    }

    fn dataset_name(&mut self, n: usize, text: &str, before: &[Placing<'a>]) -> Option<DatasetName> {
        let path = format!("datasets.{n}.name");
        if let Some(first) = before.iter().position(|one| one.shown == text) {
            let first_line = self.source.line(&format!("datasets.{first}.name")).unwrap_or(0);
            let name = crate::spec::clip(text);
            self.error(&path, PlacementError::DuplicateDataset { name, first_line });
            return None;
        }
        match DatasetName::new(text) {
            Ok(name) => Some(name),
            Err(error) => {
                self.value_error(&path, "name", text, error);
                None
            }
        }
    }

    /// Where `[[parts]]` says nothing.
    fn placement(
        &mut self,
        n: usize,
        spec: &DatasetSpec,
        parts: u32,
        storage: &[NodeId],
        budget: &mut usize,
    ) -> Option<Vec<Vec<NodeId>>> {
        let path = format!("datasets.{n}");
        let replicas_path = format!("{path}.replicas");
        let replicas = spec.replicas.unwrap_or(1);
        let replicas = self.in_range(&replicas_path, "replicas", replicas, 1, REPLICAS_OF_A_PART_MAX)?;
        let wanted = parts as usize * replicas as usize;
        if wanted > *budget {
            self.error(&format!("{path}.parts"), PlacementError::TooManyReplicas { max: REPLICAS_MAX });
            return None;
        }
        *budget -= wanted;
        match spec.placement.as_deref() {
            None | Some("stated") => Some(vec![Vec::new(); parts as usize]),
            Some("round_robin") if storage.len() < replicas as usize => {
                let error = PlacementError::TooFewStorageNodes { replicas, storage_nodes: storage.len() };
                self.error(&format!("{path}.placement"), error);
                None
            }
            Some("round_robin") => Some(
                (0..parts as usize)
                    .map(|part| (0..replicas as usize).map(|r| storage[(part + r) % storage.len()]).collect())
                    .collect(),
            ),
            Some(other) => {
                let reason = ValueError::Choice { hint: Hint::new(other, PLACEMENTS) };
                self.value_error(&format!("{path}.placement"), "placement", other, reason);
                None
            }
        }
    }

    fn place(&mut self, n: usize, spec: &'a PartSpec, heads: &[Head], placing: &mut [Placing<'a>]) {
        let path = format!("parts.{n}");
        let dataset = self.dataset_of_part(&path, spec, placing);
        let part = self.require(&path, "[[parts]]", "part", "part = 0", spec.part);
        let nodes = self.require(&path, "[[parts]]", "nodes", "nodes = [\"s0\"]", spec.nodes.as_ref());
        let (Some(part), Some(nodes)) = (part, nodes) else { return };
        let nodes = self.nodes_of_part(&path, part, nodes, heads);
        let Some(one) = dataset.map(|dataset| &mut placing[dataset]) else { return };
        if one.parts == 0 {
            return;
        }
        if part >= one.parts {
            let error =
                PlacementError::UnknownPart { dataset: one.shown.to_owned(), part, last: one.parts - 1 };
            self.error(&format!("{path}.part"), error);
            return;
        }
        if let Some(&first_line) = one.stated.get(&part) {
            let error = PlacementError::DuplicatePart { dataset: one.shown.to_owned(), part, first_line };
            self.error(&path, error);
            return;
        }
        one.stated.insert(part, self.source.line(&path).unwrap_or(0));
        if let Some(dataset) = &mut one.dataset {
            dataset.replicas[part as usize] = nodes;
        }
    }

    fn dataset_of_part(&mut self, path: &str, spec: &PartSpec, placing: &[Placing<'a>]) -> Option<usize> {
        let Some(name) = spec.dataset.as_deref() else {
            if placing.len() != 1 && !self.source.has(&format!("{path}.dataset")) {
                self.error(path, PlacementError::WhichDataset { count: placing.len() });
            }
            return (placing.len() == 1).then_some(0);
        };
        let found = placing.iter().position(|one| one.shown == name);
        if found.is_none() {
            let known = placing.iter().map(|one| one.shown).filter(|_| name.len() <= 64);
            let hint = NameHint::new(name, known, "name a dataset of the file");
            let name = crate::spec::clip(name);
            self.error(&format!("{path}.dataset"), PlacementError::UnknownDataset { name, hint });
        }
        found
    }

    fn nodes_of_part(&mut self, path: &str, part: u32, names: &[String], heads: &[Head]) -> Vec<NodeId> {
        let path = format!("{path}.nodes");
        let mut nodes: Vec<NodeId> = Vec::new();
        for name in names {
            let node = crate::spec::clip(name);
            match self.node_of(name) {
                None => {
                    let hint = self.name_hint(name);
                    self.error(&path, PlacementError::UnknownNode { part, node, hint });
                }
                Some(id) if !heads[id.index()].roles.storage => {
                    self.error(&path, PlacementError::NotStorage { part, node });
                }
                Some(id) if nodes.contains(&id) => {
                    self.error(&path, PlacementError::SameNodeTwice { part, node });
                }
                Some(id) => nodes.push(id),
            }
        }
        nodes
    }

    fn check_stored(&mut self, n: usize, one: &Placing<'_>) {
        let Some(dataset) = &one.dataset else { return };
        let empty: Vec<u32> = (0..one.parts)
            .filter(|&part| dataset.replicas[part as usize].is_empty())
            // A stated part whose nodes are all wrong has been reported, unless the list is simply empty.
            .filter(|part| !one.stated.contains_key(part) || self.source.is_clean())
            .collect();
        if let Some((&part, more)) = empty.split_first() {
            let error =
                PlacementError::NotStored { dataset: one.shown.to_owned(), part, more: AndMore(more.len()) };
            self.error(&format!("datasets.{n}.parts"), error);
        }
    }

    /// Every compute node must reach a replica of every part.
    pub(super) fn check_reachable(&mut self, cluster: &Cluster) {
        if cluster.routes.default_link().is_some() {
            return;
        }
        let sets: Vec<_> = cluster.datasets.iter().map(replica_sets).collect();
        for node in cluster.nodes.iter().filter(|node| node.roles.compute) {
            let reaching = cluster.routes.reaching(node.id);
            for (dataset, sets) in cluster.datasets.iter().zip(&sets) {
                let cut_off = |set: &&[NodeId]| !set.iter().any(|replica| reaching[replica.index()]);
                let missing: Vec<_> = sets.iter().filter(|(set, _)| cut_off(set)).collect();
                let Some(part) = missing.iter().map(|(_, parts)| parts.0).min() else { continue };
                let count: usize = missing.iter().map(|(_, parts)| parts.1).sum();
                let error = PlacementError::Unreachable {
                    node: node.name.clone(),
                    dataset: dataset.name.to_string(),
                    part,
                    more: AndMore(count - 1),
                };
                self.error(&format!("nodes.{}", node.id.index()), error);
            }
        }
    }
}

/// The distinct sets of nodes that hold a part, each with its first part and their number.
fn replica_sets(dataset: &Dataset) -> HashMap<&[NodeId], (u32, usize)> {
    let mut sets: HashMap<&[NodeId], (u32, usize)> = HashMap::new();
    for (part, replicas) in (0u32..).zip(&dataset.replicas) {
        sets.entry(replicas).or_insert((part, 0)).1 += 1;
    }
    sets
}
