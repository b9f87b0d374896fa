//! Writing the files of a dataset.

pub(crate) mod arrays;
pub(crate) mod features;

use crate::csc::Adjacency;
use crate::error::ImportError;
use crate::numbering::Numbering;
use crate::progress::{Phase, Run, Total};
use crate::source::Split;
use crate::target::Target;
use arrays::ArrayWriter;
use rudder_graph::layout::{self, Split as SplitName};
use rudder_graph::npy::NpyType;
use rudder_graph::{FileSpec, GraphSpec};
use rudder_topology::TableName;

/// Vertices between two looks at the cancel flag.
const REPORT_VERTICES: usize = 1 << 14;

/// Writes the graph in dataset ids; each vertex's in-neighbours ascend.
pub(crate) fn graph(
    target: &Target,
    name: &TableName,
    graph: &Adjacency,
    numbering: &Numbering,
    run: &mut Run<'_>,
) -> Result<(GraphSpec, Vec<FileSpec>), ImportError> {
    let (vertices, edges) = (graph.vertices() as u64, graph.edges());
    run.begin(Phase::Graph, Total::Items(vertices));
    let mut indptr = ArrayWriter::create(target, layout::indptr(name), NpyType::U64, &[vertices + 1])?;
    let mut indices = ArrayWriter::create(target, layout::indices(name), NpyType::U32, &[edges])?;
    let (mut end, mut list) = (0_u64, Vec::new());
    indptr.u64(end)?;
    for (id, &original) in numbering.original.iter().enumerate() {
        list.clear();
        list.extend(
            graph.sources(original as usize).iter().map(|&source| numbering.dataset[source as usize]),
        );
        list.sort_unstable();
        for &neighbour in &list {
            indices.u32(neighbour)?;
        }
        end += list.len() as u64;
        indptr.u64(end)?;
        if id % REPORT_VERTICES == 0 {
            run.advance(REPORT_VERTICES as u64)?;
        }
    }
    run.end(Phase::Graph);
    Ok((GraphSpec { name: name.clone(), edges }, vec![indptr.finish()?, indices.finish()?]))
}

/// Writes both id maps.
pub(crate) fn id_maps(target: &Target, numbering: &Numbering) -> Result<Vec<FileSpec>, ImportError> {
    let shape = [numbering.original.len() as u64];
    let mut original = ArrayWriter::create(target, layout::ORIGINAL_ID.to_owned(), NpyType::U64, &shape)?;
    numbering.original.iter().try_for_each(|&id| original.u64(u64::from(id)))?;
    let mut dataset = ArrayWriter::create(target, layout::DATASET_ID.to_owned(), NpyType::U32, &shape)?;
    numbering.dataset.iter().try_for_each(|&id| dataset.u32(id))?;
    Ok(vec![original.finish()?, dataset.finish()?])
}

/// Writes the labels in the order of dataset ids.
pub(crate) fn labels(
    target: &Target,
    labels: &[i64],
    numbering: &Numbering,
) -> Result<FileSpec, ImportError> {
    let shape = [labels.len() as u64];
    let mut out = ArrayWriter::create(target, layout::LABELS.to_owned(), NpyType::I64, &shape)?;
    numbering.original.iter().try_for_each(|&v| out.i64(labels[v as usize]))?;
    out.finish()
}

/// Writes the split as dataset ids.
pub(crate) fn split(
    target: &Target,
    split: &Split,
    numbering: &Numbering,
) -> Result<Vec<FileSpec>, ImportError> {
    let lists =
        [(SplitName::Train, &split.train), (SplitName::Valid, &split.valid), (SplitName::Test, &split.test)];
    let write = |(name, originals): (SplitName, &Vec<u32>)| {
        let ids = numbering.renumber(originals);
        let mut out = ArrayWriter::create(target, layout::split(name), NpyType::U32, &[ids.len() as u64])?;
        ids.iter().try_for_each(|&id| out.u32(id))?;
        out.finish()
    };
    lists.into_iter().map(write).collect()
}
