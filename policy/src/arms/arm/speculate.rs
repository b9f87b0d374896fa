//! What links carry that nobody needs now: for the practitioner's prefetcher what was used most often and most recently,
//! for caches of a chosen set what of it is missing.

use super::Arm;
use super::fetches::Fetches;
use crate::arms::order::Order;
use crate::step::{Admission, Origin, Step};
use crate::view::View;
use crate::window::EntryId;
use rudder_graph::{BlockRows, Class};
use rudder_topology::{BlockId, TableId};

impl<O: Order> Arm<O> {
    /// Chooses up to `count` of the blocks that went, likeliest first.
    pub(super) fn choose_speculative(&mut self, count: usize, view: &View) {
        let absent = self.gone.iter().copied().filter(|&block| view.cache.slot_of(block).is_none());
        let mut absent: Vec<_> = absent.collect();
        absent.sort_unstable();
        absent.dedup();
        let mut absent: Vec<_> =
            absent.into_iter().map(|block| (self.order.likelihood(block), block)).collect();
        let likelier = |a: &(f32, BlockId), b: &(f32, BlockId)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if absent.len() > count {
            // Only the first few are needed in order.
            absent.select_nth_unstable_by(count, likelier);
            absent.truncate(count);
        }
        absent.sort_unstable_by(likelier);
        self.speculative = absent.into_iter().map(|(_, block)| block).collect();
    }

    /// Fetches chosen blocks while nobody else needs the links.
    pub(super) fn speculate(&mut self, reserved: &[EntryId], view: &View, steps: &mut Vec<Step>) {
        let mut fetches = Fetches::new(self.budget.links(), Class::Prefetch, Origin::Forecast);
        while let Some(&block) = self.speculative.front() {
            let Some(place) = view.book.block(block) else { break };
            let rows = BlockRows { block, mask: place.full_mask() };
            let mask = self.marks.absent(rows, view);
            if mask == 0 || self.marks.has_slot(block, view) {
                self.speculative.pop_front();
                continue;
            }
            let rows = BlockRows { block, mask };
            let bytes = u64::from(rows.rows()) * u64::from(place.row_bytes);
            let Some(source) =
                self.budget.source(place.part, block, (bytes, Class::Prefetch), u64::MAX, view)
            else {
                break;
            };
            let mut evict = None;
            if !self.budget.take_slot(place.table) {
                evict = self.victim(place.table, u32::MAX, reserved, view);
                let Some(victim) = evict else { break };
                self.let_go(victim, view);
            }
            self.budget.take_bytes(source.link, bytes);
            self.marks.comes(rows);
            self.speculative.pop_front();
            fetches.add(source, Admission { rows, evict });
        }
        fetches.finish(steps);
    }

    /// Fetches what the order wants brought in, into free slots only.
    pub(super) fn bring(&mut self, view: &View, steps: &mut Vec<Step>) {
        let mut fetches = Fetches::new(self.budget.links(), Class::Prefetch, Origin::Forecast);
        for table in (0..view.book.tables()).map(|table| TableId(table as u16)) {
            while let Some(block) = self.order.next_to_bring(table, view) {
                let Some(place) = view.book.block(block) else { break };
                let rows = BlockRows { block, mask: place.full_mask() };
                let rows = BlockRows { block, mask: self.marks.absent(rows, view) };
                if rows.mask == 0 {
                    self.order.brought(table);
                    continue;
                }
                let bytes = u64::from(rows.rows()) * u64::from(place.row_bytes);
                let request = (bytes, Class::Prefetch);
                let Some(source) = self.budget.source(place.part, block, request, u64::MAX, view) else {
                    break;
                };
                if !self.marks.has_slot(block, view) && !self.budget.take_slot(table) {
                    break;
                }
                self.budget.take_bytes(source.link, bytes);
                self.marks.comes(rows);
                self.order.brought(table);
                fetches.add(source, Admission { rows, evict: None });
            }
        }
        fetches.finish(steps);
    }
}
