use super::*;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

fn memory() -> CacheMemory {
    CacheMemory::create_with(Bytes(4 << 12), Bytes(2 << 12), PageChoice::Normal).expect("memory")
}

fn map(fd: impl AsFd, protection: ProtFlags, flags: MapFlags) -> Result<*mut u8, Errno> {
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), 2 << 12, protection, flags, fd, 0) }.map(|at| at.cast())
}

#[test]
fn what_is_written_is_what_a_trainer_reads() {
    let memory = memory();
    assert_eq!(
        (memory.chunks().len(), memory.bytes(), memory.chunk_bytes(ChunkId(1))),
        (2, Bytes(4 << 12), Bytes(2 << 12))
    );
    // SAFETY: nobody else knows of this memory yet.
    unsafe { memory.write_row(ChunkId(1), 4090, b"row") }.expect("written");
    let trainer = map(&memory.chunks()[1], ProtFlags::READ, MapFlags::SHARED).expect("mapped");
    // SAFETY: the mapping is two pages long, and nobody writes now.
    let seen = unsafe { std::slice::from_raw_parts(trainer.add(4090), 3) };
    assert_eq!(seen, b"row");
    let mut read = vec![1];
    // SAFETY: nobody writes now.
    unsafe { memory.read(ChunkId(1), 4089, 5, &mut read) }.expect("read");
    assert_eq!(read, [1, 0, b'r', b'o', b'w', 0]);
}

#[test]
fn nothing_outside_a_chunk_is_touched() {
    let memory = memory();
    for (chunk, offset, bytes) in
        [(0, 8192, 1), (0, 8190, 3), (0, u64::MAX, 2), (2, 0, 1), (0, 0, usize::MAX)]
    {
        assert!(!memory.contains(ChunkId(chunk), offset, bytes), "{chunk} {offset} {bytes}");
    }
    let outside = OutsideCache { chunk: ChunkId(0), offset: 8190, bytes: 3 };
    // SAFETY: refused before any byte is touched.
    assert_eq!(unsafe { memory.write_row(ChunkId(0), 8190, &[1; 3]) }, Err(outside));
    assert!(memory.contains(ChunkId(0), 8192, 0) && memory.contains(ChunkId(1), 0, 8192));
}

/// Every way to write that a trainer with the descriptor could try.
#[test]
fn a_trainer_cannot_write() {
    let memory = memory();
    let fd = &memory.chunks()[0];
    let file = File::from(fd.try_clone().expect("a descriptor"));
    let refused = |what: &str, result: std::io::Result<()>| {
        let error = result.expect_err(what);
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{what}: {error}");
    };
    let writable = map(fd, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    refused("mmap(PROT_WRITE)", writable.map(drop).map_err(Into::into));
    refused("write", (&file).write(b"x").map(drop));
    refused("pwrite", file.write_at(b"x", 0).map(drop));
    refused("ftruncate, smaller", file.set_len(4096));
    refused("ftruncate, larger", file.set_len(1 << 20));
    for (what, flags, bytes) in [
        ("punch a hole", FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096),
        ("grow", FallocateFlags::empty(), 1 << 20),
    ] {
        refused(what, rustix::fs::fallocate(fd, flags, 0, bytes).map_err(Into::into));
    }
    refused("add a seal", rustix::fs::fcntl_add_seals(fd, SealFlags::WRITE).map_err(Into::into));

    let reopened =
        OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let reopened = reopened.expect("memfd can be opened again; the seals go with the memory");
    refused("write after reopening", (&reopened).write(b"x").map(drop));
    let writable = map(&reopened, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    refused("mmap(PROT_WRITE) after reopening", writable.map(drop).map_err(Into::into));

    let readable = map(fd, ProtFlags::READ, MapFlags::SHARED).expect("mapped");
    // SAFETY: changes the protection of a mapping that this test made.
    let result = unsafe { rustix::mm::mprotect(readable.cast(), 2 << 12, rustix::mm::MprotectFlags::WRITE) };
    let error = result.expect_err("mprotect(PROT_WRITE)");
    assert_eq!(error, Errno::ACCESS);

    // A private mapping may be written: the writer alone sees it.
    let private = map(fd, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).expect("mapped");
    // SAFETY: a private mapping of this test.
    unsafe { private.write(7) };
    let mut read = Vec::new();
    // SAFETY: nobody writes the shared memory now.
    unsafe { memory.read(ChunkId(0), 0, 1, &mut read) }.expect("read");
    assert_eq!(read, [0]);

    // And the node still can.
    // SAFETY: nobody reads it at this moment.
    unsafe { memory.write_row(ChunkId(0), 0, &[9]) }.expect("written");
    // SAFETY: nobody writes now.
    assert_eq!(unsafe { readable.read() }, 9);
}

#[test]
fn sizes_that_make_no_cache_are_refused() {
    for (bytes, chunk_bytes) in [(0, 4096), (100, 4096), (4096, 0), (4095, 1)] {
        let refused = CacheMemory::create(Bytes(bytes), Bytes(chunk_bytes)).expect_err("refused");
        assert!(matches!(refused, CacheMemoryError::Size { .. }), "{refused}");
    }
    let refused = CacheMemory::create(Bytes(1 << 40), Bytes(4096)).expect_err("refused");
    assert_eq!(refused, CacheMemoryError::TooManyChunks);
    assert_eq!(
        CacheMemory::create(Bytes(4096), Bytes(1)).expect("a page").chunk_bytes(ChunkId(0)),
        Bytes(4096)
    );
}

#[test]
fn more_than_the_machine_has_is_refused_before_anything_is_taken() {
    let bytes = Bytes(1 << 55);
    let refused = CacheMemory::create_with(bytes, bytes, PageChoice::Normal).expect_err("refused");
    assert!(
        matches!(refused, CacheMemoryError::NoMemory { bytes: Bytes(b), .. } if b == 1 << 55),
        "{refused}"
    );
    assert!(refused.to_string().contains("lower `cache_bytes`"), "{refused}");
}

#[test]
fn memory_that_can_be_had_is_read_from_what_the_kernel_says() {
    let meminfo = "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:   1000 kB\n";
    assert_eq!(available::in_meminfo(meminfo), Some(1000 << 10));
    for nothing in ["", "MemAvailable:", "MemAvailable: x kB", "MemAvailable: 99999999999999999999 kB"] {
        assert_eq!(available::in_meminfo(nothing), None, "{nothing:?}");
    }
    assert_eq!(available::in_group("1000\n", "400\n", ""), Some(600));
    assert_eq!(available::in_group("1000", "900", "anon 5\ninactive_file 30\nactive_file 20\n"), Some(150));
    assert_eq!(available::in_group("1000", "4000", "inactive_file x"), Some(0));
    for no_bound in [("max\n", "5"), ("", ""), ("7", "x")] {
        assert_eq!(available::in_group(no_bound.0, no_bound.1, ""), None, "{no_bound:?}");
    }
    assert_eq!(available::group_path("1:x:/a\n0::/b/c\n"), Some("/b/c"));
}
