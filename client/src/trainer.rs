//! A trainer's connection to the compute node on its machine: announce, ready, read in place, gather, release.
//!
//! Blocking, without threads, runtime or globals. One connection belongs to one process: after a fork the child's
//! first call opens a connection of its own. A connection that breaks is opened again within the time-out of the
//! call that noticed, and what was announced and not released is announced again.

use crate::gather::GatherError;
use crate::location::Location;
use crate::trainer_protocol::{
    self as protocol, Declared, FrameError, Hello, Refusal, ToNode, ToTrainer, Welcome, encode_announce,
    frame_length,
};
use rudder_graph::trace::TraceSpec;
use rudder_topology::{DatasetName, JobId, MinibatchId, TableId, TrainerRank};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod connection;
mod interrupt;
mod mappings;

use connection::Connection;
pub use interrupt::Interrupt;
pub use mappings::Mappings;

/// Who connects, to what, and how long it may take.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    pub job: JobId,
    pub rank: TrainerRank,
    pub dataset: DatasetName,
    /// The digest in the manifest of the trainer's copy of the dataset: a node that serves another version refuses.
    /// Empty where the trainer has no manifest; then nothing is compared.
    pub digest: String,
    /// For connecting, and for connecting again.
    pub time_out: Duration,
    /// What ends a call that waits, before its time.
    pub interrupt: Interrupt,
}

/// Rows wanted of one table, in the order in which they will be gathered.
#[derive(Clone, Copy, Debug)]
pub struct TableRows<'a> {
    pub table: TableId,
    pub rows: &'a [u32],
}

/// What went wrong, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "cannot connect to the compute node at {socket}: {source}; is `rudder-node` running on this machine?"
    )]
    Connect { socket: PathBuf, source: io::Error },
    #[error("the compute node at {socket} refused this trainer: {refusal}")]
    Refused { socket: PathBuf, refusal: Refusal },
    #[error("minibatch {minibatch}: {refusal}")]
    Failed { minibatch: MinibatchId, refusal: Refusal },
    #[error(
        "{credits} minibatches are announced and not released: release one before announcing {minibatch}"
    )]
    NoCredit { minibatch: MinibatchId, credits: u32 },
    #[error("minibatch {0} was not announced on this connection")]
    NotAnnounced(MinibatchId),
    #[error("minibatch {0} is announced already")]
    Announced(MinibatchId),
    #[error("{0} rows in one minibatch; at most {max} are possible", max = protocol::ROWS_MAX)]
    TooManyRows(usize),
    #[error("minibatch {minibatch} is not ready after {waited:?}: see `rudder tree` for which node is stuck")]
    TimeOut { minibatch: MinibatchId, waited: Duration },
    #[error("the connection to the compute node at {socket} broke: {source}")]
    Broken { socket: PathBuf, source: io::Error },
    #[error("the compute node at {socket} broke the protocol: {source}")]
    Protocol { socket: PathBuf, source: FrameError },
    #[error("a location of minibatch {0} lies outside every mapping")]
    Location(MinibatchId),
    #[error("minibatch {minibatch}: {source}")]
    Gather { minibatch: MinibatchId, source: GatherError },
    #[error("table {0} is not part of this minibatch")]
    Table(TableId),
    /// See [`ConnectOptions::interrupt`]. What was asked for may or may not have happened at the node; the connection is
    /// as good as before.
    #[error("the call was interrupted while it waited")]
    Interrupted,
}

/// A minibatch whose rows can all be read. The mappings stay valid as long as this lives, whatever the node does;
/// the rows stay unchanged until the minibatch is released.
#[derive(Clone, Debug)]
pub struct Ready {
    minibatch: MinibatchId,
    tables: Arc<[(TableId, Vec<Location>)]>,
    private: Arc<Vec<u8>>,
    mappings: Arc<Mappings>,
    row_bytes: Arc<[u32]>,
}

impl Ready {
    #[must_use]
    pub fn minibatch(&self) -> MinibatchId {
        self.minibatch
    }

    /// Where each row of the table lies, in the order of the announcement.
    pub fn locations(&self, table: TableId) -> Result<&[Location], ClientError> {
        let found = self.tables.iter().find(|(id, _)| *id == table);
        found.map(|(_, locations)| locations.as_slice()).ok_or(ClientError::Table(table))
    }

    /// The i-th announced row, in place.
    pub fn row(&self, table: TableId, i: usize) -> Result<&[u8], ClientError> {
        let bytes = self.row_bytes(table)?;
        let location = *self.locations(table)?.get(i).ok_or(ClientError::Location(self.minibatch))?;
        self.mappings.row(&self.private, location, bytes).ok_or(ClientError::Location(self.minibatch))
    }

    /// Copies every row of the table into `to`, in the order of the announcement.
    pub fn gather(&self, table: TableId, to: &mut [u8]) -> Result<(), ClientError> {
        let bytes = self.row_bytes(table)?;
        let locations = self.locations(table)?;
        self.mappings
            .gather(&self.private, locations, bytes, to)
            .map_err(|source| ClientError::Gather { minibatch: self.minibatch, source })
    }

    /// All bytes of a mapping that a location of this minibatch names, empty for an unknown one. Only the rows at its
    /// locations stay as they are until the release; what lies between them may change at any time.
    #[must_use]
    pub fn mapping(&self, mapping: u16) -> &[u8] {
        self.mappings.bytes(&self.private, mapping)
    }

    /// Whether the rows came past the cache, in pieces.
    #[must_use]
    pub fn is_private(&self) -> bool {
        !self.private.is_empty()
    }

    fn row_bytes(&self, table: TableId) -> Result<usize, ClientError> {
        self.row_bytes.get(table.index()).map(|&bytes| bytes as usize).ok_or(ClientError::Table(table))
    }
}

/// What is known of a minibatch between announce and release.
struct Outstanding {
    /// The announce frame, kept to be sent again over a new connection.
    frame: Vec<u8>,
    wanted: bool,
    pieces: Vec<u8>,
    answer: Option<Result<Ready, Refusal>>,
}

/// A trainer's connection.
pub struct Client {
    socket: PathBuf,
    options: ConnectOptions,
    connection: Connection,
    welcome: Welcome,
    row_bytes: Arc<[u32]>,
    mappings: Arc<Mappings>,
    outstanding: BTreeMap<MinibatchId, Outstanding>,
    /// Frames of released minibatches, whose memory the next announcements take.
    spare: Vec<Vec<u8>>,
    /// The next minibatch, as far as announcements tell.
    next: MinibatchId,
    /// The sampler, where the node was told.
    declared: Option<(TraceSpec, u64)>,
    statistics: Option<String>,
    pid: u32,
    /// The connection is of no use: the next call opens another.
    is_cut: bool,
}

impl Client {
    /// Connects and maps the node's cache, read-only.
    pub fn connect(socket: &Path, options: &ConnectOptions) -> Result<Self, ClientError> {
        let deadline = Instant::now() + options.time_out;
        let (connection, welcome, mappings) = open(socket, options, deadline)?;
        Ok(Client {
            socket: socket.to_owned(),
            options: options.clone(),
            connection,
            row_bytes: welcome.row_bytes.clone().into(),
            welcome,
            mappings: Arc::new(mappings),
            outstanding: BTreeMap::new(),
            spare: Vec::new(),
            next: MinibatchId(0),
            declared: None,
            statistics: None,
            pid: std::process::id(),
            is_cut: false,
        })
    }

    #[must_use]
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Announced minibatches that are not released.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Tells the node with what this trainer samples, so that it can sample ahead: from the minibatch after the last
    /// announced one (0 at first) to before `end`. The rows of table 0 must be what [`rudder_graph::Trace`] gives;
    /// where they are not, the node notices, says so in its log, and goes on without.
    pub fn declare_sampler(&mut self, spec: &TraceSpec, end: u64) -> Result<(), ClientError> {
        self.note_fork();
        self.declared = Some((spec.clone(), end));
        let declared = self.uncut().and_then(|()| self.declare(self.next, self.deadline()));
        match declared {
            Ok(()) => Ok(()),
            Err(error) => self.reopen(error, self.deadline()),
        }
    }

    fn declare(&mut self, first: MinibatchId, deadline: Instant) -> io::Result<()> {
        let Some((spec, end)) = self.declared.clone() else { return Ok(()) };
        let mut frame = vec![];
        ToNode::Declare(Declared { spec, first, end }).encode(&mut frame);
        self.connection.send(&frame, deadline)
    }

    /// Says which rows a coming minibatch needs. Ids must rise; at most `welcome().credits` may be unreleased.
    pub fn announce(&mut self, minibatch: MinibatchId, tables: &[TableRows]) -> Result<(), ClientError> {
        self.note_fork();
        let rows = tables.iter().map(|t| t.rows.len()).sum();
        if rows > protocol::ROWS_MAX {
            return Err(ClientError::TooManyRows(rows));
        }
        if self.outstanding.contains_key(&minibatch) {
            return Err(ClientError::Announced(minibatch));
        }
        if self.outstanding.len() >= self.welcome.credits as usize {
            return Err(ClientError::NoCredit { minibatch, credits: self.welcome.credits });
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        encode_announce(&mut frame, minibatch, tables.iter().map(|t| (t.table, t.rows)));
        let sent = self.uncut().and_then(|()| self.connection.send(&frame, self.deadline()));
        let entry = Outstanding { frame, wanted: false, pieces: vec![], answer: None };
        self.outstanding.insert(minibatch, entry);
        self.next = MinibatchId(minibatch.0.saturating_add(1)).max(self.next);
        let Err(error) = sent else { return Ok(()) };
        let outcome = self.reopen(error, self.deadline());
        if matches!(outcome, Err(ClientError::Interrupted)) {
            // Nobody learns of it, so nobody would release it.
            self.outstanding.remove(&minibatch);
        }
        outcome
    }

    /// The minibatch, if every row of it can be read now. Does not tell the node that the trainer waits.
    pub fn try_ready(&mut self, minibatch: MinibatchId) -> Result<Option<Ready>, ClientError> {
        self.note_fork();
        loop {
            if let Some(ready) = self.answer(minibatch)? {
                return Ok(Some(ready));
            }
            match self.uncut().and_then(|()| self.connection.receive(Instant::now())) {
                Ok(Some(message)) => self.note(message)?,
                Ok(None) => return Ok(None),
                Err(error) if is_interrupted(&error) => return Err(ClientError::Interrupted),
                Err(error) => self.reopen(error, self.deadline())?,
            }
        }
    }

    /// Tells the node that the trainer waits for this minibatch, and waits.
    pub fn ready(&mut self, minibatch: MinibatchId, time_out: Duration) -> Result<Ready, ClientError> {
        self.note_fork();
        let start = Instant::now();
        let deadline = start + time_out;
        let entry = self.outstanding.get_mut(&minibatch).ok_or(ClientError::NotAnnounced(minibatch))?;
        if !std::mem::replace(&mut entry.wanted, true) {
            let mut frame = vec![];
            ToNode::Want { minibatch }.encode(&mut frame);
            if let Err(error) = self.uncut().and_then(|()| self.connection.send(&frame, deadline)) {
                self.reopen_for(minibatch, error, start, deadline)?;
            }
        }
        loop {
            if let Some(ready) = self.answer(minibatch)? {
                return Ok(ready);
            }
            match self.uncut().and_then(|()| self.connection.receive(deadline)) {
                Ok(Some(message)) => self.note(message)?,
                Ok(None) if Instant::now() >= deadline => {
                    return Err(ClientError::TimeOut { minibatch, waited: start.elapsed() });
                }
                Ok(None) => {}
                Err(error) if is_interrupted(&error) => return Err(ClientError::Interrupted),
                Err(error) => self.reopen_for(minibatch, error, start, deadline)?,
            }
        }
    }

    /// As [`Self::reopen`], for who waits for a minibatch: a node that is not back by the deadline is a minibatch
    /// that is not ready, and the next call tries again.
    fn reopen_for(
        &mut self,
        minibatch: MinibatchId,
        error: io::Error,
        start: Instant,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        match self.reopen(error, deadline) {
            Err(ClientError::Broken { .. }) if Instant::now() >= deadline => {
                Err(ClientError::TimeOut { minibatch, waited: start.elapsed() })
            }
            outcome => outcome,
        }
    }

    /// Copies the rows of a table of a ready minibatch into `to`.
    pub fn gather(&self, ready: &Ready, table: TableId, to: &mut [u8]) -> Result<(), ClientError> {
        ready.gather(table, to)
    }

    /// Gives the minibatch's rows back. Its locations must not be read any more.
    pub fn release(&mut self, minibatch: MinibatchId) -> Result<(), ClientError> {
        self.note_fork();
        let mut frame =
            self.outstanding.remove(&minibatch).ok_or(ClientError::NotAnnounced(minibatch))?.frame;
        frame.clear();
        ToNode::Release { minibatch }.encode(&mut frame);
        let sent = self.uncut().and_then(|()| self.connection.send(&frame, self.deadline()));
        frame.clear();
        self.spare.push(frame);
        match sent {
            Ok(()) => Ok(()),
            Err(error) => self.reopen(error, self.deadline()),
        }
    }

    /// The node's counters as JSON text.
    pub fn statistics(&mut self) -> Result<String, ClientError> {
        self.note_fork();
        let deadline = self.deadline();
        if let Err(error) = self.uncut() {
            self.reopen(error, deadline)?;
        }
        let mut frame = vec![];
        ToNode::StatisticsRequest.encode(&mut frame);
        self.statistics = None;
        if let Err(error) = self.connection.send(&frame, deadline) {
            // A part of it may be under way.
            self.cut();
            return Err(self.broken(error));
        }
        loop {
            if let Some(text) = self.statistics.take() {
                return Ok(text);
            }
            match self.connection.receive(deadline) {
                Ok(Some(message)) => self.note(message)?,
                Ok(None) if Instant::now() >= deadline => {
                    return Err(self.broken(io::ErrorKind::TimedOut.into()));
                }
                Ok(None) => {}
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.options.time_out
    }

    fn broken(&self, source: io::Error) -> ClientError {
        broken(&self.socket, source)
    }

    /// The node's answer, if it came; a failed minibatch stays failed.
    fn answer(&self, minibatch: MinibatchId) -> Result<Option<Ready>, ClientError> {
        let entry = self.outstanding.get(&minibatch).ok_or(ClientError::NotAnnounced(minibatch))?;
        match entry.answer.clone() {
            Some(Ok(ready)) => Ok(Some(ready)),
            Some(Err(refusal)) => Err(ClientError::Failed { minibatch, refusal }),
            None => Ok(None),
        }
    }

    /// Takes in one message of the node.
    fn note(&mut self, message: Result<ToTrainer, FrameError>) -> Result<(), ClientError> {
        match message.map_err(|source| ClientError::Protocol { socket: self.socket.clone(), source })? {
            ToTrainer::Ready { minibatch, tables } => {
                if let Some(entry) = self.outstanding.get_mut(&minibatch) {
                    entry.answer = Some(Ok(Ready {
                        minibatch,
                        tables: tables.into(),
                        private: Arc::new(std::mem::take(&mut entry.pieces)),
                        mappings: self.mappings.clone(),
                        row_bytes: self.row_bytes.clone(),
                    }));
                }
            }
            ToTrainer::Piece { minibatch, bytes } => {
                if let Some(entry) = self.outstanding.get_mut(&minibatch) {
                    entry.pieces.extend_from_slice(&bytes);
                }
            }
            ToTrainer::Failed { minibatch, refusal } => {
                if let Some(entry) = self.outstanding.get_mut(&minibatch) {
                    entry.answer = Some(Err(refusal));
                }
            }
            ToTrainer::Statistics(text) => self.statistics = Some(text),
            ToTrainer::Mapping(specs) => {
                // The cache grew: new chunks join a new table, so that what is ready keeps the old one.
                let fds = self.connection.take_descriptors();
                let mut mappings = (*self.mappings).clone();
                mappings.add(&specs, fds).map_err(|error| self.broken(error))?;
                self.mappings = Arc::new(mappings);
            }
            ToTrainer::Refused(refusal) => {
                return Err(ClientError::Refused { socket: self.socket.clone(), refusal });
            }
            ToTrainer::Welcome(_) | ToTrainer::WelcomeEnd => {}
        }
        Ok(())
    }

    /// Opens the connection again after `error` and announces again what is outstanding.
    fn reopen(&mut self, error: io::Error, deadline: Instant) -> Result<(), ClientError> {
        self.cut();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || is_interrupted(&error) {
                return Err(self.broken(error));
            }
            match open(&self.socket, &self.options, deadline) {
                Ok((connection, welcome, mappings)) => {
                    self.connection = connection;
                    self.row_bytes = welcome.row_bytes.clone().into();
                    self.welcome = welcome;
                    self.mappings = Arc::new(mappings);
                    match self.announce_again(deadline) {
                        Ok(()) => {
                            self.is_cut = false;
                            return Ok(());
                        }
                        Err(error) => {
                            self.connection.shut_down();
                            if is_interrupted(&error) {
                                return Err(ClientError::Interrupted);
                            }
                        }
                    }
                }
                // The node still believes in the old connection for a moment, or is not up yet.
                Err(ClientError::Refused { refusal: Refusal::RankInUse | Refusal::Stopping, .. })
                | Err(ClientError::Connect { .. } | ClientError::Broken { .. }) => {}
                Err(error) => return Err(error),
            }
            // Nothing tells when a node comes back: ask again a little later.
            connection::pause(left.min(Duration::from_millis(50)), &self.options.interrupt)
                .map_err(|_| ClientError::Interrupted)?;
        }
    }

    fn announce_again(&mut self, deadline: Instant) -> io::Result<()> {
        let first = self.outstanding.keys().next().copied().unwrap_or(self.next);
        self.declare(first, deadline)?;
        for (&minibatch, entry) in &mut self.outstanding {
            // What is ready already is read from the old mappings; its announcement keeps the order of ids.
            entry.pieces.clear();
            self.connection.send(&entry.frame, deadline)?;
            if entry.wanted && entry.answer.is_none() {
                let mut frame = vec![];
                ToNode::Want { minibatch }.encode(&mut frame);
                self.connection.send(&frame, deadline)?;
            }
        }
        Ok(())
    }

    /// After a fork the child must not talk over its parent's connection.
    fn note_fork(&mut self) {
        if self.pid != std::process::id() {
            self.pid = std::process::id();
            self.outstanding.clear();
            self.is_cut = true;
        }
    }

    /// Gives the connection up: a node takes a trainer only once, so it must not seem to live on. A parent's is left alone.
    fn cut(&mut self) {
        if !std::mem::replace(&mut self.is_cut, true) {
            self.connection.shut_down();
        }
    }

    /// Fails where the connection has to be opened again.
    fn uncut(&self) -> io::Result<()> {
        if self.is_cut { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }
}

impl AsFd for Client {
    /// Readable when [`Client::try_ready`] may have something new.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// Connects, says hello, and maps what the node passes.
fn open(
    socket: &Path,
    options: &ConnectOptions,
    deadline: Instant,
) -> Result<(Connection, Welcome, Mappings), ClientError> {
    let connect = |source| ClientError::Connect { socket: socket.to_owned(), source };
    let broken = |source| broken(socket, source);
    let protocol = |source| ClientError::Protocol { socket: socket.to_owned(), source };
    let mut connection = Connection::open(socket, &options.interrupt).map_err(connect)?;
    let hello = Hello {
        job: options.job,
        rank: options.rank,
        dataset: options.dataset.clone(),
        digest: options.digest.clone(),
    };
    let mut frame = vec![];
    ToNode::Hello(hello).encode(&mut frame);
    connection.send(&frame, deadline).map_err(broken)?;
    let (mut welcome, mut mappings) = (None, Mappings::default());
    loop {
        let message = match connection.receive(deadline).map_err(broken)? {
            Some(message) => message.map_err(protocol)?,
            None if Instant::now() >= deadline => return Err(broken(io::ErrorKind::TimedOut.into())),
            None => continue,
        };
        match message {
            ToTrainer::Welcome(message) => welcome = Some(message),
            ToTrainer::Refused(refusal) => {
                return Err(ClientError::Refused { socket: socket.to_owned(), refusal });
            }
            ToTrainer::Mapping(specs) => {
                mappings.add(&specs, connection.take_descriptors()).map_err(broken)?;
            }
            ToTrainer::WelcomeEnd => {
                let welcome = welcome.ok_or_else(|| protocol(FrameError::Truncated))?;
                return Ok((connection, welcome, mappings));
            }
            other => return Err(protocol(FrameError::UnknownKind(other.kind()))),
        }
    }
}

fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

fn broken(socket: &Path, source: io::Error) -> ClientError {
    if is_interrupted(&source) {
        return ClientError::Interrupted;
    }
    ClientError::Broken { socket: socket.to_owned(), source }
}

/// Checks a frame's length field; used by the connection.
fn checked_length(field: [u8; 4]) -> io::Result<usize> {
    frame_length(field).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
