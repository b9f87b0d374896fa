//! Deterministic neighbor sampling.
//!
//! What is sampled for a vertex depends on (seed, epoch, minibatch, hop, vertex) and the graph alone, never on
//! threads or order: whoever knows the seed knows the future, and a predictor can sample what a trainer will.
//! As in PyG: each hop samples, without replacement, up to `fanout` in-neighbours of the vertices that the hop
//! before saw first; input vertices come in first-seen order, seeds first.

use crate::csc::Csc;
use crate::random::Key;
use rudder_topology::VertexId;
use std::ops::Range;

mod relations;
mod table;

pub use relations::Relation;
use table::FirstSeen;

/// A fanout that takes every neighbour.
pub const FANOUT_ALL: u32 = u32::MAX;

/// Which minibatch: what its randomness depends on. Minibatches of different trainers differ in their seeds
/// only, so a vertex sampled by two trainers in the same step has the same neighbours in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampleKey {
    /// The training run's seed.
    pub seed: u64,
    pub epoch: u64,
    /// Position of the minibatch within the epoch.
    pub minibatch: u64,
}

impl SampleKey {
    fn hop(self, hop: usize) -> Key {
        Key::new(self.seed).with(0xE90C).with(self.epoch).with(self.minibatch).with(hop as u64)
    }
}

/// Samples minibatches of one graph. Holds scratch that grows to the largest minibatch and is then reused.
#[derive(Debug)]
pub struct Sampler {
    fanouts: Vec<u32>,
    vertices: Vec<VertexId>,
    seen: FirstSeen,
    chosen: Chosen,
}

/// The sampled edges, in local numbers: positions in the list of input vertices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledEdges {
    /// Source (the neighbour) and target of each edge, hop by hop.
    pub sources: Vec<u32>,
    pub targets: Vec<u32>,
    /// Where each edge stands in the CSC's `indices`.
    pub positions: Vec<u64>,
    /// `hop_offsets[h] .. hop_offsets[h + 1]` are the edges of hop h.
    pub hop_offsets: Vec<usize>,
}

impl SampledEdges {
    fn clear(&mut self) {
        self.sources.clear();
        self.targets.clear();
        self.positions.clear();
        self.hop_offsets.clear();
    }
}

impl Sampler {
    /// `fanouts[h]`: neighbours of a vertex in hop h at most, seeds' neighbours first; [`FANOUT_ALL`] for all.
    #[must_use]
    pub fn new(fanouts: Vec<u32>) -> Self {
        Sampler { fanouts, vertices: Vec::new(), seen: FirstSeen::default(), chosen: Chosen::default() }
    }

    #[must_use]
    pub fn fanouts(&self) -> &[u32] {
        &self.fanouts
    }

    /// The distinct input vertices of a minibatch, seeds first, in first-seen order.
    pub fn sample(&mut self, csc: Csc<'_>, key: SampleKey, seeds: &[VertexId]) -> &[VertexId] {
        self.run(csc, key, seeds, &mut ());
        &self.vertices
    }

    /// As [`Sampler::sample`], with the edges.
    pub fn sample_edges(
        &mut self,
        csc: Csc<'_>,
        key: SampleKey,
        seeds: &[VertexId],
        edges: &mut SampledEdges,
    ) -> &[VertexId] {
        edges.clear();
        self.run(csc, key, seeds, edges);
        edges.end_hop();
        &self.vertices
    }

    fn run(&mut self, csc: Csc<'_>, key: SampleKey, seeds: &[VertexId], edges: &mut impl EdgeSink) {
        self.begin(seeds);
        let mut frontier = 0..self.vertices.len();
        for hop in 0..self.fanouts.len() {
            edges.end_hop();
            self.hop(csc, key.hop(hop), self.fanouts[hop], frontier.clone(), edges);
            frontier = frontier.end..self.vertices.len();
        }
    }

    /// Takes the seeds in, each once.
    fn begin(&mut self, seeds: &[VertexId]) {
        self.seen.clear(&self.vertices);
        self.vertices.clear();
        for &seed in seeds {
            self.seen.local(seed, &mut self.vertices);
        }
    }

    /// Samples neighbours of the vertices at `frontier`, in first-seen order.
    fn hop(
        &mut self,
        csc: Csc<'_>,
        hop_key: Key,
        fanout: u32,
        frontier: Range<usize>,
        edges: &mut impl EdgeSink,
    ) {
        for target in frontier {
            let vertex = self.vertices[target];
            let neighbours = csc.in_neighbours(vertex);
            let first = csc.first_edge(vertex);
            let (seen, vertices) = (&mut self.seen, &mut self.vertices);
            let mut take = |at: usize| {
                let source = seen.local(VertexId(neighbours[at]), vertices);
                edges.edge(source, target as u32, first + at as u64);
            };
            if neighbours.len() <= fanout as usize {
                (0..neighbours.len()).for_each(take);
            } else {
                let draws = hop_key.with(u64::from(vertex.0));
                let chosen = self.chosen.choose(draws, neighbours.len(), fanout as usize);
                chosen.iter().for_each(|&at| take(at));
            }
        }
    }
}

/// Where edges go: nowhere, or to a list.
trait EdgeSink {
    fn end_hop(&mut self);
    fn edge(&mut self, source: u32, target: u32, position: u64);
}

impl EdgeSink for () {
    fn end_hop(&mut self) {}
    fn edge(&mut self, _: u32, _: u32, _: u64) {}
}

impl EdgeSink for SampledEdges {
    fn end_hop(&mut self) {
        self.hop_offsets.push(self.sources.len());
    }

    fn edge(&mut self, source: u32, target: u32, position: u64) {
        self.sources.push(source);
        self.targets.push(target);
        self.positions.push(position);
    }
}

/// Distinct positions, chosen by Floyd's algorithm ("A sample of brilliance", Bentley and Floyd 1987): each
/// subset is equally likely, with one draw a position whatever the degree.
#[derive(Debug, Default)]
struct Chosen {
    positions: Vec<usize>,
    sorted: std::collections::BTreeSet<usize>,
}

/// Up to this many positions a scan of the list is quicker than a search tree.
const SCAN_MAX: usize = 48;

impl Chosen {
    /// `count` of `0..len`, where `count < len`.
    fn choose(&mut self, draws: Key, len: usize, count: usize) -> &[usize] {
        self.positions.clear();
        self.sorted.clear();
        for last in len - count..len {
            let drawn = draws.below(last as u64, last as u64 + 1) as usize;
            let taken = if count <= SCAN_MAX {
                self.positions.contains(&drawn)
            } else {
                !self.sorted.insert(drawn) && self.sorted.insert(last)
            };
            self.positions.push(if taken { last } else { drawn });
        }
        &self.positions
    }
}

#[cfg(test)]
pub(crate) mod tests;
