//! The cluster of the topology as it is, and with something changed.

use super::{AdviseError, LinkFact, Question};
use crate::arm::Arm;
use crate::parallel::in_parallel;
use crate::sim::scenario::prior_of;
use crate::sim::{Change, LinkUse, Load, Sharing, SimError, SimSpec, Way};
use rudder_client::dataset::Dataset;
use rudder_topology::{
    Bytes, BytesPerSecond, Cluster, Fanout, NodeId, PartId, PolicySpec, Sampling, TableId, WindowStaticSpec,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Clusters of more nodes share links more coarsely, every so often.
const EXACT_NODES_MAX: usize = 64;
const QUANTUM_NS: u64 = 500_000;

/// One change to the cluster as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WhatIf {
    AsIs,
    /// Of each compute node's remote bytes.
    Cache(f64),
    /// Of every link's.
    Bandwidth(f64),
    TwiceTheWindow,
}

/// A dataset where a topology places it.
pub(super) struct Ground<'a> {
    pub cluster: &'a Cluster,
    pub dataset: &'a Dataset,
    placed: &'a rudder_topology::Dataset,
    sampling: Option<Sampling>,
    /// By block: what policies know of the graph before training.
    priors: BTreeMap<Arm, Arc<[f32]>>,
}

impl<'a> Ground<'a> {
    /// Whatever can be wrong between the two is found here.
    pub fn new(cluster: &'a Cluster, dataset: &'a Dataset, question: &Question) -> Result<Self, AdviseError> {
        let placed = placed(cluster, dataset)?;
        let sampling = Fanout::new(&question.fanout).map(|fanout| Sampling { seeds: question.seeds, fanout });
        Ok(Ground { cluster, dataset, placed, sampling, priors: BTreeMap::new() })
    }

    /// Looks at the graph for the arms that have to know it; some take an epoch of sampling.
    pub fn study(&mut self, arms: &[Arm], load: &Load, seed: u64) {
        let prior = |&arm: &Arm| {
            let spec = self.spec(WhatIf::AsIs, Some(arm), load, seed).ok()?;
            Some((arm, prior_of(&spec, self.dataset)?))
        };
        self.priors = in_parallel(arms, prior).into_iter().flatten().collect();
    }

    /// The cluster with the change, under the arm.
    pub fn spec(&self, what: WhatIf, arm: Option<Arm>, load: &Load, seed: u64) -> Result<SimSpec, SimError> {
        let book = self.dataset.book().clone();
        let mut load = load.clone();
        if what == WhatIf::TwiceTheWindow {
            load.window = load.window.saturating_mul(2);
        }
        let mut spec = SimSpec::of_cluster(self.cluster, self.placed, book, load, seed)?;
        if spec.nodes.len() > EXACT_NODES_MAX {
            spec.sharing = Sharing::EqualShares { quantum_ns: QUANTUM_NS };
        }
        match what {
            WhatIf::AsIs => {}
            WhatIf::Cache(share) => {
                for node in 0..spec.nodes.len() {
                    let remote = self.remote_bytes(&spec, NodeId(node as u16));
                    if let Some(compute) = &mut spec.nodes[node].compute {
                        compute.cache = Bytes((remote as f64 * share) as u64).max(self.block_max());
                    }
                }
            }
            WhatIf::Bandwidth(factor) => scale(&mut spec, factor),
            WhatIf::TwiceTheWindow => {
                let credits = spec.load.window.saturating_add(2);
                for compute in spec.nodes.iter_mut().filter_map(|node| node.compute.as_mut()) {
                    compute.credits = compute.credits.max(credits);
                }
            }
        }
        let credits = spec.compute_nodes().map(|(_, compute)| compute.credits).min().unwrap_or(1);
        let announced = spec.load.window.min(credits.saturating_sub(1));
        spec.policy = policy(arm.unwrap_or(Arm::None), announced, self.sampling);
        spec.prior = arm.and_then(|arm| self.priors.get(&arm).cloned());
        Ok(spec)
    }

    fn tables(&self) -> impl Iterator<Item = TableId> {
        (0..self.dataset.book().tables()).map(|table| TableId(table as u16))
    }

    /// Enough for a block of each table.
    fn block_max(&self) -> Bytes {
        let book = self.dataset.book();
        let blocks = self.tables().map(|table| u64::from(book.block_bytes(table).unwrap_or(0)));
        Bytes(blocks.max().unwrap_or(0) * book.tables() as u64)
    }

    /// What a compute node has to fetch from others.
    pub fn remote_bytes(&self, spec: &SimSpec, node: NodeId) -> u64 {
        let Some(compute) = &spec.nodes[node.index()].compute else { return 0 };
        let remote =
            |part: &PartId| compute.replicas.get(part.index()).is_some_and(|replicas| !replicas.is_empty());
        let rows_of = |part: PartId| {
            let tables = self.dataset.manifest().tables.iter().zip(self.tables());
            tables.map(move |(table, id)| {
                let rows = table.row_offsets[part.index() + 1] - table.row_offsets[part.index()];
                rows * u64::from(self.dataset.book().row_bytes(id).unwrap_or(0))
            })
        };
        (0..compute.replicas.len()).map(|part| PartId(part as u16)).filter(remote).flat_map(rows_of).sum()
    }

    pub fn link(&self, link: &LinkUse) -> LinkFact {
        let name = |node: NodeId| {
            let node = self.cluster.node(node);
            let role = match (node.roles.storage, node.roles.compute) {
                (true, false) => "storage node ",
                (false, true) => "compute node ",
                _ => "node ",
            };
            format!("{role}{}", node.name)
        };
        let name = match link.way {
            Way::OutOf(node) => format!("the uplink of {}", name(node)),
            Way::Into(node) => format!("the downlink of {}", name(node)),
            Way::Between(from, to) => format!("the link from {} to {}", name(from), name(to)),
        };
        LinkFact { name, mbit_per_s: link.rate.0 as f64 * 8.0 / 1e6, busy: link.busy }
    }
}

/// Where the topology places the dataset; everything that can be wrong between the two is found here.
fn placed<'c>(cluster: &'c Cluster, dataset: &Dataset) -> Result<&'c rudder_topology::Dataset, AdviseError> {
    let file = || cluster.file.clone();
    let manifest = dataset.manifest();
    if !cluster.nodes.iter().any(|node| node.compute.is_some()) {
        return Err(AdviseError::NoCompute { file: file() });
    }
    let Some(placed) = cluster.dataset_named(&manifest.name) else {
        let known: Vec<String> =
            cluster.datasets.iter().map(|dataset| format!("`{}`", dataset.name)).collect();
        let known = if known.is_empty() { "none at all".to_owned() } else { known.join(", ") };
        return Err(AdviseError::UnknownDataset { file: file(), dataset: manifest.name.clone(), known });
    };
    let (found, parts) = (dataset.book().parts(), placed.replicas.len());
    if found != parts {
        return Err(AdviseError::Parts {
            file: file(),
            dataset: manifest.name.clone(),
            found,
            placed: parts,
        });
    }
    Ok(placed)
}

/// The arm's policy: it looks as far ahead as trainers announce, and knows how they sample where it has to.
fn policy(arm: Arm, announced: u32, sampling: Option<Sampling>) -> PolicySpec {
    let announced = announced.max(1);
    match (PolicySpec::named(arm.name()).unwrap_or(PolicySpec::None), sampling) {
        (PolicySpec::FixedWindow { .. }, _) => PolicySpec::FixedWindow { minibatches: announced },
        (PolicySpec::BeladySuperbatch { .. }, _) => PolicySpec::BeladySuperbatch { minibatches: announced },
        (PolicySpec::WindowStatic(published), _) => {
            PolicySpec::WindowStatic(WindowStaticSpec { minibatches: (announced / 2).max(1), ..published })
        }
        // One epoch sampled beforehand, as GNNLab found enough.
        (PolicySpec::Presc { .. }, Some(sampling)) => PolicySpec::Presc { epochs: 1, sampling },
        (PolicySpec::Vip { .. }, Some(sampling)) => PolicySpec::Vip { sampling },
        (published, _) => published,
    }
}

/// Every link carries `factor` times as much, and the product's own rate limiter lets that through.
fn scale(spec: &mut SimSpec, factor: f64) {
    let times = |rate: BytesPerSecond| BytesPerSecond((rate.0 as f64 * factor).max(1.0) as u64);
    for node in &mut spec.nodes {
        (node.up, node.down) = (times(node.up), times(node.down));
        let replicas = node.compute.iter_mut().flat_map(|compute| compute.replicas.iter_mut().flatten());
        replicas.for_each(|(_, cost)| cost.bandwidth = times(cost.bandwidth));
    }
    for event in &mut spec.events {
        if let Change::Link { rate, .. } | Change::Interface { rate, .. } = &mut event.what {
            *rate = times(*rate);
        }
    }
    spec.limits.link_rate_max = spec.limits.link_rate_max.map(times);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_has_its_policy() {
        for arm in Arm::ALL {
            assert_eq!(policy(arm, 5, None).name(), arm.name());
        }
        assert_eq!(policy(Arm::FixedWindow, 5, None), PolicySpec::FixedWindow { minibatches: 5 });
        let sampling = Sampling { seeds: 7, fanout: Fanout::new(&[3]).unwrap() };
        assert_eq!(policy(Arm::Vip, 5, Some(sampling)), PolicySpec::Vip { sampling });
    }
}
