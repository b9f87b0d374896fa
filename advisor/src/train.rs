//! What is learned from experience: the evaluator, a ridge regression of the measured change on the features of a
//! directive's actions; and the distilled advisor.

pub mod distil;

use crate::experience::Experience;
use rudder_policy::advice::distilled::Distilled;
use rudder_policy::advice::evaluate::Evaluator;
use rudder_policy::advice::features::{INPUTS, ModelError, lever_table};
use rudder_policy::advice::lever::{LEVERS, LeverId};
use serde::de::DeserializeOwned;
use smartcore::linalg::basic::arrays::Array;
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::linear::ridge_regression::{RidgeRegression, RidgeRegressionParameters};
use std::io::Read;
use std::path::Path;

/// Judged directives with a measurement that training needs at least.
pub const MEASURED_MIN: usize = 30;
/// A model's file is some kilobytes.
const MODEL_BYTES_MAX: u64 = 1 << 20;
/// Weight of the penalty; inputs are mostly within 0 to 1.
const PENALTY: f64 = 3.0;
/// Changes of the stall share beyond this count as this: what does great harm would outweigh all the rest.
const CHANGE_MAX: f32 = 0.1;
/// Smaller ones have no sign that could be told.
const CHANGE_MIN: f32 = 0.001;

/// An evaluator and how well it does on what it did not see, beside what needs no learning.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    pub evaluator: Evaluator,
    /// Measured directives in all; the newest fifth was kept apart to test on.
    pub measured: usize,
    /// On the part kept apart.
    pub signs: Signs,
    /// The same of the directives that pull one lever only, for levers of which some were measured.
    pub levers: Vec<(&'static str, Signs)>,
}

/// Which share of the signs of measured changes was right: the learned evaluator's, the closed form's, and the better
/// of the two constant answers'.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signs {
    pub measured: usize,
    pub learned: f32,
    pub closed_form: f32,
    pub constant: f32,
}

/// Why nothing was learned.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error("{measured} measured directives are too few to learn from; at least {MEASURED_MIN} are needed")]
    TooFew { measured: usize },
    #[error(
        "no directive was measured to help, or every option was always right: there is nothing to imitate"
    )]
    NothingToImitate,
    #[error("the regression failed: {reason}")]
    Regression { reason: String },
    #[error("{file}: {reason}; name a file that `rudder experience train` wrote")]
    File { file: String, reason: String },
}

/// Fits the evaluator. The newest fifth of what was measured is only tested on.
pub fn train(experience: &[Experience]) -> Result<Trained, TrainError> {
    let measured: Vec<_> = experience.iter().filter_map(|e| Some((e, e.outcome.measured?))).collect();
    if measured.len() < MEASURED_MIN {
        return Err(TrainError::TooFew { measured: measured.len() });
    }
    let (seen, apart) = measured.split_at(measured.len() - measured.len() / 5);
    let evaluator = fit(seen)?;
    let told = |(_, change): &&(&Experience, f32)| change.abs() >= CHANGE_MIN;
    let apart: Vec<_> = apart.iter().filter(told).copied().collect();
    let of_lever = |lever: LeverId| {
        let pulls = |(e, _): &&(&Experience, f32)| e.directive.actions.iter().all(|a| a.lever() == lever);
        apart.iter().filter(pulls).copied().collect::<Vec<_>>()
    };
    let levers = LEVERS.iter().map(|lever| (lever.name, signs(&evaluator, &of_lever(lever.id))));
    Ok(Trained {
        signs: signs(&evaluator, &apart),
        levers: levers.filter(|(_, signs)| signs.measured > 0).collect(),
        measured: measured.len(),
        evaluator,
    })
}

fn signs(evaluator: &Evaluator, measured: &[(&Experience, f32)]) -> Signs {
    let right = |predict: &dyn Fn(&Experience) -> f32| {
        let right = measured.iter().filter(|(e, change)| (predict(e) < 0.0) == (*change < 0.0)).count();
        right as f32 / measured.len().max(1) as f32
    };
    let sum = |evaluator: &Evaluator, e: &Experience| {
        e.directive.actions.iter().map(|a| evaluator.predict(a, &e.state)).sum::<f32>()
    };
    Signs {
        measured: measured.len(),
        learned: right(&|e| sum(evaluator, e)),
        closed_form: right(&|e| sum(&Evaluator::ClosedForm, e)),
        constant: right(&|_| -1.0).max(right(&|_| 1.0)),
    }
}

fn fit(seen: &[(&Experience, f32)]) -> Result<Evaluator, TrainError> {
    let fail = |error: smartcore::error::Failed| TrainError::Regression { reason: error.to_string() };
    // Each row once more with the other sign: then nothing is left for an intercept, and a directive's prediction is
    // the sum of its actions'.
    // And so often that there are as many rows as columns, which smartcore wants: it changes nothing while the penalty
    // grows as they do.
    let times = INPUTS.div_ceil(2 * seen.len().max(1));
    let signs = (0..times).flat_map(|_| [1.0, -1.0]);
    let signed = || signs.clone().flat_map(|sign| seen.iter().map(move |of| (sign, of)));
    let row = |(sign, (e, _)): (f64, &(&Experience, f32))| e.inputs().map(|f| f64::from(f) * sign).to_vec();
    let rows: Vec<Vec<f64>> = signed().map(row).collect();
    let x = DenseMatrix::from_2d_vec(&rows).map_err(fail)?;
    let clamped = |change: f32| f64::from(change.clamp(-CHANGE_MAX, CHANGE_MAX));
    let y: Vec<f64> = signed().map(|(sign, &(_, change))| clamped(change) * sign).collect();
    let parameters =
        RidgeRegressionParameters { alpha: PENALTY * times as f64, normalize: false, ..Default::default() };
    let fitted = RidgeRegression::fit(&x, &y, parameters).map_err(fail)?;
    let weights = (0..INPUTS).map(|at| *fitted.coefficients().get((at, 0)) as f32).collect();
    let evaluator = Evaluator::Learned { lever_table: lever_table(), weights };
    evaluator.check().map_err(|error| TrainError::Regression { reason: error.to_string() })?;
    Ok(evaluator)
}

/// Reads an evaluator that was trained before, with this table of levers.
pub fn read(path: &Path) -> Result<Evaluator, TrainError> {
    let evaluator: Evaluator = read_json(path)?;
    evaluator.check().map_err(|error| unusable(path, error))?;
    Ok(evaluator)
}

fn unusable(path: &Path, error: ModelError) -> TrainError {
    TrainError::File { file: path.display().to_string(), reason: error.to_string() }
}

/// Reads a distilled advisor that was trained before, with this table of levers.
pub fn read_distilled(path: &Path) -> Result<Distilled, TrainError> {
    let model: Distilled = read_json(path)?;
    model.check().map(|()| model).map_err(|error| unusable(path, error))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, TrainError> {
    let fail = |reason: String| TrainError::File { file: path.display().to_string(), reason };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| fail(error.to_string()))?;
    file.take(MODEL_BYTES_MAX).read_to_string(&mut text).map_err(|error| fail(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| fail(error.to_string()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rudder_graph::random::Key;
    use rudder_policy::advice::directive::{Action, Change, Directive};
    use rudder_policy::advice::options::{Choice, Options};
    use rudder_policy::advice::state::{ClusterState, ComputeState};
    use rudder_policy::advice::trial::{Outcome, TrialVerdict};
    use rudder_policy::parameters::Posture;
    use rudder_topology::{JobId, NodeId};

    /// A world in which a posture helps where the hit rate is low, whatever the closed form thinks.
    pub(crate) fn experience(seed: u64) -> Experience {
        let key = Key::new(seed);
        let hit_rate = key.unit(0) as f32;
        let compute = ComputeState {
            node: NodeId(0),
            gpu_use: None,
            wait_share: 0.5,
            stretched: 0.0,
            stall_share: 0.0,
            stall_lately: 0.0,
            hit_rate,
            drift: 0.0,
            prefetch_share: 0.5,
            cache_free: 0.0,
            minibatch_share: 0.1,
            holds_share: 0.1,
            window_share: 0.4,
            moved_share: 0.5,
            ready: 0,
            waiting: vec![],
            next: vec![],
            wants: vec![],
            jobs: vec![],
        };
        let posture = Change::Posture(Posture::DemandOnly);
        let horizon = Change::JobHorizon { job: JobId(0), minibatches: 2 };
        let change = if key.below(1, 2) == 0 { posture } else { horizon };
        let truth = if change == posture { (hit_rate - 0.5) * 0.4 } else { 0.05 };
        let action = |change| Action { compute: NodeId(0), change, ttl_s: 60 };
        let shown = [horizon, posture].map(|change| Choice { action: action(change), predicted: -0.05 });
        let noise = (key.unit(2) as f32 - 0.5) * 0.02;
        Experience {
            state: ClusterState { compute: vec![compute], ..ClusterState::default() },
            options: Options { shown: shown.to_vec(), ranks: vec![0, 1] },
            directive: Directive { actions: vec![action(change)] },
            outcome: Outcome { predicted: 0.0, measured: Some(truth + noise), verdict: TrialVerdict::Kept },
            ..crate::experience::tests::experience(seed)
        }
    }

    /// With another outcome.
    pub(crate) fn measured(experience: Experience, change: f32) -> Experience {
        let outcome = Outcome { measured: Some(change), ..experience.outcome };
        Experience { outcome, ..experience }
    }

    #[test]
    fn a_distilled_advisor_of_another_table_is_refused_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("d.json");
        let model = distil::distil(&(0..100).map(experience).collect::<Vec<_>>()).unwrap().model;
        std::fs::write(&file, serde_json::to_string(&model).unwrap()).unwrap();
        assert_eq!(read_distilled(&file).unwrap(), model);
        let other = Distilled { lever_table: 1, ..model };
        std::fs::write(&file, serde_json::to_string(&other).unwrap()).unwrap();
        let said = read_distilled(&file).unwrap_err().to_string();
        assert!(said.contains("d.json") && said.contains("another table of levers"), "{said}");
        assert!(read_distilled(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn what_experience_shows_is_learned_and_beats_constant_answers() {
        let all: Vec<_> = (0..400).map(experience).collect();
        let trained = train(&all).unwrap();
        assert_eq!(trained.measured, 400);
        assert!(trained.signs.learned > 0.85, "{trained:?}");
        assert!(trained.signs.learned > trained.signs.constant + 0.1, "{trained:?}");
        let of = |name| trained.levers.iter().find(|(lever, _)| *lever == name).unwrap().1;
        assert!(of("posture").learned > of("posture").constant + 0.1, "{trained:?}");
        assert_eq!(of("posture").measured + of("job_horizon").measured, trained.signs.measured);
        let text = serde_json::to_string(&trained.evaluator).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("e.json"), text).unwrap();
        assert_eq!(read(&folder.path().join("e.json")).unwrap(), trained.evaluator);
        let other = Evaluator::Learned { lever_table: 1, weights: vec![0.0; INPUTS] };
        std::fs::write(folder.path().join("o.json"), serde_json::to_string(&other).unwrap()).unwrap();
        assert!(read(&folder.path().join("o.json")).unwrap_err().to_string().contains("another table"));
        assert!(read(&folder.path().join("none.json")).unwrap_err().to_string().contains("none.json"));
    }

    #[test]
    fn too_little_is_said() {
        let mut few: Vec<_> = (0..40).map(experience).collect();
        few.iter_mut().skip(29).for_each(|e| e.outcome.measured = None);
        assert!(matches!(train(&few), Err(TrainError::TooFew { measured: 29 })));
    }
}
