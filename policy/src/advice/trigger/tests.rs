use super::*;
use crate::advice::state::{ComputeState, LinkState, StorageState};
use crate::testing::storage_state;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn compute(node: u16, wait_share: f32) -> ComputeState {
    ComputeState {
        node: NodeId(node),
        gpu_use: None,
        wait_share,
        stretched: 0.0,
        stall_share: 0.0,
        stall_lately: wait_share,
        hit_rate: 1.0,
        drift: 0.0,
        prefetch_share: 0.0,
        cache_free: 0.0,
        minibatch_share: 0.1,
        holds_share: 0.1,
        window_share: 0.4,
        moved_share: 0.5,
        ready: 0,
        waiting: vec![],
        next: vec![],
        wants: vec![],
        jobs: vec![],
    }
}

fn waiting(at: u64, wait_share: f32) -> ClusterState {
    ClusterState { at_ns: at * 2 * SECOND, compute: vec![compute(0, wait_share)], ..ClusterState::default() }
}

/// The places of the edges in a series of wait shares, one every 2 s.
fn edges(series: &[f32]) -> Vec<usize> {
    let mut trigger = Trigger::new(TriggerConfig::default());
    let fired = series.iter().enumerate().map(|(at, &w)| trigger.observe(&waiting(at as u64, w)).len());
    fired.enumerate().filter(|&(_, count)| count > 0).map(|(at, _)| at).collect()
}

#[test]
fn an_edge_triggers_once_and_again_only_after_the_value_came_back() {
    let cases: [(&str, Vec<f32>, usize); 8] = [
        ("good for ever", vec![0.02; 200], 0),
        ("bad from the first minute", vec![0.4; 200], 1),
        ("a step up", [vec![0.02; 40], vec![0.4; 200]].concat(), 1),
        ("up, back, up", [vec![0.02; 40], vec![0.4; 60], vec![0.01; 60], vec![0.4; 60]].concat(), 2),
        ("up, and much further up", [vec![0.02; 40], vec![0.2; 60], vec![0.6; 60]].concat(), 2),
        ("above the threshold, near the usual", [vec![0.14; 60], vec![0.17; 200]].concat(), 0),
        ("a cold start that heals", [vec![0.9, 0.8, 0.5, 0.2], vec![0.02; 100]].concat(), 0),
        ("one bad value", [vec![0.02; 40], vec![0.25], vec![0.02; 40]].concat(), 0),
    ];
    for (name, series, expected) in cases {
        assert_eq!(edges(&series).len(), expected, "{name}: {:?}", edges(&series));
    }
}

#[test]
fn the_cool_down_holds_back_what_flaps() {
    // 4 s good, 4 s bad, over and over: 20 times a minute and a half without a cool-down.
    let series: Vec<f32> = (0..300).map(|at| if at / 4 % 2 == 0 { 0.0 } else { 0.9 }).collect();
    let found = edges(&series);
    assert!(found.windows(2).all(|pair| (pair[1] - pair[0]) * 2 >= 60), "{found:?}");
    assert!(!found.is_empty());
}

#[test]
fn every_signal_has_its_trigger() {
    let good = |at: u64| ClusterState {
        at_ns: at * 2 * SECOND,
        compute: vec![ComputeState { gpu_use: Some(0.95), ..compute(0, 0.0) }],
        storage: (1..=2)
            .map(|node| StorageState { load: 0.5, replicated: 0.0, ..storage_state(NodeId(node)) })
            .collect(),
        links: vec![LinkState {
            storage: NodeId(1),
            compute: NodeId(0),
            bandwidth_use: 0.5,
            rate_share: 1.0,
            slowed: 0.0,
            latency_ms: None,
        }],
        ..ClusterState::default()
    };
    type Spoil = fn(&mut ClusterState);
    let cases: [(Signal, Spoil); 7] = [
        (Signal::Wait(NodeId(0)), |s| s.compute[0].wait_share = 0.5),
        (Signal::Stretched(NodeId(0)), |s| s.compute[0].stretched = 0.5),
        (Signal::GpuIdle(NodeId(0)), |s| s.compute[0].gpu_use = Some(0.2)),
        (Signal::Miss(NodeId(0)), |s| s.compute[0].hit_rate = 0.2),
        (Signal::Drift(NodeId(0)), |s| s.compute[0].drift = 0.8),
        (Signal::Link { storage: NodeId(1), compute: NodeId(0) }, |s| s.links[0].bandwidth_use = 1.0),
        (Signal::Imbalance, |s| (s.storage[0].load, s.storage[1].load) = (0.9, 0.1)),
    ];
    for (signal, spoil) in cases {
        let mut trigger = Trigger::new(TriggerConfig::default());
        let calm: Vec<_> = (0..40).flat_map(|at| trigger.observe(&good(at))).collect();
        assert_eq!(calm, [], "{signal:?}");
        let fired: Vec<_> = (40..60)
            .flat_map(|at| {
                let mut state = good(at);
                spoil(&mut state);
                trigger.observe(&state)
            })
            .collect();
        assert_eq!(fired.len(), 1, "{signal:?}: {fired:?}");
        assert_eq!(fired[0].signal, signal);
        assert!(fired[0].usual.is_some_and(|usual| fired[0].value > usual));
    }
}

proptest! {
    /// Noise around any level triggers at most once, and that only where the level itself is bad from the start.
    #[test]
    fn a_steady_cluster_is_left_alone(
        level in 0.0_f32..0.9,
        noise in prop::collection::vec(-0.03_f32..0.03, 300),
    ) {
        let series: Vec<f32> = noise.iter().map(|n| (level + n).max(0.0)).collect();
        let found = edges(&series);
        let config = TriggerConfig::default();
        prop_assert!(found.len() <= 1, "{:?}", found);
        // After the warm-up and one time constant of the smoothing nothing more comes, unless the noise straddles the
        // threshold itself, where the first value beyond it may come late.
        if (level - config.wait.enter).abs() > 0.03 {
            prop_assert!(found.iter().all(|&at| at <= config.warm_up_values as usize + 3), "{:?}", found);
        }
    }

    /// Whatever is measured: no panic, and never two edges of a signal within the cool-down.
    #[test]
    fn edges_are_a_cool_down_apart(series in prop::collection::vec(prop::num::f32::ANY, 1..300)) {
        let found = edges(&series);
        prop_assert!(found.windows(2).all(|pair| (pair[1] - pair[0]) * 2 >= 60));
    }
}
