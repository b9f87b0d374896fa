//! The responder's mailbox: "show me your tree". Reachable from other nodes.
//!
//! The answer travels as bytes of [`codec`], so that a malformed answer is a value for the asker, too.

use crate::codec::{self, DecodeError};
use crate::decisions::Decisions;
use crate::tree::{ACTORS_MAX, DEPTH_MAX, NodeStatus};
use ractor::RpcReplyPort;
use ractor::message::{BoxedDowncastErr, Message, SerializedMessage};

const TREE: &str = "tree";

/// What the responder is asked.
#[derive(Debug)]
pub enum ResponderMessage {
    /// Answered with an encoded [`NodeStatus`]; see [`decode_status`].
    Tree(RpcReplyPort<Vec<u8>>),
    /// Bytes from another node that are no question.
    Malformed(DecodeError),
    /// From this process only, and only with test faults enabled: panic.
    Fault,
}

/// What a reply to [`ResponderMessage::Tree`] says.
pub fn decode_status(reply: &[u8]) -> Result<NodeStatus, DecodeError> {
    let status: NodeStatus = codec::decode(reply)?;
    if status.actors.len() > ACTORS_MAX || status.actors.iter().any(|entry| entry.depth > DEPTH_MAX) {
        return Err(DecodeError::Malformed("a tree beyond its bounds".to_owned()));
    }
    Decisions::check(&status.decisions)?;
    Ok(status)
}

impl Message for ResponderMessage {
    fn serializable() -> bool {
        true
    }

    fn serialize(self) -> Result<SerializedMessage, BoxedDowncastErr> {
        match self {
            ResponderMessage::Tree(reply) => {
                let args = codec::encode(&()).map_err(|_| BoxedDowncastErr)?;
                Ok(SerializedMessage::Call { variant: TREE.to_owned(), args, reply, metadata: None })
            }
            ResponderMessage::Malformed(_) | ResponderMessage::Fault => Err(BoxedDowncastErr),
        }
    }

    fn deserialize(message: SerializedMessage) -> Result<Self, BoxedDowncastErr> {
        let SerializedMessage::Call { variant, args, reply, .. } = message else {
            return Ok(ResponderMessage::Malformed(DecodeError::Malformed("not a call".to_owned())));
        };
        if variant != TREE {
            return Ok(ResponderMessage::Malformed(DecodeError::Malformed("unknown variant".to_owned())));
        }
        Ok(match codec::decode::<()>(&args) {
            Ok(()) => ResponderMessage::Tree(reply),
            Err(error) => ResponderMessage::Malformed(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wire(variant: &str, args: Vec<u8>) -> ResponderMessage {
        let (sender, _receiver) = ractor::concurrency::oneshot();
        let message = SerializedMessage::Call {
            variant: variant.to_owned(),
            args,
            reply: sender.into(),
            metadata: None,
        };
        ResponderMessage::deserialize(message).expect("decoding never fails, it says Malformed")
    }

    #[test]
    fn the_question_crosses_nodes() {
        let (sender, _receiver) = ractor::concurrency::oneshot();
        let message = ResponderMessage::Tree(sender.into()).serialize();
        let Ok(SerializedMessage::Call { variant, args, .. }) = message else { panic!("tree is a call") };
        assert!(matches!(wire(&variant, args), ResponderMessage::Tree(_)));
    }

    #[test]
    fn faults_and_casts_from_peers_are_malformed() {
        assert!(matches!(wire("fault", vec![1]), ResponderMessage::Malformed(_)));
        let cast = SerializedMessage::Cast { variant: TREE.to_owned(), args: vec![1], metadata: None };
        assert!(matches!(ResponderMessage::deserialize(cast), Ok(ResponderMessage::Malformed(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_value(args in prop::collection::vec(any::<u8>(), 0..64), known: bool) {
            wire(if known { TREE } else { "x" }, args.clone());
            let _ = decode_status(&args);
        }
    }
}
