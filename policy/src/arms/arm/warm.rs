//! Blocks that a directive wants: brought into free slots, when no announced minibatch lacks anything.

use super::Arm;
use super::fetches::Fetches;
use crate::arms::order::Order;
use crate::parameters::BlockRange;
use crate::step::{Admission, Origin, Step};
use crate::view::View;
use rudder_graph::{BlockRows, Class};
use rudder_topology::BlockId;

/// Blocks looked at in one plan, so that a plan's cost does not grow with a part.
const LOOK_MAX: usize = 1024;

/// What is left to warm.
#[derive(Default)]
pub(super) struct Warm {
    /// Of the parameters that it is from.
    version: u64,
    /// Next one last.
    ranges: Vec<BlockRange>,
}

impl Warm {
    fn renew(&mut self, view: &View) {
        if self.version != view.parameters.version {
            self.version = view.parameters.version;
            self.ranges = view.parameters.warm.iter().rev().copied().collect();
        }
    }

    fn next(&mut self) -> Option<BlockId> {
        while self.ranges.last().is_some_and(|range| range.first >= range.end) {
            self.ranges.pop();
        }
        self.ranges.last().map(|range| range.first)
    }

    fn skip(&mut self) {
        if let Some(range) = self.ranges.last_mut() {
            range.first.0 += 1;
        }
    }
}

impl<O: Order> Arm<O> {
    /// Fetches wanted blocks that have no slot, into free slots only: nothing goes for them.
    pub(super) fn warm_up(&mut self, view: &View, steps: &mut Vec<Step>) {
        self.warm.renew(view);
        let mut fetches = Fetches::new(self.budget.links(), Class::Prefetch, Origin::Directive);
        for _ in 0..LOOK_MAX {
            let Some(block) = self.warm.next() else { break };
            let place = view.book.block(block);
            let remote = place.filter(|place| !view.links.replicas(place.part).is_empty());
            let Some(place) = remote.filter(|_| !self.marks.has_slot(block, view)) else {
                self.warm.skip();
                continue;
            };
            let rows = BlockRows { block, mask: place.full_mask() };
            let bytes = u64::from(rows.rows()) * u64::from(place.row_bytes);
            let source = self.budget.source(place.part, block, (bytes, Class::Prefetch), u64::MAX, view);
            // No permit or no slot now: the same block is tried with the next plan.
            let Some(source) = source.filter(|_| self.budget.take_slot(place.table)) else { break };
            self.budget.take_bytes(source.link, bytes);
            self.marks.comes(rows);
            self.warm.skip();
            fetches.add(source, Admission { rows, evict: None });
        }
        fetches.finish(steps);
    }
}
