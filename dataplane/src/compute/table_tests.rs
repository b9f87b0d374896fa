use super::*;
use crate::cache_memory::PageChoice;
use crate::test_data::{Shape, TestData};
use rudder_client::frames::Kind;
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, Bytes, ChunkId, PartId};

const VIA: Via = Via { connection: ConnectionId(1), node: NodeId(3), generation: Generation(4) };

struct Fixture {
    data: TestData,
    cache: Arc<CacheMemory>,
    table: Table,
    counters: Arc<Counters>,
    _root: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let root = tempfile::tempdir().expect("a directory");
    let shape = Shape { rows_of_parts: vec![30, 10], row_bytes: 10, rows_per_block: 4 };
    let data = TestData::write(root.path(), "d", &shape);
    let cache = CacheMemory::create_with(Bytes(8192), Bytes(4096), PageChoice::Normal).expect("memory");
    let cache = Arc::new(cache);
    let counters = Arc::new(Counters::default());
    let table = Table::new(cache.clone(), Arc::new(data.book.clone()), Bytes(1000), counters.clone());
    Fixture { data, cache, table, counters, _root: root }
}

fn slot(block: u32, mask: u64, offset: u64) -> TransferItem {
    let to = Destination::Slot { chunk: ChunkId(1), offset };
    TransferItem { rows: BlockRows { block: BlockId(block), mask }, to }
}

fn private(block: u32, mask: u64) -> TransferItem {
    TransferItem { to: Destination::Private, ..slot(block, mask, 0) }
}

fn request(id: u64, items: Vec<TransferItem>) -> TransferRequest {
    TransferRequest { id: TransferId(id), node: NodeId(3), class: Class::Demand, items }
}

fn header(id: u64, first_item: u32, items: u32) -> Header {
    Header {
        kind: Kind::Rows,
        flags: 0,
        transfer: TransferId(id),
        first_item,
        items,
        argument: 0,
        payload_bytes: 0,
        payload_crc: 0,
    }
}

impl Fixture {
    fn payload(&self, items: &[TransferItem]) -> Vec<u8> {
        items.iter().flat_map(|item| self.data.expected(item.rows)).collect()
    }

    fn cached(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // SAFETY: the test is the only one with this memory.
        unsafe { self.cache.read(ChunkId(1), 0, 4096, &mut bytes) }.expect("read");
        bytes
    }
}

#[test]
fn rows_go_where_the_request_says() {
    let mut f = fixture();
    let items = vec![slot(0, 0b1101, 100), private(2, 0b11), slot(9, 0b1111, 200), private(1, 0b1000)];
    f.table.admit(request(1, items.clone()), VIA).expect("admitted");
    let first = f.payload(&items[..3]);
    assert!(f.table.rows(VIA, &header(1, 0, 3), Last::MoreFollows, &first).expect("right").is_none());
    let rest = f.payload(&items[3..]);
    let done = f.table.rows(VIA, &header(1, 3, 1), Last::Last, &rest).expect("right").expect("complete");
    assert_eq!((done.transfer, done.generation, done.bytes), (TransferId(1), Some(Generation(4)), 100));
    let private = done.result.expect("arrived").private.expect("private rows");
    assert_eq!(private, f.payload(&[items[1], items[3]]));
    let cached = f.cached();
    let whole = f.data.expected(BlockRows { block: BlockId(0), mask: 0b1111 });
    assert_eq!(cached[100..110], whole[..10]);
    assert_eq!(cached[110..120], [0; 10], "row 1 was not asked for");
    assert_eq!(cached[120..140], whole[20..40]);
    assert_eq!(cached[200..240], f.data.expected(BlockRows { block: BlockId(9), mask: 0b1111 }));
    assert_eq!(f.counters.snapshot().bytes_demand, 100);
    assert_eq!(f.counters.snapshot().transfers_in_flight, 0);
}

#[test]
fn an_ended_transfer_writes_no_slot() {
    for ends in ["cancelled", "lost", "failed"] {
        let mut f = fixture();
        let items = vec![slot(0, 0b1111, 0), slot(1, 0b1111, 40)];
        f.table.admit(request(1, items.clone()), VIA).expect("admitted");
        let first = f.payload(&items[..1]);
        assert!(f.table.rows(VIA, &header(1, 0, 1), Last::MoreFollows, &first).expect("right").is_none());
        let ended = match ends {
            "cancelled" => f.table.end(TransferId(1), Err(TransferError::Cancelled)).into_iter().collect(),
            "lost" => f.table.end_all(VIA.connection, &TransferError::PeerLost),
            _ => {
                let failed = f.table.failed(VIA, TransferId(1), 1, FailReason::Corrupt);
                failed.expect("right").into_iter().collect::<Vec<_>>()
            }
        };
        assert_eq!(ended.len(), 1);
        assert!(ended[0].result.is_err() && ended[0].bytes == 40, "{:?}", ended[0]);
        let before = f.cached();
        let late = f.table.rows(VIA, &header(1, 1, 1), Last::Last, &[0xee; 40]);
        assert!(matches!(late, Ok(None)), "{late:?}");
        assert_eq!(f.cached(), before, "{ends}");
        assert_eq!(f.counters.snapshot().frames_late, 1);
    }
}

#[test]
fn frames_that_do_not_answer_the_request_write_nothing() {
    let mut f = fixture();
    let items = vec![slot(0, 0b1111, 0), slot(1, 0b1111, 40)];
    f.table.admit(request(1, items.clone()), VIA).expect("admitted");
    let both = f.payload(&items);
    let other = Via { connection: ConnectionId(2), ..VIA };
    let before = f.cached();
    for (via, first_item, count, last, payload, expected) in [
        (other, 0, 2, Last::Last, &both[..], ProtocolError::UnexpectedFrame),
        (VIA, 1, 1, Last::Last, &both[..40], ProtocolError::RowsOutOfOrder),
        (VIA, 0, 0, Last::MoreFollows, &both[..0], ProtocolError::RowsOutOfOrder),
        (VIA, 0, 3, Last::Last, &both[..], ProtocolError::RowsOutOfOrder),
        (VIA, 0, u32::MAX, Last::Last, &both[..], ProtocolError::RowsOutOfOrder),
        (VIA, 0, 2, Last::MoreFollows, &both[..], ProtocolError::RowsOutOfOrder),
        (VIA, 0, 1, Last::Last, &both[..40], ProtocolError::RowsOutOfOrder),
        (VIA, 0, 2, Last::Last, &both[..79], ProtocolError::RowsLength),
    ] {
        let refused = f.table.rows(via, &header(1, first_item, count), last, payload);
        assert_eq!(refused.expect_err("refused"), expected);
    }
    assert_eq!(f.cached(), before);
    let beyond = f.table.failed(VIA, TransferId(1), 2, FailReason::Corrupt);
    assert_eq!(beyond.expect_err("refused"), ProtocolError::RowsOutOfOrder);
    let elsewhere = f.table.failed(other, TransferId(1), 0, FailReason::Corrupt);
    assert_eq!(elsewhere.expect_err("refused"), ProtocolError::UnexpectedFrame);
}

#[test]
fn requests_that_cannot_be_carried_out_are_refused() {
    let mut f = fixture();
    f.table.admit(request(7, vec![private(0, 1)]), VIA).expect("admitted");
    let outside = TransferItem { to: Destination::Slot { chunk: ChunkId(2), offset: 0 }, ..slot(0, 1, 0) };
    let many = (0..26).map(|_| private(0, 0b1111)).collect();
    for (id, items, expected) in [
        (1, vec![], InvalidRequest::Empty),
        (7, vec![private(0, 1)], InvalidRequest::DuplicateId),
        (1, vec![private(0, 0)], InvalidRequest::UnknownRows { item: 0 }),
        (1, vec![private(0, 1), private(99, 1)], InvalidRequest::UnknownRows { item: 1 }),
        (1, vec![private(7, 0b100)], InvalidRequest::UnknownRows { item: 0 }),
        (1, vec![slot(0, 0b1000, 4096 - 39)], InvalidRequest::SlotOutside { item: 0 }),
        (1, vec![outside], InvalidRequest::SlotOutside { item: 0 }),
        (1, many, InvalidRequest::TooLarge { bytes_max: 1000 }),
    ] {
        let refused = f.table.admit(request(id, items), VIA).expect_err("refused");
        assert_eq!(refused.result.expect_err("refused"), TransferError::Invalid(expected));
    }
    // The last row of a block may end with the chunk.
    f.table.admit(request(2, vec![slot(0, 0b1000, 4096 - 40)]), VIA).expect("admitted");
    assert_eq!(f.data.whole_blocks(PartId(0)).len(), 8);
}

#[test]
fn a_lost_connection_ends_its_own_transfers_only() {
    let mut f = fixture();
    let other = Via { connection: ConnectionId(2), node: NodeId(5), ..VIA };
    for (id, via) in [(3, VIA), (1, VIA), (2, other)] {
        f.table.admit(request(id, vec![private(0, 1)]), via).expect("admitted");
    }
    let ended = f.table.end_all(VIA.connection, &TransferError::PeerLost);
    let ids: Vec<u64> = ended.iter().map(|completion| completion.transfer.0).collect();
    assert_eq!(ids, [1, 3]);
    assert_eq!(f.table.via(TransferId(2)), Some(other));
}
