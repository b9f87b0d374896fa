//! What a policy may see, and the trait it implements.

use crate::cache::CacheIndex;
use crate::guard::Prefetching;
use crate::links::Links;
use crate::parameters::Parameters;
use crate::step::{Event, Step};
use crate::window::Window;
use rudder_graph::PartitionBook;
use rudder_topology::BlockId;

/// All facts of an engine. Only its stages change them.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub book: PartitionBook,
    pub window: Window,
    pub cache: CacheIndex,
    pub links: Links,
    pub parameters: Parameters,
    pub ready_ahead: u32,
    /// What the net-benefit guard says.
    pub prefetching: Prefetching,
}

/// Read access to all facts. The facts belong to the engine; a policy keeps only orders over them.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub book: &'a PartitionBook,
    pub window: &'a Window,
    pub cache: &'a CacheIndex,
    pub links: &'a Links,
    pub parameters: &'a Parameters,
    /// Pinned minibatches that a trainer may hold beyond the one in use.
    pub ready_ahead: u32,
    /// What the net-benefit guard says, to policies that it watches.
    pub prefetching: Prefetching,
}

impl Facts {
    pub fn view(&self) -> View<'_> {
        View {
            book: &self.book,
            window: &self.window,
            cache: &self.cache,
            links: &self.links,
            parameters: &self.parameters,
            ready_ahead: self.ready_ahead,
            prefetching: self.prefetching,
        }
    }
}

/// Eviction, admission and the choice of what to prefetch.
pub trait Policy: Send {
    /// Takes in what happened and says what to do next. Deterministic: the same calls give the same steps.
    fn on(&mut self, events: &[Event], now_ns: u64, view: &View) -> Vec<Step>;

    /// Whether it makes use of minibatches that are foreseen and not announced. For others there are none.
    fn foresees(&self) -> bool {
        false
    }

    /// Forgets its orders and makes them anew from the facts, after a panic.
    fn rebuild(&mut self, view: &View);

    /// Bytes that its orders and its memory of the past take.
    fn memory_bytes(&self) -> usize;
}

impl View<'_> {
    /// Rows of `mask` that are neither resident nor in flight.
    #[must_use]
    #[inline]
    pub fn absent(&self, block: BlockId, mask: u64) -> u64 {
        mask & !self.cache.held(block)
    }
}
