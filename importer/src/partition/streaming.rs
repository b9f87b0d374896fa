//! Linear deterministic greedy (Stanton and Kliot 2012), restreamed (Nishimura and Ugander 2013).
//!
//! A vertex goes to the part that holds most of its in-neighbours, weighed by the room left:
//! `|N(v) ∩ P| * (1 - |P| / capacity)`. The first pass sees only what came before; later passes know where every
//! neighbour went last time. It holds two bytes a vertex beside the graph, whatever the number of edges.

use crate::csc::Adjacency;
use crate::error::ImportError;
use crate::progress::Run;

/// Passes over the vertices.
pub(crate) const PASSES: u64 = 5;

/// A part may hold this much more than its fair share, in percent.
const SLACK_PERCENT: u64 = 3;

const NOWHERE: u16 = u16::MAX;
const CHUNK: usize = 1 << 16;

pub(crate) fn partition(graph: &Adjacency, parts: u32, run: &mut Run<'_>) -> Result<Vec<u16>, ImportError> {
    let vertices = graph.vertices();
    let mut greedy = Greedy::new(vertices, parts as usize);
    for _ in 0..PASSES {
        greedy.sizes.fill(0);
        greedy.placed = 0;
        for first in (0..vertices).step_by(CHUNK) {
            let end = vertices.min(first + CHUNK);
            (first..end).for_each(|v| greedy.place(v, graph.sources(v)));
            run.advance((end - first) as u64)?;
        }
    }
    Ok(greedy.part)
}

struct Greedy {
    part: Vec<u16>,
    /// Vertices placed in this pass.
    sizes: Vec<u64>,
    capacity: u64,
    /// In-neighbours of the current vertex by part, and the parts with any.
    held: Vec<u32>,
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
        for &neighbour in neighbours {
            let part = self.part[neighbour as usize];
            if part != NOWHERE && neighbour as usize != v {
                if self.held[part as usize] == 0 {
                    self.touched.push(part);
                }
                self.held[part as usize] += 1;
            }
        }
        // Scores in integers: exact, so the same everywhere.
        let mut best: Option<(u128, u64, u16)> = None;
        for &part in &self.touched {
            let size = self.sizes[part as usize];
            let room = self.capacity.saturating_sub(size);
            let score = u128::from(self.held[part as usize]) * u128::from(room);
            let better = best.is_none_or(|(s, z, p)| (score, z, p) > (s, size, part));
            if room > 0 && better {
                best = Some((score, size, part));
            }
            self.held[part as usize] = 0;
        }
        self.touched.clear();
        let home = self.part[v];
        let chosen = match best {
            Some((_, _, part)) => part,
            // Nothing pulls: stay where the last pass put it, if there is room, so that passes settle.
            None if home != NOWHERE && self.sizes[home as usize] < self.capacity => home,
            None => self.least_filled(),
        };
        self.part[v] = chosen;
        self.sizes[chosen as usize] += 1;
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
    use crate::progress::{Cancel, Silent};
    use proptest::prelude::*;

    fn run(graph: &Adjacency, parts: u32) -> Vec<u16> {
        partition(graph, parts, &mut Run::new(&mut Silent, Cancel::default())).unwrap()
    }

    /// `count` rings of `len` vertices, interleaved: vertex v is in ring v % count.
    fn rings(count: usize, len: usize) -> Adjacency {
        let vertices = count * len;
        let indices = (0..vertices).map(|v| ((v + count) % vertices) as u32).collect();
        Adjacency { indptr: (0..=vertices as u64).collect(), indices }
    }

    #[test]
    fn communities_stay_together() {
        let graph = rings(4, 100);
        let part = run(&graph, 4);
        let cut = edge_cut(&graph, &part);
        // Vertex by vertex, in turn, would cut every edge or none; at random, 300 of 400.
        assert!(cut < 60, "cut {cut} of 400");
    }

    #[test]
    fn more_parts_than_vertices_leave_some_empty() {
        let part = run(&rings(1, 3), 7);
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
