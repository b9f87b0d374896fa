//! A dataset directory, mapped: manifest, graph, ids, labels, splits, and the feature rows of the parts that are
//! there. Sizes and shapes are checked against the manifest when it is opened, contents by [`Dataset::verify`].
//!
//! Files must not change while they are mapped: a file that is cut short ends the process by SIGBUS. Importers
//! and pushes therefore write beside the target and rename.

mod arrays;
mod verify;

pub use verify::{Damage, Verified, VerifyError, VerifyProgress, VerifyScope};

use arrays::{MappedArray, open_regular};
use rudder_graph::csc::CscError;
use rudder_graph::manifest::{FEATURE_DATA_OFFSET, MANIFEST_BYTES_MAX, ManifestErrors};
use rudder_graph::npy::{NpyError, NpyType};
use rudder_graph::{Csc, Manifest, PartitionBook, Split, crc::ChecksumTable, layout};
use rudder_topology::{BlockId, PartId, TableId, TableName, VertexId};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// An opened dataset directory. It may hold any subset of the graph, the parts and the other files.
#[derive(Debug)]
pub struct Dataset {
    directory: PathBuf,
    manifest: Manifest,
    book: PartitionBook,
    /// By the manifest's order of graphs: indptr and indices.
    graphs: Vec<Option<(MappedArray, MappedArray)>>,
    labels: Option<MappedArray>,
    splits: [Option<Vec<VertexId>>; 3],
    original_id: Option<MappedArray>,
    dataset_id: Option<MappedArray>,
    /// By part: its tables in the manifest's order, if all of its files are there.
    parts: Vec<Option<Vec<PartTable>>>,
}

/// Features and checksums of a table in a part.
#[derive(Debug)]
struct PartTable {
    features: MappedArray,
    checksums: MappedArray,
}

/// Why a directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {errors}", path.display())]
    Manifest { path: PathBuf, errors: ManifestErrors },
    #[error("{}: {error}", path.display())]
    Npy { path: PathBuf, error: NpyError },
    #[error("{}: an array of {found:?} {found_shape:?}, where the manifest asks for {expected:?} {expected_shape:?}", path.display())]
    Array {
        path: PathBuf,
        expected: NpyType,
        expected_shape: Vec<u64>,
        found: NpyType,
        found_shape: Vec<u64>,
    },
    #[error("{}: data starts at byte {found}, not at {expected}", path.display())]
    DataOffset { path: PathBuf, expected: u64, found: u64 },
    #[error("{}: {found} bytes, where the manifest says {expected}", path.display())]
    FileBytes { path: PathBuf, expected: u64, found: u64 },
    #[error("{}: {error}", path.display())]
    Graph { path: PathBuf, error: CscError },
    #[error("{}: vertex {vertex} does not exist", path.display())]
    SplitVertex { path: PathBuf, vertex: u32 },
}

/// Why a row or block cannot be read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    #[error("table {table} has no row {row}")]
    UnknownRow { table: TableId, row: u64 },
    #[error("there is no block {0}")]
    UnknownBlock(BlockId),
    #[error("part {0} is not in this directory")]
    AbsentPart(PartId),
}

impl Dataset {
    /// Maps what is there and checks it against the manifest. Costs a header a file; contents are not read.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Dataset, DatasetError> {
        let directory = directory.into();
        let manifest = read_manifest(&directory.join(layout::MANIFEST))?;
        let open = Opening { directory: &directory, manifest: &manifest };
        let vertices = manifest.vertices;
        let mut graphs = Vec::new();
        for graph in &manifest.graphs {
            graphs.push(open.graph(&graph.name, graph.edges)?);
        }
        let mut splits = [None, None, None];
        for split in Split::ALL {
            splits[split as usize] = open.split(split)?;
        }
        let mut parts = Vec::new();
        for part in 0..manifest.parts() {
            parts.push(open.part(PartId(part as u16))?);
        }
        Ok(Dataset {
            graphs,
            splits,
            parts,
            labels: open.listed(layout::LABELS, NpyType::I64, &[vertices])?,
            original_id: open.listed(layout::ORIGINAL_ID, NpyType::U64, &[vertices])?,
            dataset_id: open.listed(layout::DATASET_ID, NpyType::U32, &[vertices])?,
            book: PartitionBook::new(&manifest),
            manifest,
            directory,
        })
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    #[must_use]
    pub fn book(&self) -> &PartitionBook {
        &self.book
    }

    /// A table's id by its name.
    #[must_use]
    pub fn table(&self, name: &TableName) -> Option<TableId> {
        let index = self.manifest.tables.iter().position(|table| table.name == *name)?;
        Some(TableId(index as u16))
    }

    /// A graph by its name; `None` if the dataset has none of that name or its files are not here.
    #[must_use]
    pub fn csc(&self, name: &TableName) -> Option<Csc<'_>> {
        self.csc_at(self.manifest.graphs.iter().position(|graph| graph.name == *name)?)
    }

    /// The first graph, if its files are here.
    #[must_use]
    pub fn first_csc(&self) -> Option<Csc<'_>> {
        self.csc_at(0)
    }

    fn csc_at(&self, index: usize) -> Option<Csc<'_>> {
        let (indptr, indices) = self.graphs.get(index)?.as_ref()?;
        // The ends were checked when the directory was opened.
        Csc::with_ends_checked(indptr.elements(), indices.elements()).ok()
    }

    /// Dataset ids of a split; `None` if the dataset has no such split or its file is not here.
    #[must_use]
    pub fn split(&self, split: Split) -> Option<&[VertexId]> {
        self.splits[split as usize].as_deref()
    }

    /// A label for each vertex by dataset id, -1 for none.
    #[must_use]
    pub fn labels(&self) -> Option<&[i64]> {
        self.labels.as_ref().map(MappedArray::elements)
    }

    /// `None` if there is no such vertex or the id maps are not here.
    #[must_use]
    pub fn original_id(&self, vertex: VertexId) -> Option<u64> {
        let ids: &[u64] = self.original_id.as_ref()?.elements();
        ids.get(vertex.index()).copied()
    }

    /// `None` if no vertex has this original id or the id maps are not here.
    #[must_use]
    pub fn dataset_id(&self, original: u64) -> Option<VertexId> {
        let ids: &[u32] = self.dataset_id.as_ref()?.elements();
        let id = *ids.get(usize::try_from(original).ok()?)?;
        (u64::from(id) < self.manifest.vertices).then_some(VertexId(id))
    }

    /// The parts whose rows can be read here.
    pub fn parts(&self) -> impl Iterator<Item = PartId> + '_ {
        let present = self.parts.iter().enumerate().filter(|(_, part)| part.is_some());
        present.map(|(part, _)| PartId(part as u16))
    }

    #[must_use]
    pub fn has_part(&self, part: PartId) -> bool {
        self.parts.get(part.index()).is_some_and(Option::is_some)
    }

    /// Bytes of one row.
    pub fn row(&self, table: TableId, row: u64) -> Result<&[u8], RowError> {
        let place = self.book.locate(table, row).ok_or(RowError::UnknownRow { table, row })?;
        let block = self.block(place.block)?;
        let bytes = self.book.row_bytes(table).unwrap_or_default() as usize;
        let start = usize::from(place.row) * bytes;
        Ok(&block[start..start + bytes])
    }

    /// Bytes of the rows of a block that exist.
    pub fn block(&self, block: BlockId) -> Result<&[u8], RowError> {
        let place = self.book.block(block).ok_or(RowError::UnknownBlock(block))?;
        let features = self.features(place.table, place.part).ok_or(RowError::AbsentPart(place.part))?;
        let row_bytes = place.row_bytes as usize;
        let full = self.book.block_bytes(place.table).unwrap_or_default() as usize;
        let start = place.index as usize * full;
        Ok(&features[start..start + usize::from(place.rows) * row_bytes])
    }

    /// The checksum that a block must have.
    pub fn block_checksum(&self, block: BlockId) -> Result<u32, RowError> {
        let place = self.book.block(block).ok_or(RowError::UnknownBlock(block))?;
        let table = self.checksums(place.table, place.part).ok_or(RowError::AbsentPart(place.part))?;
        table.expected(place.index).ok_or(RowError::UnknownBlock(block))
    }

    /// All rows of a table in a part, without the file's header; `None` if they are not here.
    #[must_use]
    pub fn features(&self, table: TableId, part: PartId) -> Option<&[u8]> {
        Some(self.part_table(table, part)?.features.data())
    }

    /// The checksums of a table in a part; `None` if they are not here.
    #[must_use]
    pub fn checksums(&self, table: TableId, part: PartId) -> Option<ChecksumTable<'_>> {
        Some(ChecksumTable::new(self.part_table(table, part)?.checksums.data()))
    }

    /// Where the feature file of a table in a part is, or would be.
    #[must_use]
    pub fn features_path(&self, table: TableId, part: PartId) -> Option<PathBuf> {
        let spec = self.manifest.tables.get(table.index())?;
        Some(self.directory.join(layout::features(part, &spec.name)))
    }

    fn part_table(&self, table: TableId, part: PartId) -> Option<&PartTable> {
        self.parts.get(part.index())?.as_ref()?.get(table.index())
    }
}

/// Reads and checks a manifest file.
pub fn read_manifest(path: &Path) -> Result<Manifest, DatasetError> {
    let read = |source| DatasetError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    // One byte more than may be, so that a longer file is seen and refused.
    let bound = MANIFEST_BYTES_MAX as u64 + 1;
    open_regular(path).and_then(|file| file.take(bound).read_to_string(&mut text)).map_err(read)?;
    Manifest::parse(&text).map_err(|errors| DatasetError::Manifest { path: path.to_owned(), errors })
}

/// The steps of opening a directory.
struct Opening<'a> {
    directory: &'a Path,
    manifest: &'a Manifest,
}

impl Opening<'_> {
    /// A file that the manifest lists; `None` if it lists none or it is not here.
    fn listed(
        &self,
        relative: &str,
        element: NpyType,
        shape: &[u64],
    ) -> Result<Option<MappedArray>, DatasetError> {
        let Some(array) = self.listed_any_shape(relative, element)? else { return Ok(None) };
        array.check_shape(shape)?;
        Ok(Some(array))
    }

    fn listed_any_shape(
        &self,
        relative: &str,
        element: NpyType,
    ) -> Result<Option<MappedArray>, DatasetError> {
        let Some(spec) = self.manifest.file(relative) else { return Ok(None) };
        let Some(array) = MappedArray::open(self.directory.join(relative), element)? else { return Ok(None) };
        array.check_file_bytes(spec.bytes)?;
        Ok(Some(array))
    }

    fn graph(
        &self,
        name: &TableName,
        edges: u64,
    ) -> Result<Option<(MappedArray, MappedArray)>, DatasetError> {
        let indptr = self.listed(&layout::indptr(name), NpyType::U64, &[self.manifest.vertices + 1])?;
        let indices = self.listed(&layout::indices(name), NpyType::U32, &[edges])?;
        let Some((indptr, indices)) = indptr.zip(indices) else { return Ok(None) };
        Csc::with_ends_checked(indptr.elements(), indices.elements())
            .map_err(|error| DatasetError::Graph { path: indptr.path().to_owned(), error })?;
        Ok(Some((indptr, indices)))
    }

    /// Splits are copied: they are short, and every id is checked on the way.
    fn split(&self, split: Split) -> Result<Option<Vec<VertexId>>, DatasetError> {
        let Some(array) = self.listed_any_shape(&layout::split(split), NpyType::U32)? else {
            return Ok(None);
        };
        let ids = array.elements::<u32>();
        array.check_shape(&[ids.len() as u64])?;
        let outside = ids.iter().find(|&&id| u64::from(id) >= self.manifest.vertices);
        match outside {
            Some(&vertex) => Err(DatasetError::SplitVertex { path: array.path().to_owned(), vertex }),
            None => Ok(Some(ids.iter().map(|&id| VertexId(id)).collect())),
        }
    }

    /// A part is here when all of its files are.
    fn part(&self, part: PartId) -> Result<Option<Vec<PartTable>>, DatasetError> {
        let mut tables = Vec::new();
        for spec in &self.manifest.tables {
            let rows = spec.row_offsets[part.index() + 1] - spec.row_offsets[part.index()];
            let blocks = rows.div_ceil(u64::from(spec.rows_per_block));
            let path = self.directory.join(layout::features(part, &spec.name));
            let Some(features) = MappedArray::open(path, spec.dtype.into())? else { return Ok(None) };
            features.check_shape(&[rows, u64::from(spec.dim)])?;
            features.check_data_offset(FEATURE_DATA_OFFSET)?;
            let checksums = layout::checksums(part, &spec.name);
            let Some(checksums) = self.listed(&checksums, NpyType::U32, &[blocks])? else {
                return Ok(None);
            };
            tables.push(PartTable { features, checksums });
        }
        Ok(Some(tables))
    }
}

#[cfg(test)]
mod tests;
