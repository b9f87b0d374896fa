//! Resident bytes stay within capacity, and no two blocks share a byte of it. When it shrinks, only what is held stays
//! beyond it.

use crate::fuzz::invariant::{Invariant, Note};
use crate::fuzz::world::World;
use std::collections::BTreeMap;

/// See the module.
pub struct Capacity;

impl Invariant for Capacity {
    fn after(&mut self, world: &World, _notes: &[Note]) -> Result<(), String> {
        let cache = world.engine.view().cache;
        let (used, all) = cache.occupancy_bytes();
        let budget = world.cache_bytes;
        if used > all || all > budget {
            return Err(format!(
                "{used} bytes are used, of {all} that the engine has, of {budget} that there are"
            ));
        }
        let mut extents = BTreeMap::new();
        for block in cache.resident() {
            if cache.is_stranded(block) && !cache.is_pinned(block) && cache.in_flight(block) == 0 {
                return Err(format!("{block} stays beyond the limit though nothing holds it"));
            }
            let slot = cache.slot_of(block).ok_or(format!("{block} is resident without a slot"))?;
            let place = world.dataset.book.block(block).ok_or(format!("{block} does not exist"))?;
            let (chunk, offset) = cache.geometry().place(slot);
            let end = offset + cache.geometry().slot_bytes(place.table);
            if end > world.memory[chunk.index()].len() as u64 {
                return Err(format!("{block} ends at {end}, beyond {chunk}"));
            }
            if let Some(other) = extents.insert((chunk, offset), (end, block)) {
                return Err(format!("{block} and {} begin at the same byte", other.1));
            }
        }
        let overlap =
            extents.iter().zip(extents.iter().skip(1)).find(|(a, b)| a.0.0 == b.0.0 && a.1.0 > b.0.1);
        overlap.map_or(Ok(()), |(a, b)| Err(format!("{} reaches into {}", a.1.1, b.1.1)))
    }
}
