//! From a directive to what it changes: a new value of [`Parameters`] for the engine of one dataset on one node. The
//! engine checks it, takes it whole, and goes back to the former one when its time is over.

use super::directive::{Change, Directive};
use super::state::{DatasetIndex, Group, GroupSet};
use crate::parameters::{BlockRange, Parameters, WARM_RANGES_MAX};
use crate::step::Origin;
use rudder_graph::PartitionBook;
use rudder_topology::{BlockId, NodeId, TableId};

/// Of a part's blocks in a table, one in this many is hot: import orders them by expected use.
const HOT_ONE_IN: u32 = 10;

/// The parameters that follow `now` under a directive, on a node's engine of a dataset. `lasting` is what holds without
/// any directive. `None` where the directive says nothing about this engine.
#[must_use]
pub fn enact(
    directive: &Directive,
    (node, dataset): (NodeId, DatasetIndex),
    book: &PartitionBook,
    (lasting, now): (&Parameters, &Parameters),
    now_ns: u64,
) -> Option<Parameters> {
    let mut next = lasting.clone();
    let mut concerned = false;
    for action in directive.actions.iter().filter(|action| action.compute == node) {
        concerned |= change(&mut next, action.change, dataset, book);
    }
    next.version = now.version + 1;
    next.origin = Origin::Directive;
    next.expires_ns = Some(now_ns.saturating_add(directive.ttl_ns()));
    concerned.then_some(next)
}

/// Changes one thing; whether it is anything of this dataset.
fn change(next: &mut Parameters, change: Change, dataset: DatasetIndex, book: &PartitionBook) -> bool {
    match change {
        Change::LinkShare { storage, percent } => next.link_shares.extend([(storage, percent)]),
        Change::Stage { storage, through } => next.through.extend([(storage, through)]),
        Change::Posture(posture) => next.posture = posture,
        Change::JobHorizon { job, minibatches } => next.job_horizons.extend([(job, minibatches)]),
        Change::FarPredictor { minibatches } => next.half_life_minibatches = minibatches as f32,
        Change::WarmGroup(group) if group.dataset == dataset => next.warm.extend(ranges(group, book)),
        Change::WarmBlock(of) if of.dataset == dataset && book.block(of.block).is_some() => {
            next.warm.push(BlockRange { first: of.block, end: BlockId(of.block.0 + 1) });
        }
        Change::WarmGroup(_) | Change::WarmBlock(_) => return false,
    }
    next.warm.truncate(WARM_RANGES_MAX);
    true
}

/// The blocks of a group, table by table; none of a part that the dataset does not have.
fn ranges(group: Group, book: &PartitionBook) -> Vec<BlockRange> {
    let tables = (0..book.tables()).map(|table| TableId(table as u16));
    let blocks = tables.map(|table| book.part_blocks(table, group.part)).filter(|blocks| !blocks.is_empty());
    let range = |blocks: std::ops::Range<u32>| {
        let count = match group.set {
            GroupSet::All => blocks.len() as u32,
            GroupSet::Hot => (blocks.len() as u32).div_ceil(HOT_ONE_IN),
        };
        BlockRange { first: BlockId(blocks.start), end: BlockId(blocks.start + count) }
    };
    blocks.map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::directive::Action;
    use crate::advice::lever::hot;
    use crate::parameters::Posture;
    use crate::testing::book;
    use rudder_topology::{JobId, PartId};

    const HERE: (NodeId, DatasetIndex) = (NodeId(0), DatasetIndex(0));

    fn directive(changes: &[(u16, Change, u32)]) -> Directive {
        let action = |&(node, change, ttl_s)| Action { compute: NodeId(node), change, ttl_s };
        Directive { actions: changes.iter().map(action).collect() }
    }

    #[test]
    fn a_directive_becomes_the_next_parameters_with_its_shortest_time() {
        let book = book(1000, 2, 4);
        let now = Parameters { version: 7, ..Parameters::default() };
        let group = hot(DatasetIndex(0), PartId(1));
        let directive = directive(&[
            (0, Change::LinkShare { storage: NodeId(3), percent: 40 }, 60),
            (0, Change::Posture(Posture::DemandFirst), 30),
            (0, Change::JobHorizon { job: JobId(2), minibatches: 3 }, 60),
            (0, Change::FarPredictor { minibatches: 64 }, 60),
            (0, Change::WarmGroup(group), 60),
            (1, Change::Posture(Posture::DemandOnly), 60),
        ]);
        let next = enact(&directive, HERE, &book, (&Parameters::default(), &now), 5).unwrap();
        assert_eq!(
            (next.version, next.origin, next.expires_ns),
            (8, Origin::Directive, Some(30_000_000_005))
        );
        assert_eq!(next.link_shares, [(NodeId(3), 40)].into());
        assert_eq!((next.posture, &next.job_horizons), (Posture::DemandFirst, &[(JobId(2), 3)].into()));
        assert_eq!(next.half_life_minibatches, 64.0);
        let all = book.part_blocks(TableId(0), PartId(1));
        let expected = all.start..all.start + (all.len() as u32).div_ceil(10);
        assert_eq!((next.warm[0].first.0, next.warm[0].end.0), (expected.start, expected.end));
        assert_eq!(now.check_next(&next), Ok(()));
    }

    #[test]
    fn what_concerns_others_changes_nothing_here() {
        let book = book(1000, 2, 4);
        let now = Parameters::default();
        let other_dataset = Change::WarmGroup(hot(DatasetIndex(1), PartId(0)));
        let stranger = Change::WarmBlock(crate::advice::state::BlockOf {
            dataset: DatasetIndex(0),
            block: BlockId(u32::MAX),
        });
        for changes in [
            vec![],
            vec![(1, Change::Posture(Posture::DemandOnly), 60)],
            vec![(0, other_dataset, 60)],
            vec![(0, stranger, 60)],
        ] {
            assert_eq!(enact(&directive(&changes), HERE, &book, (&now, &now), 0), None, "{changes:?}");
        }
    }
}
