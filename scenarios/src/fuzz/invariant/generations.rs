//! Nothing from an old generation is applied: what can be read came in an answer of the incarnation that was asked,
//! while its transfer was open, and nobody asks an incarnation that is gone.

use crate::fuzz::invariant::{Invariant, Note};
use crate::fuzz::world::World;
use rudder_policy::step::{Outcome, Step};
use rudder_topology::{BlockId, Generation, NodeId};
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub struct Generations {
    /// The rows of each block that came with valid answers since it was last evicted.
    arrived: BTreeMap<BlockId, u64>,
    up: BTreeMap<NodeId, Generation>,
    stale_answers: u64,
}

impl Generations {
    fn take(&mut self, note: &Note) -> Result<(), String> {
        match note {
            Note::NodeUp(node, generation) => drop(self.up.insert(*node, *generation)),
            Note::NodeDown(node) => drop(self.up.remove(node)),
            Note::Started(transfer) if self.up.get(&transfer.node) != Some(&transfer.generation) => {
                return Err(format!("{} asks {} of {}", transfer.id, transfer.node, transfer.generation));
            }
            Note::Ended { transfer, outcome: Outcome::Arrived { .. } } => {
                for item in &transfer.items {
                    *self.arrived.entry(item.rows.block).or_default() |= item.rows.mask;
                }
            }
            Note::Stale { .. } => self.stale_answers += 1,
            Note::Accepted(Step::Fetch(fetch)) => {
                for admission in &fetch.admissions {
                    admission.evict.map(|block| self.arrived.remove(&block));
                }
            }
            Note::Accepted(Step::Reserve { evict, .. } | Step::Evict { blocks: evict, .. }) => {
                self.arrived.retain(|block, _| !evict.contains(block));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Invariant for Generations {
    fn after(&mut self, world: &World, notes: &[Note]) -> Result<(), String> {
        notes.iter().try_for_each(|note| self.take(note))?;
        let cache = world.engine.view().cache;
        for block in cache.resident() {
            let extra = cache.valid(block) & !self.arrived.get(&block).copied().unwrap_or(0);
            if extra != 0 {
                return Err(format!("rows {extra:#x} of {block} are readable and never came"));
            }
        }
        let counted = world.engine.statistics().stale_answers;
        if counted != self.stale_answers {
            return Err(format!("{} answers were stale, {counted} were refused", self.stale_answers));
        }
        Ok(())
    }
}
