//! The reference trainer: a process that does what a training loop does with a data layer, with a GPU's part left out.
//!
//! It samples real minibatches from the real graph, announces them a window ahead, gathers real rows into one
//! buffer, and sums a vector with its peers as gradient synchronisation would. **Where a GPU would compute it sleeps
//! to a deadline, never spins**: compute is emulated, and whoever shows its numbers says so. While it sleeps, as while
//! an asynchronous device computes, it samples and announces the minibatch at the end of the window.
//!
//! A step is: ask for the minibatch, gather it, release it | compute, meanwhile sample, announce, verify | all-reduce.
//! Waiting is the first part, and whatever sampling did not fit into the compute.
//!
//! Reading order: event, ring, feed, steps.

pub mod event;
pub(crate) mod feed;
pub mod ring;
mod steps;

use crate::compile::Verify;
use crate::stop::Stop;
use event::{Event, Finished};
use ring::{RingError, RingListener};
use rudder_client::trainer::ClientError;
use rudder_graph::trace::TraceSpec;
use rudder_topology::{Bytes, JobId};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What to train, on what, for how long.
#[derive(Clone, Debug)]
pub struct TrainerOptions {
    pub job: JobId,
    /// A dataset directory with the graph; with all features where bytes are verified.
    pub dataset: PathBuf,
    pub load: Load,
    pub trace: TraceSpec,
    /// Minibatches announced ahead of the one in use.
    pub window: u32,
    /// Whether the node is told how this trainer samples, and may sample ahead of it.
    pub declare_sampler: bool,
    pub length: Length,
    /// Emulated compute of a minibatch.
    pub compute: Duration,
    pub verify: Verify,
    pub ring: Option<RingOptions>,
    /// For each wait.
    pub time_out: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// Features come from the compute node behind this socket.
    Node(PathBuf),
    /// No features: compute and all-reduce only, which bounds what any data layer can reach.
    Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Minibatches(u64),
    Epochs(u64),
}

#[derive(Clone, Debug)]
pub struct RingOptions {
    pub bind: SocketAddr,
    pub peers: Peers,
    /// Size of the summed vector.
    pub bytes: Bytes,
}

#[derive(Clone, Debug)]
pub enum Peers {
    /// Addresses in rank order.
    Stated(Vec<SocketAddr>),
    /// One line of standard input: addresses in rank order, with commas between them.
    FromInput,
}

/// Why a trainer gave up.
#[derive(Debug, thiserror::Error)]
pub enum TrainerError {
    #[error("cannot use the dataset: {0}")]
    Dataset(#[from] rudder_client::dataset::DatasetError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error("the addresses of the ring did not arrive: {reason}")]
    Peers { reason: String },
    #[error("the all-reduce summed to {got} where {want} trainers brought one each")]
    Sum { got: f32, want: u32 },
    #[error("verifying needs all rows: {0}; give a complete dataset or leave --verify out")]
    Unverifiable(#[from] rudder_client::dataset::RowError),
    #[error("{dataset} holds no graph to sample; give a directory with it")]
    NoGraph { dataset: PathBuf },
    #[error("the trainer was told to stop")]
    Stopped,
    #[error("nothing to train on: an epoch of rank {rank} has no minibatch")]
    Empty { rank: u32 },
}

/// Where events go.
pub trait Sink {
    fn event(&mut self, event: &Event);
}

/// Trains to the end. A failure is an event as well.
pub fn run(options: &TrainerOptions, stop: &Stop, sink: &mut dyn Sink) -> Result<Finished, TrainerError> {
    let outcome = train(options, stop, sink);
    match &outcome {
        Ok(finished) => sink.event(&Event::Finished(finished.clone())),
        Err(error) => sink.event(&Event::Failed { reason: error.to_string() }),
    }
    outcome
}

fn train(options: &TrainerOptions, stop: &Stop, sink: &mut dyn Sink) -> Result<Finished, TrainerError> {
    let mut ring = match &options.ring {
        Some(ring) => {
            Some(steps::AllReduce::new(join(ring, options, sink)?, ring.bytes, options.trace.world))
        }
        None => None,
    };
    match &options.load {
        Load::Bound => {
            let Length::Minibatches(minibatches) = options.length else {
                let dataset = feed::open(options)?;
                let trace = feed::trace(options, &dataset)?;
                return steps::bound(options, feed::length(options, &trace)?, ring.as_mut(), stop, sink);
            };
            steps::bound(options, minibatches, ring.as_mut(), stop, sink)
        }
        Load::Node(socket) => {
            let dataset = feed::open(options)?;
            let mut feed = feed::Feed::new(options, socket, &dataset)?;
            steps::fed(options, &mut feed, ring.as_mut(), stop, sink)
        }
    }
}

fn join(
    ring: &RingOptions,
    options: &TrainerOptions,
    sink: &mut dyn Sink,
) -> Result<ring::Ring, TrainerError> {
    let listener = RingListener::bind(ring.bind)?;
    let peers = match &ring.peers {
        Peers::Stated(peers) => peers.clone(),
        Peers::FromInput => {
            sink.event(&Event::Listening { ring: listener.address() });
            peers_from_input()?
        }
    };
    Ok(listener.join(&peers, options.trace.rank, options.time_out)?)
}

/// Addresses in one line are at most this long.
const PEERS_BYTES_MAX: u64 = 64 << 10;

fn peers_from_input() -> Result<Vec<SocketAddr>, TrainerError> {
    use std::io::{BufRead, Read};
    let refuse = |reason: String| TrainerError::Peers { reason };
    let mut line = String::new();
    let read = std::io::stdin().lock().take(PEERS_BYTES_MAX).read_line(&mut line);
    read.map_err(|error| refuse(error.to_string()))?;
    parse_peers(line.trim()).map_err(refuse)
}

/// Reads `ADDRESS:PORT,ADDRESS:PORT,...`.
pub fn parse_peers(text: &str) -> Result<Vec<SocketAddr>, String> {
    let parse = |peer: &str| {
        peer.trim().parse().map_err(|_| format!("`{peer}` is no address such as 127.0.0.1:7100"))
    };
    text.split(',').map(parse).collect()
}

/// Nanoseconds since the Unix epoch.
fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Vec<Event>);

    impl Sink for Heard {
        fn event(&mut self, event: &Event) {
            self.0.push(event.clone());
        }
    }

    fn bound(length: Length) -> TrainerOptions {
        let rank = rudder_topology::TrainerRank(0);
        TrainerOptions {
            job: JobId(0),
            dataset: "no/such/dataset".into(),
            load: Load::Bound,
            trace: TraceSpec { seed: 1, rank, world: 1, seeds: 1, fanout: vec![1] },
            window: 1,
            declare_sampler: false,
            length,
            compute: Duration::ZERO,
            verify: Verify::Nothing,
            ring: None,
            time_out: Duration::from_secs(5),
        }
    }

    #[test]
    fn a_bound_trainer_needs_no_data_and_waits_for_none() {
        let mut heard = Heard::default();
        let finished = run(&bound(Length::Minibatches(3)), &Stop::default(), &mut heard).unwrap();
        assert_eq!(finished.minibatches, 3);
        assert!(matches!(heard.0.first(), Some(Event::Started { .. })));
        assert_eq!(heard.0.last(), Some(&Event::Finished(finished)));
        let steps: Vec<_> = heard
            .0
            .iter()
            .filter_map(|e| if let Event::Step(step) = e { Some(step) } else { None })
            .collect();
        assert_eq!(steps.iter().map(|step| step.minibatch.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(steps.iter().all(|step| step.wait_ns == 0 && step.rows == 0));
    }

    #[test]
    fn failures_are_events_too() {
        let stop = Stop::default();
        stop.raise();
        let mut heard = Heard::default();
        let stopped = run(&bound(Length::Minibatches(3)), &stop, &mut heard);
        assert!(matches!(stopped, Err(TrainerError::Stopped)));
        assert!(matches!(heard.0.last(), Some(Event::Failed { .. })));
        // Counting epochs needs the graph.
        let unknown = run(&bound(Length::Epochs(1)), &Stop::default(), &mut heard);
        assert!(matches!(unknown, Err(TrainerError::Dataset(_))));
    }

    #[test]
    fn peers_are_addresses_in_order() {
        assert_eq!(parse_peers("127.0.0.1:1, [::1]:2").unwrap().len(), 2);
        for bad in ["", "127.0.0.1", "127.0.0.1:1,", "a:1", "127.0.0.1:70000"] {
            assert!(parse_peers(bad).is_err(), "{bad}");
        }
    }
}
