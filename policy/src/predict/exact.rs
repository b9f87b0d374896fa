//! The future that is known: minibatches that trainers announced, and those that a replay of their sampler foresaw.

use super::{Certainty, Horizon, NextUse, Predictor};
use crate::window::{EntryId, Forecast, Window};
use rudder_topology::BlockId;
use rustc_hash::FxHashMap;

/// The window as a predictor. Made anew for each plan.
#[derive(Clone, Debug)]
pub struct ExactWindow<'a> {
    window: &'a Window,
    forecasts: FxHashMap<EntryId, Forecast>,
    /// Minibatches of the trainer that is known furthest.
    minibatches: u32,
}

impl<'a> ExactWindow<'a> {
    #[must_use]
    pub fn new(window: &'a Window) -> Self {
        let forecasts = window.by_time_of_use();
        let minibatches = forecasts.iter().map(|f| f.ahead + 1).max().unwrap_or(0);
        ExactWindow { window, forecasts: forecasts.into_iter().map(|f| (f.entry, f)).collect(), minibatches }
    }
}

impl Predictor for ExactWindow<'_> {
    fn horizon(&self) -> Horizon {
        Horizon::Minibatches(self.minibatches)
    }

    fn certainty(&self) -> Certainty {
        Certainty::Exact
    }

    fn expected_uses(&self, block: BlockId) -> f32 {
        self.window.uses(block).count() as f32 / self.forecasts.len().max(1) as f32
    }

    fn next_use(&self, block: BlockId) -> Option<NextUse> {
        let uses = self.window.uses(block).filter_map(|user| self.forecasts.get(&user));
        let next = uses.min_by_key(|forecast| (forecast.in_ns, forecast.ahead))?;
        Some(NextUse { minibatches_ahead: next.ahead, in_ns: next.in_ns })
    }
}
