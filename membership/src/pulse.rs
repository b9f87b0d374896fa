//! Heartbeats on the wire: an actor that other processes can reach, and its one message.

use crate::heartbeat::Event;
use crate::keeper::KeeperMessage;
use crate::peer::Peer;
use ractor::message::{BoxedDowncastErr, Message, SerializedMessage};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use rudder_client::identity::PeerName;
use rudder_messages::codec::{self, DecodeError};
use rudder_topology::Generation;
use serde::{Deserialize, Serialize};

const BEAT: &str = "beat";

/// Says that its sender is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beat {
    name: String,
    generation: Generation,
}

impl Beat {
    pub(crate) fn of(peer: &Peer) -> Beat {
        Beat { name: peer.name.to_string(), generation: peer.generation }
    }
}

/// What the pulse actor hears. Decoded explicitly: bytes that are no beat become `Malformed`, never a panic.
#[derive(Debug)]
pub(crate) enum PulseMessage {
    Beat(Beat),
    Malformed(DecodeError),
}

impl Message for PulseMessage {
    fn serializable() -> bool {
        true
    }

    fn serialize(self) -> Result<SerializedMessage, BoxedDowncastErr> {
        let PulseMessage::Beat(beat) = self else { return Err(BoxedDowncastErr) };
        let args = codec::encode(&beat).map_err(|_| BoxedDowncastErr)?;
        Ok(SerializedMessage::Cast { variant: BEAT.to_owned(), args, metadata: None })
    }

    fn deserialize(message: SerializedMessage) -> Result<Self, BoxedDowncastErr> {
        let malformed = |what: &str| Ok(PulseMessage::Malformed(DecodeError::Malformed(what.to_owned())));
        let SerializedMessage::Cast { variant, args, .. } = message else { return malformed("not a cast") };
        if variant != BEAT {
            return malformed("unknown variant");
        }
        Ok(codec::decode(&args).map_or_else(PulseMessage::Malformed, PulseMessage::Beat))
    }
}

/// Hands beats to the keeper.
pub(crate) struct Pulse {
    pub(crate) keeper: ActorRef<KeeperMessage>,
    pub(crate) group: String,
}

impl Actor for Pulse {
    type Msg = PulseMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<PulseMessage>, (): ()) -> Result<(), ActorProcessingErr> {
        ractor::pg::join(self.group.clone(), vec![myself.get_cell()]);
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<PulseMessage>,
        message: PulseMessage,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match message {
            PulseMessage::Beat(beat) => match PeerName::parse(&beat.name) {
                Ok(name) => {
                    let peer = Peer { name, generation: beat.generation };
                    self.keeper.cast(KeeperMessage::Event(Event::Beat(peer)))?;
                }
                Err(error) => tracing::debug!(%error, "a heartbeat of nobody"),
            },
            PulseMessage::Malformed(error) => tracing::debug!(%error, "a malformed heartbeat"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wire(variant: &str, args: Vec<u8>) -> PulseMessage {
        let message = SerializedMessage::Cast { variant: variant.to_owned(), args, metadata: None };
        PulseMessage::deserialize(message).expect("decoding never fails, it says Malformed")
    }

    #[test]
    fn a_beat_crosses() {
        let beat = Beat { name: "c0".to_owned(), generation: Generation(9) };
        let Ok(SerializedMessage::Cast { variant, args, .. }) = PulseMessage::Beat(beat.clone()).serialize()
        else {
            panic!("a beat is a cast");
        };
        assert!(matches!(wire(&variant, args.clone()), PulseMessage::Beat(found) if found == beat));
        assert!(matches!(wire("other", args.clone()), PulseMessage::Malformed(_)));
        for end in 0..args.len() {
            assert!(matches!(wire(BEAT, args[..end].to_vec()), PulseMessage::Malformed(_)));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_value(args in prop::collection::vec(any::<u8>(), 0..100)) {
            wire(BEAT, args);
        }
    }
}
