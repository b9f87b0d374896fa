//! Storage nodes that serve what others own: `S1` stores part 0 and stages part 2, which `S0` owns.

use crate::data::TestData;
use crate::support::{
    Compute, PATIENCE, S0, TRANSFER_BYTES, backends, bare_storage, compute, join, shape, storage_config,
};
use rudder_client::frame_stream::{FrameStream, StreamError};
use rudder_client::frames::{FailReason, Frame, Last};
use rudder_client::handshake::{Dialed, Verbs};
use rudder_dataplane::{
    BackendChoice, BlockFiles, Destination, OnOwner, Owner, OwnerEvent, StagingConfig, StorageHandle,
    StorageMover, StorageStats, TransferError, TransferItem, TransferRequest,
};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{BlockId, Bytes, DatasetName, NodeId, PartId, StorageMode, TransferId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const OTHER: NodeId = NodeId(9);
const ITEM_BYTES: u64 = 100;

struct Site {
    _root: tempfile::TempDir,
    /// As the importer wrote it.
    data: TestData,
    /// What the storage nodes hold.
    owned: TestData,
    staged: TestData,
    backend: BackendChoice,
}

/// The node that stages, and what it wants of its owners.
struct Stager {
    handle: StorageHandle,
    events: Receiver<OwnerEvent>,
}

fn sites() -> impl Iterator<Item = Site> {
    backends().into_iter().map(|backend| {
        let root = tempfile::tempdir().expect("a directory");
        let write = |folder: &str| TestData::write(&root.path().join(folder), "d", &shape());
        let (data, owned, staged) = (write("all"), write("s0"), write("s1"));
        owned.remove_part(PartId(0));
        staged.remove_part(PartId(2));
        Site { data, owned, staged, backend, _root: root }
    })
}

fn files(data: &TestData) -> BlockFiles {
    BlockFiles::open(&data.directory, StorageMode::Memory, Bytes(0)).expect("opened")
}

impl Site {
    fn name(&self) -> &DatasetName {
        &self.data.manifest.name
    }

    fn owner(&self) -> StorageHandle {
        let config = storage_config(&self.owned.directory, vec![files(&self.owned)], self.backend);
        StorageMover::start(config).expect("started")
    }

    fn stager(&self, change: impl FnOnce(&mut StagingConfig)) -> Stager {
        self.stager_with(change, |_| {})
    }

    fn stager_with(
        &self,
        change: impl FnOnce(&mut StagingConfig),
        change_all: impl FnOnce(&mut rudder_dataplane::StorageConfig),
    ) -> Stager {
        let (told, events) = channel();
        let owners = HashMap::from([(self.name().clone(), vec![vec![], vec![], vec![S0]])]);
        let mut staging = StagingConfig {
            bytes_max: Bytes(1 << 20),
            owners,
            request_timeout: PATIENCE,
            peer_timeout: PATIENCE,
            on_owner: OnOwner(Arc::new(move |event| drop(told.send(event)))),
        };
        change(&mut staging);
        let mut config = storage_config(&self.staged.directory, vec![files(&self.staged)], self.backend);
        config.staging = Some(staging);
        change_all(&mut config);
        Stager { handle: StorageMover::start(config).expect("started"), events }
    }

    fn compute(&self, stager: &Stager) -> Compute {
        let compute = compute(&self.data.book, self.backend, PATIENCE, TRANSFER_BYTES);
        compute.attach(join(&stager.handle, "c0", self.name(), Verbs::FETCH));
        compute
    }

    fn bare_compute(&self, stager: &Stager) -> FrameStream {
        bare(join(&stager.handle, "c0", self.name(), Verbs::FETCH))
    }

    /// An owner whose answers are the test's.
    fn bare_owner(&self, stager: &Stager) -> FrameStream {
        let owner = stager.wanted();
        let (dialed, frames) = bare_storage(self.name());
        stager.up(&owner, dialed);
        frames.socket().set_read_timeout(Some(PATIENCE)).expect("set");
        frames
    }

    /// Blocks of the part that is staged.
    fn foreign(&self) -> Vec<BlockRows> {
        self.data.whole_blocks(PartId(2))
    }

    fn expected(&self, items: &[BlockRows]) -> Vec<u8> {
        items.iter().flat_map(|&item| self.data.expected(item)).collect()
    }
}

impl Stager {
    fn wanted(&self) -> Owner {
        match self.events.recv_timeout(PATIENCE).expect("an event") {
            OwnerEvent::Wanted(owner) => owner,
            other => panic!("{other:?}"),
        }
    }

    fn up(&self, owner: &Owner, dialed: Dialed) {
        let Dialed { stream, session, welcome } = dialed;
        self.handle.owner_up(owner.relay, owner.node, welcome.generation, stream, session).expect("running");
    }

    /// Dials the owner that is wanted.
    fn dial(&self, owner: &StorageHandle, dataset: &DatasetName) -> Owner {
        let wanted = self.wanted();
        self.up(&wanted, join(owner, "s1", dataset, Verbs::FETCH));
        wanted
    }

    fn await_stats(&self, what: &str, holds: impl Fn(&StorageStats) -> bool) {
        comes_true(|| holds(&self.handle.stats()), || format!("{what}: {:?}", self.handle.stats()));
    }
}

/// Gives other threads the time that they need, and far more.
fn comes_true(holds: impl Fn() -> bool, otherwise: impl Fn() -> String) {
    for _ in 0..30_000_000 {
        if holds() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{}", otherwise());
}

fn bare(dialed: Dialed) -> FrameStream {
    dialed.stream.set_read_timeout(Some(PATIENCE)).expect("set");
    FrameStream::new(dialed.stream, &dialed.session)
}

fn submit(compute: &Compute, id: u64, class: Class, items: &[BlockRows]) {
    let items = items.iter().map(|&rows| TransferItem { rows, to: Destination::Private }).collect();
    compute.handle.submit(TransferRequest { id: TransferId(id), node: S0, class, items }).expect("running");
}

/// What comes of one request.
fn fetch(compute: &Compute, id: u64, items: &[BlockRows]) -> Result<Vec<u8>, TransferError> {
    submit(compute, id, Class::Demand, items);
    next(compute, id)
}

fn next(compute: &Compute, id: u64) -> Result<Vec<u8>, TransferError> {
    let completion = compute.completion();
    assert_eq!(completion.transfer, TransferId(id));
    completion.result.map(|arrived| arrived.private.expect("private rows"))
}

fn upstream(item: u32) -> TransferError {
    TransferError::Refused { item, reason: FailReason::Upstream }
}

/// The next Fetch that a bare owner gets.
fn asked(owner: &mut FrameStream) -> (TransferId, Class, Vec<BlockRows>) {
    match owner.receive().expect("a request").0 {
        Frame::Fetch { transfer, class, items } => (transfer, class, items),
        other => panic!("{other:?}"),
    }
}

fn answer(owner: &mut FrameStream, site: &Site, transfer: TransferId, items: &[BlockRows]) {
    let rows = Frame::Rows { transfer, first_item: 0, items: items.len() as u32, last: Last::Last };
    owner.send(&rows, &site.expected(items)).expect("sent");
}

#[test]
fn what_another_node_owns_is_fetched_once_and_then_served_from_the_copy() {
    for site in sites() {
        let (owner, stager) = (site.owner(), site.stager(|_| {}));
        let compute = site.compute(&stager);
        let blocks = site.foreign();
        let masked: Vec<_> =
            blocks.iter().map(|&rows| BlockRows { mask: rows.mask & 0x0555, ..rows }).collect();
        submit(&compute, 0, Class::Demand, &masked);
        let wanted = stager.dial(&owner, site.name());
        assert_eq!((wanted.node, &wanted.parts[..]), (S0, &[PartId(2)][..]));
        assert_eq!((&wanted.dataset, &wanted.digest), (site.name(), &site.data.manifest.digest));
        assert_eq!(next(&compute, 0).expect("arrived"), site.expected(&masked));
        // The rest of them, then all again, out of order and twice: no row comes from the owner a second time.
        assert_eq!(fetch(&compute, 1, &blocks).expect("arrived"), site.expected(&blocks));
        let mut again = blocks.clone();
        again.reverse();
        again.truncate(15);
        again.extend_from_within(..5);
        for id in 2..5 {
            assert_eq!(fetch(&compute, id, &again).expect("arrived"), site.expected(&again));
        }
        let (sent, staged) = (owner.stats(), stager.handle.stats());
        assert_eq!(sent.bytes_demand, 333 * ITEM_BYTES);
        assert_eq!((staged.rows_relayed, staged.staged_blocks, staged.staged_bytes), (333, 21, 33_300));
        let served: u32 =
            [&masked, &blocks].into_iter().chain([&again; 3]).flatten().map(|rows| rows.rows()).sum();
        assert_eq!(staged.staged_rows_served, u64::from(served));
        assert_eq!(staged.bytes_demand, u64::from(served) * ITEM_BYTES);
        // Its own blocks are served as before.
        let own = &site.data.whole_blocks(PartId(0))[..7];
        assert_eq!(fetch(&compute, 9, own).expect("arrived"), site.expected(own));
        assert_eq!(owner.stats().transfers_served, 2);
        stager.handle.stop(PATIENCE).expect("stopped");
    }
}

#[test]
fn copies_go_where_there_is_no_room_and_come_again() {
    for site in sites() {
        // Five blocks of 1600 bytes.
        let (owner, stager) = (site.owner(), site.stager(|staging| staging.bytes_max = Bytes(8000)));
        let compute = site.compute(&stager);
        let blocks = site.foreign();
        submit(&compute, 0, Class::Prefetch, &blocks[..3]);
        stager.dial(&owner, site.name());
        assert_eq!(next(&compute, 0).expect("arrived"), site.expected(&blocks[..3]));
        for id in 1..60 {
            let start = id as usize * 7 % 17;
            let items = &blocks[start..start + 4];
            assert_eq!(fetch(&compute, id, items).expect("arrived"), site.expected(items));
            assert!(stager.handle.stats().staged_bytes <= 8000);
        }
        assert!(stager.handle.stats().rows_relayed > 333, "some came more than once");
        // More at once than there is room for.
        assert_eq!(fetch(&compute, 99, &blocks[..6]), Err(upstream(0)));
        assert_eq!(fetch(&compute, 100, &blocks[..5]).expect("arrived"), site.expected(&blocks[..5]));
    }
}

#[test]
fn an_owner_that_cannot_be_reached_is_said_at_once_and_asked_again_when_it_is_back() {
    for site in sites() {
        let (owner, stager) = (site.owner(), site.stager(|_| {}));
        let compute = site.compute(&stager);
        let items = &site.foreign()[..4];
        submit(&compute, 0, Class::Demand, items);
        let wanted = stager.wanted();
        stager.handle.owner_down(wanted.relay, wanted.node).expect("running");
        assert_eq!(next(&compute, 0), Err(upstream(0)));
        assert_eq!(fetch(&compute, 1, items), Err(upstream(0)), "nobody waits for it");
        stager.up(&wanted, join(&owner, "s1", site.name(), Verbs::FETCH));
        assert_eq!(fetch(&compute, 2, items).expect("arrived"), site.expected(items));
        owner.stop(PATIENCE).expect("stopped");
        match stager.events.recv_timeout(PATIENCE).expect("an event") {
            OwnerEvent::Lost(relay, lost) => assert_eq!((relay, lost.node), (wanted.relay, S0)),
            other => panic!("{other:?}"),
        }
        // What is here is served all the same.
        assert_eq!(fetch(&compute, 3, items).expect("arrived"), site.expected(items));
        assert_eq!(fetch(&compute, 4, &site.foreign()[4..6]), Err(upstream(0)));
        let back = site.owner();
        stager.up(&wanted, join(&back, "s1", site.name(), Verbs::FETCH));
        assert_eq!(fetch(&compute, 5, &site.foreign()).expect("arrived"), site.expected(&site.foreign()));
    }
}

#[test]
fn a_session_of_an_owner_that_nobody_wanted_is_dropped() {
    for site in sites() {
        let stager = site.stager(|_| {});
        let compute = site.compute(&stager);
        submit(&compute, 0, Class::Demand, &site.foreign()[..1]);
        let wanted = stager.wanted();
        // Pushed anew: the former life of the dataset is over, its sessions come too late.
        stager.handle.serve(files(&site.staged)).expect("running");
        assert_eq!(next(&compute, 0), Err(upstream(0)));
        assert!(
            matches!(stager.events.recv_timeout(PATIENCE), Ok(OwnerEvent::Ended(id)) if id == wanted.relay)
        );
        let (late, mut owner_end) = bare_storage(site.name());
        stager.up(&wanted, late);
        assert!(matches!(owner_end.receive(), Err(StreamError::Closed)));
        let owner = site.owner();
        submit(&compute, 1, Class::Demand, &site.foreign()[..1]);
        let anew = stager.dial(&owner, site.name());
        assert_ne!(anew.relay, wanted.relay);
        assert!(next(&compute, 1).is_ok());
    }
}

fn owner_has(owner: &StorageHandle, connections: u64) {
    comes_true(|| owner.stats().connections == connections, || format!("{:?}", owner.stats()));
}

#[test]
fn the_copies_go_when_the_dataset_is_pushed_anew() {
    for site in sites() {
        let (owner, stager) = (site.owner(), site.stager(|_| {}));
        let compute = site.compute(&stager);
        let items = &site.foreign()[..4];
        submit(&compute, 0, Class::Demand, items);
        let wanted = stager.dial(&owner, site.name());
        assert!(next(&compute, 0).is_ok());
        stager.handle.serve(files(&site.staged)).expect("running");
        stager.await_stats("copies", |stats| stats.staged_bytes == 0 && stats.staged_blocks == 0);
        assert!(
            matches!(stager.events.recv_timeout(PATIENCE), Ok(OwnerEvent::Ended(id)) if id == wanted.relay)
        );
        owner_has(&owner, 0);
        submit(&compute, 1, Class::Demand, items);
        stager.dial(&owner, site.name());
        assert_eq!(next(&compute, 1).expect("arrived"), site.expected(items));
        assert_eq!(stager.handle.stats().rows_relayed, 128);
    }
}

#[test]
fn who_waits_holds_nobody_up_and_what_comes_is_kept_whoever_has_left() {
    for site in sites() {
        let stager = site.stager(|_| {});
        let (first, second) = (site.compute(&stager), site.compute(&stager));
        let blocks = site.foreign();
        submit(&first, 0, Class::Prefetch, &blocks[..2]);
        let mut owner = site.bare_owner(&stager);
        let (id, class, items) = asked(&mut owner);
        assert_eq!((class, &items[..]), (Class::Prefetch, &blocks[..2]), "as it was asked for");
        answer(&mut owner, &site, id, &items);
        assert!(next(&first, 0).is_ok());
        // A request waits; what is here and what is stored here is served meanwhile.
        submit(&first, 1, Class::Demand, &blocks[1..4]);
        let (id, class, items) = asked(&mut owner);
        assert_eq!((class, &items[..]), (Class::Demand, &blocks[2..4]), "only what is not here");
        assert_eq!(fetch(&first, 2, &blocks[..2]).expect("arrived"), site.expected(&blocks[..2]));
        let own = &site.data.whole_blocks(PartId(0))[..2];
        assert_eq!(fetch(&first, 3, own).expect("arrived"), site.expected(own));
        assert_eq!(stager.handle.stats().queued, 1);
        // The other one waits for the same rows and asks the owner for nothing. The first one leaves.
        submit(&second, 1, Class::Demand, &blocks[3..4]);
        stager.await_stats("two wait", |stats| stats.queued == 2);
        first.handle.cancel(TransferId(1)).expect("running");
        assert_eq!(next(&first, 1), Err(TransferError::Cancelled));
        stager.await_stats("one waits", |stats| stats.queued == 1 && stats.queued_bytes == 1600);
        answer(&mut owner, &site, id, &items);
        assert_eq!(next(&second, 1).expect("arrived"), site.expected(&blocks[3..4]));
        assert_eq!(fetch(&first, 4, &blocks[..4]).expect("arrived"), site.expected(&blocks[..4]));
        // A connection that ends leaves nothing that waits; what was asked for is kept all the same.
        submit(&second, 2, Class::Demand, &blocks[4..5]);
        let (id, _, items) = asked(&mut owner);
        second.handle.stop(PATIENCE).expect("stopped");
        stager.await_stats("nobody waits", |stats| stats.queued == 0 && stats.connections == 1);
        answer(&mut owner, &site, id, &items);
        stager.await_stats("rows", |stats| stats.rows_relayed == 80);
        assert_eq!(fetch(&first, 5, &items).expect("arrived"), site.expected(&items));
    }
}

#[test]
fn an_owner_that_does_not_answer_is_given_up_in_time() {
    for site in sites() {
        let stager = site.stager(|staging| staging.request_timeout = Duration::from_millis(60));
        let compute = site.compute(&stager);
        let items = &site.foreign()[..2];
        // Nobody dials.
        assert_eq!(fetch(&compute, 0, items), Err(upstream(0)));
        let mut owner = site.bare_owner(&stager);
        assert_eq!(fetch(&compute, 1, items), Err(upstream(0)));
        let (id, ..) = asked(&mut owner);
        assert_eq!(owner.receive().expect("a frame").0, Frame::Cancel { transfer: id });
        // Too late, and no harm.
        answer(&mut owner, &site, id, items);
        submit(&compute, 2, Class::Demand, items);
        let (id, ..) = asked(&mut owner);
        answer(&mut owner, &site, id, items);
        // In time or not, the bytes are right.
        match next(&compute, 2) {
            Ok(bytes) => assert_eq!(bytes, site.expected(items)),
            Err(error) => assert_eq!(error, upstream(0)),
        }
    }
}

#[test]
fn the_next_owner_is_asked_where_one_fails() {
    for site in sites() {
        site.owned.corrupt(site.foreign()[2].block);
        let both = |staging: &mut StagingConfig| {
            let parts = staging.owners.get_mut(site.name()).expect("the dataset");
            parts[2] = vec![S0, OTHER];
        };
        let stager = site.stager(both);
        let compute = site.compute(&stager);
        let items = &site.foreign()[..4];
        submit(&compute, 0, Class::Demand, items);
        let (cheap, other) = (stager.wanted(), stager.wanted());
        assert_eq!((cheap.node, other.node), (S0, OTHER));
        // One has a corrupt copy, the other one a good one.
        let owner = site.owner();
        stager.up(&cheap, join(&owner, "s1", site.name(), Verbs::FETCH));
        let good =
            StorageMover::start(storage_config(&site.data.directory, vec![files(&site.data)], site.backend));
        let good = good.expect("started");
        stager.up(&other, join(&good, "s1", site.name(), Verbs::FETCH));
        assert_eq!(next(&compute, 0).expect("arrived"), site.expected(items));
        assert_eq!(owner.stats().blocks_corrupt, 1);
        // It may be that the other one has a good copy of this one, but it is gone.
        site.owned.corrupt(site.foreign()[9].block);
        good.stop(PATIENCE).expect("stopped");
        assert!(
            matches!(stager.events.recv_timeout(PATIENCE), Ok(OwnerEvent::Lost(_, lost)) if lost.node == OTHER)
        );
        let owner = StorageMover::start(storage_config(
            &site.owned.directory,
            vec![files(&site.owned)],
            site.backend,
        ));
        stager.up(&cheap, join(&owner.expect("started"), "s1", site.name(), Verbs::FETCH));
        assert_eq!(fetch(&compute, 1, &site.foreign()[8..10]), Err(upstream(0)));
    }
}

#[test]
fn a_block_of_which_no_owner_has_a_good_copy_is_corrupt() {
    for site in sites() {
        let blocks = site.foreign();
        site.owned.corrupt(blocks[2].block);
        let (owner, stager) = (site.owner(), site.stager(|_| {}));
        let compute = site.compute(&stager);
        submit(&compute, 0, Class::Demand, &blocks[..4]);
        stager.dial(&owner, site.name());
        assert_eq!(next(&compute, 0), Err(TransferError::Corrupt { item: 2 }));
        assert_eq!(fetch(&compute, 1, &blocks[..2]).expect("arrived"), site.expected(&blocks[..2]));
    }
}

#[test]
fn requests_that_cannot_be_are_refused_with_the_reason() {
    for site in sites() {
        let stager = site.stager(|_| {});
        let mut compute = site.bare_compute(&stager);
        let (own, foreign) = (site.data.whole_blocks(PartId(0))[0], site.foreign()[0]);
        let last = site.foreign()[20];
        let unknown = BlockRows { block: BlockId(4000), mask: 1 };
        let no_such_row = BlockRows { mask: last.mask | 1 << 13, ..last };
        let cases: [(Vec<BlockRows>, u32, FailReason); 6] = [
            (vec![own, foreign], 1, FailReason::NotStored),
            (vec![foreign, own], 0, FailReason::NotStored),
            (vec![foreign, unknown], 1, FailReason::UnknownBlock),
            (vec![foreign, no_such_row], 1, FailReason::UnknownBlock),
            (vec![BlockRows { mask: 1 << 63, ..foreign }], 0, FailReason::UnknownBlock),
            ([site.foreign(), site.foreign()].concat(), 0, FailReason::Overloaded),
        ];
        for (number, (items, item, reason)) in cases.into_iter().enumerate() {
            let transfer = TransferId(number as u64);
            compute.send(&Frame::Fetch { transfer, class: Class::Demand, items }, &[]).expect("sent");
            assert_eq!(
                compute.receive().expect("an answer").0,
                Frame::Failed { transfer, item, reason },
                "{number}"
            );
        }
        assert!(stager.events.try_recv().is_err(), "nobody was asked");
        assert_eq!(stager.handle.stats().staged_bytes, 0);
    }
}

#[test]
fn what_waits_counts_as_queued_and_an_id_used_twice_harms_nobody() {
    for site in sites() {
        let stager = site.stager_with(|_| {}, |config| config.queue_bytes_max = Bytes(4000));
        let (mut rogue, honest) = (site.bare_compute(&stager), site.compute(&stager));
        let blocks = site.foreign();
        let ask = |rogue: &mut FrameStream, id: u64, items: &[BlockRows]| {
            let fetch =
                Frame::Fetch { transfer: TransferId(id), class: Class::Demand, items: items.to_vec() };
            rogue.send(&fetch, &[]).expect("sent");
        };
        ask(&mut rogue, 1, &blocks[..2]);
        let mut owner = site.bare_owner(&stager);
        let (first, _, items) = asked(&mut owner);
        ask(&mut rogue, 2, &blocks[2..3]);
        let refused = Frame::Failed { transfer: TransferId(2), item: 0, reason: FailReason::Upstream };
        assert_eq!(rogue.receive().expect("an answer").0, refused);
        // The same id for something else, before and after the first is there.
        rogue.send(&Frame::Cancel { transfer: TransferId(1) }, &[]).expect("sent");
        ask(&mut rogue, 1, &blocks[1..2]);
        ask(&mut rogue, 1, &blocks[..1]);
        submit(&honest, 1, Class::Demand, &blocks[..2]);
        stager.await_stats("the honest one waits", |stats| stats.queued >= 2);
        answer(&mut owner, &site, first, &items);
        assert_eq!(next(&honest, 1).expect("arrived"), site.expected(&blocks[..2]));
        ask(&mut rogue, 7, &blocks[..1]);
        loop {
            if let (Frame::Rows { transfer: TransferId(7), .. }, _, rows) =
                rogue.receive().expect("an answer")
            {
                assert_eq!(rows, site.expected(&blocks[..1]));
                break;
            }
        }
        drop(rogue);
        stager.await_stats("nothing is left", |stats| stats.queued == 0 && stats.connections == 1);
    }
}

#[test]
fn a_node_with_no_memory_for_copies_stages_nothing() {
    for site in sites() {
        let stager = site.stager(|staging| staging.bytes_max = Bytes(0));
        let compute = site.compute(&stager);
        let refused = TransferError::Refused { item: 0, reason: FailReason::NotStored };
        assert_eq!(fetch(&compute, 0, &site.foreign()[..1]), Err(refused.clone()));
        // Nor does one that is an owner itself and has lost its files: owners ask nobody.
        let owns = |staging: &mut StagingConfig| staging.owners.get_mut(site.name()).expect("it")[2].clear();
        let stager = site.stager(owns);
        let compute = site.compute(&stager);
        assert_eq!(fetch(&compute, 0, &site.foreign()[..1]), Err(refused));
        assert!(stager.events.try_recv().is_err());
    }
}
