//! When the links' rates change in a run. The time since training began comes in, what is due comes out.

use crate::sim::{Change, TimedEvent};
use rudder_topology::{BytesPerSecond, NodeId};
use std::time::Duration;

/// From some time on, both directions of a node's interface have this rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateChange {
    at: Duration,
    pub node: NodeId,
    pub rate: BytesPerSecond,
}

/// Changes, soonest first, and how many of them are done.
#[derive(Clone, Debug, Default)]
pub(super) struct Timetable {
    changes: Vec<RateChange>,
    done: usize,
}

impl Timetable {
    /// Of a scenario's events, what an interface can be told.
    pub fn new(events: &[TimedEvent]) -> Self {
        let change = |event: &TimedEvent| match event.what {
            Change::Interface { node, rate } => {
                Some(RateChange { at: Duration::from_nanos(event.at.0), node, rate })
            }
            _ => None,
        };
        let mut changes: Vec<RateChange> = events.iter().filter_map(change).collect();
        changes.sort_by_key(|change| change.at);
        Timetable { changes, done: 0 }
    }

    /// Nodes whose rate changes at any time.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.changes.iter().map(|change| change.node)
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Duration> {
        self.changes.get(self.done).map(|change| change.at)
    }

    /// What is due by now and was not taken before.
    pub fn take_due(&mut self, since_began: Duration) -> &[RateChange] {
        let from = self.done;
        self.done += self.changes[from..].iter().take_while(|change| change.at <= since_began).count();
        &self.changes[from..self.done]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rudder_topology::Nanos;

    fn event(at_s: u64, node: u16, mbit: u64) -> TimedEvent {
        let what = Change::Interface { node: NodeId(node), rate: BytesPerSecond::from_mbit(mbit) };
        TimedEvent { at: Nanos::from_secs(at_s), what }
    }

    fn taken(timetable: &mut Timetable, at_s: u64) -> Vec<(NodeId, BytesPerSecond)> {
        let due = timetable.take_due(Duration::from_secs(at_s));
        due.iter().map(|change| (change.node, change.rate)).collect()
    }

    #[test]
    fn each_change_is_due_once_at_its_time_and_in_order() {
        let mut timetable = Timetable::new(&[event(5, 0, 1), event(2, 1, 3), event(5, 2, 4), event(9, 0, 6)]);
        let rate = BytesPerSecond::from_mbit;
        assert_eq!(timetable.nodes().collect::<Vec<_>>(), [1, 0, 2, 0].map(NodeId));
        assert_eq!(timetable.next(), Some(Duration::from_secs(2)));
        assert!(taken(&mut timetable, 1).is_empty());
        assert_eq!(taken(&mut timetable, 2), [(NodeId(1), rate(3))]);
        assert_eq!(timetable.next(), Some(Duration::from_secs(5)));
        assert!(taken(&mut timetable, 2).is_empty());
        // Who looks late misses nothing.
        assert_eq!(
            taken(&mut timetable, 60),
            [(NodeId(0), rate(1)), (NodeId(2), rate(4)), (NodeId(0), rate(6))]
        );
        assert_eq!(timetable.next(), None);
        assert!(taken(&mut timetable, 100).is_empty());
    }

    #[test]
    fn what_an_interface_cannot_be_told_is_no_entry() {
        let down = TimedEvent { at: Nanos::from_secs(1), what: Change::Down { node: NodeId(0) } };
        assert_eq!(Timetable::new(&[down]).next(), None);
    }
}
