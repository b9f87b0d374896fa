//! What holds training up: from how busy links are, and from what changes when something is changed.

use serde::Serialize;

/// What holds training up most.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Bottleneck {
    /// Every part lies on the compute nodes' own machines.
    NothingRemote,
    /// The cache has no room for one minibatch: it comes in pieces.
    CacheTooSmall,
    /// The fastest arm is as fast as compute alone, nearly.
    Compute,
    /// The fastest arm is as fast as compute and all-reduce alone, and these are held up by gradients on the links.
    AllReduce,
    /// A link is full.
    Link { name: String, busy: f64 },
    /// Rows come again and again, because the cache does not keep them.
    Cache,
    /// Trainers announce too little ahead for transfers to hide behind compute.
    Window,
    /// None of these: each request's own time, sampling, latency.
    Requests,
}

/// What there is to judge by. Gains are throughput over today's, less 1, of the fastest arm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Evidence {
    pub remote_bytes: u64,
    pub cache_bytes: u64,
    pub minibatch_cache_bytes: u64,
    /// Minibatches per second of a trainer: the fastest arm, compute and all-reduce alone, compute alone.
    pub fastest: f64,
    pub bound: f64,
    pub compute: f64,
    /// The busiest link with the fastest arm.
    pub busiest: Option<(String, f64)>,
    pub with_twice_the_bandwidth: f64,
    pub with_all_cached: f64,
    pub with_twice_the_window: f64,
}

/// This close to what is possible counts as reached.
const REACHED: f64 = 0.97;
/// A gain below this is none worth naming.
const GAIN_LEAST: f64 = 0.03;
/// All-reduce that costs less than this share is not what holds training up.
const ALLREDUCE_LEAST: f64 = 0.1;

pub(super) fn bottleneck(evidence: &Evidence) -> Bottleneck {
    let e = evidence;
    if e.remote_bytes == 0 {
        return Bottleneck::NothingRemote;
    }
    if e.fastest >= REACHED * e.bound {
        let held_up = e.bound < (1.0 - ALLREDUCE_LEAST) * e.compute;
        return if held_up { Bottleneck::AllReduce } else { Bottleneck::Compute };
    }
    if e.cache_bytes < e.minibatch_cache_bytes {
        return Bottleneck::CacheTooSmall;
    }
    let (bandwidth, cache, window) = (e.with_twice_the_bandwidth, e.with_all_cached, e.with_twice_the_window);
    if bandwidth.max(cache).max(window) < GAIN_LEAST {
        return Bottleneck::Requests;
    }
    if window > bandwidth.max(cache) {
        return Bottleneck::Window;
    }
    match &e.busiest {
        Some((name, busy)) if bandwidth >= cache => Bottleneck::Link { name: name.clone(), busy: *busy },
        _ => Bottleneck::Cache,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence() -> Evidence {
        Evidence {
            remote_bytes: 1000,
            cache_bytes: 250,
            minibatch_cache_bytes: 100,
            fastest: 5.0,
            bound: 10.0,
            compute: 10.0,
            busiest: Some(("the uplink of storage node s0".into(), 0.97)),
            with_twice_the_bandwidth: 0.6,
            with_all_cached: 0.2,
            with_twice_the_window: 0.01,
        }
    }

    #[test]
    fn each_is_found() {
        let of = |change: &dyn Fn(&mut Evidence)| {
            let mut evidence = evidence();
            change(&mut evidence);
            bottleneck(&evidence)
        };
        let link = Bottleneck::Link { name: "the uplink of storage node s0".into(), busy: 0.97 };
        assert_eq!(of(&|_| ()), link);
        assert_eq!(of(&|e| e.remote_bytes = 0), Bottleneck::NothingRemote);
        assert_eq!(of(&|e| e.cache_bytes = 99), Bottleneck::CacheTooSmall);
        assert_eq!(of(&|e| e.fastest = 9.8), Bottleneck::Compute);
        assert_eq!(of(&|e| (e.fastest, e.compute) = (9.8, 20.0)), Bottleneck::AllReduce);
        assert_eq!(of(&|e| e.with_all_cached = 0.7), Bottleneck::Cache);
        assert_eq!(of(&|e| e.with_twice_the_window = 0.7), Bottleneck::Window);
        assert_eq!(of(&|e| e.busiest = None), Bottleneck::Cache);
        let nothing = |e: &mut Evidence| {
            (e.with_twice_the_bandwidth, e.with_all_cached, e.with_twice_the_window) = (0.0, 0.0, 0.0);
        };
        assert_eq!(of(&nothing), Bottleneck::Requests);
    }
}
