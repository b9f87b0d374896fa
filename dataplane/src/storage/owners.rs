//! Which owners of other nodes' parts are connected, and which of them is asked.

use rudder_topology::{NodeId, PartId};
use std::collections::HashMap;

/// Owners of every part that is relayed, and how each can be reached.
#[derive(Debug)]
pub(super) struct Owners {
    by_part: Vec<Vec<NodeId>>,
    reach: HashMap<NodeId, Reach>,
}

/// A node that nobody has asked for anything has none: it is dialed when it is first wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Dialing,
    Up,
    /// It is dialed again by and by; nobody waits for that.
    Down,
}

/// Whom to ask.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) ask: Option<NodeId>,
    /// Dialed from now on.
    pub(super) dial: Vec<NodeId>,
    /// Nobody can be asked now, and somebody may be soon.
    pub(super) wait: bool,
}

impl Owners {
    pub(super) fn new(by_part: Vec<Vec<NodeId>>) -> Self {
        Owners { by_part, reach: HashMap::new() }
    }

    /// Cheapest first; none for a part that is not relayed.
    pub(super) fn of(&self, part: PartId) -> &[NodeId] {
        self.by_part.get(part.index()).map_or(&[], Vec::as_slice)
    }

    pub(super) fn parts_of(&self, node: NodeId) -> Vec<PartId> {
        let parts = self.by_part.iter().enumerate().filter(|(_, owners)| owners.contains(&node));
        parts.map(|(part, _)| PartId(part as u16)).collect()
    }

    pub(super) fn set(&mut self, node: NodeId, is_up: bool) {
        self.reach.insert(node, if is_up { Reach::Up } else { Reach::Down });
    }

    /// The first of them that is connected. Cheaper ones that were never dialed are, for the next time.
    pub(super) fn choose(&mut self, nodes: &[NodeId]) -> Choice {
        let mut choice = Choice::default();
        for &node in nodes {
            let reach = self.reach.entry(node).or_insert_with(|| {
                choice.dial.push(node);
                Reach::Dialing
            });
            match reach {
                Reach::Up => return Choice { ask: Some(node), wait: false, ..choice },
                Reach::Dialing => choice.wait = true,
                Reach::Down => {}
            }
        }
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    #[test]
    fn the_cheapest_that_is_connected_is_asked() {
        let mut owners = Owners::new(vec![vec![A, B], vec![], vec![B]]);
        assert_eq!(
            (owners.of(PartId(0)), owners.of(PartId(1)), owners.of(PartId(9))),
            (&[A, B][..], &[][..], &[][..])
        );
        assert_eq!(owners.parts_of(B), [PartId(0), PartId(2)]);
        assert_eq!(owners.choose(&[A, B]), Choice { ask: None, dial: vec![A, B], wait: true });
        assert_eq!(owners.choose(&[A, B]), Choice { ask: None, dial: vec![], wait: true }, "dialed once");
        owners.set(B, true);
        assert_eq!(owners.choose(&[A, B]), Choice { ask: Some(B), dial: vec![], wait: false });
        owners.set(A, true);
        assert_eq!(owners.choose(&[A, B]).ask, Some(A));
        owners.set(A, false);
        assert_eq!(owners.choose(&[A, B]).ask, Some(B), "the next one where one fails");
        owners.set(B, false);
        assert_eq!(owners.choose(&[A, B]), Choice::default(), "nobody waits for nodes that are down");
    }
}
