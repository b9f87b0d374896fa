//! The levers that a directive may pull: one table, from which the JSON schema, the prompt's description and the
//! parser's checks are all derived.

use super::labels::Labels;
use super::state::{BlockOf, ClusterState, DatasetIndex, Group, GroupSet};
use rudder_topology::{JobId, NodeId, PartId};
use std::collections::BTreeSet;

/// Actions of one directive at most, and so explicit blocks at most.
pub const ACTIONS_MAX: usize = 5;

/// A lever's name within the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeverId {
    LinkShare,
    Stage,
    Posture,
    JobHorizon,
    FarPredictor,
    WarmGroup,
    WarmBlock,
}

/// What a field may hold. Ids come from the consult's [`Vocabulary`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Compute,
    Storage,
    Link,
    /// A job on a compute node.
    Job,
    Group,
    Block,
    Choice(&'static [&'static str]),
    Integer {
        min: u32,
        max: u32,
    },
}

/// A field of a lever.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field {
    /// Its key in JSON; ends in its unit.
    pub name: &'static str,
    pub kind: Kind,
}

/// A lever as an advisor sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lever {
    pub id: LeverId,
    pub name: &'static str,
    pub what: &'static str,
    pub fields: &'static [Field],
}

/// Every action's time to live; what is left out means [`TTL_S_DEFAULT`].
pub const TTL: Field = Field { name: "ttl_s", kind: Kind::Integer { min: 10, max: TTL_S_MAX } };
pub const TTL_S_MAX: u32 = 600;
pub const TTL_S_DEFAULT: u32 = 120;

/// In the order of [`crate::parameters::Posture`]'s variants.
pub const POSTURES: &[&str] = &["normal", "demand_first", "demand_only"];

const COMPUTE: Field = Field { name: "compute", kind: Kind::Compute };

/// The table.
pub const LEVERS: &[Lever] = &[
    Lever {
        id: LeverId::LinkShare,
        name: "link_share",
        what: "use at most this share of the link's bytes in flight, and count it as that much slower when choosing \
               between replicas",
        fields: &[
            Field { name: "link", kind: Kind::Link },
            Field { name: "share_percent", kind: Kind::Integer { min: 10, max: 100 } },
        ],
    },
    Lever {
        id: LeverId::Stage,
        name: "stage",
        what: "what comes over this link is asked of another storage node in its place, which fetches it once, keeps \
               copies and serves it: where the link or its storage node is slow and no other node stores the same",
        fields: &[Field { name: "link", kind: Kind::Link }, Field { name: "through", kind: Kind::Storage }],
    },
    Lever {
        id: LeverId::Posture,
        name: "posture",
        what: "how much of a compute node's links prefetching may use: all, a quarter, nothing",
        fields: &[COMPUTE, Field { name: "posture", kind: Kind::Choice(POSTURES) }],
    },
    Lever {
        id: LeverId::JobHorizon,
        name: "job_horizon",
        what: "how many minibatches of one job may be fetched ahead on a compute node: its share of the cache beside \
               other jobs",
        fields: &[
            Field { name: "job", kind: Kind::Job },
            Field { name: "ahead_minibatches", kind: Kind::Integer { min: 1, max: 64 } },
        ],
    },
    Lever {
        id: LeverId::FarPredictor,
        name: "far_predictor",
        what: "for how many minibatches a compute node remembers what was used, to guess what will be used beyond the \
               announced ones: half counts after so many. Few where what is wanted has moved",
        fields: &[COMPUTE, Field { name: "memory_minibatches", kind: Kind::Integer { min: 16, max: 4096 } }],
    },
    Lever {
        id: LeverId::WarmGroup,
        name: "warm_group",
        what: "bring a group of blocks into a compute node's free cache while its links are idle",
        fields: &[COMPUTE, Field { name: "group", kind: Kind::Group }],
    },
    Lever {
        id: LeverId::WarmBlock,
        name: "warm_block",
        what: "the same for one block",
        fields: &[COMPUTE, Field { name: "block", kind: Kind::Block }],
    },
];

/// The row of the table.
#[must_use]
pub fn lever(id: LeverId) -> &'static Lever {
    LEVERS.iter().find(|lever| lever.id == id).expect("every id has its row; a test asserts it")
}

/// A checked value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Compute(NodeId),
    Storage(NodeId),
    Link {
        storage: NodeId,
        compute: NodeId,
    },
    Job {
        job: JobId,
        compute: NodeId,
    },
    Group(Group),
    Block(BlockOf),
    /// Index into the choices.
    Choice(usize),
    Integer(u32),
}

/// What an answer may name: bounded whatever the size of the cluster, and all of it exists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vocabulary {
    compute: Vec<(String, Value)>,
    storage: Vec<(String, Value)>,
    links: Vec<(String, Value)>,
    jobs: Vec<(String, Value)>,
    groups: Vec<(String, Value)>,
    blocks: Vec<(String, Value)>,
}

/// Compute nodes in a vocabulary, worst first.
const COMPUTE_MAX: usize = 6;
/// Storage nodes in a vocabulary, idle ones first.
const STORAGE_MAX: usize = 6;
const LINKS_MAX: usize = 16;
const JOBS_MAX: usize = 8;
const GROUPS_MAX: usize = 12;
const BLOCKS_MAX: usize = 12;

impl Vocabulary {
    /// The nodes that wait most, the links towards them, their jobs, the groups and blocks that they want.
    #[must_use]
    pub fn of(state: &ClusterState, labels: &Labels) -> Self {
        Vocabulary::about(state, labels, &[])
    }

    /// The same, with the nodes of `focus` before those that wait most.
    #[must_use]
    pub fn about(state: &ClusterState, labels: &Labels, focus: &[NodeId]) -> Self {
        let mut worst: Vec<_> =
            state.compute.iter().filter(|c| labels.of_compute(c.node).is_some()).collect();
        worst.sort_by(|a, b| b.stall_share.total_cmp(&a.stall_share).then(a.node.cmp(&b.node)));
        // Stable, so that the others keep their order.
        worst.sort_by_key(|c| focus.iter().position(|node| *node == c.node).unwrap_or(focus.len()));
        worst.truncate(COMPUTE_MAX);
        let mut vocabulary = Vocabulary::default();
        let (mut groups, mut blocks) = (BTreeSet::new(), BTreeSet::new());
        for compute in &worst {
            let Some(label) = labels.of_compute(compute.node) else { continue };
            vocabulary.compute.push((label.to_string(), Value::Compute(compute.node)));
            for job in &compute.jobs {
                let value = Value::Job { job: job.job, compute: compute.node };
                vocabulary.jobs.push((format!("{}@{label}", job.job), value));
            }
            let mut links: Vec<_> = state.links.iter().filter(|link| link.compute == compute.node).collect();
            // The slow ones first.
            links.sort_by(|a, b| a.brings().total_cmp(&b.brings()));
            for link in links {
                let Some(storage) = labels.of_storage(link.storage) else { continue };
                let value = Value::Link { storage: link.storage, compute: link.compute };
                vocabulary.links.push((format!("{storage}-{label}"), value));
                let storage = (storage.to_string(), Value::Storage(link.storage));
                let known = state.storage_node(link.storage);
                let may_stage = known.is_none_or(|node| node.up && node.stages);
                if may_stage && !vocabulary.storage.contains(&storage) {
                    vocabulary.storage.push(storage);
                }
            }
            groups.extend(compute.wants.iter().map(|&(group, _)| group));
            blocks.extend(compute.next.iter().copied());
        }
        blocks.extend(state.ahead.iter().copied());
        let load = |value: &Value| match *value {
            Value::Storage(node) => state.storage_node(node).map_or(0.0, |storage| storage.load),
            _ => 0.0,
        };
        vocabulary.storage.sort_by(|(_, a), (_, b)| load(a).total_cmp(&load(b)));
        vocabulary.storage.truncate(STORAGE_MAX);
        vocabulary.jobs.truncate(JOBS_MAX);
        vocabulary.links.truncate(LINKS_MAX);
        let groups = groups.into_iter().take(GROUPS_MAX);
        vocabulary.groups = groups.map(|group| (group.to_string(), Value::Group(group))).collect();
        let blocks = blocks.into_iter().take(BLOCKS_MAX);
        vocabulary.blocks = blocks.map(|block| (block.to_string(), Value::Block(block))).collect();
        vocabulary
    }

    /// The texts that a field of an id's kind may hold, with what each means; nothing for other kinds.
    #[must_use]
    pub fn entries(&self, kind: Kind) -> &[(String, Value)] {
        match kind {
            Kind::Compute => &self.compute,
            Kind::Storage => &self.storage,
            Kind::Link => &self.links,
            Kind::Job => &self.jobs,
            Kind::Group => &self.groups,
            Kind::Block => &self.blocks,
            Kind::Choice(_) | Kind::Integer { .. } => &[],
        }
    }

    /// Whether every id field of the lever has something to name.
    #[must_use]
    pub fn offers(&self, lever: &Lever) -> bool {
        lever.fields.iter().all(|field| {
            matches!(field.kind, Kind::Choice(_) | Kind::Integer { .. })
                || !self.entries(field.kind).is_empty()
        })
    }
}

/// The hot group of a part, a shorthand.
#[must_use]
pub fn hot(dataset: DatasetIndex, part: PartId) -> Group {
    Group { dataset, part, set: GroupSet::Hot }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::parse::tests::{labels, state};

    #[test]
    fn a_nodes_slow_links_come_first_whether_they_are_full_or_not() {
        let mut state = state();
        state.links[0].rate_share = 0.5;
        // Not full any more.
        state.links[1].slowed = 0.8;
        let vocabulary = Vocabulary::of(&state, &labels());
        let links: Vec<_> = vocabulary.entries(Kind::Link).iter().map(|&(_, value)| value).collect();
        let link =
            |at: usize| Value::Link { storage: state.links[at].storage, compute: state.links[at].compute };
        assert_eq!(links[..2], [link(1), link(0)]);
    }
}
