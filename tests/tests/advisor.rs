//! The advisor in real processes: directives reach compute nodes, and neither a silent model nor a dead scheduler holds
//! a trainer up.

use rudder_tests::process::cluster::{Cluster, ClusterOptions, PATIENCE, await_steps, event};
use rudder_tests::process::{Child, await_until};
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;

/// A trainer that runs for as long as the test.
const FOR_EVER: [&str; 2] = ["--minibatches", "10000000"];

fn options(advisor: &str) -> ClusterOptions {
    // Every row is missed, which is an edge as soon as the warm-up is over.
    ClusterOptions { policy: "none".to_owned(), advisor: advisor.to_owned(), ..ClusterOptions::default() }
}

/// The minibatch that a trainer has just done.
fn last_step(trainer: &mut Child) -> u64 {
    trainer.await_line(|line| event(line, "step")?["minibatch"].as_u64(), PATIENCE)
}

#[test]
fn directives_reach_compute_nodes_which_follow_their_own_rules_when_the_scheduler_is_gone() {
    // Two nodes with a job each share the advisor.
    let always = ClusterOptions { compute_nodes: 2, ..options("[advisor]\nbackend = \"always\"\n") };
    let mut cluster = Cluster::start(&always);
    let nodes = ["c0", "c1"];
    let job = |n: usize| [["--job", ["0", "1"][n]].as_slice(), &FOR_EVER].concat();
    let mut trainers = [0, 1].map(|n| cluster.trainer(nodes[n], &job(n)));
    cluster.node("sched").await_said("consulting the advisor", PATIENCE);
    cluster.node("sched").await_said("the advisor answered", PATIENCE);
    cluster.node("c0").await_said("a directive", PATIENCE);
    trainers.iter_mut().for_each(|trainer| await_steps(trainer, 100));
    cluster.kill_node("sched");
    for (node, trainer) in nodes.into_iter().zip(&mut trainers) {
        cluster.node(node).await_said("this node follows its own rules", PATIENCE);
        let done = last_step(trainer);
        await_steps(trainer, done + 50);
        let decisions = cluster.status(node)["decisions"][0].clone();
        assert_eq!(decisions["who"], "its own rules", "{decisions}");
    }
    cluster.start_node("sched");
    for (node, trainer) in nodes.into_iter().zip(&mut trainers) {
        cluster.node(node).await_said("an advisor is heard", PATIENCE);
        let done = last_step(trainer);
        await_steps(trainer, done + 50);
        let decisions = cluster.status(node)["decisions"][0].clone();
        assert_eq!(decisions["coverage"]["missed"], 0, "{decisions}");
    }
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

/// CPUs that a thread or process may run on, from its `status`.
fn allowed(status: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(status).unwrap_or_default();
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let range = |piece: &str| {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        Some(first.parse().ok()?..=last.parse::<u32>().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// Each thread of a node with its name and CPUs.
fn threads(node: &Child) -> Vec<(String, Vec<u32>)> {
    let tasks = format!("/proc/{}/task", node.pid().as_raw_nonzero());
    let task = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        // A thread may end meanwhile.
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        Some((name.trim().to_owned(), allowed(&path.join("status"))))
    };
    std::fs::read_dir(tasks).unwrap().filter_map(task).filter(|(_, cpus)| !cpus.is_empty()).collect()
}

#[test]
fn advisor_and_control_plane_keep_off_the_cores_of_movers() {
    let own = allowed(Path::new("/proc/self/status"));
    let &[.., last] = &own[..] else { panic!("no CPU") };
    if own.len() == 1 {
        // Movers cannot have a core of their own.
        return;
    }
    // Somebody who listens and never answers: HTTP is on its way while the threads are looked at.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let advisor = format!(
        "[advisor]\nbackend = \"openai\"\nurl = \"http://{}/v1\"\nmodel = \"m\"\ndeadline = \"120s\"\n",
        silent.local_addr().unwrap()
    );
    let cores = format!("mover_cores = \"{last}\"\n");
    let mut cluster = Cluster::start(&ClusterOptions { cores, ..options(&advisor) });
    let mut trainer = cluster.trainer("c0", &FOR_EVER);
    await_steps(&mut trainer, 20);
    cluster.node("sched").await_said("consulting the advisor", PATIENCE);
    for (node, expected) in [("sched", "advisor"), ("c0", "compute-mover"), ("s0", "storage-mover")] {
        let threads = threads(cluster.node(node));
        assert!(threads.iter().any(|(name, _)| name == expected), "{node}: {threads:?}");
        for (name, cpus) in threads {
            let moves = name.ends_with("-mover") || name == "pread";
            // io_uring's own threads are the kernel's, and go where the mover is.
            if moves || name.starts_with("iou-") {
                assert_eq!(cpus, [last], "{node}: {name}");
            } else {
                assert!(!cpus.contains(&last), "{node}: {name} may run on {cpus:?}");
            }
        }
    }
}
