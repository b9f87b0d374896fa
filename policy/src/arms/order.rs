//! In which order resident blocks are let go.

use crate::view::View;
use crate::window::EntryId;
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, TableId};

/// An order over the blocks of the cache.
///
/// The planner says what happens to blocks, in bulk; the order answers with victims. Pins are not told: what an order
/// knows may be pinned, in flight or gone by now. The view has the facts, and [`Order::victim`] asks it before it
/// gives a block.
pub(super) trait Order: Send {
    /// Called once before each batch of events.
    fn prepare(&mut self, _view: &View) {}

    /// A minibatch that uses these blocks was announced; the window shows it.
    fn announced(&mut self, _blocks: &[BlockRows], _view: &View) {}

    /// Rows of these blocks became resident. A block may be new to the order, or known.
    fn arrived(&mut self, rows: &[BlockRows], view: &View);

    /// A minibatch left the window and its pins are gone: those of its blocks that are resident have just been used.
    fn released(&mut self, entry: EntryId, blocks: &[BlockRows], view: &View);

    /// Takes the block of a table that should go first out of the order. It must be evictable in the view.
    /// `sooner_than` is the rank (in order of time of use) of the minibatch that wants the room: an order that knows
    /// next uses gives no block that is needed as soon as that, or sooner.
    fn victim(&mut self, table: TableId, sooner_than: u32, view: &View) -> Option<BlockId>;

    /// Victims for a reservation are asked for next, and these are its own blocks: none of them will be taken, so an
    /// algorithm that changes what it passes over should pass over them unseen. Holds until the next
    /// [`Order::prepare`], or until they are spared no more.
    fn spare(&mut self, _blocks: &[BlockRows], _view: &View) {}

    /// The reservation cannot be had.
    fn unspare(&mut self, _blocks: &[BlockRows], _view: &View) {}

    /// A victim stays after all, or a block that was in flight is so no more: back into the order, as the one to go
    /// first where the order has no better place for it.
    fn restore(&mut self, block: BlockId, view: &View);

    /// Whether next uses decide, so that foreseen ones help.
    fn foresees(&self) -> bool {
        false
    }

    /// Whether a block stays when the last minibatch that pins it is released. Asked of arms that choose what to keep.
    fn keeps(&self, _block: BlockId) -> bool {
        true
    }

    /// Takes the blocks that are not kept any more since this was last asked.
    fn dismissed(&mut self) -> Vec<BlockId> {
        vec![]
    }

    /// The next block of a table to be brought in whole while nobody else needs the links.
    fn next_to_bring(&mut self, _table: TableId, _view: &View) -> Option<BlockId> {
        None
    }

    /// That block is on its way.
    fn brought(&mut self, _table: TableId) {}

    /// Rows of the block did not arrive.
    fn lost(&mut self, _block: BlockId, _view: &View) {}

    /// Starts anew from the facts, after a panic.
    fn rebuild(&mut self, view: &View);

    /// Uses of a block that a minibatch is expected to make; 0 where the order keeps no account.
    fn expected_uses(&self, _block: BlockId) -> f32 {
        0.0
    }

    /// How likely a block comes again, comparable between blocks only.
    fn likelihood(&self, _block: BlockId) -> f32 {
        f32::NEG_INFINITY
    }

    /// Bytes that the order keeps.
    fn memory_bytes(&self) -> usize;
}
