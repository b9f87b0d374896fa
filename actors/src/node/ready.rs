//! What a node says of itself when it is ready and when it has stopped.

use crate::counters::Counters;
use rudder_dataplane::{Backend, Placement};
use rudder_messages::Decisions;
use rudder_messages::report::{ComputeCounters, StorageCounters};
use rudder_topology::{Generation, NodeName};
use serde::{Serialize, Serializer};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The ready line.
#[derive(Clone, Debug, Serialize)]
pub struct Ready {
    pub node: NodeName,
    pub generation: Generation,
    pub control: SocketAddr,
    pub data: Option<SocketAddr>,
    pub trainer_socket: Option<PathBuf>,
    #[serde(serialize_with = "backend_name")]
    pub backend: Option<Backend>,
    #[serde(serialize_with = "displayed")]
    pub placement: Option<Placement>,
    pub parts: Option<Parts>,
}

/// The parts that a storage node should store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parts {
    pub present: usize,
    /// `dataset/Pn` each: wait for `rudder dataset push`.
    pub missing: Vec<String>,
}

/// What a node counted, when it has stopped. What a node has no part in is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoppedStatistics {
    #[serde(flatten)]
    pub storage: Option<StorageCounters>,
    #[serde(flatten)]
    pub compute: Option<ComputeCounters>,
    /// Of the advisor of a scheduler node and of the director of a compute node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decisions>,
}

fn backend_name<S: Serializer>(backend: &Option<Backend>, serializer: S) -> Result<S::Ok, S::Error> {
    let name = backend.as_ref().map(|backend| match backend {
        Backend::Uring { .. } => "uring",
        Backend::Pread { .. } => "pread",
    });
    name.serialize(serializer)
}

fn displayed<S: Serializer>(placement: &Option<Placement>, serializer: S) -> Result<S::Ok, S::Error> {
    placement.as_ref().map(ToString::to_string).serialize(serializer)
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ready: control {}", self.node, self.control)?;
        if let Some(data) = self.data {
            write!(f, ", data {data}")?;
        }
        if let Some(socket) = &self.trainer_socket {
            write!(f, ", trainers {}", socket.display())?;
        }
        if let Some(backend) = &self.backend {
            write!(f, ", {backend}")?;
        }
        if let Some(placement) = &self.placement {
            write!(f, ", mover {placement}")?;
        }
        if let Some(parts) = &self.parts {
            write!(f, ", {} part(s)", parts.present)?;
            if !parts.missing.is_empty() {
                write!(f, ", missing {} (bring them with `rudder dataset push`)", parts.missing.join(" "))?;
            }
        }
        Ok(())
    }
}

impl StoppedStatistics {
    #[must_use]
    pub fn of(counters: &Counters, decisions: Vec<Decisions>) -> Self {
        StoppedStatistics { storage: counters.storage(), compute: counters.compute(), decisions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rudder_dataplane::DirectReads;

    #[test]
    fn the_ready_line_names_what_is_there() {
        let ready = Ready {
            node: NodeName::new("s0").unwrap(),
            generation: Generation(7),
            control: "127.0.0.1:7000".parse().unwrap(),
            data: Some("127.0.0.1:7001".parse().unwrap()),
            trainer_socket: None,
            backend: Some(Backend::Pread { refused: None, reads: DirectReads::Threads }),
            placement: Some(Placement::Shared),
            parts: Some(Parts { present: 1, missing: vec!["cora/P1".to_owned()] }),
        };
        let text = ready.to_string();
        assert_eq!(
            text,
            "s0 ready: control 127.0.0.1:7000, data 127.0.0.1:7001, pread, direct reads by threads, \
             mover shared cores, not bound, 1 part(s), missing cora/P1 (bring them with `rudder dataset push`)"
        );
        let json = serde_json::to_value(&ready).unwrap();
        assert_eq!(json["backend"], "pread");
        assert_eq!(json["parts"]["missing"][0], "cora/P1");
        assert_eq!(json["trainer_socket"], serde_json::Value::Null);
    }

    #[test]
    fn absent_sides_leave_no_keys() {
        let storage = StorageCounters {
            bytes_demand: 1,
            bytes_prefetch: 2,
            bytes_protocol: 3,
            staged_blocks: 4,
            staged_bytes: 5,
            rows_relayed: 6,
            staged_rows_served: 7,
        };
        let statistics = StoppedStatistics { storage: Some(storage), ..StoppedStatistics::default() };
        let json = serde_json::to_string(&statistics).unwrap();
        let expected = r#"{"bytes_demand":1,"bytes_prefetch":2,"bytes_protocol":3,"staged_blocks":4,"staged_bytes":5,"rows_relayed":6,"staged_rows_served":7}"#;
        assert_eq!(json, expected);
    }
}
