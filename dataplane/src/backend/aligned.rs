//! Page-aligned memory for `O_DIRECT`.

use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;

/// Private memory aligned to pages, all zero at first.
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for AlignedBuffer {}

impl AlignedBuffer {
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let start = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(AlignedBuffer { start, bytes })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is `bytes` long, initialized (zero), and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: made by mmap with these bounds; nobody refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
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
