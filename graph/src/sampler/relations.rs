//! Sampling where edges are of several types. Vertices of all types share one space of ids, so a vertex has
//! in-neighbours only in the graphs of edges that lead to its type, and nothing here needs to know of types.

use super::{EdgeSink, SampleKey, SampledEdges, Sampler};
use crate::csc::Csc;
use rudder_topology::VertexId;

/// The edges of one type.
#[derive(Clone, Copy, Debug)]
pub struct Relation<'a> {
    pub csc: Csc<'a>,
    /// As those of a [`Sampler`]; hops beyond their number take no edge of this type.
    pub fanouts: &'a [u32],
}

impl Sampler {
    /// As [`Sampler::sample_edges`], with the fan-outs of each relation in place of the sampler's own: each hop samples
    /// the relations in their order. `edges` has a list for each relation. Returns the distinct vertices, seeds first,
    /// in first-seen order, and how many of them were seen by the end of each hop, the seeds before all hops.
    ///
    /// # Panics
    /// If `edges` are not as many as the relations.
    pub fn sample_relations(
        &mut self,
        relations: &[Relation<'_>],
        key: SampleKey,
        seeds: &[VertexId],
        edges: &mut [SampledEdges],
    ) -> (&[VertexId], Vec<usize>) {
        assert_eq!(relations.len(), edges.len(), "a list of edges a relation");
        edges.iter_mut().for_each(SampledEdges::clear);
        self.begin(seeds);
        let mut seen = vec![self.vertices.len()];
        let mut frontier = 0..self.vertices.len();
        for hop in 0..relations.iter().map(|relation| relation.fanouts.len()).max().unwrap_or(0) {
            for (number, (relation, edges)) in relations.iter().zip(edges.iter_mut()).enumerate() {
                edges.end_hop();
                let fanout = relation.fanouts.get(hop).copied().unwrap_or(0);
                let hop_key = key.hop(hop).with(number as u64);
                self.hop(relation.csc, hop_key, fanout, frontier.clone(), edges);
            }
            frontier = frontier.end..self.vertices.len();
            seen.push(frontier.end);
        }
        edges.iter_mut().for_each(SampledEdges::end_hop);
        (&self.vertices, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::FANOUT_ALL;
    use super::super::tests::graph;
    use super::*;

    const KEY: SampleKey = SampleKey { seed: 3, epoch: 1, minibatch: 2 };

    /// Vertices 0 to 2 are papers, 3 and 4 are authors.
    const CITES: ([u64; 6], [u32; 3]) = ([0, 2, 3, 3, 3, 3], [1, 2, 0]);
    const WRITES: ([u64; 6], [u32; 3]) = ([0, 1, 1, 3, 3, 3], [3, 3, 4]);

    #[test]
    fn each_hop_samples_every_relation() {
        let relations = [&CITES, &WRITES].map(|(indptr, indices)| Relation {
            csc: Csc::new(indptr, indices).unwrap(),
            fanouts: &[FANOUT_ALL, FANOUT_ALL],
        });
        let mut edges = [SampledEdges::default(), SampledEdges::default()];
        let mut sampler = Sampler::new(vec![]);
        let (vertices, seen) = sampler.sample_relations(&relations, KEY, &[VertexId(0)], &mut edges);
        assert_eq!(vertices, [0, 1, 2, 3, 4].map(VertexId));
        assert_eq!(seen, [1, 4, 5]);
        // 0 from 1 and 2, then 1 from 0; 0 from 3, then 2 from 3 and 4.
        assert_eq!((&edges[0].sources[..], &edges[0].targets[..]), (&[1, 2, 0][..], &[0, 0, 1][..]));
        assert_eq!((&edges[1].sources[..], &edges[1].targets[..]), (&[3, 3, 4][..], &[0, 2, 2][..]));
        assert_eq!((&edges[0].hop_offsets[..], &edges[1].hop_offsets[..]), (&[0, 2, 3][..], &[0, 1, 3][..]));
        assert_eq!(edges[1].positions, [0, 1, 2]);
    }

    #[test]
    fn fanouts_bound_each_relation() {
        let graph = graph(500, 6000, 4);
        let (all, few): (&[u32], &[u32]) = (&[2, 3], &[4]);
        let relations = [all, few].map(|fanouts| Relation { csc: graph.csc(), fanouts });
        let seeds: Vec<_> = (0..20).map(VertexId).collect();
        let mut sampler = Sampler::new(vec![]);
        let mut sample = || {
            let mut edges = [SampledEdges::default(), SampledEdges::default()];
            let found = sampler.sample_relations(&relations, KEY, &seeds, &mut edges);
            (found.0.to_vec(), found.1, edges)
        };
        let (vertices, seen, edges) = sample();
        assert_eq!((vertices.clone(), seen.clone(), edges.clone()), sample());
        for (relation, edges) in relations.iter().zip(&edges) {
            for hop in 0..2 {
                let range = edges.hop_offsets[hop]..edges.hop_offsets[hop + 1];
                let fanout = relation.fanouts.get(hop).copied().unwrap_or(0) as usize;
                let frontier = if hop == 0 { 0..seen[0] } else { seen[0]..seen[1] };
                for target in frontier {
                    let degree = relation.csc.in_degree(vertices[target]);
                    let of_target = edges.targets[range.clone()].iter().filter(|&&t| t as usize == target);
                    assert_eq!(of_target.count(), degree.min(fanout));
                }
            }
            for (at, &position) in edges.positions.iter().enumerate() {
                let (source, target) = (edges.sources[at] as usize, edges.targets[at] as usize);
                let (first, neighbours) =
                    (relation.csc.first_edge(vertices[target]), relation.csc.in_neighbours(vertices[target]));
                assert_eq!(vertices[source].0, neighbours[(position - first) as usize]);
            }
        }
    }
}
