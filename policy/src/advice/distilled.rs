//! A small model that answers like the best past directives: for each option that is shown, whether one of those would
//! have taken it, from the action and the state. A line through [`inputs`]; its weights are learned elsewhere.

use super::evaluate::{FEATURES, OWN, features};
use super::lever::{ACTIONS_MAX, Kind, LEVERS};
use super::options::Options;
use super::state::ClusterState;
use rudder_graph::random::Key;
use serde::{Deserialize, Serialize};

/// Numbers of [`inputs`], with the table of levers as it is: each lever weighs amount and state in its own way.
pub const INPUTS: usize = FEATURES + LEVERS.len() * (OWN.end - OWN.start);

/// The model. What it was learned for is part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distilled {
    /// [`lever_table`] when it was learned.
    pub lever_table: u64,
    pub weights: Vec<f32>,
    /// An option is taken from this score on.
    pub threshold: f32,
}

/// Why a model cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DistilledError {
    #[error("it was learned with another table of levers; train it again with this version")]
    OtherLevers,
    #[error("it has {found} weights instead of {INPUTS}, or numbers that are none; train it again")]
    Weights { found: usize },
}

impl Distilled {
    /// A model read from outside may be of another version.
    pub fn check(&self) -> Result<(), DistilledError> {
        if self.lever_table != lever_table() {
            return Err(DistilledError::OtherLevers);
        }
        let finite = self.weights.iter().chain([&self.threshold]).all(|value| value.is_finite());
        if self.weights.len() != INPUTS || !finite {
            return Err(DistilledError::Weights { found: self.weights.len() });
        }
        Ok(())
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

/// What the model is told of an action: its features, and those of its state once more in the place of its lever.
#[must_use]
pub fn inputs(action: &super::directive::Action, state: &ClusterState) -> [f32; INPUTS] {
    let mut inputs = [0.0; INPUTS];
    let features = features(action, state);
    inputs[..FEATURES].copy_from_slice(&features);
    let lever = LEVERS.iter().position(|lever| lever.id == action.lever()).unwrap_or(0);
    let own = &features[OWN];
    let at = FEATURES + lever * own.len();
    inputs[at..at + own.len()].copy_from_slice(own);
    inputs
}

/// Tells tables of levers apart: names, fields, kinds and ranges, in their order, and how many features there are.
#[must_use]
pub fn lever_table() -> u64 {
    let word = |key: Key, text: &str| text.bytes().fold(key.with(7), |key, byte| key.with(u64::from(byte)));
    let mut key = Key::new(FEATURES as u64);
    for lever in LEVERS {
        key = word(key, lever.name);
        for field in lever.fields {
            key = word(key, field.name);
            key = match field.kind {
                Kind::Choice(choices) => choices.iter().fold(key.with(1), |key, choice| word(key, choice)),
                Kind::Integer { min, max } => key.with(2).with(u64::from(min)).with(u64::from(max)),
                Kind::Compute => key.with(3),
                Kind::Link => key.with(4),
                Kind::Job => key.with(5),
                Kind::Group => key.with(6),
                Kind::Block => key.with(8),
                Kind::Storage => key.with(9),
            };
        }
    }
    key.draw(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::directive::{Action, Change};
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
        assert_eq!(other.check(), Err(DistilledError::OtherLevers));
        let short = Distilled { weights: vec![0.0; 3], ..good.clone() };
        assert_eq!(short.check(), Err(DistilledError::Weights { found: 3 }));
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
