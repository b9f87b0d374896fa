//! Delivered bytes are the right ones, for as long as a trainer may read them.

use crate::fuzz::invariant::{Invariant, Note};
use crate::fuzz::trainer::{Served, Trainer};
use crate::fuzz::world::World;

/// See the module.
pub struct RightBytes;

fn check(world: &World, trainer: &Trainer, minibatch: usize, served: &Served) -> Result<(), String> {
    let asked = &trainer.minibatches[minibatch];
    if asked.len() != served.tables.len() {
        return Err(format!("{} tables were asked for, {} served", asked.len(), served.tables.len()));
    }
    for ((table, rows), (served_table, locations)) in asked.iter().zip(&served.tables) {
        if table != served_table || rows.len() != locations.len() {
            return Err(format!(
                "{table}: {} rows asked for, {served_table}: {} served",
                rows.len(),
                locations.len()
            ));
        }
        for (row, location) in rows.iter().zip(locations) {
            let bytes = world.read(served, *table, *location);
            if bytes.as_deref() != Some(&world.dataset.row(*table, u64::from(*row))[..]) {
                return Err(format!("{}: row {row} of {table} is not what lies at {location:?}", trainer.id));
            }
        }
    }
    Ok(())
}

impl Invariant for RightBytes {
    fn after(&mut self, world: &World, _notes: &[Note]) -> Result<(), String> {
        let held = world.trainers.iter().flat_map(|t| t.ready.iter().map(move |(n, served)| (t, *n, served)));
        held.into_iter().try_for_each(|(trainer, minibatch, served)| check(world, trainer, minibatch, served))
    }
}
