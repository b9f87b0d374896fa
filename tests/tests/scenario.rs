//! The scenario runner as its users and the readers of its reports see it.

use rudder_tests::process::cluster::{PATIENCE, path_text, rudder};
use rudder_tests::process::{Child, Exit, await_until};
use rudder_tests::source::root;
use serde_json::Value;
use tempfile::TempDir;

const ARMS: [&str; 6] = ["none", "none_overlap", "fixed_window", "lru", "lru_prefetch", "rudder"];

/// Numbers of every arm that ran.
const NUMBERS: [&str; 14] = [
    "minibatches_per_s",
    "minibatches_per_s_low",
    "minibatches_per_s_high",
    "wait_share",
    "wait_share_low",
    "wait_share_high",
    "bytes_moved",
    "bytes_demand",
    "bytes_prefetch",
    "bytes_wrong",
    "bytes_protocol",
    "minibatches",
    "stall_s",
    "repeats",
];

/// Numbers, or null where they do not apply.
const OPTIONAL: [&str; 4] = ["prefetch_accuracy", "coverage", "hit_rate", "amplification"];

fn smoke(folder: &TempDir, name: &str, mode: &str) -> (Child, std::path::PathBuf) {
    let file = root().join("scenarios/catalog/smoke.toml");
    let (json, work) = (folder.path().join(format!("{name}.json")), folder.path().join(name));
    let mut command = rudder(&["scenario", "run", path_text(&file), "--mode", mode]);
    command.arg("--json").arg(&json).arg("--work").arg(&work);
    command.arg("--html").arg(json.with_extension("html"));
    (Child::start(name, &mut command), json)
}

fn report(run: Child, json: &std::path::Path) -> Value {
    let exit = run.wait(PATIENCE);
    assert!(exit.status.success(), "{}\n{}\n{}", exit.status, exit.stdout.join("\n"), exit.stderr.join("\n"));
    assert!(exit.stdout.iter().any(|line| line.starts_with("rudder")), "no table: {:?}", exit.stdout);
    let page = std::fs::read_to_string(json.with_extension("html")).expect("the page is written");
    assert!(page.contains("<svg") && !page.contains("src=\"http"), "the page holds its own plots");
    serde_json::from_str(&std::fs::read_to_string(json).expect("the report is written")).expect("JSON")
}

fn check(report: &Value) {
    assert_eq!(report["scenario"], "smoke");
    assert!(report["dataset"].is_string());
    let arms = report["arms"].as_array().expect("a list of arms");
    let names: Vec<_> = arms.iter().filter_map(|arm| arm["arm"].as_str()).collect();
    assert_eq!(names, ARMS);
    for arm in arms {
        for key in NUMBERS {
            assert!(arm[key].is_number(), "{key} of {arm}");
        }
        for key in OPTIONAL {
            assert!(arm[key].is_number() || arm[key].is_null(), "{key} of {arm}");
        }
        let bytes = |key: &str| arm[key].as_u64().expect("whole bytes");
        assert_eq!(bytes("bytes_moved"), bytes("bytes_demand") + bytes("bytes_prefetch"), "{arm}");
        assert_eq!(bytes("bytes_wrong"), 0, "{arm}");
        for share in ["wait_share", "prefetch_accuracy", "coverage", "hit_rate"] {
            assert!(arm[share].as_f64().is_none_or(|share| (0.0..=1.0).contains(&share)), "{share} of {arm}");
        }
    }
    for row in ["bound", "oracle"] {
        for key in ["minibatches_per_s", "wait_share", "bytes_moved"] {
            assert!(report[row][key].is_number(), "{key} of {row}");
        }
    }
}

/// Two at once do not disturb each other; without root the links are shaped by a relay.
#[test]
fn two_runs_at_once_report_every_arm() {
    let folder = TempDir::new().expect("a folder");
    let (first, first_json) = smoke(&folder, "first", "relay");
    let (second, second_json) = smoke(&folder, "second", "relay");
    check(&report(first, &first_json));
    check(&report(second, &second_json));
}

#[test]
fn the_mode_is_chosen_by_what_is_permitted() {
    let folder = TempDir::new().expect("a folder");
    let (run, json) = smoke(&folder, "auto", "auto");
    check(&report(run, &json));
}

/// The whole report, from two runs of one seed.
#[test]
fn a_simulated_run_is_the_same_twice() {
    let folder = TempDir::new().expect("a folder");
    let twice = [(); 2].map(|()| {
        let (run, json) = smoke(&folder, "sim", "sim");
        let report = report(run, &json);
        check(&report);
        report
    });
    assert_eq!(twice[0], twice[1]);
    assert_eq!(twice[0]["circumstances"]["mode"], "simulated");
}

/// Two trainers; after two seconds a storage node's interface is a fortieth of what it was.
const SLOWED: &str = r#"
repeats = 1
arms = ["rudder"]
[dataset]
import = "DEBIAN"
parts = 2
[cluster]
compute_nodes = 2
storage_nodes = 2
cache_share = 0.05
bandwidth = "40Mbit/s"
[trainer]
seeds = 16
compute = "20ms"
minibatches = 120
[[event]]
at = "2s"
node = "s0"
bandwidth = "1Mbit/s"
[advisor]
backends = ["rules"]
"#;

fn slowed(folder: &TempDir, mode: &str) -> (Child, std::path::PathBuf) {
    let (file, json) = (folder.path().join("slowed.toml"), folder.path().join("slowed.json"));
    let text = SLOWED.replace("DEBIAN", path_text(&root().join("datasets/debian")));
    std::fs::write(&file, text).expect("written");
    let mut command = rudder(&["scenario", "run", path_text(&file), "--mode", mode]);
    command.arg("--json").arg(&json).arg("--work").arg(folder.path().join("work"));
    command.arg("--html").arg(json.with_extension("html"));
    (Child::start("slowed", &mut command), json)
}

#[test]
fn what_a_mode_cannot_play_is_refused_by_file_and_line() {
    let folder = TempDir::new().expect("a folder");
    for mode in ["relay", "plain"] {
        let exit = slowed(&folder, mode).0.wait(PATIENCE);
        let said = exit.stderr.join("\n");
        assert_eq!(exit.status.code(), Some(2), "{said}");
        for line in [16, 20] {
            assert!(said.contains(&format!("slowed.toml:{line}: ")), "{said}");
        }
        assert!(said.contains("--mode netns"), "{said}");
    }
}

/// Namespaces that a process made.
fn namespaces_of(pid: i32) -> Vec<String> {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("rudder-scenario-{pid}-"))).collect()
}

#[test]
fn a_node_is_slowed_while_it_runs_and_advice_is_compared_with_none() {
    if let Err(reason) = rudder_scenarios::run::namespaces_work() {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let (run, json) = slowed(&folder, "netns");
    let pid = run.pid().as_raw_nonzero().get();
    let report = report(run, &json);
    assert_eq!(namespaces_of(pid), [""; 0]);
    let rows = report["advised"]["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().filter_map(|row| row["advisor"].as_str()).collect();
    assert_eq!(names, ["never", "rules"]);
    for row in rows {
        let ms = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"));
        // Trainers need more than a fortieth of the link, or the first seconds would show nothing of it.
        assert!(ms("step_ms_end") > 1.5 * ms("step_ms_before"), "{row}");
        assert!(row["bytes_moved"].as_u64() > Some(0) && row["bytes_wrong"] == 0, "{row}");
    }
    assert_eq!((&rows[0]["directives"], &rows[0]["own_directives"]), (&0.into(), &0.into()), "{}", rows[0]);
    assert_eq!(report["arms"][0]["bytes_wrong"], 0);
}

/// Starts a run, ends it by `end` once its nodes are there, and waits until none of its processes is.
fn leaves_nothing(name: &str, end: impl Fn(Child) -> Exit) {
    let folder = TempDir::new().expect("a folder");
    let (run, _) = smoke(&folder, name, "relay");
    let work = folder.path().join(name);
    let started = await_until(|| (!running_below(&work).is_empty()).then_some(()), PATIENCE);
    started.unwrap_or_else(|late| panic!("no node started: {late}\n{}", run.said()));
    assert!(!end(run).status.success(), "an interrupted run has no report");
    let ended = await_until(|| running_below(&work).is_empty().then_some(()), PATIENCE);
    assert!(ended.is_ok(), "left over: {:?}", running_below(&work));
}

#[test]
fn an_interrupted_run_leaves_no_process() {
    leaves_nothing("interrupted", |run| run.terminate(PATIENCE));
}

#[test]
fn a_killed_run_leaves_no_process() {
    leaves_nothing("killed", Child::kill);
}

/// Processes whose command line names the folder, the run itself left out.
fn running_below(folder: &std::path::Path) -> Vec<String> {
    let text = path_text(folder);
    let processes = std::fs::read_dir("/proc").expect("procfs").flatten();
    let lines = processes.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(text) && !line.contains("scenario\0run")).collect()
}
