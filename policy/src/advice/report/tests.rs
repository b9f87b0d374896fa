use super::*;
use crate::advice::labels::Labels;
use crate::advice::state::{
    BlockOf, ClusterState, ComputeState, DatasetIndex, Group, GroupSet, JobState, LinkState, StorageState,
};
use crate::testing::storage_state;
use proptest::prelude::*;
use rudder_topology::{BlockId, JobId, NodeId, PartId};

fn blocks(ids: &[u32]) -> Vec<BlockOf> {
    ids.iter().map(|&id| BlockOf { dataset: DatasetIndex(0), block: BlockId(id) }).collect()
}

fn compute(node: u16, gpu_use: Option<f32>, waiting: &[u32], next: &[u32]) -> ComputeState {
    ComputeState {
        node: NodeId(node),
        gpu_use,
        wait_share: 0.0,
        stretched: 0.0,
        stall_share: 0.0,
        stall_lately: 0.0,
        hit_rate: 1.0,
        drift: 0.0,
        prefetch_share: 1.0,
        cache_free: 0.0,
        minibatch_share: 0.1,
        holds_share: 0.1,
        window_share: 0.4,
        moved_share: 0.5,
        ready: 0,
        waiting: blocks(waiting),
        next: blocks(next),
        wants: vec![],
        jobs: vec![],
    }
}

fn storage(node: u16, load: f32, cached: &[u32]) -> StorageState {
    StorageState { load, replicated: 0.0, cached: blocks(cached), ..storage_state(NodeId(node)) }
}

fn link(storage: u16, compute: u16, bandwidth_use: f32) -> LinkState {
    let (storage, compute) = (NodeId(storage), NodeId(compute));
    LinkState { storage, compute, bandwidth_use, rate_share: 1.0, slowed: 0.0, latency_ms: None }
}

/// Two compute nodes (0, 1) and two storage nodes (2, 3).
fn published() -> (ClusterState, Labels) {
    let state = ClusterState {
        at_ns: 0,
        minibatch: 120,
        compute: vec![
            compute(0, Some(0.85), &[102, 201], &[102, 103, 205, 207]),
            compute(1, Some(0.70), &[305], &[301, 305, 408]),
        ],
        storage: vec![storage(2, 0.6, &[101, 102, 103, 201]), storage(3, 0.3, &[202, 205, 301, 305])],
        links: vec![link(2, 0, 0.45), link(3, 1, 0.20)],
        ahead_minibatches: 3,
        ahead: blocks(&[207, 208, 302, 408]),
    };
    (state, Labels::new(vec![NodeId(0), NodeId(1)], vec![NodeId(2), NodeId(3)]))
}

#[test]
fn the_full_form_is_the_published_one() {
    let (state, labels) = published();
    let expected = "\
[state report] T120
compute C0: GPU use 85%; waiting for blocks [B102, B201]; next minibatch needs [B102, B103, B205, B207]
compute C1: GPU use 70%; waiting for blocks [B305]; next minibatch needs [B301, B305, B408]
storage S0: load 0.6; cached [B101, B102, B103, B201]
storage S1: load 0.3; cached [B202, B205, B301, B305]
link S0-C0: bandwidth use 45%
link S1-C1: bandwidth use 20%
look-ahead, next 3 steps, likely hot: [B207, B208, B302, B408]
";
    assert_eq!(full(&state, &labels), expected);
}

#[test]
fn the_full_form_says_what_else_is_known() {
    let (mut state, labels) = published();
    state.compute.truncate(1);
    state.compute[0].gpu_use = None;
    state.compute[0].wait_share = 0.3;
    state.compute[0].stretched = 0.2;
    state.compute[0].ready = 2;
    state.storage.truncate(1);
    state.storage[0].up = false;
    state.links.truncate(1);
    state.links[0].rate_share = 0.25;
    state.links[0].latency_ms = Some(1.5);
    state.ahead_minibatches = 0;
    let expected = "\
[state report] T120
compute C0: GPU absent, wait share 30%; steps stretched 20%; 2 ready; waiting for blocks [B102, B201]; next minibatch needs [B102, B103, B205, B207]
storage S0: not reachable
link S0-C0: bandwidth use 45%; carries 25% of its stated rate; latency 1.5 ms
";
    assert_eq!(full(&state, &labels), expected);
}

#[test]
fn the_compact_form_has_levels_changes_groups_and_the_past() {
    let (mut state, labels) = published();
    let mut reporter = Reporter::default();
    reporter.compact(&state, &labels, &[]);
    state.compute[1].wait_share = 0.4;
    state.compute[1].hit_rate = 0.5;
    (state.compute[0].stretched, state.compute[1].stretched) = (0.1, 0.4);
    state.compute[1].stall_share = 0.6;
    let group = Group { dataset: DatasetIndex(0), part: PartId(1), set: GroupSet::Hot };
    state.compute[1].wants = vec![(group, 500)];
    state.links[1].bandwidth_use = 0.95;
    state.links[1].rate_share = 0.5;
    // Not full any more, and slow all the same.
    state.links[0].slowed = 0.6;
    let past = Past {
        action: "link_share C0 S1 50%".to_owned(),
        minibatch: 100,
        predicted: -0.1,
        measured: Some(0.05),
        reverted: true,
    };
    let expected = "\
T120: 2 compute, 2 storage; worst wait medium
C1: GPU high wait medium (rose) hits medium steps stretched medium needs P1.hot
C0: GPU high wait low hits high
S0: load medium
S1: load medium
S0-C0: use medium, slower than it was
S1-C1: use high, slower than stated
T100: link_share C0 S1 50% hurt, reverted
";
    assert_eq!(reporter.compact(&state, &labels, &[past]), expected);
}

/// A cluster with as many compute as storage nodes, all links, everything bad.
fn large(nodes: u16) -> (ClusterState, Labels) {
    let group = |part| (Group { dataset: DatasetIndex(99), part: PartId(part), set: GroupSet::Hot }, 7);
    let job = |job| JobState { job: JobId(job), wait_share: 0.9, stretched: 0.0, ahead: 3 };
    let bad = |node| ComputeState {
        wait_share: 0.9,
        stretched: 0.9,
        drift: 0.9,
        wants: (60_000..60_020).map(group).collect(),
        jobs: (4_000_000_000..4_000_000_010).map(job).collect(),
        ..compute(node, Some(0.1), &[1; 32], &[2; 32])
    };
    let state = ClusterState {
        minibatch: u64::MAX,
        compute: (0..nodes / 2).map(bad).collect(),
        storage: (nodes / 2..nodes).map(|node| storage(node, 1.0, &[3; 32])).collect(),
        links: (0..nodes / 2)
            .map(|at| LinkState { rate_share: 0.1, ..link(nodes / 2 + at, at, 1.0) })
            .collect(),
        ..ClusterState::default()
    };
    let labels = Labels::new(
        (0..nodes / 2).collect::<Vec<_>>().into_iter().map(NodeId).collect(),
        (nodes / 2..nodes).map(NodeId).collect(),
    );
    (state, labels)
}

#[test]
fn the_budget_is_the_same_for_2_and_for_1000_nodes() {
    let past = Past {
        action: "warm_group C499 D99.P60000.hot for 600 s".to_owned(),
        minibatch: u64::MAX,
        predicted: 0.0,
        measured: Some(1.0),
        reverted: true,
    };
    for nodes in [2, 1000] {
        let (state, labels) = large(nodes);
        let mut reporter = Reporter::default();
        for _ in 0..2 {
            let text = reporter.compact(&state, &labels, &vec![past.clone(); 100]);
            assert!(text.len() <= REPORT_BYTES_MAX, "{nodes} nodes: {} bytes", text.len());
            assert!(text.contains("C0:") && text.contains("S0:"), "{text}");
        }
    }
    let (state, labels) = large(1000);
    let text = Reporter::default().compact(&state, &labels, &[]);
    assert!(text.contains("496 other compute: wait at most high"), "{text}");
}

proptest! {
    #[test]
    fn no_measurement_breaks_a_report(value in prop::num::f32::ANY, nodes in 2_u16..40) {
        let (mut state, labels) = large(nodes);
        state.compute[0].wait_share = value;
        state.storage[0].load = value;
        state.links[0].rate_share = value;
        prop_assert!(!full(&state, &labels).is_empty());
        prop_assert!(Reporter::default().compact(&state, &labels, &[]).len() <= REPORT_BYTES_MAX);
    }
}
