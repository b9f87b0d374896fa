//! A process that keeps experience is killed in the midst of its writes: whatever it was told is on disk is there.

use rudder_advisor::Source;
use rudder_advisor::experience::{Experience, Retention, Store};
use rudder_policy::advice::directive::{Action, Change, Directive};
use rudder_policy::advice::options::Options;
use rudder_policy::advice::state::ClusterState;
use rudder_policy::advice::trial::{Outcome, TrialVerdict};
use rudder_policy::parameters::Posture;
use rudder_topology::NodeId;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const FILE: &str = "RUDDER_TEST_EXPERIENCE";
/// Lines for the parent start with this; the rest is the test harness's.
const MARK: &str = "@ ";
const KILLS: u64 = 8;
const RETENTION: Retention = Retention { entries_max: 60, bytes_max: u64::MAX };

fn experience(minibatch: u64) -> Experience {
    let change = Change::Posture(Posture::DemandOnly);
    Experience {
        backend: "x".repeat(2000),
        source: Source::Backend,
        state: ClusterState { minibatch, ..ClusterState::default() },
        options: Options::default(),
        directive: Directive { actions: vec![Action { compute: NodeId(0), change, ttl_s: 60 }] },
        refusals: vec![],
        dropped: vec![],
        outcome: Outcome { predicted: -0.1, measured: None, verdict: TrialVerdict::Kept },
        cost: None,
    }
}

/// Not a test: what a started copy of this binary runs.
#[test]
#[ignore = "the entry of child processes"]
fn writer() {
    let path = std::env::var(FILE).expect("this is the entry of child processes");
    let store = Store::open(Path::new(&path)).unwrap().with_retention(RETENTION);
    let first = store.entries().unwrap().last().map_or(0, |(number, _)| number + 1);
    for minibatch in first.. {
        store.add(&experience(minibatch)).unwrap();
        println!("\n{MARK}{minibatch}");
        std::io::stdout().flush().unwrap();
    }
}

fn start(file: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["writer", "--exact", "--ignored", "--nocapture"]).env(FILE, file);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn every_entry_that_was_acknowledged_is_there_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("e.redb");
    let mut acknowledged = None;
    for kill in 0..KILLS {
        let mut child = start(&file);
        let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut numbers = said.filter_map(|line| line.strip_prefix(MARK)?.parse::<u64>().ok());
        // Each time elsewhere; what it wrote by the time it is dead may be more.
        acknowledged = numbers.by_ref().nth(3 + kill as usize * 5);
        child.kill().unwrap();
        acknowledged = numbers.last().or(acknowledged);
        assert!(!child.wait().unwrap().success());
        let entries = Store::open_existing(&file).unwrap().entries().unwrap();
        let last = entries.last().unwrap().0;
        assert!(last >= acknowledged.unwrap(), "{last} is the last of {acknowledged:?}");
        assert!(entries.len() as u64 <= RETENTION.entries_max);
        let expected: Vec<_> = (0..=last).rev().take(entries.len()).map(|n| (n, experience(n))).collect();
        assert!(entries.into_iter().rev().eq(expected), "whole, and none missing");
    }
    assert!(acknowledged > Some(RETENTION.entries_max), "the oldest went meanwhile");
}
