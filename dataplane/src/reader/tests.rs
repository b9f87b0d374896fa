use super::*;
use crate::backend::{Wire, WithBuffer};
use crate::test_data::{Shape, TestData};
use rudder_topology::{BlockId, Bytes, StorageMode};
use std::cell::Cell;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;

/// What the device does at one read.
#[derive(Clone, Copy, Debug)]
enum Does {
    All,
    AtMost(usize),
    Fails(io::ErrorKind),
}

/// Reads of a device that follows a script, over and over.
#[derive(Clone)]
struct Scripted {
    script: &'static [Does],
    step: Rc<Cell<usize>>,
}

#[derive(Clone)]
struct NoWire(Infallible);

impl Wire for NoWire {
    async fn read(&self, _: Vec<u8>, _: usize) -> WithBuffer<usize, Vec<u8>> {
        match self.0 {}
    }
    async fn write_all(&self, _: Vec<u8>) -> WithBuffer<(), Vec<u8>> {
        match self.0 {}
    }
    fn shutdown(&self) {
        match self.0 {}
    }
}

impl ReadBuffer for Vec<u8> {
    fn filled(&self, bytes: usize) -> &[u8] {
        &self[..bytes]
    }
}

impl Io for Scripted {
    type Wire = NoWire;
    type File = Rc<File>;
    type Buffer = Vec<u8>;

    fn wire(&self, _: TcpStream) -> io::Result<NoWire> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn file(&self, file: &File) -> io::Result<Rc<File>> {
        // The same file without O_DIRECT: the test's buffers are not aligned.
        use std::os::fd::AsRawFd;
        Ok(Rc::new(File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?))
    }

    async fn buffer(&self, bytes: usize) -> Vec<u8> {
        vec![0xaa; bytes]
    }

    async fn read_at(
        &self,
        file: &Rc<File>,
        mut buffer: Vec<u8>,
        range: Range<usize>,
        offset: u64,
    ) -> WithBuffer<usize, Vec<u8>> {
        let step = self.step.replace(self.step.get() + 1);
        assert_eq!(range.start % 4096, 0, "direct reads start at page boundaries");
        let bytes = match self.script[step % self.script.len()] {
            Does::All => range.len(),
            Does::AtMost(bytes) => bytes.min(range.len()),
            Does::Fails(kind) => return (Err(kind.into()), buffer),
        };
        let into = &mut buffer[range.start..range.start + bytes];
        (file.read_at(into, offset + range.start as u64), buffer)
    }
}

fn read_all(script: &'static [Does]) -> (Result<Vec<u8>, Failed>, Vec<u8>) {
    let root = tempfile::tempdir().expect("a directory");
    let shape = Shape { rows_of_parts: vec![500], row_bytes: 100, rows_per_block: 16 };
    let data = TestData::write(root.path(), "d", &shape);
    let files = BlockFiles::open(&data.directory, StorageMode::Direct, Bytes(0)).expect("opened");
    let io = Scripted { script, step: Rc::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let items = [3, 0, 1, 31, 9].map(|block| BlockRows { block: BlockId(block), mask: 0b101 });
    let expected: Vec<u8> = items.iter().flat_map(|&item| data.expected(item)).collect();
    let read = tokio::task::LocalSet::new().block_on(&runtime, async {
        let reader = DirectReader::new(Rc::new(files), io, Arc::default()).expect("files");
        let out = vec![0; reader.bytes(&items)];
        Rc::new(reader).read(items.to_vec(), out, 0).await
    });
    (read, expected)
}

#[test]
fn short_interrupted_and_refused_reads_are_taken_up_again() {
    for script in [
        [Does::All].as_slice(),
        &[Does::Fails(io::ErrorKind::Interrupted), Does::All],
        &[Does::Fails(io::ErrorKind::WouldBlock), Does::All],
        &[Does::AtMost(4096)],
        &[Does::AtMost(5000)],
        &[Does::AtMost(100), Does::All],
    ] {
        let (read, expected) = read_all(script);
        assert_eq!(read, Ok(expected), "{script:?}");
    }
}

#[test]
fn a_device_that_does_not_deliver_is_given_up() {
    for script in [
        [Does::Fails(io::ErrorKind::Other)].as_slice(),
        &[Does::Fails(io::ErrorKind::Interrupted)],
        &[Does::Fails(io::ErrorKind::WouldBlock)],
        &[Does::AtMost(0)],
        &[Does::AtMost(100)],
    ] {
        let (read, _) = read_all(script);
        assert_eq!(read, Err((0, FailReason::ReadFailed)), "{script:?}");
    }
}
