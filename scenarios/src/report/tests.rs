use super::*;
use crate::record::{Counters, TrainerRun};
use crate::trainer::event::Step;
use rudder_graph::{Dtype, Manifest, TableSpec};
use rudder_topology::{DatasetName, TableName};

/// Two parts of two rows each, 8 bytes a row, a row a block.
pub(crate) fn manifest() -> Manifest {
    Manifest {
        format: 1,
        name: DatasetName::new("tiny").unwrap(),
        vertices: 4,
        edges: 0,
        digest: String::new(),
        part_offsets: vec![0, 2, 4],
        graphs: Vec::new(),
        tables: vec![TableSpec {
            name: TableName::new("features").unwrap(),
            dim: 2,
            dtype: Dtype::F32,
            rows_per_block: 1,
            row_offsets: vec![0, 2, 4],
        }],
        notes: Vec::new(),
        files: Vec::new(),
    }
}

pub(crate) fn run(arm: Option<Arm>, repeat: u32, step_ms: u64, wait_ms: u64, counters: Counters) -> Run {
    let step = Step { step_ns: step_ms * 1_000_000, wait_ns: wait_ms * 1_000_000, ..Step::default() };
    let trainer = TrainerRun { steps: vec![step; 10], ..TrainerRun::default() };
    Run { arm, repeat, trainers: vec![trainer; 2], counters, ..Run::default() }
}

pub(crate) fn sample() -> Report {
    let lru = |repeat, demand| {
        let counters = Counters {
            bytes_demand: 800,
            rows_demand: demand,
            rows_wanted: 100,
            rows_resident: 100 - demand,
            distinct_bytes_wanted: 1000,
            ..Counters::default()
        };
        run(Some(Arm::Lru), repeat, 100, 30, counters)
    };
    let rudder = |repeat, demand, wait_ms| {
        let counters = Counters {
            bytes_demand: 10 * demand,
            bytes_prefetch: 500 + u64::from(repeat),
            rows_demand: demand,
            rows_wanted: 100,
            rows_resident: 95,
            rows_prefetched: 50,
            prefetched_used: 49,
            distinct_bytes_wanted: 1000,
            ..Counters::default()
        };
        run(Some(Arm::Rudder), repeat, 100, wait_ms, counters)
    };
    let none =
        Counters { bytes_demand: 1000, rows_wanted: 100, distinct_bytes_wanted: 1000, ..Counters::default() };
    let runs = [
        lru(0, 80),
        lru(1, 40),
        rudder(0, 8, 4),
        rudder(1, 8, 2),
        rudder(2, 100, 3),
        run(Some(Arm::None), 0, 150, 80, none),
        run(None, 0, 50, 0, Counters::default()),
    ];
    let oracle = Reference { minibatches_per_s: 19.0, wait_share: 0.0, bytes_moved: 480 };
    let names = ("sample <&>".to_owned(), "tiny".to_owned());
    summarise(names, &runs, &Arm::ALL, Some(oracle), Circumstances::default())
}

fn close(got: Option<f64>, want: f64) -> bool {
    got.is_some_and(|got| (got - want).abs() < 1e-9)
}

#[test]
fn arms_are_summarised_over_their_repeats() {
    let report = sample();
    let names: Vec<_> = report.arms.iter().map(|arm| arm.arm).collect();
    assert_eq!(names, [Arm::None, Arm::Lru, Arm::Rudder]);
    let rudder = &report.arms[2];
    assert!(close(Some(rudder.wait_share), 0.03) && close(Some(rudder.minibatches_per_s), 10.0));
    assert!(close(Some(rudder.wait_share_low), 0.02) && close(Some(rudder.wait_share_high), 0.04));
    assert_eq!((rudder.bytes_demand, rudder.bytes_prefetch, rudder.bytes_moved), (80, 501, 581));
    assert!(close(rudder.prefetch_accuracy, 0.98), "{:?}", rudder.prefetch_accuracy);
    // Repeats 0, 1: against their twins 1 - 8/80 and 1 - 8/40; repeat 2 has no twin, and more misses than any.
    assert!(close(rudder.coverage, 0.8), "{:?}", rudder.coverage);
    assert!(close(rudder.hit_rate, 0.95));
    assert_eq!((rudder.minibatches, rudder.repeats), (20, 3));
    assert!(close(Some(rudder.stall_s), 0.03), "{}", rudder.stall_s);
    assert!(close(report.bound.map(|bound| bound.minibatches_per_s), 20.0));
}

#[test]
fn what_does_not_apply_is_null() {
    let report = sample();
    let none = &report.arms[0];
    assert_eq!((none.prefetch_accuracy, none.coverage, none.hit_rate), (None, None, None));
    assert!(close(none.amplification, 1.0));
    let lru = &report.arms[1];
    assert_eq!((lru.prefetch_accuracy, lru.coverage), (None, None));
    assert!(close(lru.hit_rate, 0.4));
}

#[test]
fn json_has_the_promised_keys() {
    let json = serde_json::to_value(sample()).unwrap();
    for key in ["scenario", "dataset", "arms", "bound", "oracle"] {
        assert!(json.get(key).is_some(), "{key}");
    }
    let keys = [
        "arm",
        "minibatches_per_s",
        "minibatches_per_s_low",
        "minibatches_per_s_high",
        "wait_share",
        "wait_share_low",
        "wait_share_high",
        "prefetch_accuracy",
        "coverage",
        "hit_rate",
        "bytes_moved",
        "bytes_demand",
        "bytes_prefetch",
        "bytes_wrong",
        "amplification",
        "bytes_protocol",
        "minibatches",
        "stall_s",
        "repeats",
    ];
    for arm in json["arms"].as_array().unwrap() {
        for key in keys {
            assert!(arm.get(key).is_some(), "{key}");
        }
        let sum = arm["bytes_demand"].as_u64().unwrap() + arm["bytes_prefetch"].as_u64().unwrap();
        assert_eq!(arm["bytes_moved"].as_u64().unwrap(), sum);
    }
    assert_eq!(json["arms"][2]["arm"], "rudder");
    assert!(json["arms"][0]["coverage"].is_null());
    for row in ["bound", "oracle"] {
        for key in ["minibatches_per_s", "wait_share", "bytes_moved"] {
            assert!(json[row].get(key).is_some(), "{row}.{key}");
        }
    }
}

#[test]
fn table_and_page_show_every_arm() {
    let report = sample();
    let text = table::render(&report);
    let page = html::render(&report);
    for name in ["none", "lru", "rudder", "bound", "oracle"] {
        assert!(text.contains(name), "{name} in\n{text}");
        assert!(page.contains(name), "{name}");
    }
    assert!(text.contains("emulated"), "{text}");
    assert!(page.contains("sample &lt;&amp;&gt;") && !page.contains("sample <&>"));
    assert!(page.contains("<svg") && !page.contains("http://") && !page.contains("https://"));
}

#[test]
fn a_report_of_nothing_is_still_a_report() {
    let report = summarise((String::new(), String::new()), &[], &Arm::ALL, None, Circumstances::default());
    assert!(report.arms.is_empty() && report.bound.is_none());
    assert!(html::render(&report).contains("</html>"));
    assert!(!table::render(&report).is_empty());
}
