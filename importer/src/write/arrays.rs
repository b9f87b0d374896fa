//! One-dimensional `.npy` files, digested while they are written.

use crate::error::ImportError;
use crate::target::Target;
use rudder_graph::FileSpec;
use rudder_graph::npy::{NpyType, Padding, header};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// An array while it is written.
pub(crate) struct ArrayWriter {
    file: PathBuf,
    relative: String,
    out: BufWriter<Digested>,
}

struct Digested {
    file: File,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Write for Digested {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

const BUFFER_BYTES: usize = 1 << 18;

impl ArrayWriter {
    pub(crate) fn create(
        target: &Target,
        relative: String,
        element: NpyType,
        shape: &[u64],
    ) -> Result<ArrayWriter, ImportError> {
        let file = target.path(&relative)?;
        let opened = File::create_new(&file).map_err(ImportError::write(&file))?;
        let digested = Digested { file: opened, hasher: blake3::Hasher::new(), bytes: 0 };
        let mut writer =
            ArrayWriter { file, relative, out: BufWriter::with_capacity(BUFFER_BYTES, digested) };
        writer.bytes(&header(element, shape, Padding::Aligned))?;
        Ok(writer)
    }

    pub(crate) fn u32(&mut self, value: u32) -> Result<(), ImportError> {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> Result<(), ImportError> {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn i64(&mut self, value: i64) -> Result<(), ImportError> {
        self.bytes(&value.to_le_bytes())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), ImportError> {
        self.out.write_all(bytes).map_err(ImportError::write(&self.file))
    }

    pub(crate) fn finish(self) -> Result<FileSpec, ImportError> {
        let ArrayWriter { file, relative, out } = self;
        let digested = out.into_inner().map_err(|error| ImportError::write(&file)(error.into_error()))?;
        let digest = digested.hasher.finalize().to_hex().to_string();
        Ok(FileSpec { path: relative, bytes: digested.bytes, digest })
    }
}
