use super::*;
use proptest::prelude::*;

const TIMEOUT: Nanos = Nanos::from_secs(3);

fn peer(name: &str, generation: u64) -> Peer {
    Peer { name: PeerName::parse(name).unwrap(), generation: Generation(generation) }
}

fn event(name: &str, generation: u64, change: PeerChange) -> Command {
    let node = NodeName::new(name).unwrap();
    Command::Announce(PeerEvent { node, generation: Generation(generation), change })
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// A machine with one ready peer.
fn ready(name: &str, generation: u64, now: Nanos) -> (Heartbeat, ConnectionId) {
    let mut machine = Heartbeat::new(TIMEOUT);
    let (id, commands) = machine.admit(&peer(name, generation), now).unwrap();
    assert_eq!(commands, []);
    assert_eq!(machine.on(&Event::Offered(id), now), [Command::Open(id)]);
    assert_eq!(
        machine.on(&Event::Ready(id), now),
        [Command::Beat(peer(name, generation)), event(name, generation, PeerChange::Up)]
    );
    (machine, id)
}

#[test]
fn a_silent_peer_is_lost_at_the_time_out_and_not_before() {
    let (mut machine, id) = ready("a", 1, ms(0));
    assert_eq!(machine.on(&Event::Wake, ms(0)), [Command::Beat(peer("a", 1)), Command::WakeAt(ms(750))]);
    for at in [750, 1500, 2250] {
        let next = Command::WakeAt(ms(at + 750));
        assert_eq!(machine.on(&Event::Wake, ms(at)), [Command::Beat(peer("a", 1)), next]);
    }
    machine.on(&Event::Wake, ms(2999));
    let commands = machine.on(&Event::Wake, ms(3000));
    assert_eq!(
        commands[..2],
        [event("a", 1, PeerChange::Lost(LostReason::Silent)), Command::Close(id, LostReason::Silent)]
    );
    // ractor confirms: nothing is announced twice.
    assert_eq!(machine.on(&Event::Closed(id), ms(3001)), [Command::Forget(id)]);
}

#[test]
fn a_beat_keeps_a_peer_alive_and_only_that_incarnation() {
    let (mut machine, id) = ready("a", 2, ms(0));
    machine.on(&Event::Wake, ms(0));
    machine.on(&Event::Wake, ms(2000));
    machine.on(&Event::Beat(peer("a", 2)), ms(2000));
    machine.on(&Event::Beat(peer("a", 1)), ms(4000));
    machine.on(&Event::Beat(peer("b", 2)), ms(4000));
    assert!(!machine.on(&Event::Wake, ms(4999)).contains(&Command::Close(id, LostReason::Silent)));
    assert!(machine.on(&Event::Wake, ms(5000)).contains(&Command::Close(id, LostReason::Silent)));
}

#[test]
fn a_returning_peer_waits_until_its_stale_session_is_gone() {
    let (mut machine, old) = ready("a", 1, ms(0));
    let (new, commands) = machine.admit(&peer("a", 2), ms(10)).unwrap();
    assert_eq!(
        commands,
        [event("a", 1, PeerChange::Lost(LostReason::Replaced)), Command::Close(old, LostReason::Replaced)]
    );
    assert_eq!(machine.on(&Event::Offered(new), ms(11)), []);
    assert_eq!(machine.on(&Event::Closed(old), ms(12)), [Command::Forget(old), Command::Open(new)]);
    assert_eq!(machine.admit(&peer("a", 1), ms(13)), Err(AdmitError::OldGeneration(Generation(2))));
}

#[test]
fn a_session_that_never_says_it_ended_does_not_block_for_ever() {
    let (mut machine, old) = ready("a", 1, ms(0));
    let (new, _) = machine.admit(&peer("a", 1), ms(10)).unwrap();
    machine.on(&Event::Offered(new), ms(10));
    assert!(!machine.on(&Event::Wake, ms(1009)).contains(&Command::Open(new)));
    let commands = machine.on(&Event::Wake, ms(1010));
    assert!(commands.starts_with(&[Command::Forget(old), Command::Open(new)]), "{commands:?}");
}

#[test]
fn a_handshake_that_does_not_end_is_closed() {
    let mut machine = Heartbeat::new(TIMEOUT);
    let (reserved, _) = machine.admit(&peer("a", 1), ms(0)).unwrap();
    let (opening, _) = machine.admit(&peer("b", 1), ms(0)).unwrap();
    machine.on(&Event::Offered(opening), ms(0));
    for at in (0..5000).step_by(500) {
        assert!(!machine.on(&Event::Wake, ms(at)).iter().any(|c| matches!(c, Command::Close(..))));
    }
    let commands = machine.on(&Event::Wake, ms(5000));
    assert!(commands.contains(&Command::Close(reserved, LostReason::Unfinished)));
    assert!(commands.contains(&Command::Close(opening, LostReason::Unfinished)));
    assert!(commands.contains(&Command::Forget(reserved)));
    // A stream that comes after all is dropped.
    assert_eq!(machine.on(&Event::Offered(reserved), ms(5001)), [Command::Forget(reserved)]);
}

#[test]
fn a_process_that_was_stopped_judges_nobody() {
    let (mut machine, id) = ready("a", 1, ms(0));
    machine.on(&Event::Wake, ms(0));
    let commands = machine.on(&Event::Wake, ms(60_000));
    assert!(!commands.contains(&Command::Close(id, LostReason::Silent)), "{commands:?}");
    machine.on(&Event::Wake, ms(61_500));
    assert!(machine.on(&Event::Wake, ms(63_000)).contains(&Command::Close(id, LostReason::Silent)));
}

#[test]
fn operators_come_together_and_are_not_announced() {
    let mut machine = Heartbeat::new(TIMEOUT);
    let mut last = None;
    for n in 0..OPERATORS_MAX as u64 {
        let (id, commands) = machine.admit(&peer("operator", n), ms(0)).unwrap();
        assert_eq!(commands, []);
        assert_eq!(machine.on(&Event::Offered(id), ms(0)), [Command::Open(id)]);
        assert_eq!(machine.on(&Event::Ready(id), ms(0)), [Command::Beat(peer("operator", n))]);
        last = Some(id);
    }
    assert_eq!(machine.admit(&peer("operator", 99), ms(0)), Err(AdmitError::TooManyOperators));
    machine.on(&Event::Closed(last.unwrap()), ms(1));
    assert!(machine.admit(&peer("operator", 99), ms(2)).is_ok());
}

#[test]
fn stopping_closes_everything_and_admits_nobody() {
    let (mut machine, id) = ready("a", 1, ms(0));
    let commands = machine.on(&Event::Stop, ms(1));
    assert_eq!(
        commands,
        [event("a", 1, PeerChange::Lost(LostReason::Stopping)), Command::Close(id, LostReason::Stopping)]
    );
    assert_eq!(machine.admit(&peer("b", 1), ms(2)), Err(AdmitError::Stopping));
}

proptest! {
    /// Whatever happens: up and lost alternate per node, never two sessions of one node are open at once, and
    /// every connection is forgotten in the end.
    #[test]
    fn up_and_lost_alternate(steps in prop::collection::vec((0u8..8, 0u64..3, 1u64..3, 0u64..900), 1..200)) {
        let mut machine = Heartbeat::new(TIMEOUT);
        let mut now = Nanos(0);
        let mut ids: Vec<ConnectionId> = Vec::new();
        let mut up = std::collections::HashMap::new();
        let mut owner = std::collections::HashMap::new();
        let mut open = std::collections::HashSet::new();
        let mut forgotten = std::collections::HashSet::new();
        let mut run = |machine: &mut Heartbeat, commands: Vec<Command>, owner: &std::collections::HashMap<ConnectionId, u64>| {
            let _ = machine;
            for command in commands {
                match command {
                    Command::Announce(event) => {
                        let was = up.insert(event.node.clone(), event.change == PeerChange::Up);
                        prop_assert_ne!(was.unwrap_or(false), event.change == PeerChange::Up);
                    }
                    Command::Open(id) => {
                        let node = owner[&id];
                        prop_assert!(!open.iter().any(|other| owner[other] == node));
                        open.insert(id);
                    }
                    Command::Forget(id) => {
                        open.remove(&id);
                        forgotten.insert(id);
                    }
                    _ => {}
                }
            }
            Ok(())
        };
        for (kind, node, generation, wait) in steps {
            now = Nanos(now.0 + wait * 1_000_000);
            let who = peer(["a", "b", "c"][node as usize], generation);
            let some = ids.get((wait as usize) % ids.len().max(1)).copied();
            let commands = match (kind, some) {
                (0 | 1, _) => match machine.admit(&who, now) {
                    Ok((id, commands)) => {
                        ids.push(id);
                        owner.insert(id, node);
                        commands
                    }
                    Err(_) => Vec::new(),
                },
                (2, Some(id)) => machine.on(&Event::Offered(id), now),
                (3, Some(id)) => machine.on(&Event::Ready(id), now),
                (4, Some(id)) => machine.on(&Event::Closed(id), now),
                (5, _) => machine.on(&Event::Beat(who), now),
                _ => machine.on(&Event::Wake, now),
            };
            run(&mut machine, commands, &owner)?;
        }
        let commands = machine.on(&Event::Stop, now);
        run(&mut machine, commands, &owner)?;
        for step in 1..20 {
            let commands = machine.on(&Event::Wake, Nanos(now.0 + step * 1_000_000_000));
            run(&mut machine, commands, &owner)?;
        }
        for id in &ids {
            prop_assert!(forgotten.contains(id), "{:?} is never forgotten", id);
        }
        prop_assert!(up.values().all(|up| !up));
    }
}
