//! All-or-nothing reservations, and who passes by the cache instead.

use super::{Arm, Candidate};
use crate::arms::order::Order;
use crate::step::Step;
use crate::view::View;
use crate::window::{EntryId, Phase};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{BlockId, TableId};

impl<O: Order> Arm<O> {
    /// Reserves in order of time of use; what cannot be had stops those after it, except that what a trainer waits
    /// for next passes by the cache when pins alone leave it no room. So it does when a block of it is pinned in a slot
    /// that the cache has to give up: pinned once more and once more, such a block would stay for ever.
    pub(super) fn plan_reservations(
        &mut self,
        candidates: &[Candidate],
        view: &View,
        steps: &mut Vec<Step>,
    ) -> Vec<EntryId> {
        let mut reserved = vec![];
        self.passing.clear();
        for candidate in candidates {
            let Some(entry) = view.window.entry(candidate.id) else { continue };
            if entry.phase != Phase::Announced || candidate.ahead > view.ready_ahead {
                continue;
            }
            // Its blocks come as long as there is room for them.
            if candidate.far {
                continue;
            }
            let need = self.need(candidate.id, &reserved, view);
            // While nobody waits for it its rows take slots one by one as they come: taken all at once, slots would
            // stand empty that held what others can use.
            if candidate.class != Class::Demand && need.iter().any(|n| n.new > 0) {
                continue;
            }
            let urgent = candidate.class == Class::Demand && view.window.is_next(candidate.id);
            let leaves_room = candidate.ahead > 0 && !urgent;
            let room_for_others = if leaves_room { oldest_of_others(candidate.id, view) } else { 0 };
            let unpinnable = need.iter().any(|n| n.unpinnable);
            let has_room =
                !unpinnable && need.iter().all(|n| n.new + room_for_others <= n.free + n.evictable);
            if has_room && let Some(evict) = self.victims_for(candidate, &need, &reserved, view) {
                for n in &need {
                    self.budget.take_slots(n.table, n.new.min(n.free));
                    self.budget.take_evictable(n.table, n.own_evictable);
                }
                for &victim in &evict {
                    self.let_go(victim, view);
                }
                steps.push(Step::Reserve { entry: candidate.id, evict });
                reserved.push(candidate.id);
            } else if urgent {
                // Slots that belong to what was passed over do not come free.
                let stuck = unpinnable || view.window.passes_over(candidate.id);
                if stuck || need.iter().any(|n| n.pinned_by_others + n.all > n.slots) {
                    steps.push(Step::Bypass { entry: candidate.id });
                    // It pins what it finds.
                    for n in &need {
                        self.budget.take_evictable(n.table, n.own_evictable);
                    }
                    self.passing.push(candidate.id);
                    reserved.push(candidate.id);
                }
            } else if !unpinnable && need.iter().all(|n| n.all <= n.slots) {
                break;
            }
        }
        reserved
    }

    /// What a minibatch needs of each table's slots. Blocks that a minibatch of `reserved` pins are nobody's to evict.
    fn need(&self, id: EntryId, reserved: &[EntryId], view: &View) -> Vec<Need> {
        let Some(entry) = view.window.entry(id) else { return vec![] };
        let pinned = |block| view.window.uses(block).any(|user| reserved.contains(&user));
        let mut needs = vec![];
        for segments in entry.segments.chunk_by(|a, b| a.table == b.table) {
            let table = segments[0].table;
            let blocks = &entry.blocks[segments[0].start as usize..segments[segments.len() - 1].end as usize];
            let (mut new, mut own_evictable, mut own_pinned, mut unpinnable) = (0, 0, 0, false);
            let untouched = reserved.is_empty() && self.marks.is_empty();
            if untouched {
                let standing = view.cache.standing(blocks);
                (new, own_evictable, own_pinned) =
                    (standing.without_slot, standing.evictable, standing.pinned);
                unpinnable = standing.unpinnable;
            }
            let blocks_to_ask = if untouched { &[] } else { blocks };
            for &BlockRows { block, .. } in blocks_to_ask {
                unpinnable |= view.cache.is_stranded(block);
                if !self.marks.has_slot(block, view) {
                    new += 1;
                } else if view.cache.is_pinned(block) {
                    own_pinned += 1;
                } else if view.cache.is_evictable(block) && (reserved.is_empty() || !pinned(block)) {
                    own_evictable += 1;
                }
            }
            needs.push(Need {
                table,
                all: blocks.len(),
                new,
                free: self.budget.free_slots(table),
                own_evictable,
                evictable: self.budget.evictable_slots(table).saturating_sub(own_evictable),
                pinned_by_others: view.cache.pinned_slots(table).saturating_sub(own_pinned),
                slots: view.cache.slots(table),
                unpinnable,
            });
        }
        needs
    }

    /// Takes as many victims out of the order as the reservation lacks, none of them its own; `None`, and all of
    /// them back, if there are not enough.
    fn victims_for(
        &mut self,
        candidate: &Candidate,
        need: &[Need],
        reserved: &[EntryId],
        view: &View,
    ) -> Option<Vec<BlockId>> {
        let mut victims = vec![];
        // A reservation may take from minibatches that come later, never from itself.
        let pinned: Vec<_> = reserved.iter().copied().chain([candidate.id]).collect();
        let own = &view.window.entry(candidate.id)?.blocks;
        self.order.spare(own, view);
        let mut enough = true;
        for n in need {
            for _ in n.free..n.new {
                match self.victim(n.table, candidate.rank, &pinned, view) {
                    Some(block) => victims.push(block),
                    None => {
                        enough = false;
                        break;
                    }
                }
            }
        }
        self.restore_aside(view);
        if enough {
            return Some(victims);
        }
        self.order.unspare(own, view);
        for block in victims {
            self.order.restore(block, view);
        }
        None
    }
}

/// What a minibatch needs of a table's slots, and what there is.
#[derive(Clone, Copy, Debug)]
struct Need {
    table: TableId,
    all: usize,
    /// Blocks without a slot.
    new: usize,
    free: usize,
    /// Its own blocks that could go otherwise.
    own_evictable: usize,
    /// Blocks of others that could go.
    evictable: usize,
    pinned_by_others: usize,
    slots: usize,
    /// A block of it has to leave its slot, which others hold, before it can be pinned in another one.
    unpinnable: bool,
}

/// Blocks that the oldest minibatches of other trainers still need pinned: a reservation ahead of use leaves room
/// for them.
fn oldest_of_others(id: EntryId, view: &View) -> usize {
    let own = view.window.entry(id).map(|entry| entry.trainer);
    let others = view.window.trainers().filter(|&trainer| Some(trainer) != own);
    let oldest = others.filter_map(|trainer| view.window.entry(view.window.queue(trainer).next()?));
    oldest.filter(|entry| entry.phase == Phase::Announced).map(|entry| entry.blocks.len()).sum()
}

#[cfg(test)]
mod tests {
    use crate::testing::{World, book, trainer};
    use rudder_topology::{BlockId, PolicySpec, TableId};

    #[test]
    fn what_nobody_waits_for_takes_slots_as_its_rows_come() {
        // Blocks of 4 rows, 40 slots of 64 bytes, of which the first minibatch leaves 30 taken.
        let mut world = World::new(book(400, 2, 4), 40 * 64, PolicySpec::RUDDER, &[]);
        world.connect(trainer(0));
        let rows = |blocks: std::ops::Range<u32>| {
            vec![(TableId(0), blocks.flat_map(|block| block * 4..block * 4 + 4).collect())]
        };
        world.announce(trainer(0), 0, rows(0..30));
        world.want(trainer(0), 0);
        while !world.in_flight.is_empty() {
            world.arrive(0);
        }
        world.release(trainer(0), 0);
        let held = |world: &World, blocks: std::ops::Range<u32>| {
            let has_slot = |block: &u32| world.engine.view().cache.has_slot(BlockId(*block));
            blocks.filter(has_slot).count()
        };
        assert_eq!(held(&world, 0..30), 30);
        world.announce(trainer(0), 1, rows(60..90));
        let coming = held(&world, 60..90);
        assert!((11..30).contains(&coming), "more than there is room for, and links take no more: {coming}");
        assert_eq!(held(&world, 0..30), 40 - coming, "a block goes for a block that comes");
        world.want(trainer(0), 1);
        assert_eq!((held(&world, 0..30), world.refusals()), (10, 0), "now it may not be left half done");
    }
}
