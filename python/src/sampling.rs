//! The deterministic sampler over arrays of Python's.

use crate::buffer::{Input, Int64s};
use crate::error::raise;
use pyo3::prelude::*;
use rudder_graph::csc::Csc;
use rudder_graph::sampler::{FANOUT_ALL, Relation, SampleKey, SampledEdges, Sampler};
use rudder_graph::seeds::{Deal, EpochSeeds};
use rudder_graph::trace::TraceDigest;
use rudder_topology::{MinibatchId, TableId, VertexId};
use std::sync::{Mutex, PoisonError};

/// Samples neighbours of one graph; equal arguments give equal samples, whatever the process or thread.
#[pyclass(frozen, module = "rudder._native")]
pub(crate) struct GraphSampler {
    indptr: Input<u64>,
    indices: Input<u32>,
    scratch: Mutex<(Sampler, SampledEdges)>,
}

/// Vertices, sources, targets, positions of the edges, and vertices and edges of each hop.
type Sampled = (Int64s, Int64s, Int64s, Int64s, Vec<usize>, Vec<usize>);

#[pymethods]
impl GraphSampler {
    /// `indptr` (u64) and `indices` (u32) are CSC arrays that nobody changes meanwhile; a negative fanout takes all.
    #[new]
    fn new(indptr: &Bound<'_, PyAny>, indices: &Bound<'_, PyAny>, fanouts: Vec<i64>) -> PyResult<Self> {
        let py = indptr.py();
        let (indptr, indices) = (Input::new(indptr, "indptr")?, Input::new(indices, "indices")?);
        Csc::with_ends_checked(indptr.slice(), indices.slice())
            .map_err(|error| raise(py, "ArgumentError", &error.to_string()))?;
        let sampler = Sampler::new(fanouts.into_iter().map(fanout).collect());
        Ok(GraphSampler { indptr, indices, scratch: Mutex::new((sampler, SampledEdges::default())) })
    }

    /// Samples a minibatch. Returns vertices (seeds first), sources, targets and positions of the edges, and the
    /// numbers of new vertices and of edges hop by hop.
    fn sample(
        &self,
        py: Python<'_>,
        seed: u64,
        epoch: u64,
        minibatch: u64,
        seeds: &Bound<'_, PyAny>,
    ) -> PyResult<Sampled> {
        let key = SampleKey { seed, epoch, minibatch };
        sampled(py, seeds, |seeds| self.run(key, seeds))
    }

    /// Where the arrays lie, so that a test can tell that nothing was copied.
    fn addresses(&self) -> (usize, usize) {
        (self.indptr.address(), self.indices.address())
    }
}

impl GraphSampler {
    fn run(&self, key: SampleKey, seeds: &[i64]) -> Result<Sampled, String> {
        let csc = Csc::with_ends_checked(self.indptr.slice(), self.indices.slice())
            .map_err(|error| error.to_string())?;
        let seeds = vertices(seeds, csc.vertices())?;
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let (sampler, edges) = &mut *scratch;
        let hops = sampler.fanouts().len();
        let found = sampler.sample_edges(csc, key, &seeds, edges);
        let mut distinct = seeds;
        distinct.sort_unstable();
        distinct.dedup();
        // Vertices stand in first-seen order: the highest source of a hop tells how many were seen by its end.
        let (mut of_hop, mut before) = (vec![distinct.len()], distinct.len());
        for hop in 0..hops {
            let sources = &edges.sources[edges.hop_offsets[hop]..edges.hop_offsets[hop + 1]];
            let seen = sources.iter().max().map_or(0, |&last| last as usize + 1).max(before);
            of_hop.push(seen - before);
            before = seen;
        }
        let vertices = Int64s::new(found.iter().map(|vertex| i64::from(vertex.0)).collect());
        let (sources, targets, positions, edges_of_hop) = lent(edges);
        Ok((vertices, sources, targets, positions, of_hop, edges_of_hop))
    }
}

/// Sources, targets and positions of edges, and how many there are of each hop.
type Edges = (Int64s, Int64s, Int64s, Vec<usize>);

fn lent(edges: &SampledEdges) -> Edges {
    let wide = |values: &[u32]| Int64s::new(values.iter().map(|&value| i64::from(value)).collect());
    let positions = Int64s::new(edges.positions.iter().map(|&position| position as i64).collect());
    let of_hop = edges.hop_offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    (wide(&edges.sources), wide(&edges.targets), positions, of_hop)
}

/// A fan-out as Python's loaders say it.
fn fanout(fanout: i64) -> u32 {
    if fanout < 0 { FANOUT_ALL } else { u32::try_from(fanout).unwrap_or(FANOUT_ALL) }
}

/// The arrays of one relation, and its fan-outs.
type Arrays = (Input<u64>, Input<u32>, Vec<u32>);

/// Samples neighbours over several types of edges, whose vertices share one space of ids.
#[pyclass(frozen, module = "rudder._native")]
pub(crate) struct RelationSampler {
    relations: Vec<Arrays>,
    scratch: Mutex<(Sampler, Vec<SampledEdges>)>,
}

#[pymethods]
impl RelationSampler {
    /// For each relation `indptr`, `indices` and fan-outs, as `GraphSampler` takes them.
    #[new]
    fn new(relations: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>, Vec<i64>)>) -> PyResult<Self> {
        let relation = |(indptr, indices, fanouts): (Bound<'_, PyAny>, Bound<'_, PyAny>, Vec<i64>)| {
            let py = indptr.py();
            let (indptr, indices) = (Input::new(&indptr, "indptr")?, Input::new(&indices, "indices")?);
            Csc::with_ends_checked(indptr.slice(), indices.slice())
                .map_err(|error| raise(py, "ArgumentError", &error.to_string()))?;
            Ok((indptr, indices, fanouts.into_iter().map(fanout).collect()))
        };
        let relations: Vec<Arrays> = relations.into_iter().map(relation).collect::<PyResult<_>>()?;
        let edges = vec![SampledEdges::default(); relations.len()];
        Ok(RelationSampler { relations, scratch: Mutex::new((Sampler::new(vec![]), edges)) })
    }

    /// Samples a minibatch. Returns vertices (seeds first), how many were seen by the end of each hop (the seeds before
    /// all hops), and for each relation sources, targets and positions of its edges, and how many there are of each hop.
    fn sample(
        &self,
        py: Python<'_>,
        seed: u64,
        epoch: u64,
        minibatch: u64,
        seeds: &Bound<'_, PyAny>,
    ) -> PyResult<(Int64s, Vec<usize>, Vec<Edges>)> {
        let key = SampleKey { seed, epoch, minibatch };
        sampled(py, seeds, |seeds| self.run(key, seeds))
    }
}

impl RelationSampler {
    fn run(&self, key: SampleKey, seeds: &[i64]) -> Result<(Int64s, Vec<usize>, Vec<Edges>), String> {
        let mut relations = Vec::with_capacity(self.relations.len());
        for (indptr, indices, fanouts) in &self.relations {
            let csc =
                Csc::with_ends_checked(indptr.slice(), indices.slice()).map_err(|error| error.to_string())?;
            relations.push(Relation { csc, fanouts });
        }
        let limit = relations.iter().map(|relation| relation.csc.vertices()).min().unwrap_or(0);
        let seeds = vertices(seeds, limit)?;
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let (sampler, edges) = &mut *scratch;
        let (found, seen) = sampler.sample_relations(&relations, key, &seeds, edges);
        let found = Int64s::new(found.iter().map(|vertex| i64::from(vertex.0)).collect());
        Ok((found, seen, edges.iter().map(lent).collect()))
    }
}

/// Samples without the interpreter's lock.
fn sampled<T: Send>(
    py: Python<'_>,
    seeds: &Bound<'_, PyAny>,
    sample: impl FnOnce(&[i64]) -> Result<T, String> + Send,
) -> PyResult<T> {
    let seeds = Input::<i64>::new(seeds, "the seeds")?;
    py.detach(|| sample(seeds.slice())).map_err(|message| raise(py, "RowError", &message))
}

fn vertices(ids: &[i64], vertices: u64) -> Result<Vec<VertexId>, String> {
    let vertex = |(at, &id): (usize, &i64)| match u32::try_from(id) {
        Ok(vertex) if u64::from(vertex) < vertices => Ok(VertexId(vertex)),
        _ => Err(format!("vertex {id} at position {at}: the graph has {vertices}")),
    };
    ids.iter().enumerate().map(vertex).collect()
}

/// One trainer's seeds of an epoch, as the reference trainer deals them.
#[pyclass(frozen, module = "rudder._native")]
pub(crate) struct Seeds {
    seeds: EpochSeeds,
}

#[pymethods]
impl Seeds {
    #[new]
    fn new(
        train_ids: &Bound<'_, PyAny>,
        seed: u64,
        epoch: u64,
        batch: usize,
        rank: usize,
        world: usize,
    ) -> PyResult<Self> {
        let py = train_ids.py();
        let ids = Input::<i64>::new(train_ids, "the training vertices")?;
        let ids =
            vertices(ids.slice(), u64::from(u32::MAX)).map_err(|message| raise(py, "RowError", &message))?;
        Ok(Seeds { seeds: EpochSeeds::new(Deal { seed, epoch, batch, rank, world }, &ids) })
    }

    fn __len__(&self) -> usize {
        self.seeds.minibatches() as usize
    }

    /// Seeds of a minibatch; empty beyond the epoch.
    fn minibatch(&self, minibatch: u64) -> Int64s {
        Int64s::new(self.seeds.minibatch(minibatch).iter().map(|vertex| i64::from(vertex.0)).collect())
    }
}

/// A digest of what was asked for: equal digests mean the same rows of the same tables in the same order.
#[pyclass(module = "rudder._native")]
pub(crate) struct RequestDigest {
    digest: TraceDigest,
}

#[pymethods]
impl RequestDigest {
    #[new]
    fn new() -> Self {
        RequestDigest { digest: TraceDigest::default() }
    }

    /// Adds the rows (i64) that a minibatch asks of a table.
    fn request(&mut self, minibatch: u64, table: u16, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = Input::<i64>::new(rows, "the rows")?;
        let rows: Vec<u64> = rows.slice().iter().map(|&row| row as u64).collect();
        self.digest.request(MinibatchId(minibatch), TableId(table), &rows);
        Ok(())
    }

    fn hex(&self) -> String {
        self.digest.hex()
    }
}
