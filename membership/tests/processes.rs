//! The control plane between real processes: this test binary starts itself again as nodes and operators, because a
//! process can be one node only. Every wait is for a condition, with a deadline far beyond what it takes.

#[path = "processes/child.rs"]
mod child;
#[path = "processes/harness.rs"]
mod harness;

use harness::{Cluster, Stranger};
use rudder_membership::Refusal;
use rudder_topology::Generation;
use rustix::process::Signal;

#[test]
fn a_killed_node_is_noticed_and_its_next_generation_joins() {
    let cluster = Cluster::with_keys(&["c0", "c1"]);
    let scheduler = cluster.start("sched", 1, None);
    let at = scheduler.listening();
    let c0 = cluster.start("c0", 1, Some(at));
    let c1 = cluster.start("c1", 7, Some(at));
    c0.expect("up sched 1");
    c1.expect("up sched 1");
    scheduler.expect("up c0 1");
    c0.signal(Signal::KILL);
    scheduler.expect("lost c0 1 Closed");
    let c0 = cluster.start("c0", 2, Some(at));
    c0.expect("up sched 1");
    scheduler.expect("up c0 2");
    c0.stop();
    scheduler.expect("lost c0 2");
    c1.stop();
    scheduler.stop();
}

#[test]
fn a_stopped_process_is_lost_and_comes_back() {
    let cluster = Cluster::with_keys(&["c0", "c1"]);
    let scheduler = cluster.start("sched", 1, None);
    let at = scheduler.listening();
    let _c1 = cluster.start("c1", 1, Some(at));
    scheduler.expect("up c1 1");
    let c0 = cluster.start("c0", 1, Some(at));
    scheduler.expect("up c0 1");
    c0.signal(Signal::STOP);
    scheduler.expect("lost c0 1 Silent");
    assert!(!scheduler.seen("lost c1"), "it was up for longer than that and its heartbeats came");
    c0.signal(Signal::CONT);
    scheduler.expect("up c0 1");
}

#[test]
fn a_scheduler_that_restarts_is_found_again() {
    let cluster = Cluster::with_keys(&["c0"]);
    let mut scheduler = cluster.start_at("sched", 1, harness::address_of_this_process());
    let at = scheduler.listening();
    let c0 = cluster.start("c0", 1, Some(at));
    c0.expect("up sched 1");
    scheduler.kill();
    c0.expect("lost sched 1 Closed");
    let scheduler = cluster.start_at("sched", 2, at);
    c0.expect("up sched 2");
    scheduler.expect("up c0 1");
}

#[test]
fn without_keys_nodes_meet_on_loopback() {
    let cluster = Cluster::without_keys(&["c0"]);
    let scheduler = cluster.start("sched", 1, None);
    let c0 = cluster.start("c0", 1, Some(scheduler.listening()));
    c0.expect("up sched 1");
    scheduler.expect("up c0 1");
}

#[test]
fn strangers_and_liars_are_refused() {
    let cluster = Cluster::with_keys(&["c0", "c1"]);
    let scheduler = cluster.start("sched", 1, None);
    let at = scheduler.listening();
    let c0 = cluster.start("c0", 5, Some(at));
    scheduler.expect("up c0 5");

    // A certificate of another authority: no answer, the connection ends.
    assert!(Stranger::with_foreign_certificate(&cluster, "c1", at).hello("c1", 1).is_none());
    // Another name than the certificate's, a name that is no node's, a generation that has passed.
    let refusal = |stranger: Stranger, name, generation| match stranger.hello(name, generation) {
        Some(harness::Answer::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    };
    let known = |name| Stranger::with_certificate(&cluster, name, at);
    assert_eq!(refusal(known("c1"), "c0", 9), Refusal::WrongName);
    assert_eq!(refusal(known("sched"), "sched", 9), Refusal::UnknownNode);
    assert_eq!(refusal(known("c0"), "c0", 4), Refusal::OldGeneration(Generation(5)));
    // The same client with nothing wrong is welcome, so the refusals above mean something.
    let Some(harness::Answer::Welcome((name, generation))) = known("c1").hello("c1", 1) else {
        panic!("not welcome")
    };
    assert_eq!((name.as_str(), generation), ("sched", Generation(1)));
    // None of it disturbed the node that is in: its death is still news.
    c0.signal(Signal::KILL);
    scheduler.expect("lost c0 5 Closed");
    assert!(!scheduler.seen("up c1"), "a hello alone is no member");
}

#[test]
fn idle_connections_do_not_block_others() {
    let cluster = Cluster::with_keys(&["c0"]);
    let scheduler = cluster.start("sched", 1, None);
    let at = scheduler.listening();
    // One after the other they would take 5 s each, more than the deadline all together.
    let idle: Vec<_> = (0..40).map(|_| std::net::TcpStream::connect(at).unwrap()).collect();
    let c0 = cluster.start("c0", 1, Some(at));
    scheduler.expect("up c0 1");
    c0.expect("up sched 1");
    drop(idle);
}

#[test]
fn an_operator_reaches_an_actor_of_a_node() {
    let cluster = Cluster::with_keys(&["c0"]);
    let scheduler = cluster.start("sched", 1, None);
    let at = scheduler.listening();
    let first = cluster.operate("sched", at);
    first.expect("answer echo of sched: hello");
    let second = cluster.operate("sched", at);
    second.expect("answer echo of sched: hello");
    assert!(!scheduler.seen("up operator"));
    first.stop();
    second.stop();
}

#[test]
fn the_node_servers_own_listener_serves_nobody() {
    let cluster = Cluster::with_keys(&["c0"]);
    let scheduler = cluster.start("sched", 1, None);
    let at = scheduler.listening();
    let inner: Vec<_> = scheduler.listening_ports().into_iter().filter(|&port| port != at.port()).collect();
    assert_eq!(inner.len(), 1, "the control port and ractor's own");
    assert!(harness::hangs_up(("127.0.0.1", inner[0])), "it keeps a connection that did not say hello");
}
