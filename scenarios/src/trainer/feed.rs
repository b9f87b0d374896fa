//! What a trainer reads: sampled minibatches, announced ahead, gathered and compared with the dataset.

use crate::compile::Verify;
use crate::stop::Stop;
use crate::trainer::{Length, TrainerError, TrainerOptions};
use rudder_client::dataset::Dataset;
use rudder_client::trainer::{Client, ClientError, ConnectOptions, Interrupt, TableRows};
use rudder_graph::Split;
use rudder_graph::trace::Trace;
use rudder_graph::trace::TraceDigest;
use rudder_topology::{MinibatchId, TableId, VertexId};
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

/// The feature table that the sampler's vertices index.
const TABLE: TableId = TableId(0);
/// Between two looks at the stop flag.
const GLANCE: Duration = Duration::from_millis(250);

pub(super) fn open(options: &TrainerOptions) -> Result<Dataset, TrainerError> {
    Ok(Dataset::open(&options.dataset)?)
}

pub(super) fn trace<'d>(options: &TrainerOptions, dataset: &'d Dataset) -> Result<Trace<'d>, TrainerError> {
    let no_graph = || TrainerError::NoGraph { dataset: options.dataset.clone() };
    let graph = dataset.first_csc().ok_or_else(no_graph)?;
    let train_ids = dataset.split(Split::Train).map(<[VertexId]>::to_vec).unwrap_or_default();
    Ok(Trace::new(options.trace.clone(), graph, train_ids))
}

/// How many minibatches to train.
pub(super) fn length(options: &TrainerOptions, trace: &Trace<'_>) -> Result<u64, TrainerError> {
    if trace.epoch_minibatches() == 0 {
        return Err(TrainerError::Empty { rank: options.trace.rank.0 });
    }
    Ok(match options.length {
        Length::Minibatches(minibatches) => minibatches,
        Length::Epochs(epochs) => epochs.saturating_mul(trace.epoch_minibatches()),
    })
}

/// How far a trainer announces that uses `current`: to the end of its window, and no further than it trains.
#[must_use]
pub(crate) fn announced_until(current: MinibatchId, window: u64, length: u64) -> u64 {
    current.0.saturating_add(window).saturating_add(1).min(length)
}

pub(super) struct Feed<'d> {
    client: Client,
    dataset: &'d Dataset,
    trace: Trace<'d>,
    digest: TraceDigest,
    length: u64,
    window: u64,
    announced: u64,
    /// Rows of what is announced and not gathered yet, oldest first.
    ahead: VecDeque<Vec<u32>>,
    row_bytes: usize,
    gathered: Vec<u8>,
    options: TrainerOptions,
}

/// A gathered minibatch.
pub(super) struct Gathered {
    pub rows: Vec<u32>,
    pub gather_time: Duration,
}

impl<'d> Feed<'d> {
    pub(super) fn new(
        options: &TrainerOptions,
        socket: &Path,
        dataset: &'d Dataset,
    ) -> Result<Self, TrainerError> {
        let trace = trace(options, dataset)?;
        let length = length(options, &trace)?;
        let connect = ConnectOptions {
            job: options.job,
            rank: options.trace.rank,
            dataset: dataset.manifest().name.clone(),
            digest: dataset.manifest().digest.clone(),
            time_out: options.time_out,
            interrupt: Interrupt::default(),
        };
        let mut client = Client::connect(socket, &connect)?;
        if options.declare_sampler {
            client.declare_sampler(&options.trace, length)?;
        }
        // More than the node's credits cannot be announced; one stays for the minibatch in use.
        let credits = u64::from(client.welcome().credits).saturating_sub(1);
        Ok(Feed {
            client,
            dataset,
            trace,
            digest: TraceDigest::default(),
            length,
            window: u64::from(options.window).min(credits),
            announced: 0,
            ahead: VecDeque::new(),
            row_bytes: dataset.manifest().tables[TABLE.index()].row_bytes(),
            gathered: Vec::new(),
            options: options.clone(),
        })
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn digest(&self) -> String {
        self.digest.hex()
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Samples and announces what the window of `current` allows and the run needs.
    pub(super) fn look_ahead(&mut self, current: MinibatchId) -> Result<(), TrainerError> {
        let until = announced_until(current, self.window, self.length);
        while self.announced < until {
            let minibatch = MinibatchId(self.announced);
            let rows = self.trace.rows(minibatch).to_vec();
            self.digest.request(minibatch, TABLE, &rows);
            self.client.announce(minibatch, &[TableRows { table: TABLE, rows: &rows }])?;
            self.ahead.push_back(rows);
            self.announced += 1;
        }
        Ok(())
    }

    /// Waits for the oldest announced minibatch, gathers it into the buffer, gives it back to the node.
    pub(super) fn gather(&mut self, minibatch: MinibatchId, stop: &Stop) -> Result<Gathered, TrainerError> {
        let ready = self.ready(minibatch, stop)?;
        let start = Instant::now();
        let rows = self.ahead.pop_front().expect("announced before it is gathered");
        self.gathered.resize(rows.len() * self.row_bytes, 0);
        self.client.gather(&ready, TABLE, &mut self.gathered)?;
        let gather_time = start.elapsed();
        drop(ready);
        self.client.release(minibatch)?;
        Ok(Gathered { rows, gather_time })
    }

    fn ready(
        &mut self,
        minibatch: MinibatchId,
        stop: &Stop,
    ) -> Result<rudder_client::trainer::Ready, TrainerError> {
        let start = Instant::now();
        loop {
            let left = self.options.time_out.saturating_sub(start.elapsed());
            match self.client.ready(minibatch, left.min(GLANCE)) {
                Err(ClientError::TimeOut { .. }) if stop.is_raised() => return Err(TrainerError::Stopped),
                Err(ClientError::TimeOut { minibatch, .. }) if left <= GLANCE => {
                    return Err(ClientError::TimeOut { minibatch, waited: start.elapsed() }.into());
                }
                Err(ClientError::TimeOut { .. }) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Bytes of the buffer that differ from the dataset.
    pub(super) fn bytes_wrong(&self, rows: &[u32]) -> Result<u64, TrainerError> {
        if self.options.verify == Verify::Nothing {
            return Ok(0);
        }
        let mut wrong = 0;
        for (&row, got) in rows.iter().zip(self.gathered.chunks_exact(self.row_bytes)) {
            let want = self.dataset.row(TABLE, u64::from(row))?;
            if got != want {
                wrong += got.iter().zip(want).filter(|(got, want)| got != want).count() as u64;
            }
        }
        Ok(wrong)
    }
}
