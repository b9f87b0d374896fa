use super::*;
use crate::advice::lever::hot;
use crate::advice::sample::JobSample;
use crate::advice::state::DatasetIndex;
use proptest::prelude::*;
use rudder_topology::{JobId, PartId};

const SECOND: u64 = 1_000_000_000;
/// 1 Gbit/s in two seconds.
const FULL_BYTES: u64 = 250_000_000;

fn cluster() -> Cluster {
    let text = "[defaults]\ncontrol = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\nstorage_directory = \"/s\"\n\
        cache = \"1MiB\"\ntrainer_socket = \"/t/{name}.sock\"\n\
        [[nodes]]\nname = \"c0\"\nroles = [\"compute\"]\n\
        [[nodes]]\nname = \"s0\"\nroles = [\"storage\"]\n[[nodes]]\nname = \"s1\"\nroles = [\"storage\"]\n\
        [[datasets]]\nname = \"d\"\ndirectory = \"/d\"\nparts = 2\nplacement = \"round_robin\"\nreplicas = 2\n\
        [default_link]\nbandwidth = \"1Gbit/s\"\n";
    rudder_topology::compile(text, std::path::Path::new("t.toml")).unwrap()
}

/// The n-th sample of a node that waits a quarter of the time and finds half of its rows.
fn sample(n: u64, bytes: u64, permits_used: f32) -> ComputeSample {
    ComputeSample {
        jobs: vec![JobSample {
            job: JobId(1),
            trainers: 2,
            wait_ns: n * SECOND,
            used_ns: n * 3 * SECOND,
            used_minibatches: n * 10,
            ahead: 3,
        }],
        links: vec![LinkSample {
            storage: NodeId(1),
            up: true,
            arrived_bytes: n * bytes,
            rate_bytes_s: 0,
            permits_used,
        }],
        rows_wanted: n * 100,
        rows_resident: n * 50,
        bytes_wanted: n * 80,
        bytes_demand: n * 10,
        bytes_prefetch: n * 30,
        minibatches_released: n,
        cache_free: 0.1,
        minibatch_share: 0.1,
        holds_share: 0.1,
        window_share: 0.4,
        gpu_use: None,
        ready: 1,
        wants: vec![(hot(DatasetIndex(0), PartId((n % 40 / 20) as u16)), 10)],
        next: vec![],
    }
}

fn after(samples: u64, bytes: u64, permits_used: f32) -> ClusterState {
    let mut observed = Observed::new(&cluster());
    for n in 0..samples {
        observed.take(NodeId(0), n * 2 * SECOND, sample(n, bytes, permits_used));
    }
    observed.state(7)
}

#[test]
fn two_samples_say_what_happened_between_them() {
    let state = after(2, FULL_BYTES / 2, 0.2);
    let node = &state.compute[0];
    assert_eq!((node.wait_share, node.hit_rate, node.prefetch_share), (0.25, 0.5, 0.75));
    assert_eq!((node.moved_share, node.window_share), (0.5, 0.4));
    assert_eq!(node.jobs, [JobState { job: JobId(1), wait_share: 0.25, stretched: 0.0, ahead: 3 }]);
    let link = state.links[0];
    assert_eq!((link.storage, link.compute, link.rate_share), (NodeId(1), NodeId(0), 1.0));
    assert!((link.bandwidth_use - 0.5).abs() < 1e-3);
    assert_eq!((state.minibatch, state.at_ns, state.storage.len()), (1, 7, 2));
    assert!((state.storage[0].load - 0.5).abs() < 1e-3 && state.storage[0].replicated == 1.0);
    assert_eq!(after(1, 1, 0.0).compute[0].wait_share, 0.0, "one sample says nothing");
}

#[test]
fn devices_are_told_where_they_say_something() {
    let with = |gpu_use| {
        let mut observed = Observed::new(&cluster());
        for n in 0..2 {
            observed.take(NodeId(0), n * 2 * SECOND, ComputeSample { gpu_use, ..sample(n, 1, 0.0) });
        }
        observed.state(0).compute[0].gpu_use
    };
    assert_eq!([None, Some(0.7), Some(7.0), Some(f32::NAN)].map(with), [None, Some(0.7), Some(1.0), None]);
}

#[test]
fn totals_grow_over_restarts_of_nodes() {
    let mut observed = Observed::new(&cluster());
    for n in [5, 6, 0, 1] {
        observed.take(NodeId(0), n * 2 * SECOND, sample(n, 1, 0.0));
    }
    let expected = Totals { minibatches: 2, demand_bytes: 20, wait_ns: 2 * SECOND };
    assert_eq!(observed.totals(), expected);
}

#[test]
fn a_full_link_shows_what_it_can_carry() {
    let slow = after(10, FULL_BYTES / 5, 1.0).links[0];
    assert!((slow.rate_share - 0.2).abs() < 0.02 && slow.bandwidth_use == 1.0, "{slow:?}");
    let idle = after(10, FULL_BYTES / 5, 0.1).links[0];
    assert!(idle.rate_share == 1.0 && (idle.bandwidth_use - 0.2).abs() < 0.01, "{idle:?}");
}

#[test]
fn a_link_that_slows_down_shows_it_and_one_that_says_nothing_does_not() {
    let slowed = |rates: &[u64]| {
        let mut observed = Observed::new(&cluster());
        for (n, &rate) in (0..).zip(rates) {
            let mut sample = sample(n, 1, 0.0);
            sample.links[0].rate_bytes_s = rate;
            observed.take(NodeId(0), n * 2 * SECOND, sample);
        }
        observed.state(0).links[0].slowed
    };
    assert_eq!((slowed(&[0, 0, 0]), slowed(&[5, 1000, 1000])), (0.0, 0.0));
    assert!((slowed(&[0, 1000, 1000, 250]) - 0.75).abs() < 0.01);
    assert_eq!(slowed(&[0, 1000, 250, 0]), 0.0, "nothing is known any more");
}

/// What is told of steps that take so long, in milliseconds, ten a period.
fn stretched(steps_ms: impl IntoIterator<Item = u64>) -> Vec<(f32, f32)> {
    let (mut observed, mut used_ms) = (Observed::new(&cluster()), 0);
    let of = |(n, step_ms): (u64, u64)| {
        used_ms += 10 * step_ms;
        let mut sample = sample(n, 1, 0.0);
        sample.jobs[0].used_ns = used_ms * 1_000_000;
        observed.take(NodeId(0), n * 2 * SECOND, sample);
        let compute = &observed.state(0).compute[0];
        assert!(compute.jobs.iter().all(|job| job.stretched == compute.stretched));
        (compute.stretched, compute.stall_share)
    };
    (0..).zip(steps_ms).map(of).collect()
}

#[test]
fn steps_that_take_longer_than_they_once_did_are_stretched() {
    let told = stretched([vec![100; 20], vec![125; 20], vec![100; 5]].concat());
    let near = |value: f32, expected: f32| (value - expected).abs() < 0.02;
    assert!(told[2..20].iter().all(|&(smooth, stall)| near(smooth, 0.0) && near(stall, 0.25)), "{told:?}");
    // A quarter is waited, and of the rest a fifth is beyond the least; what is told of it follows slowly.
    assert!(told[20..40].iter().all(|&(_, stall)| near(stall, 0.25 + 0.75 * 0.19)), "{told:?}");
    assert!(told[20].0 < 0.06 && near(told[39].0, 0.18), "{told:?}");
    assert!(told[40..].iter().all(|&(_, stall)| near(stall, 0.25)), "{told:?}");
    // What was long ago is forgotten.
    let (smooth, _) = *stretched([vec![100; 20], vec![125; 2000]].concat()).last().unwrap();
    assert!(near(smooth, 0.0), "{smooth}");
}

#[test]
fn steps_that_vary_are_not_stretched() {
    let varied = |n: u64| 90 + rudder_graph::random::Key::new(n).below(0, 21);
    let told = stretched((0..500).map(varied));
    assert!(told.iter().all(|&(smooth, _)| smooth < 0.08), "{told:?}");
}

#[test]
fn who_says_nothing_of_steps_is_not_stretched() {
    let mut steps = Steps::default();
    assert!((0..20).all(|_| steps.observe(0, 0) == (0.0, 0.0)));
}

#[test]
fn other_parts_are_drift_until_they_are_usual() {
    assert!(after(20, 1, 0.0).compute[0].drift < 0.01);
    assert!(after(21, 1, 0.0).compute[0].drift > 0.9);
}

#[test]
fn a_restarted_node_starts_anew() {
    let mut observed = Observed::new(&cluster());
    for n in [5, 6, 0, 1] {
        observed.take(NodeId(0), n * 2 * SECOND, sample(n, 1, 0.0));
    }
    assert_eq!(observed.state(0).compute[0].wait_share, 0.25);
    observed.forget(NodeId(0));
    assert!(observed.state(0).compute.is_empty());
}

proptest! {
    #[test]
    fn any_sample_gives_finite_shares(
        values in prop::array::uniform6(any::<u64>()), permits in prop::num::f32::ANY, node: u16, at: u64,
    ) {
        let mut observed = Observed::new(&cluster());
        observed.take(NodeId(node), 0, sample(0, 1, 0.0));
        let mut wild = sample(1, 1, permits);
        [wild.rows_wanted, wild.rows_resident, wild.bytes_demand, wild.bytes_prefetch] =
            [values[0], values[1], values[2] / 2, values[3] / 2];
        wild.jobs[0].wait_ns = values[4];
        (wild.jobs[0].used_ns, wild.jobs[0].used_minibatches) = (values[5], values[4]);
        wild.links[0].arrived_bytes = values[5];
        observed.take(NodeId(node), at, wild);
        let labels = crate::advice::labels::Labels::of(&cluster());
        let state = observed.state(0);
        prop_assert!(state.metrics(&labels).iter().all(|m| (0.0..=1.0).contains(m)));
        prop_assert!(state.compute.iter().all(|of| (0.0..=1.0).contains(&of.stall_share)));
    }
}
