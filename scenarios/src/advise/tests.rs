use super::words::{caveats, words};
use super::*;
use crate::arm::Arm;

fn outcome(arm: Arm, minibatches_per_s: f64, wait_share: f64) -> Outcome {
    Outcome { arm, minibatches_per_s, wait_share, bytes_moved: 1 << 20, hit_rate: 0.5, bypasses: 0 }
}

/// Arms with their throughput, the fastest first; other caches and bandwidths give the fastest these factors.
fn advice(arms: &[(Arm, f64)], cache: [f64; 3], bandwidth: [f64; 3], bottleneck: Bottleneck) -> Advice {
    let bound = Reference { minibatches_per_s: 10.0, wait_share: 0.0, bytes_moved: 0 };
    let arms: Vec<Outcome> = arms.iter().map(|&(arm, rate)| outcome(arm, rate, 1.0 - rate / 10.0)).collect();
    let (best, rate) = (arms[0].arm, arms[0].minibatches_per_s);
    let with = |factor: f64| vec![outcome(best, rate * factor, 0.1)];
    let case = |share: f64, factor| CacheCase {
        share,
        cache_bytes: (share * 100.0) as u64 * Bytes::MIB.0,
        is_topologys: share == 0.25,
        arms: with(factor),
    };
    let cache = vec![case(0.1, cache[0]), case(0.25, 1.0), case(0.5, cache[1]), case(1.0, cache[2])];
    let bandwidth = [0.5, 1.0, 2.0, 4.0].into_iter().zip([bandwidth[0], 1.0, bandwidth[1], bandwidth[2]]);
    let bandwidth = bandwidth.map(|(factor, gain)| BandwidthCase { factor, bound, arms: with(gain) });
    let facts = Facts {
        trainers_per_node: 2,
        window: 16,
        compute_ms: 100.0,
        epochs: 0.2,
        cache_bytes: 25 * Bytes::MIB.0,
        minibatch_cache_bytes: 40 * Bytes::MIB.0,
        remote_bytes: 100 * Bytes::MIB.0,
        ..Facts::default()
    };
    Advice {
        dataset: "debian".into(),
        topology: "lab.toml".into(),
        facts,
        arms,
        bound,
        oracle: Some(Reference { minibatches_per_s: 9.0, wait_share: 0.1, bytes_moved: 1 }),
        links: vec![LinkFact { name: "the uplink of storage node s0".into(), mbit_per_s: 100.0, busy: 0.12 }],
        bottleneck,
        cache,
        bandwidth: bandwidth.collect(),
        window: None,
        words: Vec::new(),
        caveats: Vec::new(),
    }
}

use rudder_topology::Bytes;

const FLAT: [f64; 3] = [1.0, 1.0, 1.0];

fn text(advice: &Advice) -> String {
    words(advice).join("\n")
}

#[test]
fn a_clear_winner_is_named_with_its_lead() {
    let link = Bottleneck::Link { name: "the uplink of storage node s0".into(), busy: 0.97 };
    let advice = advice(
        &[(Arm::Rudder, 8.0), (Arm::LruPrefetch, 6.4), (Arm::None, 4.0)],
        [0.8, 1.1, 1.2],
        [0.5, 1.2, 1.25],
        link,
    );
    let text = text(&advice);
    for part in [
        "rudder wins: 8.00 minibatches a second of a trainer; a trainer waits for data 20 % of its time, instead of 60 %",
        "(none, which is 0.50x as fast)",
        "1.25x the next best (lru_prefetch, 6.40)",
        "With compute alone it would be 10.00: rudder reaches 80 % of that, and perfect knowledge would reach 90 %.",
        "The bottleneck is the uplink of storage node s0: with rudder it is busy 97 % of the time.",
        "A cache of 100 % of the remote bytes (100.0 MiB a node) would bring 1.20x. 10 % of the remote bytes (10.0 MiB a node) would leave 0.80x.",
        "Twice the bandwidth would bring 1.20x, four times 1.25x; half of it would leave 0.50x.",
    ] {
        assert!(text.contains(part), "{part}\nin\n{text}");
    }
    assert!(!text.contains("No clear winner") && !text.contains("behind it"), "{text}");
}

#[test]
fn arms_within_one_percent_are_level() {
    let tie =
        advice(&[(Arm::Lru, 8.0), (Arm::Rudder, 7.93), (Arm::None, 4.0)], FLAT, FLAT, Bottleneck::Requests);
    let said = text(&tie);
    assert!(said.contains("No clear winner: lru and rudder are within 1 % of each other"), "{said}");
    assert!(!said.contains("wins") && !said.contains("behind"), "{said}");
    let lost = advice(&[(Arm::Lru, 8.0), (Arm::Rudder, 7.2)], FLAT, FLAT, Bottleneck::Requests);
    let said = text(&lost);
    assert!(said.contains("lru wins") && said.contains("rudder is 10 % behind it (7.20)."), "{said}");
}

#[test]
fn where_compute_is_all_no_policy_helps() {
    let arms = [(Arm::Rudder, 9.98), (Arm::Lru, 9.97), (Arm::None, 9.95)];
    let said = text(&advice(&arms, FLAT, FLAT, Bottleneck::Compute));
    for part in [
        "rudder, lru and none are within 1 % of each other, all arms at",
        "no policy will help, your links are idle; the uplink of storage node s0 is busy 12 % of the time.",
        "More cache would bring nothing. 10 % of the remote bytes (10.0 MiB a node) would do as well.",
        "More bandwidth would bring nothing; half of it would do as well.",
    ] {
        assert!(said.contains(part), "{part}\nin\n{said}");
    }
    // Without a policy it would not be compute.
    let hidden = text(&advice(&[(Arm::Rudder, 9.9), (Arm::None, 5.0)], FLAT, FLAT, Bottleneck::Compute));
    assert!(
        hidden.contains("all that is fetched hides behind it") && !hidden.contains("no policy"),
        "{hidden}"
    );
}

#[test]
fn a_cache_without_room_for_a_minibatch_is_said_so() {
    let said = text(&advice(&[(Arm::Rudder, 2.0)], [0.9, 2.0, 2.01], FLAT, Bottleneck::CacheTooSmall));
    assert!(said.contains("25.0 MiB has no room for the largest minibatch, which takes 40.0 MiB"), "{said}");
    assert!(said.contains("at least 160.0 MiB"), "{said}");
    assert!(
        said.contains("A cache of 50 % of the remote bytes (50.0 MiB a node) would bring 2.00x; more than that brings nothing"),
        "{said}"
    );
}

#[test]
fn the_other_bottlenecks_say_what_helps() {
    let of = |bottleneck| text(&advice(&[(Arm::Rudder, 8.0)], FLAT, FLAT, bottleneck));
    assert!(of(Bottleneck::AllReduce).contains("fewer gradient bytes"));
    assert!(of(Bottleneck::Cache).contains("rows come more than once because 25.0 MiB cannot keep them"));
    assert!(of(Bottleneck::Requests).contains("each request's own time"));
    let mut window = advice(&[(Arm::Rudder, 8.0)], FLAT, FLAT, Bottleneck::Window);
    window.window = Some(outcome(Arm::Rudder, 9.6, 0.0));
    assert!(
        text(&window)
            .contains("announcing 32 minibatches ahead (credits = 34 in the topology) would bring 1.20x")
    );
    let nothing = words(&advice(&[(Arm::Rudder, 8.0)], FLAT, FLAT, Bottleneck::NothingRemote));
    assert!(nothing.len() == 1 && nothing[0].contains("No policy can help"), "{nothing:?}");
}

#[test]
fn caveats_tell_what_was_assumed() {
    let mut advice = advice(&[(Arm::Rudder, 8.0)], FLAT, FLAT, Bottleneck::Cache);
    let said = caveats(&advice).join("\n");
    for part in ["Simulated", "uniformly", "100 ms", "empty cache", "--minibatches"] {
        assert!(said.contains(part), "{part}\nin\n{said}");
    }
    assert!(!said.contains("credits"), "{said}");
    advice.facts.announced_max = Some(9);
    let said = caveats(&advice).join("\n");
    assert!(
        said.contains("credits = 10 in the topology let a trainer announce 9 minibatches ahead, not 16"),
        "{said}"
    );
}

#[test]
fn text_and_page_show_arms_and_cases() {
    let mut advice = advice(
        &[(Arm::Rudder, 8.0), (Arm::Lru, 6.4)],
        FLAT,
        FLAT,
        Bottleneck::Link { name: "<x>".into(), busy: 1.0 },
    );
    advice.words = words(&advice);
    let text = table::render(&advice);
    let page = page::render(&advice);
    for part in ["rudder", "lru", "oracle", "25 %", "yours", "x4"] {
        assert!(text.contains(part), "{part}\nin\n{text}");
        assert!(page.contains(part), "{part}");
    }
    assert!(page.matches("<svg").count() == 3 && page.contains("&lt;x&gt;") && !page.contains("<x>"));
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("NaN"));
    let json = serde_json::to_value(&advice).unwrap();
    assert_eq!(json["bottleneck"]["kind"], "link");
    assert_eq!(json["cache"][1]["is_topologys"], true);
}
