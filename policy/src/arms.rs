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
//! | `rudder` | every announced minibatch, soonest first | all | furthest next use; beyond the window least likely |

use crate::geometry::Geometry;
use crate::view::Policy;
use rudder_graph::PartitionBook;
use rudder_topology::PolicySpec;

mod arm;
mod block_set;
mod demand;
mod frequency;
mod lists;
mod next_use;
mod order;
mod queues;
mod recency;

pub(crate) use frequency::Frequency;

use arm::{Arm, Traits};
use demand::{Clock, Demand, Lfu, S3Fifo, Sieve};
use next_use::NextUse;
use recency::Recency;

/// Minibatches in flight of `none_overlap`: what loader workers with a prefetch factor give any user.
const OVERLAP_MINIBATCHES: u32 = 2;

/// The policy of a specification.
pub(crate) fn policy(spec: PolicySpec, book: &PartitionBook, geometry: &Geometry) -> Box<dyn Policy> {
    let keep = Traits { horizon: 0, keeps: true, speculates: false };
    let recency = || Recency::new(geometry, false);
    match spec {
        PolicySpec::None => Box::new(Arm::new(Traits { keeps: false, ..keep }, recency(), book)),
        PolicySpec::NoneOverlap => {
            let traits = Traits { keeps: false, horizon: OVERLAP_MINIBATCHES, ..keep };
            Box::new(Arm::new(traits, recency(), book))
        }
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
        PolicySpec::Rudder => {
            let traits = Traits { horizon: u32::MAX, ..keep };
            Box::new(Arm::new(traits, NextUse::new(geometry), book))
        }
    }
}
