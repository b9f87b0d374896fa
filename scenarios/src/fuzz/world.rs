//! Everything around the engine: memory, storage nodes, transfers under way, trainers, time. The engine decides, this
//! world does as it is told, in any order and with any fault that a real one could show.

use super::Options;
use super::dataset::Dataset;
use super::invariant::{Note, Sabotage};
use super::random::Random;
use super::trainer::{Served, Trainer, draw_rows, minibatch_id};
use rudder_graph::location::{LOCAL_MAPPINGS, Location, PRIVATE_MAPPING};
use rudder_policy::engine::Engine;
use rudder_policy::step::{Command, Destination, Event, Item, Outcome, Reaction, Step, TrainerId, Transfer};
use rudder_topology::{Bytes, Generation, MinibatchId, NodeId, PartId, TableId, TransferId};
use std::collections::BTreeSet;

/// A storage node: its incarnation while it is up.
#[derive(Clone, Copy, Debug)]
pub struct Storage {
    pub id: NodeId,
    pub up: Option<Generation>,
    next_generation: u64,
}

/// A transfer that the engine was not told the end of.
#[derive(Clone, Debug)]
pub struct Flight {
    pub transfer: Transfer,
    /// The storage node will never answer: only its time-out ends it.
    silent: bool,
}

/// See the module.
pub struct World {
    pub options: Options,
    pub dataset: Dataset,
    pub engine: Engine,
    /// The cache's bytes, chunk by chunk.
    pub memory: Vec<Vec<u8>>,
    /// How many of them may be used now.
    pub cache_bytes: u64,
    pub now_ns: u64,
    pub nodes: Vec<Storage>,
    pub flights: Vec<Flight>,
    pub trainers: Vec<Trainer>,
    pub random: Random,
    pub notes: Vec<Note>,
    /// Transfers that the engine knows the end of, for answers that come too late.
    ghosts: Vec<Transfer>,
    wakes: BTreeSet<u64>,
    /// Refusals that the planner does not know of yet.
    unseen: Vec<Event>,
}

/// Rounds of plan and validate after one event; more would be a livelock.
const ROUNDS_MAX: usize = 1000;

impl World {
    pub(super) fn new(options: Options, dataset: Dataset, engine: Engine, mut random: Random) -> Self {
        let memory =
            engine.view().cache.geometry().chunks().iter().map(|&bytes| vec![0; bytes as usize]).collect();
        let trainers =
            (0..options.trainers).map(|rank| draw_trainer(&mut random, &options, &dataset, rank)).collect();
        let nodes =
            (0..options.nodes).map(|n| Storage { id: NodeId(n), up: None, next_generation: 1 }).collect();
        World {
            cache_bytes: options.cache_bytes,
            options,
            dataset,
            engine,
            memory,
            now_ns: 1_000,
            nodes,
            flights: Vec::new(),
            trainers,
            random,
            notes: Vec::new(),
            ghosts: Vec::new(),
            wakes: BTreeSet::new(),
            unseen: Vec::new(),
        }
    }

    /// Every trainer connects.
    pub fn open(&mut self) {
        for trainer in 0..self.trainers.len() {
            self.engine.connect(self.trainers[trainer].id);
        }
    }

    /// Hands a reaction to the planner and plays planner, validator and drivers until nothing more is accepted. The
    /// planner learns of the last refusals with whatever happens next.
    fn settle(&mut self, reaction: Reaction) {
        let Reaction { events: new, commands } = reaction;
        let mut events = std::mem::take(&mut self.unseen);
        events.extend(new);
        self.obey(commands);
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "planner and validator do not come to rest");
            let mut proposal = self.engine.plan(&events, self.now_ns);
            let forged = super::faults::forge_steps(self, &mut proposal);
            let steps = proposal.steps.iter().flat_map(Step::singles).collect();
            let verdicts = self.engine.validate(proposal, self.now_ns);
            let before = self.notes.len();
            self.note_verdicts(steps, &verdicts.events);
            if self.notes[before..]
                .iter()
                .any(|note| matches!(note, Note::Accepted(step) if forged.contains(step)))
            {
                // The planner's orders do not match the facts any more: it starts anew from them.
                self.engine.recover();
            }
            self.obey(verdicts.commands);
            events = verdicts.events;
            // Who proposed a step is told of its refusal, and nobody else.
            events.retain(|event| !matches!(event, Event::Refused(step, _) if is_forged(step, &forged)));
            if verdicts.accepted == 0 {
                break;
            }
        }
        self.unseen = events;
    }

    /// Takes what is judged alone alone. The validator reports refusals in the order of the steps.
    fn note_verdicts(&mut self, steps: Vec<Step>, refusals: &[Event]) {
        let refused = refusals.iter().filter_map(|event| match event {
            Event::Refused(step, why) => Some(step.singles().into_iter().map(|single| (single, *why))),
            _ => None,
        });
        let mut refused = refused.flatten().peekable();
        for step in steps {
            match refused.next_if(|(other, _)| *other == step) {
                Some((_, why)) => self.notes.push(Note::Refused(step, why)),
                None => self.notes.push(Note::Accepted(step)),
            }
        }
        assert!(refused.next().is_none(), "a refusal of a step that was not proposed");
    }

    fn obey(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Fetch(transfer) => self.start(transfer),
                Command::Cancel { transfer, node: _ } => self.cancel(transfer),
                Command::Ready { trainer, minibatch, tables } => self.serve(trainer, minibatch, tables),
                Command::Piece { trainer, minibatch, bytes } => self.piece(trainer, minibatch, &bytes),
                Command::Fail { trainer, minibatch, .. } => self.fail(trainer, minibatch),
                Command::WakeAt { at_ns } => drop(self.wakes.insert(at_ns)),
            }
        }
    }

    fn start(&mut self, mut transfer: Transfer) {
        match self.options.sabotage {
            Sabotage::UnaskedRows => transfer.items.extend(self.unasked_item()),
            Sabotage::PermitsIgnored => transfer.bytes *= 1000,
            Sabotage::PinnedSlotReused => self.redirect_to_pinned(&mut transfer),
            _ => {}
        }
        self.notes.push(Note::Started(transfer.clone()));
        let silent = self.options.faults && self.random.one_in(25);
        self.flights.push(Flight { transfer, silent });
    }

    fn unasked_item(&mut self) -> Option<Item> {
        let view = self.engine.view();
        let block = (0..self.dataset.book.blocks())
            .map(rudder_topology::BlockId)
            .find(|&block| view.cache.slot_of(block).is_none() && !view.window.is_used(block))?;
        let rows = rudder_graph::BlockRows { block, mask: 1 };
        Some(Item { rows, to: Destination::Private })
    }

    fn redirect_to_pinned(&self, transfer: &mut Transfer) {
        let view = self.engine.view();
        let held =
            self.trainers.iter().flat_map(|trainer| trainer.ready.values()).flat_map(|served| &served.tables);
        let rows = held.flat_map(|(table, locations)| locations.iter().map(move |at| (*table, *at)));
        let Some((_, location)) = rows.into_iter().find(|(_, at)| at.mapping() < LOCAL_MAPPINGS) else {
            return;
        };
        let slot_bytes =
            |item: &Item| view.book.block(item.rows.block).map_or(0, |place| u64::from(place.row_bytes));
        for item in &mut transfer.items {
            let row = u64::from(item.rows.mask.trailing_zeros());
            if let Some(offset) = location.offset().checked_sub(row * slot_bytes(item)) {
                item.to = Destination::Slot { chunk: rudder_topology::ChunkId(location.mapping()), offset };
            }
        }
    }

    /// The mover forgets a transfer when it gets to the command: until then rows may still be written.
    fn cancel(&mut self, id: TransferId) {
        self.notes.push(Note::Cancelled(id));
        let Some(at) = self.flights.iter().position(|flight| flight.transfer.id == id) else { return };
        let flight = self.flights.swap_remove(at);
        if self.random.one_in(3) {
            self.write(&flight.transfer);
        }
        self.ghosts.push(flight.transfer);
    }

    /// Puts a transfer's rows where its items say; returns the bytes of private items.
    fn write(&mut self, transfer: &Transfer) -> Vec<u8> {
        let mut private = Vec::new();
        for item in &transfer.items {
            let (table, rows) = self.dataset.rows_of(item.rows);
            for (row, mut number) in rows {
                if self.options.sabotage == Sabotage::WrongRows {
                    number = (number + 1) % self.dataset.book.rows(table);
                }
                let bytes = self.dataset.row(table, number);
                match item.to {
                    Destination::Private => private.extend_from_slice(&bytes),
                    Destination::Slot { chunk, offset } => {
                        let at = offset as usize + usize::from(row) * bytes.len();
                        let memory = &mut self.memory[chunk.index()];
                        let end = (at + bytes.len()).min(memory.len());
                        memory[at..end].copy_from_slice(&bytes[..end - at]);
                    }
                }
            }
        }
        private
    }

    fn trainer_mut(&mut self, id: TrainerId) -> &mut Trainer {
        self.trainers.iter_mut().find(|trainer| trainer.id == id).expect("the engine names known trainers")
    }

    fn serve(&mut self, id: TrainerId, minibatch: MinibatchId, tables: Vec<(TableId, Vec<Location>)>) {
        if self.options.sabotage == Sabotage::MinibatchForgotten && self.random.one_in(4) {
            return;
        }
        let n = minibatch.0 as usize;
        let trainer = self.trainer_mut(id);
        if !trainer.queue.contains(&n) || trainer.ready.contains_key(&n) {
            self.notes.push(Note::Unexpected { trainer: id, what: "ready" });
            return;
        }
        let private = trainer.private.remove(&n).unwrap_or_default();
        trainer.ready.insert(n, Served { tables, private });
        self.notes.push(Note::Served { trainer: id, minibatch: n });
    }

    fn piece(&mut self, id: TrainerId, minibatch: MinibatchId, bytes: &[u8]) {
        let n = minibatch.0 as usize;
        let trainer = self.trainer_mut(id);
        if trainer.queue.front() == Some(&n) && !trainer.ready.contains_key(&n) {
            trainer.private.entry(n).or_default().extend_from_slice(bytes);
        } else {
            self.notes.push(Note::Unexpected { trainer: id, what: "piece" });
        }
    }

    fn fail(&mut self, id: TrainerId, minibatch: MinibatchId) {
        let n = minibatch.0 as usize;
        let trainer = self.trainer_mut(id);
        if !trainer.queue.contains(&n) || trainer.ready.contains_key(&n) {
            self.notes.push(Note::Unexpected { trainer: id, what: "fail" });
            return;
        }
        trainer.given_up.insert(n);
        self.notes.push(Note::Failed { trainer: id, minibatch: n });
    }

    /// Where a minibatch's row lies, read as a trainer would.
    #[must_use]
    pub fn read(&self, served: &Served, table: TableId, location: Location) -> Option<Vec<u8>> {
        let bytes = self.dataset.book.row_bytes(table)? as usize;
        let at = location.offset() as usize;
        match location.mapping() {
            PRIVATE_MAPPING => served.private.get(at..at + bytes).map(<[u8]>::to_vec),
            chunk if chunk < LOCAL_MAPPINGS => {
                self.memory.get(usize::from(chunk))?.get(at..at + bytes).map(<[u8]>::to_vec)
            }
            local => {
                let part = usize::from(local - LOCAL_MAPPINGS) % self.dataset.book.parts();
                self.dataset.local_row(table, PartId(part as u16), location.offset())
            }
        }
    }

    // What may happen next, each as one event.

    pub fn announce(&mut self, at: usize) {
        let trainer = &mut self.trainers[at];
        let n = trainer.next_announce;
        let rows = trainer.minibatches[n].clone();
        trainer.next_announce += 1;
        trainer.queue.push_back(n);
        let id = trainer.id;
        let reaction = self.engine.announce(id, minibatch_id(n), &rows);
        let reaction = reaction.unwrap_or_else(|refusal| panic!("announcement of {n} by {id}: {refusal}"));
        self.settle(reaction);
    }

    pub fn want(&mut self, at: usize) {
        let trainer = &mut self.trainers[at];
        trainer.waits = true;
        let front = *trainer.queue.front().expect("checked by the caller");
        let id = trainer.id;
        let reaction = self.engine.want(id, minibatch_id(front), self.now_ns).expect("announced");
        self.settle(reaction);
    }

    /// The trainer is done with its oldest minibatch, or was told that it cannot have it.
    pub fn release(&mut self, at: usize) {
        let trainer = &mut self.trainers[at];
        let front = trainer.pop().expect("checked by the caller");
        if trainer.given_up.remove(&front) {
            trainer.failed += 1;
        } else {
            trainer.released += 1;
        }
        let id = trainer.id;
        let reaction = self.engine.release(id, minibatch_id(front), self.now_ns).expect("announced");
        self.settle(reaction);
    }

    pub fn restart_trainer(&mut self, at: usize) {
        let id = self.trainers[at].id;
        self.trainers[at].restart();
        self.notes.push(Note::TrainerLost(id));
        let reaction = self.engine.disconnect(id);
        self.settle(reaction);
        self.engine.connect(id);
    }

    /// Transfers that can be answered now.
    #[must_use]
    pub fn answerable(&self) -> Vec<usize> {
        let answers = |flight: &Flight| !flight.silent && self.is_current(&flight.transfer);
        (0..self.flights.len()).filter(|&at| answers(&self.flights[at])).collect()
    }

    fn is_current(&self, transfer: &Transfer) -> bool {
        let node = self.nodes.iter().find(|node| node.id == transfer.node);
        node.is_some_and(|node| node.up == Some(transfer.generation))
    }

    /// Ends a transfer. Only `Arrived` brings bytes.
    pub fn answer(&mut self, at: usize, ending: Ending) {
        let Flight { transfer, .. } = self.flights.swap_remove(at);
        let item = self.random.below(transfer.items.len() as u64) as u32;
        let outcome = match ending {
            Ending::Arrived => Outcome::Arrived { private: self.write(&transfer) },
            Ending::Lost => Outcome::Lost,
            Ending::Corrupt => Outcome::Corrupt { item },
            Ending::Refused => Outcome::Refused { item },
        };
        self.notes.push(Note::Ended { transfer: transfer.clone(), outcome: outcome.clone() });
        let reaction = self.engine.complete(transfer.id, transfer.generation, outcome, self.now_ns);
        self.ghosts.push(transfer);
        self.settle(reaction);
    }

    /// An answer comes after its transfer has ended, with an outcome that would change much if it were believed.
    pub fn answer_late(&mut self) {
        if self.ghosts.is_empty() {
            return;
        }
        let at = self.random.below(self.ghosts.len() as u64) as usize;
        let ghost = self.ghosts.swap_remove(at);
        let (mut id, mut generation) = (ghost.id, ghost.generation);
        if self.options.sabotage == Sabotage::OldAnswersApplied
            && let Some(flight) = self.flights.first()
        {
            (id, generation) = (flight.transfer.id, flight.transfer.generation);
        }
        self.notes.push(Note::Stale { transfer: ghost.id, generation: ghost.generation });
        let outcome = match self.random.below(3) {
            0 => Outcome::Corrupt { item: 0 },
            1 => Outcome::Lost,
            _ => Outcome::Arrived { private: Vec::new() },
        };
        let reaction = self.engine.complete(id, generation, outcome, self.now_ns);
        self.settle(reaction);
    }

    /// A transfer under way is answered by the right id of the wrong incarnation.
    pub fn answer_by_stranger(&mut self) {
        let Some(flight) = self.flights.first() else { return };
        let (id, generation) = (flight.transfer.id, Generation(flight.transfer.generation.0 + 1000));
        self.notes.push(Note::Stale { transfer: id, generation });
        let reaction =
            self.engine.complete(id, generation, Outcome::Arrived { private: Vec::new() }, self.now_ns);
        self.settle(reaction);
    }

    pub fn node_down(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.up = None;
        let id = node.id;
        self.notes.push(Note::NodeDown(id));
        let reaction = self.engine.link_down(id, self.now_ns);
        self.settle(reaction);
    }

    /// The node is back as another incarnation, whether or not it was seen to go.
    pub fn node_up(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let generation = Generation(node.next_generation);
        node.next_generation += 1;
        node.up = Some(generation);
        let id = node.id;
        self.notes.push(Note::NodeUp(id, generation));
        let reaction = self.engine.link_up(id, generation, self.now_ns);
        self.settle(reaction);
    }

    /// The cache is limited to some of its bytes, or has all of them back.
    pub fn resize(&mut self, tenths: u64) {
        let bytes = self.options.cache_bytes * tenths / 10;
        // Too few for a block of each table: it keeps its size.
        if let Ok(reaction) = self.engine.resize_cache(Bytes(bytes)) {
            self.cache_bytes = bytes;
            self.settle(reaction);
        }
    }

    pub fn tick(&mut self) {
        let reaction = self.engine.tick(self.now_ns);
        self.wakes = self.wakes.split_off(&(self.now_ns + 1));
        self.settle(reaction);
    }

    /// The planner's actor panicked and starts again from the facts.
    pub fn recover(&mut self) {
        self.engine.recover();
        self.settle(Reaction::default());
    }

    /// Refusals that the planner does not know of yet.
    #[must_use]
    pub fn unseen(&self) -> &[Event] {
        &self.unseen
    }

    #[must_use]
    pub fn next_wake(&self) -> Option<u64> {
        self.wakes.first().copied()
    }
}

/// How a transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Arrived,
    Lost,
    Corrupt,
    Refused,
}

/// Forged steps are judged whole: each has one part.
fn is_forged(step: &Step, forged: &[Step]) -> bool {
    step.singles().iter().all(|single| forged.contains(single))
}

fn draw_trainer(random: &mut Random, options: &Options, dataset: &Dataset, rank: u32) -> Trainer {
    let id =
        TrainerId { job: rudder_topology::JobId(1 + rank / 3), rank: rudder_topology::TrainerRank(rank) };
    let draw = |_| match options.minibatch_rows {
        super::MinibatchRows::UpTo(rows_max) => draw_rows(random, dataset, rows_max),
        super::MinibatchRows::Exactly(rows) => vec![(TableId(0), distinct(random, dataset, rows))],
    };
    let minibatches = (0..options.minibatches).map(draw).collect();
    Trainer::new(id, minibatches, options.window)
}

/// As many distinct rows of the first table.
fn distinct(random: &mut Random, dataset: &Dataset, rows: usize) -> Vec<u32> {
    let all = dataset.book.rows(TableId(0));
    let mut chosen = BTreeSet::new();
    while chosen.len() < rows {
        chosen.insert(random.below(all) as u32);
    }
    chosen.into_iter().collect()
}
