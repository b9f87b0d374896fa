//! Facts about transfers: they end, links come and go, time passes.

use super::{Engine, announce, pieces};
use crate::links::{InFlight, Purpose};
use crate::step::{Command, Event, Failure, Outcome, Reaction};
use crate::window::{EntryId, Phase};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{BlockId, Generation, NodeId, TransferId};

impl Engine {
    /// A transfer ended. Answers of transfers that ended before, or of another incarnation, change nothing.
    pub fn complete(
        &mut self,
        id: TransferId,
        generation: Generation,
        outcome: Outcome,
        now_ns: u64,
    ) -> Reaction {
        let arrived = matches!(outcome, Outcome::Arrived { .. });
        let Some(transfer) = self.facts.links.end(id, generation, arrived, now_ns) else {
            self.statistics.stale_answers += 1;
            return Reaction::default();
        };
        let mut reaction = Reaction::default();
        match outcome {
            Outcome::Arrived { private } => self.arrived(transfer, private, &mut reaction),
            Outcome::Lost => {
                self.statistics.transfers_lost += 1;
                self.failed(&transfer, None, &mut reaction);
                if let Some(at_ns) = self.facts.links.rest(transfer.link, now_ns) {
                    reaction.events.push(Event::LinkChanged(transfer.link.node));
                    reaction.commands.push(Command::WakeAt { at_ns });
                }
            }
            Outcome::Corrupt { item } => {
                self.failed(&transfer, Some((item, Failure::Corrupt)), &mut reaction);
            }
            Outcome::Refused { item } => {
                self.failed(&transfer, Some((item, Failure::StorageRefused)), &mut reaction);
            }
        }
        self.withdraw(&mut reaction.events);
        self.next_pieces(now_ns, &mut reaction.commands);
        self.count_waits(&reaction.commands, now_ns);
        reaction
    }

    fn arrived(&mut self, transfer: InFlight, private: Vec<u8>, reaction: &mut Reaction) {
        let rows = match transfer.purpose {
            Purpose::Piece { entry, end, .. } => {
                self.statistics.bytes_demand += transfer.bytes;
                self.piece_arrived(entry, end, private, &mut reaction.commands);
                return;
            }
            Purpose::Slots(rows) => rows,
        };
        let count: u64 = rows.iter().map(|rows| u64::from(rows.rows())).sum();
        let prefetched = match transfer.class {
            Class::Demand => {
                self.statistics.rows_demand += count;
                self.statistics.bytes_demand += transfer.bytes;
                0
            }
            Class::Prefetch => {
                self.statistics.rows_prefetched += count;
                self.statistics.bytes_prefetch += transfer.bytes;
                u64::MAX
            }
        };
        let single = self.facts.cache.has_single_rows();
        let mut complete = vec![];
        for rows in &rows {
            let (before, now) = self.facts.cache.arrive(rows.block, rows.mask, prefetched);
            self.facts.window.note_arrived(rows.block, before, now, single, &mut complete);
        }
        for entry in complete {
            self.ready_if_complete(entry, &mut reaction.commands);
        }
        reaction.events.push(Event::Arrived(rows));
    }

    /// A transfer brought nothing. `bad` names the item that the storage node cannot serve.
    fn failed(&mut self, transfer: &InFlight, bad: Option<(u32, Failure)>, reaction: &mut Reaction) {
        let rows: Vec<BlockRows> = match &transfer.purpose {
            Purpose::Slots(rows) => rows.clone(),
            Purpose::Piece { entry, start, end } => {
                self.piece_failed(*entry);
                let entry = self.facts.window.entry(*entry);
                entry.map_or_else(Vec::new, |entry| pieces::lacking(entry, *start, *end).collect())
            }
        };
        if matches!(transfer.purpose, Purpose::Slots(_)) {
            for rows in &rows {
                self.facts.cache.abandon(rows.block, rows.mask);
            }
            reaction.events.push(Event::Failed(rows.clone()));
        }
        if let Some((item, failure)) = bad
            && let Some(rows) = rows.get(item as usize)
        {
            self.facts.links.mark_bad(rows.block, transfer.link);
            self.fail_without_replica(rows.block, failure, reaction);
        }
    }

    /// Where no replica is left, whoever uses the block is told so.
    fn fail_without_replica(&mut self, block: BlockId, failure: Failure, reaction: &mut Reaction) {
        let Some(place) = self.facts.book.block(block) else { return };
        let replicas = self.facts.links.replicas(place.part);
        if replicas.iter().any(|&node| !self.facts.links.is_bad(block, node)) {
            return;
        }
        let users: Vec<EntryId> = self.facts.window.uses(block).collect();
        for id in users {
            self.fail_entry(id, failure, reaction);
        }
    }

    pub(super) fn fail_entry(&mut self, id: EntryId, failure: Failure, reaction: &mut Reaction) {
        let under_way = self.pieces.iter().any(|progress| progress.entry == id);
        let Some(entry) = self.facts.window.entry_mut(id) else { return };
        let former = std::mem::replace(&mut entry.phase, Phase::Failed);
        let served = former == Phase::Ready || (former == Phase::Bypass && !under_way);
        if served || matches!(former, Phase::Failed | Phase::Foreseen) {
            entry.phase = former;
            return;
        }
        let (trainer, minibatch, blocks) = (entry.trainer, entry.minibatch, entry.blocks.clone());
        if let Some(entry) = self.facts.window.entry(id) {
            announce::unpin(&mut self.facts.cache, entry, former);
        }
        self.pieces.retain(|progress| progress.entry != id);
        self.statistics.minibatches_failed += 1;
        reaction.commands.push(Command::Fail { trainer, minibatch, failure });
        // Its blocks are nobody's now: the policy sees them as after a release.
        reaction.events.push(Event::Released { entry: id, trainer, blocks });
    }

    /// A storage node is connected, as this incarnation. What an older one had in flight is lost.
    pub fn link_up(&mut self, node: NodeId, generation: Generation, now_ns: u64) -> Reaction {
        // First the fact, then the losses: what a loss sets free must not go to the former incarnation.
        let known = self.facts.links.set_up(node, Some(generation));
        let mut reaction = self.lose(now_ns, |t| t.link.node == node);
        if known {
            self.facts.links.forget_bad(node);
            reaction.events.push(Event::LinkChanged(node));
        }
        self.next_pieces(now_ns, &mut reaction.commands);
        reaction
    }

    /// A storage node cannot be reached: what it had in flight is lost, its permits return.
    pub fn link_down(&mut self, node: NodeId, now_ns: u64) -> Reaction {
        let known = self.facts.links.set_up(node, None);
        let mut reaction = self.lose(now_ns, |t| t.link.node == node);
        if known {
            reaction.events.push(Event::LinkChanged(node));
        }
        reaction
    }

    /// Time passed: expired transfers and parameters end.
    pub fn tick(&mut self, now_ns: u64) -> Reaction {
        let mut reaction = self.lose(now_ns, |t| t.expires_ns <= now_ns);
        reaction.events.extend(self.expire_parameters(now_ns));
        reaction.events.extend(self.facts.links.end_rests(now_ns).into_iter().map(Event::LinkChanged));
        if let Some(at_ns) = self.next_expiry() {
            reaction.commands.push(Command::WakeAt { at_ns });
        }
        if !reaction.events.is_empty() {
            reaction.events.push(Event::Tick);
        }
        reaction
    }

    pub(super) fn next_expiry(&self) -> Option<u64> {
        let expires = self.facts.links.transfers.values().map(|transfer| transfer.expires_ns).min();
        expires.into_iter().chain(self.facts.links.next_rest_end()).min()
    }

    fn lose(&mut self, now_ns: u64, which: impl Fn(&InFlight) -> bool) -> Reaction {
        let lost = self.facts.links.transfers.iter().filter(|(_, transfer)| which(transfer));
        let mut lost: Vec<_> =
            lost.map(|(&id, transfer)| (id, transfer.link.node, transfer.generation)).collect();
        lost.sort_unstable();
        let mut reaction = Reaction::default();
        for (id, node, generation) in lost {
            reaction.commands.push(Command::Cancel { transfer: id, node });
            let ended = self.complete(id, generation, Outcome::Lost, now_ns);
            reaction.events.extend(ended.events);
            reaction.commands.extend(ended.commands);
        }
        reaction
    }
}
