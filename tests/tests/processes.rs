//! Real node and trainer processes, from start to end, through kills and restarts. Every byte that a trainer gathers is
//! compared with the dataset.

use rudder_graph::manifest::FEATURE_DATA_OFFSET;
use rudder_tests::process::Child;
use rudder_tests::process::cluster::{
    Cluster, ClusterOptions, Memory, PATIENCE, Placement, Security, await_steps, finishes, path_text, rudder,
    run,
};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// What a node may take to stop.
const STOP: Duration = Duration::from_secs(5);

#[test]
fn a_trainer_reads_right_bytes_and_everything_stops_cleanly() {
    let mut cluster = Cluster::start(&ClusterOptions::default());
    let finished = finishes(cluster.trainer("c0", &["--minibatches", "60"]));
    assert_eq!(finished["minibatches"], 60);
    let socket = cluster.path("c0.sock");
    assert!(socket.exists());
    for node in cluster.running() {
        let exit = cluster.stop_node(&node, STOP);
        assert!(exit.status.success(), "{node}: {}\n{}", exit.status, exit.stderr.join("\n"));
        if node == "c0" {
            let last: Value = serde_json::from_str(exit.stdout.last().expect("a line")).expect("JSON");
            assert_eq!(last["event"], "stopped");
        }
    }
    assert!(!socket.exists(), "the trainers' socket is left over");
}

/// Bytes of features that the storage nodes sent, from what they say when they stop.
fn sent(cluster: &mut Cluster) -> u64 {
    let mut sent = 0;
    for node in ["s0", "s1"] {
        let exit = cluster.stop_node(node, STOP);
        let last: Value = serde_json::from_str(exit.stdout.last().expect("a line")).expect("JSON");
        let statistics = &last["statistics"];
        sent += statistics["bytes_demand"].as_u64().expect("bytes")
            + statistics["bytes_prefetch"].as_u64().expect("bytes");
    }
    sent
}

#[test]
fn parts_of_the_same_machine_are_mapped_and_all_others_are_fetched() {
    for (memory, fetches) in [(Memory::Apart, true), (Memory::Shared, false)] {
        let mut cluster = Cluster::start(&ClusterOptions { memory, ..ClusterOptions::default() });
        finishes(cluster.trainer("c0", &["--minibatches", "30"]));
        assert_eq!(sent(&mut cluster) > 0, fetches, "{memory:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_on_every_policy() {
    let digest = |policy: &str| {
        let options = ClusterOptions { policy: policy.to_owned(), ..ClusterOptions::default() };
        let cluster = Cluster::start(&options);
        finishes(cluster.trainer("c0", &["--minibatches", "12"]))["trace_digest"].clone()
    };
    let first = digest("rudder");
    assert!(first.as_str().is_some_and(|digest| !digest.is_empty()));
    for policy in ["none", "none_overlap", "lru", "lru_prefetch"] {
        assert_eq!(digest(policy), first, "{policy}");
    }
}

#[test]
fn a_declared_sampler_is_run_ahead_of_its_trainer() {
    let mut cluster = Cluster::start(&ClusterOptions::default());
    finishes(cluster.trainer("c0", &["--minibatches", "40", "--declare-sampler"]));
    let exit = cluster.stop_node("c0", STOP);
    let last: Value = serde_json::from_str(exit.stdout.last().expect("a line")).expect("JSON");
    let count = |key: &str| {
        let compute = last["statistics"].get("compute").unwrap_or(&last["statistics"]);
        compute[key].as_u64().unwrap_or_else(|| panic!("no {key} in {last}"))
    };
    assert!(count("minibatches_foreseen") > 0, "{last}");
    assert!(count("foreseen_confirmed") > 0 && count("replay_cpu_ns") > 0, "{last}");
    assert_eq!(count("replay_alarms"), 0, "{last}");
}

#[test]
fn a_killed_storage_node_is_waited_for() {
    let mut cluster = Cluster::start(&ClusterOptions::default());
    let mut trainer = cluster.trainer("c0", &["--minibatches", "200"]);
    await_steps(&mut trainer, 20);
    cluster.kill_node("s1");
    let ready = cluster.start_node("s1");
    assert_eq!(ready["parts"]["missing"].as_array().map(Vec::len), Some(0));
    finishes(trainer);
}

#[test]
fn a_replica_takes_over_from_a_killed_storage_node() {
    let mut cluster = Cluster::start(&ClusterOptions { replicas: 2, ..ClusterOptions::default() });
    let mut trainer = cluster.trainer("c0", &["--minibatches", "150"]);
    await_steps(&mut trainer, 20);
    cluster.kill_node("s0");
    finishes(trainer);
}

#[test]
fn a_replica_takes_over_from_a_frozen_storage_node() {
    let mut cluster = Cluster::start(&ClusterOptions { replicas: 2, ..ClusterOptions::default() });
    let mut trainer = cluster.trainer("c0", &["--minibatches", "150"]);
    await_steps(&mut trainer, 20);
    cluster.node("s0").signal(Signal::STOP);
    finishes(trainer);
    cluster.node("s0").signal(Signal::CONT);
    finishes(cluster.trainer("c0", &["--minibatches", "20"]));
}

#[test]
fn a_killed_trainer_takes_nobody_along_and_can_come_back() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let mut first = cluster.trainer("c0", &["--minibatches", "100000", "--rank", "0", "--world", "2"]);
    let mut second = cluster.trainer("c0", &["--minibatches", "100", "--rank", "1", "--world", "2"]);
    await_steps(&mut first, 10);
    await_steps(&mut second, 10);
    first.kill();
    finishes(second);
    finishes(cluster.trainer("c0", &["--minibatches", "20", "--rank", "0", "--world", "2"]));
}

#[test]
fn trainers_survive_the_restart_of_their_compute_node() {
    let mut cluster = Cluster::start(&ClusterOptions::default());
    let mut trainer = cluster.trainer("c0", &["--minibatches", "150"]);
    await_steps(&mut trainer, 20);
    cluster.kill_node("c0");
    cluster.start_node("c0");
    finishes(trainer);
}

#[test]
fn the_scheduler_may_die() {
    let mut cluster = Cluster::start(&ClusterOptions::default());
    let mut trainer = cluster.trainer("c0", &["--minibatches", "100"]);
    await_steps(&mut trainer, 10);
    cluster.kill_node("sched");
    finishes(trainer);
}

#[test]
fn nodes_with_keys_take_pushed_parts_and_show_their_trees() {
    let options = ClusterOptions {
        security: Security::Keys,
        placement: Placement::Pushed,
        ..ClusterOptions::default()
    };
    let mut cluster = Cluster::prepare(&options);
    for node in ["sched", "s0", "s1"] {
        let ready = cluster.start_node(node);
        if node != "sched" {
            assert_eq!(ready["parts"]["missing"].as_array().map(Vec::len), Some(1), "{ready}");
        }
    }
    let topology = cluster.topology();
    let push = ["dataset", "push", path_text(&cluster.dataset()), "--topology", path_text(&topology)]
        .map(str::to_owned);
    let push: Vec<_> = push.iter().map(String::as_str).collect();
    run("push", &mut rudder(&push));
    run("push again", &mut rudder(&push));
    cluster.start_node("c0");
    finishes(cluster.trainer("c0", &["--minibatches", "40"]));
    let trees = run("tree", &mut rudder(&["tree", "--topology", path_text(&topology), "--json"]));
    let trees: Value = serde_json::from_str(&trees.stdout.join("\n")).expect("JSON");
    let up = trees.as_array().expect("a list").iter().filter(|node| node["state"] == "up");
    let up: Vec<_> = up.filter_map(|node| node["node"].as_str()).collect();
    assert_eq!(up.len(), 4, "{trees:#}");
}

/// Gives `s0` files of its own and flips one byte in every 64 of its first part's features.
fn corrupt_first_part(cluster: &Cluster) {
    let held = cluster.path("storage/s0/tiny");
    std::fs::remove_file(&held).expect("a link");
    let copied = Command::new("cp").arg("-r").arg(cluster.dataset()).arg(&held).status().expect("cp runs");
    assert!(copied.success());
    let files = std::fs::read_dir(held.join("parts/0")).expect("part 0").flatten().map(|entry| entry.path());
    let mut features: Vec<_> = files.filter(|path| !path.to_string_lossy().ends_with(".crc.npy")).collect();
    let features = features.pop().expect("a feature file");
    let mut bytes = std::fs::read(&features).expect("readable");
    bytes.iter_mut().skip(FEATURE_DATA_OFFSET as usize).step_by(64).for_each(|byte| *byte ^= 1);
    std::fs::write(&features, bytes).expect("writable");
}

#[test]
fn corrupt_blocks_come_from_a_replica() {
    let mut cluster = Cluster::prepare(&ClusterOptions { replicas: 2, ..ClusterOptions::default() });
    corrupt_first_part(&cluster);
    for node in ["sched", "s0", "s1", "c0"] {
        cluster.start_node(node);
    }
    finishes(cluster.trainer("c0", &["--minibatches", "40"]));
}

#[test]
fn corrupt_blocks_without_a_replica_are_an_error_to_the_trainer() {
    let mut cluster = Cluster::prepare(&ClusterOptions::default());
    corrupt_first_part(&cluster);
    for node in ["sched", "s0", "s1", "c0"] {
        cluster.start_node(node);
    }
    let exit = cluster.trainer("c0", &["--minibatches", "40"]).wait(PATIENCE);
    assert!(!exit.status.success());
    assert!(exit.stderr.join("\n").contains("corrupt"), "{:?}", exit.stderr);
    assert!(exit.stdout.iter().all(|line| !line.contains("\"event\":\"finished\"")));
}

#[test]
fn a_corrupt_part_is_not_mapped_into_trainers() {
    let shared = ClusterOptions { replicas: 2, memory: Memory::Shared, ..ClusterOptions::default() };
    let mut cluster = Cluster::prepare(&shared);
    corrupt_first_part(&cluster);
    for node in ["sched", "s0", "s1", "c0"] {
        cluster.start_node(node);
    }
    finishes(cluster.trainer("c0", &["--minibatches", "40"]));
}

#[test]
fn a_compute_node_stops_in_time_though_everything_else_is_gone() {
    let mut cluster = Cluster::start(&ClusterOptions::default());
    let mut trainer = cluster.trainer("c0", &["--minibatches", "100000"]);
    await_steps(&mut trainer, 10);
    for node in ["sched", "s0", "s1"] {
        cluster.kill_node(node);
    }
    assert!(trainer.runs());
    let exit = cluster.stop_node("c0", STOP);
    assert!(exit.status.success(), "{}\n{}", exit.status, exit.stderr.join("\n"));
}

#[test]
fn bad_configuration_ends_with_one_sentence() {
    let cluster = Cluster::prepare(&ClusterOptions::default());
    let broken = cluster.path("broken.toml");
    std::fs::write(&broken, "[[nodes]]\nname = \"c0\"\nroles = [\"pilot\"]\n").expect("written");
    for (topology, node) in
        [(cluster.topology(), "stranger"), (broken, "c0"), (cluster.path("absent.toml"), "c0")]
    {
        let mut command = Command::new(rudder_tests::process::binary("rudder-node"));
        command.arg("--topology").arg(&topology).args(["--node", node]);
        let exit = Child::start("bad node", &mut command).wait(PATIENCE);
        assert!(!exit.status.success());
        assert!(exit.stdout.is_empty(), "{:?}", exit.stdout);
        assert!(!exit.stderr.is_empty() && !exit.stderr.join("").contains("panicked"), "{:?}", exit.stderr);
    }
}
