//! The shared memory of a compute node's cache: chunks of `memfd` that trainers map read-only.
//!
//! A chunk is made with ftruncate, mapped writable once by this process, filled by fallocate, then sealed with
//! SHRINK | GROW | FUTURE_WRITE | SEAL. From then on nobody can make another writable mapping, write to the
//! descriptor, punch holes or change its size; trainers get the descriptor by `SCM_RIGHTS`. It has no name, so
//! nothing is left over after a crash.

mod available;

use rudder_topology::{Bytes, ChunkId};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

/// Why the cache's memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheMemoryError {
    #[error(
        "the cache must hold at least one chunk, and a chunk at least one page: {bytes} in chunks of {chunk_bytes}"
    )]
    Size { bytes: Bytes, chunk_bytes: Bytes },
    #[error(
        "not enough memory for a cache of {bytes}: {allocated} could be had; lower `cache_bytes` of the node, or give the machine (or its memory cgroup) more"
    )]
    NoMemory { bytes: Bytes, allocated: Bytes },
    #[error("{call} failed: {errno}")]
    System { call: &'static str, errno: Errno },
    #[error("more than {} chunks; raise the chunk size", u16::MAX)]
    TooManyChunks,
}

/// A range that does not lie within a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such bytes in the cache: {chunk}, {bytes} bytes at {offset}")]
pub struct OutsideCache {
    pub chunk: ChunkId,
    pub offset: u64,
    pub bytes: usize,
}

/// Which pages back the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    Normal,
    /// 2 MiB pages: chunks came from the machine's pool of them.
    Huge,
}

/// Which pages to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageChoice {
    Normal,
    /// Huge pages where the machine has them reserved and chunks are multiples of 2 MiB, else normal ones.
    HugeIfAvailable,
}

/// The memory of one cache.
#[derive(Debug)]
pub struct CacheMemory {
    chunks: Vec<OwnedFd>,
    mappings: Vec<Mapping>,
    pages: Pages,
}

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is memory of this process that stays until drop; all access goes through the raw-pointer copies
// below, whose callers guarantee that no bytes are read and written at the same time.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by mmap with these bounds, and no reference into it outlives the owner.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

const HUGE_PAGE: u64 = 2 << 20;
const PAGE: u64 = 4096;

impl CacheMemory {
    /// Makes `bytes / chunk_bytes` chunks (rounded down) of `chunk_bytes` each (rounded up to pages), all their
    /// memory allocated now, on the NUMA node of the calling thread.
    pub fn create(bytes: Bytes, chunk_bytes: Bytes) -> Result<Self, CacheMemoryError> {
        Self::create_with(bytes, chunk_bytes, PageChoice::HugeIfAvailable)
    }

    /// As [`Self::create`], with a say in the pages.
    pub fn create_with(
        bytes: Bytes,
        chunk_bytes: Bytes,
        pages: PageChoice,
    ) -> Result<Self, CacheMemoryError> {
        let each = chunk_bytes.0.next_multiple_of(PAGE);
        let count = bytes.0.checked_div(each).unwrap_or(0);
        if count == 0 {
            return Err(CacheMemoryError::Size { bytes, chunk_bytes });
        }
        if count > u64::from(u16::MAX) {
            return Err(CacheMemoryError::TooManyChunks);
        }
        Self::create_chunks(&vec![Bytes(each); count as usize], pages)
    }

    /// Makes chunks of these sizes (rounded up to pages), all their memory allocated now, on the NUMA node of the
    /// calling thread. No chunks is a cache that holds nothing.
    pub fn create_chunks(chunks: &[Bytes], pages: PageChoice) -> Result<Self, CacheMemoryError> {
        if chunks.len() > usize::from(u16::MAX) {
            return Err(CacheMemoryError::TooManyChunks);
        }
        let sizes: Vec<u64> = chunks.iter().map(|bytes| bytes.0.next_multiple_of(PAGE)).collect();
        if pages == PageChoice::HugeIfAvailable
            && sizes.iter().all(|bytes| bytes.is_multiple_of(HUGE_PAGE))
            && let Ok(memory) = Self::allocate(&sizes, Pages::Huge)
        {
            return Ok(memory);
        }
        Self::allocate(&sizes, Pages::Normal)
    }

    fn allocate(sizes: &[u64], pages: Pages) -> Result<Self, CacheMemoryError> {
        // Shared memory has no bound of its own: fallocate would go on until the kernel kills somebody.
        let total = Bytes(sizes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)));
        if pages == Pages::Normal
            && let Some(allocated) = available::bytes().filter(|&available| available < total.0).map(Bytes)
        {
            return Err(CacheMemoryError::NoMemory { bytes: total, allocated });
        }
        let mut memory = CacheMemory { chunks: Vec::new(), mappings: Vec::new(), pages };
        for &bytes in sizes {
            let (fd, mapping) = chunk(bytes, pages).map_err(|(call, errno)| match errno {
                Errno::NOSPC | Errno::NOMEM => {
                    CacheMemoryError::NoMemory { bytes: total, allocated: memory.bytes() }
                }
                errno => CacheMemoryError::System { call, errno },
            })?;
            memory.chunks.push(fd);
            memory.mappings.push(mapping);
        }
        Ok(memory)
    }

    /// The chunks' descriptors, by [`ChunkId`], to be passed to trainers.
    #[must_use]
    pub fn chunks(&self) -> &[OwnedFd] {
        &self.chunks
    }

    /// Bytes of a chunk; 0 for one that there is not.
    #[must_use]
    pub fn chunk_bytes(&self, chunk: ChunkId) -> Bytes {
        Bytes(self.mappings.get(chunk.index()).map_or(0, |mapping| mapping.bytes as u64))
    }

    /// Bytes of all chunks.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.mappings.iter().map(|mapping| mapping.bytes as u64).sum())
    }

    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Whether `bytes` at `offset` lie within the chunk.
    #[must_use]
    pub fn contains(&self, chunk: ChunkId, offset: u64, bytes: usize) -> bool {
        offset.checked_add(bytes as u64).is_some_and(|end| end <= self.chunk_bytes(chunk).0)
    }

    fn pointer(&self, chunk: ChunkId, offset: u64, bytes: usize) -> Result<NonNull<u8>, OutsideCache> {
        if !self.contains(chunk, offset, bytes) {
            return Err(OutsideCache { chunk, offset, bytes });
        }
        // SAFETY: the offset was checked to lie within the mapping.
        Ok(unsafe { self.mappings[chunk.index()].start.add(offset as usize) })
    }

    /// Writes bytes of a row.
    ///
    /// # Safety
    /// These bytes must not be published: no trainer and no thread of this process reads them, or writes them, until
    /// the caller has announced them by some synchronising message. The compute mover is the only caller; it writes a
    /// slot only while the transfer for which the slot was reserved is in its table.
    pub unsafe fn write_row(&self, chunk: ChunkId, offset: u64, bytes: &[u8]) -> Result<(), OutsideCache> {
        let to = self.pointer(chunk, offset, bytes.len())?;
        // SAFETY: `to` has room for the bytes; the caller guarantees that nobody else touches them; the source is
        // private memory, as the mapping is never lent as a slice.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Appends published bytes to a buffer: for reading past the mapping of a trainer.
    ///
    /// # Safety
    /// The bytes are published and pinned: nobody writes them during the call.
    pub unsafe fn read(
        &self,
        chunk: ChunkId,
        offset: u64,
        bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), OutsideCache> {
        let from = self.pointer(chunk, offset, bytes)?;
        // SAFETY: the range was checked, and the caller guarantees that nobody writes it meanwhile.
        into.extend_from_slice(unsafe { std::slice::from_raw_parts(from.as_ptr(), bytes) });
        Ok(())
    }
}

fn chunk(bytes: u64, pages: Pages) -> Result<(OwnedFd, Mapping), (&'static str, Errno)> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if pages == Pages::Huge {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    let fd = rustix::fs::memfd_create("rudder-cache", flags).map_err(|e| ("memfd_create", e))?;
    rustix::fs::ftruncate(&fd, bytes).map_err(|e| ("ftruncate", e))?;
    // SAFETY: a fresh shared mapping at an address that the kernel chooses; nothing else knows of it.
    let start = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            bytes as usize,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &fd,
            0,
        )
    }
    .map_err(|e| ("mmap", e))?;
    let start = NonNull::new(start.cast::<u8>()).ok_or(("mmap", Errno::NOMEM))?;
    let mapping = Mapping { start, bytes: bytes as usize };
    if pages == Pages::Normal {
        prefer_huge_pages(&mapping);
    }
    loop {
        match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::INTR) => {}
            result => break result.map_err(|e| ("fallocate", e))?,
        }
    }
    // FUTURE_WRITE comes after our own mapping: it spares the mappings that exist.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals).map_err(|e| ("fcntl(F_ADD_SEALS)", e))?;
    Ok((fd, mapping))
}

/// Fills a mapping, with huge pages where the kernel gives shared memory that asks for them any (`shmem_enabled` is
/// `advise`): fewer addresses to look up in every gather. fallocate alone would not do: it knows nothing of a mapping's
/// wishes. What cannot be filled here, it refuses in plain words.
fn prefer_huge_pages(mapping: &Mapping) {
    let start = mapping.start.as_ptr().cast();
    // SAFETY: the mapping is ours and not lent yet; neither advice changes what it holds, which is zeros.
    unsafe {
        if rustix::mm::madvise(start, mapping.bytes, Advice::LinuxHugepage).is_ok() {
            let _ = rustix::mm::madvise(start, mapping.bytes, Advice::LinuxPopulateWrite);
        }
    }
}

#[cfg(test)]
#[path = "cache_memory_tests.rs"]
mod tests;
