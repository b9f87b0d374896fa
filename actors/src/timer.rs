//! The one timer of a dataset's fast loop: carries out `WakeAt`. It outlives the actor that it wakes.

use crate::clock::NodeClock;
use rudder_topology::Nanos;
use std::collections::BTreeSet;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Wake-ups closer than this are one; later by at most this.
const GRAIN_NS: u64 = 1_000_000;

/// Takes wake-up times.
#[derive(Clone, Debug)]
pub struct Timer {
    sender: mpsc::UnboundedSender<u64>,
}

/// A timer that calls `wake` when a time has come, until its last [`Timer`] is dropped.
pub fn start(clock: NodeClock, wake: impl Fn() + Send + 'static) -> (Timer, JoinHandle<()>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Timer { sender }, tokio::spawn(run(clock, receiver, wake)))
}

impl Timer {
    pub fn wake_at(&self, at_ns: u64) {
        // The timer ends only when the node does.
        let _ = self.sender.send(at_ns);
    }
}

async fn run(clock: NodeClock, mut receiver: mpsc::UnboundedReceiver<u64>, wake: impl Fn()) {
    let mut due = BTreeSet::new();
    loop {
        let next = due.first().copied();
        let asked = match next {
            None => receiver.recv().await,
            Some(at) => tokio::select! {
                biased;
                asked = receiver.recv() => asked,
                () = tokio::time::sleep_until(clock.instant(Nanos(at))) => {
                    let now = clock.now().0;
                    due.retain(|&at| at > now);
                    wake();
                    continue;
                }
            },
        };
        match asked {
            Some(at) => due.insert(at.saturating_add(GRAIN_NS - 1) / GRAIN_NS * GRAIN_NS),
            None => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn past_and_coming_times_wake() {
        let clock = NodeClock::start();
        let (sender, mut woken) = mpsc::unbounded_channel();
        let (timer, task) = start(clock, move || sender.send(()).expect("the test listens"));
        timer.wake_at(0);
        woken.recv().await.unwrap();
        let at = clock.now().0 + 5_000_000;
        timer.wake_at(at);
        woken.recv().await.unwrap();
        assert!(clock.now().0 >= at, "woken too early");
        drop(timer);
        task.await.unwrap();
    }
}
