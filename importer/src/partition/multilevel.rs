//! METIS, k-way, on the graph without directions, repeats and self loops.

use crate::csc::Adjacency;
use crate::error::ImportError;
use crate::progress::Run;
use metis::option::Seed;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// METIS keeps its random state in process-wide variables: one run at a time, or seeds would not repeat.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Bytes that METIS holds at its peak for each entry of the graph it is given: the edge, its weight, and the same of
/// all coarser levels together. Measured on R-MAT graphs, which coarsen worst: 20 M edges took 3.6 GiB. Real graphs took
/// 30 to 40.
const BYTES_PER_ENTRY: u64 = 96;

/// Whether METIS can take the graph: 32-bit indices, and memory within `room`.
pub(crate) fn fits(simple: &Adjacency, parts: u32, room: u64) -> bool {
    let indices = i32::MAX as u64;
    let peak = simple.bytes() + simple.edges() * BYTES_PER_ENTRY;
    simple.edges() <= indices
        && (simple.vertices() as u64) < indices
        && u64::from(parts) <= indices
        && peak <= room
}

/// Cuts a symmetric graph without self loops and repeats.
pub(crate) fn partition(
    simple: Adjacency,
    parts: u32,
    seed: u64,
    run: &mut Run<'_>,
) -> Result<Vec<u16>, ImportError> {
    let vertices = simple.vertices();
    if vertices < 2 * parts as usize {
        // METIS is not made for parts of one vertex; any even cut will do.
        return Ok((0..vertices).map(|v| (v * parts as usize / vertices) as u16).collect());
    }
    if i32::try_from(simple.edges()).is_err() || i32::try_from(vertices).is_err() {
        return Err(ImportError::Metis("the graph has more edges than METIS can number (2^31)".into()));
    }
    let starts = simple.indptr.into_iter().map(|at| at as i32).collect();
    // In place: same size and alignment, so the allocation is reused.
    let neighbours = simple.indices.into_iter().map(|v| v as i32).collect();
    let part = solve(starts, neighbours, parts, seed, run)?;
    Ok(part.into_iter().map(|p| p as u16).collect())
}

/// Runs METIS on a thread of its own, so that a run can be cancelled meanwhile: METIS itself cannot be stopped, its
/// thread is left to end by itself. While it runs it catches the process's SIGABRT and SIGTERM: an import that is
/// terminated just then leaves its partial directory, which the next import to the same target removes.
fn solve(
    starts: Vec<i32>,
    neighbours: Vec<i32>,
    parts: u32,
    seed: u64,
    run: &mut Run<'_>,
) -> Result<Vec<i32>, ImportError> {
    let (done, result) = channel();
    std::thread::spawn(move || {
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut part = vec![0; starts.len() - 1];
        let solved = metis::Graph::new(1, parts as i32, &starts, &neighbours)
            .map_err(|error| error.to_string())
            .and_then(|graph| {
                let graph = graph.set_option(Seed((seed & 0x7fff_ffff) as i32));
                graph.part_kway(&mut part).map_err(|error| error.to_string())
            });
        let _ = done.send(solved.map(|_cut| part));
    });
    loop {
        match result.recv_timeout(Duration::from_millis(50)) {
            Ok(solved) => return solved.map_err(ImportError::Metis),
            Err(RecvTimeoutError::Timeout) => run.advance(0)?,
            Err(RecvTimeoutError::Disconnected) => return Err(ImportError::Metis("its thread ended".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::edge_cut;
    use crate::partition::undirected::simple;
    use crate::progress::{Cancel, Silent};

    /// Two cliques of `half` vertices, even and odd numbers, joined by one edge.
    fn cliques(half: u32) -> Adjacency {
        let vertices = 2 * half;
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for v in 0..vertices {
            indices.extend((0..vertices).filter(|&s| s != v && (s % 2 == v % 2 || (v == 0 && s == 1))));
            indptr.push(indices.len() as u64);
        }
        Adjacency { indptr, indices }
    }

    fn run(graph: &Adjacency, parts: u32) -> Vec<u16> {
        partition(simple(graph).unwrap(), parts, 7, &mut Run::new(&mut Silent, Cancel::default())).unwrap()
    }

    #[test]
    fn two_cliques_are_cut_at_their_bridge() {
        let graph = cliques(30);
        let part = run(&graph, 2);
        assert_eq!(edge_cut(&graph, &part), 1);
        assert_eq!(part.iter().filter(|&&p| p == 0).count(), 30);
        assert_eq!(part, run(&graph, 2));
    }

    #[test]
    fn tiny_edgeless_and_empty_graphs_are_cut_too() {
        for (vertices, parts) in [(0, 3), (1, 3), (5, 3), (6, 3), (50, 3)] {
            let graph = Adjacency { indptr: vec![0; vertices + 1], indices: vec![] };
            let part = run(&graph, parts);
            assert_eq!(part.len(), vertices);
            assert!(part.iter().all(|&p| u32::from(p) < parts));
        }
    }

    #[test]
    fn memory_and_index_limits_decide() {
        let graph = cliques(10);
        assert!(fits(&graph, 2, 1 << 20));
        assert!(!fits(&graph, 2, graph.bytes()));
        assert!(!fits(&graph, u32::MAX, 1 << 20));
    }

    #[test]
    fn a_cancelled_run_does_not_wait_for_metis() {
        let cancel = Cancel::default();
        cancel.cancel();
        let graph = cliques(200);
        // Either METIS was done at once, or the run says that it was stopped.
        match partition(simple(&graph).unwrap(), 2, 7, &mut Run::new(&mut Silent, cancel)) {
            Ok(part) => assert_eq!(part.len(), 400),
            Err(error) => assert!(matches!(error, ImportError::Cancelled(_)), "{error}"),
        }
    }
}
