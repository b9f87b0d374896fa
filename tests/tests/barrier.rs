//! Eight trainer processes behind an all-reduce, on one compute node whose cache holds half of their windows.

use rudder_tests::process::cluster::{Cluster, ClusterOptions, await_steps, finishes, free_addresses};

const TRAINERS: usize = 8;

/// A window is 6 minibatches of about 100 rows of 64 bytes: eight windows are about 300 KB.
const HALF: &str = "128KiB";

/// Not even the pinned minibatches fit: some pass by the cache.
const LESS: &str = "64KiB";

fn trainers(cluster: &Cluster, minibatches: &str) -> Vec<rudder_tests::process::Child> {
    let ring = free_addresses(TRAINERS).iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let world = TRAINERS.to_string();
    let start = |rank: usize| {
        let rank = rank.to_string();
        let arguments = ["--minibatches", minibatches, "--rank", &rank, "--world", &world];
        cluster.trainer("c0", &[&arguments[..], &["--ring", &ring, "--allreduce-bytes", "4096"]].concat())
    };
    (0..TRAINERS).map(start).collect()
}

#[test]
fn eight_trainers_behind_a_barrier_go_through() {
    let cluster = Cluster::start(&ClusterOptions { cache: HALF.to_owned(), ..ClusterOptions::default() });
    for trainer in trainers(&cluster, "25") {
        finishes(trainer);
    }
}

#[test]
fn a_storage_node_that_restarts_does_not_close_the_cycle() {
    let mut cluster = Cluster::start(&ClusterOptions { cache: LESS.to_owned(), ..ClusterOptions::default() });
    let mut running = trainers(&cluster, "40");
    await_steps(&mut running[0], 5);
    cluster.kill_node("s0");
    cluster.start_node("s0");
    for trainer in running {
        finishes(trainer);
    }
}
