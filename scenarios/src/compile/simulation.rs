//! What only a simulation can be told: how compute times vary, what happens to the cluster, statistics for a dataset.

use super::{ClusterPlan, Compiler, DatasetSource, ScenarioError};
use crate::sim::{Change, TimedEvent, Variation};
use crate::spec::{At, DatasetSpec, EventSpec, SimulationSpec, Spec};
use rudder_topology::NodeId;

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

    pub(super) fn events(&mut self, spec: &Spec, cluster: &ClusterPlan) -> Vec<TimedEvent> {
        let mut events: Vec<TimedEvent> =
            spec.events.iter().filter_map(|event| self.event(event, cluster)).collect();
        events.sort_by_key(|event| event.at);
        events
    }

    fn event(&mut self, event: &EventSpec, cluster: &ClusterPlan) -> Option<TimedEvent> {
        if event.at.is_none() {
            self.error(event.line, ScenarioError::Missing { key: "at", example: "\"3s\"" });
        }
        let at = self.parsed("at", event.at.as_ref());
        let flag = |given: Option<At<bool>>| given.is_some_and(|given| given.value);
        let said = usize::from(event.bandwidth.is_some())
            + usize::from(flag(event.down))
            + usize::from(flag(event.up));
        if said != 1 || event.link.is_some() == event.node.is_some() {
            let reason = "write link or node, and with it bandwidth; a storage node may go `down = true` and `up = true`";
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
