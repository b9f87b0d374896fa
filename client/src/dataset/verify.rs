//! Reading everything once and comparing it with digests and checksums.

use super::Dataset;
use super::arrays::open_regular;
use rudder_graph::crc::{CorruptBlock, block_checksum};
use rudder_graph::{Csc, FileSpec, layout};
use rudder_topology::{PartId, TableId};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What to verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyScope {
    /// All files that are here.
    Everything,
    /// The checksum tables and blocks of one part.
    Part(PartId),
}

/// How far a verification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyProgress<'a> {
    pub bytes_done: u64,
    pub bytes_total: u64,
    /// The file being read, relative to the dataset.
    pub file: &'a str,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub files: u64,
    pub blocks: u64,
    pub bytes: u64,
    /// Files that the manifest lists and that are not here, such as other nodes' parts.
    pub absent: Vec<String>,
    /// The first [`DAMAGE_MAX`] of what is wrong.
    pub damage: Vec<Damage>,
}

/// Damage is listed up to this many; a file that is wholly wrong has as many as blocks.
pub const DAMAGE_MAX: usize = 1000;

/// Something that is not what was imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("{path}: its BLAKE3 digest is {found}, the manifest says {expected}")]
    Digest { path: String, expected: String, found: String },
    #[error(transparent)]
    Block(#[from] CorruptBlock),
    #[error("graph {graph}: {error}")]
    Graph { graph: String, error: rudder_graph::csc::CscError },
}

/// A file could not be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", path.display())]
pub struct VerifyError {
    pub path: PathBuf,
    pub source: io::Error,
}

const READ_BYTES: usize = 1 << 20;

impl Dataset {
    /// Reads what `scope` names and reports what differs from the manifest. `progress` is called about once a
    /// mebibyte.
    pub fn verify(
        &self,
        scope: VerifyScope,
        progress: impl FnMut(VerifyProgress<'_>),
    ) -> Result<Verified, VerifyError> {
        let (files, parts) = self.in_scope(scope);
        let mut verified = Verified::default();
        let (present, absent): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| self.directory.join(&file.path).exists());
        verified.absent = absent.into_iter().map(|file| file.path.clone()).collect();
        let tables = || (0..self.manifest.tables.len()).map(|table| TableId(table as u16));
        let features = parts.iter().flat_map(|&part| tables().filter_map(move |t| self.features(t, part)));
        let bytes_total = present.iter().map(|file| file.bytes).sum::<u64>()
            + features.map(|features| features.len() as u64).sum::<u64>();
        let mut run = Run { dataset: self, verified, bytes_total, progress };
        for file in present {
            run.file(file)?;
        }
        for &part in &parts {
            tables().for_each(|table| run.part(table, part));
        }
        if scope == VerifyScope::Everything {
            run.graphs();
        }
        Ok(run.verified)
    }

    fn in_scope(&self, scope: VerifyScope) -> (Vec<&FileSpec>, Vec<PartId>) {
        match scope {
            VerifyScope::Everything => (self.manifest.files.iter().collect(), self.parts().collect()),
            VerifyScope::Part(part) => {
                let paths: Vec<_> =
                    self.manifest.tables.iter().map(|table| layout::checksums(part, &table.name)).collect();
                let files = paths.iter().filter_map(|path| self.manifest.file(path)).collect();
                (files, self.parts().filter(|&present| present == part).collect())
            }
        }
    }
}

struct Run<'a, P> {
    dataset: &'a Dataset,
    verified: Verified,
    bytes_total: u64,
    progress: P,
}

impl<P: FnMut(VerifyProgress<'_>)> Run<'_, P> {
    fn advance(&mut self, bytes: usize, file: &str) {
        self.verified.bytes += bytes as u64;
        let (bytes_done, bytes_total) = (self.verified.bytes, self.bytes_total);
        (self.progress)(VerifyProgress { bytes_done, bytes_total, file });
    }

    fn damaged(&mut self, damage: Damage) {
        if self.verified.damage.len() < DAMAGE_MAX {
            self.verified.damage.push(damage);
        }
    }

    fn file(&mut self, spec: &FileSpec) -> Result<(), VerifyError> {
        let path = self.dataset.directory.join(&spec.path);
        let found = self.digest(&path, &spec.path).map_err(|source| VerifyError { path, source })?;
        if found != spec.digest {
            let (path, expected) = (spec.path.clone(), spec.digest.clone());
            self.damaged(Damage::Digest { path, expected, found });
        }
        self.verified.files += 1;
        Ok(())
    }

    fn digest(&mut self, path: &Path, relative: &str) -> io::Result<String> {
        let mut file = open_regular(path)?;
        let mut buffer = vec![0; READ_BYTES];
        let mut hasher = blake3::Hasher::new();
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(hasher.finalize().to_hex().to_string()),
                Ok(bytes) => {
                    hasher.update(&buffer[..bytes]);
                    self.advance(bytes, relative);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn part(&mut self, table: TableId, part: PartId) {
        let dataset = self.dataset;
        let features = dataset.features(table, part);
        let Some((features, checksums)) = features.zip(dataset.checksums(table, part)) else { return };
        let file = layout::features(part, &dataset.manifest.tables[table.index()].name);
        let block_bytes = dataset.book.block_bytes(table).unwrap_or(1) as usize;
        let mut since = 0;
        for (index, block) in features.chunks(block_bytes).enumerate() {
            let index = index as u32;
            let found = block_checksum(block);
            let expected = checksums.expected(index).unwrap_or(!found);
            if found != expected {
                self.damaged(Damage::Block(CorruptBlock { table, part, index, expected, found }));
            }
            self.verified.blocks += 1;
            since += block.len();
            if since >= READ_BYTES {
                self.advance(std::mem::take(&mut since), &file);
            }
        }
        self.advance(since, &file);
        self.verified.files += 1;
    }

    /// Digests say that the graph is the imported one; this says that it is a graph.
    fn graphs(&mut self) {
        for spec in &self.dataset.manifest.graphs {
            let Some(csc) = self.dataset.csc(&spec.name) else { continue };
            let (indptr, indices) = csc.arrays();
            if let Err(error) = Csc::new(indptr, indices) {
                self.damaged(Damage::Graph { graph: spec.name.to_string(), error });
            }
        }
    }
}
