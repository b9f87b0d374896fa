//! How fast this machine reads blocks through a backend: the storage mover's own reads, checksums included, without a
//! network. For benchmarks.

use crate::backend::{BackendChoice, Io, MoverThread, StartError, ThreadMain};
use crate::block_files::{BlockFiles, ReadMode};
use crate::reader::DirectReader;
use crate::storage::Counters;
use rudder_client::frames::FailReason;
use rudder_graph::BlockRows;
use rudder_topology::{Bytes, Cores};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What was read, and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct ReadRate {
    pub bytes: Bytes,
    pub requests: u64,
    pub elapsed: Duration,
}

/// Why a probe gave no figure.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("a request failed: {0}")]
    Read(FailReason),
    #[error("only direct reads are probed")]
    NotDirect,
    #[error("the thread ended early")]
    Ended,
}

/// Reads `requests`, `depth` of them at a time, for at most `time_max`.
pub fn direct_reads(
    files: BlockFiles,
    backend: BackendChoice,
    cores: &Cores,
    requests: Vec<Vec<BlockRows>>,
    depth: usize,
    time_max: Duration,
) -> Result<ReadRate, ProbeError> {
    if files.mode() != ReadMode::Direct {
        return Err(ProbeError::NotDirect);
    }
    let (answer, answered) = mpsc::channel();
    let probe = Probe { files, requests, depth, time_max, answer };
    let thread = MoverThread::start("probe", backend, cores, probe)?;
    let rate = answered.recv().map_err(|_| ProbeError::Ended)?;
    // It has said all it had to say.
    let _ = thread.join_within(Duration::from_secs(10));
    rate
}

struct Probe {
    files: BlockFiles,
    requests: Vec<Vec<BlockRows>>,
    depth: usize,
    time_max: Duration,
    answer: mpsc::Sender<Result<ReadRate, ProbeError>>,
}

impl ThreadMain for Probe {
    async fn run<I: Io>(self, io: I) {
        let Probe { files, requests, depth, time_max, answer } = self;
        let reader = match DirectReader::new(Rc::new(files), io, Arc::new(Counters::default())) {
            Ok(reader) => Rc::new(reader),
            // The receiver learns of it by the closed channel.
            Err(_) => return,
        };
        let waiting = Rc::new(RefCell::new(requests));
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..depth {
            tasks.spawn_local(read_some(reader.clone(), waiting.clone(), start + time_max));
        }
        let mut total = Ok((0, 0));
        while let Some(ended) = tasks.join_next().await {
            let part = ended.unwrap_or(Err(FailReason::ReadFailed));
            total = total.and_then(|(bytes, count)| part.map(|(b, c)| (bytes + b, count + c)));
        }
        let rate = total.map(|(bytes, requests)| ReadRate {
            bytes: Bytes(bytes),
            requests,
            elapsed: start.elapsed(),
        });
        let _ = answer.send(rate.map_err(ProbeError::Read));
    }
}

async fn read_some<I: Io>(
    reader: Rc<DirectReader<I>>,
    waiting: Rc<RefCell<Vec<Vec<BlockRows>>>>,
    until: Instant,
) -> Result<(u64, u64), FailReason> {
    let (mut bytes, mut requests) = (0, 0);
    let mut out = Vec::new();
    while Instant::now() < until {
        let Some(items) = waiting.borrow_mut().pop() else { break };
        out.resize(reader.bytes(&items), 0);
        out = reader.clone().read(items, out, 0).await.map_err(|(_, reason)| reason)?;
        bytes += out.len() as u64;
        requests += 1;
    }
    Ok((bytes, requests))
}
