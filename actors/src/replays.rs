//! Where trainers' samplers are run ahead of them: one thread a dataset, started by the first trainer that declares
//! its sampler. It is told to give way to everything else, never is a mover's thread, and its processor time is
//! counted.
//!
//! State belongs to the supervisor's side, as the engine does; a predictor that is started again finds it as it was.

use crate::dataset::Dataset;
use rudder_client::dataset::Dataset as Files;
use rudder_graph::Split;
use rudder_graph::trace::{Trace, TraceSpec};
use rudder_policy::engine::ForeseeRefusal;
use rudder_policy::replay::{self, Offer, Replay};
use rudder_policy::step::TrainerId;
use rudder_topology::{MinibatchId, TableId, VertexId};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// The feature table whose rows are the vertices.
const TABLE: TableId = TableId(0);
/// How much the thread gives way to others: the kernel's scale ends at 19.
const NICE: i32 = 10;

/// What a trainer said of its sampler.
#[derive(Clone, Debug)]
pub struct Declaration {
    pub trainer: TrainerId,
    pub spec: TraceSpec,
    pub first: MinibatchId,
    pub end: u64,
}

/// The replays of a dataset's trainers.
pub struct Replays {
    directory: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    orders: Mutex<Orders>,
    wake: Condvar,
}

#[derive(Default)]
struct Orders {
    waiting: VecDeque<Order>,
    /// Something happened that may make room.
    nudged: bool,
    started: bool,
    stopped: bool,
}

enum Order {
    Begin(Declaration),
    Forget(TrainerId),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        // Nothing in this module can panic half-way through a change.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replays {
    /// `directory`: of the dataset, with its graph.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Replays { directory, shared: Arc::default() }
    }

    /// Begins to sample ahead of a trainer. What cannot be replayed is logged, and training goes on without.
    pub fn declare(dataset: &Arc<Dataset>, declaration: Declaration) {
        let replays = &dataset.replays;
        let mut orders = replays.shared.lock();
        if !orders.started {
            let (shared, directory) = (replays.shared.clone(), replays.directory.clone());
            let weak = Arc::downgrade(dataset);
            let name = "rudder-replay".to_owned();
            let spawned =
                std::thread::Builder::new().name(name).spawn(move || work(&shared, &directory, &weak));
            if let Err(error) = spawned {
                tracing::warn!(%error, "no thread to sample ahead on: likelihood decides beyond what is announced");
                return;
            }
            orders.started = true;
        }
        orders.waiting.push_back(Order::Begin(declaration));
        replays.shared.wake.notify_one();
    }

    /// The trainer is gone.
    pub fn forget(&self, trainer: TrainerId) {
        let mut orders = self.shared.lock();
        if orders.started {
            orders.waiting.push_back(Order::Forget(trainer));
            self.shared.wake.notify_one();
        }
    }

    /// A minibatch came or went: there may be room for others.
    pub fn nudge(&self) {
        let mut orders = self.shared.lock();
        if orders.started && !orders.nudged {
            orders.nudged = true;
            self.shared.wake.notify_one();
        }
    }
}

impl Drop for Replays {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.wake.notify_one();
    }
}

/// The thread.
fn work(shared: &Shared, directory: &Path, dataset: &Weak<Dataset>) {
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE) {
        tracing::debug!(%error, "the replay's thread has the priority of all others");
    }
    let files = match Files::open(directory) {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(%error, "no graph to sample ahead on: likelihood decides beyond what is announced");
            let mut orders = shared.lock();
            orders.waiting.clear();
            orders.started = false;
            return;
        }
    };
    let mut replays: Vec<Replay<'_>> = vec![];
    let mut busy = false;
    loop {
        let orders: Vec<Order> = {
            let mut orders = shared.lock();
            while !busy && !orders.stopped && !orders.nudged && orders.waiting.is_empty() {
                orders = shared.wake.wait(orders).unwrap_or_else(PoisonError::into_inner);
            }
            if orders.stopped {
                return;
            }
            orders.nudged = false;
            orders.waiting.drain(..).collect()
        };
        for order in orders {
            match order {
                Order::Forget(trainer) => replays.retain(|replay| replay.trainer() != trainer),
                Order::Begin(declaration) => {
                    replays.retain(|replay| replay.trainer() != declaration.trainer);
                    match begin(&files, &declaration) {
                        Ok(replay) => replays.push(replay),
                        Err(reason) => {
                            let trainer = declaration.trainer;
                            tracing::warn!(%trainer, %reason, "a declared sampler cannot be replayed: likelihood decides beyond what is announced");
                        }
                    }
                }
            }
        }
        let Some(dataset) = dataset.upgrade() else { return };
        busy = false;
        replays.retain_mut(|replay| step(replay, &dataset, &mut busy));
    }
}

fn begin<'f>(files: &'f Files, declaration: &Declaration) -> Result<Replay<'f>, String> {
    let Declaration { trainer, spec, first, end } = declaration;
    let graph = files.first_csc().ok_or("this dataset directory holds no graph")?;
    if files.book().rows(TABLE) != graph.vertices() {
        return Err(format!("the rows of table {TABLE} are not the graph's vertices"));
    }
    replay::check(spec, graph.vertices()).map_err(|refusal| refusal.to_string())?;
    let train_ids = files.split(Split::Train).map(<[VertexId]>::to_vec).unwrap_or_default();
    tracing::info!(%trainer, ?spec, "sampling ahead of a trainer");
    let trace = Trace::new(spec.clone(), graph, train_ids);
    Ok(Replay::new(*trainer, trace, TABLE, *first, *end))
}

/// One minibatch of one trainer; `false` at the end.
fn step(replay: &mut Replay<'_>, dataset: &Dataset, busy: &mut bool) -> bool {
    let before_ns = cpu_ns();
    let more = replay.sample();
    let cpu_ns = cpu_ns().saturating_sub(before_ns);
    if !more {
        return false;
    }
    dataset.engine.with(|engine| {
        engine.note_replay_cost(cpu_ns);
        match replay.offer(engine) {
            Offer::Taken(reaction) => dataset.react(reaction),
            Offer::Behind => {}
            Offer::Later => return true,
            Offer::Over(reason) => {
                let trainer = replay.trainer();
                match reason {
                    ForeseeRefusal::Unused => {
                        tracing::info!(%trainer, %reason, "a declared sampler is not replayed");
                    }
                    _ => tracing::warn!(%trainer, %reason, "a replay ended"),
                }
                return false;
            }
        }
        *busy = true;
        true
    })
}

/// Processor time of this thread.
fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
