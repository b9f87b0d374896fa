//! When to consult: at edges only. A value triggers when it is beyond an absolute threshold *and* far from what was
//! usual before; it may trigger again only after it came back (hysteresis) or went a whole step further, and never
//! within the cool-down. What is bad from the first minute on has no usual value: it triggers once.

use super::state::ClusterState;
use rudder_topology::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is watched. For each, more is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Of a compute node: [`super::state::ComputeState::wait_share`].
    Wait(NodeId),
    /// Of a compute node: [`super::state::ComputeState::stretched`].
    Stretched(NodeId),
    /// Of a compute node with devices that say so: 1 − GPU use.
    GpuIdle(NodeId),
    /// Of a compute node: 1 − hit rate.
    Miss(NodeId),
    /// Of a compute node.
    Drift(NodeId),
    /// Bandwidth use of a link.
    Link { storage: NodeId, compute: NodeId },
    /// Of a link: [`super::state::LinkState::slowed`].
    Slowed { storage: NodeId, compute: NodeId },
    /// Busiest storage node over the mean, less one.
    Imbalance,
}

/// A signal crossed its threshold upwards.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    pub signal: Signal,
    pub value: f32,
    /// What was usual before; `None` where it was bad from the start.
    pub usual: Option<f32>,
}

/// What makes an edge of one kind of signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Beyond this the value is bad.
    pub enter: f32,
    /// Below this it is good again.
    pub leave: f32,
    /// It is an edge only this far above the usual value, and again only this far above the last edge.
    pub step: f32,
}

/// Thresholds and times of all triggers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TriggerConfig {
    pub wait: Threshold,
    pub stretched: Threshold,
    pub gpu_idle: Threshold,
    pub miss: Threshold,
    pub drift: Threshold,
    pub link: Threshold,
    pub slowed: Threshold,
    pub imbalance: Threshold,
    /// Values before anything may trigger: the cache is cold and everything looks bad.
    pub warm_up_values: u32,
    /// Weight of a new value in the usual one.
    pub usual_weight: f32,
    /// Of a new value in the smoothed one that thresholds see.
    pub smoothing_weight: f32,
    /// Values after an edge during which the smoothed value still climbs to where it belongs.
    pub settle_values: u32,
    /// One signal does not trigger twice within this.
    pub cool_down_ns: u64,
}

impl Default for TriggerConfig {
    fn default() -> Self {
        let threshold = |enter, leave, step| Threshold { enter, leave, step };
        TriggerConfig {
            wait: threshold(0.15, 0.08, 0.10),
            stretched: threshold(0.10, 0.06, 0.06),
            gpu_idle: threshold(0.40, 0.25, 0.20),
            miss: threshold(0.30, 0.15, 0.20),
            drift: threshold(0.30, 0.15, 0.20),
            link: threshold(0.90, 0.70, 0.20),
            slowed: threshold(0.60, 0.40, 0.30),
            imbalance: threshold(0.60, 0.30, 0.30),
            warm_up_values: 5,
            usual_weight: 0.05,
            smoothing_weight: 0.4,
            settle_values: 10,
            cool_down_ns: 60_000_000_000,
        }
    }
}

impl TriggerConfig {
    fn threshold(&self, signal: Signal) -> Threshold {
        match signal {
            Signal::Wait(_) => self.wait,
            Signal::Stretched(_) => self.stretched,
            Signal::GpuIdle(_) => self.gpu_idle,
            Signal::Miss(_) => self.miss,
            Signal::Drift(_) => self.drift,
            Signal::Link { .. } => self.link,
            Signal::Slowed { .. } => self.slowed,
            Signal::Imbalance => self.imbalance,
        }
    }
}

/// Beyond this a value is only more of the same.
const VALUE_MAX: f32 = 1e6;

/// One signal's memory.
#[derive(Clone, Debug)]
struct Detector {
    values: u32,
    smooth: f32,
    usual: f32,
    /// It was good at some time after the warm-up, so there is a usual value to compare with.
    was_good: bool,
    /// The value at the last edge, until it comes back below `leave`.
    last_edge: Option<f32>,
    edge_at_value: u32,
    not_before_ns: u64,
}

impl Detector {
    fn new() -> Self {
        Detector {
            values: 0,
            smooth: 0.0,
            usual: 0.0,
            was_good: false,
            last_edge: None,
            edge_at_value: 0,
            not_before_ns: 0,
        }
    }

    /// Takes in a value; `Some(usual)` at an edge.
    fn observe(
        &mut self,
        value: f32,
        now_ns: u64,
        t: Threshold,
        config: &TriggerConfig,
    ) -> Option<Option<f32>> {
        self.values = self.values.saturating_add(1);
        if self.values <= config.warm_up_values {
            (self.smooth, self.usual) = (value, value);
            return None;
        }
        self.smooth += config.smoothing_weight * (value - self.smooth);
        let usual = self.usual;
        self.usual += config.usual_weight * (self.smooth - self.usual);
        if self.smooth < t.leave {
            self.last_edge = None;
        }
        if self.smooth < t.enter {
            self.was_good = true;
            return None;
        }
        if self.values - self.edge_at_value <= config.settle_values {
            self.last_edge = self.last_edge.map(|last| last.max(self.smooth));
        }
        let far = match self.last_edge {
            Some(last) => self.smooth >= last + t.step,
            None => !self.was_good || self.smooth >= usual + t.step,
        };
        if !far || now_ns < self.not_before_ns {
            return None;
        }
        let known = self.was_good.then_some(usual);
        self.last_edge = Some(self.smooth);
        self.edge_at_value = self.values;
        self.was_good = true;
        self.not_before_ns = now_ns.saturating_add(config.cool_down_ns);
        Some(known)
    }
}

/// All triggers of a cluster.
#[derive(Clone, Debug)]
pub struct Trigger {
    config: TriggerConfig,
    detectors: BTreeMap<Signal, Detector>,
}

impl Trigger {
    #[must_use]
    pub fn new(config: TriggerConfig) -> Self {
        Trigger { config, detectors: BTreeMap::new() }
    }

    /// Takes in a state and says which edges it shows, in the order of the signals.
    pub fn observe(&mut self, state: &ClusterState) -> Vec<Edge> {
        let mut edges = vec![];
        for (signal, value) in signals(state) {
            let threshold = self.config.threshold(signal);
            let detector = self.detectors.entry(signal).or_insert_with(Detector::new);
            // A measurement that is no number says nothing.
            let Some(value) = value.is_finite().then(|| value.clamp(0.0, VALUE_MAX)) else { continue };
            if let Some(usual) = detector.observe(value, state.at_ns, threshold, &self.config) {
                edges.push(Edge { signal, value: detector.smooth, usual });
            }
        }
        edges
    }
}

/// Every signal of a state.
fn signals(state: &ClusterState) -> Vec<(Signal, f32)> {
    let mut signals = vec![];
    for compute in &state.compute {
        signals.push((Signal::Wait(compute.node), compute.wait_share));
        signals.push((Signal::Stretched(compute.node), compute.stretched));
        signals.extend(compute.gpu_use.map(|used| (Signal::GpuIdle(compute.node), 1.0 - used)));
        signals.push((Signal::Miss(compute.node), 1.0 - compute.hit_rate));
        signals.push((Signal::Drift(compute.node), compute.drift));
    }
    for link in &state.links {
        let (storage, compute) = (link.storage, link.compute);
        signals.push((Signal::Link { storage, compute }, link.bandwidth_use));
        signals.push((Signal::Slowed { storage, compute }, link.slowed));
    }
    // An imbalance of nodes that have nothing to do matters to nobody.
    let busy = state.storage.iter().any(|storage| storage.load >= 0.5);
    let imbalance = if busy { state.storage_imbalance() - 1.0 } else { 0.0 };
    if state.storage.len() > 1 {
        signals.push((Signal::Imbalance, imbalance));
    }
    signals.sort_by_key(|&(signal, _)| signal);
    signals
}

#[cfg(test)]
mod tests;
