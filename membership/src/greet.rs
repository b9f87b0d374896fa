//! The hello before a stream is given to ractor: name and generation both ways, inside TLS where there is any. It
//! binds the session to the certificate, and lets a stale session be closed before the new one begins.
//!
//! A frame is a length (u16, big endian) and as many bytes of [`codec`].

use crate::heartbeat::AdmitError;
use crate::peer::Peer;
use crate::transport::Duplex;
use rudder_client::identity::{PeerName, PeerNameError};
use rudder_messages::codec::{self, DecodeError, EncodeError};
use rudder_topology::{Generation, NameError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A longer frame is not a hello.
const FRAME_BYTES_MAX: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Hello {
    name: String,
    generation: Generation,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    Welcome(Hello),
    Refused(Refusal),
}

/// Why the accepting end turned a peer away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("its topology has no node of this name; give every node the same topology file")]
    UnknownNode,
    #[error("the name is not the one in the certificate")]
    WrongName,
    #[error("a younger process of the same name joined before (generation {0}); stop one of the two")]
    OldGeneration(Generation),
    #[error("too many operators are connected; try again later")]
    TooManyOperators,
    #[error("it is stopping; try again later")]
    Stopping,
}

impl From<AdmitError> for Refusal {
    fn from(error: AdmitError) -> Refusal {
        match error {
            AdmitError::OldGeneration(newest) => Refusal::OldGeneration(newest),
            AdmitError::TooManyOperators => Refusal::TooManyOperators,
            AdmitError::Stopping => Refusal::Stopping,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the handshake took longer than allowed")]
    Timeout,
    #[error("a hello of {0} bytes is too long; perhaps only one side has `keys` in its topology")]
    TooLong(usize),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Certificate(#[from] PeerNameError),
    #[error("the peer's name: {0}")]
    Name(#[from] NameError),
    #[error("`{expected}` was dialed and `{found}` answered")]
    Unexpected { expected: PeerName, found: PeerName },
    #[error("the peer refused: {0}")]
    Refused(Refusal),
    #[error("the peer was refused: {0}")]
    Refusing(Refusal),
    #[error("the membership has stopped")]
    Stopped,
}

async fn send<T: Serialize>(stream: &mut (impl Duplex + ?Sized), value: &T) -> Result<(), GreetError> {
    let body = codec::encode(value)?;
    let length = u16::try_from(body.len()).map_err(|_| GreetError::TooLong(body.len()))?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&body);
    stream.write_all(&frame).await?;
    Ok(stream.flush().await?)
}

async fn receive<T: DeserializeOwned>(stream: &mut (impl Duplex + ?Sized)) -> Result<T, GreetError> {
    let length = usize::from(stream.read_u16().await?);
    if length > FRAME_BYTES_MAX {
        return Err(GreetError::TooLong(length));
    }
    let mut body = [0; FRAME_BYTES_MAX];
    stream.read_exact(&mut body[..length]).await?;
    Ok(codec::decode(&body[..length])?)
}

impl Hello {
    fn of(peer: &Peer) -> Hello {
        Hello { name: peer.name.to_string(), generation: peer.generation }
    }

    fn peer(&self) -> Result<Peer, NameError> {
        Ok(Peer { name: PeerName::parse(&self.name)?, generation: self.generation })
    }
}

/// The dialing end: says who it is, learns who answers.
pub(crate) async fn greet(
    stream: &mut (impl Duplex + ?Sized),
    me: &Peer,
    expected: &PeerName,
) -> Result<Peer, GreetError> {
    send(stream, &Hello::of(me)).await?;
    match receive::<Answer>(stream).await? {
        Answer::Refused(refusal) => Err(GreetError::Refused(refusal)),
        Answer::Welcome(hello) => {
            let peer = hello.peer()?;
            if peer.name == *expected {
                Ok(peer)
            } else {
                Err(GreetError::Unexpected { expected: expected.clone(), found: peer.name })
            }
        }
    }
}

/// The accepting end, first half: who is it? `certified` is who the certificate names, where there is one.
pub(crate) async fn hear(
    stream: &mut (impl Duplex + ?Sized),
    certified: Option<&PeerName>,
    known: impl Fn(&PeerName) -> bool,
) -> Result<Peer, GreetError> {
    let peer = receive::<Hello>(stream).await?.peer()?;
    let refusal = if certified.is_some_and(|name| *name != peer.name) {
        Refusal::WrongName
    } else if !known(&peer.name) {
        Refusal::UnknownNode
    } else {
        return Ok(peer);
    };
    refuse(stream, refusal).await
}

/// The accepting end, second half.
pub(crate) async fn welcome(stream: &mut (impl Duplex + ?Sized), me: &Peer) -> Result<(), GreetError> {
    send(stream, &Answer::Welcome(Hello::of(me))).await
}

pub(crate) async fn refuse<T>(
    stream: &mut (impl Duplex + ?Sized),
    refusal: Refusal,
) -> Result<T, GreetError> {
    send(stream, &Answer::Refused(refusal)).await?;
    Err(GreetError::Refusing(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn peer(name: &str, generation: u64) -> Peer {
        Peer { name: PeerName::parse(name).unwrap(), generation: Generation(generation) }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn exchange(says: &str, certified: Option<&str>) -> (Result<Peer, GreetError>, Result<Peer, GreetError>) {
        let certified = certified.map(|name| PeerName::parse(name).unwrap());
        block_on(async {
            let (mut a, mut b) = tokio::io::duplex(2048);
            let dialing = async {
                let expected = PeerName::parse("s").unwrap();
                greet(&mut a, &peer(says, 7), &expected).await
            };
            let accepting = async {
                let known = |name: &PeerName| matches!(name.as_str(), "c0" | "c1" | "operator");
                let found = hear(&mut b, certified.as_ref(), known).await?;
                welcome(&mut b, &peer("s", 3)).await?;
                Ok(found)
            };
            tokio::join!(dialing, accepting)
        })
    }

    #[test]
    fn both_ends_learn_name_and_generation() {
        let (server, client) = exchange("c0", Some("c0"));
        assert_eq!((server.unwrap(), client.unwrap()), (peer("s", 3), peer("c0", 7)));
        let (server, client) = exchange("operator", None);
        assert_eq!((server.unwrap(), client.unwrap()), (peer("s", 3), peer("operator", 7)));
    }

    #[test]
    fn the_certificate_decides_and_strangers_are_refused() {
        let (dialing, accepting) = exchange("c1", Some("c0"));
        assert!(matches!(dialing, Err(GreetError::Refused(Refusal::WrongName))));
        assert!(matches!(accepting, Err(GreetError::Refusing(Refusal::WrongName))));
        let (dialing, _) = exchange("x", Some("x"));
        assert!(matches!(dialing, Err(GreetError::Refused(Refusal::UnknownNode))));
    }

    #[test]
    fn an_answer_of_another_node_is_refused() {
        block_on(async {
            let (mut a, mut b) = tokio::io::duplex(2048);
            welcome(&mut b, &peer("s1", 3)).await.unwrap();
            let answer = greet(&mut a, &peer("c0", 7), &PeerName::parse("s").unwrap()).await;
            assert!(matches!(answer, Err(GreetError::Unexpected { .. })));
        });
    }

    fn heard(bytes: &[u8]) -> Result<Peer, GreetError> {
        block_on(async {
            let (mut a, mut b) = tokio::io::duplex(bytes.len().max(2048));
            a.write_all(bytes).await.unwrap();
            a.shutdown().await.unwrap();
            hear(&mut b, None, |_| true).await
        })
    }

    #[test]
    fn truncated_and_oversized_hellos_are_errors() {
        let body = codec::encode(&Hello::of(&peer("c0", 1))).unwrap();
        let mut frame = u16::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        assert_eq!(heard(&frame).unwrap(), peer("c0", 1));
        for end in 0..frame.len() {
            assert!(heard(&frame[..end]).is_err());
        }
        assert!(matches!(heard(&[0xff, 0xff]), Err(GreetError::TooLong(65535))));
        let long = Hello { name: "x".repeat(200), generation: Generation(1) };
        let body = codec::encode(&long).unwrap();
        let mut frame = u16::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        assert!(matches!(heard(&frame), Err(GreetError::Name(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = heard(&bytes);
        }
    }
}
