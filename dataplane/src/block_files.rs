//! The feature files that a storage node holds of one dataset: opened, checked against the manifest, and read block
//! by block with their checksums.

mod hot;
mod plan;

pub(crate) use hot::HotCache;
pub(crate) use plan::{ALIGNMENT, AlignedRead, plan};

use crate::backend::READ_BYTES_MAX;
use memmap2::Mmap;
use rudder_client::frames::FailReason;
use rudder_graph::crc::ChecksumTable;
use rudder_graph::manifest::FEATURE_DATA_OFFSET;
use rudder_graph::npy::{NpyError, NpyHeader};
use rudder_graph::{BlockPlace, BlockRows, Manifest, PartitionBook, TableSpec, crc, layout};
use rudder_topology::{Bytes, DatasetName, PartId, StorageMode, TableId};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a manifest at most.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a block at most: it is read whole, with its pages' edges.
const BLOCK_BYTES_MAX: usize = READ_BYTES_MAX - 2 * plan::ALIGNMENT as usize;

/// How blocks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// From a mapping.
    Memory,
    /// `O_DIRECT`.
    Direct,
}

/// The open files of a dataset directory.
#[derive(Debug)]
pub struct BlockFiles {
    manifest: Manifest,
    book: Arc<PartitionBook>,
    mode: ReadMode,
    hot_cache_bytes: Bytes,
    parts: Vec<PartId>,
    /// `[table][part]`, `None` where the part is not stored here.
    files: Vec<Vec<Option<PartFile>>>,
}

#[derive(Debug)]
pub(crate) struct PartFile {
    checksums: Vec<u8>,
    data: PartData,
}

#[derive(Debug)]
enum PartData {
    Memory {
        map: Mmap,
        /// A bit per block: its checksum was found right.
        verified: Vec<AtomicU64>,
    },
    Direct(File),
}

/// A block and where its bytes lie in its part's feature file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) place: BlockPlace,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

/// Why a dataset directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot {what} {}: {source}", file.display())]
    Io { what: &'static str, file: PathBuf, source: io::Error },
    #[error("{} is over {MANIFEST_BYTES_MAX} bytes", file.display())]
    ManifestTooLong { file: PathBuf },
    #[error("{}: {source}", file.display())]
    Manifest { file: PathBuf, source: rudder_graph::manifest::ManifestErrors },
    #[error("{}: {source}", file.display())]
    Npy { file: PathBuf, source: NpyError },
    #[error("{}: {what} is {found}, the manifest says {expected}", file.display())]
    Mismatch { file: PathBuf, what: &'static str, expected: String, found: String },
    #[error("table {table} has blocks of {bytes}; at most {} can be served: import with fewer rows per block", Bytes(BLOCK_BYTES_MAX as u64))]
    BlockTooLarge { table: TableId, bytes: Bytes },
    #[error("{} cannot be read with O_DIRECT ({source}): the file system does not offer it; use mode = \"memory\"", file.display())]
    NoDirect { file: PathBuf, source: io::Error },
}

impl BlockFiles {
    /// Opens what is there of a dataset: `dataset.toml` and any of its parts. A part counts as stored when the
    /// feature files of all tables are there; the rest must then be right.
    pub fn open(
        directory: &Path,
        mode: StorageMode,
        hot_cache_bytes: Bytes,
    ) -> Result<BlockFiles, OpenError> {
        let manifest = parse_manifest(&directory.join("dataset.toml"))?;
        let book = Arc::new(PartitionBook::new(&manifest));
        for number in 0..manifest.tables.len() {
            let table = TableId(number as u16);
            let bytes = book.block_bytes(table).unwrap_or(0);
            if bytes as usize > BLOCK_BYTES_MAX {
                return Err(OpenError::BlockTooLarge { table, bytes: Bytes(u64::from(bytes)) });
            }
        }
        let stored = |part: PartId| {
            manifest.tables.iter().all(|table| directory.join(layout::features(part, &table.name)).exists())
        };
        let parts: Vec<PartId> =
            (0..manifest.parts() as u16).map(PartId).filter(|&part| stored(part)).collect();
        let mode = resolve(mode, &manifest, &parts);
        let mut files = Vec::new();
        for spec in &manifest.tables {
            let mut of_table: Vec<Option<PartFile>> = (0..manifest.parts()).map(|_| None).collect();
            for &part in &parts {
                of_table[part.index()] = Some(open_part(directory, &manifest, spec, part, mode)?);
            }
            files.push(of_table);
        }
        Ok(BlockFiles { manifest, book, mode, hot_cache_bytes, parts, files })
    }

    #[must_use]
    pub fn dataset(&self) -> &DatasetName {
        &self.manifest.name
    }

    #[must_use]
    pub fn digest(&self) -> &str {
        &self.manifest.digest
    }

    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    #[must_use]
    pub fn book(&self) -> &Arc<PartitionBook> {
        &self.book
    }

    /// The parts that are stored here, ascending.
    #[must_use]
    pub fn parts(&self) -> &[PartId] {
        &self.parts
    }

    #[must_use]
    pub fn mode(&self) -> ReadMode {
        self.mode
    }

    pub(crate) fn hot_cache_bytes(&self) -> Bytes {
        if self.mode == ReadMode::Direct { self.hot_cache_bytes } else { Bytes(0) }
    }

    /// Checks that rows exist and are stored here, and says where.
    pub(crate) fn locate(&self, rows: BlockRows) -> Result<Located, FailReason> {
        let place = self.book.block(rows.block).ok_or(FailReason::UnknownBlock)?;
        if rows.mask == 0 || rows.mask & !place.full_mask() != 0 {
            return Err(FailReason::UnknownBlock);
        }
        self.file(place).ok_or(FailReason::NotStored)?;
        let block_bytes = u64::from(self.book.block_bytes(place.table).unwrap_or(0));
        Ok(Located {
            place,
            offset: FEATURE_DATA_OFFSET + u64::from(place.index) * block_bytes,
            bytes: usize::from(place.rows) * place.row_bytes as usize,
        })
    }

    fn file(&self, place: BlockPlace) -> Option<&PartFile> {
        self.files.get(place.table.index())?.get(place.part.index())?.as_ref()
    }

    /// The files to be read with `O_DIRECT`.
    pub(crate) fn direct_files(&self) -> impl Iterator<Item = (TableId, PartId, &File)> {
        self.files.iter().enumerate().flat_map(|(table, of_table)| {
            of_table.iter().enumerate().filter_map(move |(part, file)| match &file.as_ref()?.data {
                PartData::Direct(file) => Some((TableId(table as u16), PartId(part as u16), file)),
                PartData::Memory { .. } => None,
            })
        })
    }

    /// Checks a whole block that was read.
    pub(crate) fn verify(&self, place: BlockPlace, block: &[u8]) -> Result<(), FailReason> {
        let file = self.file(place).ok_or(FailReason::NotStored)?;
        let expected = ChecksumTable::new(&file.checksums).expected(place.index);
        if expected == Some(crc::block_checksum(block)) { Ok(()) } else { Err(FailReason::Corrupt) }
    }

    /// The block's bytes in memory mode, verified when they are first asked for; `None` in direct mode.
    pub(crate) fn mapped(&self, located: &Located) -> Result<Option<&[u8]>, FailReason> {
        let place = located.place;
        let file = self.file(place).ok_or(FailReason::NotStored)?;
        let PartData::Memory { map, verified } = &file.data else { return Ok(None) };
        let start = located.offset as usize;
        let block = map.get(start..start + located.bytes).ok_or(FailReason::ReadFailed)?;
        let word = &verified[place.index as usize / 64];
        let bit = 1 << (place.index % 64);
        if word.load(Relaxed) & bit == 0 {
            self.verify(place, block)?;
            word.fetch_or(bit, Relaxed);
        }
        Ok(Some(block))
    }
}

/// Appends the rows that the mask names, ascending.
pub(crate) fn append_rows(block: &[u8], row_bytes: u32, mask: u64, out: &mut Vec<u8>) {
    for_runs(row_bytes, mask, |run| out.extend_from_slice(&block[run]));
}

/// Copies the rows that the mask names, ascending, to the start of `out`.
pub(crate) fn copy_rows(block: &[u8], row_bytes: u32, mask: u64, out: &mut [u8]) {
    let mut at = 0;
    for_runs(row_bytes, mask, |run| {
        out[at..at + run.len()].copy_from_slice(&block[run.clone()]);
        at += run.len();
    });
}

/// Copies packed rows to where the mask says that they lie in their block.
pub(crate) fn place_rows(packed: &[u8], row_bytes: u32, mask: u64, block: &mut [u8]) {
    let mut at = 0;
    for_runs(row_bytes, mask, |run| {
        let rows = &packed[at..at + run.len()];
        at += run.len();
        block[run].copy_from_slice(rows);
    });
}

/// The byte ranges of runs of neighbouring rows.
fn for_runs(row_bytes: u32, mask: u64, mut each: impl FnMut(std::ops::Range<usize>)) {
    let row_bytes = row_bytes as usize;
    let mut left = mask;
    while left != 0 {
        let first = left.trailing_zeros();
        let run = (left >> first).trailing_ones();
        each(first as usize * row_bytes..(first + run) as usize * row_bytes);
        left = left.checked_shr(first + run).and_then(|rest| rest.checked_shl(first + run)).unwrap_or(0);
    }
}

fn io_error(what: &'static str, file: &Path) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Io { what, file: file.to_owned(), source }
}

pub(crate) fn parse_manifest(file: &Path) -> Result<Manifest, OpenError> {
    let bytes = std::fs::metadata(file).map_err(io_error("read", file))?.len();
    if bytes > MANIFEST_BYTES_MAX {
        return Err(OpenError::ManifestTooLong { file: file.to_owned() });
    }
    let text = std::fs::read_to_string(file).map_err(io_error("read", file))?;
    Manifest::parse(&text).map_err(|source| OpenError::Manifest { file: file.to_owned(), source })
}

fn resolve(mode: StorageMode, manifest: &Manifest, parts: &[PartId]) -> ReadMode {
    match mode {
        StorageMode::Memory => ReadMode::Memory,
        StorageMode::Direct => ReadMode::Direct,
        StorageMode::Auto => {
            let stored: u64 = manifest.tables.iter().map(|table| stored_bytes(table, parts)).sum();
            let system = rustix::system::sysinfo();
            let quarter = system.totalram as u64 * u64::from(system.mem_unit) / 4;
            if stored <= quarter { ReadMode::Memory } else { ReadMode::Direct }
        }
    }
}

fn stored_bytes(table: &TableSpec, parts: &[PartId]) -> u64 {
    let rows: u64 = parts.iter().map(|&part| rows_of(table, part)).sum();
    rows * table.row_bytes() as u64
}

fn rows_of(table: &TableSpec, part: PartId) -> u64 {
    table.row_offsets[part.index() + 1] - table.row_offsets[part.index()]
}

fn open_part(
    directory: &Path,
    manifest: &Manifest,
    spec: &TableSpec,
    part: PartId,
    mode: ReadMode,
) -> Result<PartFile, OpenError> {
    let blocks = rows_of(spec, part).div_ceil(u64::from(spec.rows_per_block));
    let checksums = read_checksums(directory, manifest, &layout::checksums(part, &spec.name), blocks)?;
    let path = directory.join(layout::features(part, &spec.name));
    let file = File::open(&path).map_err(io_error("open", &path))?;
    check_features(&path, &file, spec, part)?;
    let data = match mode {
        ReadMode::Memory => {
            // SAFETY: dataset files are replaced by renaming, never written in place while a node serves them (the
            // push receiver and import keep to that); a truncation by others would be SIGBUS, not wrong bytes, as
            // blocks are checked by their CRC.
            let map = unsafe { Mmap::map(&file) }.map_err(io_error("map", &path))?;
            let words = (blocks as usize).div_ceil(64);
            PartData::Memory { map, verified: (0..words).map(|_| AtomicU64::new(0)).collect() }
        }
        ReadMode::Direct => PartData::Direct(open_direct(&path)?),
    };
    Ok(PartFile { checksums, data })
}

fn open_direct(path: &Path) -> Result<File, OpenError> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT, Mode::empty())
        .map(File::from)
        .map_err(|errno| OpenError::NoDirect { file: path.to_owned(), source: errno.into() })
}

fn mismatch(path: &Path, what: &'static str, expected: impl ToString, found: impl ToString) -> OpenError {
    OpenError::Mismatch {
        file: path.to_owned(),
        what,
        expected: expected.to_string(),
        found: found.to_string(),
    }
}

/// The data of a checksum table whose bytes are those of the manifest's digest.
fn read_checksums(
    directory: &Path,
    manifest: &Manifest,
    relative: &str,
    blocks: u64,
) -> Result<Vec<u8>, OpenError> {
    let path = directory.join(relative);
    let found = std::fs::metadata(&path).map_err(io_error("read", &path))?.len();
    let Some(spec) = manifest.file(relative) else {
        return Err(mismatch(&path, "the file", "nothing of it", "there"));
    };
    if found != spec.bytes {
        return Err(mismatch(&path, "the length", spec.bytes, found));
    }
    let bytes = std::fs::read(&path).map_err(io_error("read", &path))?;
    let digest = blake3::hash(&bytes).to_hex();
    if digest.as_str() != spec.digest {
        return Err(mismatch(&path, "the digest", &spec.digest, digest));
    }
    let (_, data) =
        NpyHeader::parse_file(&bytes).map_err(|source| OpenError::Npy { file: path.clone(), source })?;
    if data.len() as u64 != blocks * 4 {
        return Err(mismatch(&path, "the number of checksums", blocks, data.len() / 4));
    }
    Ok(data.to_vec())
}

fn check_features(path: &Path, file: &File, spec: &TableSpec, part: PartId) -> Result<(), OpenError> {
    let mut start = vec![0_u8; FEATURE_DATA_OFFSET as usize];
    file.read_exact_at(&mut start, 0).map_err(io_error("read", path))?;
    let npy = |source| OpenError::Npy { file: path.to_owned(), source };
    let header = NpyHeader::parse(&start).map_err(npy)?;
    if header.data_offset != FEATURE_DATA_OFFSET {
        return Err(mismatch(path, "the start of the data", FEATURE_DATA_OFFSET, header.data_offset));
    }
    let shape = [rows_of(spec, part), u64::from(spec.dim)];
    if header.shape != shape {
        return Err(mismatch(path, "the shape", format!("{shape:?}"), format!("{:?}", header.shape)));
    }
    if header.element.feature_dtype() != Some(spec.dtype) {
        return Err(mismatch(
            path,
            "the element",
            format!("{:?}", spec.dtype),
            format!("{:?}", header.element),
        ));
    }
    let bytes = file.metadata().map_err(io_error("read", path))?.len();
    header.check_file_bytes(bytes).map_err(npy)
}

#[cfg(test)]
#[path = "block_files/tests.rs"]
mod tests;
