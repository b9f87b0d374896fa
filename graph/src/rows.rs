//! What every plane says about bytes: some rows of a block, and how urgent they are.

use rudder_topology::BlockId;
use serde::{Deserialize, Serialize};

/// Some rows of one block; bit r stands for row r.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockRows {
    pub block: BlockId,
    pub mask: u64,
}

impl BlockRows {
    /// Number of rows named.
    #[must_use]
    pub fn rows(self) -> u32 {
        self.mask.count_ones()
    }
}

/// How urgent a transfer is. Demand goes first, everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// A trainer waits.
    Demand,
    /// Ahead of use.
    Prefetch,
}
