//! Independent pieces of work on two threads: what a laptop has to spare.

use std::sync::atomic::{AtomicUsize, Ordering};

const THREADS: usize = 2;

/// The answers in the order of the pieces.
pub(crate) fn in_parallel<T: Sync, R: Send>(pieces: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = pieces.get(at) else { return done };
            done.push((at, work(piece)));
        }
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS.min(pieces.len())).map(|_| scope.spawn(worker)).collect();
        threads
            .into_iter()
            .flat_map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    });
    done.sort_by_key(|&(at, _)| at);
    done.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_the_order_of_the_pieces() {
        let pieces: Vec<u32> = (0..100).collect();
        assert_eq!(in_parallel(&pieces, |piece| piece * 2), (0..200).step_by(2).collect::<Vec<_>>());
        assert!(in_parallel(&[] as &[u32], |piece| *piece).is_empty());
    }
}
