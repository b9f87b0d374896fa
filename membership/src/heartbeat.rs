//! Who is alive: a pure state machine over connections. Time comes in as nanoseconds, deeds go out as commands.
//!
//! A connection is reserved when its hello was accepted, opened once no older connection of the same peer is left
//! (a stale session would make ractor refuse the new one), ready when ractor has synchronised, and closing until
//! ractor has said so. A ready peer that sends no beat for the time-out is lost.

use crate::peer::{LostReason, Peer, PeerChange, PeerEvent};
use rudder_client::identity::PeerName;
use rudder_topology::{Generation, Nanos, NodeName};
use std::collections::{BTreeMap, HashMap};

/// A connection of this process, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Connections of operators at one time.
const OPERATORS_MAX: usize = 32;
/// Sessions that do not say that they ended are forgotten after this.
const CLOSING_MAX: Nanos = Nanos::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The stream of a reserved connection is here.
    Offered(ConnectionId),
    /// The stream of a reserved connection will not come.
    Abandoned(ConnectionId),
    /// ractor has synchronised.
    Ready(ConnectionId),
    /// ractor calls the peer by another name than its hello.
    Misnamed(ConnectionId),
    /// ractor's session has ended.
    Closed(ConnectionId),
    /// A heartbeat of a peer.
    Beat(Peer),
    Wake,
    Stop,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Give the stream to ractor.
    Open(ConnectionId),
    /// Shut the socket and stop the session.
    Close(ConnectionId, LostReason),
    /// Drop everything kept for the connection.
    Forget(ConnectionId),
    /// Send a heartbeat.
    Beat(Peer),
    Announce(PeerEvent),
    /// Send [`Event::Wake`] then.
    WakeAt(Nanos),
}

/// Why a hello was not accepted, with what would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitError {
    /// A younger incarnation of the same node is known.
    OldGeneration(Generation),
    TooManyOperators,
    Stopping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Hello accepted, stream not here yet.
    Reserved,
    /// Stream here, older connections of the peer still closing.
    Waiting,
    /// ractor's handshake runs.
    Opening,
    Ready {
        heard: Nanos,
    },
    Closing,
}

#[derive(Clone, Debug)]
struct Connection {
    peer: Peer,
    state: State,
    since: Nanos,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    timeout: Nanos,
    connections: BTreeMap<ConnectionId, Connection>,
    newest: HashMap<NodeName, Generation>,
    next_connection: u64,
    next_beat: Nanos,
    last_wake: Option<Nanos>,
    stopping: bool,
}

impl Heartbeat {
    /// A peer silent for `timeout` is lost; beats go out four times as often.
    #[must_use]
    pub fn new(timeout: Nanos) -> Heartbeat {
        Heartbeat {
            timeout,
            connections: BTreeMap::new(),
            newest: HashMap::new(),
            next_connection: 0,
            next_beat: Nanos(0),
            last_wake: None,
            stopping: false,
        }
    }

    /// A peer said hello. Older connections of the same node are closed at once: they are stale, or the node would
    /// not dial again.
    pub fn admit(&mut self, peer: &Peer, now: Nanos) -> Result<(ConnectionId, Vec<Command>), AdmitError> {
        if self.stopping {
            return Err(AdmitError::Stopping);
        }
        let mut commands = Vec::new();
        match &peer.name {
            PeerName::Operator => {
                let operators = self.connections.values().filter(|c| c.peer.name == PeerName::Operator);
                if operators.count() >= OPERATORS_MAX {
                    return Err(AdmitError::TooManyOperators);
                }
            }
            PeerName::Node(node) => {
                let newest = self.newest.entry(node.clone()).or_insert(peer.generation);
                if *newest > peer.generation {
                    return Err(AdmitError::OldGeneration(*newest));
                }
                *newest = peer.generation;
                let stale: Vec<ConnectionId> = self
                    .of(&peer.name)
                    .filter(|(_, c)| c.state != State::Closing)
                    .map(|(id, _)| id)
                    .collect();
                for id in stale {
                    self.close(id, LostReason::Replaced, now, &mut commands);
                }
            }
        }
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        let connection = Connection { peer: peer.clone(), state: State::Reserved, since: now };
        self.connections.insert(id, connection);
        Ok((id, commands))
    }

    pub fn on(&mut self, event: &Event, now: Nanos) -> Vec<Command> {
        let mut commands = Vec::new();
        match event {
            Event::Offered(id) => self.offered(*id, now, &mut commands),
            Event::Abandoned(id) => self.forget(*id, now, &mut commands),
            Event::Ready(id) => self.ready(*id, now, &mut commands),
            Event::Misnamed(id) => self.close(*id, LostReason::Misnamed, now, &mut commands),
            Event::Closed(id) => {
                self.lost(*id, LostReason::Closed, &mut commands);
                self.forget(*id, now, &mut commands);
            }
            Event::Beat(peer) => self.beat(peer, now),
            Event::Wake => self.wake(now, &mut commands),
            Event::Stop => self.stop(now, &mut commands),
        }
        commands
    }

    fn of<'a>(&'a self, name: &'a PeerName) -> impl Iterator<Item = (ConnectionId, &'a Connection)> + 'a {
        self.connections.iter().filter(move |(_, c)| c.peer.name == *name).map(|(&id, c)| (id, c))
    }

    fn offered(&mut self, id: ConnectionId, now: Nanos, commands: &mut Vec<Command>) {
        match self.connections.get_mut(&id) {
            Some(connection) if connection.state == State::Reserved => {
                (connection.state, connection.since) = (State::Waiting, now);
            }
            // Closed while its stream was under way: whoever offers it hears so and drops it.
            Some(_) => {}
            None => commands.push(Command::Forget(id)),
        }
        self.open_waiting(now, commands);
    }

    /// Opens what no older connection stands before.
    fn open_waiting(&mut self, now: Nanos, commands: &mut Vec<Command>) {
        let waiting: Vec<ConnectionId> =
            self.connections.iter().filter(|(_, c)| c.state == State::Waiting).map(|(&id, _)| id).collect();
        for id in waiting {
            let peer = &self.connections[&id].peer;
            let blocked = self.connections.iter().any(|(&other, c)| other < id && c.peer.name == peer.name);
            if blocked && peer.name != PeerName::Operator {
                continue;
            }
            if let Some(connection) = self.connections.get_mut(&id) {
                (connection.state, connection.since) = (State::Opening, now);
                commands.push(Command::Open(id));
            }
        }
    }

    fn ready(&mut self, id: ConnectionId, now: Nanos, commands: &mut Vec<Command>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.state != State::Opening {
            return;
        }
        connection.state = State::Ready { heard: now };
        commands.push(Command::Beat(connection.peer.clone()));
        commands.extend(announce(&connection.peer, PeerChange::Up));
    }

    fn beat(&mut self, peer: &Peer, now: Nanos) {
        for connection in self.connections.values_mut().filter(|c| c.peer == *peer) {
            if let State::Ready { heard } = &mut connection.state {
                *heard = now;
            }
        }
    }

    fn lost(&mut self, id: ConnectionId, reason: LostReason, commands: &mut Vec<Command>) {
        if let Some(connection) = self.connections.get(&id)
            && matches!(connection.state, State::Ready { .. })
        {
            commands.extend(announce(&connection.peer, PeerChange::Lost(reason)));
        }
    }

    fn close(&mut self, id: ConnectionId, reason: LostReason, now: Nanos, commands: &mut Vec<Command>) {
        self.lost(id, reason, commands);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.state {
            State::Closing => {}
            // ractor does not know these.
            State::Reserved | State::Waiting => {
                commands.push(Command::Close(id, reason));
                self.forget(id, now, commands);
            }
            State::Opening | State::Ready { .. } => {
                (connection.state, connection.since) = (State::Closing, now);
                commands.push(Command::Close(id, reason));
            }
        }
    }

    fn forget(&mut self, id: ConnectionId, now: Nanos, commands: &mut Vec<Command>) {
        if self.connections.remove(&id).is_some() {
            commands.push(Command::Forget(id));
            self.open_waiting(now, commands);
        }
    }

    fn wake(&mut self, now: Nanos, commands: &mut Vec<Command>) {
        // A process that was itself stopped has heard nobody and judges nobody.
        let slept = self.last_wake.is_some_and(|last| now.0 - last.0 > self.timeout.0);
        self.last_wake = Some(now);
        if slept {
            for connection in self.connections.values_mut() {
                connection.since = now;
                if let State::Ready { heard } = &mut connection.state {
                    *heard = now;
                }
            }
        }
        self.expire(now, commands);
        if now >= self.next_beat {
            self.next_beat = Nanos(now.0 + self.timeout.0 / 4);
            let ready = self.connections.values().filter(|c| matches!(c.state, State::Ready { .. }));
            commands.extend(ready.map(|c| Command::Beat(c.peer.clone())));
        }
        let deadline = self.connections.values().map(|c| self.deadline(c)).min();
        let next = deadline.map_or(self.next_beat, |deadline| deadline.min(self.next_beat));
        commands.push(Command::WakeAt(next.max(Nanos(now.0 + 1))));
    }

    fn deadline(&self, connection: &Connection) -> Nanos {
        let (from, patience) = match connection.state {
            State::Ready { heard } => (heard, self.timeout),
            State::Closing => (connection.since, CLOSING_MAX),
            State::Reserved | State::Waiting | State::Opening => {
                (connection.since, self.timeout.max(Nanos::from_secs(5)))
            }
        };
        Nanos(from.0.saturating_add(patience.0))
    }

    fn expire(&mut self, now: Nanos, commands: &mut Vec<Command>) {
        let expired: Vec<(ConnectionId, State)> = self
            .connections
            .iter()
            .filter(|(_, c)| self.deadline(c) <= now)
            .map(|(&id, c)| (id, c.state))
            .collect();
        for (id, state) in expired {
            match state {
                State::Ready { .. } => self.close(id, LostReason::Silent, now, commands),
                State::Closing => self.forget(id, now, commands),
                _ => self.close(id, LostReason::Unfinished, now, commands),
            }
        }
    }

    fn stop(&mut self, now: Nanos, commands: &mut Vec<Command>) {
        self.stopping = true;
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in all {
            self.close(id, LostReason::Stopping, now, commands);
        }
    }
}

fn announce(peer: &Peer, change: PeerChange) -> Option<Command> {
    let PeerName::Node(node) = &peer.name else { return None };
    Some(Command::Announce(PeerEvent { node: node.clone(), generation: peer.generation, change }))
}

#[cfg(test)]
mod tests;
