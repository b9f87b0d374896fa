//! A small model that answers like the best past directives: for each option that is shown, whether one of those would
//! have taken it, from the action and the state. A line through [`inputs`]; its weights are learned elsewhere.

use super::features::{INPUTS, ModelError, check, inputs};
use super::lever::ACTIONS_MAX;
use super::options::Options;
use super::state::ClusterState;
use serde::{Deserialize, Serialize};

/// The model. What it was learned for is part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distilled {
    /// [`super::features::lever_table`] when it was learned.
    pub lever_table: u64,
    pub weights: Vec<f32>,
    /// An option is taken from this score on.
    pub threshold: f32,
}

impl Distilled {
    /// A model read from outside may be of another version.
    pub fn check(&self) -> Result<(), ModelError> {
        check(self.lever_table, &self.weights)?;
        match self.threshold.is_finite() {
            true => Ok(()),
            false => Err(ModelError::Weights { found: self.weights.len() }),
        }
    }

    /// How much an option is like what the best directives took.
    #[must_use]
    pub fn score(&self, inputs: &[f32; INPUTS]) -> f32 {
        self.weights.iter().zip(inputs).map(|(weight, input)| weight * input).sum()
    }

    /// Indexes into the options as shown, best first.
    #[must_use]
    pub fn choose(&self, options: &Options, state: &ClusterState) -> Vec<usize> {
        let scores: Vec<_> =
            options.shown.iter().map(|choice| self.score(&inputs(&choice.action, state))).collect();
        let mut chosen: Vec<_> = (0..scores.len()).filter(|&at| scores[at] >= self.threshold).collect();
        chosen.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        chosen.truncate(ACTIONS_MAX);
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::directive::{Action, Change};
    use crate::advice::features::{FEATURES, OWN, lever_table};
    use crate::advice::lever::LEVERS;
    use crate::advice::lever::LeverId;
    use crate::advice::options::Choice;
    use crate::advice::parse::tests::state;
    use crate::parameters::Posture;
    use proptest::prelude::*;
    use rudder_topology::{JobId, NodeId};

    fn model(change: impl Fn(&mut Vec<f32>)) -> Distilled {
        let mut weights = vec![0.0; INPUTS];
        change(&mut weights);
        Distilled { lever_table: lever_table(), weights, threshold: 0.5 }
    }

    fn options() -> Options {
        let changes =
            [Change::Posture(Posture::DemandOnly), Change::JobHorizon { job: JobId(0), minibatches: 2 }];
        let action = |change| Action { compute: NodeId(0), change, ttl_s: 60 };
        let choice = |change| Choice { action: action(change), predicted: 0.0 };
        Options { shown: changes.map(choice).to_vec(), ranks: vec![0, 1] }
    }

    #[test]
    fn options_at_or_over_the_threshold_are_taken_best_first() {
        let place = |id| LEVERS.iter().position(|lever| lever.id == id).unwrap();
        let model = |posture, horizon| {
            model(|weights| {
                weights[place(LeverId::Posture)] = posture;
                weights[place(LeverId::JobHorizon)] = horizon;
            })
        };
        let cases: [(f32, f32, &[usize]); 4] =
            [(1.0, 0.0, &[0]), (0.5, 2.0, &[1, 0]), (0.4, 0.4, &[]), (0.0, 0.5, &[1])];
        for (posture, horizon, expected) in cases {
            assert_eq!(model(posture, horizon).choose(&options(), &state()), expected, "{posture} {horizon}");
        }
    }

    #[test]
    fn each_lever_has_weights_of_its_own() {
        let own: Vec<_> = options().actions().iter().map(|action| inputs(action, &state())).collect();
        let places = |inputs: &[f32; INPUTS]| {
            let set = inputs.iter().enumerate().skip(FEATURES).filter(|(_, value)| **value != 0.0);
            set.map(|(at, _)| (at - FEATURES) / OWN.len()).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!((places(&own[0]), places(&own[1])), ([2].into(), [3].into()));
    }

    #[test]
    fn another_table_or_shape_is_refused() {
        let good = model(|_| {});
        assert_eq!(good.check(), Ok(()));
        let other = Distilled { lever_table: good.lever_table ^ 1, ..good.clone() };
        assert_eq!(other.check(), Err(ModelError::OtherLevers));
        let short = Distilled { weights: vec![0.0; 3], ..good.clone() };
        assert_eq!(short.check(), Err(ModelError::Weights { found: 3 }));
        let wild = Distilled { threshold: f32::NAN, ..good };
        assert!(wild.check().is_err());
    }

    proptest! {
        #[test]
        fn any_weights_choose_within_the_options(weights in prop::collection::vec(prop::num::f32::ANY, INPUTS)) {
            let chosen = model(|into| into.clone_from(&weights)).choose(&options(), &state());
            prop_assert!(chosen.iter().all(|&at| at < 2));
        }
    }
}
