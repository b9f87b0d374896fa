//! For graphs that METIS has no memory or no numbers for: clusters first, then linear deterministic greedy (LDG).
//!
//! Clusters (see [`super::cluster`]) are dealt to parts, the biggest first, then every vertex is placed again,
//! restreamed: it goes to the part that holds most of its neighbours, weighed by the room left,
//! `|N(v) ∩ P| * (1 - |P| / capacity)` (Stanton and Kliot 2012; restreaming: Nishimura and Ugander 2013). Beside the
//! graph without directions it holds some 26 bytes a vertex, whatever the number of edges.

use crate::csc::Adjacency;
use crate::error::ImportError;
use crate::partition::cluster;
use crate::progress::Run;

/// Passes over the vertices, after the clusters.
pub(crate) const PASSES: u64 = 10;

/// A part may hold this much more than its fair share, in percent.
const SLACK_PERCENT: u64 = 3;

const NOWHERE: u16 = u16::MAX;
const CHUNK: usize = 1 << 16;

/// Cuts a symmetric graph without self loops and repeats.
pub(crate) fn partition(simple: &Adjacency, parts: u32, run: &mut Run<'_>) -> Result<Vec<u16>, ImportError> {
    let vertices = simple.vertices();
    let mut greedy = Greedy::new(vertices, parts as usize);
    let clusters = cluster::find(simple, (vertices / (CLUSTERS_PER_PART * parts as usize)).max(1), run)?;
    for members in clusters.biggest_first() {
        greedy.place_cluster(simple, members);
    }
    drop(clusters);
    for _ in 0..PASSES {
        greedy.sizes.fill(0);
        greedy.placed = 0;
        for first in (0..vertices).step_by(CHUNK) {
            let end = vertices.min(first + CHUNK);
            (first..end).for_each(|v| greedy.place(v, simple.sources(v)));
            run.advance((end - first) as u64)?;
        }
    }
    Ok(greedy.part)
}

/// Clusters grow to this share of a part at most, so that they can be dealt evenly.
const CLUSTERS_PER_PART: usize = 8;

struct Greedy {
    part: Vec<u16>,
    /// Vertices placed in this pass.
    sizes: Vec<u64>,
    capacity: u64,
    /// Neighbours of the current vertex or cluster by part, and the parts with any.
    held: Vec<u64>,
    touched: Vec<u16>,
    placed: u64,
    /// Where to look for a part with room: parts of equal size are taken in turn.
    next: usize,
}

impl Greedy {
    fn new(vertices: usize, parts: usize) -> Self {
        let fair = vertices as u64 * (100 + SLACK_PERCENT);
        Greedy {
            part: vec![NOWHERE; vertices],
            sizes: vec![0; parts],
            capacity: fair.div_ceil(100 * parts as u64).max(1),
            held: vec![0; parts],
            touched: Vec::new(),
            placed: 0,
            next: 0,
        }
    }

    fn place(&mut self, v: usize, neighbours: &[u32]) {
        self.count(neighbours);
        let home = self.part[v];
        let chosen = match self.pulled_to(1) {
            Some(part) => part,
            // Nothing pulls: stay where the last pass put it, if there is room, so that passes settle.
            None if home != NOWHERE && self.sizes[home as usize] < self.capacity => home,
            None => self.least_filled(),
        };
        self.put(v, chosen);
    }

    /// Places a cluster whole where it fits; else its vertices are left to the passes.
    fn place_cluster(&mut self, simple: &Adjacency, members: &[u32]) {
        members.iter().for_each(|&v| self.count(simple.sources(v as usize)));
        let size = members.len() as u64;
        let chosen = self.pulled_to(size).unwrap_or_else(|| self.least_filled());
        if self.sizes[chosen as usize] + size <= self.capacity {
            members.iter().for_each(|&v| self.put(v as usize, chosen));
        }
    }

    fn count(&mut self, neighbours: &[u32]) {
        for &neighbour in neighbours {
            let part = self.part[neighbour as usize];
            if part != NOWHERE {
                if self.held[part as usize] == 0 {
                    self.touched.push(part);
                }
                self.held[part as usize] += 1;
            }
        }
    }

    /// The part that pulls most of those with room for `size` vertices. Scores are integers: the same everywhere.
    fn pulled_to(&mut self, size: u64) -> Option<u16> {
        let mut best: Option<(u128, u64, u16)> = None;
        for &part in &self.touched {
            let filled = self.sizes[part as usize];
            let room = self.capacity.saturating_sub(filled);
            let score = u128::from(self.held[part as usize]) * u128::from(room);
            let better = best.is_none_or(|(s, f, p)| {
                (s, std::cmp::Reverse((f, p))) < (score, std::cmp::Reverse((filled, part)))
            });
            if room >= size && better {
                best = Some((score, filled, part));
            }
            self.held[part as usize] = 0;
        }
        self.touched.clear();
        best.map(|(_, _, part)| part)
    }

    fn put(&mut self, v: usize, part: u16) {
        self.part[v] = part;
        self.sizes[part as usize] += 1;
        self.placed += 1;
    }

    /// A part that is not fuller than the mean, looked for from where the last one was found. There always is one.
    fn least_filled(&mut self) -> u16 {
        let parts = self.sizes.len();
        let mean = self.placed / parts as u64;
        let part = (0..parts).map(|step| (self.next + step) % parts).find(|&part| self.sizes[part] <= mean);
        let part = part.unwrap_or(self.next);
        self.next = (part + 1) % parts;
        part as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::edge_cut;
    use crate::partition::undirected::simple;
    use crate::progress::{Cancel, Silent};
    use proptest::prelude::*;

    fn run(graph: &Adjacency, parts: u32) -> Vec<u16> {
        partition(&simple(graph).unwrap(), parts, &mut Run::new(&mut Silent, Cancel::default())).unwrap()
    }

    /// `count` communities of `len` vertices, interleaved (vertex v is in community v % count). Each vertex has
    /// `inside` edges to its own and `outside` to any.
    fn communities(count: u32, len: u32, inside: u32, outside: u32) -> Adjacency {
        let vertices = count * len;
        let key = rudder_graph::random::Key::new(3);
        let list = |v: u32| {
            let draw = key.with(u64::from(v));
            let own =
                (0..inside).map(move |i| draw.below(u64::from(i), u64::from(len)) as u32 * count + v % count);
            let any = (0..outside).map(move |i| draw.below(u64::from(100 + i), u64::from(vertices)) as u32);
            own.chain(any)
        };
        let indices = (0..vertices).flat_map(list).collect();
        let indptr = (0..=u64::from(vertices)).map(|v| v * u64::from(inside + outside)).collect();
        Adjacency { indptr, indices }
    }

    #[test]
    fn communities_stay_together() {
        let graph = communities(32, 50, 8, 2);
        let part = run(&graph, 4);
        let cut = edge_cut(&graph, &part);
        // The communities cut 3 of 4 outside edges, 15 % of all 16,000; at random, 75 %.
        assert!(cut < 4_000, "cut {cut} of 16000");
    }

    #[test]
    fn more_parts_than_vertices_leave_some_empty() {
        let part = run(&communities(1, 3, 1, 0), 7);
        assert!(part.iter().all(|&p| p < 7));
    }

    proptest! {
        #[test]
        fn parts_are_balanced_and_repeatable(
            edges in prop::collection::vec((0_u32..300, 0_u32..300), 0..900), parts in 1_u32..9,
        ) {
            let mut lists = vec![Vec::new(); 300];
            edges.iter().for_each(|&(s, d)| lists[d as usize].push(s));
            let mut indptr = vec![0];
            lists.iter().for_each(|list| indptr.push(indptr.last().unwrap() + list.len() as u64));
            let graph = Adjacency { indptr, indices: lists.concat() };
            let part = run(&graph, parts);
            prop_assert_eq!(&part, &run(&graph, parts));
            let capacity = (300 * (100 + SLACK_PERCENT)).div_ceil(100 * u64::from(parts));
            for p in 0..parts {
                let size = part.iter().filter(|&&x| u32::from(x) == p).count() as u64;
                prop_assert!(size <= capacity, "part {} has {} of at most {}", p, size, capacity);
            }
        }
    }
}
