//! What the control plane of a cluster says in steady state: the product's own heartbeat machine in virtual time, and
//! reports at the observers' period. Plans never cross the network: each compute node makes its own.

use rudder_client::identity::PeerName;
use rudder_membership::Peer;
use rudder_membership::heartbeat::{Command, Event, Heartbeat};
use rudder_messages::REPORT_PERIOD;
use rudder_topology::{Generation, Nanos, NodeName};

/// Messages that cross the network.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct ControlLoad {
    /// Heartbeats both ways and reports, over all nodes, for each node and second.
    pub messages_per_node_per_s: f64,
    /// Of these, what ends or starts at the scheduler node, the middle of the star.
    pub scheduler_messages_per_s: f64,
}

/// Simulated time: whole heartbeats and whole reports at the default time-out.
const SPAN: Nanos = Nanos::from_secs(12);

/// The load of a star of `nodes`, one of which is the scheduler.
#[must_use]
pub fn control(nodes: u32, heartbeat_timeout: Nanos) -> ControlLoad {
    let members = u64::from(nodes.saturating_sub(1));
    let seconds = SPAN.as_secs_f64();
    let peers: Vec<Peer> = (1..nodes).map(|node| peer(&format!("n{node}"))).collect();
    let from_scheduler = beats(&peers, heartbeat_timeout);
    // Members are alike: each knows the scheduler only.
    let from_a_member = if members > 0 { beats(&[peer("n0")], heartbeat_timeout) } else { 0 };
    let reports = SPAN.0 / REPORT_PERIOD.0;
    let all = from_scheduler + members * (from_a_member + reports);
    ControlLoad {
        messages_per_node_per_s: all as f64 / f64::from(nodes.max(1)) / seconds,
        scheduler_messages_per_s: all as f64 / seconds,
    }
}

fn peer(name: &str) -> Peer {
    let name = PeerName::Node(NodeName::new(name).expect("letters and digits"));
    Peer { name, generation: Generation(1) }
}

/// Beats that a process sends to these peers, all of them alive, once everybody is connected.
fn beats(peers: &[Peer], timeout: Nanos) -> u64 {
    let mut machine = Heartbeat::new(timeout);
    let mut now = Nanos(0);
    for peer in peers {
        let Ok((id, _)) = machine.admit(peer, now) else { continue };
        machine.on(&Event::Offered(id), now);
        machine.on(&Event::Ready(id), now);
    }
    let (mut sent, mut heard) = (0, now);
    while now < SPAN {
        // Often enough that nobody is taken for lost.
        if now.0 - heard.0 >= timeout.0 / 2 {
            heard = now;
            for peer in peers {
                machine.on(&Event::Beat(peer.clone()), now);
            }
        }
        let commands = machine.on(&Event::Wake, now);
        sent += commands.iter().filter(|command| matches!(command, Command::Beat(_))).count() as u64;
        let next = commands.iter().find_map(|command| match command {
            Command::WakeAt(at) => Some(*at),
            _ => None,
        });
        now = next.unwrap_or(SPAN).max(Nanos(now.0 + 1));
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_as_much_in_a_large_cluster_as_in_a_small_one() {
        let load = |nodes| control(nodes, Nanos::from_secs(3)).messages_per_node_per_s;
        // Four beats in three seconds each way and a report every two: 3.17, less what the scheduler needs not say.
        assert!((load(320) - 19.0 / 6.0).abs() < 0.02, "{}", load(320));
        assert!(load(20) < load(320) && load(320) < load(20) * 1.06, "{}", load(20));
        assert_eq!(load(1), 0.0);
    }

    #[test]
    fn the_scheduler_hears_all_of_it() {
        let small = control(20, Nanos::from_secs(3)).scheduler_messages_per_s;
        let large = control(320, Nanos::from_secs(3)).scheduler_messages_per_s;
        assert!((large / small - 319.0 / 19.0).abs() < 0.5, "{small} {large}");
    }
}
