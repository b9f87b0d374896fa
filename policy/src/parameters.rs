//! All tunables of the fast loop as one value, replaced whole after validation.

use crate::step::Origin;
use serde::{Deserialize, Serialize};

/// How much of the links prefetching may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Posture {
    #[default]
    Normal,
    /// A quarter of each link's permits, so that what a trainer waits for finds room.
    DemandFirst,
    /// Nothing but what a trainer waits for.
    DemandOnly,
}

impl Posture {
    /// In order of the variants.
    pub const ALL: [Posture; 3] = [Posture::Normal, Posture::DemandFirst, Posture::DemandOnly];

    /// Of a link's permits, what prefetching may hold, in percent.
    #[must_use]
    pub fn prefetch_percent(self) -> u64 {
        match self {
            Posture::Normal => 100,
            Posture::DemandFirst => 25,
            Posture::DemandOnly => 0,
        }
    }
}

/// What a policy may be told at run time. A directive only ever produces a new value of this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Rises with each replacement.
    pub version: u64,
    pub origin: Origin,
    /// When the former value comes back; `None` holds for ever.
    pub expires_ns: Option<u64>,
    /// Minibatches of a trainer, counted from its oldest unreleased one, that may be fetched before it waits for
    /// them. `None` takes what the arm defines.
    pub horizon_minibatches: Option<u32>,
    /// Minibatches after which a block's recorded use counts half.
    pub half_life_minibatches: f32,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            version: 0,
            origin: Origin::Forecast,
            expires_ns: None,
            horizon_minibatches: None,
            half_life_minibatches: 128.0,
        }
    }
}

/// Why a value was not taken.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ParametersRefusal {
    #[error("version {given} does not follow {current}")]
    Version { given: u64, current: u64 },
    #[error("a half-life of {0} minibatches is not between 1 and 1,000,000")]
    HalfLife(f32),
    #[error("a horizon of {0} minibatches is above 1,024")]
    Horizon(u32),
}

impl Parameters {
    /// Checks a value that would replace this one.
    pub fn check_next(&self, next: &Parameters) -> Result<(), ParametersRefusal> {
        if next.version <= self.version {
            return Err(ParametersRefusal::Version { given: next.version, current: self.version });
        }
        if !(1.0..=1e6).contains(&next.half_life_minibatches) {
            return Err(ParametersRefusal::HalfLife(next.half_life_minibatches));
        }
        match next.horizon_minibatches {
            Some(horizon) if horizon > 1024 => Err(ParametersRefusal::Horizon(horizon)),
            _ => Ok(()),
        }
    }
}
