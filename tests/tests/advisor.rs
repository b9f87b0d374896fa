//! The advisor in real processes: directives reach compute nodes, and neither a silent model nor a dead scheduler holds
//! a trainer up.

use rudder_tests::process::await_until;
use rudder_tests::process::cluster::{Cluster, ClusterOptions, PATIENCE, await_steps};
use serde_json::Value;
use std::net::TcpListener;

/// A trainer that runs for as long as the test.
const FOR_EVER: [&str; 2] = ["--minibatches", "10000000"];

fn options(advisor: &str) -> ClusterOptions {
    // Every row is missed, which is an edge as soon as the warm-up is over.
    ClusterOptions { policy: "none".to_owned(), advisor: advisor.to_owned(), ..ClusterOptions::default() }
}

#[test]
fn directives_reach_compute_nodes_which_follow_their_own_rules_when_the_scheduler_is_gone() {
    let mut cluster = Cluster::start(&options("[advisor]\nbackend = \"always\"\n"));
    let mut trainer = cluster.trainer("c0", &FOR_EVER);
    cluster.node("sched").await_said("consulting the advisor", PATIENCE);
    cluster.node("sched").await_said("the advisor answered", PATIENCE);
    cluster.node("c0").await_said("a directive", PATIENCE);
    await_steps(&mut trainer, 100);
    cluster.kill_node("sched");
    cluster.node("c0").await_said("this node follows its own rules", PATIENCE);
    assert!(trainer.runs());
    cluster.start_node("sched");
    cluster.node("c0").await_said("an advisor is heard", PATIENCE);
    assert!(trainer.runs());
}

/// Decisions of a node's loop, once so many are due beyond `since`.
fn await_decisions(cluster: &Cluster, node: &str, since: u64) -> Value {
    let more = || {
        let decisions = cluster.status(node)["decisions"][0].clone();
        (decisions["coverage"]["due"].as_u64()? >= since + 3).then_some(decisions)
    };
    await_until(more, PATIENCE).unwrap()
}

#[test]
fn loops_that_panic_under_load_are_started_again_and_miss_no_decision() {
    let mut cluster =
        Cluster::start(&ClusterOptions { test_faults: true, ..options("[advisor]\nbackend = \"always\"\n") });
    let mut trainer = cluster.trainer("c0", &FOR_EVER);
    await_steps(&mut trainer, 50);
    for (node, kind) in [("sched", "advisor"), ("c0", "director")] {
        for panics in 1..=2 {
            let due = await_decisions(&cluster, node, 0)["coverage"]["due"].as_u64().unwrap();
            cluster.node(node).order(&format!("panic {kind}"));
            let decisions = await_decisions(&cluster, node, due);
            assert_eq!(decisions["kind"], kind);
            assert_eq!(decisions["coverage"]["missed"], 0, "{decisions}");
            let status = cluster.status(node);
            let actors = status["actors"].as_array().unwrap();
            let restarted = actors.iter().find(|actor| actor["actor"] == kind).unwrap();
            assert_eq!(
                (restarted["restarts"].as_u64(), &restarted["state"]),
                (Some(panics), &"running".into())
            );
        }
    }
    let decisions = await_decisions(&cluster, "c0", 0);
    let (all, covered) =
        (&decisions["coverage"]["minibatches"], &decisions["coverage"]["minibatches_covered"]);
    assert!(all.as_u64() > Some(50) && all == covered, "{decisions}");
    assert!(trainer.runs());
}

#[test]
fn a_model_that_never_answers_is_replaced_by_the_rules() {
    // The kernel accepts connections; nobody ever answers one.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let advisor = format!(
        "[advisor]\nbackend = \"openai\"\nurl = \"http://{}/v1\"\nmodel = \"m\"\ndeadline = \"2s\"\nattempts = 1\n",
        silent.local_addr().unwrap()
    );
    let mut cluster = Cluster::start(&options(&advisor));
    let mut trainer = cluster.trainer("c0", &FOR_EVER);
    cluster.node("sched").await_said("the rules advise instead", PATIENCE);
    cluster.node("sched").await_said("the advisor answered", PATIENCE);
    let decisions = cluster.status("sched")["decisions"][0].clone();
    assert_eq!(decisions["who"], "openai m");
    assert!(decisions["answers"]["by_rules"].as_u64() >= Some(1), "degraded, and shown: {decisions}");
    assert_eq!(decisions["coverage"]["missed"], 0, "{decisions}");
    assert!(trainer.runs());
}
