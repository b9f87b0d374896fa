//! Scratch files beside the target: what cannot be read in pieces where it lies is unpacked here first. They go with
//! the half-written dataset, whatever happens.

use crate::error::{Place, ReadError};
use crate::progress::{Phase, Run, Total};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// A directory for scratch files.
pub(crate) struct Scratch {
    directory: PathBuf,
    files: u32,
}

const COPY_BYTES: usize = 1 << 18;

impl Scratch {
    /// Files go to `directory`, which its owner removes.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Scratch { directory, files: 0 }
    }

    pub(crate) fn create(&mut self) -> Result<ScratchFile, ReadError> {
        let path = self.directory.join(format!("scratch-{}", self.files));
        self.files += 1;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|source| ReadError::Scratch { file: path.clone(), source })?;
        Ok(ScratchFile { path, writer: BufWriter::with_capacity(COPY_BYTES, file), written: 0 })
    }

    /// Refuses what would not fit the disk, before it is full.
    pub(crate) fn require(&self, bytes: u64) -> Result<(), ReadError> {
        let failed = |source| ReadError::Scratch { file: self.directory.clone(), source };
        let disk = rustix::fs::statvfs(&self.directory).map_err(|error| failed(error.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if bytes > free {
            let text = format!("{bytes} bytes are needed, {free} are free");
            return Err(failed(std::io::Error::new(std::io::ErrorKind::StorageFull, text)));
        }
        Ok(())
    }

    /// Unpacks exactly `bytes` bytes from `reader`; more or fewer are an error.
    pub(crate) fn unpack(
        &mut self,
        place: &Place,
        reader: &mut dyn Read,
        bytes: u64,
        run: &mut Run<'_>,
    ) -> Result<File, ReadError> {
        self.require(bytes)?;
        let mut file = self.create()?;
        run.begin(Phase::Unpack, Total::Bytes(bytes));
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let got = reader.read(&mut buffer).map_err(ReadError::io(place))?;
            if got == 0 {
                break;
            }
            if file.written + got as u64 > bytes {
                let found = file.written + got as u64;
                return Err(ReadError::Length { place: place.clone(), found, expected: bytes });
            }
            file.write(&buffer[..got])?;
            run.advance(got as u64)?;
        }
        if file.written != bytes {
            return Err(ReadError::Length { place: place.clone(), found: file.written, expected: bytes });
        }
        run.end(Phase::Unpack);
        file.finish()
    }
}

/// A scratch file while it is written.
pub(crate) struct ScratchFile {
    path: PathBuf,
    writer: BufWriter<File>,
    written: u64,
}

impl ScratchFile {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        self.written += bytes.len() as u64;
        self.writer.write_all(bytes).map_err(|source| ReadError::Scratch { file: self.path.clone(), source })
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, ready to be read.
    pub(crate) fn finish(self) -> Result<File, ReadError> {
        let path = self.path;
        self.writer
            .into_inner()
            .map_err(|error| ReadError::Scratch { file: path, source: error.into_error() })
    }
}
