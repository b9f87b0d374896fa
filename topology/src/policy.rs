//! Which policy steers a node's cache: its name, its parameters, and what they are where nobody says.

use std::fmt;

/// Which policy steers the cache, with its parameters where it has some. What each does stands in
/// `policy/src/arms.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySpec {
    None,
    NoneOverlap,
    FixedWindow { minibatches: u32 },
    Lru,
    LruPrefetch,
    Lfu,
    Clock,
    Sieve,
    S3Fifo,
    Rudder,
}

impl PolicySpec {
    /// Every policy once, with published parameters.
    pub const ALL: [PolicySpec; 10] = [
        PolicySpec::None,
        PolicySpec::NoneOverlap,
        PolicySpec::FixedWindow { minibatches: FIXED_WINDOW_DEFAULT },
        PolicySpec::Lru,
        PolicySpec::LruPrefetch,
        PolicySpec::Lfu,
        PolicySpec::Clock,
        PolicySpec::Sieve,
        PolicySpec::S3Fifo,
        PolicySpec::Rudder,
    ];

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
            PolicySpec::Rudder => "rudder",
        }
    }

    /// The policy of that name with published parameters.
    #[must_use]
    pub fn named(name: &str) -> Option<PolicySpec> {
        PolicySpec::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// What a policy has to know of the graph before training: how often each block will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorKind {
    /// The in-degree of its vertices (PaGraph, Quiver).
    Degree,
    /// Visits over presampled epochs (GNNLab's PreSC#K).
    PreSc { epochs: u32, sampling: Sampling },
    /// The analytic visit probability (SALIENT++).
    Vip { sampling: Sampling },
    /// The in-degree of its halo vertices: remote, and in-neighbours of a co-located vertex. Where nothing is
    /// co-located, every vertex is in the halo. A block without one has 0, any other more than 0.
    HaloDegree,
}

/// What a predictor has to know of how trainers sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Seeds of a minibatch.
    pub seeds: u32,
    pub fanout: Fanout,
}

/// Neighbours sampled a hop, from the seeds outwards: 1 to 6 hops of 1 to 65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// 0 after the last hop.
    hops: [u16; Fanout::HOPS_MAX],
}

impl Fanout {
    pub const HOPS_MAX: usize = 6;

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
            PolicySpec::FixedWindow { minibatches } => write!(f, "({minibatches})"),
            _ => Ok(()),
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
        assert_eq!(PolicySpec::FixedWindow { minibatches: 3 }.to_string(), "fixed_window(3)");
    }
}
