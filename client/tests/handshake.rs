//! Both ends of the data port's handshake over loopback sockets, with friends, strangers and noise.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rudder_client::frame_stream::FrameStream;
use rudder_client::frames::Frame;
use rudder_client::handshake::{
    Credential, Dialed, HandshakeError, Hello, Peer, Refusal, Security, Session, Verbs, Welcome, accept, dial,
};
use rudder_client::identity::{Identity, IdentityError, PeerName};
use rudder_topology::{DatasetName, Generation, NodeName, PartId};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    fn certificate(&self, names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).expect("names");
        (params.signed_by(&key, &self.issuer).expect("a certificate").pem(), key.serialize_pem())
    }

    fn identity(&self, name: &str) -> Security {
        let (certificate, key) = self.certificate(&[name]);
        let name = PeerName::parse(name).expect("a name");
        let identity = Identity::from_pem(&name, self.pem.as_bytes(), certificate.as_bytes(), key.as_bytes());
        Security::Tls(Arc::new(identity.expect("an identity")))
    }
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).expect("a name")
}

fn as_node(name: &str) -> Credential {
    Credential::Node { name: node(name), generation: Generation(5) }
}

fn hello(credential: Credential, verbs: Verbs) -> Hello {
    Hello::new(credential, DatasetName::new("cora").expect("a name"), verbs)
}

fn welcome(hello: &Hello, _: &Peer) -> Result<Welcome, Refusal> {
    if hello.dataset.as_str() != "cora" {
        return Err(Refusal::UnknownDataset);
    }
    Ok(Welcome {
        node: node("s0"),
        generation: Generation(9),
        parts: vec![PartId(0), PartId(3)],
        digest: "d".repeat(64),
        transfer_bytes_max: 65536,
    })
}

type Accepted = Result<(TcpStream, Session), HandshakeError>;

/// Accepts one connection as `security` says.
fn accept_one(security: Security, time_max: Duration) -> (SocketAddr, JoinHandle<Accepted>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let accepting = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        accept(stream, &security, time_max, welcome)
    });
    (address, accepting)
}

fn both(
    server: Security,
    client: &Security,
    expected: &str,
    hello: &Hello,
) -> (Result<Dialed, HandshakeError>, Accepted) {
    let (address, accepting) = accept_one(server, PATIENCE);
    let dialed = dial(address, &node(expected), hello, client, PATIENCE);
    (dialed, accepting.join().expect("no panic"))
}

/// Frames go both ways with the keys that both ends have.
fn exchange(dialed: Dialed, accepted: (TcpStream, Session)) {
    let mut here = FrameStream::new(dialed.stream, &dialed.session);
    let mut there = FrameStream::new(accepted.0, &accepted.1);
    here.send(&Frame::Ping, &[]).expect("sent");
    assert_eq!(there.receive().expect("received").0, Frame::Ping);
    there.send(&Frame::Pong, &[]).expect("sent");
    assert_eq!(here.receive().expect("received").0, Frame::Pong);
}

fn clear(name: &str) -> Security {
    Security::LoopbackClear(PeerName::parse(name).expect("a name"))
}

#[test]
fn a_node_of_the_cluster_gets_a_session() {
    let authority = Authority::new();
    for (server, client) in [(authority.identity("s0"), authority.identity("c0")), (clear("s0"), clear("c0"))]
    {
        let (dialed, accepted) = both(server, &client, "s0", &hello(as_node("c0"), Verbs::FETCH));
        let (dialed, accepted) = (dialed.expect("dialed"), accepted.expect("accepted"));
        assert_eq!(dialed.welcome.parts, [PartId(0), PartId(3)]);
        assert_eq!(
            dialed.session.peer,
            Peer { name: PeerName::Node(node("s0")), generation: Some(Generation(9)) }
        );
        assert_eq!(
            accepted.1.peer,
            Peer { name: PeerName::Node(node("c0")), generation: Some(Generation(5)) }
        );
        assert_eq!(accepted.1.scope.dataset.as_str(), "cora");
        assert_ne!(dialed.session.send_key, dialed.session.recv_key);
        assert_eq!(dialed.session.send_key, accepted.1.recv_key);
        exchange(dialed, accepted);
    }
}

#[test]
fn only_the_operator_pushes() {
    let authority = Authority::new();
    let operator = authority.identity("operator");
    let pushes = hello(Credential::Operator, Verbs::PUSH);
    let (dialed, accepted) = both(authority.identity("s0"), &operator, "s0", &pushes);
    exchange(dialed.expect("dialed"), accepted.expect("accepted"));
    let as_c0 = hello(as_node("c0"), Verbs::PUSH.and(Verbs::FETCH));
    let (dialed, accepted) = both(authority.identity("s0"), &authority.identity("c0"), "s0", &as_c0);
    assert!(matches!(dialed, Err(HandshakeError::Refused(Refusal::NotPermitted))), "{dialed:?}");
    assert!(matches!(accepted, Err(HandshakeError::WasRefused(Refusal::NotPermitted))), "{accepted:?}");
}

#[test]
fn a_credential_that_the_certificate_does_not_carry_is_refused() {
    let authority = Authority::new();
    for credential in [as_node("c1"), Credential::Operator] {
        let hello = hello(credential, Verbs::FETCH);
        let (dialed, accepted) = both(authority.identity("s0"), &authority.identity("c0"), "s0", &hello);
        assert!(matches!(dialed, Err(HandshakeError::Refused(Refusal::Credential))), "{dialed:?}");
        assert!(matches!(accepted, Err(HandshakeError::WasRefused(Refusal::Credential))), "{accepted:?}");
    }
    let ticket = hello(Credential::Ticket(vec![1; 100]), Verbs::FETCH);
    let (dialed, _) = both(authority.identity("s0"), &authority.identity("c0"), "s0", &ticket);
    assert!(matches!(dialed, Err(HandshakeError::Refused(Refusal::NotPermitted))), "{dialed:?}");
}

#[test]
fn strangers_get_nothing() {
    let (authority, other) = (Authority::new(), Authority::new());
    let hello = hello(as_node("c0"), Verbs::FETCH);
    // Another authority's certificate on the dialing end, then on the accepting end.
    let (dialed, accepted) = both(authority.identity("s0"), &other.identity("c0"), "s0", &hello);
    assert!(dialed.is_err() && matches!(accepted, Err(HandshakeError::Tls(_))), "{dialed:?} {accepted:?}");
    let (dialed, accepted) = both(other.identity("s0"), &authority.identity("c0"), "s0", &hello);
    assert!(matches!(dialed, Err(HandshakeError::Tls(_))) && accepted.is_err(), "{dialed:?} {accepted:?}");
    // A right certificate of the wrong node.
    let (dialed, accepted) = both(authority.identity("s1"), &authority.identity("c0"), "s0", &hello);
    assert!(matches!(dialed, Err(HandshakeError::Tls(_))) && accepted.is_err(), "{dialed:?} {accepted:?}");
    // One end in the clear.
    let (dialed, accepted) = both(authority.identity("s0"), &clear("c0"), "s0", &hello);
    assert!(dialed.is_err() && accepted.is_err(), "{dialed:?} {accepted:?}");
}

#[test]
fn without_a_certificate_nobody_is_heard() {
    let authority = Authority::new();
    let mut roots = rustls::RootCertStore::empty();
    for root in rustls_pki_types::pem::PemObject::pem_slice_iter(authority.pem.as_bytes()) {
        let root: rustls_pki_types::CertificateDer<'static> = root.expect("a certificate");
        roots.add(root).expect("a root");
    }
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let (address, accepting) = accept_one(authority.identity("s0"), PATIENCE);
    let name = rustls_pki_types::ServerName::try_from("s0").expect("a name");
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).expect("a connection");
    let mut stream = TcpStream::connect(address).expect("connected");
    let mut tls = rustls::Stream::new(&mut connection, &mut stream);
    let said = tls.write_all(b"hello").and_then(|()| tls.read(&mut [0; 16]));
    assert!(said.is_err(), "{said:?}");
    assert!(matches!(accepting.join().expect("no panic"), Err(HandshakeError::Tls(_))));
}

#[test]
fn versions_and_datasets_that_are_not_there_are_refused_with_their_reason() {
    let mut old = hello(as_node("c0"), Verbs::FETCH);
    old.protocol = 77;
    let (dialed, _) = both(clear("s0"), &clear("c0"), "s0", &old);
    assert!(matches!(dialed, Err(HandshakeError::Refused(Refusal::Version { .. }))), "{dialed:?}");
    let mut elsewhere = hello(as_node("c0"), Verbs::FETCH);
    elsewhere.dataset = DatasetName::new("other").expect("a name");
    let (dialed, _) = both(clear("s0"), &clear("c0"), "s0", &elsewhere);
    assert!(matches!(dialed, Err(HandshakeError::Refused(Refusal::UnknownDataset))), "{dialed:?}");
    let (dialed, _) = both(clear("s0"), &clear("c0"), "s7", &hello(as_node("c0"), Verbs::FETCH));
    assert!(matches!(dialed, Err(HandshakeError::WrongPeer { .. })), "{dialed:?}");
}

/// Says `bytes` to an accepting end, and what came of it there. The socket stays open until the end decides.
fn noise(security: Security, bytes: &[u8], time_max: Duration) -> Accepted {
    let (address, accepting) = accept_one(security, time_max);
    let mut stream = TcpStream::connect(address).expect("connected");
    // The other end may have closed before all was written: that is a refusal too.
    let _ = stream.write_all(bytes);
    accepting.join().expect("no panic")
}

#[test]
fn noise_is_refused() {
    let authority = Authority::new();
    let short = Duration::from_millis(40);
    let too_long = noise(clear("s0"), &u32::MAX.to_le_bytes(), short);
    assert!(matches!(too_long, Err(HandshakeError::TooLong(_))), "{too_long:?}");
    let mut malformed = 20_u32.to_le_bytes().to_vec();
    malformed.extend_from_slice(&[0xff; 20]);
    let malformed = noise(clear("s0"), &malformed, short);
    assert!(matches!(malformed, Err(HandshakeError::Malformed)), "{malformed:?}");
    for seed in 0..20_u8 {
        let bytes: Vec<u8> =
            (0..200_u8).map(|at| at.wrapping_mul(31).wrapping_add(seed).rotate_left(3)).collect();
        assert!(noise(clear("s0"), &bytes, short).is_err());
        assert!(noise(authority.identity("s0"), &bytes, short).is_err());
    }
}

#[test]
fn who_says_nothing_or_drips_is_dropped_in_time() {
    let authority = Authority::new();
    for security in [authority.identity("s0"), clear("s0")] {
        let silent = noise(security.clone(), &[], Duration::from_millis(50));
        assert!(matches!(silent, Err(HandshakeError::TimedOut)), "{silent:?}");
        // A byte at a time: each read succeeds, the whole does not.
        let (address, accepting) = accept_one(security, Duration::from_millis(100));
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_millis(5))).expect("a time-out");
        while !accepting.is_finished() {
            let _ = stream.write(&[22]);
            let _ = stream.read(&mut [0; 64]);
        }
        assert!(accepting.join().expect("no panic").is_err());
    }
}

#[test]
fn a_closed_connection_is_said_to_be_closed() {
    let (address, accepting) = accept_one(clear("s0"), PATIENCE);
    drop(TcpStream::connect(address).expect("connected"));
    assert!(matches!(accepting.join().expect("no panic"), Err(HandshakeError::Closed)));
}

#[test]
fn an_identity_is_what_its_files_say() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().expect("a directory");
    let write = |file: &str, text: &str| std::fs::write(directory.path().join(file), text).expect("written");
    let (certificate, key) = authority.certificate(&["c0"]);
    write("ca.pem", &authority.pem);
    write("c0.pem", &certificate);
    write("c0.key", &key);
    let name = PeerName::Node(node("c0"));
    assert_eq!(Identity::load(directory.path(), &name).expect("an identity").name(), &name);
    write("c1.pem", &certificate);
    write("c1.key", &key);
    let misnamed = Identity::load(directory.path(), &PeerName::Node(node("c1")));
    assert!(matches!(misnamed, Err(IdentityError::Name { .. })), "{misnamed:?}");
    let absent = Identity::load(directory.path(), &PeerName::Operator);
    assert!(matches!(absent, Err(IdentityError::Read { .. })), "{absent:?}");
    let two = authority.certificate(&["c0", "c1"]);
    write("c0.pem", &two.0);
    write("c0.key", &two.1);
    assert!(matches!(Identity::load(directory.path(), &name), Err(IdentityError::PeerName(_))));
    for junk in ["", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n", "\0\0"] {
        write("c0.pem", junk);
        assert!(Identity::load(directory.path(), &name).is_err(), "{junk:?}");
    }
}
