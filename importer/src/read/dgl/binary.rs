//! What DGL's binary files are made of: little-endian numbers, strings, tensors; a magic number before most.

use super::COUNT_MAX;
use crate::error::{At, Place, ReadError};
use crate::read::array::{Array, Bytes};
use crate::read::open_file;
use rudder_graph::npy::NpyType;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const TENSOR_MAGIC: u64 = 0xdd5e_40f0_96b4_a13f;
const NAME_BYTES_MAX: u64 = 4096;
/// More than an array may have; what a tensor has beyond it, [`Array::bare`] refuses.
const DIMENSIONS_MAX: u32 = 32;

/// A file, and how far it was read. Tensors' data are passed over, never held.
pub(super) struct Stream {
    file: Arc<File>,
    place: Place,
    at: u64,
    len: u64,
}

impl Stream {
    pub(super) fn open(path: &Path) -> Result<Stream, ReadError> {
        let place = Place::file(path);
        let file = open_file(path, &place)?;
        let len = file.metadata().map_err(ReadError::io(&place))?.len();
        Ok(Stream { file: Arc::new(file), place, at: 0, len })
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The error for what was read last.
    pub(super) fn refuse(&self, problem: impl Into<String>) -> ReadError {
        ReadError::Value { place: self.place.clone(), at: At::Byte(self.at), problem: problem.into() }
    }

    fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        if self.len.saturating_sub(self.at) < N as u64 {
            return Err(self.refuse(format!("the file ends where {what} belongs: write it again with DGL")));
        }
        self.file.read_exact_at(&mut bytes, self.at).map_err(ReadError::io(&self.place))?;
        self.at += N as u64;
        Ok(bytes)
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, ReadError> {
        self.bytes::<1>(what).map(|[byte]| byte)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, ReadError> {
        self.bytes(what).map(u64::from_le_bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, ReadError> {
        self.bytes(what).map(u32::from_le_bytes)
    }

    /// How many of something follow.
    pub(super) fn count(&mut self, what: &str) -> Result<u64, ReadError> {
        match self.u64(what)? {
            count if count <= COUNT_MAX => Ok(count),
            count => Err(self.refuse(format!("{what} is {count}, more than {COUNT_MAX}"))),
        }
    }

    pub(super) fn magic(&mut self, expected: u64, what: &str) -> Result<(), ReadError> {
        let start = self.at;
        let found = self.u64(what)?;
        if found == expected {
            return Ok(());
        }
        self.at = start;
        Err(self
            .refuse(format!("{found:#018x} where {what} starts with {expected:#018x}: not a file of DGL's")))
    }

    /// Goes on at a byte.
    pub(super) fn seek(&mut self, at: u64) -> Result<(), ReadError> {
        if at > self.len {
            return Err(self.refuse(format!("it goes on at byte {at}, beyond the end at {}", self.len)));
        }
        self.at = at;
        Ok(())
    }

    pub(super) fn name(&mut self) -> Result<String, ReadError> {
        let len = self.u64("the length of a name")?;
        if len > NAME_BYTES_MAX.min(self.len - self.at) {
            return Err(self.refuse(format!("a name of {len} bytes")));
        }
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_at(&mut bytes, self.at).map_err(ReadError::io(&self.place))?;
        self.at += len;
        String::from_utf8(bytes).map_err(|_| self.refuse("a name that is not UTF-8 text"))
    }

    /// A tensor, called `name` in messages.
    pub(super) fn tensor(&mut self, name: &str) -> Result<Array, ReadError> {
        self.magic(TENSOR_MAGIC, "a tensor")?;
        let place = Place { file: self.place.file.clone(), member: Some(name.to_owned()) };
        self.bytes::<16>("a tensor's device")?;
        let dimensions = self.u32("a tensor's number of dimensions")?;
        if dimensions > DIMENSIONS_MAX {
            return Err(self.refuse(format!("{name}: a tensor of {dimensions} dimensions")));
        }
        let [code, bits, lanes, high] = self.bytes("a tensor's type")?;
        let element = element(code, bits).filter(|_| (lanes, high) == (1, 0)).ok_or_else(|| {
            self.refuse(format!("{name}: elements of type code {code} with {bits} bits are not read"))
        })?;
        let shape: Vec<u64> =
            (0..dimensions).map(|_| self.u64("a tensor's shape")).collect::<Result<_, _>>()?;
        let (len, start) = (self.u64("a tensor's length")?, self.at);
        if len > self.len - start {
            let found = self.len - start;
            return Err(ReadError::Length { place, found, expected: len });
        }
        self.at += len;
        Array::bare(place, element, shape, Bytes { file: self.file.clone(), start, len })
    }
}

/// DLPack's type codes.
fn element(code: u8, bits: u8) -> Option<NpyType> {
    Some(match (code, bits) {
        (0, 8) => NpyType::I8,
        (0, 16) => NpyType::I16,
        (0, 32) => NpyType::I32,
        (0, 64) => NpyType::I64,
        (1 | 6, 8) => NpyType::U8,
        // An array of u16 stands for bf16 everywhere in an import.
        (4, 16) => NpyType::U16,
        (1, 32) => NpyType::U32,
        (1, 64) => NpyType::U64,
        (2, 16) => NpyType::F16,
        (2, 32) => NpyType::F32,
        (2, 64) => NpyType::F64,
        _ => return None,
    })
}
