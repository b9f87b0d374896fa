//! The actor that drives [`Heartbeat`]: supervises the node server and the pulse, owns the connections, carries out
//! commands.
//!
//! ```text
//! keeper
//! ├── node server (ractor_cluster)
//! │   └── sessions
//! └── pulse
//! ```

use crate::greet::Refusal;
use crate::heartbeat::{Command, ConnectionId, Event, Heartbeat};
use crate::peer::{LostReason, Peer, PeerChange, PeerEvent, PeerTable};
use crate::pulse::{Beat, Pulse, PulseMessage};
use crate::transport::{BoxStream, Labelled, connection_of};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use ractor_cluster::node::{NodeConnectionMode, NodeServerSessionInformation};
use ractor_cluster::{NodeEventSubscription, NodeServer, NodeServerMessage, NodeSessionMessage};
use rudder_topology::Nanos;
use socket2::Socket;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// No control message comes near this; a larger frame ends the session before anything is allocated.
const FRAME_BYTES_MAX: u64 = 4 << 20;

/// ractor asks both ends for the same word. It protects nothing (it can be passed without knowing it), so it is no
/// secret: sessions come through this crate's own handshake or are killed.
const COOKIE: &str = "rudder";

/// What whoever brought a connection hears of it; the channel ends with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Ready,
}

pub(crate) struct Offer {
    pub(crate) connection: ConnectionId,
    pub(crate) stream: BoxStream,
    pub(crate) socket: Socket,
    pub(crate) is_server: bool,
    pub(crate) progress: Option<mpsc::UnboundedSender<Progress>>,
}

#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum KeeperMessage {
    /// May this peer come in?
    Admit {
        peer: Peer,
        reply: RpcReplyPort<Result<ConnectionId, Refusal>>,
    },
    Offer(Offer),
    Event(Event),
    /// ractor made a session of an opened connection.
    SessionOpened(ConnectionId, ActorRef<NodeSessionMessage>),
    /// ractor's session has synchronised, under this name.
    SessionReady(ConnectionId, Option<String>),
    Subscribe(mpsc::UnboundedSender<PeerEvent>),
    /// Answered when all connections have been told to end.
    Stop(RpcReplyPort<()>),
}

/// What the keeper is made with.
pub(crate) struct Keeper {
    pub(crate) me: Peer,
    pub(crate) timeout: Nanos,
    pub(crate) table: watch::Sender<PeerTable>,
}

struct Live {
    peer: Peer,
    /// Taken when it is given to ractor.
    stream: Option<(BoxStream, bool)>,
    socket: Option<Socket>,
    session: Option<ActorRef<NodeSessionMessage>>,
    progress: Option<mpsc::UnboundedSender<Progress>>,
}

pub(crate) struct KeeperState {
    machine: Heartbeat,
    server: ActorRef<NodeServerMessage>,
    pulse: ActorRef<PulseMessage>,
    live: HashMap<ConnectionId, Live>,
    subscribers: Vec<mpsc::UnboundedSender<PeerEvent>>,
    started: Instant,
}

impl KeeperState {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Actor for Keeper {
    type Msg = KeeperMessage;
    type State = KeeperState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<KeeperMessage>,
        (): (),
    ) -> Result<KeeperState, ActorProcessingErr> {
        // The host part distinguishes processes; see `Peer::session_name`.
        let server = NodeServer::new(
            0,
            COOKIE.to_owned(),
            self.me.name.to_string(),
            self.me.to_string(),
            None,
            Some(NodeConnectionMode::Isolated),
        )
        .with_listen_addr(IpAddr::V4(Ipv4Addr::LOCALHOST))
        .with_max_inbound_frame_size(FRAME_BYTES_MAX);
        let (server, _) = Actor::spawn_linked(None, server, (), myself.get_cell()).await?;
        let subscription = Box::new(Sessions { keeper: myself.clone() });
        server.cast(NodeServerMessage::SubscribeToEvents { id: "rudder".to_owned(), subscription })?;
        let pulse = Pulse { keeper: myself.clone(), group: self.me.pulse_group() };
        let (pulse, _) = Actor::spawn_linked(None, pulse, (), myself.get_cell()).await?;
        myself.cast(KeeperMessage::Event(Event::Wake))?;
        Ok(KeeperState {
            machine: Heartbeat::new(self.timeout),
            server,
            pulse,
            live: HashMap::new(),
            subscribers: Vec::new(),
            started: Instant::now(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<KeeperMessage>,
        message: KeeperMessage,
        state: &mut KeeperState,
    ) -> Result<(), ActorProcessingErr> {
        let now = state.now();
        let commands = match message {
            KeeperMessage::Admit { peer, reply } => match state.machine.admit(&peer, now) {
                Ok((id, commands)) => {
                    let live = Live { peer, stream: None, socket: None, session: None, progress: None };
                    state.live.insert(id, live);
                    // Whoever asked and went away leaves a reservation, which expires.
                    let _ = reply.send(Ok(id));
                    commands
                }
                Err(error) => {
                    let _ = reply.send(Err(error.into()));
                    Vec::new()
                }
            },
            KeeperMessage::Offer(offer) => {
                let id = offer.connection;
                // An offer for a forgotten connection is dropped with its socket.
                if let Some(live) = state.live.get_mut(&id) {
                    live.stream = Some((offer.stream, offer.is_server));
                    live.socket = Some(offer.socket);
                    live.progress = offer.progress;
                }
                state.machine.on(&Event::Offered(id), now)
            }
            KeeperMessage::Event(event) => state.machine.on(&event, now),
            KeeperMessage::SessionOpened(id, session) => {
                match state.live.get_mut(&id) {
                    Some(live) => live.session = Some(session),
                    None => session.kill(),
                }
                Vec::new()
            }
            KeeperMessage::SessionReady(id, name) => {
                let expected = state.live.get(&id).map(|live| live.peer.session_name());
                let event = if expected == name { Event::Ready(id) } else { Event::Misnamed(id) };
                state.machine.on(&event, now)
            }
            KeeperMessage::Subscribe(subscriber) => {
                for (node, &generation) in self.table.borrow().iter() {
                    let event = PeerEvent { node: node.clone(), generation, change: PeerChange::Up };
                    // A receiver that is gone is noticed at the next event.
                    let _ = subscriber.send(event);
                }
                state.subscribers.push(subscriber);
                Vec::new()
            }
            KeeperMessage::Stop(reply) => {
                let commands = state.machine.on(&Event::Stop, now);
                self.execute(&myself, commands, state)?;
                let _ = reply.send(());
                Vec::new()
            }
        };
        self.execute(&myself, commands, state)
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<KeeperMessage>,
        event: SupervisionEvent,
        _state: &mut KeeperState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(_, error) => Err(error),
            SupervisionEvent::ActorTerminated(_, _, reason) => {
                Err(format!("the node server or the pulse stopped: {}", reason.unwrap_or_default()).into())
            }
            _ => Ok(()),
        }
    }
}

impl Keeper {
    fn execute(
        &self,
        myself: &ActorRef<KeeperMessage>,
        commands: Vec<Command>,
        state: &mut KeeperState,
    ) -> Result<(), ActorProcessingErr> {
        for command in commands {
            match command {
                Command::Open(id) => open(id, state)?,
                Command::Close(id, reason) => close(id, reason, state),
                Command::Forget(id) => {
                    if let Some(session) = state.live.remove(&id).and_then(|live| live.session) {
                        session.kill();
                    }
                }
                Command::Beat(peer) => self.beat(&peer, state),
                Command::Announce(event) => self.announce(event, state),
                Command::WakeAt(at) => {
                    let wait = Duration::from_nanos(at.0.saturating_sub(state.now().0));
                    drop(myself.send_after(wait, || KeeperMessage::Event(Event::Wake)));
                }
            }
        }
        Ok(())
    }

    fn beat(&self, peer: &Peer, state: &KeeperState) {
        for cell in ractor::pg::get_members(&peer.pulse_group()) {
            if cell.get_id() != state.pulse.get_id() {
                let pulse = ActorRef::<PulseMessage>::from(cell);
                // A session that is ending refuses; its end is an event of its own.
                let _ = pulse.cast(PulseMessage::Beat(Beat::of(&self.me)));
            }
        }
    }

    fn announce(&self, event: PeerEvent, state: &mut KeeperState) {
        match event.change {
            PeerChange::Up => {
                tracing::info!(peer = %event.node, generation = event.generation.0, "peer up");
                self.table.send_modify(|table| {
                    table.insert(event.node.clone(), event.generation);
                });
                let ready = state.live.values().filter(|live| live.peer.name.as_str() == event.node.as_str());
                for progress in ready.filter_map(|live| live.progress.as_ref()) {
                    let _ = progress.send(Progress::Ready);
                }
            }
            PeerChange::Lost(reason) => {
                tracing::warn!(peer = %event.node, generation = event.generation.0, %reason, "peer lost");
                self.table.send_modify(|table| {
                    table.remove(&event.node);
                });
            }
        }
        state.subscribers.retain(|subscriber| subscriber.send(event.clone()).is_ok());
    }
}

fn open(id: ConnectionId, state: &mut KeeperState) -> Result<(), ActorProcessingErr> {
    let Some((stream, is_server)) = state.live.get_mut(&id).and_then(|live| live.stream.take()) else {
        return Ok(());
    };
    let stream = Box::new(Labelled { connection: id, stream });
    Ok(state.server.cast(NodeServerMessage::ConnectionOpenedExternal { stream, is_server })?)
}

fn close(id: ConnectionId, reason: LostReason, state: &mut KeeperState) {
    let Some(live) = state.live.get_mut(&id) else { return };
    tracing::debug!(peer = %live.peer, %reason, "closing a connection");
    live.stream = None;
    if let Some(socket) = live.socket.take() {
        // Fails where the peer has closed already, which is as good.
        let _ = socket.shutdown(Shutdown::Both);
    }
    if let Some(session) = &live.session {
        session.stop(Some(reason.to_string()));
    }
}

/// ractor's node events, as messages to the keeper. Runs within the node server, before it handles any word of a new
/// session: a session that did not come through this crate (the node server's own listener accepts anybody on
/// loopback) is killed before it can authenticate.
struct Sessions {
    keeper: ActorRef<KeeperMessage>,
}

impl Sessions {
    fn tell(&self, message: KeeperMessage) {
        // The keeper outlives the node server, its child, but for the moment of its own end.
        let _ = self.keeper.cast(message);
    }
}

impl NodeEventSubscription for Sessions {
    fn node_session_opened(&self, session: NodeServerSessionInformation) {
        match connection_of(&session.peer_addr) {
            Some(id) => self.tell(KeeperMessage::SessionOpened(id, session.actor)),
            None => {
                tracing::warn!(from = session.peer_addr, "killed a session that did not say hello");
                session.actor.kill();
            }
        }
    }

    fn node_session_disconnected(&self, session: NodeServerSessionInformation) {
        if let Some(id) = connection_of(&session.peer_addr) {
            self.tell(KeeperMessage::Event(Event::Closed(id)));
        }
    }

    fn node_session_authenticated(&self, _session: NodeServerSessionInformation) {}

    fn node_session_ready(&self, session: NodeServerSessionInformation) {
        if let Some(id) = connection_of(&session.peer_addr) {
            self.tell(KeeperMessage::SessionReady(id, session.peer_name.map(|name| name.name)));
        }
    }
}
