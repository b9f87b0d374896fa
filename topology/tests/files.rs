//! Shipped files, round trips, size bounds, arbitrary input.

use proptest::prelude::*;
use rudder_topology::spec::{
    AdvisorSpec, ClusterSpec, ControllerText, DatasetSpec, LimitsSpec, LinkSpec, MassiveGnnText, NodeSpec,
    PartSpec, PolicyText, RudderPaperText, SamplingText, WindowStaticText,
};
use rudder_topology::{
    Bytes, BytesPerSecond, ControllerSpec, Cores, DatasetName, FILE_BYTES_MAX, Fanout, MassiveGnnSpec, Nanos,
    NodeName, PartId, PolicySpec, Sampling, Share, WindowStaticSpec, check_cache, compile, load,
};
use std::path::{Path, PathBuf};

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clusters").join(name)
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

#[test]
fn the_shipped_files_compile() {
    for (name, nodes) in [("laptop.toml", 3), ("colocated.toml", 2), ("lab.toml", 7)] {
        let cluster = load(&shipped(name)).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(cluster.nodes.len(), nodes, "{name}");
        assert!(cluster.scheduler().is_some(), "{name}");
        let shown = rudder_topology::show::show_text(&cluster);
        let dot = rudder_topology::show::show_dot(&cluster);
        for node in &cluster.nodes {
            assert!(shown.contains(node.name.as_str()) && dot.contains(node.name.as_str()));
        }
        assert!(dot.starts_with("digraph cluster {\n") && dot.ends_with("}\n"));
    }
}

#[test]
fn the_laptop_shares_cores_and_starts_paths_at_its_folder() {
    let cluster = load(&shipped("laptop.toml")).unwrap();
    assert!(cluster.nodes.iter().all(|node| node.cores == Cores::Shared));
    let storage = cluster.node_named(&NodeName::new("s0").unwrap()).unwrap();
    assert_eq!(storage.storage.as_ref().unwrap().directory, shipped("data"));
    let compute = cluster.node_named(&NodeName::new("c0").unwrap()).unwrap();
    assert!(check_cache(compute, Bytes(64 << 20)).is_ok());
    assert!(check_cache(compute, Bytes((64 << 20) + 1)).is_err());
}

#[test]
fn storage_nodes_stage_unless_told_not_to() {
    let node = "[[nodes]]\nname = \"s0\"\nroles = [\"storage\"]\ncontrol = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\n\
                storage_directory = \"d\"\n";
    for (defaults, own, expected) in [
        ("", "", 256 << 20),
        ("staging = \"3MiB\"\n", "", 3 << 20),
        ("staging = \"3MiB\"\n", "staging = \"0\"\n", 0),
        ("", "staging = 0\n", 0),
    ] {
        let file = format!("[defaults]\n{defaults}{node}{own}");
        let cluster = compile(&file, Path::new("t.toml")).unwrap_or_else(|errors| panic!("{errors}"));
        let storage = cluster.nodes[0].storage.as_ref().unwrap();
        assert_eq!(storage.staging_bytes, Bytes(expected), "{file}");
    }
}

#[test]
fn the_lab_prefers_the_replica_with_the_better_link() {
    let cluster = load(&shipped("lab.toml")).unwrap();
    let id = |name: &str| cluster.node_named(&NodeName::new(name).unwrap()).unwrap().id;
    let papers = cluster.dataset_named(&DatasetName::new("papers").unwrap()).unwrap();
    let order = |part: u16, at: &str| {
        let replicas = cluster.replicas_by_cost(papers, PartId(part), id(at));
        replicas.into_iter().map(|(node, _)| node).collect::<Vec<_>>()
    };
    assert_eq!(order(3, "c3"), [id("s0"), id("s1")], "by link, not by order in the file");
    assert_eq!(order(0, "c3"), [id("s0")]);
    let c3 = cluster.node(id("c3")).compute.as_ref().unwrap();
    assert_eq!(c3.policy, PolicySpec::FixedWindow { minibatches: 8 });
    assert_eq!(cluster.limits.link_rate_max, Some(BytesPerSecond::from_mbit(20_000)));
}

fn generated() -> ClusterSpec {
    let node = |name: &str, roles: &[&str]| NodeSpec {
        name: text(name),
        machine: text(name),
        roles: Some(roles.iter().map(|&role| role.to_owned()).collect()),
        control: text("127.0.0.1:0"),
        ..NodeSpec::default()
    };
    ClusterSpec {
        keys: text("keys"),
        defaults: NodeSpec { cores: text("shared"), ..NodeSpec::default() },
        nodes: vec![
            NodeSpec {
                data: text("127.0.0.1:0"),
                storage_directory: text("/d/{name}"),
                ..node("s0", &["storage"])
            },
            NodeSpec {
                trainer_socket: text("/run/c0.sock"),
                cache: Some(Bytes(12_345).spec_text()),
                policy: Some(PolicyText::FixedWindow { fixed_window: 3 }),
                ..node("c0", &["compute"])
            },
            NodeSpec {
                trainer_socket: text("/run/c1.sock"),
                cache: text("1MiB"),
                policy: Some(PolicyText::Name("lru".to_owned())),
                ..node("c1", &["compute"])
            },
        ],
        datasets: vec![DatasetSpec {
            name: text("d"),
            directory: text("/d/d"),
            parts: Some(1),
            ..DatasetSpec::default()
        }],
        parts: vec![PartSpec { dataset: None, part: Some(0), nodes: Some(vec!["s0".to_owned()]) }],
        links: vec![LinkSpec {
            between: Some(vec!["s0".to_owned(), "c0".to_owned()]),
            bandwidth: Some(BytesPerSecond(1_234_567).spec_text()),
            latency: Some(Nanos(77).spec_text()),
            ..LinkSpec::default()
        }],
        default_link: Some(LinkSpec { bandwidth: text("1Gbit/s"), ..LinkSpec::default() }),
        advisor: Some(AdvisorSpec { backend: text("random"), attempts: Some(1), ..AdvisorSpec::default() }),
        limits: LimitsSpec { heartbeat_timeout: text("1s"), ..LimitsSpec::default() },
    }
}

#[test]
fn a_generated_spec_reads_back() {
    let file = generated().to_toml().unwrap();
    let cluster = compile(&file, Path::new("/x/t.toml")).unwrap_or_else(|errors| panic!("{errors}\n{file}"));
    let [s0, c0, c1] = [0, 1, 2].map(|n| &cluster.nodes[n]);
    assert_eq!(c0.compute.as_ref().unwrap().cache_bytes, Bytes(12_345));
    assert_eq!(c0.compute.as_ref().unwrap().policy, PolicySpec::FixedWindow { minibatches: 3 });
    assert_eq!(c1.compute.as_ref().unwrap().policy, PolicySpec::Lru);
    assert_eq!(s0.storage.as_ref().unwrap().directory, Path::new("/d/s0"));
    let cost = cluster.link_cost(s0.id, c0.id).unwrap();
    assert_eq!((cost.bandwidth, cost.latency), (BytesPerSecond(1_234_567), Nanos(77)));
    assert_eq!(cluster.limits.heartbeat_timeout, Nanos::from_secs(1));
    assert_eq!(cluster.keys.as_deref(), Some(Path::new("/x/keys")));
}

/// What each policy's file form compiles to; all of them read back.
#[test]
fn policies_with_their_parameters_read_back() {
    let share = |share| Share::new(share).unwrap();
    let scoring =
        |alpha, delta, fraction| MassiveGnnSpec { alpha: share(alpha), delta, fraction: share(fraction) };
    let massivegnn = |alpha, delta, f| MassiveGnnText { alpha, delta, f };
    let sampling = SamplingText { epochs: Some(2), seeds: Some(8), fanout: Some(vec![4, 3]) };
    let compiled = Sampling { seeds: 8, fanout: Fanout::new(&[4, 3]).unwrap() };
    let rudder_paper = |controller| PolicyText::RudderPaper {
        rudder_paper: RudderPaperText {
            scoring: massivegnn(None, Some(7), None),
            controller: Some(controller),
        },
    };
    let paper = |controller| PolicySpec::RudderPaper { scoring: scoring(0.005, 7, 0.25), controller };
    let cases = [
        (PolicyText::Presc { presc: sampling.clone() }, PolicySpec::Presc { epochs: 2, sampling: compiled }),
        (
            PolicyText::Vip { vip: SamplingText { epochs: None, ..sampling } },
            PolicySpec::Vip { sampling: compiled },
        ),
        (
            PolicyText::MassiveGnn { massivegnn: massivegnn(Some(0.05), None, Some(1.0)) },
            PolicySpec::MassiveGnn(scoring(0.05, 32, 1.0)),
        ),
        (rudder_paper(ControllerText::Name("never".to_owned())), paper(ControllerSpec::Never)),
        (
            rudder_paper(ControllerText::Random { random: 0.25 }),
            paper(ControllerSpec::Random { probability: share(0.25) }),
        ),
        (rudder_paper(ControllerText::Every { every: 3 }), paper(ControllerSpec::Every { minibatches: 3 })),
        (
            PolicyText::WindowStatic {
                window_static: WindowStaticText { minibatches: Some(3), cache: Some(0.5) },
            },
            PolicySpec::WindowStatic(WindowStaticSpec { minibatches: 3, cache: share(0.5) }),
        ),
        (
            PolicyText::BeladySuperbatch { belady_superbatch: 30 },
            PolicySpec::BeladySuperbatch { minibatches: 30 },
        ),
        (
            PolicyText::Rudder { rudder: SamplingText { seeds: Some(64), ..SamplingText::default() } },
            PolicySpec::Rudder { sampling: Some(Sampling { seeds: 64, ..Sampling::PUBLISHED }) },
        ),
    ];
    let named = PolicySpec::ALL.into_iter().filter(|policy| policy.name() != "fixed_window");
    let named = named.map(|policy| (PolicyText::Name(policy.name().to_owned()), policy));
    for (text, policy) in named.chain(cases) {
        let mut spec = generated();
        spec.nodes[2].policy = Some(text);
        let file = spec.to_toml().unwrap();
        let cluster =
            compile(&file, Path::new("/x/t.toml")).unwrap_or_else(|errors| panic!("{errors}\n{file}"));
        let compute = cluster.nodes[2].compute.as_ref().unwrap();
        assert_eq!(compute.policy, policy, "{file}");
        let look_ahead = policy.look_ahead_minibatches().unwrap_or(8).max(8);
        assert_eq!(compute.credits, look_ahead + compute.ready_ahead + 1, "{policy}");
    }
}

#[test]
fn files_that_are_no_topology_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.toml");
    let refused = |file: &Path| load(file).unwrap_err().to_string();
    assert!(refused(&file).contains("cannot be read"));
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(refused(&file).contains("is not UTF-8"));
    std::fs::write(&file, vec![b'\n'; FILE_BYTES_MAX as usize + 1]).unwrap();
    assert!(refused(&file).contains("is larger than"));
    assert!(refused(Path::new("/dev/zero")).contains("is larger than"));
    let many = "[[nodes]]\n".repeat(5000);
    assert!(compile(&many, &file).unwrap_err().to_string().contains("5000 nodes; at most 4096"));
    let deep = format!("a = {}", "[".repeat(100_000));
    assert!(compile(&deep, &file).is_err());
}

#[test]
fn a_short_file_cannot_ask_for_much_memory() {
    let mut file = String::new();
    for n in 0..20 {
        file.push_str(&format!("[[nodes]]\nname = \"s{n}\"\nroles = [\"storage\"]\ncontrol = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\nstorage_directory = \"d\"\n"));
    }
    for n in 0..60 {
        file.push_str(&format!("[[datasets]]\nname = \"d{n}\"\ndirectory = \"d\"\nparts = 65535\nreplicas = 16\nplacement = \"round_robin\"\n"));
    }
    let errors = compile(&file, Path::new("t.toml")).unwrap_err();
    assert!(errors.to_string().contains("parts times replicas add up to more than"));
}

#[test]
fn errors_are_bounded_in_number_and_length() {
    let file = format!("{} = 1\n", "k".repeat(10_000))
        + &(0..5000).map(|n| format!("k{n} = 1\n")).collect::<String>();
    let errors = compile(&file, Path::new("t.toml")).unwrap_err();
    assert_eq!(errors.errors.len(), 500);
    assert!(errors.errors.iter().all(|error| error.to_string().len() < 600));
}

#[test]
fn a_thousand_nodes_with_a_default_link_stay_small() {
    let mut file = String::from(
        "[default_link]\nbandwidth = \"1Gbit/s\"\n[defaults]\ncontrol = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\nstorage_directory = \"d\"\ntrainer_socket = \"{name}.sock\"\ncache = \"1MiB\"\n",
    );
    for n in 0..1280 {
        let role = if n % 5 == 0 { "storage" } else { "compute" };
        file.push_str(&format!("[[nodes]]\nname = \"n{n}\"\nroles = [\"{role}\"]\n"));
    }
    file.push_str(
        "[[datasets]]\nname = \"d\"\ndirectory = \"d\"\nparts = 256\nplacement = \"round_robin\"\n",
    );
    let cluster = compile(&file, Path::new("/t.toml")).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(cluster.nodes.len(), 1280);
    assert_eq!(cluster.stated_links().count(), 0);
    let (a, b) = (cluster.nodes[0].id, cluster.nodes[1279].id);
    assert_eq!(cluster.link_cost(a, b).unwrap().bandwidth, BytesPerSecond::from_mbit(1000));
}

proptest! {
    #[test]
    fn any_bytes_are_compiled_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = compile(&String::from_utf8_lossy(&bytes), Path::new("t.toml"));
    }

    /// Near misses: a good file with one stretch replaced.
    #[test]
    fn a_damaged_file_is_compiled_or_refused(at in 0usize..3000, length in 0usize..40, with in "[\\[\\]{}a-z0-9\"=.\\n-]{0,12}") {
        let mut file = std::fs::read_to_string(shipped("lab.toml")).unwrap();
        let at = file.floor_char_boundary(at.min(file.len()));
        let end = file.floor_char_boundary((at + length).min(file.len()));
        file.replace_range(at..end, &with);
        let _ = compile(&file, Path::new("t.toml"));
        file.truncate(at);
        let _ = compile(&file, Path::new("t.toml"));
    }
}
