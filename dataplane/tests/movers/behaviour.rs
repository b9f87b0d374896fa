//! What movers do, on every backend that runs here.

use crate::data::TestData;
use crate::support::{
    PATIENCE, S0, TRANSFER_BYTES, backends, bare_storage, compute, join, join_tuned, shape, storage,
};
use rudder_client::frames::{FailReason, Frame, Last};
use rudder_client::handshake::Verbs;
use rudder_dataplane::{
    Backend, BackendChoice, Destination, LossReason, TransferError, TransferItem, TransferRequest,
};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{BlockId, ChunkId, Generation, PartId, StorageMode, TransferId};
use std::io::{Read, Write};
use std::time::Duration;

fn request(id: u64, class: Class, items: Vec<TransferItem>) -> TransferRequest {
    TransferRequest { id: TransferId(id), node: S0, class, items }
}

fn private(rows: BlockRows) -> TransferItem {
    TransferItem { rows, to: Destination::Private }
}

/// Every block of every part to a slot of its own, in requests of a few blocks.
fn all_to_slots(data: &TestData) -> Vec<TransferRequest> {
    let blocks: Vec<BlockRows> =
        [PartId(0), PartId(2)].into_iter().flat_map(|part| data.whole_blocks(part)).collect();
    blocks
        .chunks(7)
        .enumerate()
        .map(|(number, chunk)| {
            let class = if number % 2 == 0 { Class::Demand } else { Class::Prefetch };
            let items = chunk.iter().map(|&rows| TransferItem { rows, to: slot_of(rows.block) }).collect();
            request(number as u64, class, items)
        })
        .collect()
}

fn slot_of(block: BlockId) -> Destination {
    Destination::Slot { chunk: ChunkId((block.0 % 2) as u16), offset: u64::from(block.0) * 1600 }
}

#[test]
fn every_row_arrives_as_stored() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        for mode in [StorageMode::Memory, StorageMode::Direct] {
            let storage = storage(&data, mode, backend);
            let compute = compute(&data.book, backend, PATIENCE, TRANSFER_BYTES);
            assert!(matches!(
                (compute.handle.backend(), backend),
                (Backend::Uring { .. }, BackendChoice::Uring)
                    | (Backend::Pread { .. }, BackendChoice::Pread | BackendChoice::PreadThreads)
            ));
            compute.attach(join(&storage, "c0", &data.manifest.name, Verbs::FETCH));
            let requests = all_to_slots(&data);
            for request in &requests {
                compute.handle.submit(request.clone()).expect("running");
            }
            let mut bytes = 0;
            for _ in &requests {
                let completion = compute.completion();
                assert_eq!(completion.generation, Some(Generation(7)));
                assert!(completion.result.is_ok(), "{backend:?} {mode:?} {completion:?}");
                bytes += completion.bytes;
            }
            for item in requests.iter().flat_map(|request| &request.items) {
                let Destination::Slot { chunk, offset } = item.to else { continue };
                let expected = data.expected(item.rows);
                assert_eq!(compute.cached(chunk, offset, expected.len()), expected, "{backend:?} {mode:?}");
            }
            let (sent, received) = (storage.stats(), compute.handle.stats());
            assert_eq!(bytes, 133_300);
            assert_eq!(
                (sent.bytes_demand + sent.bytes_prefetch, received.bytes_demand),
                (bytes, sent.bytes_demand)
            );
            assert_eq!(received.bytes_prefetch, sent.bytes_prefetch);
            assert!(received.bytes_protocol > 0 && received.frames_late == 0, "{received:?}");
            assert_eq!(sent.reads > 0, mode == StorageMode::Direct, "{sent:?}");
            compute.handle.stop(PATIENCE).expect("stopped");
            storage.stop(PATIENCE).expect("stopped");
        }
    }
}

#[test]
fn masks_are_honoured_and_private_rows_come_in_order() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        for mode in [StorageMode::Memory, StorageMode::Direct] {
            let storage = storage(&data, mode, backend);
            let compute = compute(&data.book, backend, PATIENCE, TRANSFER_BYTES);
            compute.attach(join(&storage, "c0", &data.manifest.name, Verbs::FETCH));
            let rows: Vec<BlockRows> =
                [(40, 0b1), (3, 0b1010_1010), (62, 0b1000_0000), (3, 0b1), (4, 0xffff)]
                    .map(|(block, mask)| BlockRows { block: BlockId(block), mask })
                    .to_vec();
            // Twice: in direct mode the second time comes out of the hot cache.
            for id in 0..2 {
                let items = rows.iter().copied().map(private).collect();
                compute.handle.submit(request(id, Class::Demand, items)).expect("running");
                let arrived = compute.completion().result.expect("arrived");
                let expected: Vec<u8> = rows.iter().flat_map(|&item| data.expected(item)).collect();
                assert_eq!(arrived.private.expect("private rows"), expected);
            }
            assert_eq!(storage.stats().hot_hits > 0, mode == StorageMode::Direct);
        }
    }
}

#[test]
fn a_corrupt_block_is_refused_and_the_rest_is_served() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    data.corrupt(BlockId(5));
    for backend in backends() {
        for mode in [StorageMode::Memory, StorageMode::Direct] {
            let storage = storage(&data, mode, backend);
            let compute = compute(&data.book, backend, PATIENCE, TRANSFER_BYTES);
            compute.attach(join(&storage, "c0", &data.manifest.name, Verbs::FETCH));
            let blocks = |range: std::ops::Range<u32>| {
                range.map(|block| private(BlockRows { block: BlockId(block), mask: 0xffff })).collect()
            };
            compute.handle.submit(request(1, Class::Demand, blocks(3..8))).expect("running");
            let refused = compute.completion();
            assert_eq!(refused.result.expect_err("corrupt"), TransferError::Corrupt { item: 2 });
            compute.handle.submit(request(2, Class::Demand, blocks(6..8))).expect("running");
            assert!(compute.completion().result.is_ok());
            assert_eq!(storage.stats().blocks_corrupt, 1);
        }
    }
}

#[test]
fn what_a_storage_node_lacks_is_refused_with_the_reason() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    data.remove_part(PartId(2));
    for backend in backends() {
        let storage = storage(&data, StorageMode::Memory, backend);
        let compute = compute(&data.book, backend, PATIENCE, TRANSFER_BYTES);
        let nobody = request(1, Class::Demand, vec![private(BlockRows { block: BlockId(0), mask: 1 })]);
        compute.handle.submit(nobody).expect("running");
        assert_eq!(compute.completion().result.expect_err("nobody"), TransferError::NotAttached);
        let dialed = join(&storage, "c0", &data.manifest.name, Verbs::FETCH);
        assert_eq!(dialed.welcome.parts, [PartId(0), PartId(1)]);
        compute.attach(dialed);
        let of_part_2 = data.whole_blocks(PartId(2))[0];
        let items = vec![private(BlockRows { block: BlockId(0), mask: 1 }), private(of_part_2)];
        compute.handle.submit(request(2, Class::Demand, items)).expect("running");
        let refused = compute.completion().result.expect_err("not stored");
        assert_eq!(refused, TransferError::Refused { item: 1, reason: FailReason::NotStored });
    }
}

#[test]
fn tiny_socket_buffers_only_make_it_slow() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let storage = storage(&data, StorageMode::Memory, backend);
        let compute = compute(&data.book, backend, PATIENCE, TRANSFER_BYTES);
        // The kernel doubles it and has a minimum: frames of 11 KiB do not fit, so writes are partial at best and,
        // for the end that asks without waiting, EAGAIN.
        let tiny = |stream: &std::net::TcpStream| {
            socket2::SockRef::from(stream).set_send_buffer_size(1).expect("set");
        };
        compute.attach(join_tuned(&storage, "c0", &data.manifest.name, Verbs::FETCH, tiny));
        let requests = all_to_slots(&data);
        for request in &requests {
            compute.handle.submit(request.clone()).expect("running");
        }
        for _ in &requests {
            assert!(compute.completion().result.is_ok());
        }
        for item in requests.iter().flat_map(|request| &request.items) {
            let Destination::Slot { chunk, offset } = item.to else { continue };
            let expected = data.expected(item.rows);
            assert_eq!(compute.cached(chunk, offset, expected.len()), expected);
        }
    }
}

#[test]
fn a_vanished_peer_fails_all_its_transfers_and_a_new_one_serves() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let compute = compute(&data.book, backend, PATIENCE, TRANSFER_BYTES);
        let (dialed, mut bare) = bare_storage(&data.manifest.name);
        compute.attach(dialed);
        let item = |block| private(BlockRows { block: BlockId(block), mask: 1 });
        for id in 0..3 {
            compute.handle.submit(request(id, Class::Prefetch, vec![item(id as u32)])).expect("running");
            assert!(matches!(bare.receive().expect("a request").0, Frame::Fetch { .. }));
        }
        drop(bare);
        for _ in 0..3 {
            assert_eq!(compute.completion().result.expect_err("lost"), TransferError::PeerLost);
        }
        let lost = compute.lost();
        assert_eq!((lost.node, lost.generation), (S0, Generation(7)));
        let storage = storage(&data, StorageMode::Memory, backend);
        compute.attach(join(&storage, "c0", &data.manifest.name, Verbs::FETCH));
        compute.handle.submit(request(9, Class::Demand, vec![item(1)])).expect("running");
        assert!(compute.completion().result.is_ok());
    }
}

#[test]
fn a_silent_peer_is_lost_in_time() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let compute = compute(&data.book, backend, Duration::from_millis(60), TRANSFER_BYTES);
        let (dialed, bare) = bare_storage(&data.manifest.name);
        compute.attach(dialed);
        let item = private(BlockRows { block: BlockId(0), mask: 1 });
        compute.handle.submit(request(1, Class::Demand, vec![item])).expect("running");
        assert_eq!(compute.completion().result.expect_err("lost"), TransferError::PeerLost);
        assert_eq!(compute.lost().reason, LossReason::Silent);
        drop(bare);
    }
}

#[test]
fn pings_keep_a_quiet_connection() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let timeout = Duration::from_millis(90);
        let compute = compute(&data.book, backend, timeout, TRANSFER_BYTES);
        let (dialed, mut bare) = bare_storage(&data.manifest.name);
        compute.attach(dialed);
        // Ten time-outs' worth of beats, each answered.
        for _ in 0..30 {
            assert_eq!(bare.receive().expect("a ping").0, Frame::Ping);
            bare.send(&Frame::Pong, &[]).expect("sent");
        }
        assert_eq!(compute.handle.stats().peers, 1);
        assert!(compute.lost.try_recv().is_err());
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_is_dropped_and_its_bytes_reach_no_slot() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let wrong: [(&str, Frame, &[u8]); 3] = [
            ("too few bytes", rows(0, 1, Last::Last), &[1; 99]),
            ("beyond the request", rows(0, 2, Last::Last), &[1; 200]),
            ("a request", Frame::Cancel { transfer: TransferId(1) }, &[]),
        ];
        for (what, frame, payload) in wrong {
            let compute = compute(&data.book, backend, PATIENCE, TRANSFER_BYTES);
            let (dialed, mut bare) = bare_storage(&data.manifest.name);
            compute.attach(dialed);
            let rows = BlockRows { block: BlockId(0), mask: 1 };
            let item = TransferItem { rows, to: Destination::Slot { chunk: ChunkId(0), offset: 0 } };
            compute.handle.submit(request(1, Class::Demand, vec![item])).expect("running");
            assert!(matches!(bare.receive().expect("a request").0, Frame::Fetch { .. }), "{what}");
            bare.send(&frame, payload).expect("sent");
            let failed = compute.completion().result.expect_err(what);
            assert!(matches!(failed, TransferError::Protocol(_)), "{what}: {failed}");
            assert_eq!(compute.cached(ChunkId(0), 0, 100), [0; 100], "{what}");
            assert!(matches!(compute.lost().reason, LossReason::Protocol(_)), "{what}");
        }
    }
}

fn rows(first_item: u32, items: u32, last: Last) -> Frame {
    Frame::Rows { transfer: TransferId(1), first_item, items, last }
}

#[test]
fn forged_bytes_end_the_connection() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        // Towards the compute mover.
        let compute = compute(&data.book, backend, PATIENCE, TRANSFER_BYTES);
        let (dialed, bare) = bare_storage(&data.manifest.name);
        compute.attach(dialed);
        bare.socket().write_all(&[0xff; 4096]).expect("sent");
        assert!(matches!(compute.lost().reason, LossReason::Protocol(_)));
        // Towards the storage mover: it hangs up, and serves others as before.
        let storage = storage(&data, StorageMode::Memory, backend);
        let mut stranger = join(&storage, "c9", &data.manifest.name, Verbs::FETCH).stream;
        stranger.write_all(&[0xff; 4096]).expect("sent");
        let mut rest = Vec::new();
        // A reset says the same as an end.
        let _ = stranger.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{rest:?}");
        compute.attach(join(&storage, "c0", &data.manifest.name, Verbs::FETCH));
        let item = private(BlockRows { block: BlockId(0), mask: 1 });
        compute.handle.submit(request(1, Class::Demand, vec![item])).expect("running");
        assert!(compute.completion().result.is_ok());
    }
}

#[test]
fn a_cancelled_transfer_completes_once_and_late_rows_are_dropped() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let compute = compute(&data.book, backend, PATIENCE, TRANSFER_BYTES);
        let (dialed, mut bare) = bare_storage(&data.manifest.name);
        compute.attach(dialed);
        let slot = |offset| TransferItem {
            rows: BlockRows { block: BlockId(0), mask: 1 },
            to: Destination::Slot { chunk: ChunkId(0), offset },
        };
        compute.handle.submit(request(1, Class::Prefetch, vec![slot(0)])).expect("running");
        assert!(matches!(bare.receive().expect("a request").0, Frame::Fetch { .. }));
        compute.handle.cancel(TransferId(1)).expect("running");
        assert_eq!(compute.completion().result.expect_err("cancelled"), TransferError::Cancelled);
        assert_eq!(bare.receive().expect("a cancel").0, Frame::Cancel { transfer: TransferId(1) });
        // The slot belongs to another transfer now, and the first one's rows come late.
        compute.handle.submit(request(2, Class::Demand, vec![slot(0)])).expect("running");
        assert!(matches!(bare.receive().expect("a request").0, Frame::Fetch { .. }));
        bare.send(&rows(0, 1, Last::Last), &[0xee; 100]).expect("sent");
        let good = data.expected(BlockRows { block: BlockId(0), mask: 1 });
        let answer = Frame::Rows { transfer: TransferId(2), first_item: 0, items: 1, last: Last::Last };
        bare.send(&answer, &good).expect("sent");
        assert!(compute.completion().result.is_ok());
        assert_eq!(compute.cached(ChunkId(0), 0, 100), good);
        assert_eq!(compute.handle.stats().frames_late, 1);
        assert!(compute.completions.try_recv().is_err(), "one completion each");
    }
}

#[test]
fn stopping_ends_everything_that_is_in_flight() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let compute = compute(&data.book, backend, PATIENCE, TRANSFER_BYTES);
        let (dialed, mut bare) = bare_storage(&data.manifest.name);
        compute.attach(dialed);
        let item = private(BlockRows { block: BlockId(0), mask: 1 });
        compute.handle.submit(request(1, Class::Demand, vec![item])).expect("running");
        assert!(matches!(bare.receive().expect("a request").0, Frame::Fetch { .. }));
        compute.handle.stop(PATIENCE).expect("stopped");
        assert_eq!(compute.completion().result.expect_err("lost"), TransferError::PeerLost);
        assert!(compute.handle.submit(request(2, Class::Demand, vec![item])).is_err());
        assert!(bare.receive().is_err(), "the connection is closed");
        let storage = storage(&data, StorageMode::Direct, backend);
        let dialed = join(&storage, "c0", &data.manifest.name, Verbs::FETCH);
        storage.stop(PATIENCE).expect("stopped");
        assert!(storage.accept(dialed.stream, dialed.session).is_err());
    }
}

#[test]
fn a_later_connection_takes_the_place_of_the_former() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let compute = compute(&data.book, backend, PATIENCE, TRANSFER_BYTES);
        let (dialed, mut old) = bare_storage(&data.manifest.name);
        compute.attach(dialed);
        let item = private(BlockRows { block: BlockId(0), mask: 1 });
        compute.handle.submit(request(1, Class::Demand, vec![item])).expect("running");
        assert!(matches!(old.receive().expect("a request").0, Frame::Fetch { .. }));
        let (dialed, mut new) = bare_storage(&data.manifest.name);
        compute.attach(dialed);
        assert_eq!(compute.completion().result.expect_err("lost"), TransferError::PeerLost);
        assert_eq!(compute.lost().reason, LossReason::Detached);
        compute.handle.submit(request(2, Class::Demand, vec![item])).expect("running");
        assert!(matches!(new.receive().expect("a request").0, Frame::Fetch { .. }));
        let good = data.expected(item.rows);
        let answer = Frame::Rows { transfer: TransferId(2), first_item: 0, items: 1, last: Last::Last };
        new.send(&answer, &good).expect("sent");
        assert_eq!(compute.completion().result.expect("arrived").private, Some(good));
        assert!(compute.lost.try_recv().is_err());
    }
}
