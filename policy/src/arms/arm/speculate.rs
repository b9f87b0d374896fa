//! The practitioner's prefetcher: bring back what was used most often and most recently.

use super::super::order::Order;
use super::Arm;
use super::budget::Budget;
use crate::step::{Origin, Step};
use crate::view::View;
use rudder_graph::{BlockRows, Class};

impl<O: Order> Arm<O> {
    /// Chooses up to `count` of the blocks that went, likeliest first.
    pub(super) fn choose_speculative(&mut self, count: usize, view: &View) {
        let absent = self.gone.iter().copied().filter(|&block| view.cache.slot_of(block).is_none());
        let mut absent: Vec<_> = absent.collect();
        absent.sort_unstable();
        absent.dedup();
        absent.sort_by(|&a, &b| self.order.likelihood(b).total_cmp(&self.order.likelihood(a)));
        absent.truncate(count);
        self.speculative = absent.into();
    }

    /// Fetches chosen blocks while nobody else needs the links.
    pub(super) fn speculate(&mut self, view: &View, budget: &mut Budget, steps: &mut Vec<Step>) {
        while let Some(&block) = self.speculative.front() {
            let Some(place) = view.book.block(block) else { break };
            let mask = self.absent(block, place.full_mask(), view);
            if mask == 0 || self.has_slot(block, view) {
                self.speculative.pop_front();
                continue;
            }
            let rows = BlockRows { block, mask };
            let bytes = u64::from(rows.rows()) * u64::from(place.row_bytes);
            let Some((node, generation)) = budget.replica(place.part, block, bytes, view) else { break };
            let mut evict = None;
            if !budget.take_slot(place.table) {
                evict = self.order.victim(place.table, u32::MAX, view);
                let Some(victim) = evict else { break };
                self.let_go(victim, view);
            }
            budget.take_bytes(node, bytes);
            self.speculative.pop_front();
            let (class, origin) = (Class::Prefetch, Origin::Forecast);
            steps.push(Step::Fetch { rows, node, generation, class, evict, origin });
        }
    }
}
