//! The advisor in real processes: directives reach compute nodes, and neither a silent model nor a dead scheduler holds
//! a trainer up.

use rudder_tests::process::cluster::{Cluster, ClusterOptions, PATIENCE, await_steps};
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
    assert!(trainer.runs());
}
