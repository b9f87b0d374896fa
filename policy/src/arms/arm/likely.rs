//! Prefetching what is likely, where nobody knows what is next: a block comes in while its link is idle and no trainer
//! waits, if it will probably be used before it goes again.
//!
//! The chance is 1 - exp(-u r): u, the expected uses per minibatch, is the decayed count over the decayed minibatches
//! with the prior among them; r, the minibatches that a slot keeps a block, is slots over evictions per minibatch. The
//! block takes a free slot, or that of one that is clearly less likely.

use super::Arm;
use super::fetches::Fetches;
use crate::arms::order::Order;
use crate::step::{Admission, Origin, Step};
use crate::view::View;
use crate::window::EntryId;
use rudder_graph::{BlockRows, Class};
use rudder_topology::BlockId;

/// Queue that a link may have because of it, bytes in flight counted in: so long may a demand fetch come late.
const QUEUE_NS_MAX: u64 = 4_000_000;
/// Weight of the newest minibatch in the average of evictions.
const EVICTIONS_WEIGHT: f32 = 0.1;
/// A slot keeps its block for so many minibatches at most, as far as anyone can tell.
const RESIDENCE_MAX: f32 = 64.0;
/// How much likelier than what goes a block has to be.
const MARGIN: f32 = 1.25;

/// Blocks worth to fetch, likeliest first, and how long they would stay.
#[derive(Debug, Default)]
pub(super) struct Likely {
    by_prior: Vec<BlockId>,
    next: usize,
    evicted: u32,
    evictions_per_minibatch: f32,
}

impl Likely {
    /// Every block that the prior expects.
    pub fn new(prior: &[f32]) -> Self {
        let mut by_prior: Vec<u32> = (0..prior.len() as u32).filter(|&b| prior[b as usize] > 0.0).collect();
        by_prior.sort_by(|&a, &b| prior[b as usize].total_cmp(&prior[a as usize]));
        Likely { by_prior: by_prior.into_iter().map(BlockId).collect(), ..Likely::default() }
    }

    pub fn note_evicted(&mut self) {
        self.evicted += 1;
    }

    pub fn note_released(&mut self) {
        let evicted = std::mem::take(&mut self.evicted) as f32;
        self.evictions_per_minibatch += EVICTIONS_WEIGHT * (evicted - self.evictions_per_minibatch);
    }

    fn residence_minibatches(&self, slots: usize) -> f32 {
        (slots as f32 / self.evictions_per_minibatch.max(1e-3)).min(RESIDENCE_MAX)
    }

    pub fn memory_bytes(&self) -> usize {
        self.by_prior.capacity() * size_of::<BlockId>()
    }
}

impl<O: Order> Arm<O> {
    /// Fetches likely blocks as far as idle links go.
    pub(super) fn fetch_likely(&mut self, reserved: &[EntryId], view: &View, steps: &mut Vec<Step>) {
        let mut fetches = Fetches::new(self.budget.links(), Class::Prefetch, Origin::Forecast);
        while let Some(&block) = self.likely.by_prior.get(self.likely.next) {
            let Some(place) = view.book.block(block) else { break };
            let rows = BlockRows { block, mask: place.full_mask() };
            let rows = BlockRows { block, mask: self.marks.absent(rows, view) };
            if rows.mask == 0 || view.links.replicas(place.part).is_empty() {
                self.likely.next += 1;
                continue;
            }
            let uses = self.order.expected_uses(block);
            let slots = view.cache.slots(place.table);
            let chance = -(-uses * self.likely.residence_minibatches(slots)).exp_m1();
            if chance < view.parameters.likely_accuracy_min {
                break;
            }
            let bytes = u64::from(rows.rows()) * u64::from(place.row_bytes);
            let Some(source) =
                self.budget.source(place.part, block, (bytes, Class::Prefetch), u64::MAX, view)
            else {
                break;
            };
            if self.budget.queue_ns(source.link, bytes) > QUEUE_NS_MAX {
                break;
            }
            let mut evict = None;
            if !self.marks.has_slot(block, view) && !self.budget.take_slot(place.table) {
                let Some(victim) = self.victim(place.table, u32::MAX, reserved, view) else { break };
                if self.order.expected_uses(victim) * MARGIN > uses {
                    self.aside.push(victim);
                    break;
                }
                self.let_go(victim, view);
                evict = Some(victim);
            }
            self.budget.take_bytes(source.link, bytes);
            self.marks.comes(rows);
            self.likely.next += 1;
            fetches.add(source, Admission { rows, evict });
        }
        self.restore_aside(view);
        fetches.finish(steps);
    }
}
