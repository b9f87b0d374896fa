//! Looking at a dataset directory: what it holds, and whether its bytes are those that were written.

use crate::error::InspectError;
use crate::progress::{Cancel, Phase, Progress, Run, Total};
use crate::summary::{self, LabelSummary, SplitSummary, Summary, VerifySummary};
use rudder_graph::crc::extend_checksum;
use rudder_graph::manifest::{FEATURE_DATA_OFFSET, MANIFEST_BYTES_MAX};
use rudder_graph::npy::{NpyHeader, NpyType};
use rudder_graph::{FileSpec, Manifest, TableSpec, layout};
use rudder_topology::PartId;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How closely to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// The manifest, the headers and lengths of all files, the ids in the graph.
    #[default]
    Shapes,
    /// Also every digest and the checksum of every block.
    Checksums,
}

/// Describes a dataset directory, which may hold only some of its parts.
pub fn inspect(
    directory: &Path,
    verify: Verify,
    progress: &mut dyn Progress,
) -> Result<Summary, InspectError> {
    let run = &mut Run::new(progress, Cancel::default());
    let manifest = read_manifest(directory)?;
    let mut look = Look { directory, manifest: &manifest, verified: VerifySummary::default() };
    let present = look.shapes()?;
    let edge_cut = look.edge_cut()?;
    let labels = look.labels()?;
    let split = look.split()?;
    if verify == Verify::Checksums {
        look.digests(run)?;
        look.blocks(&present, run)?;
    }
    let verified = (verify == Verify::Checksums).then_some(look.verified);
    let (parts, tables) = summary::layout(&manifest, &present);
    Ok(Summary {
        name: manifest.name.to_string(),
        digest: manifest.digest.clone(),
        vertices: manifest.vertices,
        edges: manifest.edges,
        graph_bytes: crate::csc::csc_bytes(manifest.vertices, manifest.edges),
        feature_bytes: parts.iter().map(|part| part.feature_bytes).sum(),
        parts,
        tables,
        edge_cut,
        edge_cut_share: edge_cut as f64 / manifest.edges.max(1) as f64,
        balance: summary::balance(&manifest.part_offsets),
        labels,
        split,
        notes: manifest.notes.clone(),
        import: None,
        verified,
    })
}

fn read_manifest(directory: &Path) -> Result<Manifest, InspectError> {
    let file = directory.join(layout::MANIFEST);
    let io = |source| InspectError::Io { file: file.clone(), source };
    let mut bytes = Vec::new();
    let opened = File::open(&file).map_err(io)?;
    opened.take(MANIFEST_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| InspectError::Value { file: file.clone(), problem: "not UTF-8 text".into() })?;
    Manifest::parse(&text).map_err(|source| InspectError::Manifest { file, source })
}

struct Look<'a> {
    directory: &'a Path,
    manifest: &'a Manifest,
    verified: VerifySummary,
}

/// An array file whose header and length were checked.
struct Opened {
    path: PathBuf,
    reader: BufReader<File>,
    elements: u64,
}

const BUFFER_BYTES: usize = 1 << 18;

impl Opened {
    /// The error for something wrong with the content.
    fn refuse(&self, problem: String) -> InspectError {
        InspectError::Value { file: self.path.clone(), problem }
    }

    /// The next value of 4 or 8 bytes.
    fn next<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], InspectError> {
        let mut bytes = [0; BYTES];
        let io = |source| InspectError::Io { file: self.path.clone(), source };
        self.reader.read_exact(&mut bytes).map_err(io)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, InspectError> {
        self.next().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, InspectError> {
        self.next().map(u64::from_le_bytes)
    }
}

impl Look<'_> {
    /// Opens an array and stands at its data.
    fn open(&self, relative: &str, element: NpyType, shape: &[Option<u64>]) -> Result<Opened, InspectError> {
        let path = self.directory.join(relative);
        let io = |source| InspectError::Io { file: path.clone(), source };
        let array = |source| InspectError::Array { file: path.clone(), source };
        let mut file = File::open(&path).map_err(io)?;
        let file_bytes = file.metadata().map_err(io)?.len();
        let mut head = Vec::new();
        let head_bytes = rudder_graph::npy::HEADER_BYTES_MAX as u64 + 12;
        file.by_ref().take(head_bytes).read_to_end(&mut head).map_err(io)?;
        let header = NpyHeader::parse(&head).map_err(array)?;
        header.check_file_bytes(file_bytes).map_err(array)?;
        let fits = header.shape.len() == shape.len()
            && header.shape.iter().zip(shape).all(|(&found, wanted)| wanted.is_none_or(|n| n == found));
        if header.element != element || !fits {
            let found = format!("{} of shape {:?}", header.element.descr(), header.shape);
            let shape: Vec<String> =
                shape.iter().map(|n| n.map_or("any".to_owned(), |n| n.to_string())).collect();
            let expected = format!("{} of shape [{}]", element.descr(), shape.join(", "));
            return Err(InspectError::Shape { file: path, found, expected });
        }
        file.seek(SeekFrom::Start(header.data_offset)).map_err(io)?;
        let elements = header.elements();
        Ok(Opened { path, reader: BufReader::with_capacity(BUFFER_BYTES, file), elements })
    }

    fn is_listed(&self, relative: &str) -> bool {
        self.manifest.file(relative).is_some()
    }

    /// Checks headers and lengths; says which parts are here.
    fn shapes(&self) -> Result<Vec<bool>, InspectError> {
        let vertices = Some(self.manifest.vertices);
        self.open(layout::ORIGINAL_ID, NpyType::U64, &[vertices])?;
        self.open(layout::DATASET_ID, NpyType::U32, &[vertices])?;
        (0..self.manifest.parts()).map(|part| self.part_shapes(PartId(part as u16))).collect()
    }

    fn part_shapes(&self, part: PartId) -> Result<bool, InspectError> {
        // A storage node may hold only some parts; but a part is there whole or not at all.
        if !self.directory.join(layout::part(part)).exists() {
            return Ok(false);
        }
        for table in &self.manifest.tables {
            let rows = rows_of(table, part);
            let blocks = rows.div_ceil(u64::from(table.rows_per_block));
            let shape = [Some(rows), Some(u64::from(table.dim))];
            let mut features =
                self.open(&layout::features(part, &table.name), NpyType::from(table.dtype), &shape)?;
            let io = |source| InspectError::Io { file: features.path.clone(), source };
            let start = features.reader.stream_position().map_err(io)?;
            if start != FEATURE_DATA_OFFSET {
                let problem = format!("the data starts at byte {start} instead of {FEATURE_DATA_OFFSET}");
                return Err(features.refuse(problem));
            }
            self.open(&layout::checksums(part, &table.name), NpyType::U32, &[Some(blocks)])?;
        }
        Ok(true)
    }

    /// Reads the graphs through: edges between parts, and that every id exists.
    fn edge_cut(&self) -> Result<u64, InspectError> {
        let offsets = &self.manifest.part_offsets;
        let vertices = self.manifest.vertices;
        let part_of = |id: u64| offsets.partition_point(|&start| start <= id);
        let mut cut = 0;
        for graph in &self.manifest.graphs {
            let mut indptr = self.open(&layout::indptr(&graph.name), NpyType::U64, &[Some(vertices + 1)])?;
            let mut indices = self.open(&layout::indices(&graph.name), NpyType::U32, &[Some(graph.edges)])?;
            let mut start = indptr.u64()?;
            if start != 0 {
                return Err(indptr.refuse(format!("the first offset is {start}, not 0")));
            }
            for vertex in 0..vertices {
                let end = indptr.u64()?;
                if end < start || end > graph.edges {
                    return Err(indptr.refuse(format!("offset {end} of vertex {vertex} after {start}")));
                }
                let part = part_of(vertex);
                for _ in start..end {
                    let source = u64::from(indices.u32()?);
                    if source >= vertices {
                        return Err(indices
                            .refuse(format!("vertex {vertex} has in-neighbour {source} of {vertices}")));
                    }
                    cut += u64::from(part_of(source) != part);
                }
                start = end;
            }
            if start != graph.edges {
                return Err(indptr.refuse(format!("the last offset is {start} of {} edges", graph.edges)));
            }
        }
        Ok(cut)
    }

    fn labels(&self) -> Result<Option<LabelSummary>, InspectError> {
        if !self.is_listed(layout::LABELS) {
            return Ok(None);
        }
        let mut file = self.open(layout::LABELS, NpyType::I64, &[Some(self.manifest.vertices)])?;
        let mut labels = LabelSummary { labelled: 0, classes: 0 };
        for _ in 0..file.elements {
            let label = i64::from_le_bytes(file.next()?);
            if let Ok(label) = u64::try_from(label) {
                labels.labelled += 1;
                labels.classes = labels.classes.max(label + 1);
            }
        }
        Ok(Some(labels))
    }

    fn split(&self) -> Result<Option<SplitSummary>, InspectError> {
        let mut sizes = [0; 3];
        let mut any = false;
        for (size, split) in sizes.iter_mut().zip(layout::Split::ALL) {
            let relative = layout::split(split);
            if !self.is_listed(&relative) {
                continue;
            }
            any = true;
            let mut file = self.open(&relative, NpyType::U32, &[None])?;
            for _ in 0..file.elements {
                let id = file.u32()?;
                if u64::from(id) >= self.manifest.vertices {
                    return Err(file.refuse(format!("vertex {id} of {}", self.manifest.vertices)));
                }
            }
            *size = file.elements;
        }
        let [train, valid, test] = sizes;
        Ok(any.then_some(SplitSummary { train, valid, test }))
    }

    /// Checks length and digest of every listed file that is here; the checksum tables of absent parts are not.
    fn digests(&mut self, run: &mut Run<'_>) -> Result<(), InspectError> {
        let manifest = self.manifest;
        run.begin(Phase::Digest, Total::Bytes(manifest.files.iter().map(|file| file.bytes).sum()));
        for file in &manifest.files {
            let in_part = file.path.starts_with("parts/");
            if in_part && !self.directory.join(&file.path).exists() {
                continue;
            }
            self.digest(file, run)?;
        }
        run.end(Phase::Digest);
        Ok(())
    }

    fn digest(&mut self, spec: &FileSpec, run: &mut Run<'_>) -> Result<(), InspectError> {
        let file = self.directory.join(&spec.path);
        let io = |source| InspectError::Io { file: file.clone(), source };
        let mut reader = File::open(&file).map_err(io)?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut bytes = 0;
        loop {
            let got = reader.read(&mut buffer).map_err(io)?;
            if got == 0 {
                break;
            }
            hasher.update(&buffer[..got]);
            bytes += got as u64;
            let _ = run.advance(got as u64);
        }
        let found = hasher.finalize().to_hex().to_string();
        if bytes != spec.bytes || found != spec.digest {
            return Err(InspectError::Digest { file, expected: spec.digest.clone(), found });
        }
        self.verified.files += 1;
        self.verified.bytes += bytes;
        Ok(())
    }

    /// Checks every block of the parts that are here.
    fn blocks(&mut self, present: &[bool], run: &mut Run<'_>) -> Result<(), InspectError> {
        let manifest = self.manifest;
        let row_bytes: u64 = manifest.tables.iter().map(|table| table.row_bytes() as u64).sum();
        run.begin(Phase::Verify, Total::Bytes(row_bytes * manifest.vertices));
        for (part, &present) in present.iter().enumerate() {
            if !present {
                self.verified.parts_absent += 1;
                continue;
            }
            for table in &manifest.tables {
                self.part_blocks(table, PartId(part as u16), run)?;
            }
        }
        run.end(Phase::Verify);
        Ok(())
    }

    fn part_blocks(
        &mut self,
        table: &TableSpec,
        part: PartId,
        run: &mut Run<'_>,
    ) -> Result<(), InspectError> {
        let rows = rows_of(table, part);
        let blocks = rows.div_ceil(u64::from(table.rows_per_block));
        let shape = [Some(rows), Some(u64::from(table.dim))];
        let mut features =
            self.open(&layout::features(part, &table.name), NpyType::from(table.dtype), &shape)?;
        let mut checksums =
            self.open(&layout::checksums(part, &table.name), NpyType::U32, &[Some(blocks)])?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut left, mut bad) = (rows * table.row_bytes() as u64, Vec::new());
        for block in 0..blocks {
            let bytes = left.min(table.block_bytes() as u64);
            let found = checksum(&mut features, bytes, &mut buffer)?;
            let expected = checksums.u32()?;
            if found != expected {
                bad.push((block as u32, found, expected));
            }
            left -= bytes;
            let _ = run.advance(bytes);
        }
        if let Some(&(block, found, expected)) = bad.first() {
            let (file, bad) = (features.path, bad.len() as u64);
            return Err(InspectError::Checksum { file, block, found, expected, bad });
        }
        self.verified.blocks += blocks;
        self.verified.bytes += rows * table.row_bytes() as u64;
        Ok(())
    }
}

/// The checksum of the next `bytes` bytes, read piece by piece.
fn checksum(file: &mut Opened, bytes: u64, buffer: &mut [u8]) -> Result<u32, InspectError> {
    let (mut left, mut checksum) = (bytes, 0);
    while left > 0 {
        let len = left.min(buffer.len() as u64) as usize;
        let io = |source| InspectError::Io { file: file.path.clone(), source };
        file.reader.read_exact(&mut buffer[..len]).map_err(io)?;
        checksum = extend_checksum(checksum, &buffer[..len]);
        left -= len as u64;
    }
    Ok(checksum)
}

fn rows_of(table: &TableSpec, part: PartId) -> u64 {
    table.row_offsets[part.index() + 1] - table.row_offsets[part.index()]
}
