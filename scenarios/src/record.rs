//! What one run left behind: the trainers' steps and the nodes' counters.

use crate::arm::Arm;
use crate::trainer::event::Step;
use rudder_messages::{Decisions, LoopKind};
use rudder_topology::{AdvisorBackend, TrainerRank};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One arm, one repeat; without an arm: the bound.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub arm: Option<Arm>,
    /// Under whose advice the arm was played once more; `None`: it was played for the comparison of the arms.
    pub advised: Option<AdvisorBackend>,
    pub repeat: u32,
    pub trainers: Vec<TrainerRun>,
    pub counters: Counters,
    /// Bytes that the storage nodes' interfaces sent meanwhile, headers and all; where there are such interfaces.
    pub interface_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct TrainerRun {
    pub rank: TrainerRank,
    /// Position of its compute node among the compute nodes.
    pub compute_node: usize,
    /// When it began, on the clock of its steps' ends.
    pub started_ns: u64,
    pub steps: Vec<Step>,
    pub bytes_wrong: u64,
    pub trace_digest: String,
}

/// A run in one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub arm: Arm,
    /// Of one trainer.
    pub minibatches_per_s: f64,
    /// Share of its step time that a trainer waits for data.
    pub wait_share: f64,
    /// Payload sent by storage nodes, over the whole run.
    pub bytes_moved: u64,
    /// Remote rows found resident when their minibatch's turn came, over those wanted.
    pub hit_rate: f64,
    /// Minibatches that came past the cache, in pieces.
    pub bypasses: u64,
}

impl Outcome {
    /// `None` for the bound.
    #[must_use]
    pub fn of(run: &Run) -> Option<Outcome> {
        let counters = &run.counters;
        Some(Outcome {
            arm: run.arm?,
            minibatches_per_s: run.minibatches_per_s(),
            wait_share: run.wait_share(),
            bytes_moved: counters.bytes_moved(),
            hit_rate: counters.rows_resident as f64 / counters.rows_wanted.max(1) as f64,
            bypasses: counters.bypasses,
        })
    }
}

/// The fastest of these.
#[must_use]
pub fn fastest<'o>(outcomes: impl IntoIterator<Item = &'o Outcome>) -> Option<&'o Outcome> {
    outcomes.into_iter().max_by(|a, b| a.minibatches_per_s.total_cmp(&b.minibatches_per_s))
}

/// The nodes' counters, summed over the nodes that have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Payload sent by storage nodes.
    pub bytes_demand: u64,
    pub bytes_prefetch: u64,
    /// Everything else on the data port.
    pub bytes_protocol: u64,
    /// Remote rows wanted when the minibatch's turn came, and those of them found resident.
    pub rows_wanted: u64,
    pub rows_resident: u64,
    pub rows_demand: u64,
    pub rows_prefetched: u64,
    pub prefetched_used: u64,
    pub prefetched_wasted: u64,
    pub minibatches_released: u64,
    pub bypasses: u64,
    /// How often nodes switched prefetching off, since it lost against demand caching.
    pub guard_switches: u64,
    /// Bytes of the distinct remote rows of every minibatch, summed.
    pub distinct_bytes_wanted: u64,
    /// Minibatches that nodes sampled ahead of their trainers, the processor time it took, and false ones.
    pub minibatches_foreseen: u64,
    pub replay_cpu_ns: u64,
    pub replay_alarms: u64,
    /// Rows that storage nodes asked of each other, and those that they served of what they do not own.
    pub rows_relayed: u64,
    pub staged_rows_served: u64,
    /// Of the advisor: edges, consults, directives put on trial, and those that were taken back.
    pub edges: u64,
    pub consults: u64,
    pub directives: u64,
    pub reverted: u64,
    /// Directives that compute nodes gave themselves, because they heard no advisor.
    pub own_directives: u64,
}

/// Which side of a node's statistics to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Storage,
    Compute,
}

/// A node's statistics are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the statistics of {process} have no count `{key}`")]
pub struct CounterError {
    pub process: String,
    pub key: &'static str,
}

impl Counters {
    /// Adds the counters of one node's process, from the statistics it prints when it stops.
    pub fn add(&mut self, process: &str, side: Side, statistics: &Value) -> Result<(), CounterError> {
        let count = |key: &'static str| {
            let nested = |table: &str| statistics.get(table).and_then(|table| table.get(key));
            let found = statistics.get(key).or_else(|| nested("storage")).or_else(|| nested("compute"));
            found.and_then(Value::as_u64).ok_or_else(|| CounterError { process: process.to_owned(), key })
        };
        match side {
            Side::Storage => {
                self.bytes_demand += count("bytes_demand")?;
                self.bytes_prefetch += count("bytes_prefetch")?;
                self.bytes_protocol += count("bytes_protocol")?;
                self.rows_relayed += count("rows_relayed")?;
                self.staged_rows_served += count("staged_rows_served")?;
            }
            Side::Compute => {
                self.rows_wanted += count("rows_wanted")?;
                self.rows_resident += count("rows_resident")?;
                self.rows_demand += count("rows_demand")?;
                self.rows_prefetched += count("rows_prefetched")?;
                self.prefetched_used += count("prefetched_used")?;
                self.prefetched_wasted += count("prefetched_wasted")?;
                self.minibatches_released += count("minibatches_released")?;
                self.bypasses += count("bypasses")?;
                self.guard_switches += count("guard_switches")?;
                self.distinct_bytes_wanted += count("distinct_bytes_wanted")?;
                self.minibatches_foreseen += count("minibatches_foreseen")?;
                self.replay_cpu_ns += count("replay_cpu_ns")?;
                self.replay_alarms += count("replay_alarms")?;
            }
        }
        self.decided(process, statistics)
    }

    /// What the slow loops of a node came to, where it has any.
    fn decided(&mut self, process: &str, statistics: &Value) -> Result<(), CounterError> {
        let Some(decisions) = statistics.get("decisions") else { return Ok(()) };
        let decisions = Vec::<Decisions>::deserialize(decisions)
            .map_err(|_| CounterError { process: process.to_owned(), key: "decisions" })?;
        for Decisions { kind, consults, .. } in decisions {
            match kind {
                LoopKind::Advisor => {
                    self.edges += consults.edges;
                    self.consults += consults.consults;
                    self.directives += consults.directives;
                    self.reverted += consults.reverted;
                }
                LoopKind::Director => self.own_directives += consults.directives,
            }
        }
        Ok(())
    }

    #[must_use]
    pub fn bytes_moved(&self) -> u64 {
        self.bytes_demand + self.bytes_prefetch
    }
}

impl Run {
    /// What a reader of its numbers has to know beside them.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let arm = self.arm.map_or("bound", Arm::name);
        let Counters { guard_switches, minibatches_foreseen, replay_cpu_ns, replay_alarms, .. } =
            self.counters;
        let mut notes = Vec::new();
        if guard_switches > 0 {
            notes.push(format!(
                "{arm}, repeat {}: nodes switched prefetching off {guard_switches} times, since trainers waited longer than under demand caching",
                self.repeat
            ));
        }
        if minibatches_foreseen > 0 {
            let cpu_ms = replay_cpu_ns as f64 / 1e6 / minibatches_foreseen as f64;
            notes.push(format!(
                "{arm}, repeat {}: nodes sampled {minibatches_foreseen} minibatches ahead of their trainers at {cpu_ms:.2} ms of processor time each; {replay_alarms} times the trainer asked for something else",
                self.repeat
            ));
        }
        notes
    }

    /// Minibatches of all trainers.
    #[must_use]
    pub fn minibatches(&self) -> u64 {
        self.trainers.iter().map(|trainer| trainer.steps.len() as u64).sum()
    }

    /// Minibatches per second of one trainer: the mean over trainers.
    #[must_use]
    pub fn minibatches_per_s(&self) -> f64 {
        let rate = |trainer: &TrainerRun| {
            let step_ns: u64 = trainer.steps.iter().map(|step| step.step_ns).sum();
            trainer.steps.len() as f64 / (step_ns.max(1) as f64 / 1e9)
        };
        self.trainers.iter().map(rate).sum::<f64>() / self.trainers.len().max(1) as f64
    }

    /// Share of all trainers' step time that they waited.
    #[must_use]
    pub fn wait_share(&self) -> f64 {
        let steps = || self.trainers.iter().flat_map(|trainer| &trainer.steps);
        let step_ns: u64 = steps().map(|step| step.step_ns).sum();
        let wait_ns: u64 = steps().map(|step| step.wait_ns).sum();
        wait_ns as f64 / step_ns.max(1) as f64
    }

    /// Seconds that a trainer waited in the whole run: the mean over trainers.
    #[must_use]
    pub fn stall_s(&self) -> f64 {
        let waits = self.trainers.iter().flat_map(|trainer| &trainer.steps).map(|step| step.wait_ns);
        waits.sum::<u64>() as f64 / 1e9 / self.trainers.len().max(1) as f64
    }

    /// Seconds waited up to the end of each minibatch: the mean over trainers that have it.
    #[must_use]
    pub fn stall_over_time(&self) -> Vec<f64> {
        let longest = self.trainers.iter().map(|trainer| trainer.steps.len()).max().unwrap_or(0);
        let mut stalled = 0.0;
        (0..longest)
            .map(|at| {
                let waits: Vec<u64> = self
                    .trainers
                    .iter()
                    .filter_map(|trainer| trainer.steps.get(at).map(|step| step.wait_ns))
                    .collect();
                stalled += waits.iter().sum::<u64>() as f64 / waits.len() as f64 / 1e9;
                stalled
            })
            .collect()
    }

    #[must_use]
    pub fn bytes_wrong(&self) -> u64 {
        self.trainers.iter().map(|trainer| trainer.bytes_wrong).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rudder_messages::report::StorageCounters;
    use rudder_policy::advice::slow_loop::SlowCounts;
    use serde_json::json;

    fn trainer(steps: &[(u64, u64)]) -> TrainerRun {
        let step = |&(step_ms, wait_ms): &(u64, u64)| Step {
            step_ns: step_ms * 1_000_000,
            wait_ns: wait_ms * 1_000_000,
            ..Step::default()
        };
        TrainerRun { steps: steps.iter().map(step).collect(), ..TrainerRun::default() }
    }

    #[test]
    fn rates_and_waits_are_those_of_a_trainer() {
        let trainers = vec![trainer(&[(100, 50), (100, 0)]), trainer(&[(200, 50), (200, 200)])];
        let run = Run { trainers, ..Run::default() };
        assert_eq!(run.minibatches(), 4);
        assert!((run.minibatches_per_s() - 7.5).abs() < 1e-9);
        assert!((run.wait_share() - 0.5).abs() < 1e-9);
        assert!((run.stall_s() - 0.15).abs() < 1e-9);
        let stall = run.stall_over_time();
        assert!((stall[0] - 0.05).abs() < 1e-9 && (stall[1] - 0.15).abs() < 1e-9, "{stall:?}");
        assert_eq!(Run::default().wait_share(), 0.0);
        assert!(Run::default().stall_over_time().is_empty());
    }

    #[test]
    fn counters_add_up_and_a_missing_one_is_named() {
        let mut counters = Counters::default();
        let storage = json!({
            "bytes_demand": 1, "bytes_prefetch": 2, "bytes_protocol": 3, "rows_relayed": 4, "staged_rows_served": 5,
        });
        counters.add("s0", Side::Storage, &storage).unwrap();
        counters.add("s1", Side::Storage, &json!({ "storage": storage })).unwrap();
        assert_eq!((counters.bytes_moved(), counters.bytes_protocol), (6, 6));
        assert_eq!((counters.rows_relayed, counters.staged_rows_served), (8, 10));
        for wrong in [json!({}), json!(null), json!({"bytes_demand": -1}), json!({"bytes_demand": "1"})] {
            let error = counters.add("s2", Side::Storage, &wrong).unwrap_err();
            assert_eq!((error.process.as_str(), error.key), ("s2", "bytes_demand"));
        }
        assert!(counters.add("c0", Side::Compute, &storage).is_err());
    }

    #[test]
    fn what_slow_loops_decided_is_summed_by_who_they_are() {
        let loops = |kind, consults, directives| {
            let consults = SlowCounts { consults, directives, ..SlowCounts::default() };
            Decisions { consults, ..Decisions::new(kind, "rules", None) }
        };
        let mut statistics = serde_json::to_value(StorageCounters::default()).unwrap();
        statistics["decisions"] = json!([loops(LoopKind::Advisor, 3, 2), loops(LoopKind::Director, 7, 1)]);
        let mut counters = Counters::default();
        counters.add("s0", Side::Storage, &statistics).unwrap();
        assert_eq!((counters.consults, counters.directives, counters.own_directives), (3, 2, 1));
        statistics["decisions"] = json!(7);
        assert_eq!(counters.add("s0", Side::Storage, &statistics).unwrap_err().key, "decisions");
    }
}
