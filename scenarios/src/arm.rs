//! The policies that a scenario compares. An arm is chosen at the compute nodes; trainers do not know it.

use rudder_topology::spec::PolicyText;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    None,
    NoneOverlap,
    FixedWindow,
    Lru,
    LruPrefetch,
    Lfu,
    Clock,
    Sieve,
    S3Fifo,
    Rudder,
}

impl Arm {
    /// Every arm; in a scenario file `arms = "all"`.
    pub const ALL: [Arm; 10] = [
        Arm::None,
        Arm::NoneOverlap,
        Arm::FixedWindow,
        Arm::Lru,
        Arm::LruPrefetch,
        Arm::Lfu,
        Arm::Clock,
        Arm::Sieve,
        Arm::S3Fifo,
        Arm::Rudder,
    ];

    /// The arms of a scenario that names none: with real processes each takes as long as training does.
    pub const DEFAULT: [Arm; 6] =
        [Arm::None, Arm::NoneOverlap, Arm::FixedWindow, Arm::Lru, Arm::LruPrefetch, Arm::Rudder];

    /// The name in scenario files, topology files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Arm::None => "none",
            Arm::NoneOverlap => "none_overlap",
            Arm::FixedWindow => "fixed_window",
            Arm::Lru => "lru",
            Arm::LruPrefetch => "lru_prefetch",
            Arm::Lfu => "lfu",
            Arm::Clock => "clock",
            Arm::Sieve => "sieve",
            Arm::S3Fifo => "s3fifo",
            Arm::Rudder => "rudder",
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Arm> {
        Arm::ALL.into_iter().find(|arm| arm.name() == name)
    }

    /// Whether the arm moves rows ahead of use.
    #[must_use]
    pub const fn prefetches(self) -> bool {
        matches!(self, Arm::FixedWindow | Arm::LruPrefetch | Arm::Rudder)
    }

    /// What a compute node's `policy` says for this arm.
    #[must_use]
    pub fn policy(self, fixed_window: u32) -> PolicyText {
        match self {
            Arm::FixedWindow => PolicyText::FixedWindow { fixed_window },
            arm => PolicyText::Name(arm.name().to_owned()),
        }
    }
}
