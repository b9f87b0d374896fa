//! A set that is chosen once: the blocks with the highest prior. With in-degree for a prior it is the cache of PaGraph
//! and Quiver, with visits of presampled epochs GNNLab's, with analytic visit probabilities SALIENT++'s.

use super::{Choice, Ground, Members};
use rudder_topology::{BlockId, TableId};

/// Per table as many blocks as there are slots, most used first.
pub(in super::super) struct Fixed {
    ranked: Vec<Vec<BlockId>>,
}

impl Fixed {
    pub fn new(ground: &Ground, members: &mut Members) -> Self {
        let top = |table| {
            let mut ranked = ground.ranked(table);
            ranked.truncate(ground.slots(table));
            ranked
        };
        let ranked: Vec<Vec<BlockId>> = ground.tables().map(top).collect();
        for (table, blocks) in ranked.iter().enumerate() {
            for &block in blocks {
                members.join(block, TableId(table as u16));
            }
        }
        Fixed { ranked }
    }
}

impl Choice for Fixed {
    fn by_value(&self, table: TableId, members: &Members) -> Vec<BlockId> {
        let ranked = self.ranked.get(table.index()).into_iter().flatten();
        ranked.copied().filter(|&block| members.contains(block)).collect()
    }

    fn memory_bytes(&self) -> usize {
        self.ranked.iter().map(Vec::capacity).sum::<usize>() * size_of::<BlockId>()
    }
}
