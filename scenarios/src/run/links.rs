//! How processes of different nodes reach each other, and how fast.

use crate::compile::Mode;
use crate::relay::{Answer, LinkShape, Route};
use crate::run::netns::{Netns, NetnsError};
use crate::run::process::{Group, ProcessError, ProcessIndex};
use crate::stop::Stop;
use rudder_topology::{BytesPerSecond, NodeName};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why links could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{kind}: the rate of a link does not change")]
    Fixed { kind: &'static str },
    #[error("the relay refused a route: {reason}")]
    Route { reason: String },
    #[error("the relay answered `{line}`")]
    Answer { line: String },
}

/// The links of a whole scenario.
#[derive(Debug)]
pub struct Links {
    pub kind: Kind,
    pub shape: LinkShape,
}

#[derive(Debug)]
pub enum Kind {
    Netns(Netns),
    Relay,
    Plain,
}

const RELAY_PATIENCE: Duration = Duration::from_secs(5);

impl Links {
    /// The mode asked for; `auto` takes namespaces where they can be had, else the relay, and says why in a note.
    pub fn new(mode: Mode, nodes: usize, shape: LinkShape) -> Result<(Links, Option<String>), LinkError> {
        let (kind, note) = match mode {
            Mode::Netns => (Kind::Netns(Netns::new(nodes, &shape)?), None),
            Mode::Relay => (Kind::Relay, None),
            // A simulation has no links of the machine.
            Mode::Plain | Mode::Sim => (Kind::Plain, None),
            Mode::Auto => match Netns::new(nodes, &shape) {
                Ok(netns) => (Kind::Netns(netns), None),
                Err(reason) => (Kind::Relay, Some(format!("links by relay: {reason}"))),
            },
        };
        Ok((Links { kind, shape }, note))
    }

    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Netns(_) => "network namespaces with tbf",
            Kind::Relay => "relay process",
            Kind::Plain => "plain loopback, not shaped",
        }
    }

    /// Both directions of a node's link carry so much from now on.
    pub fn set_rate(&self, node: usize, rate: BytesPerSecond) -> Result<(), LinkError> {
        match &self.kind {
            Kind::Netns(netns) => Ok(netns.reshape(node, &LinkShape { rate, ..self.shape })?),
            Kind::Relay | Kind::Plain => Err(LinkError::Fixed { kind: self.name() }),
        }
    }

    /// The address that a node binds.
    #[must_use]
    pub fn address(&self, node: usize) -> IpAddr {
        match &self.kind {
            Kind::Netns(netns) => netns.address(node),
            Kind::Relay | Kind::Plain => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    #[must_use]
    pub fn namespace(&self, node: usize) -> Option<PathBuf> {
        match &self.kind {
            Kind::Netns(netns) => Some(netns.namespace(node)),
            Kind::Relay | Kind::Plain => None,
        }
    }
}

/// The links of one run: the relay, where there is one, lives as long as the run's processes.
pub struct Routes {
    relay: Option<ProcessIndex>,
}

impl Routes {
    /// Starts the relay where there is one.
    pub fn new(links: &Links, group: &mut Group, rudder: &Path, log: &Path) -> Result<Self, LinkError> {
        let relay = match links.kind {
            Kind::Relay => {
                let shape = links.shape;
                let command = [
                    rudder.to_string_lossy().into_owned(),
                    "relay".to_owned(),
                    "--rate".to_owned(),
                    shape.rate.spec_text(),
                    "--burst".to_owned(),
                    shape.burst.spec_text(),
                    "--latency".to_owned(),
                    shape.latency.spec_text(),
                ];
                Some(group.start("relay", None, &command, log)?)
            }
            Kind::Netns(_) | Kind::Plain => None,
        };
        Ok(Routes { relay })
    }

    /// What a process of `from` dials to reach `target` on `to`. No other process may be printing meanwhile.
    pub fn dial(
        &mut self,
        group: &mut Group,
        (from, to): (&NodeName, &NodeName),
        target: SocketAddr,
        stop: &Stop,
    ) -> Result<SocketAddr, LinkError> {
        let Some(relay) = self.relay.filter(|_| from != to) else { return Ok(target) };
        let route = Route { from: from.clone(), to: to.clone(), target };
        group.write_line(relay, &serde_json::to_string(&route).expect("a route has string keys"))?;
        let line = group.line_of(relay, "answer", RELAY_PATIENCE, stop)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Route { listen }) => Ok(listen),
            Ok(Answer::Refused { reason }) => Err(LinkError::Route { reason }),
            Err(_) => Err(LinkError::Answer { line: line.chars().take(200).collect() }),
        }
    }
}
