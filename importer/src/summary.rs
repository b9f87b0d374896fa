//! What a dataset is, for people and for programs.

use crate::block_size::TradeOff;
use rudder_graph::{Dtype, Manifest};
use rudder_topology::{Bytes, PartId};
use serde::Serialize;
use std::fmt;

/// What `rudder import` and `rudder inspect` print: as text, aligned lines that end with a newline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub name: String,
    pub digest: String,
    pub vertices: u64,
    pub edges: u64,
    pub graph_bytes: u64,
    pub feature_bytes: u64,
    pub parts: Vec<PartSummary>,
    pub tables: Vec<TableSummary>,
    /// Edges whose ends lie in different parts.
    pub edge_cut: u64,
    pub edge_cut_share: f64,
    /// Vertices of the largest part over the mean.
    pub balance: f64,
    pub labels: Option<LabelSummary>,
    pub split: Option<SplitSummary>,
    /// What import weighed and assumed, line by line.
    pub notes: Vec<String>,
    /// Only after an import.
    pub import: Option<ImportSummary>,
    /// Only where checksums were verified.
    pub verified: Option<VerifySummary>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartSummary {
    pub part: PartId,
    pub vertices: u64,
    pub blocks: u64,
    pub feature_bytes: u64,
    /// Whether its feature files are in this directory.
    pub present: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableSummary {
    pub name: String,
    pub dim: u32,
    pub dtype: Dtype,
    pub row_bytes: u64,
    pub rows_per_block: u32,
    pub blocks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LabelSummary {
    pub labelled: u64,
    /// One more than the highest label.
    pub classes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SplitSummary {
    pub train: u64,
    pub valid: u64,
    pub test: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImportSummary {
    pub partitioner: &'static str,
    pub elapsed_s: f64,
    /// Highest resident set of the process, where the kernel tells.
    pub memory_bytes_peak: Option<u64>,
    /// Eight times the graph's CSC bytes and 256 MiB.
    pub memory_bytes_limit: u64,
    /// Where the block size was chosen by sampling.
    pub block_sizes: Option<TradeOff>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifySummary {
    pub files: u64,
    pub blocks: u64,
    pub bytes: u64,
    /// Parts of the manifest whose feature files are elsewhere.
    pub parts_absent: u64,
}

/// Vertices of the largest part over the mean.
pub(crate) fn balance(part_offsets: &[u64]) -> f64 {
    let parts = part_offsets.len().saturating_sub(1) as f64;
    let largest = part_offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as f64;
    let vertices = part_offsets.last().copied().unwrap_or(0).max(1) as f64;
    largest * parts / vertices
}

/// The parts and tables of a manifest; `present[p]` says whether part p is here.
pub(crate) fn layout(manifest: &Manifest, present: &[bool]) -> (Vec<PartSummary>, Vec<TableSummary>) {
    let blocks = |rows: u64, rows_per_block: u32| rows.div_ceil(u64::from(rows_per_block));
    let part = |p: usize| {
        let rows = |offsets: &[u64]| offsets[p + 1] - offsets[p];
        let of_tables = manifest.tables.iter().map(|t| (rows(&t.row_offsets), t));
        let (mut part_blocks, mut bytes) = (0, 0);
        for (rows, table) in of_tables {
            part_blocks += blocks(rows, table.rows_per_block);
            bytes += rows * table.row_bytes() as u64;
        }
        PartSummary {
            part: PartId(p as u16),
            vertices: rows(&manifest.part_offsets),
            blocks: part_blocks,
            feature_bytes: bytes,
            present: present.get(p).copied().unwrap_or(false),
        }
    };
    let table = |spec: &rudder_graph::TableSpec| TableSummary {
        name: spec.name.to_string(),
        dim: spec.dim,
        dtype: spec.dtype,
        row_bytes: spec.row_bytes() as u64,
        rows_per_block: spec.rows_per_block,
        blocks: spec.row_offsets.windows(2).map(|r| blocks(r[1] - r[0], spec.rows_per_block)).sum(),
    };
    ((0..manifest.parts()).map(part).collect(), manifest.tables.iter().map(table).collect())
}

/// Parts that are listed one by one; of more, the list says how many were left out.
const PARTS_SHOWN: usize = 16;

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |key: &str, value: &dyn fmt::Display| writeln!(f, "{key:<12} {value}");
        line("dataset", &self.name)?;
        line("vertices", &self.vertices)?;
        line("edges", &self.edges)?;
        line("graph", &format!("{} (CSC)", Bytes(self.graph_bytes)))?;
        line("features", &Bytes(self.feature_bytes))?;
        for t in &self.tables {
            let dtype = format!("{:?}", t.dtype).to_lowercase();
            let shape = format!("{} x {dtype}, {} a row", t.dim, Bytes(t.row_bytes));
            line(
                "table",
                &format!("{}: {shape}, {} rows a block, {} blocks", t.name, t.rows_per_block, t.blocks),
            )?;
        }
        if let Some(labels) = self.labels {
            line("labels", &format!("{} vertices, {} classes", labels.labelled, labels.classes))?;
        }
        if let Some(split) = self.split {
            line("split", &format!("{} train, {} valid, {} test", split.train, split.valid, split.test))?;
        }
        line("parts", &self.parts.len())?;
        line("edge cut", &format!("{} ({:.1} %)", self.edge_cut, 100.0 * self.edge_cut_share))?;
        line("balance", &format!("{:.3} (largest part over the mean)", self.balance))?;
        for part in self.parts.iter().take(PARTS_SHOWN) {
            let absent = if part.present { "" } else { ", not here" };
            let size = Bytes(part.feature_bytes);
            line(
                "",
                &format!(
                    "P{:<5} {:>10} vertices {:>12}{absent}",
                    part.part.0,
                    part.vertices,
                    size.to_string()
                ),
            )?;
        }
        if self.parts.len() > PARTS_SHOWN {
            line("", &format!("and {} more parts", self.parts.len() - PARTS_SHOWN))?;
        }
        for (at, note) in self.notes.iter().enumerate() {
            line(if at == 0 { "notes" } else { "" }, note)?;
        }
        if let Some(import) = &self.import {
            line("partitioner", &import.partitioner)?;
            line("time", &format!("{:.2} s", import.elapsed_s))?;
            let limit = Bytes(import.memory_bytes_limit);
            let peak = import.memory_bytes_peak.map_or("unknown".to_owned(), |peak| Bytes(peak).to_string());
            line("peak memory", &format!("{peak} (aim: at most {limit})"))?;
        }
        if let Some(v) = self.verified {
            line("verified", &format!("{} blocks, {} files, {}", v.blocks, v.files, Bytes(v.bytes)))?;
            if v.parts_absent > 0 {
                line("", &format!("{} parts are not here and were not verified", v.parts_absent))?;
            }
        }
        writeln!(f, "{:<12} {}", "digest", self.digest)
    }
}
