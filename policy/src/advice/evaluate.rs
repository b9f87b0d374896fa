//! What an action is expected to change, before it is tried: the change of the worst wait share, negative is better.
//!
//! The closed form here is the start; a learned model takes the same features once there is experience.

use super::directive::{Action, Change};
use super::lever::LEVERS;
use super::state::{ClusterState, ComputeState, JobState, LinkState, StorageState};
use crate::parameters::{HALF_LIFE_MINIBATCHES, Posture};
use rudder_topology::NodeId;
use serde::{Deserialize, Serialize};

/// A link or device used this much is full.
const FULL: f32 = 0.9;
/// A link used less than this has room for what is not urgent.
const IDLE: f32 = 0.5;
/// Of a possible gain, what is expected: the fast loop has taken some of it already.
const CAUTION: f32 = 0.5;
/// A link that is slower than another by less is not slow.
const SLOW: f32 = 0.3;
/// What moving bytes for nothing costs.
const NUISANCE: f32 = 0.01;

/// The features of [`features`] that are no lever and no prediction.
pub const OWN: std::ops::Range<usize> = LEVERS.len()..LEVERS.len() + 14;
/// Numbers of [`features`].
pub const FEATURES: usize = OWN.end + 1;

/// The expected change of the wait share of whoever gains or loses most by the action.
#[must_use]
pub fn predict(action: &Action, state: &ClusterState) -> f32 {
    let Some(compute) = state.compute_node(action.compute) else { return 0.0 };
    let change = match action.change {
        Change::LinkShare { storage, percent } => {
            let given_up = 1.0 - f32::from(percent) / 100.0;
            link_share(compute, storage, given_up, state)
        }
        Change::Stage { storage, through } => stage(compute, storage, through, state),
        Change::Posture(posture) => {
            let given_up = 1.0 - posture.prefetch_percent() as f32 / 100.0;
            posture_change(compute, posture, given_up, state)
        }
        Change::JobHorizon { job, minibatches } => {
            let own = compute.jobs.iter().find(|of| of.job == job);
            let Some(own) = own.filter(|own| own.ahead > minibatches) else { return 0.0 };
            job_horizon(compute, own, minibatches)
        }
        Change::FarPredictor { minibatches } => far_predictor(compute, shorter(minibatches)),
        Change::WarmGroup(group) => {
            let wanted: u64 = compute.wants.iter().map(|&(_, rows)| rows).sum();
            let own = compute.wants.iter().find(|&&(of, _)| of == group).map_or(0, |&(_, rows)| rows);
            warm(compute, own as f32 / wanted.max(1) as f32, state)
        }
        Change::WarmBlock(_) => warm(compute, 0.01, state),
    };
    if change.is_finite() { change.clamp(-1.0, 1.0) } else { 0.0 }
}

/// Of the node's links, the one used most.
fn busiest(compute: &ComputeState, state: &ClusterState) -> f32 {
    let own = state.links.iter().filter(|link| link.compute == compute.node);
    own.map(|link| link.bandwidth_use).fold(0.0, f32::max)
}

fn link_share(compute: &ComputeState, storage: NodeId, given_up: f32, state: &ClusterState) -> f32 {
    let (Some(link), Some(node)) = (state.link(storage, compute.node), state.storage_node(storage)) else {
        return 0.0;
    };
    let own = reroute(compute, link, node, given_up, state);
    own + give_way(compute, storage, node, given_up, state)
}

/// Of what is waited for behind a slow storage node, what goes when its blocks are fetched there only once.
const ONCE: f32 = 0.5;

/// What comes over a slow link is asked of another node, which has a good link and gets it once for all. Where the
/// storage node is slow for everyone its blocks come no faster at first, but each of them only once.
fn stage(compute: &ComputeState, storage: NodeId, through: NodeId, state: &ClusterState) -> f32 {
    let link = |storage, compute| state.link(storage, compute);
    let (Some(slow), Some(good)) = (link(storage, compute.node), link(through, compute.node)) else {
        return NUISANCE;
    };
    let (Some(node), Some(other)) = (state.storage_node(storage), state.storage_node(through)) else {
        return NUISANCE;
    };
    let slower = |slow: &LinkState, good: &LinkState| 1.0 - slow.rate_share / good.rate_share.max(0.01);
    let by = slower(slow, good);
    if !other.up || by < SLOW {
        return NUISANCE;
    }
    // Others get it as slowly: it is the node.
    let others = state.links.iter().filter(|of| of.storage == storage && of.compute != compute.node);
    let elsewhere = others.map(|of| of.rate_share).fold(0.0, f32::max);
    let part = if elsewhere > 2.0 * slow.rate_share { 1.0 } else { ONCE };
    let room = 1.0 - other.load.clamp(0.0, 1.0);
    -compute.wait_share * (1.0 - node.replicated) * by * part * (0.5 + 0.5 * room) * CAUTION
}

/// What is not fetched ahead is waited for. What others may gain by it cannot be told from a state: tried alone in drawn
/// clusters it helped and hurt where all that is measured was alike (`rudder scenario decide`).
fn job_horizon(compute: &ComputeState, own: &JobState, minibatches: u32) -> f32 {
    let given_up = 1.0 - minibatches as f32 / own.ahead as f32;
    (given_up * compute.hit_rate * compute.prefetch_share * 0.1).max(NUISANCE)
}

/// How much shorter a memory is than usual, in doublings, five of which count as 1; longer is negative.
fn shorter(minibatches: u32) -> f32 {
    (HALF_LIFE_MINIBATCHES / minibatches.max(1) as f32).log2() / 5.0
}

/// Where what is wanted has moved, what was used long ago says little; elsewhere a short memory knows less.
fn far_predictor(compute: &ComputeState, shorter: f32) -> f32 {
    let moved = if shorter > 0.0 { compute.wait_share * compute.drift * CAUTION } else { 0.0 };
    shorter.abs() * (NUISANCE - moved)
}

/// What is asked of other replicas instead: a gain where this link or node is what is slow, else a loss.
fn reroute(
    compute: &ComputeState,
    link: &LinkState,
    node: &StorageState,
    given_up: f32,
    state: &ClusterState,
) -> f32 {
    let own = || state.links.iter().filter(|of| of.compute == compute.node);
    let all: f32 = own().map(|of| of.bandwidth_use).sum();
    // Links that are all alike share what the node's own interface carries: none of them is slow.
    let fastest = own().map(|of| of.rate_share).fold(0.01, f32::max);
    let part = link.bandwidth_use / all.max(0.01);
    let overload = (node.load - FULL).max(0.0) / (1.0 - FULL);
    let slow = (1.0 - link.rate_share / fastest).max(overload * 0.5);
    let moved = given_up.min(slow) * node.replicated;
    let lost = (given_up - slow).max(0.0) + given_up * (1.0 - node.replicated) * link.bandwidth_use;
    part * (compute.wait_share * -moved * CAUTION + lost * 0.1)
}

/// What others get of a full storage node.
fn give_way(
    compute: &ComputeState,
    storage: NodeId,
    node: &StorageState,
    given_up: f32,
    state: &ClusterState,
) -> f32 {
    if node.load < FULL {
        return 0.0;
    }
    let sharing = state.links.iter().filter(|of| of.storage == storage && of.compute != compute.node);
    let waits = sharing.filter_map(|of| state.compute_node(of.compute)).map(|of| of.wait_share);
    let most = waits.fold(0.0, f32::max);
    -(most - compute.wait_share).max(0.0) * given_up * CAUTION
}

/// Fewer prefetches give what a trainer waits for room on full links, and lose what they would have hidden.
fn posture_change(compute: &ComputeState, posture: Posture, given_up: f32, state: &ClusterState) -> f32 {
    if posture == Posture::Normal {
        return 0.0;
    }
    let full = ((busiest(compute, state) - IDLE) / (FULL - IDLE)).clamp(0.0, 1.0);
    let missed = 1.0 - compute.hit_rate;
    let gain = compute.wait_share * full * missed * compute.prefetch_share * CAUTION;
    let loss = compute.hit_rate * compute.prefetch_share * 0.2;
    given_up * (loss - gain)
}

fn warm(compute: &ComputeState, part_of_wants: f32, state: &ClusterState) -> f32 {
    if busiest(compute, state) >= IDLE || compute.cache_free < 0.02 {
        return NUISANCE;
    }
    let missed = 1.0 - compute.hit_rate;
    -compute.wait_share * missed * part_of_wants * compute.cache_free.min(0.5) * 2.0 * CAUTION
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

/// Who predicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evaluator {
    #[default]
    ClosedForm,
    /// Linear in [`features`]; its weights were learned from experience.
    Learned { weights: [f32; FEATURES] },
}

impl Evaluator {
    /// The expected change of the wait share; negative is better.
    #[must_use]
    pub fn predict(&self, action: &Action, state: &ClusterState) -> f32 {
        match self {
            Evaluator::ClosedForm => predict(action, state),
            Evaluator::Learned { weights } => {
                let predicted: f32 = weights.iter().zip(features(action, state)).map(|(w, f)| w * f).sum();
                if predicted.is_finite() { predicted.clamp(-1.0, 1.0) } else { 0.0 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::parse::tests::state;
    use proptest::prelude::*;

    fn share(compute: u16, storage: u16, percent: u8) -> Action {
        let change = Change::LinkShare { storage: NodeId(storage), percent };
        Action { compute: NodeId(compute), change, ttl_s: 60 }
    }

    fn node(node: u16, load: f32, replicated: f32) -> StorageState {
        StorageState { node: NodeId(node), up: true, load, replicated, cached: vec![] }
    }

    #[test]
    fn a_slow_link_with_another_replica_is_worth_less_use() {
        let mut state = state();
        state.storage = vec![node(2, 0.5, 1.0), node(3, 0.5, 1.0)];
        state.links[0].rate_share = 0.3;
        assert!(predict(&share(0, 2, 30), &state) < -0.02);
        assert!(predict(&share(0, 3, 30), &state) > 0.0, "the sound link");
        state.storage[0].replicated = 0.0;
        assert!(predict(&share(0, 2, 30), &state) > 0.0, "no other replica");
    }

    #[test]
    fn who_waits_least_gives_way_at_a_full_node() {
        let mut state = state();
        state.storage = vec![node(2, 1.0, 0.0), node(3, 0.2, 0.0)];
        state.compute[0].wait_share = 0.02;
        state.compute[1].wait_share = 0.6;
        assert!(predict(&share(0, 2, 50), &state) < -0.05);
        assert!(predict(&share(1, 2, 50), &state) > 0.0, "the one that waits");
    }

    #[test]
    fn prefetching_less_helps_only_where_it_misses_on_full_links() {
        let posture = |posture| Action { compute: NodeId(0), change: Change::Posture(posture), ttl_s: 60 };
        let mut state = state();
        state.compute[0].wait_share = 0.6;
        state.compute[0].hit_rate = 0.1;
        state.links[0].bandwidth_use = 1.0;
        assert!(predict(&posture(Posture::DemandFirst), &state) < -0.02);
        assert_eq!(predict(&posture(Posture::Normal), &state), 0.0);
        state.compute[0].hit_rate = 0.95;
        assert!(predict(&posture(Posture::DemandOnly), &state) > 0.0);
    }

    #[test]
    fn a_learned_evaluator_can_say_what_the_closed_form_says() {
        let mut weights = [0.0; FEATURES];
        weights[FEATURES - 1] = 1.0;
        let learned = Evaluator::Learned { weights };
        let mut state = state();
        state.storage = vec![node(2, 0.5, 1.0), node(3, 0.5, 1.0)];
        state.links[0].rate_share = 0.3;
        for percent in [10, 30, 90] {
            let action = share(0, 2, percent);
            assert_eq!(learned.predict(&action, &state), Evaluator::ClosedForm.predict(&action, &state));
        }
        let wild = Evaluator::Learned { weights: [f32::NAN; FEATURES] };
        assert_eq!(wild.predict(&share(0, 2, 50), &state), 0.0);
    }

    proptest! {
        #[test]
        fn predictions_and_features_are_finite(
            values in prop::array::uniform6(prop::num::f32::ANY), percent: u8, ahead: u32,
        ) {
            let mut state = state();
            state.storage = vec![node(2, values[0], values[1])];
            state.links[0].bandwidth_use = values[2];
            state.links[0].rate_share = values[3];
            state.compute[0].wait_share = values[4];
            state.compute[0].hit_rate = values[5];
            state.compute[0].jobs[0].ahead = ahead;
            let changes = [
                Change::LinkShare { storage: NodeId(2), percent },
                Change::Posture(Posture::DemandOnly),
                Change::JobHorizon { job: rudder_topology::JobId(0), minibatches: 1 },
                Change::FarPredictor { minibatches: ahead },
                Change::WarmGroup(state.compute[0].wants[0].0),
                Change::WarmBlock(state.compute[0].next[0]),
            ];
            for change in changes {
                let action = Action { compute: NodeId(0), change, ttl_s: 60 };
                prop_assert!((-1.0..=1.0).contains(&predict(&action, &state)));
                prop_assert!(features(&action, &state).iter().all(|value| value.is_finite()));
            }
        }
    }
}
