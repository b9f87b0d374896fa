//! RapidGNN's cache: for each window of W minibatches the n blocks that they use most, in two buffers, so that the next
//! window's blocks come in while the present one is served.
//!
//! Window w is minibatches w·W to (w + 1)·W - 1 of each trainer; the node is in the window of the trainer that is
//! furthest behind. A window's blocks are chosen when all of it is announced or foreseen, of all trainers: with 2·W
//! minibatches ahead that is in time for the second buffer. Else they are chosen from what is known of it when the first
//! trainer waits for it, as at the end of a run. In RapidGNN a window is an epoch, sampled ahead as a whole. Ties go
//! to the lowest id.

use super::{Choice, Ground, Members};
use crate::view::View;
use crate::window::{Entry, Phase};
use rudder_topology::{BlockId, TableId, WindowStaticSpec};
use rustc_hash::FxHashMap;

pub(in super::super) struct WindowStatic {
    window_minibatches: u64,
    /// n of each table.
    sizes: Vec<usize>,
    current: Option<Buffer>,
    next: Option<Buffer>,
}

struct Buffer {
    window: u64,
    /// By table, most used first.
    blocks: Vec<Vec<BlockId>>,
}

impl WindowStatic {
    pub fn new(spec: WindowStaticSpec, ground: &Ground, _: &mut Members) -> Self {
        let size = |table| (spec.cache.as_f64() * ground.slots(table) as f64) as usize;
        WindowStatic {
            window_minibatches: u64::from(spec.minibatches),
            sizes: ground.tables().map(size).collect(),
            current: None,
            next: None,
        }
    }

    fn window_of(&self, entry: &Entry) -> u64 {
        entry.minibatch.0 / self.window_minibatches
    }

    /// The window of the trainer that is furthest behind.
    fn present(&self, view: &View) -> Option<u64> {
        let oldest = view.window.trainers().filter_map(|trainer| view.window.queue(trainer).next());
        oldest.filter_map(|id| Some(self.window_of(view.window.entry(id)?))).min()
    }

    /// Known minibatches of a window that are not released.
    fn entries<'v>(&self, window: u64, view: &'v View<'v>) -> impl Iterator<Item = &'v Entry> {
        let all = view.window.trainers().flat_map(|trainer| view.window.queue(trainer));
        let entries = all.filter_map(|id| view.window.entry(id));
        let length = self.window_minibatches;
        entries.filter(move |entry| entry.minibatch.0 / length == window)
    }

    /// Whether all of a window is announced or foreseen.
    fn is_known(&self, window: u64, view: &View) -> bool {
        let last = (window + 1) * self.window_minibatches - 1;
        view.window.trainers().all(|trainer| {
            let entry = view.window.queue(trainer).last().and_then(|id| view.window.entry(id));
            let known = entry.map(|entry| entry.minibatch).or(view.window.last_minibatch(trainer));
            known.is_some_and(|known| known.0 >= last)
        })
    }

    fn choose(&self, window: u64, view: &View) -> Buffer {
        let mut uses: FxHashMap<BlockId, u32> = FxHashMap::default();
        let mut by_table: Vec<Vec<BlockId>> = vec![vec![]; self.sizes.len()];
        for entry in self.entries(window, view) {
            for segment in &entry.segments {
                for rows in &entry.blocks[segment.start as usize..segment.end as usize] {
                    let count = uses.entry(rows.block).or_default();
                    *count += 1;
                    if *count == 1 {
                        by_table[segment.table.index()].push(rows.block);
                    }
                }
            }
        }
        for (blocks, &size) in by_table.iter_mut().zip(&self.sizes) {
            blocks.sort_unstable_by_key(|block| (std::cmp::Reverse(uses[block]), *block));
            blocks.truncate(size);
        }
        Buffer { window, blocks: by_table }
    }

    fn join(buffer: &Buffer, members: &mut Members) {
        for (table, blocks) in buffer.blocks.iter().enumerate() {
            for &block in blocks {
                members.join(block, TableId(table as u16));
            }
        }
    }

    /// The present window becomes current: what only the former one used leaves.
    fn switch(&mut self, to: Buffer, members: &mut Members) {
        let former = self.current.replace(to);
        let stays: rustc_hash::FxHashSet<BlockId> =
            self.current.iter().flat_map(|buffer| buffer.blocks.iter().flatten().copied()).collect();
        for block in former.iter().chain(&self.next).flat_map(|buffer| buffer.blocks.iter().flatten()) {
            if !stays.contains(block) {
                members.leave(*block);
            }
        }
        self.next = None;
    }
}

impl Choice for WindowStatic {
    fn prepare(&mut self, view: &View, members: &mut Members) {
        let Some(present) = self.present(view) else { return };
        if self.current.as_ref().map(|buffer| buffer.window) != Some(present) {
            let begun = |entry: &Entry| {
                entry.wanted_ns.is_some() || !matches!(entry.phase, Phase::Announced | Phase::Foreseen)
            };
            let to = match self.next.take() {
                // Its members that yielded meanwhile do not come back.
                Some(next) if next.window == present => next,
                next => {
                    self.next = next;
                    if !self.is_known(present, view) && !self.entries(present, view).any(begun) {
                        return;
                    }
                    let chosen = self.choose(present, view);
                    Self::join(&chosen, members);
                    chosen
                }
            };
            self.switch(to, members);
        }
        if self.next.is_none() && self.is_known(present + 1, view) {
            let chosen = self.choose(present + 1, view);
            Self::join(&chosen, members);
            self.next = Some(chosen);
        }
    }

    fn foresees(&self) -> bool {
        true
    }

    fn by_value(&self, table: TableId, members: &Members) -> Vec<BlockId> {
        let buffers = self.current.iter().chain(&self.next);
        let blocks = buffers.filter_map(|buffer| buffer.blocks.get(table.index())).flatten();
        // A block of both windows stands twice, and yields for both when it yields for the later one; so only its
        // first place counts.
        let mut seen = rustc_hash::FxHashSet::default();
        blocks.copied().filter(|&block| members.contains(block) && seen.insert(block)).collect()
    }

    fn memory_bytes(&self) -> usize {
        let buffers = self.current.iter().chain(&self.next);
        buffers.flat_map(|buffer| &buffer.blocks).map(Vec::capacity).sum::<usize>() * size_of::<BlockId>()
    }
}
