//! The storage mover's side alone: authority, limits, pacing, idle peers, direct fetch and pushes.

use crate::data::{Shape, TestData};
use crate::support::{PATIENCE, backends, join, name, shape, storage, storage_config};
use rudder_client::fetch::{FetchError, Fetcher};
use rudder_client::frame_stream::{FrameStream, StreamError};
use rudder_client::frames::{FailReason, Frame};
use rudder_client::handshake::Verbs;
use rudder_client::push::{PushError, Pushed, Pusher};
use rudder_client::put::{PutBegin, PutError, PutFile};
use rudder_dataplane::{BlockFiles, StorageMover, storage::OnPushed};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{
    BlockId, Bytes, BytesPerSecond, DatasetName, PartId, StorageMode, TableName, TransferId,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_client_fetches_directly_in_bounded_pieces() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    let book = Arc::new(data.book.clone());
    for backend in backends() {
        for mode in [StorageMode::Memory, StorageMode::Direct] {
            let storage = storage(&data, mode, backend);
            let dialed = join(&storage, "c0", &data.manifest.name, Verbs::FETCH);
            let mut fetcher = Fetcher::new(dialed, book.clone(), PATIENCE).expect("a fetcher");
            // 133 KB over a limit of 64 KiB a transfer, then with masks.
            let mut items = data.whole_blocks(PartId(0));
            items.extend(data.whole_blocks(PartId(2)));
            items.extend(items.clone().iter().map(|item| BlockRows { mask: 0b101 & item.mask, ..*item }));
            let fetched = fetcher.fetch_packed(&items, Class::Demand).expect("fetched");
            let expected: Vec<u8> = items.iter().flat_map(|&item| data.expected(item)).collect();
            assert!(fetched == expected, "{backend:?} {mode:?}");
            assert!(storage.stats().transfers_served >= 3);
            let unknown = [BlockRows { block: BlockId(4000), mask: 1 }];
            let refused = fetcher.fetch_packed(&unknown, Class::Demand);
            assert!(matches!(refused, Err(FetchError::UnknownRows { item: 0 })), "{refused:?}");
        }
    }
}

#[test]
fn a_session_does_what_its_scope_says_and_no_more() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let storage = storage(&data, StorageMode::Memory, backend);
        let dialed = join(&storage, "c0", &data.manifest.name, Verbs::default());
        let mut frames = FrameStream::new(dialed.stream, &dialed.session);
        let items = vec![BlockRows { block: BlockId(0), mask: 1 }];
        let fetch = Frame::Fetch { transfer: TransferId(4), class: Class::Demand, items };
        frames.send(&fetch, &[]).expect("sent");
        let reason = FailReason::Unauthorised;
        let expected = Frame::Failed { transfer: TransferId(4), item: 0, reason };
        assert_eq!(frames.receive().expect("an answer").0, expected);
        // A push over a session that may only fetch ends it.
        let dialed = join(&storage, "c0", &data.manifest.name, Verbs::FETCH);
        let mut frames = FrameStream::new(dialed.stream, &dialed.session);
        let begin = PutBegin { file: PutFile::Manifest, part: PartId(0), size_bytes: 1, digest: [0; 32] };
        frames.send(&Frame::PutBegin(begin), &[]).expect("sent");
        assert!(matches!(frames.receive(), Err(StreamError::Closed)));
    }
}

#[test]
fn too_much_at_once_is_refused() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let storage = storage(&data, StorageMode::Memory, backend);
        let dialed = join(&storage, "c0", &data.manifest.name, Verbs::FETCH);
        let mut frames = FrameStream::new(dialed.stream, &dialed.session);
        // 63 blocks of 1600 bytes are over 64 KiB.
        let fetch = Frame::Fetch {
            transfer: TransferId(1),
            class: Class::Demand,
            items: data.whole_blocks(PartId(0)),
        };
        frames.send(&fetch, &[]).expect("sent");
        let reason = FailReason::Overloaded;
        let expected = Frame::Failed { transfer: TransferId(1), item: 0, reason };
        assert_eq!(frames.receive().expect("an answer").0, expected);
        assert_eq!(storage.stats().transfers_refused, 1);
    }
}

#[test]
fn an_idle_connection_is_closed_and_blocks_nobody() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let files = BlockFiles::open(&data.directory, StorageMode::Memory, Bytes(0)).expect("opened");
        let mut config = storage_config(root.path(), vec![files], backend);
        config.idle_timeout = Duration::from_millis(50);
        let storage = StorageMover::start(config).expect("started");
        let silent = join(&storage, "c1", &data.manifest.name, Verbs::FETCH);
        // Half a header, then nothing.
        let dripping = join(&storage, "c2", &data.manifest.name, Verbs::FETCH);
        std::io::Write::write_all(&mut &dripping.stream, &[1; 30]).expect("sent");
        for idle in [silent, dripping] {
            let mut frames = FrameStream::new(idle.stream, &idle.session);
            assert!(matches!(frames.receive(), Err(StreamError::Closed)));
        }
        let dialed = join(&storage, "c0", &data.manifest.name, Verbs::FETCH);
        let mut fetcher = Fetcher::new(dialed, Arc::new(data.book.clone()), PATIENCE).expect("a fetcher");
        assert!(fetcher.fetch_packed(&data.whole_blocks(PartId(2)), Class::Demand).is_ok());
    }
}

#[test]
fn a_paced_link_takes_the_time_its_rate_asks_for() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let files = BlockFiles::open(&data.directory, StorageMode::Memory, Bytes(0)).expect("opened");
        let mut config = storage_config(root.path(), vec![files], backend);
        config.link_rate_max = Some(BytesPerSecond(1_000_000));
        config.transfer_bytes_max = Bytes(8 << 10);
        let storage = StorageMover::start(config).expect("started");
        let fetch = |node: &str| {
            let dialed = join(&storage, node, &data.manifest.name, Verbs::FETCH);
            let mut fetcher = Fetcher::new(dialed, Arc::new(data.book.clone()), PATIENCE).expect("a fetcher");
            let start = Instant::now();
            let bytes =
                fetcher.fetch_packed(&data.whole_blocks(PartId(0)), Class::Prefetch).expect("fetched");
            assert_eq!(bytes.len(), 100_000);
            start.elapsed()
        };
        // A lower bound on time: 100 kB less the burst of 64 KiB and one transfer, at 1 MB/s.
        assert!(fetch("c0") >= Duration::from_micros(26_000));
        storage.pace(name("c1"), Some(BytesPerSecond(100_000))).expect("running");
        assert!(fetch("c1") >= Duration::from_micros(260_000));
    }
}

fn push_all(pusher: &mut Pusher, data: &TestData) -> Vec<Result<Pushed, PushError>> {
    let table = TableName::new("feat").expect("a name");
    let files = [
        (PutFile::Features { table: table.clone() }, PartId(0)),
        (PutFile::Checksums { table: table.clone() }, PartId(0)),
        (PutFile::Features { table: table.clone() }, PartId(2)),
        (PutFile::Checksums { table }, PartId(2)),
        (PutFile::Manifest, PartId(0)),
    ];
    let mut results = Vec::new();
    for (file, part) in files {
        let path = data.directory.join(file.relative_path(part));
        results.push(pusher.push(file, part, &path, |_| {}));
    }
    results
}

#[test]
fn a_pushed_dataset_is_served() {
    let source = tempfile::tempdir().expect("a directory");
    let data = TestData::write(source.path(), "d", &shape());
    for backend in backends() {
        let target = tempfile::tempdir().expect("a directory");
        let (pushed, on_pushed) = std::sync::mpsc::channel();
        let mut config = storage_config(target.path(), Vec::new(), backend);
        config.on_pushed = Some(OnPushed(Arc::new(move |name| drop(pushed.send(name)))));
        let storage = StorageMover::start(config).expect("started");
        let dialed = join(&storage, "operator", &data.manifest.name, Verbs::PUSH);
        let mut pusher = Pusher::new(dialed, PATIENCE).expect("a pusher");
        for result in push_all(&mut pusher, &data) {
            let pushed = result.expect("pushed");
            assert_eq!(pushed.sent_bytes, pushed.size_bytes);
        }
        let name: DatasetName = on_pushed.recv_timeout(PATIENCE).expect("told");
        let directory = target.path().join(name.as_str());
        let files = BlockFiles::open(&directory, StorageMode::Memory, Bytes(0)).expect("opened");
        assert_eq!(files.parts(), [PartId(0), PartId(2)]);
        storage.serve(files).expect("running");
        let dialed = join(&storage, "c0", &name, Verbs::FETCH);
        let mut fetcher = Fetcher::new(dialed, Arc::new(data.book.clone()), PATIENCE).expect("a fetcher");
        let items = data.whole_blocks(PartId(2));
        let expected: Vec<u8> = items.iter().flat_map(|&item| data.expected(item)).collect();
        assert_eq!(fetcher.fetch_packed(&items, Class::Demand).expect("fetched"), expected);
        // Again: everything is there, nothing is sent.
        for result in push_all(&mut pusher, &data) {
            assert_eq!(result.expect("pushed").sent_bytes, 0);
        }
        assert_eq!(on_pushed.recv_timeout(PATIENCE).expect("told"), name);
    }
}

#[test]
fn sessions_of_another_version_of_a_dataset_end() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    let other = TestData::write(&root.path().join("other"), "d", &Shape { row_bytes: 50, ..shape() });
    for backend in backends() {
        let storage = storage(&data, StorageMode::Memory, backend);
        let open = |data: &TestData| {
            BlockFiles::open(&data.directory, StorageMode::Memory, Bytes(0)).expect("opened")
        };
        let dialed = join(&storage, "c0", &data.manifest.name, Verbs::FETCH);
        let mut fetcher = Fetcher::new(dialed, Arc::new(data.book.clone()), PATIENCE).expect("a fetcher");
        let items = &data.whole_blocks(PartId(2))[..3];
        assert!(fetcher.fetch_packed(items, Class::Demand).is_ok());
        // The very same again changes nothing for those who are connected.
        storage.serve(open(&data)).expect("running");
        assert!(fetcher.fetch_packed(items, Class::Demand).is_ok());
        storage.serve(open(&other)).expect("running");
        assert!(fetcher.fetch_packed(items, Class::Demand).is_err(), "bytes of another version");
        let dialed = join(&storage, "c0", &data.manifest.name, Verbs::FETCH);
        assert_eq!(dialed.welcome.digest, other.manifest.digest);
    }
}

#[test]
fn a_push_goes_on_where_it_stopped_and_a_wrong_digest_leaves_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    let target = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    let storage =
        StorageMover::start(storage_config(target.path(), Vec::new(), backends()[0])).expect("started");
    let table = TableName::new("feat").expect("a name");
    let file = PutFile::Features { table };
    let path = data.directory.join(file.relative_path(PartId(0)));
    let bytes = std::fs::read(&path).expect("read");
    let dialed = join(&storage, "operator", &data.manifest.name, Verbs::PUSH);
    let mut frames = FrameStream::new(dialed.stream, &dialed.session);
    let begin = |digest| {
        let size_bytes = bytes.len() as u64;
        Frame::PutBegin(PutBegin { file: file.clone(), part: PartId(0), size_bytes, digest })
    };
    // Wrong digest: refused at the end, and gone.
    frames.send(&begin([1; 32]), &[]).expect("sent");
    assert_eq!(frames.receive().expect("an answer").0, Frame::PutStatus(Ok(0)));
    frames.send(&Frame::PutChunk { offset: 0 }, &bytes).expect("sent");
    frames.send(&Frame::PutEnd, &[]).expect("sent");
    assert_eq!(frames.receive().expect("an answer").0, Frame::PutStatus(Err(PutError::Digest)));
    let part = target.path().join("d/parts/0");
    assert_eq!(std::fs::read_dir(&part).expect("a directory").count(), 0);
    // Some of it, then the operator goes away; a gap is refused.
    let right = *blake3::hash(&bytes).as_bytes();
    for (offset, answer) in [(0, None), (50_000, Some(PutError::Offset))] {
        let dialed = join(&storage, "operator", &data.manifest.name, Verbs::PUSH);
        let mut frames = FrameStream::new(dialed.stream, &dialed.session);
        frames.send(&begin(right), &[]).expect("sent");
        assert!(matches!(frames.receive().expect("an answer").0, Frame::PutStatus(Ok(_))));
        frames.send(&Frame::PutChunk { offset }, &bytes[..40_000]).expect("sent");
        if let Some(error) = answer {
            assert_eq!(frames.receive().expect("an answer").0, Frame::PutStatus(Err(error)));
        } else {
            // The answer to an end too early says that the chunk was taken.
            frames.send(&Frame::PutEnd, &[]).expect("sent");
            assert_eq!(frames.receive().expect("an answer").0, Frame::PutStatus(Err(PutError::Offset)));
        }
    }
    let dialed = join(&storage, "operator", &data.manifest.name, Verbs::PUSH);
    let mut pusher = Pusher::new(dialed, PATIENCE).expect("a pusher");
    let pushed = pusher.push(file, PartId(0), &path, |_| {}).expect("pushed");
    assert_eq!(pushed.sent_bytes, pushed.size_bytes - 40_000);
    assert_eq!(std::fs::read(part.join("feat.npy")).expect("read"), bytes);
    assert_eq!(std::fs::read_dir(&part).expect("a directory").count(), 1);
    // A manifest of another dataset is not taken under this name.
    let other = TestData::write(root.path(), "other", &shape());
    let refused = pusher.push(PutFile::Manifest, PartId(0), &other.directory.join("dataset.toml"), |_| {});
    assert!(matches!(refused, Err(PushError::Refused(PutError::Manifest))), "{refused:?}");
}

#[test]
fn demand_overtakes_prefetch_that_waits_and_nobody_is_starved() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let files = BlockFiles::open(&data.directory, StorageMode::Memory, Bytes(0)).expect("opened");
        let mut config = storage_config(root.path(), vec![files], backend);
        config.link_rate_max = Some(BytesPerSecond(300_000));
        let storage = StorageMover::start(config).expect("started");
        let dialed = join(&storage, "c0", &data.manifest.name, Verbs::FETCH);
        let mut frames = FrameStream::new(dialed.stream, &dialed.session);
        let blocks = data.whole_blocks(PartId(0));
        // 160 kB of prefetch against a burst of 64 KiB, then one block that a trainer waits for.
        for id in 0..20 {
            let items = blocks[id * 3..id * 3 + 5].to_vec();
            let fetch = Frame::Fetch { transfer: TransferId(id as u64), class: Class::Prefetch, items };
            frames.send(&fetch, &[]).expect("sent");
        }
        let items = blocks[..1].to_vec();
        frames
            .send(&Frame::Fetch { transfer: TransferId(99), class: Class::Demand, items }, &[])
            .expect("sent");
        let mut order = Vec::new();
        while order.len() < 21 {
            match frames.receive().expect("an answer").0 {
                Frame::Rows { transfer, .. } => order.push(transfer.0),
                other => panic!("{other:?}"),
            }
        }
        let demand = order.iter().position(|&id| id == 99).expect("served");
        assert!(demand < 15, "{order:?}");
        order.remove(demand);
        assert!(order.is_sorted(), "{order:?}");
    }
}

#[test]
fn who_asks_without_reading_the_answers_is_dropped() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    for backend in backends() {
        let storage = storage(&data, StorageMode::Memory, backend);
        let dialed = join(&storage, "c0", &data.manifest.name, Verbs::FETCH);
        dialed.stream.set_write_timeout(Some(Duration::from_millis(50))).expect("set");
        let mut frames = FrameStream::new(dialed.stream, &dialed.session);
        // Until it does not go on: the sockets' buffers are full, or the other end has closed.
        while frames.send(&Frame::Ping, &[]).is_ok() {}
        let start = Instant::now();
        while storage.stats().connections > 0 {
            assert!(start.elapsed() < PATIENCE, "{backend:?}: still connected");
            std::thread::yield_now();
        }
    }
}
