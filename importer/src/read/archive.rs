//! `.npz` files: zip archives of `.npy` members.

use crate::error::{Place, ReadError};
use crate::progress::Run;
use crate::read::array::{Array, Bytes};
use crate::read::open_file;
use crate::read::scratch::Scratch;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zip::ZipArchive;
use zip::result::ZipError;

/// Most members that are looked at.
const MEMBERS_MAX: usize = 4096;

/// An archive and the names of its arrays (without `.npy`), in the order of their positions.
#[derive(Clone, Debug)]
pub(crate) struct Archive {
    pub file: PathBuf,
    members: Vec<(String, usize)>,
}

impl Archive {
    pub(crate) fn open(file: &Path) -> Result<Archive, ReadError> {
        let archive = unzip(file)?;
        if archive.len() > MEMBERS_MAX {
            let problem = format!("{} members; at most {MEMBERS_MAX} are read", archive.len());
            return Err(ReadError::Archive { place: Place::file(file), problem });
        }
        let name =
            |index| archive.name_for_index(index)?.strip_suffix(".npy").map(|name| (name.to_owned(), index));
        let members = (0..archive.len()).filter_map(name).collect();
        Ok(Archive { file: file.to_owned(), members })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.iter().any(|(member, _)| member == name)
    }

    /// The only array, if there is only one.
    pub(crate) fn sole(&self) -> Option<&str> {
        match self.members.as_slice() {
            [(name, _)] => Some(name),
            _ => None,
        }
    }

    /// Opens an array: in place if it is stored, unpacked to a scratch file if it is compressed.
    pub(crate) fn array(
        &self,
        name: &str,
        scratch: &mut Scratch,
        run: &mut Run<'_>,
    ) -> Result<Array, ReadError> {
        let place = Place::member(&self.file, name);
        let refused = |error| refused(&place, error);
        let index = self.members.iter().find(|(member, _)| member == name).map(|&(_, index)| index);
        let index = index.ok_or_else(|| refused(ZipError::FileNotFound))?;
        let mut archive = unzip(&self.file)?;
        let mut member = archive.by_index(index).map_err(refused)?;
        let bytes = member.size();
        if member.compression() == zip::CompressionMethod::Stored {
            let start = member.data_start();
            drop(member);
            let file = File::open(&self.file).map_err(ReadError::io(&place))?;
            return Array::open(place, Bytes { file: Arc::new(file), start, len: bytes });
        }
        // Look at the header first: it says how long the data may be, whatever the archive claims.
        let header = Array::peek(&place, &mut member)?;
        let expected = header.data_offset.saturating_add(header.data_bytes);
        if bytes != expected {
            return Err(ReadError::Length { place, found: bytes, expected });
        }
        drop(member);
        let mut member = archive.by_index(index).map_err(refused)?;
        let file = scratch.unpack(&place, &mut member, expected, run)?;
        Array::open(place, Bytes { file: Arc::new(file), start: 0, len: expected })
    }

    /// The raw content of a small member, such as scipy's `format`; `None` if there is none or it is long.
    pub(crate) fn small(&self, name: &str) -> Result<Option<Vec<u8>>, ReadError> {
        const SMALL_BYTES: u64 = 1 << 12;
        let Some(&(_, index)) = self.members.iter().find(|(member, _)| member == name) else {
            return Ok(None);
        };
        let place = Place::member(&self.file, name);
        let mut archive = unzip(&self.file)?;
        let member = archive.by_index(index).map_err(|error| refused(&place, error))?;
        let mut bytes = Vec::new();
        member.take(SMALL_BYTES).read_to_end(&mut bytes).map_err(ReadError::io(&place))?;
        Ok(((bytes.len() as u64) < SMALL_BYTES).then_some(bytes))
    }
}

fn unzip(file: &Path) -> Result<ZipArchive<BufReader<File>>, ReadError> {
    let place = Place::file(file);
    let opened = open_file(file, &place)?;
    ZipArchive::new(BufReader::new(opened)).map_err(|error| refused(&place, error))
}

fn refused(place: &Place, error: ZipError) -> ReadError {
    match error {
        ZipError::Io(source) => ReadError::Io { place: place.clone(), source },
        error => ReadError::Archive { place: place.clone(), problem: error.to_string() },
    }
}
