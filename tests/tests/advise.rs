//! `rudder advise` and `rudder scenario sweep` as their users see them.

use rudder_tests::process::cluster::{PATIENCE, path_text, rudder, run};
use rudder_tests::process::{Child, Exit};
use rudder_tests::source::root;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const GRAPH: &str = "generate:planted:vertices=4000,edges=20000,communities=8,dim=16";

/// Two storage nodes, two compute nodes.
const TOPOLOGY: &str = r#"
[[nodes]]
name = "s0"
roles = ["storage", "scheduler"]
control = "127.0.0.1:7410"
data = "127.0.0.1:7411"
storage_directory = "data"

[[nodes]]
name = "s1"
roles = ["storage"]
control = "127.0.0.1:7412"
data = "127.0.0.1:7413"
storage_directory = "data"

[[nodes]]
name = "c0"
roles = ["compute"]
control = "127.0.0.1:7420"
trainer_socket = "c0.sock"
cache = "64KiB"

[[nodes]]
name = "c1"
roles = ["compute"]
control = "127.0.0.1:7421"
trainer_socket = "c1.sock"
cache = "64KiB"

[[datasets]]
name = "planted"
directory = "planted"
parts = 2
placement = "round_robin"

[default_link]
bandwidth = "4Mbit/s"

[limits]
link_in_flight_bytes = "64KiB"
transfer_bytes_max = "16KiB"
"#;

/// A dataset and a topology that fit each other.
struct Ground {
    folder: TempDir,
}

impl Ground {
    fn new() -> Ground {
        let folder = TempDir::new().expect("a folder");
        let dataset = folder.path().join("planted");
        run(
            "import",
            &mut rudder(&["import", GRAPH, path_text(&dataset), "--parts", "2", "--rows-per-block", "1"]),
        );
        let ground = Ground { folder };
        ground.write("lab.toml", TOPOLOGY);
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("the file is written");
    }

    fn advise(&self, dataset: &str, topology: &str, more: &[&str]) -> Exit {
        let (dataset, topology) = (self.path(dataset), self.path(topology));
        let mut command =
            rudder(&["advise", "--dataset", path_text(&dataset), "--topology", path_text(&topology)]);
        command.args(["--seeds", "8", "--fanout", "5,3", "--minibatches", "20"]).args(more);
        Child::start("advise", &mut command).wait(PATIENCE)
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("the file is written")).expect("JSON")
}

#[test]
fn advice_is_the_same_for_the_same_seed_and_says_all_that_it_promises() {
    let ground = Ground::new();
    let (page, numbers) = (ground.path("advice.html"), ground.path("advice.json"));
    let written = ["--compute-ms", "5", "--html", path_text(&page), "--json", path_text(&numbers)];
    let first = ground.advise("planted", "lab.toml", &written);
    assert!(first.status.success(), "{:?}", first.stderr);
    let text = first.stdout.join("\n");
    for part in
        ["rudder", "s3fifo", "bound", "bottleneck", "With other caches", "x4", "Keep in mind", "uniformly"]
    {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let again = ground.advise("planted", "lab.toml", &["--compute-ms", "5"]);
    assert_eq!(first.stdout, again.stdout);
    let other = ground.advise("planted", "lab.toml", &["--compute-ms", "5", "--seed", "2"]);
    assert_ne!(first.stdout, other.stdout);

    let page = std::fs::read_to_string(page).expect("the page is written");
    assert_eq!(page.matches("<svg").count(), 3);
    let advice = json(&numbers);
    let rate = |case: &Value| {
        let rates =
            case["arms"].as_array().expect("arms").iter().filter_map(|arm| arm["minibatches_per_s"].as_f64());
        rates.fold(0.0, f64::max)
    };
    // More bandwidth never loses, and no cache beats compute.
    let bandwidth = advice["bandwidth"].as_array().expect("cases");
    assert_eq!(bandwidth.len(), 4);
    assert!(bandwidth.windows(2).all(|pair| rate(&pair[0]) <= rate(&pair[1]) * 1.001), "{bandwidth:?}");
    let bound = advice["bound"]["minibatches_per_s"].as_f64().expect("a number");
    let cache = advice["cache"].as_array().expect("cases");
    assert_eq!(cache.len(), 6);
    assert!(cache.iter().all(|case| rate(case) <= bound * 1.001), "{cache:?}");
    let busy = advice["links"][0]["busy"].as_f64().expect("a number");
    assert!((0.0..=1.0).contains(&busy) && busy > 0.3, "4 Mbit/s are little: {busy}");
}

#[test]
fn what_is_wrong_is_told_with_what_to_do() {
    let ground = Ground::new();
    ground.write("other.toml", &TOPOLOGY.replace("name = \"planted\"", "name = \"papers\""));
    ground.write("parts.toml", &TOPOLOGY.replace("parts = 2", "parts = 4"));
    let storage_only: Vec<&str> =
        TOPOLOGY.split("[[nodes]]").filter(|node| !node.contains("trainer_socket")).collect();
    let rest = &TOPOLOGY[TOPOLOGY.find("[[datasets]]").expect("it is there")..];
    ground.write("storage.toml", &(storage_only.join("[[nodes]]") + rest));
    ground.write("tiny.toml", &TOPOLOGY.replace("64KiB\"\n\n[[", "4KiB\"\n\n[["));
    run(
        "copy",
        std::process::Command::new("cp").arg("-r").arg(ground.path("planted")).arg(ground.path("bare")),
    );
    std::fs::remove_dir_all(ground.path("bare").join("graph")).expect("it had a graph");
    let compute = ["--compute-ms", "5"];
    let cases: [(&str, &str, &[&str], &[&str]); 8] = [
        ("planted", "other.toml", &compute, &["no dataset `planted`", "`papers`", "--name"]),
        ("planted", "parts.toml", &compute, &["into 2 parts", "places 4", "--parts 4"]),
        ("planted", "storage.toml", &compute, &["no compute node", "roles = [\"compute\"]"]),
        ("bare", "lab.toml", &compute, &["holds no graph", "rudder inspect"]),
        ("planted", "lab.toml", &[], &["--compute-ms is missing", "synchronize"]),
        ("planted", "lab.toml", &["--compute-ms", "nan"], &["--compute-ms is a time"]),
        ("planted", "lab.toml", &["--compute-ms", "5", "--arms", "lru,best"], &["`best`", "s3fifo"]),
        (
            "planted",
            "lab.toml",
            &["--compute-ms", "5", "--html", "no/such/page.html"],
            &["no/such is not there"],
        ),
    ];
    for (dataset, topology, more, wanted) in cases {
        let exit = ground.advise(dataset, topology, more);
        let said = exit.stderr.join("\n");
        assert_eq!(exit.status.code(), Some(2), "{topology} {more:?}: {said}");
        for part in wanted {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
    let tiny = ground.advise("planted", "tiny.toml", &compute);
    let said = tiny.stdout.join("\n");
    assert!(tiny.status.success() && said.contains("has no room for the largest minibatch"), "{said}");
}

#[test]
fn a_sweep_has_a_row_for_each_scenario_graph_and_cache() {
    let folder = TempDir::new().expect("a folder");
    let numbers = folder.path().join("sweep.json");
    let scenario = root().join("scenarios/catalog/smoke.toml");
    let mut command =
        rudder(&["scenario", "sweep", path_text(&scenario), "--graph", GRAPH, "--cache", "10,50"]);
    command.args(["--arms", "lru,none", "--minibatches", "6", "--all", "--markdown", "--work"]);
    command.arg(folder.path()).arg("--json").arg(&numbers);
    let exit = run("sweep", &mut command);
    let last = exit.stdout.last().expect("a verdict");
    assert!(last.starts_with("2 cells: in ") && last.contains("the worst is "), "{last}");
    assert!(exit.stdout.iter().any(|line| line.starts_with("| scenario | graph |")), "{:?}", exit.stdout);
    let sweep = json(&numbers);
    let cells = sweep["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2);
    for (cell, share) in cells.iter().zip([0.1, 0.5]) {
        assert_eq!(cell["cache_share"], share);
        let arms: Vec<_> =
            cell["arms"].as_array().expect("arms").iter().map(|arm| arm["arm"].clone()).collect();
        assert_eq!(arms, ["lru", "none", "rudder"]);
        assert!(cell["oracle"]["minibatches_per_s"].is_number() && cell["bound"].is_object(), "{cell}");
        assert_eq!(cell["minibatches"], 6);
    }
    let none =
        Child::start("sweep", &mut rudder(&["scenario", "sweep", path_text(&scenario), "--cache", "0"]));
    assert_eq!(none.wait(PATIENCE).status.code(), Some(2));
}
