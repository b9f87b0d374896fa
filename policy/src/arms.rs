//! The policies that a compute node can run, all through one planner.
//!
//! | arm | fetches before the trainer waits | keeps after use | evicts |
//! |---|---|---|---|
//! | `none` | nothing | nothing | – |
//! | `none_overlap` | the next 2 minibatches | nothing | – |
//! | `fixed_window` W | the next W minibatches | all | least recently used |
//! | `lru` | nothing | all | least recently used |
//! | `lru_prefetch` | what was used most often and recently | all | least recently used |
//! | `lfu` | nothing | all | least often used |
//! | `clock`, `sieve`, `s3fifo` | nothing | all | as published, see `demand` |
//! | `degree`, `presc`, `vip` | the next 2 minibatches, and the set | the blocks with the highest prior | – |
//! | `massivegnn`, `rudder_paper` | the next 2 minibatches, and the buffer | the buffer | by score, see `kept/massivegnn` |
//! | `window_static` | the next 2 minibatches, and the set | what this window uses most, see `kept/window_static` | – |
//! | `belady_superbatch` S | the next 2 minibatches | all | furthest next use within the superbatch |
//! | `rudder` | every announced minibatch, soonest first | all | furthest next use; beyond the window least likely |

use crate::view::Policy;
use rudder_topology::{ControllerSpec, MassiveGnnSpec, PolicySpec};

mod arm;
mod block_set;
mod controller;
mod dearness;
mod demand;
mod frequency;
mod kept;
mod lists;
mod next_use;
mod order;
mod queues;
mod recency;
mod superbatch;

pub(crate) use frequency::Frequency;

use arm::{Arm, Traits};
use demand::{Clock, Demand, Lfu, S3Fifo, Sieve};
use kept::{Fixed, Kept, MassiveGnn, Members, WindowStatic};
use next_use::NextUse;
use recency::Recency;
use superbatch::Superbatch;

pub(crate) use kept::Ground;

/// Minibatches in flight of `none_overlap`: what loader workers with a prefetch factor give any user. The published
/// systems with a cache of a chosen set, and Ginex, prepare a minibatch while the one before it is trained on, too.
const OVERLAP_MINIBATCHES: u32 = 2;

/// The policy of a specification. Where it needs a prior, the ground has one.
pub(crate) fn policy(spec: PolicySpec, ground: &Ground) -> Box<dyn Policy> {
    let (book, geometry) = (ground.book, ground.geometry);
    let keep = Traits { horizon: 0, keeps: true, speculates: false, chooses: false, eases: false };
    let overlap = Traits { horizon: OVERLAP_MINIBATCHES, ..keep };
    let set = Traits { chooses: true, ..overlap };
    let recency = || Recency::new(geometry, false);
    let massivegnn = |scoring: MassiveGnnSpec, controller: ControllerSpec| -> Box<dyn Policy> {
        let choice = |ground: &Ground<'_>, members: &mut Members| {
            MassiveGnn::new(scoring, Box::new(controller), ground, members)
        };
        Box::new(Arm::new(set, Kept::new(ground, choice), book))
    };
    match spec {
        PolicySpec::None => Box::new(Arm::new(Traits { keeps: false, ..keep }, recency(), book)),
        PolicySpec::NoneOverlap => Box::new(Arm::new(Traits { keeps: false, ..overlap }, recency(), book)),
        PolicySpec::FixedWindow { minibatches } => {
            Box::new(Arm::new(Traits { horizon: minibatches, ..keep }, recency(), book))
        }
        PolicySpec::Lru => Box::new(Arm::new(keep, recency(), book)),
        PolicySpec::LruPrefetch => {
            Box::new(Arm::new(Traits { speculates: true, ..keep }, Recency::new(geometry, true), book))
        }
        PolicySpec::Lfu => Box::new(Arm::new(keep, Demand::new(geometry, Lfu::new), book)),
        PolicySpec::Clock => Box::new(Arm::new(keep, Demand::new(geometry, Clock::new), book)),
        PolicySpec::Sieve => Box::new(Arm::new(keep, Demand::new(geometry, Sieve::new), book)),
        PolicySpec::S3Fifo => Box::new(Arm::new(keep, Demand::new(geometry, S3Fifo::new), book)),
        PolicySpec::Degree | PolicySpec::Presc { .. } | PolicySpec::Vip { .. } => {
            Box::new(Arm::new(set, Kept::new(ground, Fixed::new), book))
        }
        PolicySpec::MassiveGnn(scoring) => {
            massivegnn(scoring, ControllerSpec::Every { minibatches: scoring.delta })
        }
        PolicySpec::RudderPaper { scoring, controller } => massivegnn(scoring, controller),
        PolicySpec::WindowStatic(spec) => {
            let choice =
                |ground: &Ground<'_>, members: &mut Members| WindowStatic::new(spec, ground, members);
            Box::new(Arm::new(set, Kept::new(ground, choice), book))
        }
        PolicySpec::BeladySuperbatch { minibatches } => {
            Box::new(Arm::new(overlap, Superbatch::new(minibatches), book))
        }
        PolicySpec::Rudder { .. } => {
            let traits = Traits { horizon: u32::MAX, eases: true, ..keep };
            Box::new(Arm::new(traits, NextUse::new(geometry, &ground.prior), book).with_prior(&ground.prior))
        }
    }
}
