//! What learned models are told of an action in a state, and for which table of levers they were learned.

use super::directive::{Action, Change};
use super::evaluate::{busiest, predict, shorter};
use super::lever::{Kind, LEVERS};
use super::state::ClusterState;
use rudder_graph::random::Key;

/// The features of [`features`] that are no lever and no prediction.
pub const OWN: std::ops::Range<usize> = LEVERS.len()..LEVERS.len() + 14;
/// Numbers of [`features`].
pub const FEATURES: usize = OWN.end + 1;

/// Numbers of [`inputs`], with the table of levers as it is: each lever weighs amount and state in its own way.
pub const INPUTS: usize = FEATURES + LEVERS.len() * (OWN.end - OWN.start);

/// Why a model cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("it was learned with another table of levers; train it again with this version")]
    OtherLevers,
    #[error("it has {found} weights instead of {INPUTS}, or numbers that are none; train it again")]
    Weights { found: usize },
}

/// A model read from outside may be of another version, and its numbers anything.
pub fn check(of_table: u64, weights: &[f32]) -> Result<(), ModelError> {
    if of_table != lever_table() {
        return Err(ModelError::OtherLevers);
    }
    if weights.len() != INPUTS || weights.iter().any(|weight| !weight.is_finite()) {
        return Err(ModelError::Weights { found: weights.len() });
    }
    Ok(())
}

/// What a learned model is told of an action in a state; all finite, most within 0 to 1: which lever it is, in the
/// table's order, then amount and state ([`OWN`]), then the closed form's answer, so that a model can start from it.
#[must_use]
pub fn features(action: &Action, state: &ClusterState) -> [f32; FEATURES] {
    let mut f = [0.0; FEATURES];
    if let Some(lever) = LEVERS.iter().position(|lever| lever.id == action.lever()) {
        f[lever] = 1.0;
    }
    let (storage, amount) = match action.change {
        Change::LinkShare { storage, percent } => (Some(storage), 1.0 - f32::from(percent) / 100.0),
        Change::Stage { storage, .. } => (Some(storage), 1.0),
        Change::Posture(posture) => (None, 1.0 - posture.prefetch_percent() as f32 / 100.0),
        Change::JobHorizon { minibatches, .. } => (None, 1.0 / minibatches.max(1) as f32),
        Change::FarPredictor { minibatches } => (None, shorter(minibatches)),
        Change::WarmGroup(_) => (None, 1.0),
        Change::WarmBlock(_) => (None, 0.1),
    };
    let own = &mut f[OWN];
    own[0] = amount;
    if let Some(storage) = storage {
        let node = state.storage_node(storage);
        own[1] = node.map_or(0.0, |node| node.load);
        own[2] = node.map_or(0.0, |node| node.replicated);
        own[3] = state.link(storage, action.compute).map_or(1.0, |link| link.rate_share);
    }
    if let Some(compute) = state.compute_node(action.compute) {
        own[4] = compute.wait_share;
        own[5] = compute.hit_rate;
        own[6] = busiest(compute, state);
        own[7] = compute.prefetch_share;
        own[8] = compute.cache_free;
        own[9] = compute.stretched;
        own[10] = compute.window_share.min(4.0) / 4.0;
        own[11] = compute.moved_share.min(2.0) / 2.0;
        own[12] = compute.minibatch_share;
        own[13] = compute.drift;
    }
    f[FEATURES - 1] = predict(action, state);
    f.map(|value| if value.is_finite() { value.clamp(-10.0, 10.0) } else { 0.0 })
}

/// What the model is told of an action: its features, and those of its state once more in the place of its lever.
#[must_use]
pub fn inputs(action: &Action, state: &ClusterState) -> [f32; INPUTS] {
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
