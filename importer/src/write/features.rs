//! Feature files: rows in the order of dataset ids, and the checksum of each block. Rows are asked for in ascending
//! order of their original ids, a window at a time, so that reading stays mostly sequential.

use crate::error::ImportError;
use crate::numbering::Numbering;
use crate::progress::{Phase, Run, Total};
use crate::source::Features;
use crate::target::Target;
use crate::write::arrays::ArrayWriter;
use rudder_graph::crc::extend_checksum;
use rudder_graph::manifest::FEATURE_DATA_OFFSET;
use rudder_graph::npy::{NpyType, Padding, header};
use rudder_graph::{FileSpec, TableSpec, layout};
use rudder_topology::PartId;
use std::fs::File;
use std::io::{BufWriter, Write};

/// Bytes of rows that are brought into order at a time.
const WINDOW_BYTES: usize = 8 << 20;
/// Bytes of adjacent rows that are read at a time.
const RUN_BYTES: usize = 1 << 20;

/// Writes all parts of a table; gives the checksum tables.
pub(crate) fn write(
    target: &Target,
    table: &TableSpec,
    features: &mut Features,
    numbering: &Numbering,
    run: &mut Run<'_>,
) -> Result<Vec<FileSpec>, ImportError> {
    let row_bytes = features.row_bytes() as u64;
    run.begin(Phase::Features, Total::Bytes(row_bytes * numbering.original.len() as u64));
    let mut window = Window::new(features.row_bytes());
    let mut files = Vec::new();
    for (part, range) in table.row_offsets.windows(2).enumerate() {
        let rows = &numbering.original[range[0] as usize..range[1] as usize];
        files.push(write_part(target, table, PartId(part as u16), features, rows, &mut window, run)?);
    }
    run.end(Phase::Features);
    Ok(files)
}

fn write_part(
    target: &Target,
    table: &TableSpec,
    part: PartId,
    features: &mut Features,
    originals: &[u32],
    window: &mut Window,
    run: &mut Run<'_>,
) -> Result<FileSpec, ImportError> {
    let file = target.path(&layout::features(part, &table.name))?;
    let rows = originals.len() as u64;
    let blocks = rows.div_ceil(u64::from(table.rows_per_block));
    let mut checksums =
        ArrayWriter::create(target, layout::checksums(part, &table.name), NpyType::U32, &[blocks])?;
    let opened = File::create_new(&file).map_err(ImportError::write(&file))?;
    let mut out = BufWriter::with_capacity(RUN_BYTES, opened);
    let shape = [rows, u64::from(table.dim)];
    let head = header(NpyType::from(table.dtype), &shape, Padding::To(FEATURE_DATA_OFFSET));
    out.write_all(&head).map_err(ImportError::write(&file))?;
    let mut block = BlockChecksum { rows_per_block: table.rows_per_block, rows: 0, checksum: 0 };
    for originals in originals.chunks(window.rows) {
        let bytes = window.fill(features, originals)?;
        for row in bytes.chunks_exact(table.row_bytes()) {
            block.add(row, &mut checksums)?;
        }
        out.write_all(bytes).map_err(ImportError::write(&file))?;
        run.advance(bytes.len() as u64)?;
    }
    block.end(&mut checksums)?;
    out.flush().map_err(ImportError::write(&file))?;
    checksums.finish()
}

/// The checksum of the block that is being written.
struct BlockChecksum {
    rows_per_block: u32,
    rows: u32,
    checksum: u32,
}

impl BlockChecksum {
    fn add(&mut self, row: &[u8], out: &mut ArrayWriter) -> Result<(), ImportError> {
        self.checksum = extend_checksum(self.checksum, row);
        self.rows += 1;
        if self.rows == self.rows_per_block { self.end(out) } else { Ok(()) }
    }

    fn end(&mut self, out: &mut ArrayWriter) -> Result<(), ImportError> {
        if self.rows > 0 {
            out.u32(self.checksum)?;
        }
        (self.rows, self.checksum) = (0, 0);
        Ok(())
    }
}

/// Rows on their way from the source's order to the dataset's.
struct Window {
    row_bytes: usize,
    rows: usize,
    bytes: Vec<u8>,
    staged: Vec<u8>,
    /// (original id, position in the window).
    wanted: Vec<(u32, u32)>,
}

impl Window {
    fn new(row_bytes: usize) -> Self {
        let rows = (WINDOW_BYTES / row_bytes).max(1);
        Window { row_bytes, rows, bytes: Vec::new(), staged: Vec::new(), wanted: Vec::new() }
    }

    /// The rows of `originals`, in their order.
    fn fill(&mut self, features: &mut Features, originals: &[u32]) -> Result<&[u8], ImportError> {
        let row_bytes = self.row_bytes;
        self.bytes.resize(originals.len() * row_bytes, 0);
        self.wanted.clear();
        self.wanted.extend(originals.iter().zip(0..).map(|(&original, position)| (original, position)));
        self.wanted.sort_unstable();
        let run_rows = (RUN_BYTES / row_bytes).max(1);
        let mut wanted = self.wanted.as_slice();
        while let Some(&(first, _)) = wanted.first() {
            let adjacent = (first..).zip(wanted).take(run_rows).take_while(|(id, w)| *id == w.0).count();
            self.staged.resize(adjacent * row_bytes, 0);
            features.rows.read(u64::from(first), &mut self.staged)?;
            for (row, &(_, position)) in self.staged.chunks_exact(row_bytes).zip(wanted) {
                let at = position as usize * row_bytes;
                self.bytes[at..at + row_bytes].copy_from_slice(row);
            }
            wanted = &wanted[adjacent..];
        }
        Ok(&self.bytes)
    }
}
