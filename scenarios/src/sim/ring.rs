//! The all-reduce of all trainers: a ring as the reference trainer's, round by round; for many trainers the whole ring
//! as one flow each.

use rudder_topology::{Bytes, TrainerRank};

/// Above this many trainers rounds are not simulated one by one.
const ROUNDS_EXACT_MAX: usize = 16;

#[derive(Debug, Default, Clone)]
struct Place {
    /// All-reduces entered, and ended.
    entered: u64,
    ended: u64,
    /// Rounds sent (or being sent) and received, over all all-reduces.
    sent: u64,
    received: u64,
    sending: bool,
}

#[derive(Debug)]
pub(super) struct Ring {
    places: Vec<Place>,
    /// Rounds of one all-reduce.
    rounds: u64,
    share: f64,
    exact: bool,
}

impl Ring {
    pub(super) fn new(trainers: u32, bytes: Bytes) -> Self {
        let n = trainers.max(1) as usize;
        let exact = n <= ROUNDS_EXACT_MAX;
        let all = 2 * (n as u64 - 1);
        let rounds = if exact { all } else { all.min(1) };
        let share = all as f64 * bytes.0 as f64 / n as f64 / rounds.max(1) as f64;
        Ring { places: vec![Place::default(); n], rounds, share, exact }
    }

    /// Bytes that a trainer sends in one round.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// Messages one after the other that one simulated round stands for: a ring's rounds, or the way up and down a
    /// tree, which libraries take where there are many trainers.
    pub(super) fn latencies_of_round(&self) -> u64 {
        if self.exact { 1 } else { 2 * u64::from((self.places.len() as u32).next_power_of_two().ilog2()) }
    }

    pub(super) fn next(&self, rank: TrainerRank) -> TrainerRank {
        TrainerRank((rank.0 + 1) % self.places.len() as u32)
    }

    pub(super) fn enter(&mut self, rank: TrainerRank) {
        self.places[rank.index()].entered += 1;
    }

    /// Whether the trainer begins to send its next round now.
    pub(super) fn begins_round(&mut self, rank: TrainerRank) -> bool {
        let rounds = self.rounds;
        let place = &mut self.places[rank.index()];
        let within = place.entered * rounds;
        // Round r of an all-reduce hands on what round r - 1 brought.
        let has_input = place.sent.is_multiple_of(rounds.max(1)) || place.received >= place.sent;
        let begins = !place.sending && place.sent < within && has_input;
        if begins {
            place.sending = true;
        }
        begins
    }

    pub(super) fn sent(&mut self, rank: TrainerRank) {
        let place = &mut self.places[rank.index()];
        place.sending = false;
        place.sent += 1;
    }

    pub(super) fn received(&mut self, rank: TrainerRank) {
        self.places[rank.index()].received += 1;
    }

    /// The trainers whose all-reduce ends, now that something happened to this one.
    pub(super) fn ends(&mut self, rank: TrainerRank) -> Vec<TrainerRank> {
        let rounds = self.rounds;
        let all_in = |place: &Place| {
            let goal = place.entered * rounds;
            place.ended < place.entered && place.sent >= goal && place.received >= goal
        };
        if !all_in(&self.places[rank.index()]) {
            return Vec::new();
        }
        if self.exact {
            self.places[rank.index()].ended += 1;
            return vec![rank];
        }
        if !self.places.iter().all(all_in) {
            return Vec::new();
        }
        for place in &mut self.places {
            place.ended += 1;
        }
        (0..self.places.len() as u32).map(TrainerRank).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that can be sent is received at once, trainers entering in this order.
    fn ends_after(trainers: u32, entering: &[u32]) -> Vec<u32> {
        let mut ring = Ring::new(trainers, Bytes(1200));
        let mut ended = Vec::new();
        for &rank in entering {
            ring.enter(TrainerRank(rank));
            let mut going = true;
            while std::mem::take(&mut going) {
                for rank in (0..trainers).map(TrainerRank) {
                    if ring.begins_round(rank) {
                        ring.sent(rank);
                        ring.received(ring.next(rank));
                        going = true;
                    }
                    ended.extend(ring.ends(rank).iter().map(|rank| rank.0));
                }
            }
        }
        ended
    }

    #[test]
    fn nobody_ends_before_the_last_has_come() {
        for trainers in [2, 3, 16, 20] {
            let entering: Vec<u32> = (0..trainers).rev().collect();
            assert_eq!(ends_after(trainers, &entering[1..]), Vec::<u32>::new(), "{trainers}");
            let mut ended = ends_after(trainers, &entering);
            ended.sort_unstable();
            assert_eq!(ended, (0..trainers).collect::<Vec<_>>());
        }
        assert_eq!(ends_after(1, &[0]), [0]);
    }

    #[test]
    fn a_trainer_sends_its_share_of_the_vector() {
        let whole = |trainers| {
            let ring = Ring::new(trainers, Bytes(1000));
            ring.share() * ring.rounds as f64
        };
        assert_eq!(whole(1), 0.0);
        assert_eq!((whole(2), whole(4), whole(100)), (1000.0, 1500.0, 1980.0));
    }
}
