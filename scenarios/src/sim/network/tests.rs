use super::*;
use proptest::prelude::*;
use rudder_graph::random::Key;

fn links(path: &[u32]) -> Path {
    path.iter().map(|&link| LinkIndex(link)).collect()
}

/// Ends of flows in order of time.
fn ends(network: &mut Network, mut now_ns: u64) -> Vec<(u64, FlowId)> {
    let mut ended = Vec::new();
    while let Some(next) = network.next_ns(now_ns) {
        now_ns = next.max(now_ns);
        while let Some(id) = network.pop_ended(now_ns) {
            ended.push((now_ns, id));
        }
    }
    ended
}

#[test]
fn flows_share_what_limits_them() {
    // The classical case: one flow over both links, one on each; the second link is twice as fast.
    let mut network = Network::new(&[100.0, 200.0], 0.0, Sharing::MaxMin);
    let both = network.start(links(&[0, 1]), 1000.0, 0);
    let first = network.start(links(&[0]), 1000.0, 0);
    let second = network.start(links(&[1]), 1000.0, 0);
    network.next_ns(0);
    for (flow, rate) in [(both, 50.0), (first, 50.0), (second, 150.0)] {
        assert!((network.rate(flow) - rate).abs() < 1e-6, "{}", network.rate(flow));
    }
    // 1000 B at 150 B/s; then both flows of the first link go on at 50 B/s to the end.
    let ended = ends(&mut network, 0);
    let seconds: Vec<f64> = ended.iter().map(|end| end.0 as f64 / 1e9).collect();
    assert_eq!(ended[0].1, second);
    assert!((seconds[0] - 1000.0 / 150.0).abs() < 1e-6 && (seconds[2] - 20.0).abs() < 1e-6, "{seconds:?}");
    assert_eq!(network.flows(), 0);
}

#[test]
fn a_link_that_slows_down_delays_and_one_without_capacity_holds() {
    let mut network = Network::new(&[100.0], 0.0, Sharing::MaxMin);
    network.start(links(&[0]), 100.0, 0);
    assert_eq!(network.next_ns(0), Some(1_000_000_000));
    network.set_capacity(LinkIndex(0), 50.0, 500_000_000);
    assert_eq!(network.next_ns(500_000_000), Some(1_500_000_000));
    network.set_capacity(LinkIndex(0), 0.0, 1_000_000_000);
    assert_eq!(network.next_ns(1_000_000_000), None);
    network.set_capacity(LinkIndex(0), 25.0, 2_000_000_000);
    assert_eq!(network.next_ns(2_000_000_000), Some(3_000_000_000));
}

#[test]
fn a_burst_passes_at_once_and_is_saved_up_again() {
    let mut network = Network::new(&[100.0, 100.0], 50.0, Sharing::MaxMin);
    let end = |network: &mut Network, now_ns| {
        network.start(links(&[0, 1]), 100.0, now_ns);
        let end_ns = network.next_ns(now_ns).unwrap();
        assert!(network.pop_ended(end_ns).is_some());
        end_ns - now_ns
    };
    assert_eq!(end(&mut network, 0), 500_000_000);
    // Nothing was saved while the link was busy; a quarter of a second of idling saves a quarter.
    assert_eq!(end(&mut network, 500_000_000), 1_000_000_000);
    assert_eq!(end(&mut network, 1_750_000_000), 750_000_000);
    assert_eq!(end(&mut network, 60_000_000_000), 500_000_000);
}

#[test]
fn a_cancelled_flow_leaves_its_share() {
    let mut network = Network::new(&[100.0], 0.0, Sharing::MaxMin);
    let gone = network.start(links(&[0]), 1000.0, 0);
    let stays = network.start(links(&[0]), 100.0, 0);
    network.next_ns(0);
    let left = network.cancel(gone, 1_000_000_000).unwrap();
    assert!((left - 950.0).abs() < 1e-6);
    assert_eq!(network.cancel(gone, 1_000_000_000), None);
    assert_eq!(network.next_ns(1_000_000_000), Some(1_500_000_000));
    assert_eq!(network.pop_ended(1_500_000_000), Some(stays));
    assert_eq!(network.start(Path::new(), 10.0, 2_000_000_000), network.pop_ended(2_000_000_000).unwrap());
}

/// A random load on a star of nodes: when each flow ended.
fn play(sharing: Sharing, seed: u64) -> (f64, f64) {
    let key = Key::new(seed);
    let nodes = 8;
    let mut network = Network::new(&vec![1e6; 2 * nodes as usize], 0.0, sharing);
    let (mut now_ns, mut started) = (0, Vec::new());
    let (mut ended, mut last) = (0.0, 0);
    for flow in 0..400 {
        now_ns += key.with(flow).below(0, 20_000_000);
        let (from, to) = (key.with(flow).below(1, nodes), key.with(flow).below(2, nodes));
        let bytes = 1000.0 + key.with(flow).below(3, 60_000) as f64;
        while let Some(next) = network.next_ns(last).filter(|&next| next <= now_ns) {
            last = next.max(last);
            while network.pop_ended(last).is_some() {
                ended += last as f64;
            }
        }
        last = now_ns;
        started.push(network.start(links(&[from as u32, (nodes + to) as u32]), bytes, now_ns));
    }
    let rest = ends(&mut network, now_ns);
    let end = rest.last().map_or(last, |end| end.0);
    ((ended + rest.iter().map(|end| end.0 as f64).sum::<f64>()) / started.len() as f64, end as f64)
}

#[test]
fn equal_shares_are_close_to_the_exact_ones() {
    for seed in 0..10 {
        let exact = play(Sharing::MaxMin, seed);
        let quick = play(Sharing::EqualShares { quantum_ns: 1_000_000 }, seed);
        let differs = |a: f64, b: f64| (a / b - 1.0).abs();
        assert!(differs(quick.0, exact.0) < 0.05 && differs(quick.1, exact.1) < 0.05, "{exact:?} {quick:?}");
        assert!(quick.1 >= exact.1 * 0.98, "shares never carry more than links can: {exact:?} {quick:?}");
    }
}

proptest! {
    /// No link carries more than it can, and every flow has a full link on which nobody is faster: max-min fairness.
    #[test]
    fn rates_are_max_min_fair(
        capacity in proptest::collection::vec(1.0_f64..1000.0, 1..8),
        paths in proptest::collection::vec(proptest::collection::btree_set(0_u32..8, 1..4), 1..20),
    ) {
        let mut network = Network::new(&capacity, 0.0, Sharing::MaxMin);
        let within = |link: u32| link % capacity.len() as u32;
        let flows: Vec<(FlowId, Vec<u32>)> = paths.iter().map(|path| {
            let path: std::collections::BTreeSet<u32> = path.iter().map(|&link| within(link)).collect();
            let path: Vec<u32> = path.into_iter().collect();
            (network.start(links(&path), 1e9, 0), path)
        }).collect();
        network.next_ns(0);
        let on = |link: u32| flows.iter().filter(move |(_, path)| path.contains(&link));
        for (link, &capacity) in (0..).zip(&capacity) {
            let carried: f64 = on(link).map(|(id, _)| network.rate(*id)).sum();
            prop_assert!(carried <= capacity * (1.0 + 1e-9), "{carried} on {capacity}");
        }
        for (id, path) in &flows {
            let rate = network.rate(*id);
            let held_up = path.iter().any(|&link| {
                let carried: f64 = on(link).map(|(id, _)| network.rate(*id)).sum();
                let full = carried >= capacity[link as usize] * (1.0 - 1e-9);
                full && on(link).all(|(other, _)| network.rate(*other) <= rate * (1.0 + 1e-9))
            });
            prop_assert!(held_up, "{path:?} at {rate}");
        }
    }
}
