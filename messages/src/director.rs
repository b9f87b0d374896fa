//! The director's mailbox: what the advisor wants of a compute node. Reachable from other nodes.

use crate::codec::{self, DecodeError};
use ractor::message::{BoxedDowncastErr, Message, SerializedMessage};
use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::lever::{ACTIONS_MAX, TTL_S_MAX};

const ENACT: &str = "enact";
const REVERT: &str = "revert";
const ALIVE: &str = "alive";

/// What a director is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectorMessage {
    /// Put it in force, as far as it concerns this node.
    Enact(Box<Directive>),
    /// Take back what the last directive set.
    Revert,
    /// The advisor lives.
    Alive,
    /// From this process only: time passed.
    Tick,
    /// From this process only, and only with test faults enabled: panic.
    Fault,
    /// Bytes from another node that are nothing of these.
    Malformed(DecodeError),
}

/// A directive from another node is within its bounds; what each value may be, the engine checks.
fn bounded(directive: Directive) -> Result<Directive, DecodeError> {
    let fits = |ttl_s: u32| (1..=TTL_S_MAX).contains(&ttl_s);
    if directive.actions.len() > ACTIONS_MAX || !directive.actions.iter().all(|action| fits(action.ttl_s)) {
        return Err(DecodeError::Malformed("a directive beyond its bounds".to_owned()));
    }
    Ok(directive)
}

impl Message for DirectorMessage {
    fn serializable() -> bool {
        true
    }

    fn serialize(self) -> Result<SerializedMessage, BoxedDowncastErr> {
        let (variant, args) = match self {
            DirectorMessage::Enact(directive) => (ENACT, codec::encode(&directive)),
            DirectorMessage::Revert => (REVERT, codec::encode(&())),
            DirectorMessage::Alive => (ALIVE, codec::encode(&())),
            DirectorMessage::Tick | DirectorMessage::Fault | DirectorMessage::Malformed(_) => {
                return Err(BoxedDowncastErr);
            }
        };
        let args = args.map_err(|_| BoxedDowncastErr)?;
        Ok(SerializedMessage::Cast { variant: variant.to_owned(), args, metadata: None })
    }

    fn deserialize(message: SerializedMessage) -> Result<Self, BoxedDowncastErr> {
        let SerializedMessage::Cast { variant, args, .. } = message else {
            return Ok(DirectorMessage::Malformed(DecodeError::Malformed("not a cast".to_owned())));
        };
        let message = match variant.as_str() {
            ENACT => codec::decode(&args).and_then(bounded).map(|d| DirectorMessage::Enact(Box::new(d))),
            REVERT => codec::decode::<()>(&args).map(|()| DirectorMessage::Revert),
            ALIVE => codec::decode::<()>(&args).map(|()| DirectorMessage::Alive),
            _ => Err(DecodeError::Malformed("unknown variant".to_owned())),
        };
        Ok(message.unwrap_or_else(DirectorMessage::Malformed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rudder_policy::advice::directive::{Action, Change};
    use rudder_policy::parameters::Posture;
    use rudder_topology::NodeId;

    fn directive(actions: usize, ttl_s: u32) -> Directive {
        let action = Action { compute: NodeId(3), change: Change::Posture(Posture::DemandOnly), ttl_s };
        Directive { actions: vec![action; actions] }
    }

    fn wire(variant: &str, args: Vec<u8>) -> DirectorMessage {
        let message = SerializedMessage::Cast { variant: variant.to_owned(), args, metadata: None };
        DirectorMessage::deserialize(message).expect("decoding never fails, it says Malformed")
    }

    #[test]
    fn what_an_advisor_says_crosses_nodes() {
        for message in [
            DirectorMessage::Enact(Box::new(directive(2, 60))),
            DirectorMessage::Revert,
            DirectorMessage::Alive,
        ] {
            let Ok(SerializedMessage::Cast { variant, args, .. }) = message.clone().serialize() else {
                panic!("a cast");
            };
            assert_eq!(wire(&variant, args), message);
        }
        assert!(DirectorMessage::Tick.serialize().is_err() && DirectorMessage::Fault.serialize().is_err());
    }

    #[test]
    fn directives_beyond_their_bounds_are_malformed() {
        for (actions, ttl_s) in [(6, 60), (1, 0), (1, 601), (1, u32::MAX)] {
            let bytes = codec::encode(&directive(actions, ttl_s)).unwrap();
            assert!(matches!(wire(ENACT, bytes), DirectorMessage::Malformed(_)), "{actions} {ttl_s}");
        }
        assert!(matches!(wire("tick", vec![]), DirectorMessage::Malformed(_)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_value(args in prop::collection::vec(any::<u8>(), 0..200), which in 0_usize..4) {
            wire([ENACT, REVERT, ALIVE, "x"][which], args);
        }
    }
}
