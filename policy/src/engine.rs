//! The engine: all facts of one dataset on one compute node, and the stages of the fast loop as functions.
//!
//! ```text
//! announce, foresee, want, release, connect, ... predictor's side: facts about trainers   -> Reaction
//! plan                                           planner: events -> steps                 -> Proposal
//! validate                                       validator: steps -> accepted and applied -> Verdicts
//! complete, link_up, link_down, tick             mover's side: facts about transfers      -> Reaction
//! ```
//!
//! A driver feeds each stage's events to `plan` and hands commands on. [`Engine::settle`] does so in one call, for
//! simulation and tests. No clock: every call says what time it is.

use crate::arms::{self, Ground};
use crate::cache::CacheIndex;
use crate::geometry::{CacheTooSmall, Geometry};
use crate::guard::Prefetching;
use crate::ledger::Statistics;
use crate::links::Links;
use crate::parameters::{Parameters, ParametersRefusal};
use crate::step::{Event, Proposal, Reaction, Verdicts};
use crate::view::{Facts, Policy, View};
use crate::window::Window;
use rudder_graph::PartitionBook;
use rudder_graph::demand::DemandMapper;
use rudder_topology::{Bytes, Limits, LinkCost, NodeId, PolicySpec, TableId};
use std::sync::Arc;

mod announce;
mod apply;
mod benefit;
mod complete;
mod foresee;
mod pieces;
mod resize;
mod sample;
mod times;

pub use announce::local_mapping;
pub use foresee::{ForeseeRefusal, ReplayAlarm};
pub use resize::ResizeRefusal;

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub book: PartitionBook,
    pub cache_bytes: Bytes,
    /// Per part its replicas with their costs, cheapest first; empty for a co-located part.
    pub replicas: Vec<Vec<(NodeId, LinkCost)>>,
    pub limits: Limits,
    pub parameters: Parameters,
    pub policy: PolicySpec,
    /// Expected uses of each block a minibatch, by block id, for policies that decide by it. Only its order counts, and
    /// zero is never.
    pub prior: Option<Arc<[f32]>>,
    pub credits: u32,
    pub ready_ahead: u32,
}

/// Why an engine was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineRefusal {
    #[error(transparent)]
    CacheTooSmall(#[from] CacheTooSmall),
    #[error("the policy {0} needs to know how often blocks will be used; give it a prior")]
    NoPrior(PolicySpec),
    #[error("the prior is of {has} blocks and the dataset has {blocks}")]
    PriorLength { has: usize, blocks: u32 },
}

/// See the module.
pub struct Engine {
    facts: Facts,
    mapper: DemandMapper,
    former_parameters: Option<Parameters>,
    policy: Box<dyn Policy>,
    statistics: Statistics,
    times: times::Times,
    /// For policies that the guard watches.
    benefit: Option<benefit::Benefit>,
    credits: u32,
    /// What the cache was made with.
    cache_bytes: Bytes,
    /// Minibatches that pass by the cache, with the next block of each.
    pieces: Vec<pieces::Progress>,
    /// Events that the policy gets with the next ones.
    unseen: Vec<Event>,
    foresight: foresee::Foresight,
}

/// Rounds of plan and validate that one call of [`Engine::settle`] may take.
const ROUNDS_MAX: usize = 1000;

impl Engine {
    pub fn new(config: EngineConfig) -> Result<Self, EngineRefusal> {
        let geometry = Geometry::new(&config.book, config.cache_bytes)?;
        let tables = (0..config.book.tables()).map(|table| TableId(table as u16));
        let block_max = Bytes(tables.filter_map(|t| config.book.block_bytes(t)).max().unwrap_or(0).into());
        let remote: Vec<bool> = config.replicas.iter().map(|replicas| !replicas.is_empty()).collect();
        let prior = match config.prior {
            Some(prior) if prior.len() != config.book.blocks() as usize => {
                return Err(EngineRefusal::PriorLength { has: prior.len(), blocks: config.book.blocks() });
            }
            None if crate::prior::is_needed(config.policy) => {
                return Err(EngineRefusal::NoPrior(config.policy));
            }
            prior => prior.unwrap_or_default(),
        };
        let ground = Ground { book: &config.book, geometry: &geometry, remote: &remote, prior };
        let benefit =
            matches!(config.policy, PolicySpec::Rudder { .. }).then(|| benefit::Benefit::new(&geometry));
        Ok(Engine {
            policy: arms::policy(config.policy, &ground),
            facts: Facts {
                window: Window::new(config.book.blocks()),
                links: Links::new(&config.replicas, block_max, &config.limits),
                cache: CacheIndex::new(&config.book, geometry),
                book: config.book,
                parameters: config.parameters,
                ready_ahead: config.ready_ahead,
                prefetching: Prefetching::On,
            },
            mapper: DemandMapper::default(),
            former_parameters: None,
            statistics: Statistics::default(),
            times: times::Times::default(),
            benefit,
            credits: config.credits,
            cache_bytes: config.cache_bytes,
            pieces: vec![],
            unseen: vec![],
            foresight: foresee::Foresight::default(),
        })
    }

    #[must_use]
    pub fn view(&self) -> View<'_> {
        self.facts.view()
    }

    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.facts.parameters
    }

    /// What holds without any directive: what comes back when the present parameters expire.
    #[must_use]
    pub fn lasting_parameters(&self) -> &Parameters {
        self.former_parameters.as_ref().unwrap_or(&self.facts.parameters)
    }

    /// Takes back what a directive set, before its time is over.
    pub fn revert_parameters(&mut self) -> Reaction {
        let version = self.facts.parameters.version + 1;
        let Some(former) = self.former_parameters.take() else { return Reaction::default() };
        self.facts.parameters = Parameters { version, ..former };
        self.facts.links.set_parameters(&self.facts.parameters);
        Reaction { events: vec![Event::ParametersChanged], commands: vec![] }
    }

    /// Counts how long trainers waited for what becomes ready now.
    fn count_waits(&mut self, commands: &[crate::step::Command], now_ns: u64) {
        for command in commands {
            let crate::step::Command::Ready { trainer, minibatch, .. } = command else { continue };
            let Some(id) = self.facts.window.find(*trainer, *minibatch) else { continue };
            let entry = self.facts.window.entry(id);
            if let Some(wanted_ns) = entry.and_then(|entry| entry.wanted_ns) {
                let waited = now_ns.saturating_sub(wanted_ns);
                self.statistics.wait_ns += waited;
                self.times.served(*trainer, waited, now_ns);
                self.note_served(id, waited);
            }
        }
    }

    /// Replaces the parameters; they come back when the new ones expire.
    pub fn set_parameters(&mut self, next: Parameters) -> Result<Reaction, ParametersRefusal> {
        self.facts.parameters.check_next(&next)?;
        let former = std::mem::replace(&mut self.facts.parameters, next);
        self.facts.links.set_parameters(&self.facts.parameters);
        let mut commands = vec![];
        if let Some(at_ns) = self.facts.parameters.expires_ns {
            self.former_parameters.get_or_insert(former);
            commands.push(crate::step::Command::WakeAt { at_ns });
        } else {
            self.former_parameters = None;
        }
        Ok(Reaction { events: vec![Event::ParametersChanged], commands })
    }

    pub(crate) fn expire_parameters(&mut self, now_ns: u64) -> Option<Event> {
        if self.facts.parameters.expires_ns.is_none_or(|at| at > now_ns) {
            return None;
        }
        let version = self.facts.parameters.version;
        let former = self.former_parameters.take()?;
        self.facts.parameters = Parameters { version: version + 1, ..former };
        self.facts.links.set_parameters(&self.facts.parameters);
        Some(Event::ParametersChanged)
    }

    /// Bytes of the control state: what grows with blocks, slots and announced minibatches.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.facts.cache.memory_bytes() + self.facts.window.memory_bytes() + self.policy.memory_bytes()
    }

    /// Planner stage.
    pub fn plan(&mut self, events: &[Event], now_ns: u64) -> Proposal {
        let view = self.facts.view();
        let steps = if self.unseen.is_empty() {
            self.policy.on(events, now_ns, &view)
        } else {
            let mut all = std::mem::take(&mut self.unseen);
            all.extend_from_slice(events);
            self.policy.on(&all, now_ns, &view)
        };
        Proposal { steps }
    }

    /// Makes orders anew from the facts, after a stage panicked.
    pub fn recover(&mut self) {
        self.policy.rebuild(&self.facts.view());
    }

    /// Plans and validates until nothing more is accepted; returns all commands in order.
    pub fn settle(&mut self, reaction: Reaction, now_ns: u64) -> Vec<crate::step::Command> {
        let Reaction { mut events, mut commands } = reaction;
        for _ in 0..ROUNDS_MAX {
            let proposal = self.plan(&events, now_ns);
            let mut verdicts = self.validate(proposal, now_ns);
            commands.append(&mut verdicts.commands);
            events = verdicts.events;
            if verdicts.accepted == 0 {
                break;
            }
        }
        // What was refused last reaches the policy with whatever happens next.
        self.unseen = events;
        commands
    }

    /// Validator stage: judges each step, or part of a step, on the facts that the accepted steps before it have made, and applies it.
    pub fn validate(&mut self, proposal: Proposal, now_ns: u64) -> Verdicts {
        let mut verdicts = Verdicts::default();
        let mut departing = apply::Departing::default();
        for step in proposal.steps {
            self.judge(step, &mut departing, &mut verdicts);
        }
        self.statistics.steps_accepted += verdicts.accepted as u64;
        self.statistics.steps_refused += verdicts.refused as u64;
        self.depart(departing, now_ns, &mut verdicts.commands);
        self.next_pieces(now_ns, &mut verdicts.commands);
        self.count_waits(&verdicts.commands, now_ns);
        verdicts
    }
}
