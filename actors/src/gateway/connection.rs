//! One trainer's connection: hello, welcome with descriptors, then frames in both directions until either end goes.
//!
//! A trainer that dies is noticed by its socket or by its pidfd (a forked worker may hold the socket open), and
//! its pins drop at once.

use super::{Gate, descriptors};
use crate::dataset::Dataset;
use crate::mailbox::CallError;
use crate::trainers::{self, Outbox, OutboxReader};
use ractor::RpcReplyPort;
use rudder_client::trainer_protocol::{
    self, Declared, FrameError, Hello, Refusal, ToNode, ToTrainer, Welcome,
};
use rudder_messages::PredictorMessage;
use rudder_policy::engine::Engine;
use rudder_policy::ledger::Statistics;
use rudder_policy::step::{AnnounceRefusal, TrainerId};
use rudder_topology::{MinibatchId, TableId};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// A trainer has this long to say hello.
const HELLO_TIME_MAX: Duration = Duration::from_secs(5);
/// An actor of the fast loop answers within this, restarts included.
const CALL_TIME_MAX: Duration = Duration::from_secs(10);
/// How often a call is repeated whose actor failed while it worked on it.
const CALLS_MAX: u32 = 3;
/// A frame's buffer grows by what has come, in steps of this at most: a length field alone allocates nothing.
const READ_STEP: u64 = 1 << 20;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the trainer closed it")]
    Closed,
    #[error("the trainer's process is gone")]
    ProcessGone,
    #[error("the socket failed: {0}")]
    Socket(io::Error),
    #[error("the trainer broke the protocol: {0}")]
    Frame(#[from] FrameError),
    #[error("the trainer sent something else than a hello first")]
    NoHello,
    #[error("the trainer did not say hello in time")]
    SilentAtHello,
    #[error("the trainer said hello twice")]
    SecondHello,
    #[error("the trainer was refused: {0}")]
    Refused(Refusal),
    #[error("the trainer does not read what it asked for")]
    NotReading,
    #[error("the fast loop did not answer: {0}")]
    Loop(#[from] CallError),
    #[error("the node is stopping")]
    Stopping,
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // A process that dies leaves what it had not read.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Ended::Closed
            }
            _ => Ended::Socket(error),
        }
    }
}

/// Serves a trainer from its hello on.
pub async fn serve(mut stream: UnixStream, gate: &Gate) {
    let alive = Alive::of(&stream);
    let hello = match tokio::time::timeout(HELLO_TIME_MAX, read_hello(&mut stream)).await {
        Ok(hello) => hello,
        Err(_) => Err(Ended::SilentAtHello),
    };
    let ended = match hello {
        Ok(hello) => admitted(stream, gate, hello, alive).await,
        Err(ended) => {
            if let Ended::Refused(refusal) = &ended {
                refuse(&mut stream, refusal.clone()).await;
            }
            ended
        }
    };
    match ended {
        Ended::Closed | Ended::ProcessGone | Ended::Stopping => {
            tracing::debug!(reason = %ended, "a trainer left")
        }
        _ => tracing::warn!(reason = %ended, "a trainer's connection ended"),
    }
}

async fn read_hello(stream: &mut UnixStream) -> Result<Hello, Ended> {
    match read_frame(stream).await? {
        Ok(ToNode::Hello(hello)) => Ok(hello),
        Ok(_) => Err(Ended::NoHello),
        Err(refusal) => Err(Ended::Refused(refusal)),
    }
}

/// Tells the trainer why not; it may be gone, and then need not know.
async fn refuse(stream: &mut UnixStream, refusal: Refusal) {
    let mut frame = Vec::new();
    ToTrainer::Refused(refusal).encode(&mut frame);
    let _ = stream.write_all(&frame).await;
}

async fn admitted(mut stream: UnixStream, gate: &Gate, hello: Hello, alive: Alive) -> Ended {
    let trainer = TrainerId { job: hello.job, rank: hello.rank };
    let (outbox, reader) = trainers::outbox();
    let refusal = match gate.datasets.get(&hello.dataset) {
        None => Err(Refusal::UnknownDataset),
        Some(_) if *gate.stopping.borrow() => Err(Refusal::Stopping),
        Some(dataset) if !hello.digest.is_empty() && hello.digest != dataset.greeting.digest => {
            Err(Refusal::OtherVersion)
        }
        Some(dataset) => match dataset.trainers.join(trainer, outbox.clone()) {
            Ok(()) => Ok(dataset),
            Err(_) => Err(Refusal::RankInUse),
        },
    };
    let dataset = match refusal {
        Ok(dataset) => dataset.clone(),
        Err(refusal) => {
            refuse(&mut stream, refusal.clone()).await;
            return Ended::Refused(refusal);
        }
    };
    tracing::info!(%trainer, dataset = %dataset.name, "a trainer connected");
    let ended = match greet(&mut stream, gate, &dataset, trainer).await {
        Ok(()) => converse(stream, gate, &dataset, trainer, outbox, reader, alive).await,
        Err(ended) => ended,
    };
    let gone = |reply| PredictorMessage::Disconnect { trainer, reply };
    if let Err(error) = ask(&dataset, gone).await {
        tracing::error!(%trainer, %error, "the pins of a trainer that left could not be dropped");
    }
    dataset.trainers.leave(trainer);
    ended
}

async fn greet(
    stream: &mut UnixStream,
    gate: &Gate,
    dataset: &Dataset,
    trainer: TrainerId,
) -> Result<(), Ended> {
    ask(dataset, |reply| PredictorMessage::Connect { trainer, reply }).await?;
    let greeting = &dataset.greeting;
    let groups = greeting.mappings.len().div_ceil(trainer_protocol::DESCRIPTORS_PER_MESSAGE);
    let welcome = Welcome {
        generation: gate.generation,
        credits: greeting.credits,
        ready_ahead: greeting.ready_ahead,
        row_bytes: greeting.row_bytes.clone(),
        mappings: groups as u32,
    };
    let mut frame = Vec::new();
    ToTrainer::Welcome(welcome).encode(&mut frame);
    stream.write_all(&frame).await?;
    descriptors::send(stream, &greeting.mappings).await?;
    frame.clear();
    ToTrainer::WelcomeEnd.encode(&mut frame);
    stream.write_all(&frame).await?;
    Ok(())
}

async fn converse(
    stream: UnixStream,
    gate: &Gate,
    dataset: &Dataset,
    trainer: TrainerId,
    outbox: Outbox,
    reader: OutboxReader,
    alive: Alive,
) -> Ended {
    let (from, to) = stream.into_split();
    let mut stopping = gate.stopping.clone();
    tokio::select! {
        ended = listen(from, dataset, trainer, &outbox) => ended,
        ended = talk(to, reader) => ended,
        () = alive.gone() => Ended::ProcessGone,
        _ = stopping.wait_for(|&stopping| stopping) => Ended::Stopping,
    }
}

async fn talk(mut to: OwnedWriteHalf, mut reader: OutboxReader) -> Ended {
    let mut frame = Vec::new();
    while let Some(message) = reader.next().await {
        frame.clear();
        message.encode(&mut frame);
        if let Err(error) = to.write_all(&frame).await {
            return error.into();
        }
    }
    Ended::NotReading
}

/// What a trainer is told of its dataset on this node: what was counted, and what all trainers hold now.
#[derive(Serialize)]
struct Standing {
    #[serde(flatten)]
    counted: Statistics,
    /// Trainers that have announced and not released.
    trainers_waiting: usize,
    /// Their minibatches.
    minibatches_outstanding: usize,
    /// Slots of the cache whose rows cannot leave it.
    slots_pinned: usize,
}

impl Standing {
    fn of(engine: &Engine) -> Standing {
        let view = engine.view();
        let queued = || view.window.trainers().map(|trainer| view.window.queued(trainer)).filter(|&n| n > 0);
        let tables = (0..view.book.tables()).map(|table| TableId(table as u16));
        Standing {
            counted: engine.statistics(),
            trainers_waiting: queued().count(),
            minibatches_outstanding: queued().sum(),
            slots_pinned: tables.map(|table| view.cache.pinned_slots(table)).sum(),
        }
    }
}

async fn listen(mut from: OwnedReadHalf, dataset: &Dataset, trainer: TrainerId, outbox: &Outbox) -> Ended {
    loop {
        let message = match read_frame(&mut from).await {
            Ok(Ok(message)) => message,
            Ok(Err(refusal)) => return Ended::Refused(refusal),
            Err(ended) => return ended,
        };
        if let Err(ended) = take(message, dataset, trainer, outbox).await {
            return ended;
        }
    }
}

async fn take(message: ToNode, dataset: &Dataset, trainer: TrainerId, outbox: &Outbox) -> Result<(), Ended> {
    let (minibatch, refusal) = match message {
        ToNode::Hello(_) => return Err(Ended::SecondHello),
        ToNode::StatisticsRequest => {
            let standing = dataset.engine.with(|engine| Standing::of(engine));
            let text = serde_json::to_string(&standing).unwrap_or_else(|_| "{}".to_owned());
            outbox.send(ToTrainer::Statistics(text));
            return Ok(());
        }
        ToNode::Declare(Declared { spec, first, end }) => {
            let declare =
                |reply| PredictorMessage::Declare { trainer, spec: spec.clone(), first, end, reply };
            ask(dataset, declare).await?;
            return Ok(());
        }
        ToNode::Announce { minibatch, tables } => {
            let tables: Arc<[_]> = tables.into_iter().map(|rows| (rows.table, rows.rows)).collect();
            (minibatch, announce(dataset, trainer, minibatch, tables).await?)
        }
        ToNode::Want { minibatch } => {
            let want = |reply| PredictorMessage::Want { trainer, minibatch, reply };
            (minibatch, ask(dataset, want).await?.err().map(|_| Refusal::NotAnnounced))
        }
        ToNode::Release { minibatch } => {
            let release = |reply| PredictorMessage::Release { trainer, minibatch, reply };
            // What a failed actor had released already, or a failure took away, is what was asked for.
            let _ = ask(dataset, release).await?;
            return Ok(());
        }
    };
    if let Some(refusal) = refusal {
        outbox.send(ToTrainer::Failed { minibatch, refusal });
    }
    Ok(())
}

async fn announce(
    dataset: &Dataset,
    trainer: TrainerId,
    minibatch: MinibatchId,
    tables: Arc<[(TableId, Vec<u32>)]>,
) -> Result<Option<Refusal>, Ended> {
    let mut calls = 0;
    let answer = loop {
        let tables = tables.clone();
        let message = |reply| PredictorMessage::Announce { trainer, minibatch, tables, reply };
        calls += 1;
        match dataset.predictor.call(message, CALL_TIME_MAX).await {
            Err(CallError::Failed) if calls < CALLS_MAX => {}
            // The actor that failed had got this far: the minibatch is in the window.
            Ok(Err(AnnounceRefusal::StaleMinibatch(given, last))) if calls > 1 && given == last => {
                break Ok(());
            }
            answer => break answer?,
        }
    };
    Ok(answer.err().map(|refusal| match refusal {
        AnnounceRefusal::UnknownTrainer => Refusal::NotAnnounced,
        AnnounceRefusal::UnknownRow(table, _) | AnnounceRefusal::RepeatedTable(table) => {
            Refusal::UnknownRow(table.0)
        }
        AnnounceRefusal::StaleMinibatch(..) => Refusal::StaleMinibatch,
        AnnounceRefusal::NoCredit => Refusal::NoCredit,
    }))
}

/// A call that may be repeated without harm.
async fn ask<R>(
    dataset: &Dataset,
    message: impl Fn(RpcReplyPort<R>) -> PredictorMessage,
) -> Result<R, CallError> {
    let mut calls = 0;
    loop {
        calls += 1;
        match dataset.predictor.call(&message, CALL_TIME_MAX).await {
            Err(CallError::Failed) if calls < CALLS_MAX => {}
            answer => return answer,
        }
    }
}

/// The next frame. A hello of another protocol version is `Ok(Err(refusal))`.
async fn read_frame(from: &mut (impl AsyncReadExt + Unpin)) -> Result<Result<ToNode, Refusal>, Ended> {
    let mut field = [0; 4];
    from.read_exact(&mut field).await?;
    let length = trainer_protocol::frame_length(field)? as u64;
    let mut frame = Vec::new();
    while (frame.len() as u64) < length {
        let step = (length - frame.len() as u64).min(READ_STEP);
        if from.take(step).read_to_end(&mut frame).await? == 0 {
            return Err(Ended::Closed);
        }
    }
    Ok(ToNode::decode(&frame)?)
}

/// The trainer's process, where the kernel lets us watch it.
struct Alive {
    process: Option<AsyncFd<OwnedFd>>,
}

impl Alive {
    fn of(stream: &UnixStream) -> Self {
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid()).and_then(Pid::from_raw);
        let pidfd = pid.and_then(|pid| match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(fd) => Some(fd),
            Err(error) => {
                tracing::debug!(%error, "a trainer's process cannot be watched; its socket tells");
                None
            }
        });
        #[expect(
            deprecated,
            reason = "its successor is unsafe for the sake of other types; an OwnedFd keeps the promise"
        )]
        let watched = pidfd.and_then(|fd| AsyncFd::with_interest(fd, Interest::READABLE).ok());
        Alive { process: watched }
    }

    /// Returns when the process has ended; never, where it cannot be watched.
    async fn gone(&self) {
        match &self.process {
            // An error of the poller says nothing of the process: the socket will tell.
            Some(process) if process.readable().await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }
}
