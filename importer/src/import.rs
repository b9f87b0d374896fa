//! From input to dataset: read, cut, order, weigh, write.

use crate::block_size::TradeOff;
use crate::csc::{self, Adjacency};
use crate::error::{ImportError, OptionError};
use crate::numbering::Numbering;
use crate::options::{BlockSize, ImportOptions, Partitioner};
use crate::partition::{Partition, edge_cut, partition};
use crate::progress::{Phase, Progress, Run, Total};
use crate::read::scratch::Scratch;
use crate::source::{Features, Placement, Source, Split};
use crate::summary::{self, ImportSummary, LabelSummary, SplitSummary, Summary};
use crate::target::Target;
use crate::{memory, order, read, sample, split, write};
use rudder_graph::manifest::{BLOCK_BYTES_MAX, FORMAT_VERSION, ManifestError, ManifestErrors};
use rudder_graph::{Manifest, TableSpec, layout};
use rudder_topology::{DatasetName, TableName};
use std::time::Instant;

/// Name of the only graph an import makes.
const GRAPH: &str = "edges";
/// Name of the only feature table an import makes.
const TABLE: &str = "features";

/// Makes a dataset directory.
///
/// The directory appears under its name only when it is whole and on the disk. Peak memory is at most eight times the
/// graph's CSC bytes and 256 MiB; features stream. Compressed input is unpacked beside the target meanwhile.
pub fn import(options: &ImportOptions, progress: &mut dyn Progress) -> Result<Summary, ImportError> {
    let start = Instant::now();
    options.check()?;
    let name = dataset_name(options)?;
    let target = Target::create(&options.target, options.existing)?;
    let run = &mut Run::new(progress, options.cancel.clone());
    let mut source = read::open(options, &mut Scratch::new(target.scratch()), run)?;
    if source.vertices == 0 || source.vertices > u64::from(u32::MAX) {
        return Err(OptionError::Vertices(source.vertices).into());
    }
    let split = settle_split(&mut source, options);
    let graph = csc::build(&mut *source.edges, source.vertices, options.direction, run)?;
    let limit = memory::limit(graph.bytes());
    if let Some(file) = &options.placement {
        source.placement = Some(read::placement::read(file, source.vertices, run)?);
    }
    let cut = cut(&graph, source.placement.take(), options, limit.0, run)?;
    let plan = Plan::new(&graph, &cut, &split, &source.features, options, run)?;
    let labels = source.labels.as_deref().map(label_summary);
    let manifest = write_all(&target, name, &mut source, &graph, &split, &plan, run)?;
    run.begin(Phase::Sync, Total::Open);
    target.commit()?;
    run.end(Phase::Sync);
    let (parts, tables) = summary::layout(&manifest, &vec![true; manifest.parts()]);
    Ok(Summary {
        name: manifest.name.to_string(),
        digest: manifest.digest.clone(),
        vertices: manifest.vertices,
        edges: manifest.edges,
        graph_bytes: graph.bytes(),
        feature_bytes: parts.iter().map(|part| part.feature_bytes).sum(),
        parts,
        tables,
        edge_cut: plan.edge_cut,
        edge_cut_share: plan.edge_cut as f64 / manifest.edges.max(1) as f64,
        balance: summary::balance(&manifest.part_offsets),
        labels,
        split: Some(SplitSummary {
            train: split.train.len() as u64,
            valid: split.valid.len() as u64,
            test: split.test.len() as u64,
        }),
        notes: manifest.notes,
        import: Some(ImportSummary {
            partitioner: cut.method,
            elapsed_s: start.elapsed().as_secs_f64(),
            memory_bytes_peak: memory::peak().map(|bytes| bytes.0),
            memory_bytes_limit: limit.0,
            block_sizes: plan.trade_off,
        }),
        verified: None,
    })
}

/// What the input says of parts, unless a partitioner is asked for.
fn cut(
    graph: &Adjacency,
    placement: Option<Placement>,
    options: &ImportOptions,
    limit: u64,
    run: &mut Run<'_>,
) -> Result<Partition, ImportError> {
    if let Some(Placement { parts, part }) = placement.filter(|_| options.partitioner == Partitioner::Auto) {
        if let Some(asked) = options.parts.filter(|&asked| asked != parts) {
            return Err(OptionError::Placed { asked, found: parts }.into());
        }
        return Ok(Partition { part, parts, method: "as the input was cut" });
    }
    partition(graph, options.parts.unwrap_or(1), options.partitioner, options.seed, limit, run)
}

fn dataset_name(options: &ImportOptions) -> Result<DatasetName, OptionError> {
    match &options.name {
        Some(name) => Ok(name.clone()),
        None => {
            let name = options.target.file_name().map(|name| name.to_string_lossy().into_owned());
            let name = name.ok_or_else(|| OptionError::Target(options.target.display().to_string()))?;
            DatasetName::new(name).map_err(OptionError::Name)
        }
    }
}

/// The input's split, or one drawn by the seed.
fn settle_split(source: &mut Source, options: &ImportOptions) -> Split {
    if let Some(split) = source.split.take() {
        return split;
    }
    let of = if source.labels.is_some() { "the labelled" } else { "all" };
    source.notes.push(format!("split: 60/20/20 of {of} vertices, drawn with seed {}", options.seed));
    split::seeded(source.vertices, source.labels.as_deref(), options.seed)
}

fn label_summary(labels: &[i64]) -> LabelSummary {
    LabelSummary {
        labelled: labels.iter().filter(|&&label| label >= 0).count() as u64,
        classes: labels.iter().max().map_or(0, |&highest| highest.max(-1).saturating_add(1) as u64),
    }
}

/// What was decided: numbers, block size.
struct Plan {
    numbering: Numbering,
    edge_cut: u64,
    rows_per_block: u32,
    /// Where the block size was chosen by sampling.
    trade_off: Option<TradeOff>,
    notes: Vec<String>,
}

impl Plan {
    fn new(
        graph: &Adjacency,
        cut: &Partition,
        split: &Split,
        features: &Features,
        options: &ImportOptions,
        run: &mut Run<'_>,
    ) -> Result<Plan, ImportError> {
        let heat = order::heat(graph, &split.train, options, run)?;
        let numbering = Numbering::new(&cut.part, cut.parts, &heat)?;
        drop(heat);
        let mut notes = Vec::new();
        let (rows_per_block, trade_off) = match options.block_size {
            BlockSize::Rows(rows) => {
                notes.push(format!("block size: {rows} rows, as asked for"));
                (rows, None)
            }
            BlockSize::Auto => {
                let row_bytes = features.row_bytes() as u64;
                let weighed = sample::weigh(graph, &numbering, &split.train, row_bytes, options, run)?;
                let fanout = options.fanout.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
                notes.push(format!("sampled with {} seeds, fanout {fanout}", options.seeds));
                notes.extend(weighed.to_string().lines().map(str::to_owned));
                (weighed.best(), Some(weighed))
            }
        };
        let bytes = features.row_bytes() as u64 * u64::from(rows_per_block);
        if bytes > BLOCK_BYTES_MAX {
            let table = table_name(TABLE)?;
            let error = ManifestError::BlockBytes { table, dim: features.dim, rows: rows_per_block };
            return Err(ManifestErrors(vec![error]).into());
        }
        notes.push(format!("partitioner: {}", cut.method));
        Ok(Plan { numbering, edge_cut: edge_cut(graph, &cut.part), rows_per_block, trade_off, notes })
    }
}

fn table_name(name: &str) -> Result<TableName, OptionError> {
    TableName::new(name).map_err(OptionError::Name)
}

fn write_all(
    target: &Target,
    name: DatasetName,
    source: &mut Source,
    graph: &Adjacency,
    split: &Split,
    plan: &Plan,
    run: &mut Run<'_>,
) -> Result<Manifest, ImportError> {
    let numbering = &plan.numbering;
    let table = TableSpec {
        name: table_name(TABLE)?,
        dim: source.features.dim,
        dtype: source.features.dtype,
        rows_per_block: plan.rows_per_block,
        row_offsets: numbering.part_offsets.clone(),
    };
    let (graph_spec, mut files) = write::graph(target, &table_name(GRAPH)?, graph, numbering, run)?;
    files.extend(write::id_maps(target, numbering)?);
    files.extend(write::features::write(target, &table, &mut source.features, numbering, run)?);
    if let Some(labels) = &source.labels {
        files.push(write::labels(target, labels, numbering)?);
    }
    files.extend(write::split(target, split, numbering)?);
    let mut manifest = Manifest {
        format: FORMAT_VERSION,
        name,
        vertices: source.vertices,
        edges: graph.edges(),
        digest: String::new(),
        part_offsets: numbering.part_offsets.clone(),
        graphs: vec![graph_spec],
        tables: vec![table],
        files,
        notes: source.notes.iter().chain(&plan.notes).cloned().collect(),
    };
    manifest.seal();
    manifest.check()?;
    let path = target.path(layout::MANIFEST)?;
    std::fs::write(&path, manifest.to_toml()).map_err(ImportError::write(&path))?;
    Ok(manifest)
}
