//! A storage node that serves what another one owns, in real processes with keys: every byte that a trainer gathers is
//! compared, while the nodes come and go.

use rudder_tests::process::Child;
use rudder_tests::process::cluster::{
    Cluster, ClusterOptions, PATIENCE, Placement, Security, await_steps, event, path_text, rudder, run,
};
use serde_json::Value;
use std::time::Duration;

/// What a node may take to stop.
const STOP: Duration = Duration::from_secs(5);

/// `s0` alone has part 0; `s1` has part 1, and so has `s2`.
fn options(recording: &str) -> ClusterOptions {
    ClusterOptions {
        storage_nodes: 3,
        parts: vec![vec![0], vec![1, 2]],
        security: Security::Keys,
        placement: Placement::Pushed,
        // Every row is missed, and a minibatch has far more of them than a link may have in flight: a slow one is full most
        // of the time.
        policy: "none".to_owned(),
        // A cache that had room for what `s0` stores could heal the stall by itself.
        cache: "16KiB".to_owned(),
        limits: "link_in_flight_bytes = \"4KiB\"\ntransfer_bytes_max = \"4KiB\"\n".to_owned(),
        advisor: format!("[advisor]\nbackend = \"replay\"\nreplay = \"{recording}\"\n"),
        ..ClusterOptions::default()
    }
}

/// Puts a link that carries little between `c0` and `s0`, and returns it with the topology file in which `c0` finds it.
fn slow_link(cluster: &Cluster) -> (Child, std::path::PathBuf) {
    let mut relay = Child::start_with_orders("relay", &mut rudder(&["relay", "--rate", "2Mbit/s"]));
    let topology = std::fs::read_to_string(cluster.topology()).expect("the topology");
    let s0 = topology.split("[[nodes]]").find(|node| node.contains("name = \"s0\"")).expect("the node");
    let data = s0.lines().find_map(|line| line.strip_prefix("data = \"")).expect("its data port");
    let data = data.trim_end_matches('"');
    relay.order(&format!(r#"{{"from":"c0","to":"s0","target":"{data}"}}"#));
    let route = relay.await_line(|line| event(line, "route"), PATIENCE);
    let path = cluster.path("far.toml");
    std::fs::write(&path, topology.replace(data, route["listen"].as_str().expect("an address")))
        .expect("written");
    (relay, path)
}

fn more_steps(trainer: &mut Child) {
    let step = |line: &str| event(line, "step")?["minibatch"].as_u64();
    let last = trainer.said().lines().filter_map(step).max().unwrap_or(0);
    await_steps(trainer, last + 30);
}

#[test]
fn what_a_slow_link_carries_comes_through_another_node_which_may_come_and_go() {
    let mut cluster = Cluster::prepare(&options("answers.jsonl"));
    let answer = r#"{"actions":[{"lever":"stage","link":"S0-C0","through":"S1"}],"ttl_s":600}"#;
    std::fs::write(cluster.path("answers.jsonl"), format!("{answer}\n").repeat(50)).expect("written");
    let (_relay, far) = slow_link(&cluster);
    for node in ["sched", "s0", "s1", "s2"] {
        cluster.start_node(node);
    }
    let (topology, dataset) = (cluster.topology(), cluster.dataset());
    let push = ["dataset", "push", path_text(&dataset), "--topology", path_text(&topology)];
    run("push", &mut rudder(&push));
    cluster.start_node_with("c0", &far);
    let large = ["--minibatches", "10000000", "--seeds", "500"];
    let mut trainer = cluster.trainer("c0", &large);
    await_steps(&mut trainer, 20);

    // The link is an edge, the recorded directive is tried, and `s1` dials the owner when it is first asked.
    cluster.node("sched").await_said("the advisor answered", PATIENCE);
    cluster.node("c0").await_said("Stage {", PATIENCE);
    cluster.node("s1").await_said("storage node connected", PATIENCE);
    more_steps(&mut trainer);
    let stopped = cluster.stop_node("s1", STOP);
    let stopped: Value = serde_json::from_str(stopped.stdout.last().expect("a line")).expect("JSON");
    let count =
        |key: &str| stopped["statistics"][key].as_u64().unwrap_or_else(|| panic!("no {key} in {stopped}"));
    assert!(count("rows_relayed") > 0 && count("staged_bytes") > 0, "{stopped}");
    assert!(count("staged_rows_served") > count("rows_relayed"), "some rows were used again: {stopped}");

    // Without it everything comes from those who own it; and again with it, with the owner gone, and with all of them.
    more_steps(&mut trainer);
    cluster.start_node("s1");
    more_steps(&mut trainer);
    cluster.kill_node("s1");
    more_steps(&mut trainer);
    cluster.start_node("s1");
    cluster.kill_node("s0");
    cluster.start_node("s0");
    more_steps(&mut trainer);

    let exit = trainer.kill();
    let steps: Vec<Value> = exit.stdout.iter().filter_map(|line| event(line, "step")).collect();
    assert!(steps.len() > 150, "{}", steps.len());
    assert!(steps.iter().all(|step| step["bytes_wrong"] == 0));
    assert!(steps.iter().any(|step| step["bytes"].as_u64() > Some(0)));
}
