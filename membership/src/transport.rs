//! Sockets and streams below the sessions: options, TLS, and the label by which a ractor session is recognised.

use crate::heartbeat::ConnectionId;
use ractor_cluster::{BoxRead, BoxWrite, ClusterBidiStream};
use rudder_client::identity::{Identity, IdentityError, PeerName, PeerNameError, peer_name};
use socket2::{SockRef, Socket, TcpKeepalive};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// A connected stream, in the clear or not.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Duplex for S {}
pub(crate) type BoxStream = Box<dyn Duplex>;

/// Both ends of mutual TLS.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) connector: TlsConnector,
}

impl Tls {
    pub(crate) fn new(identity: &Identity) -> Result<Tls, IdentityError> {
        Ok(Tls {
            acceptor: TlsAcceptor::from(identity.server_config()?),
            connector: TlsConnector::from(identity.client_config()?),
        })
    }
}

/// Who the certificate of the other end names.
pub(crate) fn certified_name(stream: &TlsStream<TcpStream>) -> Result<PeerName, PeerNameError> {
    let (_, session) = stream.get_ref();
    peer_name(session.peer_certificates().unwrap_or_default())
}

/// Sets the options of a control connection and returns a second handle, with which it can be shut whatever its
/// session is doing. Unacknowledged bytes end the connection after `silence` twice over.
pub(crate) fn prepare(tcp: &TcpStream, silence: Duration) -> io::Result<Socket> {
    tcp.set_nodelay(true)?;
    let socket = SockRef::from(tcp);
    socket.set_tcp_user_timeout(Some(silence * 2))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(silence.max(Duration::from_secs(1)) * 2))?;
    socket.try_clone()
}

const LABEL: &str = "rudder:";

/// A stream on its way to ractor, labelled with its connection.
pub(crate) struct Labelled {
    pub(crate) connection: ConnectionId,
    pub(crate) stream: BoxStream,
}

impl ClusterBidiStream for Labelled {
    fn split(self: Box<Self>) -> (BoxRead, BoxWrite) {
        let (read, write) = tokio::io::split(self.stream);
        (Box::new(read), Box::new(write))
    }

    fn peer_label(&self) -> Option<String> {
        Some(format!("{LABEL}{}", self.connection.0))
    }
}

/// The connection of a session, `None` for sessions that did not come through this crate.
pub(crate) fn connection_of(label: &str) -> Option<ConnectionId> {
    label.strip_prefix(LABEL)?.parse().ok().map(ConnectionId)
}
