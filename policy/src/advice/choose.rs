//! The advisors that are no model: the built-in rules, and the controls that every comparison needs.

use super::directive::Directive;
use super::evaluate::Evaluator;
use super::labels::Labels;
use super::lever::{ACTIONS_MAX, Vocabulary};
use super::options::{About, Options, options};
use super::state::ClusterState;
use rudder_graph::random::Key;
use serde::{Deserialize, Serialize};

/// An expected change of the stall share smaller than this is not worth an action: a trial could not tell it from chance.
const WORTH: f32 = 0.02;

/// Who chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chooser {
    /// What the evaluator expects to help, best first.
    Rules,
    /// Nothing.
    Never,
    /// Everything that is shown.
    Always,
    /// Each option with probability a half.
    Random,
    /// The first option that is shown: what position bias alone would do.
    First,
}

impl Chooser {
    /// Indexes into the options as shown.
    #[must_use]
    pub fn choose(self, options: &Options, key: Key) -> Vec<usize> {
        let count = options.shown.len();
        let mut chosen: Vec<_> = match self {
            Chooser::Never => vec![],
            Chooser::Always => (0..count).collect(),
            Chooser::First => (0..count.min(1)).collect(),
            Chooser::Random => (0..count).filter(|&at| key.below(at as u64, 2) == 1).collect(),
            Chooser::Rules => {
                let mut worth: Vec<_> =
                    (0..count).filter(|&at| options.shown[at].predicted <= -WORTH).collect();
                worth.sort_by_key(|&at| options.ranks[at]);
                worth
            }
        };
        chosen.truncate(ACTIONS_MAX);
        chosen
    }
}

/// What the rules do in a state, and what is expected of it.
#[must_use]
pub fn rules(state: &ClusterState, labels: &Labels, about: &About, key: Key) -> (Directive, f32) {
    let vocabulary = Vocabulary::of(state, labels);
    let options = options(state, &vocabulary, about, &Evaluator::ClosedForm, key);
    let chosen = Chooser::Rules.choose(&options, key);
    let chosen = || chosen.iter().map(|&at| options.shown[at]);
    let directive = Directive { actions: chosen().map(|choice| choice.action).collect() };
    (directive, chosen().map(|choice| choice.predicted).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::directive::{Action, Change};
    use crate::advice::options::Choice;
    use rudder_topology::NodeId;

    fn options(predicted: &[f32]) -> Options {
        let choice = |(at, &predicted): (usize, &f32)| Choice {
            action: Action {
                compute: NodeId(at as u16),
                change: Change::LinkShare { storage: NodeId(9), percent: 50 },
                ttl_s: 60,
            },
            predicted,
        };
        let mut ranks: Vec<_> = (0..predicted.len()).collect();
        ranks.sort_by(|&a, &b| predicted[a].total_cmp(&predicted[b]));
        let ranks = (0..predicted.len()).map(|at| ranks.iter().position(|&r| r == at).unwrap()).collect();
        Options { shown: predicted.iter().enumerate().map(choice).collect(), ranks }
    }

    #[test]
    fn each_chooser_chooses_its_way() {
        let options = options(&[-0.05, 0.0, -0.2, -0.01]);
        let cases: [(Chooser, &[usize]); 4] = [
            (Chooser::Rules, &[2, 0]),
            (Chooser::Never, &[]),
            (Chooser::Always, &[0, 1, 2, 3]),
            (Chooser::First, &[0]),
        ];
        for (chooser, expected) in cases {
            assert_eq!(chooser.choose(&options, Key::new(1)), expected, "{chooser:?}");
        }
    }

    #[test]
    fn random_is_repeatable_and_chooses_each_about_half_of_the_time() {
        let options = options(&[-0.01; 4]);
        let draws: Vec<_> = (0..400).map(|seed| Chooser::Random.choose(&options, Key::new(seed))).collect();
        assert_eq!(draws[3], Chooser::Random.choose(&options, Key::new(3)));
        for at in 0..4 {
            let count = draws.iter().filter(|chosen| chosen.contains(&at)).count();
            assert!((140..260).contains(&count), "option {at}: {count} of 400");
        }
    }

    #[test]
    fn without_options_nobody_chooses() {
        for chooser in [Chooser::Rules, Chooser::Never, Chooser::Always, Chooser::Random, Chooser::First] {
            assert!(chooser.choose(&Options::default(), Key::new(0)).is_empty());
        }
    }
}
