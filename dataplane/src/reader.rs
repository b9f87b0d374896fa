//! Direct reads of blocks on one backend: planned, bounded in depth, checked, with the hot cache in front.

use crate::backend::{Io, ReadBuffer};
use crate::block_files::{ALIGNMENT, AlignedRead, BlockFiles, HotCache, Located, copy_rows, plan};
use crate::storage::Counters;
use rudder_client::frames::FailReason;
use rudder_graph::BlockRows;
use rudder_topology::{PartId, TableId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::task::JoinSet;

/// Tries to bring one read's bytes together, short reads and interruptions counted.
const ATTEMPTS: usize = 64;

pub(crate) struct DirectReader<I: Io> {
    blocks: Rc<BlockFiles>,
    io: I,
    files: HashMap<(TableId, PartId), I::File>,
    hot: RefCell<HotCache>,
    counters: Arc<Counters>,
}

/// An item that is read: where its block lies and where its rows go.
#[derive(Clone)]
struct Wanted {
    item: usize,
    rows: BlockRows,
    located: Located,
    to: Range<usize>,
}

/// The first item that failed, and why.
type Failed = (usize, FailReason);

impl<I: Io> DirectReader<I> {
    pub(crate) fn new(blocks: Rc<BlockFiles>, io: I, counters: Arc<Counters>) -> std::io::Result<Self> {
        let files = blocks
            .direct_files()
            .map(|(table, part, file)| Ok(((table, part), io.file(file)?)))
            .collect::<std::io::Result<_>>()?;
        let hot_bytes = blocks.hot_cache_bytes().0;
        counters.hot_bytes_max.fetch_add(hot_bytes, Relaxed);
        Ok(DirectReader { blocks, io, files, hot: RefCell::new(HotCache::new(hot_bytes)), counters })
    }

    /// Bytes of the named rows.
    pub(crate) fn bytes(&self, items: &[BlockRows]) -> usize {
        let row_bytes =
            |item: &BlockRows| self.blocks.book().block(item.block).map_or(0, |place| place.row_bytes);
        items.iter().map(|item| item.rows() as usize * row_bytes(item) as usize).sum()
    }

    /// Reads the named rows, packed in order, into `out` from `start` on. `out` is exactly long enough.
    pub(crate) async fn read(
        self: Rc<Self>,
        items: Vec<BlockRows>,
        mut out: Vec<u8>,
        start: usize,
    ) -> Result<Vec<u8>, Failed> {
        let wanted = self.serve_hot(&items, &mut out, start)?;
        let reads = plan(&wanted.iter().map(|wanted| wanted.located).collect::<Vec<_>>());
        let out = Rc::new(RefCell::new(out));
        let mut first_failed = None;
        let mut tasks = JoinSet::new();
        let mut reads = reads.into_iter().peekable();
        while let Some(read) = reads.next() {
            let of_read: Vec<Wanted> = read.wanted.iter().map(|&at| wanted[at].clone()).collect();
            let one = self.clone().read_one(read, of_read, out.clone());
            if reads.peek().is_none() {
                // The last one needs no task of its own.
                note(&mut first_failed, one.await);
            } else {
                tasks.spawn_local(one);
            }
        }
        while let Some(ended) = tasks.join_next().await {
            note(&mut first_failed, ended.unwrap_or(Err((0, FailReason::ReadFailed))));
        }
        match first_failed {
            Some(failed) => Err(failed),
            // All tasks have ended, so nobody else holds the bytes.
            None => Ok(std::mem::take(&mut *out.borrow_mut())),
        }
    }

    /// Serves what the hot cache holds and returns the rest.
    fn serve_hot(&self, items: &[BlockRows], out: &mut [u8], start: usize) -> Result<Vec<Wanted>, Failed> {
        let mut hot = self.hot.borrow_mut();
        let mut wanted = Vec::with_capacity(items.len());
        let mut at = start;
        for (item, &rows) in items.iter().enumerate() {
            let located = self.blocks.locate(rows).map_err(|reason| (item, reason))?;
            let row_bytes = located.place.row_bytes;
            let to = at..at + rows.rows() as usize * row_bytes as usize;
            at = to.end;
            if let Some(block) = hot.lookup(rows.block) {
                copy_rows(block, row_bytes, rows.mask, &mut out[to]);
                self.counters.hot_hits.fetch_add(1, Relaxed);
            } else {
                wanted.push(Wanted { item, rows, located, to });
            }
        }
        Ok(wanted)
    }

    /// One read: the buffer goes back as soon as its rows are copied, and nothing else is waited for while it is held.
    async fn read_one(
        self: Rc<Self>,
        read: AlignedRead,
        wanted: Vec<Wanted>,
        out: Rc<RefCell<Vec<u8>>>,
    ) -> Result<(), Failed> {
        let first_item = wanted.iter().map(|wanted| wanted.item).min().unwrap_or(0);
        let Some(file) = self.files.get(&(read.table, read.part)) else {
            return Err((first_item, FailReason::NotStored));
        };
        let mut buffer = self.io.buffer(read.bytes).await;
        let mut have = 0;
        for _ in 0..ATTEMPTS {
            // A short read goes on from the page where it stopped: direct reads start at page boundaries.
            have -= have % ALIGNMENT as usize;
            let (result, back) = self.io.read_at(file, buffer, have..read.bytes, read.offset).await;
            buffer = back;
            match result {
                Ok(0) => break,
                Ok(bytes) => have += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::task::yield_now().await,
                Err(error) => {
                    tracing::warn!(part = %read.part, offset = read.offset, %error, "a read failed");
                    break;
                }
            }
            if have >= read.bytes_needed {
                break;
            }
        }
        if have < read.bytes_needed {
            return Err((first_item, FailReason::ReadFailed));
        }
        self.counters.reads.fetch_add(1, Relaxed);
        self.counters.read_bytes.fetch_add(have as u64, Relaxed);
        let bytes = buffer.filled(read.bytes_needed);
        let mut out = out.borrow_mut();
        let mut hot = self.hot.borrow_mut();
        for Wanted { item, rows, located, to } in wanted {
            let at = (located.offset - read.offset) as usize;
            let block = &bytes[at..at + located.bytes];
            self.blocks.verify(located.place, block).map_err(|reason| (item, reason))?;
            copy_rows(block, located.place.row_bytes, rows.mask, &mut out[to]);
            let before = hot.bytes();
            hot.insert(rows.block, block);
            // Wraps where the cache shrank, and so does the sum.
            self.counters.hot_bytes.fetch_add(hot.bytes().wrapping_sub(before), Relaxed);
        }
        Ok(())
    }
}

impl<I: Io> Drop for DirectReader<I> {
    fn drop(&mut self) {
        self.counters.hot_bytes.fetch_sub(self.hot.borrow().bytes(), Relaxed);
        self.counters.hot_bytes_max.fetch_sub(self.blocks.hot_cache_bytes().0, Relaxed);
    }
}

fn note(first: &mut Option<Failed>, outcome: Result<(), Failed>) {
    if let Err(failed) = outcome {
        *first = Some(first.map_or(failed, |known| if known.0 <= failed.0 { known } else { failed }));
    }
}

#[cfg(test)]
mod tests;
