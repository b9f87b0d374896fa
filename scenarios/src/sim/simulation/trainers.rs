//! Trainers: their steps, and the all-reduce between them.

use super::{Cargo, Event, Simulation};
use crate::sim::ring::Ring;
use crate::sim::spec::{Load, OnStep, SimError};
use crate::sim::trainer::Doing;
use rudder_policy::engine::ForeseeRefusal;
use rudder_policy::step::Reaction;
use rudder_topology::{JobId, MinibatchId, TrainerRank};

impl<'a> Simulation<'a> {
    /// What the trainer's job does.
    fn load(&self, rank: TrainerRank) -> &'a Load {
        let join = self.trainers[rank.index()].job.0.checked_sub(1);
        join.and_then(|at| self.spec.joins.get(at as usize)).map_or(&self.spec.load, |join| &join.load)
    }

    /// The trainers of a job come, and begin together.
    pub(super) fn join(&mut self, job: JobId) {
        for rank in (0..self.trainers.len() as u32).map(TrainerRank) {
            let trainer = &mut self.trainers[rank.index()];
            if trainer.job != job {
                continue;
            }
            if let Some(compute) = &mut self.computes[trainer.node.index()] {
                compute.engine.connect(trainer.id());
            }
            self.sample_ahead(rank);
            // The first all-reduce lets trainers begin together.
            self.trainers[rank.index()].doing = Doing::Reducing;
            self.enter_ring(rank);
        }
    }

    /// Samples and announces what the window allows; returns when that is done.
    pub(super) fn look_ahead(&mut self, rank: TrainerRank, current: u64) -> u64 {
        let (spec, load, now_ns) = (self.spec, self.load(rank), self.now_ns);
        let trainer = &mut self.trainers[rank.index()];
        let credits = spec.nodes[trainer.node.index()].compute.as_ref().map_or(1, |compute| compute.credits);
        let window = u64::from(load.window).min(u64::from(credits).saturating_sub(1));
        let ahead = trainer.ahead(current, window, load.minibatches);
        trainer.announced = ahead.end;
        let node = trainer.node;
        let mut sampled_ns = now_ns;
        for minibatch in ahead {
            let rows: usize = self.rows.of(rank, minibatch).iter().map(|(_, rows)| rows.len()).sum();
            sampled_ns += spec.costs.sampling(rows);
            // The node takes in one announcement after the other.
            let Some(compute) = &mut self.computes[node.index()] else { continue };
            let taken_ns = compute.busy_until_ns.max(sampled_ns) + spec.costs.announcing(rows);
            compute.busy_until_ns = taken_ns;
            self.agenda.add(taken_ns, Event::Announce(rank, minibatch));
        }
        self.trainers[rank.index()].lap.sample_ns += sampled_ns - now_ns;
        sampled_ns
    }

    pub(super) fn announce(&mut self, rank: TrainerRank, minibatch: u64) -> Result<(), SimError> {
        let (rows, trainer) = (self.rows, self.trainers[rank.index()].id());
        let mut refused = None;
        self.stage_of(rank, |engine, _| {
            match engine.announce(trainer, MinibatchId(minibatch), rows.of(rank, minibatch)) {
                Ok(reaction) => reaction,
                Err(refusal) => {
                    refused = Some(refusal);
                    Reaction::default()
                }
            }
        })?;
        refused.map_or(Ok(()), |refusal| Err(SimError::Announce { rank, reason: refusal.to_string() }))
    }

    /// The node samples the trainer's next unknown minibatch, if it samples ahead and has not begun to.
    pub(super) fn sample_ahead(&mut self, rank: TrainerRank) {
        let load = self.load(rank);
        let trainer = &mut self.trainers[rank.index()];
        let begins = load.replay && !trainer.is_replayed;
        if !begins || trainer.foresees >= load.minibatches {
            return;
        }
        trainer.is_replayed = true;
        let mut sampling_ns = 0;
        if trainer.foresees >= trainer.sampled_ahead {
            let rows = self.rows.of(rank, trainer.foresees);
            sampling_ns = self.spec.costs.sampling(rows.iter().map(|(_, rows)| rows.len()).sum());
            trainer.sampled_ahead = trainer.foresees + 1;
        }
        if let Some(compute) = &mut self.computes[trainer.node.index()] {
            compute.engine.note_replay_cost(sampling_ns);
            self.agenda.add(self.now_ns + sampling_ns, Event::Foresee(rank));
        }
    }

    /// What was sampled ahead is offered to the engine; where there is no room, a release lets it be tried again.
    pub(super) fn foresee(&mut self, rank: TrainerRank) -> Result<(), SimError> {
        let trainer = &self.trainers[rank.index()];
        let (rows, minibatch, trainer) = (self.rows, trainer.foresees, trainer.id());
        let mut next = Ok(minibatch + 1);
        self.stage_of(rank, |engine, _| {
            match engine.foresee(trainer, MinibatchId(minibatch), rows.of(rank, minibatch)) {
                Ok(reaction) => reaction,
                Err(refusal) => {
                    next = Err(refusal);
                    Reaction::default()
                }
            }
        })?;
        let trainer = &mut self.trainers[rank.index()];
        trainer.is_replayed = false;
        match next {
            Ok(next) => trainer.foresees = next,
            Err(ForeseeRefusal::Behind(last)) => trainer.foresees = last.0 + 1,
            Err(ForeseeRefusal::Full) => return Ok(()),
            // It is never asked again.
            Err(_) => trainer.foresees = u64::MAX,
        }
        self.sample_ahead(rank);
        Ok(())
    }

    /// A step begins.
    pub(super) fn begin_step(&mut self, rank: TrainerRank) {
        let minibatch = self.trainers[rank.index()].minibatch;
        self.trainers[rank.index()].doing = Doing::LookingAhead;
        if self.computes[self.trainers[rank.index()].node.index()].is_none() {
            // The bound: nothing to wait for.
            self.trainers[rank.index()].doing = Doing::Computing;
            let computed_ns = self.now_ns + self.spec.compute_ns(self.load(rank), rank, minibatch);
            self.agenda.add(computed_ns, Event::Computed(rank));
            return;
        }
        let sampled_ns = self.look_ahead(rank, minibatch);
        self.agenda.add(sampled_ns, Event::LookedAhead(rank));
    }

    pub(super) fn ask(&mut self, rank: TrainerRank) {
        let trainer = &mut self.trainers[rank.index()];
        trainer.doing = Doing::Waiting;
        let Some(compute) = &self.computes[trainer.node.index()] else { return };
        // Behind its own announcements.
        let at_ns = compute.busy_until_ns.max(self.now_ns) + self.spec.costs.message.0;
        self.agenda.add(at_ns, Event::Want(rank, trainer.minibatch));
        // It may have been ready before it was asked for.
        self.gather(rank);
    }

    /// Gathers the minibatch that the trainer waits for, if it is ready.
    pub(super) fn gather(&mut self, rank: TrainerRank) {
        let trainer = &mut self.trainers[rank.index()];
        if trainer.doing != Doing::Waiting || !trainer.ready.remove(&trainer.minibatch) {
            return;
        }
        trainer.doing = Doing::Gathering;
        trainer.lap.gather_ns = self.spec.costs.wake.0;
        for (table, rows) in self.rows.of(rank, trainer.minibatch) {
            let row_bytes = self.spec.book.row_bytes(*table).unwrap_or(0);
            trainer.lap.gather_ns += self.spec.costs.gathering(rows.len(), row_bytes);
            trainer.lap.rows += rows.len() as u64;
            trainer.lap.bytes += rows.len() as u64 * u64::from(row_bytes);
        }
        self.agenda.add(self.now_ns + trainer.lap.gather_ns, Event::Gathered(rank));
    }

    /// The minibatch is gathered: it goes back to the node, and while the device computes, the next one is sampled.
    pub(super) fn compute(&mut self, rank: TrainerRank) {
        let trainer = &mut self.trainers[rank.index()];
        trainer.doing = Doing::Computing;
        trainer.lap.wait_ns = self.now_ns - trainer.step_ns;
        let minibatch = trainer.minibatch;
        self.agenda.add(self.now_ns + self.spec.costs.message.0, Event::Release(rank, minibatch));
        let computed_ns = self.now_ns + self.spec.compute_ns(self.load(rank), rank, minibatch);
        let sampled_ns = self.look_ahead(rank, minibatch + 1);
        self.trainers[rank.index()].lap.wait_ns += sampled_ns.saturating_sub(computed_ns);
        self.agenda.add(computed_ns.max(sampled_ns), Event::Computed(rank));
    }

    /// Ends the steps of trainers whose all-reduce ended, and begins their next ones.
    pub(super) fn end_steps(&mut self, on_step: OnStep<'_>) {
        for rank in std::mem::take(&mut self.through) {
            let load = self.load(rank);
            let trainer = &mut self.trainers[rank.index()];
            if trainer.has_begun {
                on_step(&trainer.end_step(self.now_ns));
            }
            trainer.has_begun = true;
            trainer.step_ns = self.now_ns;
            if trainer.minibatch < load.minibatches {
                self.begin_step(rank);
            } else {
                self.trainers[rank.index()].doing = Doing::Done;
                self.unfinished -= 1;
            }
        }
    }

    /// The all-reduce of the trainer's job, and its place there.
    pub(super) fn ring(&mut self, rank: TrainerRank) -> Option<(&mut Ring, TrainerRank)> {
        let (first, ring) = self.rings.get_mut(self.trainers[rank.index()].job.0 as usize)?;
        Some((ring.as_mut()?, TrainerRank(rank.0 - *first)))
    }

    /// The trainer of a place in the same all-reduce as this one.
    fn in_ring(&self, rank: TrainerRank, place: TrainerRank) -> TrainerRank {
        let first = self.rings.get(self.trainers[rank.index()].job.0 as usize).map_or(0, |&(first, _)| first);
        TrainerRank(first + place.0)
    }

    pub(super) fn enter_ring(&mut self, rank: TrainerRank) {
        match self.ring(rank) {
            Some((ring, own)) => {
                ring.enter(own);
                self.go_on_with_ring(rank);
            }
            None => self.through.push(rank),
        }
    }

    pub(super) fn go_on_with_ring(&mut self, rank: TrainerRank) {
        let Some((ring, own)) = self.ring(rank) else { return };
        if ring.begins_round(own) {
            let (next, bytes) = (ring.next(own), ring.share());
            let next = self.in_ring(rank, next);
            let ends = (self.trainers[rank.index()].node, self.trainers[next.index()].node);
            if ends.0 == ends.1 {
                let copied_ns = (bytes * self.spec.costs.local_byte_ns) as u64;
                self.agenda.add(self.now_ns + copied_ns, Event::RoundSent(rank));
            } else {
                let path = self.path(ends.0, ends.1);
                let flow = self.network.start(path, bytes * self.spec.costs.wire_factor, self.now_ns);
                self.cargo.insert(flow, Cargo::Round(rank));
            }
        }
        if let Some((ring, own)) = self.ring(rank) {
            let ended = ring.ends(own);
            let ended: Vec<TrainerRank> = ended.into_iter().map(|place| self.in_ring(rank, place)).collect();
            self.through.extend(ended);
        }
    }

    pub(super) fn round_sent(&mut self, rank: TrainerRank) {
        let costs = (self.spec.latency.0 + self.spec.costs.round.0, self.now_ns);
        let Some((ring, own)) = self.ring(rank) else { return };
        ring.sent(own);
        let (next, at_ns) = (ring.next(own), costs.1 + costs.0 * ring.latencies_of_round());
        let next = self.in_ring(rank, next);
        self.agenda.add(at_ns, Event::RoundReceived(next));
        self.go_on_with_ring(rank);
    }
}
