//! The policies that a scenario compares. An arm is chosen at the compute nodes; trainers do not know it.

use crate::compile::TrainerPlan;
use rudder_topology::PolicySpec;
use rudder_topology::spec::{PolicyText, SamplingText, WindowStaticText};
use serde::{Deserialize, Serialize};

/// As far ahead as a node lets trainers announce.
const ANNOUNCED_MAX: u32 = 1022;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
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
    Degree,
    Presc,
    Vip,
    MassiveGnn,
    RudderPaper,
    WindowStatic,
    BeladySuperbatch,
    Rudder,
}

impl Arm {
    /// Every arm, in the order of [`PolicySpec::ALL`]; in a scenario file `arms = "all"`.
    pub const ALL: [Arm; 17] = [
        Arm::None,
        Arm::NoneOverlap,
        Arm::FixedWindow,
        Arm::Lru,
        Arm::LruPrefetch,
        Arm::Lfu,
        Arm::Clock,
        Arm::Sieve,
        Arm::S3Fifo,
        Arm::Degree,
        Arm::Presc,
        Arm::Vip,
        Arm::MassiveGnn,
        Arm::RudderPaper,
        Arm::WindowStatic,
        Arm::BeladySuperbatch,
        Arm::Rudder,
    ];

    /// The arms of a scenario that names none: with real processes each takes as long as training does.
    pub const DEFAULT: [Arm; 6] =
        [Arm::None, Arm::NoneOverlap, Arm::FixedWindow, Arm::Lru, Arm::LruPrefetch, Arm::Rudder];

    /// The name in scenario files, topology files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        PolicySpec::ALL[self as usize].name()
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Arm> {
        Arm::ALL.into_iter().find(|arm| arm.name() == name)
    }

    /// Whether the arm moves rows ahead of use, beyond the overlap that any loader has.
    #[must_use]
    pub const fn prefetches(self) -> bool {
        !matches!(
            self,
            Arm::None | Arm::NoneOverlap | Arm::Lru | Arm::Lfu | Arm::Clock | Arm::Sieve | Arm::S3Fifo
        )
    }

    /// What a compute node's `policy` says for this arm. Arms that look ahead look as far as the trainers announce;
    /// those that have to know how trainers sample are told.
    #[must_use]
    pub fn policy(self, trainer: &TrainerPlan) -> PolicyText {
        let sampling = |epochs| SamplingText {
            epochs,
            seeds: Some(trainer.seeds),
            fanout: Some(trainer.fanout.clone()),
        };
        let announced = trainer.window.clamp(1, ANNOUNCED_MAX);
        match self {
            Arm::FixedWindow => PolicyText::FixedWindow { fixed_window: trainer.fixed_window },
            Arm::Presc => PolicyText::Presc { presc: sampling(Some(1)) },
            Arm::Vip => PolicyText::Vip { vip: sampling(None) },
            Arm::Rudder => PolicyText::Rudder { rudder: sampling(None) },
            Arm::WindowStatic => PolicyText::WindowStatic {
                window_static: WindowStaticText { minibatches: Some((announced / 2).max(1)), cache: None },
            },
            Arm::BeladySuperbatch => PolicyText::BeladySuperbatch { belady_superbatch: announced },
            arm => PolicyText::Name(arm.name().to_owned()),
        }
    }
}

impl From<Arm> for &'static str {
    fn from(arm: Arm) -> Self {
        arm.name()
    }
}

impl TryFrom<String> for Arm {
    type Error = String;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Arm::named(&name).ok_or_else(|| format!("no arm is called `{name}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_is_called_as_its_policy() {
        let bare = |name: &str| name.replace('_', "").to_lowercase();
        assert_eq!(Arm::ALL.len(), PolicySpec::ALL.len());
        for (arm, policy) in Arm::ALL.into_iter().zip(PolicySpec::ALL) {
            assert_eq!(arm.name(), policy.name());
            assert_eq!(bare(&format!("{arm:?}")), bare(policy.name()));
            assert_eq!(Arm::named(arm.name()), Some(arm));
        }
    }
}
