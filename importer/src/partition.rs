//! Cutting the graph into parts.

pub(crate) mod cluster;
pub(crate) mod multilevel;
pub(crate) mod streaming;
pub(crate) mod undirected;

use crate::csc::Adjacency;
use crate::error::ImportError;
use crate::options::Partitioner;
use crate::progress::{Phase, Run, Total};

/// Which part each vertex went to, by original id, and who decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub part: Vec<u16>,
    pub parts: u32,
    pub method: &'static str,
}

/// Cuts the graph into `parts`. `limit` is the most bytes the whole process should hold while doing so.
pub(crate) fn partition(
    graph: &Adjacency,
    parts: u32,
    partitioner: Partitioner,
    seed: u64,
    limit: u64,
    run: &mut Run<'_>,
) -> Result<Partition, ImportError> {
    if parts == 1 {
        return Ok(Partition { part: vec![0; graph.vertices()], parts, method: "one part" });
    }
    let simple = undirected::simple(graph)?;
    let multilevel = match partitioner {
        Partitioner::Metis => true,
        Partitioner::Streaming => false,
        Partitioner::Auto => multilevel::fits(&simple, parts, limit.saturating_sub(graph.bytes())),
    };
    let (part, method) = if multilevel {
        run.begin(Phase::Partition, Total::Open);
        (multilevel::partition(simple, parts, seed, run)?, "METIS")
    } else {
        let passes = streaming::PASSES + cluster::PASSES;
        run.begin(Phase::Partition, Total::Items(passes * graph.vertices() as u64));
        (streaming::partition(&simple, parts, run)?, "streaming (clusters, then LDG)")
    };
    run.end(Phase::Partition);
    Ok(Partition { part, parts, method })
}

/// Edges whose ends lie in different parts.
pub(crate) fn edge_cut(graph: &Adjacency, part: &[u16]) -> u64 {
    (0..graph.vertices())
        .map(|v| graph.sources(v).iter().filter(|&&source| part[source as usize] != part[v]).count() as u64)
        .sum()
}
