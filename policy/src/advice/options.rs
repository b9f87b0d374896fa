//! Few bounded options, each safe on its own, in a shuffled order that is recorded: small models choose by position
//! rather than by content, and whoever reads their choices must be able to see it.

use super::directive::{Action, Change};
use super::evaluate::Evaluator;
use super::lever::{ACTIONS_MAX, Kind, TTL_S_DEFAULT, TTL_S_MAX, Value, Vocabulary};
use super::state::ClusterState;
use crate::parameters::Posture;
use rudder_graph::random::Key;
use rudder_topology::NodeId;
use serde::{Deserialize, Serialize};

/// Options of one question at most.
pub const OPTIONS_MAX: usize = 6;
/// The same kind of change at most so often among the options.
const ALIKE_MAX: usize = 3;

/// Storage nodes that are thought of for staging another one's blocks; the idlest come first.
const STAGE_MAX: usize = 2;

/// An action is worth a thought where the stall share is expected to change by this much: no trial could tell less from
/// chance.
const PROMISING: f32 = 0.02;

/// An action that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    pub action: Action,
    /// See [`Evaluator::predict`].
    pub predicted: f32,
}

/// Options as they are shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// In the order shown.
    pub shown: Vec<Choice>,
    /// For each place its rank by prediction, 0 the best.
    pub ranks: Vec<usize>,
}

impl Options {
    #[must_use]
    pub fn actions(&self) -> Vec<Action> {
        self.shown.iter().map(|choice| choice.action).collect()
    }

    /// Those that are expected to help.
    #[must_use]
    pub fn expected(&self) -> Options {
        let helps = |&at: &usize| self.shown[at].predicted < 0.0;
        let places: Vec<_> = (0..self.shown.len()).filter(helps).collect();
        self.at(&places)
    }

    fn at(&self, places: &[usize]) -> Options {
        Options {
            shown: places.iter().map(|&place| self.shown[place]).collect(),
            ranks: places.iter().map(|&place| self.ranks[place]).collect(),
        }
    }

    /// The same options in another order.
    #[must_use]
    pub fn shuffled(&self, key: Key) -> Options {
        let mut places: Vec<_> = (0..self.shown.len()).collect();
        for at in (1..places.len()).rev() {
            places.swap(at, key.below(at as u64, at as u64 + 1) as usize);
        }
        self.at(&places)
    }
}

/// What a question is about, beside the state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// Nodes of jobs whose turn it is: for each the best option is among those shown, where one would help it.
    pub focus: Vec<NodeId>,
    /// What did not help not long ago: nothing like it is shown.
    pub useless: Vec<Action>,
}

/// The options in a state that the evaluator expects to help, shuffled by the key.
#[must_use]
pub fn options(
    state: &ClusterState,
    vocabulary: &Vocabulary,
    about: &About,
    evaluator: &Evaluator,
    key: Key,
) -> Options {
    let mut all: Vec<_> = candidates(state, vocabulary)
        .into_iter()
        .filter(|action| !about.useless.iter().any(|known| known.is_like(action)))
        .map(|action| Choice { action, predicted: evaluator.predict(&action, state) })
        .filter(|choice| choice.predicted <= -PROMISING)
        .collect();
    all.sort_by(|a, b| a.predicted.total_cmp(&b.predicted).then(a.action.cmp(&b.action)));
    let best = |node: &NodeId| {
        let helps = |choice: &&Choice| choice.action.compute == *node && choice.predicted < 0.0;
        all.iter().find(helps).copied()
    };
    let mut shown: Vec<Choice> = about.focus.iter().filter_map(best).take(OPTIONS_MAX).collect();
    for choice in all {
        let alike = shown.iter().filter(|known| known.action.lever() == choice.action.lever()).count();
        let same = shown.iter().any(|known| known.action.is_about_the_same(&choice.action));
        if alike < ALIKE_MAX && !same && shown.len() < OPTIONS_MAX {
            shown.push(choice);
        }
    }
    shown.sort_by(|a, b| a.predicted.total_cmp(&b.predicted).then(a.action.cmp(&b.action)));
    let ranks = (0..shown.len()).collect();
    Options { shown, ranks }.shuffled(key)
}

/// Everything worth a thought: each lever at a few settings.
#[must_use]
pub fn candidates(state: &ClusterState, vocabulary: &Vocabulary) -> Vec<Action> {
    let mut actions = vec![];
    let mut add = |compute, change| actions.push(Action { compute, change, ttl_s: TTL_S_DEFAULT });
    for &(_, value) in vocabulary.entries(Kind::Link) {
        let Value::Link { storage, compute } = value else { continue };
        let carries = state.link(storage, compute).map_or(1.0, |link| link.rate_share);
        for percent in [25, 50, 75, ((carries * 100.0) as u8).clamp(10, 100)] {
            add(compute, Change::LinkShare { storage, percent });
        }
    }
    for &(_, value) in vocabulary.entries(Kind::Link) {
        let Value::Link { storage, compute } = value else { continue };
        let only = state.storage_node(storage).is_some_and(|node| node.replicated < 1.0);
        let others = vocabulary.entries(Kind::Storage).iter().filter_map(|&(_, value)| match value {
            Value::Storage(node) if node != storage => Some(node),
            _ => None,
        });
        for through in others.take(STAGE_MAX).filter(|_| only) {
            // Each look at how it would be without costs what copies have saved.
            actions.push(Action { compute, change: Change::Stage { storage, through }, ttl_s: TTL_S_MAX });
        }
    }
    let mut add = |compute, change| actions.push(Action { compute, change, ttl_s: TTL_S_DEFAULT });
    for &(_, value) in vocabulary.entries(Kind::Compute) {
        let Value::Compute(compute) = value else { continue };
        add(compute, Change::Posture(Posture::DemandFirst));
        add(compute, Change::Posture(Posture::DemandOnly));
        for minibatches in [32, 128] {
            add(compute, Change::FarPredictor { minibatches });
        }
        let wants = state.compute_node(compute).map_or(&[][..], |of| &of.wants);
        let offered = |value| vocabulary.entries(Kind::Group).iter().any(|&(_, known)| known == value);
        for &(group, _) in wants.iter().filter(|(group, _)| offered(Value::Group(*group))) {
            add(compute, Change::WarmGroup(group));
        }
        let next = state.compute_node(compute).map_or(&[][..], |of| &of.next);
        for &block in next.iter().take(ACTIONS_MAX) {
            add(compute, Change::WarmBlock(block));
        }
    }
    for &(_, value) in vocabulary.entries(Kind::Job) {
        let Value::Job { job, compute } = value else { continue };
        for minibatches in [1, 2, 4] {
            add(compute, Change::JobHorizon { job, minibatches });
        }
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::parse::tests::{state, vocabulary};
    use crate::advice::state::StorageState;
    use crate::testing::storage_state;

    /// What a storage node alone has comes slowly to everyone.
    fn degraded() -> ClusterState {
        let mut state = state();
        state.storage =
            [2, 3].map(|node| StorageState { replicated: 0.0, ..storage_state(NodeId(node)) }).into();
        (state.links[0].slowed, state.links[2].slowed) = (0.8, 0.8);
        state
    }

    fn of(state: &ClusterState, focus: &[NodeId], useless: &[Action]) -> Options {
        let about = About { focus: focus.to_vec(), useless: useless.to_vec() };
        options(state, &vocabulary(), &about, &Evaluator::default(), Key::new(1))
    }

    #[test]
    fn what_did_not_help_is_not_shown() {
        let shown = of(&degraded(), &[], &[]).actions();
        let left = of(&degraded(), &[], &shown[..1]).actions();
        assert!(!left.iter().any(|action| action.is_like(&shown[0])), "{left:?}");
        assert!(!left.is_empty(), "another node's is");
    }

    #[test]
    fn options_are_few_safe_and_led_by_what_helps() {
        let options = of(&degraded(), &[], &[]);
        assert!((1..=OPTIONS_MAX).contains(&options.shown.len()), "{options:#?}");
        assert!(options.shown.iter().all(|choice| choice.predicted <= -PROMISING));
        let best = options.ranks.iter().position(|&rank| rank == 0).unwrap();
        let change = options.shown[best].action.change;
        assert!(matches!(change, Change::Stage { storage: NodeId(2), .. }), "{change:?}");
    }

    #[test]
    fn the_order_is_the_keys_and_every_order_comes() {
        let options = |seed| {
            options(&degraded(), &vocabulary(), &About::default(), &Evaluator::default(), Key::new(seed))
        };
        assert_eq!(options(7), options(7));
        let places: std::collections::BTreeSet<_> =
            (0..200).map(|seed| options(seed).ranks.iter().position(|&rank| rank == 0)).collect();
        assert_eq!(places.len(), options(0).shown.len(), "the best stands at every place");
        let mut sorted = options(3).ranks;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..sorted.len()).collect::<Vec<_>>());
    }

    #[test]
    fn a_node_whose_turn_it_is_has_its_option_among_louder_ones() {
        let mut state = degraded();
        // The first node would gain from everything; the other from one change only, and less.
        (state.compute[0].wait_share, state.compute[1].wait_share) = (0.9, 0.2);
        (state.compute[0].hit_rate, state.links[0].bandwidth_use) = (0.0, 1.0);
        state.links[2].slowed = 0.6;
        let of_other = |options: &Options| {
            let own = options.shown.iter().filter(|choice| choice.action.compute == NodeId(1));
            own.map(|choice| choice.predicted).fold(0.0, f32::min)
        };
        let about = |focus: &[NodeId]| of(&state, focus, &[]);
        assert!(of_other(&about(&[NodeId(1), NodeId(0)])) < 0.0, "{:#?}", about(&[NodeId(1), NodeId(0)]));
        assert!(about(&[NodeId(1), NodeId(0)]).shown.len() <= OPTIONS_MAX);
    }

    #[test]
    fn a_cluster_at_ease_has_no_options() {
        let mut state = degraded();
        state.links.iter_mut().for_each(|link| link.slowed = 0.0);
        state.compute.iter_mut().for_each(|of| (of.wait_share, of.hit_rate) = (0.0, 1.0));
        let options = of(&state, &[], &[]);
        assert!(options.shown.is_empty(), "{options:#?}");
    }
}
