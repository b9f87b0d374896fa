//! The collector's mailbox: keeps the last report of every node. Reachable from other nodes.

use crate::codec::{self, DecodeError};
use crate::report::Report;
use ractor::message::{BoxedDowncastErr, Message, SerializedMessage};
use rudder_topology::Nanos;

const REPORT: &str = "report";

/// What the collector is told or asked.
#[derive(Debug)]
pub enum CollectorMessage {
    /// A node's last report.
    Report(Box<Report>),
    /// From this process only: the last reports, and when each came (since the node started).
    Last(ractor::RpcReplyPort<Vec<(Nanos, Report)>>),
    /// Bytes from another node that are no report.
    Malformed(DecodeError),
    /// From this process only, and only with test faults enabled: panic.
    Fault,
}

/// A report from another node keeps the bounds of its lists.
fn bounded(report: Box<Report>) -> Result<Box<Report>, DecodeError> {
    if report.sample.as_ref().is_some_and(|sample| !sample.is_bounded()) {
        return Err(DecodeError::Malformed("a report beyond its bounds".to_owned()));
    }
    Ok(report)
}

impl Message for CollectorMessage {
    fn serializable() -> bool {
        true
    }

    fn serialize(self) -> Result<SerializedMessage, BoxedDowncastErr> {
        match self {
            CollectorMessage::Report(report) => {
                let args = codec::encode(&report).map_err(|_| BoxedDowncastErr)?;
                Ok(SerializedMessage::Cast { variant: REPORT.to_owned(), args, metadata: None })
            }
            CollectorMessage::Last(_) | CollectorMessage::Malformed(_) | CollectorMessage::Fault => {
                Err(BoxedDowncastErr)
            }
        }
    }

    fn deserialize(message: SerializedMessage) -> Result<Self, BoxedDowncastErr> {
        let SerializedMessage::Cast { variant, args, .. } = message else {
            return Ok(CollectorMessage::Malformed(DecodeError::Malformed("not a cast".to_owned())));
        };
        if variant != REPORT {
            return Ok(CollectorMessage::Malformed(DecodeError::Malformed("unknown variant".to_owned())));
        }
        Ok(codec::decode(&args)
            .and_then(bounded)
            .map_or_else(CollectorMessage::Malformed, CollectorMessage::Report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ProcessLoad, StorageCounters};
    use proptest::prelude::*;
    use rudder_policy::advice::sample::ComputeSample;
    use rudder_topology::{Bytes, Generation, NodeName};

    fn report() -> Report {
        Report {
            node: NodeName::new("s0").unwrap(),
            generation: Generation(3),
            at: Nanos::from_secs(9),
            process: ProcessLoad { cores_used: 0.5, resident: Bytes::MIB },
            gpus: vec![],
            compute: None,
            storage: Some(StorageCounters { bytes_demand: 1, rows_relayed: 4, ..StorageCounters::default() }),
            sample: Some(ComputeSample { rows_wanted: 7, ..ComputeSample::default() }),
        }
    }

    fn wire(variant: &str, args: Vec<u8>) -> CollectorMessage {
        let message = SerializedMessage::Cast { variant: variant.to_owned(), args, metadata: None };
        CollectorMessage::deserialize(message).expect("decoding never fails, it says Malformed")
    }

    #[test]
    fn a_report_crosses_nodes() {
        let Ok(SerializedMessage::Cast { variant, args, .. }) =
            CollectorMessage::Report(Box::new(report())).serialize()
        else {
            panic!("a report is a cast");
        };
        assert!(matches!(wire(&variant, args), CollectorMessage::Report(back) if *back == report()));
    }

    #[test]
    fn a_peer_cannot_make_it_panic_or_ask() {
        for variant in ["fault", "Fault", "last", "malformed", ""] {
            let bytes = codec::encode(&report()).unwrap();
            assert!(matches!(wire(variant, bytes), CollectorMessage::Malformed(_)), "{variant}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_value(args in prop::collection::vec(any::<u8>(), 0..300), known: bool) {
            wire(if known { REPORT } else { "x" }, args);
        }

        #[test]
        fn damaged_reports_are_a_value(at in 0_usize..200, value: u8) {
            let mut bytes = codec::encode(&report()).unwrap();
            let at = at % bytes.len();
            bytes[at] = value;
            bytes.truncate(bytes.len() - at % 3);
            wire(REPORT, bytes);
        }
    }
}
