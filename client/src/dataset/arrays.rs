//! A mapped `.npy` file.

use super::DatasetError;
use rudder_graph::npy::{NpyHeader, NpyType};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

#[cfg(target_endian = "big")]
compile_error!("datasets are little-endian and read in place");

/// A whole file, mapped read-only, whose header and length were checked.
#[derive(Debug)]
pub(super) struct MappedArray {
    path: PathBuf,
    header: NpyHeader,
    map: memmap2::Mmap,
}

/// Opens a file that is one: opening a pipe would wait for its other end.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path)?.is_file() {
        return File::open(path);
    }
    Err(io::Error::other("it is not a regular file"))
}

/// Numbers that may be read in place.
pub(super) trait Elements: Sized {
    /// Empty if the bytes are not aligned for this type; else all whole elements.
    fn of(bytes: &[u8]) -> &[Self];
}

macro_rules! elements {
    ($($number:ty),*) => {$(
        impl Elements for $number {
            #[allow(unsafe_code)]
            fn of(bytes: &[u8]) -> &[Self] {
                // SAFETY: every bit pattern is a number of this type.
                match unsafe { bytes.align_to::<$number>() } {
                    ([], numbers, _) => numbers,
                    _ => &[],
                }
            }
        }
    )*};
}
elements!(u32, u64, i64);

impl MappedArray {
    /// Maps a file; `None` if it does not exist.
    #[allow(unsafe_code)]
    pub(super) fn open(path: PathBuf, element: NpyType) -> Result<Option<Self>, DatasetError> {
        let read = |source| DatasetError::Read { path: path.clone(), source };
        let file = match open_regular(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(read(error)),
        };
        // SAFETY: the module's contract: files of a dataset do not change while they are mapped.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(read)?;
        let (header, _) =
            NpyHeader::parse_file(&map).map_err(|error| DatasetError::Npy { path: path.clone(), error })?;
        let array = MappedArray { path, header, map };
        // A multiple of the element's size, and the mapping starts at a page: elements are aligned.
        let aligned = array.header.data_offset.next_multiple_of(element.size());
        array.check_data_offset(aligned)?;
        if array.header.element != element {
            return Err(array.differs(element, array.header.shape.clone()));
        }
        Ok(Some(array))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.map[self.header.data_offset as usize..]
    }

    /// The data as numbers of the type that the array was opened with.
    pub(super) fn elements<T: Elements>(&self) -> &[T] {
        debug_assert_eq!(size_of::<T>() as u64, self.header.element.size());
        T::of(self.data())
    }

    pub(super) fn check_shape(&self, shape: &[u64]) -> Result<(), DatasetError> {
        if self.header.shape == shape {
            return Ok(());
        }
        Err(self.differs(self.header.element, shape.to_vec()))
    }

    pub(super) fn check_data_offset(&self, expected: u64) -> Result<(), DatasetError> {
        let found = self.header.data_offset;
        if found == expected {
            return Ok(());
        }
        Err(DatasetError::DataOffset { path: self.path.clone(), expected, found })
    }

    pub(super) fn check_file_bytes(&self, expected: u64) -> Result<(), DatasetError> {
        let found = self.map.len() as u64;
        if found == expected {
            return Ok(());
        }
        Err(DatasetError::FileBytes { path: self.path.clone(), expected, found })
    }

    fn differs(&self, expected: NpyType, expected_shape: Vec<u64>) -> DatasetError {
        DatasetError::Array {
            path: self.path.clone(),
            expected,
            expected_shape,
            found: self.header.element,
            found_shape: self.header.shape.clone(),
        }
    }
}
