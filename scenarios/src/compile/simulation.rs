//! What happens to the cluster and who advises it, and what only a simulation can be told: how compute times vary,
//! statistics for a dataset.

use super::{ClusterPlan, Compiler, DatasetSource, JoinPlan, ScenarioError, TrainerPlan, Unplayable};
use crate::sim::{Change, TimedEvent, Variation};
use crate::spec::{AdvisorSpec, At, DatasetSpec, EventSpec, SimulationSpec, Spec};
use rudder_topology::{Advisor, AdvisorBackend, NodeId};
use std::path::Path;

/// What happens to the cluster.
#[derive(Default)]
pub(super) struct Happens {
    pub events: Vec<TimedEvent>,
    pub fanouts: Vec<(u64, Vec<u32>)>,
    pub joins: Vec<JoinPlan>,
    pub unplayable: Vec<At<Unplayable>>,
}

impl Compiler {
    pub(super) fn variation(&mut self, spec: &SimulationSpec) -> Variation {
        let jitter = self.number("jitter", spec.jitter, 0.0, 2.0, 0.0);
        let stragglers = self.number("stragglers", spec.stragglers, 0.0, 1.0, 0.0);
        let straggler_factor = self.number("straggler_factor", spec.straggler_factor, 1.0, 1000.0, 1.0);
        Variation { jitter, stragglers, straggler_factor }
    }

    fn number(&mut self, key: &'static str, given: Option<At<f64>>, min: f64, max: f64, default: f64) -> f64 {
        let Some(given) = given else { return default };
        if !(min..=max).contains(&given.value) {
            let (value, min, max) = (given.value.to_string(), min.to_string(), max.to_string());
            self.error(given.line, ScenarioError::Range { key, value, min, max });
        }
        given.value
    }

    pub(super) fn statistics(&mut self, dataset: &DatasetSpec, text: &At<String>) -> DatasetSource {
        if dataset.import.is_some() || dataset.directory.is_some() {
            self.error(text.line, ScenarioError::TwoDatasets);
        }
        for (key, given) in [("parts", dataset.parts), ("rows_per_block", dataset.rows_per_block)] {
            if let Some(given) = given {
                self.error(given.line, ScenarioError::OnlyImport { key });
            }
        }
        match text.value.parse() {
            Ok(statistics) => DatasetSource::Statistics(statistics),
            Err(reason) => {
                self.error(text.line, ScenarioError::Value { key: "statistics", reason });
                DatasetSource::Directory(std::path::PathBuf::new())
            }
        }
    }

    pub(super) fn events(&mut self, spec: &Spec, cluster: &ClusterPlan, first: &TrainerPlan) -> Happens {
        let mut happens = Happens::default();
        for event in &spec.events {
            let what = if event.join.is_some_and(|join| join.value) {
                happens.joins.extend(self.join(event, cluster, first));
                Unplayable::Join
            } else if event.minibatch.is_some() || event.fanout.is_some() {
                happens.fanouts.extend(self.later_fanout(event, first));
                Unplayable::Fanout
            } else {
                let Some(timed) = self.event(event, cluster) else { continue };
                let what = Unplayable::of(&timed.what);
                happens.events.push(timed);
                what
            };
            happens.unplayable.push(At { line: event.line, value: what });
        }
        happens.events.sort_by_key(|event| event.at);
        happens.fanouts.sort();
        happens.joins.sort_by_key(|join| join.at);
        happens
    }

    fn join(&mut self, event: &EventSpec, cluster: &ClusterPlan, first: &TrainerPlan) -> Option<JoinPlan> {
        let line = event.line;
        if event.at.is_none() {
            self.error(line, ScenarioError::Missing { key: "at", example: "\"20s\"" });
        }
        let elsewhere = event.link.is_some()
            || event.node.is_some()
            || event.bandwidth.is_some()
            || event.cache_share.is_some();
        if elsewhere || event.minibatch.is_some() || event.down.is_some() || event.up.is_some() {
            let reason = "a job that joins says nothing of links, nodes and the first job's minibatches";
            self.error(line, ScenarioError::Value { key: "event", reason: reason.to_owned() });
        }
        let trainers = Some(cluster.trainers_per_node);
        let fanout = event.fanout.as_ref().map(|fanout| self.fanout(fanout));
        let plan = JoinPlan {
            at: self.parsed("at", event.at.as_ref())?,
            trainers_per_node: self.whole(
                "trainers_per_node",
                event.trainers_per_node,
                1,
                64,
                line,
                trainers,
            ),
            window: self.whole("window", event.window, 0, 10_000, line, Some(first.window)),
            seeds: self.whole("seeds", event.seeds, 1, 1_000_000, line, Some(first.seeds)),
            fanout: fanout.unwrap_or_else(|| first.fanout.clone()),
            compute: self.parsed("compute", event.compute.as_ref()).unwrap_or(first.compute),
            minibatches: self.whole(
                "minibatches",
                event.minibatches,
                1,
                10_000_000,
                line,
                Some(first.minibatches),
            ),
        };
        Some(plan)
    }

    fn later_fanout(&mut self, event: &EventSpec, first: &TrainerPlan) -> Option<(u64, Vec<u32>)> {
        let (Some(_), Some(fanout)) = (event.minibatch, &event.fanout) else {
            let reason = "a change of the sampler names the minibatch and the fanout".to_owned();
            self.error(event.line, ScenarioError::Value { key: "event", reason });
            return None;
        };
        if event.at.is_some() || event.link.is_some() || event.node.is_some() {
            let reason =
                "a change of the sampler comes with a minibatch, not at a time or on a link".to_owned();
            self.error(event.line, ScenarioError::Value { key: "event", reason });
        }
        let minibatch =
            self.whole("minibatch", event.minibatch, 1, first.minibatches.max(1), event.line, None);
        Some((u64::from(minibatch), self.fanout(fanout)))
    }

    /// Paths are relative to the scenario's file.
    pub(super) fn advisors(&mut self, spec: &AdvisorSpec, file: &Path) -> Vec<Advisor> {
        let folder = file.parent().unwrap_or(Path::new(""));
        let distilled = spec.distilled.as_ref().map(|path| folder.join(&path.value));
        let (url, model) = (spec.url.clone().map(|url| url.value), spec.model.clone().map(|m| m.value));
        let mut advisors = Vec::new();
        for name in spec.backends.iter().flat_map(|backends| &backends.value) {
            match AdvisorBackend::named(name) {
                Some(AdvisorBackend::Never) => {}
                Some(AdvisorBackend::Distilled) if distilled.is_none() => {
                    self.error(
                        spec.line,
                        ScenarioError::Missing { key: "distilled", example: "\"distilled.json\"" },
                    );
                }
                Some(backend) => {
                    advisors.push(Advisor {
                        backend,
                        url: url.clone(),
                        model: model.clone(),
                        distilled: distilled.clone(),
                        ..Advisor::default()
                    });
                }
                None => {
                    let known: Vec<&str> = AdvisorBackend::ALL.iter().map(|backend| backend.name()).collect();
                    let reason = format!("no advisor is called `{name}`; they are {}", known.join(", "));
                    self.error(spec.line, ScenarioError::Value { key: "backends", reason });
                }
            }
        }
        advisors
    }

    fn event(&mut self, event: &EventSpec, cluster: &ClusterPlan) -> Option<TimedEvent> {
        if event.at.is_none() {
            self.error(event.line, ScenarioError::Missing { key: "at", example: "\"3s\"" });
        }
        let at = self.parsed("at", event.at.as_ref());
        let flag = |given: Option<At<bool>>| given.is_some_and(|given| given.value);
        let said = usize::from(event.bandwidth.is_some())
            + usize::from(event.cache_share.is_some())
            + usize::from(flag(event.down))
            + usize::from(flag(event.up));
        if said != 1 || event.link.is_some() == event.node.is_some() {
            let reason = "write link or node, and with it bandwidth; a storage node may go `down = true` and `up = true`, a compute node take another `cache_share`";
            self.error(event.line, ScenarioError::Value { key: "event", reason: reason.to_owned() });
            return None;
        }
        let rate = self.parsed("bandwidth", event.bandwidth.as_ref());
        let what = match (&event.link, &event.node, rate) {
            (Some(link), _, Some(rate)) => {
                let ends = link.value.split_once('-').map(|(a, b)| [a, b]);
                let Some([a, b]) = ends else {
                    let reason = format!("`{}` is no pair of nodes such as s0-c1", link.value);
                    self.error(link.line, ScenarioError::Value { key: "link", reason });
                    return None;
                };
                let between = (self.node(a, link.line, cluster)?, self.node(b, link.line, cluster)?);
                Change::Link { between, rate }
            }
            (_, Some(node), Some(rate)) => {
                Change::Interface { node: self.node(&node.value, node.line, cluster)?, rate }
            }
            (_, Some(node), None) if event.cache_share.is_some() => {
                let left = self.cache_left(event.cache_share?, cluster)?;
                let id = self.node(&node.value, node.line, cluster)?;
                if id.index() < cluster.storage_nodes as usize {
                    let reason = format!("{} is no compute node, and only these have a cache", node.value);
                    self.error(node.line, ScenarioError::Value { key: "node", reason });
                    return None;
                }
                Change::Cache { node: id, left }
            }
            (_, Some(node), None) if event.bandwidth.is_none() => {
                let id = self.node(&node.value, node.line, cluster)?;
                if id.index() >= cluster.storage_nodes as usize {
                    let reason =
                        format!("{} is no storage node, and only these go and come back", node.value);
                    self.error(node.line, ScenarioError::Value { key: "node", reason });
                    return None;
                }
                if flag(event.down) { Change::Down { node: id } } else { Change::Up { node: id } }
            }
            (Some(link), _, None) if event.bandwidth.is_none() => {
                let reason = "a link takes a bandwidth; nodes go down and come up".to_owned();
                self.error(link.line, ScenarioError::Value { key: "link", reason });
                return None;
            }
            // The bandwidth could not be read, which is said already.
            _ => return None,
        };
        Some(TimedEvent { at: at?, what })
    }

    /// Of the bytes that a cache began with, what it keeps.
    fn cache_left(&mut self, share: At<f64>, cluster: &ClusterPlan) -> Option<f64> {
        let most = cluster.cache_share;
        if !(0.001..=most).contains(&share.value) {
            let (value, min, max) = (share.value.to_string(), "0.001".to_owned(), most.to_string());
            self.error(share.line, ScenarioError::Range { key: "cache_share", value, min, max });
            return None;
        }
        Some(share.value / most)
    }

    /// Nodes as the runner calls them: s0, s1, ... and c0, c1, ...
    fn node(&mut self, name: &str, line: usize, cluster: &ClusterPlan) -> Option<NodeId> {
        let number = |prefix| name.strip_prefix(prefix).and_then(|number: &str| number.parse::<u32>().ok());
        let id = match (number('s'), number('c')) {
            (Some(storage), _) if storage < cluster.storage_nodes => Some(storage),
            (_, Some(compute)) if compute < cluster.compute_nodes => Some(cluster.storage_nodes + compute),
            _ => None,
        };
        if id.is_none() {
            let name: String = name.chars().take(40).collect();
            let reason = format!(
                "there is no node `{name}`; there are s0 to s{} and c0 to c{}",
                cluster.storage_nodes.saturating_sub(1),
                cluster.compute_nodes.saturating_sub(1)
            );
            self.error(line, ScenarioError::Value { key: "event", reason });
        }
        id.map(|id| NodeId(id as u16))
    }
}
