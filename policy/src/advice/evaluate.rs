//! What an action is expected to change, before it is tried: the change of the worst wait share, negative is better.
//!
//! The closed form here is the start; a learned model takes the same features once there is experience.

use super::directive::{Action, Change};
use super::features::{ModelError, check, inputs};
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
/// A node whose trainers wait for this share of the time has nothing to give to others.
const SPARES: f32 = 0.05;
/// What moving bytes for nothing costs.
const NUISANCE: f32 = 0.01;

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
            job_horizon(compute, own, minibatches, busiest(compute, state))
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
pub(super) fn busiest(compute: &ComputeState, state: &ClusterState) -> f32 {
    let own = state.links.iter().filter(|link| link.compute == compute.node);
    own.map(|link| link.bandwidth_use).fold(0.0, f32::max)
}

/// What others get of a full storage node, less what the node itself gives up. A slow link is no reason: the fast loop asks
/// other replicas by itself.
fn link_share(compute: &ComputeState, storage: NodeId, given_up: f32, state: &ClusterState) -> f32 {
    let (Some(link), Some(node)) = (state.link(storage, compute.node), state.storage_node(storage)) else {
        return 0.0;
    };
    let own = || state.links.iter().filter(|of| of.compute == compute.node);
    let all: f32 = own().map(|of| of.bandwidth_use).sum();
    // Links that are all alike share what the node's own interface carries: none of them is slow.
    let fastest = own().map(|of| of.rate_share).fold(0.01, f32::max);
    let slow = 1.0 - link.rate_share / fastest;
    let lost = (given_up - slow).max(0.0) + given_up * (1.0 - node.replicated) * link.bandwidth_use;
    let part = link.bandwidth_use / all.max(0.01);
    (part * lost * 0.1).max(NUISANCE * given_up) + give_way(compute, link, node, given_up, state)
}

/// Of what a link brought once, what it brings now; of its stated rate, where nothing but the link itself can be full. One
/// of several that share the interface of a busy node has its share and is not slow.
fn kept(link: &LinkState, state: &ClusterState) -> f32 {
    let own = state.links.iter().filter(|of| of.compute == link.compute);
    let carried: f32 = own.map(|of| of.rate_share * of.bandwidth_use).sum();
    let has_room = state.storage_node(link.storage).is_some_and(|node| node.load < IDLE) && carried < IDLE;
    let alone = link.bandwidth_use >= FULL && has_room;
    (1.0 - link.slowed).min(if alone { link.rate_share } else { 1.0 })
}

/// Of what is waited for behind a slow storage node, what goes when its blocks are fetched there only once.
const ONCE: f32 = 0.8;

/// What comes over a slow link is asked of another node, which has a good link and gets it once for all. Where the
/// storage node is slow for everyone its blocks come no faster at first, but each of them only once.
fn stage(compute: &ComputeState, storage: NodeId, through: NodeId, state: &ClusterState) -> f32 {
    let (Some(node), Some(other)) = (state.storage_node(storage), state.storage_node(through)) else {
        return NUISANCE;
    };
    let kept_by = |storage| Some(kept(state.link(storage, compute.node)?, state));
    let (Some(slow), Some(good)) = (kept_by(storage), kept_by(through)) else {
        return NUISANCE;
    };
    let by = 1.0 - slow / good.max(0.01);
    if !node.up || !other.up || by < SLOW {
        return NUISANCE;
    }
    // Others get it as slowly: it is the node.
    let others = state.links.iter().filter(|of| of.storage == storage && of.compute != compute.node);
    let elsewhere = others.map(|of| 1.0 - of.slowed).fold(0.0, f32::max);
    let part = if elsewhere > 2.0 * slow { 1.0 } else { ONCE };
    let room = 1.0 - other.load.clamp(0.0, 1.0);
    // A cache learns what is dear to fetch: one that has room for most of what the node stores ends the stall by itself.
    let lasting = compute.stall_share.min(compute.stall_lately);
    let room_for = compute.holds_share * state.storage.len() as f32;
    let small = ((HEALS.end - room_for) / (HEALS.end - HEALS.start)).clamp(0.0, 1.0);
    DOUBLE - lasting * (1.0 - node.replicated) * by * part * (0.5 + 0.5 * room) * small
}

/// What it costs that bytes travel twice.
const DOUBLE: f32 = 0.01;
/// Of a storage node's blocks, those that a cache has room for when it begins to heal a stall behind that node, and when
/// it does so wholly; in drawn clusters (`rudder scenario decide --change storage_slows`).
const HEALS: std::ops::Range<f32> = 0.6..1.0;

/// A node whose trainers wait for less of the time does not wait.
const WAITS: f32 = 0.02;
/// Announced minibatches that take less of the cache than this leave room for what is used again and again; those that
/// take more than all of it push it out, and each other.
const CROWDED: std::ops::Range<f32> = 0.7..1.0;
/// Of the steps' stretch in a crowded cache, what goes when no more than the next minibatch is fetched ahead: in drawn
/// clusters (`rudder scenario decide --change fanout_changes`) a fifth, for all compute nodes together.
const UNCROWDED: f32 = 0.2;

/// What is not fetched ahead is waited for. Where nobody waits, the links are full and the window crowds the cache, fewer
/// bytes are moved without it, beside which gradients are exchanged faster.
fn job_horizon(compute: &ComputeState, own: &JobState, minibatches: u32, busiest: f32) -> f32 {
    let given_up = 1.0 - minibatches as f32 / own.ahead as f32;
    let loss = (given_up * compute.hit_rate * compute.prefetch_share * 0.1).max(NUISANCE);
    if minibatches > 1 || compute.wait_share >= WAITS || busiest < FULL {
        return loss;
    }
    let crowded = (compute.window_share - CROWDED.start) / (CROWDED.end - CROWDED.start);
    let crowded = crowded.clamp(0.0, 1.0);
    loss * (1.0 - crowded) - compute.stall_share.min(compute.stall_lately) * UNCROWDED * crowded
}

/// How much shorter a memory is than usual, in doublings, five of which count as 1; longer is negative.
pub(super) fn shorter(minibatches: u32) -> f32 {
    (HALF_LIFE_MINIBATCHES / minibatches.max(1) as f32).log2() / 5.0
}

/// Where what is wanted has moved, what was used long ago says little; elsewhere a short memory knows less.
fn far_predictor(compute: &ComputeState, shorter: f32) -> f32 {
    let moved = if shorter > 0.0 { compute.wait_share * compute.drift * CAUTION } else { 0.0 };
    shorter.abs() * (NUISANCE - moved)
}

/// What others get of a full storage node, where the same comes as fast from one that is not full.
fn give_way(
    compute: &ComputeState,
    link: &LinkState,
    node: &StorageState,
    given_up: f32,
    state: &ClusterState,
) -> f32 {
    let has_room = |of: &LinkState| {
        let other = state.storage_node(of.storage);
        other.is_some_and(|other| other.up && other.load < FULL && kept(of, state) >= kept(link, state))
    };
    let elsewhere = state.links.iter().any(|of| of.compute == compute.node && has_room(of));
    if node.load < FULL || compute.wait_share >= SPARES || !elsewhere {
        return 0.0;
    }
    let sharing = state.links.iter().filter(|of| of.storage == link.storage && of.compute != compute.node);
    let waits = sharing.filter_map(|of| state.compute_node(of.compute)).map(|of| of.wait_share);
    let most = waits.fold(0.0, f32::max);
    -(most - compute.wait_share).max(0.0) * node.replicated * given_up * CAUTION
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

/// Who predicts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evaluator {
    #[default]
    ClosedForm,
    /// Linear in [`inputs`]; its weights were learned from experience, with this table of levers.
    Learned { lever_table: u64, weights: Vec<f32> },
}

impl Evaluator {
    /// One read from outside may be of another version.
    pub fn check(&self) -> Result<(), ModelError> {
        match self {
            Evaluator::ClosedForm => Ok(()),
            Evaluator::Learned { lever_table, weights } => check(*lever_table, weights),
        }
    }

    /// The expected change of the wait share; negative is better.
    #[must_use]
    pub fn predict(&self, action: &Action, state: &ClusterState) -> f32 {
        match self {
            Evaluator::ClosedForm => predict(action, state),
            Evaluator::Learned { weights, .. } => {
                let predicted: f32 = weights.iter().zip(inputs(action, state)).map(|(w, f)| w * f).sum();
                if predicted.is_finite() { predicted.clamp(-1.0, 1.0) } else { 0.0 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::features::{FEATURES, INPUTS, features, lever_table};
    use crate::advice::parse::tests::state;
    use crate::testing::storage_state;
    use proptest::prelude::*;

    fn share(compute: u16, storage: u16, percent: u8) -> Action {
        let change = Change::LinkShare { storage: NodeId(storage), percent };
        Action { compute: NodeId(compute), change, ttl_s: 60 }
    }

    fn node(node: u16, load: f32, replicated: f32) -> StorageState {
        StorageState { load, replicated, ..storage_state(NodeId(node)) }
    }

    #[test]
    fn a_slow_link_is_used_less_without_advice() {
        let mut state = state();
        state.storage = vec![node(2, 0.5, 1.0), node(3, 0.5, 1.0)];
        state.links[0].rate_share = 0.3;
        for storage in [2, 3] {
            assert!(predict(&share(0, storage, 30), &state) > 0.0, "{storage}");
        }
    }

    #[test]
    fn what_only_a_slow_node_has_is_worth_staging_elsewhere() {
        let mut slowed = state();
        slowed.storage = vec![node(2, 0.9, 0.0), node(3, 0.1, 0.0)];
        slowed.links[0].slowed = 0.9;
        let stage = |compute, storage, through| {
            let change = Change::Stage { storage: NodeId(storage), through: NodeId(through) };
            predict(&Action { compute: NodeId(compute), change, ttl_s: 60 }, &slowed)
        };
        let link = stage(0, 2, 3);
        assert!(link < -0.1, "{link}");
        assert!(stage(0, 3, 2) > 0.0, "through the slow one");
        assert!(stage(1, 2, 3) > 0.0, "its own link is good");
        let with = |change: &dyn Fn(&mut ClusterState)| {
            let mut state = slowed.clone();
            change(&mut state);
            let change = Change::Stage { storage: NodeId(2), through: NodeId(3) };
            predict(&Action { compute: NodeId(0), change, ttl_s: 60 }, &state)
        };
        let everywhere = with(&|state| state.links[2].slowed = 0.9);
        assert!(link < everywhere && everywhere < -0.02, "each block leaves the node once: {everywhere}");
        assert!(with(&|state| state.storage[0].replicated = 1.0) > 0.0, "others have it");
        let full = |state: &mut ClusterState, load| {
            let link = &mut state.links[0];
            (link.slowed, link.rate_share, link.bandwidth_use) = (0.0, 0.1, 1.0);
            (state.storage[0].load, state.links[1].bandwidth_use) = (load, 0.3);
        };
        assert!(with(&|state| full(state, 0.1)) < -0.1, "slow from the beginning");
        assert!(with(&|state| full(state, 0.9)) > 0.0, "it has its share of a node that has no more to give");
        let crowded = |state: &mut ClusterState| {
            full(state, 0.1);
            (state.links[0].rate_share, state.links[1].rate_share) = (0.3, 0.4);
        };
        assert!(with(&|state| crowded(state)) < -0.05);
        let crowded = |state: &mut ClusterState| {
            crowded(state);
            state.links[1].bandwidth_use = 0.9;
        };
        assert!(with(&|state| crowded(state)) > 0.0, "it has its share of the compute node's own interface");
        assert!(with(&|state| state.compute[0].stall_lately = 0.01) > 0.0, "it has only begun");
        assert!(with(&|state| state.compute[0].holds_share = 0.5) > 0.0, "the cache will hold it");
        assert!(
            with(&|state| state.compute[0].wait_share = 0.0) < -0.1,
            "another one's waiting stretches its steps"
        );
        assert!(
            with(&|state| state.storage[0].up = false) > 0.0
                && with(&|state| state.storage[1].up = false) > 0.0
        );
    }

    #[test]
    fn who_waits_least_gives_way_at_a_full_node() {
        let mut state = state();
        state.storage = vec![node(2, 1.0, 1.0), node(3, 0.2, 1.0)];
        state.compute[0].wait_share = 0.02;
        state.compute[1].wait_share = 0.6;
        assert!(predict(&share(0, 2, 50), &state) < -0.05);
        let with = |change: &dyn Fn(&mut ClusterState)| {
            let mut state = state.clone();
            change(&mut state);
            predict(&share(0, 2, 50), &state)
        };
        assert!(with(&|state| state.storage[0].replicated = 0.0) > 0.0, "no other node has it");
        assert!(with(&|state| state.storage[1].load = 1.0) > 0.0, "the other one is full as well");
        assert!(with(&|state| state.links[1].slowed = 0.9) > 0.0, "the other one's link is slow");
        assert!(predict(&share(1, 2, 50), &state) > 0.0, "the one that waits");
        state.compute[0].wait_share = 0.2;
        assert!(predict(&share(0, 2, 50), &state) > 0.0, "both wait");
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
    fn fetching_less_far_ahead_helps_where_the_window_crowds_cache_and_links_and_nobody_waits() {
        let mut crowded = state();
        let compute = &mut crowded.compute[0];
        (compute.wait_share, compute.stretched, compute.window_share) = (0.0, 0.3, 2.0);
        compute.jobs[0].ahead = 4;
        crowded.links[0].bandwidth_use = 1.0;
        let horizon = |minibatches, change: &dyn Fn(&mut ClusterState)| {
            let mut state = crowded.clone();
            change(&mut state);
            let change = Change::JobHorizon { job: rudder_topology::JobId(0), minibatches };
            predict(&Action { compute: NodeId(0), change, ttl_s: 60 }, &state)
        };
        assert!(horizon(1, &|_| ()) < -0.05);
        assert!(horizon(2, &|_| ()) > 0.0);
        assert_eq!(horizon(4, &|_| ()), 0.0, "no more is announced");
        assert!(horizon(1, &|state| state.compute[0].wait_share = 0.1) > 0.0, "somebody waits");
        assert!(horizon(1, &|state| state.compute[0].window_share = 0.3) > 0.0, "there is room");
        assert!(horizon(1, &|state| state.links[0].bandwidth_use = 0.8) > 0.0, "no link is full");
    }

    #[test]
    fn a_short_memory_helps_where_what_is_wanted_has_moved() {
        let remember = |minibatches| {
            let change = Change::FarPredictor { minibatches };
            Action { compute: NodeId(0), change, ttl_s: 60 }
        };
        let mut state = state();
        (state.compute[0].wait_share, state.compute[0].drift) = (0.4, 0.5);
        assert!(predict(&remember(32), &state) < predict(&remember(128), &state));
        assert!(predict(&remember(128), &state) < -0.02 && predict(&remember(4096), &state) > 0.0);
        state.compute[0].drift = 0.0;
        assert!(predict(&remember(32), &state) > 0.0);
    }

    #[test]
    fn a_learned_evaluator_can_say_what_the_closed_form_says() {
        let learned = |weights| Evaluator::Learned { lever_table: lever_table(), weights };
        let mut weights = vec![0.0; INPUTS];
        weights[FEATURES - 1] = 1.0;
        let wild = learned(vec![f32::NAN; INPUTS]);
        let learned = learned(weights);
        assert_eq!((learned.check(), Evaluator::ClosedForm.check()), (Ok(()), Ok(())));
        let mut state = state();
        state.storage = vec![node(2, 1.0, 1.0), node(3, 0.5, 1.0)];
        state.compute[1].wait_share = 0.9;
        for percent in [10, 30, 90] {
            let action = share(0, 2, percent);
            assert_eq!(learned.predict(&action, &state), Evaluator::ClosedForm.predict(&action, &state));
        }
        assert!(wild.check().is_err());
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
            (state.compute[0].stretched, state.compute[0].window_share) = (values[0], values[1]);
            (state.compute[0].moved_share, state.compute[0].drift) = (values[2], values[3]);
            state.compute[0].jobs[0].ahead = ahead;
            let changes = [
                Change::LinkShare { storage: NodeId(2), percent },
                Change::Stage { storage: NodeId(2), through: NodeId(3) },
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
