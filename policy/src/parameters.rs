//! All tunables of the fast loop as one value, replaced whole after validation.

use crate::step::Origin;
use rudder_topology::{BlockId, JobId, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

/// Blocks `first..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRange {
    pub first: BlockId,
    pub end: BlockId,
}

/// Ranges of blocks to warm at most.
pub const WARM_RANGES_MAX: usize = 64;
/// A link is never given less than this share, in percent.
pub const LINK_SHARE_MIN: u8 = 10;

/// [`Parameters::half_life_minibatches`] where nobody says another one.
pub const HALF_LIFE_MINIBATCHES: f32 = 512.0;

/// [`Parameters::near_minibatches`] where nobody says another number.
const NEAR_MINIBATCHES: u32 = 3;

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
    /// Per storage node, how much of its link's permits may be used, in percent; its link counts as that much slower
    /// where a replica is chosen. 100 where nothing is said.
    pub link_shares: BTreeMap<NodeId, u8>,
    /// Per storage node another one, of which what the first one owns is asked in its place: it keeps copies.
    pub through: BTreeMap<NodeId, NodeId>,
    pub posture: Posture,
    /// Per job, an own and smaller `horizon_minibatches`: its share of the cache beside other jobs.
    pub job_horizons: BTreeMap<JobId, u32>,
    /// Blocks to bring into free slots once no announced minibatch lacks anything.
    pub warm: Vec<BlockRange>,
    /// Minibatches after which a block's recorded use counts half.
    pub half_life_minibatches: f32,
    /// Minibatches of a trainer, counted as above, for which blocks are evicted ahead of use, by arms that know next
    /// uses. Those beyond take free slots only: evicting for them would cost more fetches than it saves waiting, since
    /// better victims will have been used for the last time before their turn. Fewer where minibatches are large beside
    /// the cache. Raise it where a link's latency is more than two steps.
    pub near_minibatches: u32,
    /// A block that no known minibatch uses is fetched if it will be used, before it goes again, with this chance.
    pub likely_accuracy_min: f32,
    /// Memory for minibatches that are foreseen and not announced, all trainers of the node together.
    pub foreseen_bytes_max: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            version: 0,
            origin: Origin::Forecast,
            expires_ns: None,
            horizon_minibatches: None,
            link_shares: BTreeMap::new(),
            through: BTreeMap::new(),
            posture: Posture::Normal,
            job_horizons: BTreeMap::new(),
            warm: vec![],
            half_life_minibatches: HALF_LIFE_MINIBATCHES,
            near_minibatches: NEAR_MINIBATCHES,
            likely_accuracy_min: 0.76,
            foreseen_bytes_max: 64 << 20,
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
    #[error("a chance of {0} is not between 0 and 1")]
    Chance(f32),
    #[error("a link's share of {0} % is not between {LINK_SHARE_MIN} and 100")]
    LinkShare(u8),
    #[error("{0} ranges of blocks to warm are more than {WARM_RANGES_MAX}")]
    WarmRanges(usize),
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
        if !(0.0..=1.0).contains(&next.likely_accuracy_min) {
            return Err(ParametersRefusal::Chance(next.likely_accuracy_min));
        }
        if let Some(&share) = next.link_shares.values().find(|&share| !(LINK_SHARE_MIN..=100).contains(share))
        {
            return Err(ParametersRefusal::LinkShare(share));
        }
        if next.warm.len() > WARM_RANGES_MAX {
            return Err(ParametersRefusal::WarmRanges(next.warm.len()));
        }
        let near = [next.near_minibatches];
        let horizons = next.horizon_minibatches.iter().chain(next.job_horizons.values()).chain(&near);
        match horizons.copied().find(|&horizon| horizon > 1024) {
            Some(horizon) => Err(ParametersRefusal::Horizon(horizon)),
            None => Ok(()),
        }
    }
}
