//! Edges that come close together become one consult; while one is out, later ones wait for the next. Where more jobs
//! wait than one consult can be about, they take turns.

use super::rotation::Rotation;
use super::state::ClusterState;
use super::trigger::{Edge, Signal};
use rudder_topology::{JobId, NodeId};

/// Edges of one consult. More say no more.
const EDGES_MAX: usize = 16;
/// Jobs that one consult is about.
const JOBS_MAX: usize = 4;

/// Collects edges.
#[derive(Clone, Debug)]
pub struct Coalescer {
    window_ns: u64,
    /// With the job that each concerns; one a signal.
    edges: Vec<(Option<JobId>, Edge)>,
    rotation: Rotation,
    due_ns: Option<u64>,
    /// A consult is out.
    busy: bool,
}

impl Coalescer {
    #[must_use]
    pub fn new(window_ns: u64) -> Self {
        Coalescer { window_ns, edges: vec![], rotation: Rotation::default(), due_ns: None, busy: false }
    }

    /// Takes in the edges of a state.
    pub fn add(&mut self, edges: Vec<Edge>, state: &ClusterState) {
        if edges.is_empty() {
            return;
        }
        self.due_ns.get_or_insert(state.at_ns.saturating_add(self.window_ns));
        for edge in edges {
            let job = job_of(edge.signal, state);
            match self.edges.iter().position(|(_, known)| known.signal == edge.signal) {
                Some(at) => self.edges[at] = (job, edge),
                None if self.edges.iter().filter(|(of, _)| *of == job).count() < EDGES_MAX => {
                    self.edges.push((job, edge));
                }
                None => {}
            }
            self.rotation.wait(job);
        }
    }

    /// When [`Coalescer::take`] may next give something.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        if self.busy { None } else { self.due_ns }
    }

    /// The edges to consult about, once their window is over and no other consult is out: those of the jobs whose turn
    /// it is, dealt one by one. Those of others stay due.
    pub fn take(&mut self, now_ns: u64) -> Option<Vec<Edge>> {
        if self.due_ns().is_none_or(|due| due > now_ns) {
            return None;
        }
        self.busy = true;
        let jobs = self.rotation.take(JOBS_MAX);
        let (taken, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.edges).into_iter().partition(|(job, _)| jobs.contains(job));
        self.edges = left;
        self.due_ns = (!self.rotation.is_empty()).then_some(now_ns);
        let of = |job: Option<JobId>| taken.iter().filter(move |(of, _)| *of == job).map(|(_, edge)| *edge);
        let mut hands: Vec<_> = jobs.iter().map(|&job| of(job)).collect();
        let mut dealt = vec![];
        while dealt.len() < EDGES_MAX {
            let round: Vec<_> = hands.iter_mut().filter_map(Iterator::next).collect();
            if round.is_empty() {
                break;
            }
            dealt.extend(round);
        }
        dealt.truncate(EDGES_MAX);
        Some(dealt)
    }

    /// The consult that was out has ended, however.
    pub fn ended(&mut self) {
        self.busy = false;
    }
}

/// The compute node that a signal is about; `None` for one of the whole cluster.
#[must_use]
pub fn node_of(signal: Signal) -> Option<NodeId> {
    match signal {
        Signal::Wait(node)
        | Signal::Stretched(node)
        | Signal::GpuIdle(node)
        | Signal::Miss(node)
        | Signal::Drift(node) => Some(node),
        Signal::Link { compute, .. } | Signal::Slowed { compute, .. } => Some(compute),
        Signal::Imbalance => None,
    }
}

/// Of the jobs on a signal's node, the one that waits most.
fn job_of(signal: Signal, state: &ClusterState) -> Option<JobId> {
    let compute = state.compute_node(node_of(signal)?)?;
    let most =
        compute.jobs.iter().max_by(|a, b| a.wait_share.total_cmp(&b.wait_share).then(b.job.cmp(&a.job)));
    most.map(|job| job.job)
}

/// The nodes that a consult has to be about, so that each job whose turn it is gets its part of it: for each its first
/// node. Empty where there is one job only, which needs no part of its own.
#[must_use]
pub fn focus(edges: &[Edge], state: &ClusterState) -> Vec<NodeId> {
    let (mut jobs, mut nodes) = (vec![], vec![]);
    for edge in edges {
        let (Some(node), Some(job)) = (node_of(edge.signal), job_of(edge.signal, state)) else { continue };
        if !jobs.contains(&job) {
            jobs.push(job);
            nodes.push(node);
        }
    }
    if jobs.len() > 1 { nodes } else { vec![] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::parse::tests::state as two_nodes;
    use crate::advice::state::JobState;

    fn edge(node: u16) -> Edge {
        Edge { signal: Signal::Wait(NodeId(node)), value: 0.5, usual: None }
    }

    /// Nodes with a job each, as far as `jobs` says; node n has job jobs[n].
    fn state(at_ns: u64, jobs: &[u32]) -> ClusterState {
        let mut state = two_nodes();
        let one = state.compute[0].clone();
        let node = |(node, &job): (usize, &u32)| {
            let mut compute = one.clone();
            compute.node = NodeId(node as u16);
            compute.jobs = vec![JobState { job: JobId(job), wait_share: 0.5, stretched: 0.0, ahead: 1 }];
            compute
        };
        state.compute = jobs.iter().enumerate().map(node).collect();
        state.at_ns = at_ns;
        state
    }

    #[test]
    fn what_comes_within_the_window_is_one_consult() {
        let mut coalescer = Coalescer::new(100);
        coalescer.add(vec![edge(0)], &state(10, &[0, 0, 0]));
        coalescer.add(vec![edge(1), edge(0)], &state(60, &[0, 0, 0]));
        assert_eq!((coalescer.take(109), coalescer.due_ns()), (None, Some(110)));
        assert_eq!(coalescer.take(110).map(|edges| edges.len()), Some(2));
        coalescer.add(vec![edge(2)], &state(120, &[0, 0, 0]));
        assert_eq!(coalescer.take(1000), None, "one consult at a time");
        coalescer.ended();
        assert_eq!(coalescer.take(1000), Some(vec![edge(2)]));
        coalescer.ended();
        assert_eq!(coalescer.take(u64::MAX), None);
    }

    #[test]
    fn a_thousand_nodes_of_one_job_are_one_bounded_consult() {
        let mut coalescer = Coalescer::new(100);
        let state = state(0, &[7; 1000]);
        (0..1000).for_each(|node| coalescer.add(vec![edge(node)], &state));
        assert_eq!(coalescer.take(100).map(|edges| edges.len()), Some(EDGES_MAX));
        coalescer.ended();
        assert_eq!(coalescer.take(u64::MAX), None);
        assert_eq!(focus(&[edge(3), edge(4)], &state), []);
    }

    #[test]
    fn jobs_take_turns_and_a_loud_one_crowds_out_nobody() {
        let mut coalescer = Coalescer::new(0);
        // Nodes 0 to 19 are of job 0, then each of a job of its own.
        let jobs: Vec<u32> = (0..26).map(|node: u32| node.saturating_sub(19)).collect();
        let state = state(0, &jobs);
        let loud = || (0..20).map(edge).collect::<Vec<_>>();
        coalescer.add(loud(), &state);
        coalescer.add((20..26).map(edge).collect(), &state);
        let nodes = |edges: &[Edge]| focus(edges, &state);
        let first = coalescer.take(0).unwrap();
        assert_eq!((first.len(), nodes(&first)), (EDGES_MAX, [0, 20, 21, 22].map(NodeId).to_vec()));
        coalescer.ended();
        // The loud one again: it stands behind those that wait.
        coalescer.add(loud(), &state);
        let second = coalescer.take(0).unwrap();
        assert_eq!(nodes(&second), [23, 24, 25, 0].map(NodeId), "{second:?}");
        coalescer.ended();
        assert_eq!(coalescer.take(u64::MAX), None);
    }
}
