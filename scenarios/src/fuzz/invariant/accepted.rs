//! Only accepted steps move: every row under way was named by a step that the validator accepted, for that node and
//! that incarnation, and once.

use crate::fuzz::invariant::{Invariant, Note};
use crate::fuzz::world::World;
use rudder_graph::BlockRows;
use rudder_policy::step::{Destination, Item, Step, Transfer};
use rudder_policy::window::EntryId;
use rudder_topology::{Generation, NodeId};

/// See the module.
#[derive(Default)]
pub struct Accepted {
    /// Accepted fetches of this event that have not started.
    fetches: Vec<(BlockRows, NodeId, Generation)>,
    bypasses: Vec<EntryId>,
}

impl Accepted {
    fn accept(&mut self, step: &Step) {
        match step {
            Step::Fetch(fetch) => {
                let admitted = fetch.admissions.iter().map(|a| (a.rows, fetch.node, fetch.generation));
                self.fetches.extend(admitted);
            }
            Step::Bypass { entry } => self.bypasses.push(*entry),
            Step::Reserve { .. } | Step::Evict { .. } => {}
        }
    }

    fn named(&mut self, world: &World, transfer: &Transfer, item: &Item) -> bool {
        if item.to == Destination::Private {
            let window = world.engine.view().window;
            // A bypassed minibatch may be gone by the end of the event in which its piece started.
            return self
                .bypasses
                .iter()
                .any(|&entry| window.entry(entry).is_none_or(|entry| entry.blocks.contains(&item.rows)));
        }
        let covers = |(rows, node, generation): &(BlockRows, NodeId, Generation)| {
            rows.block == item.rows.block
                && item.rows.mask & !rows.mask == 0
                && (*node, *generation) == (transfer.node, transfer.generation)
        };
        let found = self.fetches.iter().position(covers);
        found.map(|at| self.fetches.swap_remove(at)).is_some()
    }
}

impl Invariant for Accepted {
    fn after(&mut self, world: &World, notes: &[Note]) -> Result<(), String> {
        self.fetches.clear();
        for note in notes {
            match note {
                Note::Accepted(step) => self.accept(step),
                Note::Started(transfer) => {
                    for item in &transfer.items {
                        if !self.named(world, transfer, item) {
                            return Err(format!(
                                "{} moves {:?}, which no step named",
                                transfer.id, item.rows
                            ));
                        }
                    }
                }
                _ => {}
            }
        }
        let window = world.engine.view().window;
        self.bypasses.retain(|&entry| window.entry(entry).is_some());
        Ok(())
    }
}
