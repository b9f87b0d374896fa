//! No pinned block is evicted: from ready to release, every row of a minibatch stays where the trainer was told, and
//! its bytes stay the same.

use crate::fuzz::invariant::{Invariant, Note};
use crate::fuzz::trainer::{Served, Trainer};
use crate::fuzz::world::World;
use rudder_graph::location::LOCAL_MAPPINGS;
use rudder_policy::step::TrainerId;
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub struct Pins {
    /// The bytes of each held minibatch when it became ready.
    held: BTreeMap<(TrainerId, usize), Vec<Vec<u8>>>,
}

fn bytes(world: &World, served: &Served) -> Vec<Vec<u8>> {
    let rows = served.tables.iter().flat_map(|(table, rows)| rows.iter().map(move |row| (*table, *row)));
    rows.map(|(table, row)| world.read(served, table, row).unwrap_or_default()).collect()
}

/// Every row told lies in the slot of its block, readable and pinned.
fn rows_are_pinned(
    world: &World,
    trainer: &Trainer,
    minibatch: usize,
    served: &Served,
) -> Result<(), String> {
    let cache = world.engine.view().cache;
    for ((table, rows), (_, locations)) in trainer.minibatches[minibatch].iter().zip(&served.tables) {
        for (row, location) in rows.iter().zip(locations) {
            if location.mapping() >= LOCAL_MAPPINGS {
                continue;
            }
            let place =
                world.dataset.book.locate(*table, u64::from(*row)).ok_or("an unknown row was served")?;
            let slot = cache.slot_of(place.block).ok_or(format!("{} was evicted", place.block))?;
            let (chunk, offset) = cache.geometry().place(slot);
            let row_bytes = u64::from(world.dataset.book.row_bytes(*table).unwrap_or(0));
            let at = (chunk.0, offset + u64::from(place.row) * row_bytes);
            if at != (location.mapping(), location.offset()) {
                return Err(format!("{} moved to {at:?}, its trainer reads {location:?}", place.block));
            }
            if !cache.is_pinned(place.block) || cache.valid(place.block) >> place.row & 1 == 0 {
                return Err(format!("{} is not pinned or not readable", place.block));
            }
        }
    }
    Ok(())
}

impl Invariant for Pins {
    fn after(&mut self, world: &World, notes: &[Note]) -> Result<(), String> {
        for note in notes {
            if let Note::TrainerLost(trainer) = note {
                self.held.retain(|(holder, _), _| holder != trainer);
            }
        }
        let mut still = BTreeMap::new();
        for trainer in &world.trainers {
            for (&minibatch, served) in &trainer.ready {
                rows_are_pinned(world, trainer, minibatch, served)?;
                let now = bytes(world, served);
                if self.held.get(&(trainer.id, minibatch)).is_some_and(|before| *before != now) {
                    return Err(format!("rows of {minibatch} changed while {} held them", trainer.id));
                }
                still.insert((trainer.id, minibatch), now);
            }
        }
        self.held = still;
        Ok(())
    }
}
