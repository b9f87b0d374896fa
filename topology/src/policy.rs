//! Which policy steers a node's cache: its name, its parameters, and what they are where nobody says.

use crate::units::Share;
use std::fmt;

/// Which policy steers the cache, with its parameters where it has some. What each does stands in
/// `policy/src/arms.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySpec {
    None,
    NoneOverlap,
    FixedWindow {
        minibatches: u32,
    },
    Lru,
    LruPrefetch,
    Lfu,
    Clock,
    Sieve,
    S3Fifo,
    Degree,
    Presc {
        epochs: u32,
        sampling: Sampling,
    },
    Vip {
        sampling: Sampling,
    },
    MassiveGnn(MassiveGnnSpec),
    RudderPaper {
        scoring: MassiveGnnSpec,
        controller: ControllerSpec,
    },
    WindowStatic(WindowStaticSpec),
    BeladySuperbatch {
        minibatches: u32,
    },
    /// Told how trainers sample, it starts from what the graph makes likely.
    Rudder {
        sampling: Option<Sampling>,
    },
}

/// MassiveGNN's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MassiveGnnSpec {
    /// A member's eviction score loses this share with each minibatch that does not hit it; above 0 and below 1.
    pub alpha: Share,
    /// Minibatches that a member of score 1 may go without a hit before it is stale; and between replacements, for
    /// `massivegnn`. At least 1.
    pub delta: u32,
    /// The buffer's share of the halo.
    pub fraction: Share,
}

impl MassiveGnnSpec {
    /// As in the published logs on ogbn-products: f = 0.25, Δ = 32, α = 0.005.
    pub const PUBLISHED: MassiveGnnSpec = MassiveGnnSpec {
        alpha: Share::from_millionths(5_000),
        delta: 32,
        fraction: Share::from_millionths(250_000),
    };
}

/// Who decides when `rudder_paper` replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerSpec {
    Always,
    Never,
    /// With this probability at each minibatch, drawn alike in every run.
    Random {
        probability: Share,
    },
    /// At every so many minibatches; at least 1.
    Every {
        minibatches: u32,
    },
}

/// RapidGNN's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowStaticSpec {
    /// Minibatches of a window. RapidGNN takes an epoch.
    pub minibatches: u32,
    /// Share of the cache for one of the two buffers, at most a half.
    pub cache: Share,
}

impl WindowStaticSpec {
    /// As much as a trainer may announce twice, since how long an epoch is is not known here; two fifths for each
    /// buffer leave a fifth for minibatches in use.
    pub const DEFAULT: WindowStaticSpec =
        WindowStaticSpec { minibatches: 500, cache: Share::from_millionths(400_000) };
}

/// Ginex's own default for S.
pub const SUPERBATCH_DEFAULT: u32 = 1000;

/// K of PreSC#K; GNNLab finds 1 enough.
pub const PRESC_EPOCHS_DEFAULT: u32 = 1;

impl PolicySpec {
    /// Every policy once, with published parameters.
    pub const ALL: [PolicySpec; 17] = [
        PolicySpec::None,
        PolicySpec::NoneOverlap,
        PolicySpec::FixedWindow { minibatches: FIXED_WINDOW_DEFAULT },
        PolicySpec::Lru,
        PolicySpec::LruPrefetch,
        PolicySpec::Lfu,
        PolicySpec::Clock,
        PolicySpec::Sieve,
        PolicySpec::S3Fifo,
        PolicySpec::Degree,
        PolicySpec::Presc { epochs: PRESC_EPOCHS_DEFAULT, sampling: Sampling::PUBLISHED },
        PolicySpec::Vip { sampling: Sampling::PUBLISHED },
        PolicySpec::MassiveGnn(MassiveGnnSpec::PUBLISHED),
        PolicySpec::RudderPaper { scoring: MassiveGnnSpec::PUBLISHED, controller: ControllerSpec::Always },
        PolicySpec::WindowStatic(WindowStaticSpec::DEFAULT),
        PolicySpec::BeladySuperbatch { minibatches: SUPERBATCH_DEFAULT },
        PolicySpec::RUDDER,
    ];

    /// With nothing known of how trainers sample.
    pub const RUDDER: PolicySpec = PolicySpec::Rudder { sampling: None };

    /// The name in topology files, scenario files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PolicySpec::None => "none",
            PolicySpec::NoneOverlap => "none_overlap",
            PolicySpec::FixedWindow { .. } => "fixed_window",
            PolicySpec::Lru => "lru",
            PolicySpec::LruPrefetch => "lru_prefetch",
            PolicySpec::Lfu => "lfu",
            PolicySpec::Clock => "clock",
            PolicySpec::Sieve => "sieve",
            PolicySpec::S3Fifo => "s3fifo",
            PolicySpec::Degree => "degree",
            PolicySpec::Presc { .. } => "presc",
            PolicySpec::Vip { .. } => "vip",
            PolicySpec::MassiveGnn(_) => "massivegnn",
            PolicySpec::RudderPaper { .. } => "rudder_paper",
            PolicySpec::WindowStatic(_) => "window_static",
            PolicySpec::BeladySuperbatch { .. } => "belady_superbatch",
            PolicySpec::Rudder { .. } => "rudder",
        }
    }

    /// Minibatches that trainers have to announce ahead for the policy to be what it is called.
    #[must_use]
    pub const fn look_ahead_minibatches(self) -> Option<u32> {
        match self {
            PolicySpec::WindowStatic(WindowStaticSpec { minibatches, .. }) => Some(2 * minibatches),
            PolicySpec::BeladySuperbatch { minibatches } => Some(minibatches),
            _ => None,
        }
    }

    /// The policy of that name with published parameters.
    #[must_use]
    pub fn named(name: &str) -> Option<PolicySpec> {
        PolicySpec::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// What a predictor has to know of how trainers sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Seeds of a minibatch.
    pub seeds: u32,
    pub fanout: Fanout,
}

impl Sampling {
    /// 1,024 seeds, fanout 15, 10, 5: SALIENT++ on papers100M.
    pub const PUBLISHED: Sampling =
        Sampling { seeds: 1024, fanout: Fanout { hops: [15, 10, 5, 0, 0, 0, 0, 0] } };
}

/// Neighbours sampled a hop, from the seeds outwards: 1 to 8 hops of 1 to 65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// 0 after the last hop.
    hops: [u16; Fanout::HOPS_MAX],
}

impl Fanout {
    pub const HOPS_MAX: usize = 8;

    /// `None` where there are no hops, too many, or one of them is out of range.
    #[must_use]
    pub fn new(neighbours: &[u32]) -> Option<Fanout> {
        if neighbours.is_empty() || neighbours.len() > Fanout::HOPS_MAX {
            return None;
        }
        let mut hops = [0; Fanout::HOPS_MAX];
        for (hop, &neighbours) in hops.iter_mut().zip(neighbours) {
            *hop = u16::try_from(neighbours).ok().filter(|&hop| hop > 0)?;
        }
        Some(Fanout { hops })
    }

    /// Neighbours of each hop.
    pub fn hops(&self) -> impl Iterator<Item = u32> {
        self.hops.iter().map(|&hop| u32::from(hop)).take_while(|&hop| hop > 0)
    }
}

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hops: Vec<String> = self.hops().map(|hop| hop.to_string()).collect();
        f.write_str(&hops.join(","))
    }
}

/// 16: the strong static baseline of a published comparison of 216 runs.
pub const FIXED_WINDOW_DEFAULT: u32 = 16;

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            PolicySpec::FixedWindow { minibatches } | PolicySpec::BeladySuperbatch { minibatches } => {
                write!(f, "({minibatches})")
            }
            PolicySpec::Presc { epochs, sampling } => write!(f, "(epochs {epochs}, {sampling})"),
            PolicySpec::Vip { sampling } | PolicySpec::Rudder { sampling: Some(sampling) } => {
                write!(f, "({sampling})")
            }
            PolicySpec::MassiveGnn(scoring) => write!(f, "({scoring})"),
            PolicySpec::RudderPaper { scoring, controller } => write!(f, "({scoring}, {controller})"),
            PolicySpec::WindowStatic(WindowStaticSpec { minibatches, cache }) => {
                write!(f, "(minibatches {minibatches}, cache {cache})")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seeds {}, fanout {}", self.seeds, self.fanout)
    }
}

impl fmt::Display for MassiveGnnSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "alpha {}, delta {}, f {}", self.alpha, self.delta, self.fraction)
    }
}

impl fmt::Display for ControllerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControllerSpec::Always => f.write_str("always"),
            ControllerSpec::Never => f.write_str("never"),
            ControllerSpec::Random { probability } => write!(f, "random {probability}"),
            ControllerSpec::Every { minibatches } => write!(f, "every {minibatches}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_lead_back() {
        for policy in PolicySpec::ALL {
            assert_eq!(PolicySpec::named(policy.name()), Some(policy));
        }
        assert_eq!(PolicySpec::named("oracle"), None);
        let shown = |name| PolicySpec::named(name).unwrap().to_string();
        assert_eq!(PolicySpec::FixedWindow { minibatches: 3 }.to_string(), "fixed_window(3)");
        assert_eq!(shown("presc"), "presc(epochs 1, seeds 1024, fanout 15,10,5)");
        assert_eq!(shown("rudder_paper"), "rudder_paper(alpha 0.005, delta 32, f 0.25, always)");
    }

    #[test]
    fn a_fanout_has_hops_and_each_has_neighbours() {
        assert_eq!(Fanout::new(&[3, 65_535]).unwrap().hops().collect::<Vec<_>>(), [3, 65_535]);
        for refused in [&[][..], &[0], &[3, 0], &[65_536], &[1; 9]] {
            assert_eq!(Fanout::new(refused), None, "{refused:?}");
        }
    }
}
