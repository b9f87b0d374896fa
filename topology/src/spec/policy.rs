//! A policy as written: a name, or a table of one key with the policy's own parameters. Parameters that are left out
//! are the published ones.

use serde::Serialize;

/// `policy = "rudder"`, `policy = { fixed_window = 8 }`, `policy = { massivegnn = { delta = 64 } }`, ...
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PolicyText {
    Name(String),
    FixedWindow { fixed_window: u32 },
    Presc { presc: SamplingText },
    Vip { vip: SamplingText },
    MassiveGnn { massivegnn: MassiveGnnText },
    RudderPaper { rudder_paper: RudderPaperText },
    WindowStatic { window_static: WindowStaticText },
    BeladySuperbatch { belady_superbatch: u32 },
    Rudder { rudder: SamplingText },
}

/// How trainers sample: `{ seeds = 1024, fanout = [15, 10, 5] }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SamplingText {
    /// Epochs that `presc` samples; others have none. 1 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u32>,
    /// Seeds of a minibatch, 1 to 1,048,576.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<u32>,
    /// Neighbours a hop: 1 to 8 hops of 1 to 65,535.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fanout: Option<Vec<u32>>,
}

/// `{ alpha = 0.005, delta = 32, f = 0.25 }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MassiveGnnText {
    /// 0.000001 to 0.999999.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// 1 to 1,048,576 minibatches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<u32>,
    /// 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f: Option<f64>,
}

/// As `massivegnn`, and `controller`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RudderPaperText {
    #[serde(flatten)]
    pub scoring: MassiveGnnText,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerText>,
}

/// `"always"` (the default), `"never"`, `{ random = 0.5 }` or `{ every = 32 }`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ControllerText {
    Name(String),
    Random { random: f64 },
    Every { every: u32 },
}

/// `{ minibatches = 500, cache = 0.4 }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WindowStaticText {
    /// 1 to 511: two windows have to be announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minibatches: Option<u32>,
    /// 0 to 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<f64>,
}
