//! How a data-port connection starts, both ends, blocking and with a deadline.
//!
//! TCP, then mutual TLS 1.3; inside it the dialer says [`Hello`] and the accepter [`Welcome`] or a [`Refusal`];
//! both export one frame key per direction, leave TLS at a record boundary, and go on with tagged frames
//! ([`crate::frames`]) on the same socket. After the welcome the dialer speaks first.
//!
//! Without keys the same messages go in the clear, on loopback only, and the frame keys come from both ends' nonces:
//! they guard against mix-ups, not against enemies.

use crate::frames::FrameKey;
use crate::identity::{self, Identity, IdentityError, PeerName, PeerNameError};
use rudder_topology::{DatasetName, Generation, NodeName, PartId};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The protocol's version; ends that speak different ones refuse each other.
pub const PROTOCOL_VERSION: u32 = 1;
/// Bytes of an encoded hello at most, with its ticket.
const HELLO_BYTES_MAX: usize = 8 << 10;
/// Bytes of an encoded welcome at most: room for the numbers of all parts there can be.
const WELCOME_BYTES_MAX: usize = 256 << 10;

/// How a connection is secured.
#[derive(Clone, Debug)]
pub enum Security {
    Tls(Arc<Identity>),
    /// No keys: the name that this end claims, loopback only.
    LoopbackClear(PeerName),
}

/// Who the dialer claims to be. A certificate must say the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Credential {
    Node {
        name: NodeName,
        generation: Generation,
    },
    Operator,
    /// Reserved for clients without a certificate of their own; nobody accepts one yet.
    Ticket(Vec<u8>),
}

/// What a session may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Verbs(u8);

impl Verbs {
    pub const FETCH: Verbs = Verbs(1);
    pub const PUSH: Verbs = Verbs(2);

    #[must_use]
    pub fn and(self, other: Verbs) -> Verbs {
        Verbs(self.0 | other.0)
    }

    #[must_use]
    pub fn permits(self, verb: Verbs) -> bool {
        self.0 & verb.0 == verb.0
    }

    fn known(self) -> bool {
        self.0 & !(Verbs::FETCH.0 | Verbs::PUSH.0) == 0
    }
}

/// The dialer's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub credential: Credential,
    pub dataset: DatasetName,
    pub verbs: Verbs,
    nonce: [u8; 32],
}

impl Hello {
    #[must_use]
    pub fn new(credential: Credential, dataset: DatasetName, verbs: Verbs) -> Hello {
        Hello { protocol: PROTOCOL_VERSION, credential, dataset, verbs, nonce: [0; 32] }
    }
}

/// The accepter's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub node: NodeName,
    pub generation: Generation,
    /// Parts of the dataset that are stored here.
    pub parts: Vec<PartId>,
    /// The manifest's digest; empty where the dataset is not there yet (only a pusher is welcome then).
    pub digest: String,
    /// Payload bytes of one Fetch at most.
    pub transfer_bytes_max: u64,
}

/// Why the accepter does not go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("it speaks protocol version {spoken}")]
    Version { spoken: u32 },
    #[error("the credential is not the certificate's")]
    Credential,
    #[error("the dataset is unknown there")]
    UnknownDataset,
    #[error("the credential does not permit these verbs")]
    NotPermitted,
    #[error("it is stopping")]
    Stopping,
    #[error("it has as many connections as it takes")]
    TooManyConnections,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Welcome { welcome: Welcome, nonce: [u8; 32] },
    Refused(Refusal),
}

/// What a session covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub dataset: DatasetName,
    pub verbs: Verbs,
}

/// The other end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub name: PeerName,
    /// `None` for the operator.
    pub generation: Option<Generation>,
}

/// A session: what remains of the handshake. The socket goes with it.
#[derive(Clone, Debug)]
pub struct Session {
    pub send_key: FrameKey,
    pub recv_key: FrameKey,
    pub peer: Peer,
    pub scope: Scope,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error("cannot connect to {address}: {source}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("the peer did not finish the handshake in time")]
    TimedOut,
    #[error("the socket failed: {0}")]
    Socket(io::Error),
    #[error("the peer closed the connection")]
    Closed,
    #[error("TLS failed: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    PeerName(#[from] PeerNameError),
    #[error("without keys only loopback is served, and {0} is not")]
    NotLoopback(SocketAddr),
    #[error("`{found}` answered where `{expected}` was expected")]
    WrongPeer { expected: NodeName, found: String },
    #[error("the peer refused: {0}")]
    Refused(Refusal),
    /// This end refused, and said so.
    #[error("the peer was refused: {0}")]
    WasRefused(Refusal),
    #[error("the peer's message of {0} bytes is over the limit")]
    TooLong(usize),
    #[error("the peer's message is malformed")]
    Malformed,
    #[error("no randomness to be had")]
    Randomness,
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => HandshakeError::TimedOut,
            io::ErrorKind::UnexpectedEof => HandshakeError::Closed,
            _ => HandshakeError::Socket(error),
        }
    }
}

/// What dialing gave.
#[derive(Debug)]
pub struct Dialed {
    /// Blocking, without time-outs, no delay.
    pub stream: TcpStream,
    pub session: Session,
    pub welcome: Welcome,
}

/// Connects to the data port of `expected` and shakes hands, all within `time_max`.
pub fn dial(
    address: SocketAddr,
    expected: &NodeName,
    hello: &Hello,
    security: &Security,
    time_max: Duration,
) -> Result<Dialed, HandshakeError> {
    let deadline = Instant::now() + time_max;
    let stream = TcpStream::connect_timeout(&address, time_max)
        .map_err(|source| HandshakeError::Connect { address, source })?;
    // Small messages go back and forth: without this each waits for a delayed acknowledgement.
    stream.set_nodelay(true)?;
    let channel = match security {
        Security::Tls(identity) => {
            let name = identity::server_name(&PeerName::Node(expected.clone()))?;
            let connection = rustls::ClientConnection::new(identity.client_config()?, name)?;
            Channel::tls(&stream, deadline, connection.into())?
        }
        Security::LoopbackClear(_) => Channel::clear(&stream, deadline)?,
    };
    let (session, welcome) = greet(channel, expected, hello)?;
    finish(&stream)?;
    Ok(Dialed { stream, session, welcome })
}

fn greet(
    mut channel: Channel<'_>,
    expected: &NodeName,
    hello: &Hello,
) -> Result<(Session, Welcome), HandshakeError> {
    let own_nonce = nonce()?;
    channel.send(&Hello { nonce: own_nonce, ..hello.clone() })?;
    let (welcome, nonce) = match channel.receive(WELCOME_BYTES_MAX)? {
        Answer::Welcome { welcome, nonce } => (welcome, nonce),
        Answer::Refused(refusal) => return Err(HandshakeError::Refused(refusal)),
    };
    if welcome.node != *expected {
        return Err(HandshakeError::WrongPeer {
            expected: expected.clone(),
            found: welcome.node.to_string(),
        });
    }
    let (send_key, recv_key) = channel.keys(&own_nonce, &nonce)?;
    let session = Session {
        send_key,
        recv_key,
        peer: Peer { name: PeerName::Node(welcome.node.clone()), generation: Some(welcome.generation) },
        scope: Scope { dataset: hello.dataset.clone(), verbs: hello.verbs },
    };
    Ok((session, welcome))
}

/// Shakes hands on an accepted connection, all within `time_max`. `decide` sees who asks for what, after certificate
/// and credential were found to agree, and says what this node answers.
pub fn accept(
    stream: TcpStream,
    security: &Security,
    time_max: Duration,
    decide: impl FnOnce(&Hello, &Peer) -> Result<Welcome, Refusal>,
) -> Result<(TcpStream, Session), HandshakeError> {
    let deadline = Instant::now() + time_max;
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let channel = match security {
        Security::Tls(identity) => {
            let connection = rustls::ServerConnection::new(identity.server_config()?)?;
            Channel::tls(&stream, deadline, connection.into())?
        }
        Security::LoopbackClear(_) => Channel::clear(&stream, deadline)?,
    };
    let session = answer(channel, decide)?;
    finish(&stream)?;
    Ok((stream, session))
}

fn answer(
    mut channel: Channel<'_>,
    decide: impl FnOnce(&Hello, &Peer) -> Result<Welcome, Refusal>,
) -> Result<Session, HandshakeError> {
    let hello: Hello = channel.receive(HELLO_BYTES_MAX)?;
    let decision =
        admit(&hello, &channel).and_then(|peer| decide(&hello, &peer).map(|welcome| (peer, welcome)));
    let (peer, welcome) = match decision {
        Ok(admitted) => admitted,
        Err(refusal) => {
            channel.send(&Answer::Refused(refusal.clone()))?;
            return Err(HandshakeError::WasRefused(refusal));
        }
    };
    let own_nonce = nonce()?;
    channel.send(&Answer::Welcome { welcome, nonce: own_nonce })?;
    let (recv_key, send_key) = channel.keys(&hello.nonce, &own_nonce)?;
    Ok(Session { send_key, recv_key, peer, scope: Scope { dataset: hello.dataset, verbs: hello.verbs } })
}

/// Version, credential and verbs: what holds on every node.
fn admit(hello: &Hello, channel: &Channel<'_>) -> Result<Peer, Refusal> {
    if hello.protocol != PROTOCOL_VERSION {
        return Err(Refusal::Version { spoken: PROTOCOL_VERSION });
    }
    let (name, generation) = match &hello.credential {
        Credential::Node { name, generation } => (PeerName::Node(name.clone()), Some(*generation)),
        Credential::Operator => (PeerName::Operator, None),
        Credential::Ticket(_) => return Err(Refusal::NotPermitted),
    };
    if channel.certified().is_some_and(|certified| certified != Ok(name.clone())) {
        return Err(Refusal::Credential);
    }
    let pushes = hello.verbs.permits(Verbs::PUSH);
    if !hello.verbs.known() || (pushes && name != PeerName::Operator) {
        return Err(Refusal::NotPermitted);
    }
    Ok(Peer { name, generation })
}

fn nonce() -> Result<[u8; 32], HandshakeError> {
    let mut nonce = [0; 32];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    random.fill(&mut nonce).map_err(|_| HandshakeError::Randomness)?;
    Ok(nonce)
}

fn finish(stream: &TcpStream) -> Result<(), HandshakeError> {
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(())
}

/// A socket on which every read and write ends at the deadline.
struct Timed<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hands TLS one record at a time, so that nothing after the last record of the handshake is taken from the socket.
struct Records<'a> {
    socket: Timed<'a>,
    header: [u8; 5],
    header_have: usize,
    body_left: usize,
}

impl Read for Records<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = if self.body_left > 0 { self.body_left } else { self.header.len() - self.header_have };
        let wanted = wanted.min(buffer.len());
        let got = self.socket.read(&mut buffer[..wanted])?;
        if self.body_left > 0 {
            self.body_left -= got;
            return Ok(got);
        }
        self.header[self.header_have..self.header_have + got].copy_from_slice(&buffer[..got]);
        self.header_have += got;
        if self.header_have == self.header.len() {
            self.header_have = 0;
            self.body_left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
        }
        Ok(got)
    }
}

enum Channel<'a> {
    Clear(Timed<'a>),
    Tls { connection: Box<rustls::Connection>, records: Records<'a> },
}

impl<'a> Channel<'a> {
    fn clear(stream: &'a TcpStream, deadline: Instant) -> Result<Self, HandshakeError> {
        for address in [stream.local_addr()?, stream.peer_addr()?] {
            if !address.ip().to_canonical().is_loopback() {
                return Err(HandshakeError::NotLoopback(address));
            }
        }
        Ok(Channel::Clear(Timed { stream, deadline }))
    }

    fn tls(
        stream: &'a TcpStream,
        deadline: Instant,
        connection: rustls::Connection,
    ) -> Result<Self, HandshakeError> {
        let mut connection = Box::new(connection);
        let socket = Timed { stream, deadline };
        let mut records = Records { socket, header: [0; 5], header_have: 0, body_left: 0 };
        while connection.is_handshaking() {
            write_records(&mut connection, &mut records.socket)?;
            if connection.is_handshaking() {
                read_record(&mut connection, &mut records)?;
            }
        }
        write_records(&mut connection, &mut records.socket)?;
        Ok(Channel::Tls { connection, records })
    }

    /// Who the peer's certificate names; `None` in the clear.
    fn certified(&self) -> Option<Result<PeerName, PeerNameError>> {
        match self {
            Channel::Clear(_) => None,
            Channel::Tls { connection, .. } => {
                Some(identity::peer_name(connection.peer_certificates().unwrap_or_default()))
            }
        }
    }

    fn send<T: Serialize>(&mut self, message: &T) -> Result<(), HandshakeError> {
        let body = bincode::serde::encode_to_vec(message, bincode::config::standard())
            .map_err(|_| HandshakeError::Malformed)?;
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&body);
        match self {
            Channel::Clear(socket) => socket.write_all(&bytes)?,
            Channel::Tls { connection, records } => {
                connection.writer().write_all(&bytes)?;
                write_records(connection, &mut records.socket)?;
            }
        }
        Ok(())
    }

    fn receive<T: serde::de::DeserializeOwned>(&mut self, bytes_max: usize) -> Result<T, HandshakeError> {
        let mut length = [0; 4];
        self.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > bytes_max {
            return Err(HandshakeError::TooLong(length));
        }
        let mut body = vec![0; length];
        self.read_exact(&mut body)?;
        let config = bincode::config::standard().with_limit::<WELCOME_BYTES_MAX>();
        match bincode::serde::decode_from_slice(&body, config) {
            Ok((message, used)) if used == body.len() => Ok(message),
            _ => Err(HandshakeError::Malformed),
        }
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), HandshakeError> {
        let (connection, records) = match self {
            Channel::Clear(socket) => return Ok(socket.read_exact(buffer)?),
            Channel::Tls { connection, records } => (connection, records),
        };
        let mut have = 0;
        while have < buffer.len() {
            match connection.reader().read(&mut buffer[have..]) {
                Ok(0) => return Err(HandshakeError::Closed),
                Ok(got) => have += got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => read_record(connection, records)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The keys for frames from dialer to accepter, and back. Ends TLS.
    fn keys(
        self,
        dialer_nonce: &[u8; 32],
        accepter_nonce: &[u8; 32],
    ) -> Result<(FrameKey, FrameKey), HandshakeError> {
        let contexts = ["dialer to accepter", "accepter to dialer"];
        let [forth, back] = match self {
            Channel::Clear(_) => {
                let nonces = [dialer_nonce.as_slice(), accepter_nonce].concat();
                contexts
                    .map(|context| Ok(blake3::derive_key(&format!("rudder data port, {context}"), &nonces)))
            }
            Channel::Tls { mut connection, records } => {
                // Anything that is left would be bytes of the peer that nobody reads.
                let unread = connection.process_new_packets()?.plaintext_bytes_to_read();
                if unread > 0 || records.body_left > 0 || records.header_have > 0 {
                    return Err(HandshakeError::Malformed);
                }
                contexts.map(|context| {
                    let label = b"EXPORTER-rudder-data-port";
                    connection.export_keying_material([0; 32], label, Some(context.as_bytes()))
                })
            }
        };
        Ok((FrameKey::new(forth?), FrameKey::new(back?)))
    }
}

fn write_records(connection: &mut rustls::Connection, socket: &mut Timed<'_>) -> Result<(), HandshakeError> {
    while connection.wants_write() {
        connection.write_tls(socket)?;
    }
    Ok(())
}

/// Reads until TLS has something new to work on, and lets it.
fn read_record(connection: &mut rustls::Connection, records: &mut Records<'_>) -> Result<(), HandshakeError> {
    loop {
        if connection.read_tls(records)? == 0 {
            return Err(HandshakeError::Closed);
        }
        if records.body_left == 0 && records.header_have == 0 {
            break;
        }
    }
    if let Err(error) = connection.process_new_packets() {
        // The alert tells an honest peer why; whether it arrives changes nothing here.
        let _ = write_records(connection, &mut records.socket);
        return Err(error.into());
    }
    Ok(())
}
