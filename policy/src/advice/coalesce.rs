//! Edges that come close together become one consult; while one is out, later ones wait for the next.

use super::trigger::Edge;

/// Edges kept for one consult. More say no more.
const EDGES_MAX: usize = 16;

/// Collects edges.
#[derive(Clone, Debug)]
pub struct Coalescer {
    window_ns: u64,
    edges: Vec<Edge>,
    due_ns: Option<u64>,
    /// A consult is out.
    busy: bool,
}

impl Coalescer {
    #[must_use]
    pub fn new(window_ns: u64) -> Self {
        Coalescer { window_ns, edges: vec![], due_ns: None, busy: false }
    }

    /// Takes edges in.
    pub fn add(&mut self, edges: Vec<Edge>, now_ns: u64) {
        if edges.is_empty() {
            return;
        }
        self.due_ns.get_or_insert(now_ns.saturating_add(self.window_ns));
        for edge in edges {
            match self.edges.iter().position(|known| known.signal == edge.signal) {
                Some(at) => self.edges[at] = edge,
                None if self.edges.len() < EDGES_MAX => self.edges.push(edge),
                None => {}
            }
        }
    }

    /// When [`Coalescer::take`] may next give something.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        if self.busy { None } else { self.due_ns }
    }

    /// The edges to consult about, once their window is over and no other consult is out.
    pub fn take(&mut self, now_ns: u64) -> Option<Vec<Edge>> {
        if self.due_ns().is_none_or(|due| due > now_ns) {
            return None;
        }
        self.busy = true;
        self.due_ns = None;
        Some(std::mem::take(&mut self.edges))
    }

    /// The consult that was out has ended, however.
    pub fn ended(&mut self) {
        self.busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::trigger::Signal;
    use rudder_topology::NodeId;

    fn edge(node: u16) -> Edge {
        Edge { signal: Signal::Wait(NodeId(node)), value: 0.5, usual: None }
    }

    #[test]
    fn what_comes_within_the_window_is_one_consult() {
        let mut coalescer = Coalescer::new(100);
        coalescer.add(vec![edge(0)], 10);
        coalescer.add(vec![edge(1), edge(0)], 60);
        assert_eq!((coalescer.take(109), coalescer.due_ns()), (None, Some(110)));
        assert_eq!(coalescer.take(110).map(|edges| edges.len()), Some(2));
        coalescer.add(vec![edge(2)], 120);
        assert_eq!(coalescer.take(1000), None, "one consult at a time");
        coalescer.ended();
        assert_eq!(coalescer.take(1000), Some(vec![edge(2)]));
        coalescer.ended();
        assert_eq!(coalescer.take(u64::MAX), None);
    }

    #[test]
    fn a_thousand_nodes_are_one_bounded_consult() {
        let mut coalescer = Coalescer::new(100);
        (0..1000).for_each(|node| coalescer.add(vec![edge(node)], 0));
        assert_eq!(coalescer.take(100).map(|edges| edges.len()), Some(EDGES_MAX));
    }
}
