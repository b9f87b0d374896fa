//! A small world around one engine, for tests: storage that answers in any order, memory whose content is known,
//! and checks after every move. Not a simulation of time; order is all that matters here.

use crate::advice::state::StorageState;
use crate::engine::{Engine, EngineConfig};
use crate::parameters::Parameters;
use crate::step::{Command, Destination, Outcome, Reaction, TrainerId, Transfer};
use rudder_graph::location::{LOCAL_MAPPINGS, Location, PRIVATE_MAPPING};
use rudder_graph::manifest::FEATURE_DATA_OFFSET;
use rudder_graph::{Dtype, Manifest, PartitionBook, TableSpec};
use rudder_topology::{
    Bytes, BytesPerSecond, ChunkId, DatasetName, Generation, JobId, Limits, LinkCost, MinibatchId, Nanos,
    NodeId, PolicySpec, TableId, TableName, TrainerRank,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A dataset of two tables: rows of 8 bytes, `rows` of them, spread evenly over `parts`.
#[must_use]
pub fn book(rows: u64, parts: u64, rows_per_block: u32) -> PartitionBook {
    tables(&["x", "y"], rows, parts, 2, rows_per_block)
}

/// A dataset of one table of `rows` rows of `dim` f32, spread evenly over `parts`.
#[must_use]
pub fn book_of_one(rows: u64, parts: u64, dim: u32, rows_per_block: u32) -> PartitionBook {
    tables(&["x"], rows, parts, dim, rows_per_block)
}

fn tables(names: &[&str], rows: u64, parts: u64, dim: u32, rows_per_block: u32) -> PartitionBook {
    let offsets: Vec<u64> = (0..=parts).map(|p| rows * p / parts).collect();
    let table = |name: &&str| TableSpec {
        name: TableName::new(*name).expect("a name"),
        dim,
        dtype: Dtype::F32,
        rows_per_block,
        row_offsets: offsets.clone(),
    };
    PartitionBook::new(&Manifest {
        format: 1,
        name: DatasetName::new("test").expect("a name"),
        vertices: rows,
        edges: 0,
        digest: String::new(),
        part_offsets: offsets.clone(),
        graphs: vec![],
        tables: names.iter().map(table).collect(),
        files: vec![],
        notes: vec![],
    })
}

/// A storage node that is up, at ease, and stores nothing alone.
#[must_use]
pub fn storage_state(node: NodeId) -> StorageState {
    StorageState { node, up: true, load: 0.4, replicated: 1.0, stages: true, cached: vec![] }
}

/// What a row holds in the known content: its table and number.
type Row = (u16, u64);

/// A minibatch of a trainer.
pub type Key = (TrainerId, MinibatchId);
/// Rows per table.
pub type Asked = Vec<(TableId, Vec<u32>)>;
/// Locations per table.
pub type Told = Vec<(TableId, Vec<Location>)>;

pub struct World {
    pub engine: Engine,
    pub book: PartitionBook,
    pub now_ns: u64,
    pub in_flight: Vec<Transfer>,
    /// Content of slots by (chunk, offset).
    memory: HashMap<(ChunkId, u64), Row>,
    private: BTreeMap<Key, Vec<u8>>,
    /// What was announced and not released.
    pub announced: BTreeMap<Key, Asked>,
    /// Where ready minibatches were said to be.
    pub ready: BTreeMap<Key, Told>,
    pub failed: Vec<Key>,
    pub generation: Generation,
    limits: Limits,
}

/// Announced, unreleased minibatches of a trainer, where the policy does not look further.
pub const CREDITS: u32 = 6;

#[must_use]
pub fn trainer(rank: u32) -> TrainerId {
    TrainerId { job: JobId(0), rank: TrainerRank(rank) }
}

impl World {
    /// `parts` parts on as many storage nodes, part 0 co-located if `local`; every part also on the next node.
    #[must_use]
    pub fn new(book: PartitionBook, cache_bytes: u64, policy: PolicySpec, local: &[u16]) -> Self {
        // Rudder needs none, and with one it would guess.
        let rank = |block: u32| if policy == PolicySpec::RUDDER { 0 } else { block * 7919 % 13 };
        let prior = (0..book.blocks()).map(|block| rank(block) as f32).collect();
        World::with_prior(book, cache_bytes, policy, local, prior)
    }

    /// As [`World::new`], where the blocks' prior counts.
    #[must_use]
    pub fn with_prior(
        book: PartitionBook,
        cache_bytes: u64,
        policy: PolicySpec,
        local: &[u16],
        prior: Arc<[f32]>,
    ) -> Self {
        let parts = book.parts() as u16;
        let cost = LinkCost { bandwidth: BytesPerSecond(1 << 20), latency: Nanos(1000) };
        let replicas = (0..parts).map(|p| match local.contains(&p) {
            true => vec![],
            false => vec![(NodeId(p), cost), (NodeId((p + 1) % parts), cost)],
        });
        let limits = Limits {
            link_in_flight_bytes: Bytes(256),
            node_in_flight_bytes: Bytes(1024),
            transfer_bytes_max: Bytes(64),
            ..Limits::default()
        };
        let engine = Engine::new(EngineConfig {
            book: book.clone(),
            cache_bytes: Bytes(cache_bytes),
            replicas: replicas.collect(),
            limits,
            parameters: Parameters::default(),
            policy,
            prior: Some(prior),
            credits: CREDITS.max(policy.look_ahead_minibatches().map_or(0, |ahead| ahead + 2)),
            ready_ahead: 1,
        });
        let mut world = World {
            engine: engine.expect("the cache holds a block"),
            book,
            now_ns: 0,
            in_flight: vec![],
            memory: HashMap::new(),
            private: BTreeMap::new(),
            announced: BTreeMap::new(),
            ready: BTreeMap::new(),
            failed: vec![],
            generation: Generation(1),
            limits,
        };
        for node in 0..parts {
            world.link_up(NodeId(node));
        }
        world
    }

    /// What a directive does.
    pub fn set_parameters(&mut self, change: impl FnOnce(&mut Parameters)) {
        let mut next = self.engine.parameters().clone();
        next.version += 1;
        change(&mut next);
        let reaction = self.engine.set_parameters(next).expect("parameters within their bounds");
        self.react(reaction);
    }

    /// The cache has so many bytes from now on, at most those that it was made with.
    pub fn resize(&mut self, bytes: u64) {
        let reaction = self.engine.resize_cache(Bytes(bytes)).expect("bytes within bounds");
        self.react(reaction);
    }

    /// Plans, validates and carries out what follows from a stage.
    pub fn carry_out(&mut self, reaction: Reaction) {
        self.react(reaction);
    }

    fn react(&mut self, reaction: Reaction) {
        self.now_ns += 1_000_000;
        for command in self.engine.settle(reaction, self.now_ns) {
            match command {
                Command::Fetch(transfer) => self.in_flight.push(transfer),
                Command::Cancel { transfer, .. } => self.in_flight.retain(|t| t.id != transfer),
                Command::Ready { trainer, minibatch, tables } => {
                    self.ready.insert((trainer, minibatch), tables);
                    self.check_bytes(trainer, minibatch);
                }
                Command::Piece { trainer, minibatch, bytes } => {
                    self.private.entry((trainer, minibatch)).or_default().extend(bytes);
                }
                Command::Fail { trainer, minibatch, .. } => self.failed.push((trainer, minibatch)),
                Command::WakeAt { .. } => {}
            }
        }
        self.check();
    }

    /// Blocks that could go but that no order knows would hold their slots for ever.
    pub fn refusals(&self) -> u64 {
        self.engine.statistics().steps_refused
    }

    pub fn link_up(&mut self, node: NodeId) {
        self.generation.0 += 1;
        let reaction = self.engine.link_up(node, self.generation, self.now_ns);
        self.react(reaction);
    }

    pub fn link_down(&mut self, node: NodeId) {
        let reaction = self.engine.link_down(node, self.now_ns);
        self.react(reaction);
    }

    pub fn connect(&mut self, trainer: TrainerId) {
        self.engine.connect(trainer);
    }

    pub fn disconnect(&mut self, trainer: TrainerId) {
        let reaction = self.engine.disconnect(trainer);
        self.announced.retain(|key, _| key.0 != trainer);
        self.ready.retain(|key, _| key.0 != trainer);
        self.private.retain(|key, _| key.0 != trainer);
        self.react(reaction);
    }

    pub fn announce(&mut self, trainer: TrainerId, minibatch: u64, tables: Vec<(TableId, Vec<u32>)>) {
        let minibatch = MinibatchId(minibatch);
        let reaction = self.engine.announce(trainer, minibatch, &tables).expect("announced in order");
        self.announced.insert((trainer, minibatch), tables);
        self.react(reaction);
    }

    /// A replay says what the trainer will announce.
    pub fn foresee(&mut self, trainer: TrainerId, minibatch: u64, tables: &[(TableId, Vec<u32>)]) {
        let reaction = self.engine.foresee(trainer, MinibatchId(minibatch), tables).expect("room, in order");
        self.react(reaction);
    }

    pub fn want(&mut self, trainer: TrainerId, minibatch: u64) {
        let reaction = self.engine.want(trainer, MinibatchId(minibatch), self.now_ns).expect("announced");
        self.react(reaction);
    }

    pub fn release(&mut self, trainer: TrainerId, minibatch: u64) {
        let minibatch = MinibatchId(minibatch);
        if self.ready.contains_key(&(trainer, minibatch)) {
            // Pinned until now: what it was told is still there.
            self.check_bytes(trainer, minibatch);
        }
        let reaction = self.engine.release(trainer, minibatch, self.now_ns).expect("announced");
        self.announced.remove(&(trainer, minibatch));
        self.ready.remove(&(trainer, minibatch));
        self.private.remove(&(trainer, minibatch));
        self.react(reaction);
    }

    /// The i-th transfer in flight arrives.
    pub fn arrive(&mut self, i: usize) {
        let transfer = self.in_flight.remove(i);
        let mut private = vec![];
        for item in &transfer.items {
            let place = self.book.block(item.rows.block).expect("a block that exists");
            let first = self.first_row(item.rows.block);
            for row in (0..64).filter(|row| item.rows.mask >> row & 1 == 1) {
                let content = (place.table.0, first + row);
                match item.to {
                    Destination::Slot { chunk, offset } => {
                        let at = (chunk, offset + row * u64::from(place.row_bytes));
                        self.memory.insert(at, content);
                    }
                    Destination::Private => private.extend(encode(content)),
                }
            }
        }
        let outcome = Outcome::Arrived { private };
        let reaction = self.engine.complete(transfer.id, transfer.generation, outcome, self.now_ns);
        self.react(reaction);
    }

    /// The i-th transfer in flight ends otherwise.
    pub fn end(&mut self, i: usize, outcome: Outcome) {
        let transfer = self.in_flight.remove(i);
        let reaction = self.engine.complete(transfer.id, transfer.generation, outcome, self.now_ns);
        self.react(reaction);
    }

    fn first_row(&self, block: rudder_topology::BlockId) -> u64 {
        let place = self.book.block(block).expect("a block that exists");
        let per_block = u64::from(self.book.rows_per_block(place.table).expect("a table"));
        let parts = self.book.parts() as u64;
        let start = self.book.rows(place.table) * u64::from(place.part.0) / parts;
        start + u64::from(place.index) * per_block
    }

    /// Every row of a ready minibatch is where it was said to be.
    fn check_bytes(&self, trainer: TrainerId, minibatch: MinibatchId) {
        let tables = &self.ready[&(trainer, minibatch)];
        let asked = &self.announced[&(trainer, minibatch)];
        assert_eq!(tables.len(), asked.len());
        for ((table, locations), (_, rows)) in tables.iter().zip(asked) {
            assert_eq!(locations.len(), rows.len());
            for (&location, &row) in locations.iter().zip(rows) {
                let want = (table.0, u64::from(row));
                assert_eq!(self.read(trainer, minibatch, *table, location), Some(want), "{location:?}");
            }
        }
    }

    fn read(&self, trainer: TrainerId, minibatch: MinibatchId, table: TableId, at: Location) -> Option<Row> {
        let parts = self.book.parts() as u64;
        match at.mapping() {
            PRIVATE_MAPPING => {
                let bytes = self.private.get(&(trainer, minibatch))?;
                let at = at.offset() as usize;
                Some(decode(bytes.get(at..at + 8)?))
            }
            local if local >= LOCAL_MAPPINGS => {
                let part = u64::from(local - LOCAL_MAPPINGS) % parts;
                let row = (at.offset() - FEATURE_DATA_OFFSET) / 8;
                Some((table.0, self.book.rows(table) * part / parts + row))
            }
            chunk => self.memory.get(&(ChunkId(chunk), at.offset())).copied(),
        }
    }

    /// What must hold after every move.
    fn check(&self) {
        let view = self.engine.view();
        let (used, all) = view.cache.occupancy_bytes();
        assert!(used <= all, "resident bytes within capacity");
        for block in view.cache.resident().filter(|&block| view.cache.is_stranded(block)) {
            let held = view.cache.is_pinned(block) || view.cache.in_flight(block) != 0;
            assert!(held, "{block} stays beyond the cache's limit");
        }
        let per_link: u64 = view.links.links().map(|(_, link)| link.in_flight_bytes).sum();
        let moving: u64 = self.in_flight.iter().map(|transfer| transfer.bytes).sum();
        assert_eq!(per_link, moving, "permits out are bytes in flight");
        for (_, link) in view.links.links() {
            assert!(link.in_flight_bytes <= self.limits.link_in_flight_bytes.0.max(64), "link permits");
        }
        assert!(view.links.in_flight_bytes() <= self.limits.node_in_flight_bytes.0, "node permits");
    }
}

fn encode((table, row): Row) -> [u8; 8] {
    (u64::from(table) << 48 | row).to_le_bytes()
}

fn decode(bytes: &[u8]) -> Row {
    let value = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    ((value >> 48) as u16, value & ((1 << 48) - 1))
}
