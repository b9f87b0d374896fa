//! In which order resident blocks are let go.

use crate::view::View;
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, TableId};

/// An order over the resident, unpinned blocks. Blocks that are pinned are not in it: whoever reserves a minibatch
/// takes its blocks out, its release puts them back.
pub(super) trait Order: Send {
    /// Called once before each batch of events.
    fn prepare(&mut self, view: &View);

    /// The block is evictable: it enters the order, or changes its place in it.
    fn place(&mut self, block: BlockId, view: &View);

    /// As [`Order::place`], just after a use.
    fn place_used(&mut self, block: BlockId, view: &View) {
        self.place(block, view);
    }

    /// A minibatch that used these blocks was released; the placing of those that may go follows.
    fn used(&mut self, _blocks: &[BlockRows], _view: &View) {}

    /// `block`, which is in the order, gets another place if it is due one when a minibatch that needs it is
    /// announced.
    fn announced(&mut self, _block: BlockId, _view: &View) {}

    fn remove(&mut self, block: BlockId, view: &View);

    /// Blocks of a table in the order.
    fn len(&self, table: TableId) -> usize;

    fn contains(&self, block: BlockId, view: &View) -> bool;

    /// Takes the block that should go first out of the order. `sooner_than` is the rank (in order of time of use)
    /// of the minibatch that wants the room: a block that is needed as soon as that, or sooner, is not given.
    fn victim(&mut self, table: TableId, sooner_than: u32, view: &View) -> Option<BlockId>;

    fn clear(&mut self);

    /// A minibatch was announced: its blocks are likelier to come again.
    fn record(&mut self, _blocks: &[BlockRows], _half_life_minibatches: f32) {}

    /// How likely a block comes again, comparable between blocks only.
    fn likelihood(&self, _block: BlockId) -> f32 {
        f32::NEG_INFINITY
    }
}
