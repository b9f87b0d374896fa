//! After the faults end, every minibatch is served and all queues drain. A minibatch fails only where a storage node
//! said that it has no sound copy of one of its blocks.

use crate::fuzz::invariant::{Invariant, Note};
use crate::fuzz::trainer::Rows;
use crate::fuzz::world::World;
use rudder_graph::demand::rows_to_blocks;
use rudder_policy::step::Outcome;
use rudder_topology::BlockId;
use std::collections::BTreeSet;

/// See the module.
#[derive(Default)]
pub struct EveryMinibatchServed {
    /// Blocks of which some copy was said to be bad.
    bad: BTreeSet<BlockId>,
}

fn blocks(world: &World, rows: &Rows) -> BTreeSet<BlockId> {
    let book = &world.dataset.book;
    let of_table = |(table, rows): &(_, Vec<u32>)| {
        rows_to_blocks(book, *table, rows).expect("known rows").blocks.into_iter().map(|rows| rows.block)
    };
    rows.iter().flat_map(of_table).collect()
}

impl Invariant for EveryMinibatchServed {
    fn after(&mut self, world: &World, notes: &[Note]) -> Result<(), String> {
        for note in notes {
            match note {
                Note::Ended { transfer, outcome: Outcome::Corrupt { item } | Outcome::Refused { item } } => {
                    self.bad.insert(transfer.items[*item as usize].rows.block);
                }
                Note::Failed { trainer, minibatch } => {
                    let rows =
                        world.trainers.iter().find(|t| t.id == *trainer).map(|t| &t.minibatches[*minibatch]);
                    let named = rows.map(|rows| blocks(world, rows)).unwrap_or_default();
                    if named.is_disjoint(&self.bad) {
                        return Err(format!("{minibatch} of {trainer} failed though all copies are sound"));
                    }
                }
                Note::Unexpected { trainer, what } => {
                    return Err(format!("{trainer} did not expect `{what}`"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn at_end(&mut self, world: &World) -> Result<(), String> {
        for trainer in &world.trainers {
            if trainer.steps() != trainer.minibatches.len() {
                return Err(format!(
                    "{} had {} of {}",
                    trainer.id,
                    trainer.steps(),
                    trainer.minibatches.len()
                ));
            }
        }
        let view = world.engine.view();
        let left: usize = view.window.trainers().map(|trainer| view.window.queued(trainer)).sum();
        let pinned: usize = world.dataset.tables().map(|table| view.cache.pinned_slots(table)).sum();
        let in_flight = view.cache.resident().filter(|&block| view.cache.in_flight(block) != 0).count();
        if left + pinned + in_flight > 0 {
            return Err(format!(
                "{left} minibatches, {pinned} pins and {in_flight} blocks in flight are left over"
            ));
        }
        Ok(())
    }
}
