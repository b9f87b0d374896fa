//! The cache is made smaller at run time, and large again.

use super::Engine;
use crate::geometry::{CacheTooSmall, slots_within};
use crate::step::{Event, Reaction};
use rudder_graph::BlockRows;
use rudder_topology::{Bytes, TableId};

/// Why a cache keeps its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResizeRefusal {
    #[error(transparent)]
    TooSmall(#[from] CacheTooSmall),
    #[error(
        "a cache of {asked} is larger than the {has} that the node was started with; raise `cache` in the topology file and restart it"
    )]
    TooLarge { asked: Bytes, has: Bytes },
}

impl Engine {
    /// From here on the cache has as many bytes, at most those that it was made with. Blocks beyond that go at once,
    /// and those that a minibatch has pinned, or that are on their way, as soon as nothing holds them.
    pub fn resize_cache(&mut self, bytes: Bytes) -> Result<Reaction, ResizeRefusal> {
        if bytes > self.cache_bytes {
            return Err(ResizeRefusal::TooLarge { asked: bytes, has: self.cache_bytes });
        }
        let slots = slots_within(&self.facts.book, bytes)?;
        let stay = self.facts.cache.resize(&slots);
        for (table, &slots) in slots.iter().enumerate() {
            if let Some(benefit) = &mut self.benefit {
                benefit.resize(TableId(table as u16), slots);
            }
        }
        let mut events = vec![];
        self.withdraw(&mut events);
        if !stay.is_empty() {
            // Orders may have dropped them.
            let rows = |block| BlockRows { block, mask: self.facts.cache.valid(block) };
            events.push(Event::Arrived(stay.into_iter().map(rows).collect()));
        }
        // There may be room for more.
        events.push(Event::Tick);
        Ok(Reaction { events, commands: vec![] })
    }

    /// Lets blocks go from slots that the cache has to give up.
    pub(super) fn withdraw(&mut self, events: &mut Vec<Event>) {
        let blocks = self.facts.cache.take_unheld();
        for &block in &blocks {
            if self.facts.cache.is_stranded(block) {
                self.evict(block);
            }
        }
        if !blocks.is_empty() {
            events.push(Event::Withdrawn(blocks));
        }
    }
}

#[cfg(test)]
mod tests;
