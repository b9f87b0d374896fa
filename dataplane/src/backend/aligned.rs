//! Memory for `O_DIRECT`: page-aligned buffers cut from one mapping, in huge pages where the kernel gives them. A read
//! into neighbouring physical pages is one piece for the device, into scattered ones it is hundreds: two to three times
//! as fast at 64 KiB and more.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

const HUGE_PAGE: usize = 2 << 20;

/// A private mapping that stays until its last buffer is gone.
#[derive(Debug)]
struct Arena {
    start: NonNull<u8>,
    bytes: usize,
}

/// A range of an arena that belongs to this value alone, all zero at first.
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    _arena: Arc<Arena>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the arena is only a mapping to be unmapped; nothing is accessed through it.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}
// SAFETY: the range belongs to this value alone.
unsafe impl Send for AlignedBuffer {}

impl Arena {
    fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let start = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
        }?;
        // SAFETY: the mapping that was just made. Advice that is not taken costs speed only.
        let _ = unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arena { start, bytes })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: made by mmap with these bounds; no buffer refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

impl AlignedBuffer {
    /// Buffers of these sizes (multiples of pages), so many of each, in the order that is given.
    pub(crate) fn pool(sizes: &[(usize, usize)]) -> io::Result<Vec<AlignedBuffer>> {
        let total: usize = sizes.iter().map(|&(bytes, count)| bytes * count).sum();
        // Room to start at a huge page.
        let arena = Arc::new(Arena::new(total.next_multiple_of(HUGE_PAGE) + HUGE_PAGE)?);
        let mut at = arena.start.as_ptr().align_offset(HUGE_PAGE);
        let mut buffers = Vec::new();
        for &(bytes, count) in sizes {
            for _ in 0..count {
                // SAFETY: `at + bytes` is within the mapping, which is one huge page longer than all buffers.
                let start = unsafe { arena.start.add(at) };
                buffers.push(AlignedBuffer { _arena: arena.clone(), start, bytes });
                at += bytes;
            }
        }
        Ok(buffers)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the range is mapped, initialized (zero), this value's alone, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

// SAFETY: the mapping does not move when the value does, and stays until drop.
unsafe impl tokio_uring::buf::IoBuf for AlignedBuffer {
    fn stable_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.bytes
    }

    fn bytes_total(&self) -> usize {
        self.bytes
    }
}

// SAFETY: as above; all bytes are initialized from the start.
unsafe impl tokio_uring::buf::IoBufMut for AlignedBuffer {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    unsafe fn set_init(&mut self, _bytes: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_apart_and_writable() {
        let sizes = [(1 << 20, 2), (16 << 10, 3), (4096, 2)];
        let mut buffers = AlignedBuffer::pool(&sizes).expect("memory");
        assert_eq!(buffers.len(), 7);
        for (number, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!(buffer.as_slice().as_ptr() as usize % 4096, 0);
            buffer.as_mut_slice().fill(number as u8 + 1);
        }
        assert_eq!(buffers[0].as_slice().as_ptr() as usize % HUGE_PAGE, 0);
        for (number, buffer) in buffers.iter().enumerate() {
            assert!(buffer.as_slice().iter().all(|&byte| byte == number as u8 + 1));
        }
        // One that stays keeps the memory.
        let last = buffers.pop().expect("a buffer");
        drop(buffers);
        assert!(last.as_slice().iter().all(|&byte| byte == 7));
    }
}
