//! Directives: typed actions with units and a time to live.

use super::labels::Labels;
use super::lever::{LeverId, POSTURES, TTL, Value, lever};
use super::state::{BlockOf, Group};
use crate::parameters::Posture;
use rudder_topology::{JobId, NodeId};
use serde::{Deserialize, Serialize};

/// What an action changes on its compute node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    LinkShare {
        storage: NodeId,
        percent: u8,
    },
    /// What `storage` stores is asked of `through` in its place.
    Stage {
        storage: NodeId,
        through: NodeId,
    },
    Posture(Posture),
    JobHorizon {
        job: JobId,
        minibatches: u32,
    },
    /// Beyond what is announced, uses of so many minibatches ago count half.
    FarPredictor {
        minibatches: u32,
    },
    WarmGroup(Group),
    WarmBlock(BlockOf),
}

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Action {
    pub compute: NodeId,
    pub change: Change,
    pub ttl_s: u32,
}

/// What an advisor's answer comes down to: at most [`super::lever::ACTIONS_MAX`] actions, no two on the same thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directive {
    pub actions: Vec<Action>,
}

impl Directive {
    /// It is in force for so long: as long as its shortest action, since it is one trial.
    #[must_use]
    pub fn ttl_ns(&self) -> u64 {
        let shortest = self.actions.iter().map(|action| action.ttl_s).min().unwrap_or(0);
        u64::from(shortest) * 1_000_000_000
    }

    /// Whether it helps more and more, rather than at once.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.actions.iter().any(|action| matches!(action.change, Change::Stage { .. }))
    }
}

impl Action {
    /// The action of a lever's checked fields, in the table's order; `None` if they are not the lever's.
    #[must_use]
    pub fn new(id: LeverId, values: &[Value], ttl_s: u32) -> Option<Self> {
        let (compute, change) = match (id, values) {
            (LeverId::LinkShare, &[Value::Link { storage, compute }, Value::Integer(percent)]) => {
                (compute, Change::LinkShare { storage, percent: u8::try_from(percent).ok()? })
            }
            (LeverId::Stage, &[Value::Link { storage, compute }, Value::Storage(through)])
                if storage != through =>
            {
                (compute, Change::Stage { storage, through })
            }
            (LeverId::Posture, &[Value::Compute(compute), Value::Choice(index)]) => {
                (compute, Change::Posture(*Posture::ALL.get(index)?))
            }
            (LeverId::JobHorizon, &[Value::Job { job, compute }, Value::Integer(minibatches)]) => {
                (compute, Change::JobHorizon { job, minibatches })
            }
            (LeverId::FarPredictor, &[Value::Compute(compute), Value::Integer(minibatches)]) => {
                (compute, Change::FarPredictor { minibatches })
            }
            (LeverId::WarmGroup, &[Value::Compute(compute), Value::Group(group)]) => {
                (compute, Change::WarmGroup(group))
            }
            (LeverId::WarmBlock, &[Value::Compute(compute), Value::Block(block)]) => {
                (compute, Change::WarmBlock(block))
            }
            _ => return None,
        };
        Some(Action { compute, change, ttl_s })
    }

    #[must_use]
    pub fn lever(&self) -> LeverId {
        match self.change {
            Change::LinkShare { .. } => LeverId::LinkShare,
            Change::Stage { .. } => LeverId::Stage,
            Change::Posture(_) => LeverId::Posture,
            Change::JobHorizon { .. } => LeverId::JobHorizon,
            Change::FarPredictor { .. } => LeverId::FarPredictor,
            Change::WarmGroup(_) => LeverId::WarmGroup,
            Change::WarmBlock(_) => LeverId::WarmBlock,
        }
    }

    /// Whether both set the same thing, to whatever value.
    #[must_use]
    pub fn is_about_the_same(&self, other: &Action) -> bool {
        let same = match (self.change, other.change) {
            (Change::LinkShare { storage: a, .. }, Change::LinkShare { storage: b, .. }) => a == b,
            (Change::Stage { storage: a, .. }, Change::Stage { storage: b, .. }) => a == b,
            (Change::Posture(_), Change::Posture(_)) => true,
            (Change::JobHorizon { job: a, .. }, Change::JobHorizon { job: b, .. }) => a == b,
            (Change::FarPredictor { .. }, Change::FarPredictor { .. }) => true,
            (Change::WarmGroup(a), Change::WarmGroup(b)) => a == b,
            (Change::WarmBlock(a), Change::WarmBlock(b)) => a == b,
            _ => false,
        };
        same && self.compute == other.compute
    }

    /// Whether both pull the same lever of one compute node, whatever the amount; of a storage node's blocks, the same
    /// one's.
    #[must_use]
    pub fn is_like(&self, other: &Action) -> bool {
        let alike = self.compute == other.compute && self.lever() == other.lever();
        let of_storage = matches!(self.change, Change::LinkShare { .. } | Change::Stage { .. });
        alike && (!of_storage || self.is_about_the_same(other))
    }

    /// As an advisor would have written it: what [`super::parse::parse`] reads back. Nodes that the topology does not
    /// have are `?`.
    #[must_use]
    pub fn to_json(&self, labels: &Labels) -> serde_json::Value {
        let or_unknown =
            |label: Option<super::labels::Label>| label.map_or("?".to_owned(), |l| l.to_string());
        let compute = or_unknown(labels.of_compute(self.compute));
        let values: [serde_json::Value; 2] = match self.change {
            Change::LinkShare { storage, percent } => {
                let storage = or_unknown(labels.of_storage(storage));
                [format!("{storage}-{compute}").into(), percent.into()]
            }
            Change::Stage { storage, through } => {
                let [storage, through] = [storage, through].map(|node| or_unknown(labels.of_storage(node)));
                [format!("{storage}-{compute}").into(), through.into()]
            }
            Change::Posture(posture) => [compute.into(), POSTURES[posture as usize].into()],
            Change::JobHorizon { job, minibatches } => {
                [format!("{job}@{compute}").into(), minibatches.into()]
            }
            Change::FarPredictor { minibatches } => [compute.into(), minibatches.into()],
            Change::WarmGroup(group) => [compute.into(), group.to_string().into()],
            Change::WarmBlock(block) => [compute.into(), block.to_string().into()],
        };
        let lever = lever(self.lever());
        let mut json = serde_json::Map::new();
        json.insert("lever".to_owned(), lever.name.into());
        for (field, value) in lever.fields.iter().zip(values) {
            json.insert(field.name.to_owned(), value);
        }
        json.insert(TTL.name.to_owned(), self.ttl_s.into());
        json.into()
    }

    /// In the table's words, such as `link_share S1-C0 50%`. Nodes that the topology does not have are `?`.
    #[must_use]
    pub fn describe(&self, labels: &Labels) -> String {
        let or_unknown =
            |label: Option<super::labels::Label>| label.map_or("?".to_owned(), |l| l.to_string());
        let compute = or_unknown(labels.of_compute(self.compute));
        let what = match self.change {
            Change::LinkShare { storage, percent } => {
                format!("{}-{compute} {percent}%", or_unknown(labels.of_storage(storage)))
            }
            Change::Stage { storage, through } => {
                let [storage, through] = [storage, through].map(|node| or_unknown(labels.of_storage(node)));
                format!("{storage}-{compute} through {through}")
            }
            Change::Posture(posture) => format!("{compute} {}", POSTURES[posture as usize]),
            Change::JobHorizon { job, minibatches } => format!("{job}@{compute} {minibatches} ahead"),
            Change::FarPredictor { minibatches } => format!("{compute} remembers {minibatches}"),
            Change::WarmGroup(group) => format!("{compute} {group}"),
            Change::WarmBlock(block) => format!("{compute} {block}"),
        };
        format!("{} {what}", lever(self.lever()).name)
    }
}
