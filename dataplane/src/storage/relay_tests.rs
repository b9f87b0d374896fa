use super::*;
use crate::test_data::{Shape, TestData};
use crate::transfer::Arrived;
use proptest::prelude::*;
use std::collections::BTreeSet;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

/// 8 blocks of 4 rows of 10 bytes in each of two parts: one that both nodes own, one that is `B`'s alone.
fn data() -> TestData {
    let root = tempfile::tempdir().expect("a directory");
    let shape = Shape { rows_of_parts: vec![32, 32], row_bytes: 10, rows_per_block: 4 };
    TestData::write(root.path(), "d", &shape)
}

fn relay(data: &TestData) -> Relay {
    let owners = vec![vec![A, B], vec![B]];
    Relay::new(Arc::new(data.book.clone()), owners, Bytes(6 * 40), Nanos(100))
}

#[derive(Clone, Debug)]
enum Deed {
    Ask(u64, u64, Vec<(u32, u64)>),
    Answer(usize),
    Fail(usize, bool),
    Connect(NodeId, bool),
    Cancel(u64, u64),
    Close(u64),
    Pass(u64),
    Clear,
}

fn deed() -> impl Strategy<Value = Deed> {
    let items = prop::collection::vec((0_u32..16, 1_u64..16), 1..4);
    let node = prop::sample::select(vec![A, B]);
    prop_oneof![
        6 => (0_u64..3, 0_u64..4, items).prop_map(|(link, id, items)| Deed::Ask(link, id, items)),
        6 => any::<usize>().prop_map(Deed::Answer),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(at, corrupt)| Deed::Fail(at, corrupt)),
        2 => (node, any::<bool>()).prop_map(|(node, is_up)| Deed::Connect(node, is_up)),
        2 => (0_u64..3, 0_u64..4).prop_map(|(link, id)| Deed::Cancel(link, id)),
        1 => (0_u64..3).prop_map(Deed::Close),
        2 => (0_u64..40).prop_map(Deed::Pass),
        1 => Just(Deed::Clear),
    ]
}

/// The thread around a relay: what is under way to owners, and who waits for what.
struct Driver {
    data: TestData,
    relay: Relay,
    under_way: Vec<TransferRequest>,
    open: BTreeMap<Request, Vec<BlockRows>>,
    dialed: BTreeSet<NodeId>,
    up: BTreeSet<NodeId>,
}

impl Driver {
    fn carry_out(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Enqueue { request, items, bytes, .. } => {
                    assert_eq!(
                        self.open.remove(&request).as_ref(),
                        Some(&items),
                        "once, and what was asked for"
                    );
                    let mut out = Vec::new();
                    for &rows in &items {
                        self.relay.append(rows, &mut out).expect("it is held");
                    }
                    let expected: Vec<u8> = items.iter().flat_map(|&rows| self.data.expected(rows)).collect();
                    assert_eq!((out.len() as u64, &out), (bytes.0, &expected));
                    self.relay.end(request);
                }
                Act::Fail { request, item, reason } => {
                    let items = self.open.remove(&request).expect("it had not ended");
                    assert!((item as usize) < items.len());
                    assert!(matches!(reason, FailReason::Upstream | FailReason::Corrupt), "{reason}");
                }
                Act::Dial(node) => assert!(self.dialed.insert(node), "dialed once"),
                Act::Submit(request) => {
                    assert!(self.up.contains(&request.node), "an owner that is connected");
                    self.under_way.push(request);
                }
                Act::Cancel(id) => self.under_way.retain(|request| request.id != id),
            }
        }
    }

    fn completion(request: &TransferRequest, result: Result<Arrived, TransferError>) -> Completion {
        Completion { transfer: request.id, node: request.node, generation: None, result, bytes: 0 }
    }

    fn play(&mut self, deed: Deed, now: &mut Nanos) {
        match deed {
            Deed::Ask(link, id, items) => {
                let request = (ConnectionId(link), TransferId(id));
                let items: Vec<_> = items
                    .into_iter()
                    .map(|(block, mask)| BlockRows { block: BlockId(block), mask })
                    .collect();
                let bytes = items.iter().map(|rows| u64::from(rows.rows()) * 10).sum();
                self.open.insert(request, items.clone());
                match self.relay.ask(request, Class::Demand, Bytes(bytes), items, *now) {
                    Ok(acts) => self.carry_out(acts),
                    Err(_) => drop(self.open.remove(&request)),
                }
            }
            Deed::Answer(at) if !self.under_way.is_empty() => {
                let request = self.under_way.swap_remove(at % self.under_way.len());
                let rows = request.items.iter().flat_map(|item| self.data.expected(item.rows)).collect();
                let acts =
                    self.relay.answered(Self::completion(&request, Ok(Arrived { private: Some(rows) })));
                self.carry_out(acts);
            }
            Deed::Fail(at, corrupt) if !self.under_way.is_empty() => {
                let request = self.under_way.swap_remove(at % self.under_way.len());
                let error =
                    if corrupt { TransferError::Corrupt { item: 0 } } else { TransferError::PeerLost };
                let acts = self.relay.answered(Self::completion(&request, Err(error)));
                self.carry_out(acts);
            }
            Deed::Connect(node, true) if self.dialed.contains(&node) => {
                self.up.insert(node);
                let acts = self.relay.connected(node, true);
                self.carry_out(acts);
            }
            Deed::Connect(node, false) if self.dialed.contains(&node) => {
                // As the mover does: what was asked there fails first.
                let lost: Vec<_> = self.under_way.extract_if(.., |request| request.node == node).collect();
                self.up.remove(&node);
                let down = self.relay.connected(node, false);
                self.carry_out(down);
                for request in lost {
                    let acts = self.relay.answered(Self::completion(&request, Err(TransferError::PeerLost)));
                    self.carry_out(acts);
                }
            }
            Deed::Cancel(link, id) => {
                let request = (ConnectionId(link), TransferId(id));
                self.open.remove(&request);
                self.relay.end(request);
            }
            Deed::Close(link) => {
                self.open.retain(|request, _| request.0 != ConnectionId(link));
                self.relay.end_connection(ConnectionId(link));
            }
            Deed::Pass(nanos) => {
                now.0 += nanos;
                let acts = self.relay.expire(*now);
                self.carry_out(acts);
            }
            Deed::Clear => {
                let over: BTreeSet<Request> = self.relay.clear().into_iter().collect();
                assert!(self.open.keys().eq(over.iter()), "whoever had not ended is told");
                self.open.clear();
                self.under_way.clear();
            }
            _ => {}
        }
    }

    fn check(&self) {
        let bytes =
            |items: &Vec<BlockRows>| items.iter().map(|rows| u64::from(rows.rows()) * 10).sum::<u64>();
        let waiting = self.open.values().map(bytes).sum();
        assert_eq!(self.relay.waiting(), (self.open.len() as u64, waiting));
        for link in 0..3 {
            let of_link = self.open.iter().filter(|(request, _)| request.0 == ConnectionId(link));
            let waiting: u64 = of_link.map(|(_, items)| bytes(items)).sum();
            assert_eq!(self.relay.waiting_bytes(ConnectionId(link)), waiting);
        }
        assert!(self.relay.bytes() <= 6 * 40);
        let copies: u64 = self.relay.copies.values().map(|copy| copy.len() as u64).sum();
        assert!(copies <= self.relay.bytes(), "no memory beyond what is counted");
    }
}

proptest! {
    #[test]
    fn every_request_is_served_or_fails_once(deeds in prop::collection::vec(deed(), 0..120)) {
        let data = data();
        let mut driver = Driver {
            relay: relay(&data),
            data,
            under_way: vec![],
            open: BTreeMap::new(),
            dialed: BTreeSet::new(),
            up: BTreeSet::new(),
        };
        let mut now = Nanos(0);
        for deed in deeds {
            driver.play(deed, &mut now);
            driver.check();
        }
        // Nobody answers any more: all is over in time.
        driver.play(Deed::Pass(100), &mut now);
        driver.check();
        prop_assert!(driver.open.is_empty() && driver.under_way.is_empty());
        prop_assert_eq!(driver.relay.next_deadline(), None);
    }
}
