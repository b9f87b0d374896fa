use super::*;
use crate::sim::Change;
use proptest::prelude::*;
use rudder_topology::NodeId;

const SMALL: &str = r#"
[dataset]
import = "../data"

[cluster]
compute_nodes = 2
storage_nodes = 3
bandwidth = "50Mbit/s"

[trainer]
compute = "60ms"
minibatches = 50
"#;

fn errors(text: &str) -> Vec<String> {
    let errors = compile(text, Path::new("folder/x.toml")).expect_err("refused");
    errors.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn what_is_left_out_has_defaults() {
    let scenario = compile(SMALL, Path::new("folder/small.toml")).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.repeats, scenario.mode), ("small", 3, Mode::Auto));
    assert_eq!(scenario.arms, Arm::DEFAULT);
    let from = "folder/../data".to_owned();
    assert_eq!(scenario.dataset, DatasetSource::Import { from, parts: 3, rows_per_block: None });
    assert_eq!(scenario.cluster.bandwidth, BytesPerSecond::from_mbit(50));
    assert_eq!((scenario.cluster.cache_share, scenario.cluster.medium), (0.25, Medium::Any));
    assert_eq!((scenario.trainer.window, scenario.trainer.fixed_window), (16, 16));
    assert_eq!(scenario.trainer.time_limit, Nanos::from_secs(30));
    assert_eq!(scenario.trainers(), 2);
}

#[test]
fn all_arms_are_named_by_one_word() {
    for arms in ["\"all\"", "[\"all\"]"] {
        let text = format!("arms = {arms}\n{SMALL}");
        assert_eq!(compile(&text, Path::new("x.toml")).unwrap().arms, Arm::ALL);
    }
    let text = format!("arms = [\"all\", \"lru\"]\n{SMALL}");
    assert!(errors(&text)[0].contains("no arm is called `all`"));
}

#[test]
fn all_errors_come_at_once_with_their_lines() {
    let text = r#"arms = ["none", "fast", "none"]
repeats = 0
mode = "wifi"
[dataset]
directory = "a"
parts = 2
[cluster]
compute_nodes = 65
storage_mode = "tape"
cache_share = 2.0
bandwidth = "fast"
[trainer]
fanout = []
compute = "60"
minibatches = "many"
"#;
    let found = errors(text);
    let lines: Vec<usize> =
        found.iter().map(|error| error.split(':').nth(1).unwrap().parse().unwrap()).collect();
    assert_eq!(lines, [1, 1, 2, 3, 6, 7, 8, 9, 10, 11, 13, 14, 15], "{found:#?}");
    assert!(found[0].starts_with("folder/x.toml:1: no arm is called `fast`"), "{}", found[0]);
    assert!(found.iter().any(|error| error.contains("`storage_nodes` is missing")), "{found:#?}");
}

#[test]
fn two_datasets_and_none_are_refused() {
    let two = SMALL.replace("import = \"../data\"", "import = \"a\"\ndirectory = \"b\"");
    assert!(errors(&two)[0].contains("give one of"));
    let none = SMALL.replace("import = \"../data\"", "");
    assert!(errors(&none)[0].contains("dataset is missing"));
    let rows = SMALL.replace("import = \"../data\"", "import = \"a\"\nrows_per_block = 3");
    assert!(errors(&rows)[0].contains("power of two"));
}

#[test]
fn generated_datasets_are_no_paths() {
    let text = SMALL.replace("../data", "generate:rmat:vertices=10,edges=20");
    let scenario = compile(&text, Path::new("folder/x.toml")).unwrap();
    assert!(matches!(scenario.dataset, DatasetSource::Import { from, .. } if from.starts_with("generate:")));
}

#[test]
fn a_missing_file_is_one_error() {
    let errors = load(Path::new("does/not/exist.toml")).unwrap_err();
    assert!(errors.to_string().starts_with("does/not/exist.toml:1: cannot be read"), "{errors}");
}

#[test]
fn every_shipped_scenario_compiles() {
    let catalog = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalog");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(catalog).unwrap() {
        let path = entry.unwrap().path();
        let scenario = load(&path).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(!scenario.about.is_empty(), "{}: say what it is for", path.display());
        names.push(scenario.name);
    }
    names.sort();
    let expected = [
        "bound_links",
        "changing",
        "large",
        "pyg",
        "reference",
        "scale",
        "smoke",
        "staging",
        "staging_real",
        "starved",
    ];
    assert_eq!(names, expected);
}

proptest! {
    #[test]
    fn cut_and_disturbed_files_never_panic(cut in 0_usize..200, noise in ".{0,8}") {
        let mut text = SMALL.to_owned();
        let cut = (0..=cut.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap();
        text.insert_str(cut, &noise);
        let _ = compile(&text, Path::new("x.toml"));
        let _ = compile(&text[..cut], Path::new("x.toml"));
    }
}

#[test]
fn events_and_variation_are_for_simulations() {
    let text = format!(
        "{SMALL}\n[simulation]\njitter = 0.2\n[[event]]\nat = \"3s\"\nnode = \"s1\"\ndown = true\n[[event]]\nat = \"1s\"\nlink = \"s0-c1\"\nbandwidth = \"1Mbit/s\"\n"
    );
    let scenario = compile(&text, Path::new("x.toml")).unwrap();
    assert_eq!((scenario.variation.jitter, scenario.variation.stragglers), (0.2, 0.0));
    let (s0, s1, c1) = (NodeId(0), NodeId(1), NodeId(4));
    let slow = Change::Link { between: (s0, c1), rate: BytesPerSecond::from_mbit(1) };
    assert_eq!(scenario.events[0], TimedEvent { at: Nanos::from_secs(1), what: slow });
    assert_eq!(scenario.events[1], TimedEvent { at: Nanos::from_secs(3), what: Change::Down { node: s1 } });
}

#[test]
fn a_cache_shrinks_and_grows_back_up_to_the_clusters() {
    let event = |node: &str, share: f64| {
        format!("{SMALL}\n[[event]]\nat = \"3s\"\nnode = \"{node}\"\ncache_share = {share}\n")
    };
    let scenario = compile(&event("c1", 0.125), Path::new("x.toml")).unwrap();
    let what = Change::Cache { node: NodeId(4), left: 0.125 / scenario.cluster.cache_share };
    assert_eq!(scenario.events, [TimedEvent { at: Nanos::from_secs(3), what }]);
    for (node, share, reason) in [("c1", 2.0, "cache_share"), ("c1", 0.0, "cache_share"), ("s0", 0.1, "s0")] {
        let errors = compile(&event(node, share), Path::new("x.toml")).unwrap_err().to_string();
        assert!(errors.contains(reason), "{errors}");
    }
}

#[test]
fn samplers_change_jobs_join_and_advisors_are_asked() {
    let text = format!(
        "{SMALL}\n[[event]]\nminibatch = 20\nfanout = [20, 15]\n[[event]]\nat = \"2s\"\njoin = true\nwindow = 0\n\
         [advisor]\nbackends = [\"never\", \"rules\", \"random\"]\n"
    );
    let scenario = compile(&text, Path::new("x.toml")).unwrap();
    assert_eq!(scenario.fanouts, [(20, vec![20, 15])]);
    let join = &scenario.joins[0];
    assert_eq!((join.at, join.window, join.minibatches), (Nanos::from_secs(2), 0, 50));
    assert_eq!((join.seeds, &join.fanout), (scenario.trainer.seeds, &scenario.trainer.fanout));
    let names: Vec<&str> = scenario.advisors.iter().map(|advisor| advisor.backend.name()).collect();
    assert_eq!(names, ["rules", "random"]);
    let distilled = format!("{SMALL}\n[advisor]\nbackends = [\"distilled\"]\n");
    assert!(errors(&distilled)[0].contains("`distilled`"), "{:?}", errors(&distilled));
    let named = compile(&format!("{distilled}distilled = \"d.json\"\n"), Path::new("of/x.toml")).unwrap();
    assert_eq!(named.advisors[0].distilled.as_deref(), Some(Path::new("of/d.json")));
    let unknown = errors(&format!("{SMALL}\n[advisor]\nbackends = [\"oracle\"]\n"));
    assert!(unknown[0].contains("no advisor is called `oracle`"), "{unknown:?}");
}

/// Lines, counted in the whole file, and reasons.
fn unplayable(text: &str, mode: Mode) -> Vec<(usize, Unplayable)> {
    let scenario = compile(text, Path::new("x.toml")).unwrap();
    scenario.unplayable_in(mode).into_iter().map(|at| (at.line, at.value)).collect()
}

#[test]
fn what_a_mode_cannot_play_is_told_with_its_line_and_why() {
    let processes = [Mode::Auto, Mode::Netns, Mode::Relay, Mode::Plain];
    assert!(processes.iter().all(|&mode| unplayable(SMALL, mode).is_empty()));
    assert!(!compile(SMALL, Path::new("x.toml")).unwrap().needs_namespaces());
    let first = SMALL.lines().count() + 1;
    let slow = format!(
        "{SMALL}[[event]]\nat = \"3s\"\nnode = \"s1\"\nbandwidth = \"1Mbit/s\"\n[advisor]\nbackends = [\"never\", \"rules\"]\n"
    );
    assert!(compile(&slow, Path::new("x.toml")).unwrap().needs_namespaces());
    for (mode, refused) in [
        (Mode::Sim, vec![]),
        (Mode::Auto, vec![]),
        (Mode::Netns, vec![]),
        (Mode::Relay, vec![(first, Unplayable::Interface), (first + 4, Unplayable::Advised)]),
        (Mode::Plain, vec![(first, Unplayable::Interface), (first + 4, Unplayable::Advised)]),
    ] {
        assert_eq!(unplayable(&slow, mode), refused, "{mode:?}");
    }
    for (event, why) in [
        ("at = \"1s\"\nlink = \"s0-c1\"\nbandwidth = \"1Mbit/s\"", Unplayable::Link),
        ("at = \"1s\"\nnode = \"c1\"\ncache_share = 0.1", Unplayable::Cache),
        ("at = \"1s\"\nnode = \"s0\"\ndown = true", Unplayable::Down),
        ("minibatch = 20\nfanout = [5]", Unplayable::Fanout),
        ("at = \"1s\"\njoin = true", Unplayable::Join),
    ] {
        let text = format!("{SMALL}[[event]]\n{event}\n");
        for mode in processes {
            assert_eq!(unplayable(&text, mode), [(first, why)], "{event}");
        }
        assert!(unplayable(&text, Mode::Sim).is_empty());
    }
    let served = format!("{SMALL}[advisor]\nbackends = [\"rules\", \"ollama\"]\n");
    assert_eq!(unplayable(&served, Mode::Netns), [(first, Unplayable::Served("ollama"))]);
}

#[test]
fn events_that_cannot_be_are_refused() {
    for event in [
        "node = \"s1\"\ndown = true",
        "at = \"1s\"",
        "at = \"1s\"\nnode = \"s9\"\ndown = true",
        "at = \"1s\"\nnode = \"c0\"\ndown = true",
        "at = \"1s\"\nlink = \"s0\"\nbandwidth = \"1Mbit/s\"",
        "at = \"1s\"\nlink = \"s0-c0\"\ndown = true",
        "at = \"1s\"\nnode = \"s0\"\nbandwidth = \"fast\"",
        "at = \"1s\"\nnode = \"s0\"\nlink = \"s0-c0\"\nbandwidth = \"1Mbit/s\"",
        "at = \"1s\"\nnode = \"s0\"\nup = true\ndown = true",
        "at = 1",
        "join = true",
        "at = \"1s\"\njoin = true\nnode = \"s0\"",
        "at = \"1s\"\njoin = true\nfanout = []",
        "fanout = [5]",
        "minibatch = 5",
        "minibatch = 51\nfanout = [5]",
        "at = \"1s\"\nminibatch = 5\nfanout = [5]",
    ] {
        let errors = errors(&format!("{SMALL}[[event]]\n{event}\n"));
        assert!(
            !errors.is_empty() && errors.iter().all(|error| error.starts_with("folder/x.toml:1")),
            "{event}: {errors:?}"
        );
    }
    assert!(errors(&format!("{SMALL}event = 1\n")).len() == 1);
    assert!(errors(&format!("{SMALL}[simulation]\njitter = -1\nspeed = 2\n")).len() == 2);
}

#[test]
fn a_thousand_nodes_are_for_simulations() {
    let large = SMALL.replace("compute_nodes = 2", "compute_nodes = 1024");
    assert!(errors(&large)[0].contains("compute_nodes"));
    assert_eq!(compile(&format!("mode = \"sim\"\n{large}"), Path::new("x.toml")).unwrap().trainers(), 1024);
    let statistics =
        large.replace("import = \"../data\"", "statistics = \"powerlaw:vertices=1000000,rate=100\"");
    let scenario = compile(&format!("mode = \"sim\"\n{statistics}"), Path::new("x.toml")).unwrap();
    assert!(matches!(scenario.dataset, DatasetSource::Statistics(_)));
    assert!(
        errors(&statistics.replace("rate=100", "rate=0")).iter().any(|error| error.contains("statistics"))
    );
}
