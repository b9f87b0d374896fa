//! What `rudder dataset push` says: which file comes, by kind, never by a path.

use rudder_topology::{PartId, TableName};
use std::path::PathBuf;

/// A file of a dataset directory. The receiver makes the path of it; a sender cannot name one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PutFile {
    /// `dataset.toml`; pushed last, because a directory without it is no dataset.
    Manifest,
    /// `parts/<part>/<table>.npy`
    Features {
        table: TableName,
    },
    /// `parts/<part>/<table>.crc.npy`
    Checksums {
        table: TableName,
    },
    /// `graph/<name>.indptr.npy`
    GraphOffsets {
        name: TableName,
    },
    /// `graph/<name>.indices.npy`
    GraphIndices {
        name: TableName,
    },
    Labels,
    SplitTrain,
    SplitValid,
    SplitTest,
    OriginalId,
    DatasetId,
}

/// The start of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutBegin {
    pub file: PutFile,
    /// The part of Features and Checksums; zero and unused for the rest.
    pub part: PartId,
    pub size_bytes: u64,
    /// BLAKE3 of the file.
    pub digest: [u8; 32],
}

/// Why a receiver refuses a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum PutError {
    #[error("the session does not permit pushing")]
    Unauthorised = 1,
    #[error("the chunk does not continue what is there")]
    Offset = 2,
    #[error("the file's digest does not match what was announced")]
    Digest = 3,
    #[error("the receiver cannot write the file")]
    WriteFailed = 4,
    #[error("not enough room on the receiver's disk")]
    NoRoom = 5,
    #[error("frames came in an order that makes no sense")]
    Order = 6,
    #[error("the manifest is not one of the session's dataset")]
    Manifest = 7,
}

impl PutError {
    pub(crate) fn code(self) -> u32 {
        self as u32
    }

    pub(crate) fn from_code(code: u32) -> Option<PutError> {
        use PutError::*;
        [Unauthorised, Offset, Digest, WriteFailed, NoRoom, Order, Manifest]
            .into_iter()
            .find(|&reason| reason as u32 == code)
    }
}

impl PutFile {
    fn code_and_name(&self) -> (u8, &str) {
        match self {
            PutFile::Manifest => (1, ""),
            PutFile::Features { table } => (2, table.as_str()),
            PutFile::Checksums { table } => (3, table.as_str()),
            PutFile::GraphOffsets { name } => (4, name.as_str()),
            PutFile::GraphIndices { name } => (5, name.as_str()),
            PutFile::Labels => (6, ""),
            PutFile::SplitTrain => (7, ""),
            PutFile::SplitValid => (8, ""),
            PutFile::SplitTest => (9, ""),
            PutFile::OriginalId => (10, ""),
            PutFile::DatasetId => (11, ""),
        }
    }

    fn from_code(code: u8, name: &str) -> Option<PutFile> {
        let named = || TableName::new(name).ok();
        let file = match code {
            1 => PutFile::Manifest,
            2 => PutFile::Features { table: named()? },
            3 => PutFile::Checksums { table: named()? },
            4 => PutFile::GraphOffsets { name: named()? },
            5 => PutFile::GraphIndices { name: named()? },
            6 => PutFile::Labels,
            7 => PutFile::SplitTrain,
            8 => PutFile::SplitValid,
            9 => PutFile::SplitTest,
            10 => PutFile::OriginalId,
            11 => PutFile::DatasetId,
            _ => return None,
        };
        (file.code_and_name().1 == name).then_some(file)
    }

    /// The file's path within a dataset directory. Names are checked when made, so it cannot leave the directory.
    #[must_use]
    pub fn relative_path(&self, part: PartId) -> PathBuf {
        PathBuf::from(match self {
            PutFile::Manifest => "dataset.toml".to_owned(),
            PutFile::Features { table } => format!("parts/{}/{table}.npy", part.0),
            PutFile::Checksums { table } => format!("parts/{}/{table}.crc.npy", part.0),
            PutFile::GraphOffsets { name } => format!("graph/{name}.indptr.npy"),
            PutFile::GraphIndices { name } => format!("graph/{name}.indices.npy"),
            PutFile::Labels => "labels.npy".to_owned(),
            PutFile::SplitTrain => "split_train.npy".to_owned(),
            PutFile::SplitValid => "split_valid.npy".to_owned(),
            PutFile::SplitTest => "split_test.npy".to_owned(),
            PutFile::OriginalId => "original_id.npy".to_owned(),
            PutFile::DatasetId => "dataset_id.npy".to_owned(),
        })
    }
}

impl PutBegin {
    pub(crate) fn write_payload(&self, bytes: &mut Vec<u8>) {
        let (code, name) = self.file.code_and_name();
        bytes.extend_from_slice(&self.digest);
        bytes.extend_from_slice(&self.part.0.to_le_bytes());
        bytes.push(code);
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
    }

    pub(crate) fn parse(size_bytes: u64, payload: &[u8]) -> Option<PutBegin> {
        let (digest, rest) = payload.split_first_chunk::<32>()?;
        let ([part_low, part_high, code, name_bytes], name) = rest.split_first_chunk::<4>()?;
        if name.len() != usize::from(*name_bytes) {
            return None;
        }
        let file = PutFile::from_code(*code, std::str::from_utf8(name).ok()?)?;
        let part = PartId(u16::from_le_bytes([*part_low, *part_high]));
        Some(PutBegin { file, part, size_bytes, digest: *digest })
    }
}
