//! The distilled advisor: which of the options that were shown did the best directives of the past take? Learned by
//! logistic regression, one row an option.
//!
//! The best directive for a state is the one that was measured to help most, on average, in the states alike (those that
//! would have shared a directive, see [`rudder_policy::advice::reuse`]); where none helped, the best was to do nothing.

use super::TrainError;
use crate::experience::Experience;
use rudder_graph::random::Key;
use rudder_policy::advice::directive::Action;
use rudder_policy::advice::distilled::Distilled;
use rudder_policy::advice::evaluate::Evaluator;
use rudder_policy::advice::features::{INPUTS, inputs, lever_table};
use rudder_policy::advice::lever::{ACTIONS_MAX, LEVERS, LeverId, Vocabulary};
use rudder_policy::advice::options::{About, Options, options};
use rudder_policy::advice::reuse::THRESHOLD_DEFAULT;
use smartcore::linalg::basic::arrays::Array;
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::linear::logistic_regression::{LogisticRegression, LogisticRegressionParameters};

/// A change of the wait share smaller than this is noise, and no reason to imitate anybody.
const GAIN_MIN: f32 = 0.01;
/// A greater gain, or harm, of one action counts as this.
const GAIN_MAX: f32 = 0.1;
/// Only the newest experience is learned from: each is compared with each.
const ENTRIES_MAX: usize = 2000;
/// Weight of the penalty; inputs are mostly within 0 to 1.
const PENALTY: f64 = 0.5;

/// A distilled advisor and how it does on what it did not see, beside what needs no learning. Agreement of two sets of
/// actions is what they share over what either has; that of a table is the mean over its states.
#[derive(Clone, Debug, PartialEq)]
pub struct Distillation {
    pub model: Distilled,
    /// States learned from, and those kept apart.
    pub learned: usize,
    pub apart: usize,
    pub agreement: f32,
    /// Of the best constant answer, and which it is.
    pub agreement_constant: f32,
    pub constant: &'static str,
    /// Of the built-in rules.
    pub agreement_rules: f32,
}

/// A state with what was shown and what would have been best.
struct Case<'a> {
    experience: &'a Experience,
    options: Options,
    best: Vec<Action>,
    /// What single actions were measured to gain.
    alone: Vec<(Action, f32)>,
}

/// What a directive gained in states that are alike: the mean, since what helped by chance once is no example.
struct Tried<'a> {
    actions: &'a [Action],
    count: u32,
    reward: f32,
}

impl Tried<'_> {
    fn alone(&self) -> Option<(Action, f32)> {
        let &[action] = self.actions else { return None };
        Some((action, self.reward))
    }
}

fn tried<'a>(entries: impl Iterator<Item = &'a Experience>) -> Vec<Tried<'a>> {
    let mut all: Vec<Tried<'a>> = vec![];
    for (entry, reward) in entries.filter_map(|entry| Some((entry, entry.reward()?))) {
        let actions = &entry.directive.actions[..];
        let is_same = |tried: &&mut Tried<'_>| {
            tried.actions.len() == actions.len() && tried.actions.iter().zip(actions).all(|(a, b)| same(a, b))
        };
        match all.iter_mut().find(is_same) {
            Some(tried) => {
                tried.count += 1;
                tried.reward += (reward - tried.reward) / tried.count as f32;
            }
            None => all.push(Tried { actions, count: 1, reward }),
        }
    }
    all
}

/// Fits the distilled advisor. The newest fifth of what was measured is only tested on.
pub fn distil(experience: &[Experience]) -> Result<Distillation, TrainError> {
    let measured: Vec<_> = experience.iter().filter(|e| e.outcome.measured.is_some()).collect();
    if measured.len() < super::MEASURED_MIN {
        return Err(TrainError::TooFew { measured: measured.len() });
    }
    let measured = &measured[measured.len().saturating_sub(ENTRIES_MAX)..];
    let (seen, apart) = measured.split_at(measured.len() - measured.len() / 5);
    let (seen, apart) = (cases(seen), cases(apart));
    let mut model = fit(&seen)?;
    model.threshold = best_threshold(&model, &seen);
    let mean = |answer: &dyn Fn(&Case<'_>) -> Vec<Action>| {
        apart.iter().map(|case| agreement(&case.best, &answer(case))).sum::<f32>() / apart.len() as f32
    };
    let constants = CONSTANTS.map(|(name, constant)| (name, mean(&|case| constant_answer(constant, case))));
    // The first of those that are as good.
    let (constant, agreement_constant) =
        constants.into_iter().rev().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("nothing", 0.0));
    Ok(Distillation {
        agreement: mean(&|case| taken(case, model.choose(&case.options, &case.experience.state))),
        agreement_constant,
        constant,
        agreement_rules: mean(&|case| {
            taken(case, rudder_policy::advice::choose::Chooser::Rules.choose(&case.options, Key::new(0)))
        }),
        learned: seen.len(),
        apart: apart.len(),
        model,
    })
}

/// Answers that need no look at the state: nothing, all that is shown, or the best ranked option of one lever.
#[derive(Clone, Copy)]
enum Constant {
    Nothing,
    Everything,
    Lever(LeverId),
}

const CONSTANTS: [(&str, Constant); 2 + LEVERS.len()] = {
    let mut all = [("nothing", Constant::Nothing); 2 + LEVERS.len()];
    all[1] = ("everything", Constant::Everything);
    let mut at = 0;
    while at < LEVERS.len() {
        all[2 + at] = (LEVERS[at].name, Constant::Lever(LEVERS[at].id));
        at += 1;
    }
    all
};

fn constant_answer(constant: Constant, case: &Case<'_>) -> Vec<Action> {
    let options = &case.options;
    let chosen = match constant {
        Constant::Nothing => vec![],
        Constant::Everything => (0..options.shown.len().min(ACTIONS_MAX)).collect(),
        Constant::Lever(lever) => {
            let own = (0..options.shown.len()).filter(|&at| options.shown[at].action.lever() == lever);
            own.min_by_key(|&at| options.ranks.get(at)).into_iter().collect()
        }
    };
    taken(case, chosen)
}

fn taken(case: &Case<'_>, chosen: Vec<usize>) -> Vec<Action> {
    chosen.into_iter().map(|at| case.options.shown[at].action).collect()
}

/// The time to live does not count.
fn same(a: &Action, b: &Action) -> bool {
    (a.compute, a.change) == (b.compute, b.change)
}

fn agreement(a: &[Action], b: &[Action]) -> f32 {
    let both = a.iter().filter(|one| b.iter().any(|other| same(one, other))).count();
    let either = a.len() + b.len() - both;
    if either == 0 { 1.0 } else { both as f32 / either as f32 }
}

/// What would have been best in each state, as far as these entries tell.
fn cases<'a>(entries: &[&'a Experience]) -> Vec<Case<'a>> {
    let directions: Vec<_> = entries.iter().map(|e| direction(&e.state.metrics(&e.labels()))).collect();
    let alike = |a: &[f32], b: &[f32]| {
        a.len() == b.len() && a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>() >= THRESHOLD_DEFAULT
    };
    let case = |(experience, own): (&&'a Experience, &Vec<f32>)| {
        let similar = directions.iter().zip(entries).filter(|(other, _)| alike(own, other));
        let similar = similar.map(|(_, e)| *e).chain(own.is_empty().then_some(*experience));
        let tried = tried(similar);
        let best = tried.iter().filter(|tried| tried.reward >= GAIN_MIN);
        let best = best.max_by(|a, b| a.reward.total_cmp(&b.reward));
        Case {
            experience,
            options: shown(experience),
            best: best.map_or_else(Vec::new, |best| best.actions.to_vec()),
            alone: tried.iter().filter_map(Tried::alone).collect(),
        }
    };
    entries.iter().zip(&directions).map(case).collect()
}

/// Of length one; empty where nothing was measured.
fn direction(metrics: &[f32]) -> Vec<f32> {
    let length = metrics.iter().map(|m| m * m).sum::<f32>().sqrt();
    if length > 1e-6 { metrics.iter().map(|m| m / length).collect() } else { vec![] }
}

/// The options as they were shown. Entries of earlier versions do not have them: made again, in another order.
fn shown(experience: &Experience) -> Options {
    if !experience.options.shown.is_empty() {
        return experience.options.clone();
    }
    let vocabulary = Vocabulary::of(&experience.state, &experience.labels());
    options(&experience.state, &vocabulary, &About::default(), &Evaluator::default(), Key::new(0))
}

fn fit(seen: &[Case<'_>]) -> Result<Distilled, TrainError> {
    let fail = |error: smartcore::error::Failed| TrainError::Regression { reason: error.to_string() };
    let (mut rows, mut taken) = (vec![], vec![]);
    for case in seen {
        let state = &case.experience.state;
        let shown = case.options.actions();
        let wanted = |action: &Action| case.best.iter().any(|best| same(best, action));
        // What a directive did without being shown is learned, too.
        let unseen = case.best.iter().filter(|best| !shown.iter().any(|action| same(action, best)));
        for action in shown.iter().chain(unseen) {
            rows.push(inputs(action, state).map(f64::from).to_vec());
            taken.push(u32::from(wanted(action)));
        }
    }
    if taken.iter().all(|&taken| taken == 0) || taken.iter().all(|&taken| taken == 1) {
        return Err(TrainError::NothingToImitate);
    }
    let x = DenseMatrix::from_2d_vec(&rows).map_err(fail)?;
    let parameters = LogisticRegressionParameters::default().with_alpha(PENALTY);
    let fitted = LogisticRegression::fit(&x, &taken, parameters).map_err(fail)?;
    // The library's positive class is its second.
    let sign = if fitted.classes().last() == Some(&1) { 1.0 } else { -1.0 };
    let weight = |at| (*fitted.coefficients().get((0, at)) * sign) as f32;
    // The intercept is the threshold's, which is fitted by itself.
    let model =
        Distilled { lever_table: lever_table(), weights: (0..INPUTS).map(weight).collect(), threshold: 0.0 };
    model.check().map_err(|error| TrainError::Regression { reason: error.to_string() })?;
    Ok(model)
}

/// The threshold with which the model gains most where it was learned: agreement would let it do nothing, which is the
/// best answer in most states. Only options that were expected to help count, where there are any: no others are shown.
fn best_threshold(model: &Distilled, seen: &[Case<'_>]) -> f32 {
    let expected: Vec<_> = seen.iter().map(|case| (case, case.options.expected())).collect();
    let offered = match expected.iter().all(|(_, options)| options.shown.is_empty()) {
        true => seen.iter().map(|case| (case, case.options.clone())).collect(),
        false => expected,
    };
    let score = |case: &Case<'_>, action: &Action| model.score(&inputs(action, &case.experience.state));
    let scores = offered.iter().flat_map(|(case, options)| {
        options.actions().iter().map(|action| score(case, action)).collect::<Vec<_>>()
    });
    let mut scores: Vec<_> = scores.collect();
    scores.sort_by(f32::total_cmp);
    let highest = scores.last().map_or(0.0, |last| last + 1.0);
    const TRIED: usize = 100;
    let tried = (0..TRIED).map(|at| at * scores.len() / TRIED);
    let tried = tried.filter(|&at| at < scores.len()).map(|at| scores[at]).chain([highest]);
    let gains = |threshold: f32| {
        let model = Distilled { threshold, ..model.clone() };
        let gained = offered.iter().map(|(case, options)| {
            let chosen = model.choose(options, &case.experience.state);
            gain(case, &chosen.into_iter().map(|at| options.shown[at].action).collect::<Vec<_>>())
        });
        gained.sum::<f32>()
    };
    let best = tried.map(|threshold| (gains(threshold), threshold)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(highest, |(_, threshold)| threshold)
}

/// What these actions were measured to gain, each alone; of those that were never tried nothing is known.
fn gain(case: &Case<'_>, actions: &[Action]) -> f32 {
    let of = |action: &Action| case.alone.iter().find(|(known, _)| same(known, action));
    actions.iter().filter_map(of).map(|&(_, reward)| reward.clamp(-GAIN_MAX, GAIN_MAX)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::tests::{experience, measured};

    #[test]
    fn what_the_best_did_is_imitated_where_constant_answers_are_not_enough() {
        let all: Vec<_> = (0..500).map(experience).collect();
        let distilled = distil(&all).unwrap();
        assert_eq!((distilled.learned, distilled.apart), (400, 100));
        assert!(distilled.agreement > 0.85, "{distilled:?}");
        assert!(distilled.agreement > distilled.agreement_constant + 0.15, "{distilled:?}");
        assert!(distilled.agreement > distilled.agreement_rules + 0.15, "{distilled:?}");
        assert_eq!(distilled.model.check(), Ok(()));
    }

    #[test]
    fn what_was_not_measured_or_never_helped_teaches_nothing() {
        let few: Vec<_> = (0..10).map(experience).collect();
        assert!(matches!(distil(&few), Err(TrainError::TooFew { measured: 10 })));
        let hurt: Vec<_> = (0..100).map(|seed| measured(experience(seed), 0.1)).collect();
        assert!(matches!(distil(&hurt), Err(TrainError::NothingToImitate)));
    }

    #[test]
    fn agreement_is_what_is_shared_over_what_either_has() {
        let all: Vec<_> = (0..20).map(experience).flat_map(|e| e.options.actions()).collect();
        let (a, b) = (all[0], *all.iter().find(|other| !same(&all[0], other)).unwrap());
        let longer = Action { ttl_s: a.ttl_s + 1, ..a };
        let cases: [(&[Action], &[Action], f32); 5] = [
            (&[], &[], 1.0),
            (&[a], &[], 0.0),
            (&[a], &[longer], 1.0),
            (&[a, b], &[a], 0.5),
            (&[a], &[b], 0.0),
        ];
        for (one, other, expected) in cases {
            assert_eq!((agreement(one, other), agreement(other, one)), (expected, expected));
        }
    }
}
