//! Arrays that stay on the disk: a header, and pieces of the data when they are asked for.

use crate::error::{At, Place, ReadError};
use crate::progress::Run;
use crate::read::open_file;
use rudder_graph::npy::{NpyError, NpyHeader, NpyType, PREAMBLE_BYTES};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A stretch of a file.
#[derive(Debug)]
pub(crate) struct Bytes {
    pub file: Arc<File>,
    pub start: u64,
    pub len: u64,
}

/// An array on the disk, whose length was checked.
#[derive(Debug)]
pub(crate) struct Array {
    pub place: Place,
    pub header: NpyHeader,
    bytes: Bytes,
}

const CHUNK_ELEMENTS: u64 = 1 << 15;

impl Array {
    pub(crate) fn file(path: &Path) -> Result<Array, ReadError> {
        let place = Place::file(path);
        let file = open_file(path, &place)?;
        let len = file.metadata().map_err(ReadError::io(&place))?.len();
        Array::open(place, Bytes { file: Arc::new(file), start: 0, len })
    }

    /// An array whose type and shape are known from elsewhere; `bytes` are its data.
    pub(crate) fn bare(
        place: Place,
        element: NpyType,
        shape: Vec<u64>,
        bytes: Bytes,
    ) -> Result<Array, ReadError> {
        let header = NpyHeader::bare(element, shape)
            .and_then(|header| header.check_file_bytes(bytes.len).map(|()| header))
            .map_err(|source| ReadError::Array { place: place.clone(), source })?;
        Ok(Array { place, header, bytes })
    }

    pub(crate) fn open(place: Place, bytes: Bytes) -> Result<Array, ReadError> {
        let mut reader = Section { bytes: &bytes, at: 0 };
        let header = Array::peek(&place, &mut reader)?;
        header
            .check_file_bytes(bytes.len)
            .map_err(|source| ReadError::Array { place: place.clone(), source })?;
        Ok(Array { place, header, bytes })
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> u64 {
        self.header.elements()
    }

    /// The shape as in numpy, for messages.
    pub(crate) fn shape_text(&self) -> String {
        format!("an array of shape {:?}", self.header.shape)
    }

    /// The type as in numpy, for messages.
    pub(crate) fn element_text(&self) -> String {
        format!("elements of type `{}`", self.header.element.descr())
    }

    /// Bytes of an element.
    pub(crate) fn size(&self) -> usize {
        self.header.element.size() as usize
    }

    /// Fills `buffer` from byte `offset` of the data.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let at = self.bytes.start + self.header.data_offset + offset;
        self.bytes.file.read_exact_at(buffer, at).map_err(ReadError::io(&self.place))
    }

    /// The integers at `first .. first + count`, in the order they lie in, with their number.
    pub(crate) fn integers(
        &self,
        first: u64,
        count: u64,
        run: &mut Run<'_>,
        visit: &mut dyn FnMut(u64, i128) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let size = self.integer_size()?;
        let mut buffer = vec![0; CHUNK_ELEMENTS.min(count) as usize * size];
        let end = first + count;
        for start in (first..end).step_by(CHUNK_ELEMENTS as usize) {
            let chunk = CHUNK_ELEMENTS.min(end - start) as usize;
            self.read_at(start * size as u64, &mut buffer[..chunk * size])?;
            for (offset, bytes) in buffer[..chunk * size].chunks_exact(size).enumerate() {
                visit(start + offset as u64, integer(self.header.element, bytes))?;
            }
            run.advance(0)?;
        }
        Ok(())
    }

    /// Bytes of an element, if it is a whole number.
    pub(crate) fn integer_size(&self) -> Result<usize, ReadError> {
        match self.header.element {
            NpyType::Bool | NpyType::F16 | NpyType::F32 | NpyType::F64 => {
                Err(ReadError::shape(&self.place, self.element_text(), "whole numbers"))
            }
            element => Ok(element.size() as usize),
        }
    }

    /// The error for a vertex that does not exist.
    pub(crate) fn no_vertex(&self, element: u64, found: i128, vertices: u64) -> ReadError {
        ReadError::Vertex { place: self.place.clone(), at: At::Element(element), found, vertices }
    }

    pub(crate) fn refuse(&self, element: u64, problem: impl Into<String>) -> ReadError {
        ReadError::Value { place: self.place.clone(), at: At::Element(element), problem: problem.into() }
    }

    /// Reads a header, and no byte more, from a reader at its first byte.
    pub(crate) fn peek(place: &Place, reader: &mut dyn Read) -> Result<NpyHeader, ReadError> {
        let malformed = |source: NpyError| ReadError::Array { place: place.clone(), source };
        let mut bytes = Vec::new();
        let mut fill = |bytes: &mut Vec<u8>, len: usize| {
            let missing = len.saturating_sub(bytes.len()) as u64;
            Read::take(&mut *reader, missing).read_to_end(bytes).map_err(ReadError::io(place))
        };
        fill(&mut bytes, PREAMBLE_BYTES)?;
        let length = NpyHeader::length(&bytes).map_err(malformed)?;
        fill(&mut bytes, length)?;
        NpyHeader::parse(&bytes).map_err(malformed)
    }
}

/// A whole number from its little-endian bytes.
pub(crate) fn integer(element: NpyType, bytes: &[u8]) -> i128 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let unsigned = u64::from_le_bytes(wide);
    match element {
        NpyType::I8 => i128::from(unsigned as i8),
        NpyType::I16 => i128::from(unsigned as i16),
        NpyType::I32 => i128::from(unsigned as i32),
        NpyType::I64 => i128::from(unsigned as i64),
        _ => i128::from(unsigned),
    }
}

/// A cursor over a stretch of a file.
struct Section<'a> {
    bytes: &'a Bytes,
    at: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.bytes.len - self.at).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        let got = self.bytes.file.read_at(&mut buffer[..len], self.bytes.start + self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}
