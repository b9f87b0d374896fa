//! A trainer's connection, safe for several Python threads, with the interpreter's lock released whenever anything
//! moves or waits.

use crate::buffer::Input;
use crate::error::{of_client, raise};
use crate::gate::{Closed, Gate, Signals, lock};
use crate::ready::{Pin, ReadyRows};
use pyo3::prelude::*;
use rudder_client::trainer::{Client, ClientError, ConnectOptions, Interrupt, Ready, TableRows};
use rudder_client::trainer_protocol::Refusal;
use rudder_topology::{DatasetName, JobId, MinibatchId, TableId, TrainerRank};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The shortest time for which one thread waits for the node before another gets its turn on the connection.
const GLANCE: Duration = Duration::from_millis(20);
/// A handshake gets at least this long: one that is cut off has to start again.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// What connection, minibatches and views share.
pub(crate) struct Shared {
    /// Only for who has passed the gate, so that it never has to be waited for.
    client: Mutex<Client>,
    gate: Gate,
    signals: Arc<Signals>,
    /// Minibatches whose last view is gone while another thread used the connection.
    returned: Mutex<Vec<MinibatchId>>,
    /// The last minibatch's id. Ids rise in the order in which threads announce.
    last: AtomicU64,
    /// The process that opened it. A forked child must not speak over it, not even to release.
    pid: u32,
}

/// Why a call came to nothing.
enum Refused {
    Client(ClientError),
    Row(String),
    /// See [`Closed::Inside`].
    Inside,
}

impl From<ClientError> for Refused {
    fn from(error: ClientError) -> Self {
        Refused::Client(error)
    }
}

impl Shared {
    /// Gives a minibatch back now, or as soon as whoever uses the connection is done with it.
    pub(crate) fn give_back(&self, minibatch: MinibatchId) {
        if self.pid != std::process::id() {
            return;
        }
        lock(&self.returned).push(minibatch);
        if let Some(_entered) = self.gate.try_enter() {
            self.release_returned(&mut lock(&self.client));
        }
    }

    /// Nobody could pass on what a signal's handler raises here.
    fn release_returned(&self, client: &mut Client) {
        loop {
            let returned = std::mem::take(&mut *lock(&self.returned));
            if returned.is_empty() {
                return;
            }
            self.signals.deaf(|| {
                for minibatch in returned {
                    // A node that is away has dropped the pins already; one released twice is released.
                    let _ = client.release(minibatch);
                }
            });
        }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Client) -> Result<R, ClientError>) -> Result<R, Refused> {
        let _entered = self.gate.enter(&self.signals).map_err(|closed| match closed {
            Closed::Interrupted => Refused::Client(ClientError::Interrupted),
            Closed::Inside => Refused::Inside,
        })?;
        let mut client = lock(&self.client);
        self.release_returned(&mut client);
        let result = work(&mut client);
        self.release_returned(&mut client);
        Ok(result?)
    }

    /// The exception of a call that came to nothing.
    fn exception(&self, py: Python<'_>, refused: &Refused) -> PyErr {
        match refused {
            Refused::Client(ClientError::Interrupted) => self
                .signals
                .take()
                .unwrap_or_else(|| raise(py, "RudderError", &ClientError::Interrupted.to_string())),
            Refused::Client(error) => of_client(py, error),
            Refused::Row(message) => raise(py, "RowError", message),
            Refused::Inside => {
                let message = "a signal's handler called the client while the same thread waits in a call of it: \
                               let handlers only raise an exception or set a flag";
                raise(py, "RudderError", message)
            }
        }
    }
}

/// Original ids to rows of the dataset, per table.
type IdMaps = HashMap<u16, Input<u32>>;

#[pyclass(frozen, module = "rudder._native")]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    /// Rows of each table.
    rows: Vec<u64>,
    id_maps: IdMaps,
    /// The rows of the announcement that is made, one after the other; kept for its memory.
    rows_announced: Mutex<Vec<u32>>,
}

#[pymethods]
impl Connection {
    /// Connects to the node behind the socket. `rows` are the rows of each table, `id_maps` an array of u32 for each
    /// table whose ids are original ones.
    #[new]
    #[pyo3(signature = (socket, dataset, digest, job, rank, time_out, rows, id_maps))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        socket: PathBuf,
        dataset: &str,
        digest: String,
        job: u32,
        rank: u32,
        time_out: f64,
        rows: Vec<u64>,
        id_maps: HashMap<u16, Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let name =
            DatasetName::new(dataset).map_err(|error| raise(py, "ArgumentError", &error.to_string()))?;
        let signals = Arc::new(Signals::default());
        let asked = signals.clone();
        let options = ConnectOptions {
            job: JobId(job),
            rank: TrainerRank(rank),
            dataset: name,
            digest,
            time_out: HANDSHAKE,
            interrupt: Interrupt::new(move || asked.are_raised()),
        };
        let id_maps: PyResult<IdMaps> =
            id_maps.iter().map(|(&table, map)| Ok((table, Input::new(map, "the map of ids")?))).collect();
        let client = connect(py, &socket, &options, &signals, patience(time_out))?;
        let shared = Shared {
            client: Mutex::new(client),
            gate: Gate::default(),
            signals,
            returned: Mutex::new(Vec::new()),
            last: AtomicU64::new(0),
            pid: std::process::id(),
        };
        Ok(Connection { shared: Arc::new(shared), rows, id_maps: id_maps?, rows_announced: Mutex::default() })
    }

    /// (credits, ready_ahead, generation) of the node.
    fn welcome(&self, py: Python<'_>) -> PyResult<(u32, u32, u64)> {
        self.with(py, |client| {
            let welcome = client.welcome();
            Ok((welcome.credits, welcome.ready_ahead, welcome.generation.0))
        })
    }

    /// Announced minibatches that are not released.
    fn outstanding(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |client| Ok(client.outstanding()))
    }

    /// Announces a minibatch: for each table an array of i64 ids. Returns its id.
    fn announce(&self, py: Python<'_>, tables: Vec<(u16, Bound<'_, PyAny>)>) -> PyResult<u64> {
        let ids: PyResult<Vec<(TableId, Input<i64>)>> =
            tables.iter().map(|(table, ids)| Ok((TableId(*table), Input::new(ids, "the ids")?))).collect();
        let ids = ids?;
        let outcome = py.detach(|| {
            let mut rows = lock(&self.rows_announced);
            rows.clear();
            for (table, ids) in &ids {
                self.append_rows(*table, ids.slice(), &mut rows)?;
            }
            let mut rest = rows.as_slice();
            let mut wanted = Vec::with_capacity(ids.len());
            for (table, ids) in &ids {
                let (rows, after) = rest.split_at(ids.slice().len());
                wanted.push(TableRows { table: *table, rows });
                rest = after;
            }
            self.shared.with(|client| {
                let minibatch = self.shared.last.fetch_add(1, Relaxed) + 1;
                match client.announce(MinibatchId(minibatch), &wanted) {
                    // It is announced again when the node is back; waiting for that is the business of `ready`.
                    Ok(()) | Err(ClientError::Broken { .. }) => Ok(minibatch),
                    Err(error) => Err(error),
                }
            })
        });
        outcome.map_err(|refused| self.shared.exception(py, &refused))
    }

    /// The minibatch, if every row of it can be read now.
    fn try_ready(&self, py: Python<'_>, minibatch: u64) -> PyResult<Option<ReadyRows>> {
        let ready = self.with(py, |client| match client.try_ready(MinibatchId(minibatch)) {
            Err(ClientError::Broken { .. }) => Ok(None),
            other => other,
        })?;
        Ok(ready.map(|ready| self.pinned(ready)))
    }

    /// Waits for the minibatch, at most `time_out` seconds.
    fn ready(&self, py: Python<'_>, minibatch: u64, time_out: f64) -> PyResult<ReadyRows> {
        let (start, time_out) = (Instant::now(), patience(time_out));
        let minibatch = MinibatchId(minibatch);
        loop {
            let left = time_out.saturating_sub(start.elapsed());
            // A handshake with a node that came back must fit into one slice, however slow the machine.
            let slice = (start.elapsed() / 4).clamp(GLANCE, HANDSHAKE).min(left);
            match py.detach(|| self.shared.with(|client| client.ready(minibatch, slice))) {
                Ok(ready) => return Ok(self.pinned(ready)),
                Err(Refused::Client(ClientError::TimeOut { .. } | ClientError::Broken { .. }))
                    if left > slice =>
                {
                    py.check_signals()?;
                }
                Err(Refused::Client(ClientError::TimeOut { .. })) => {
                    let late = ClientError::TimeOut { minibatch, waited: start.elapsed() };
                    return Err(of_client(py, &late));
                }
                Err(refused) => return Err(self.shared.exception(py, &refused)),
            }
        }
    }

    /// Gives an announced minibatch back that was never asked for.
    fn release(&self, py: Python<'_>, minibatch: u64) -> PyResult<()> {
        self.with(py, |client| match client.release(MinibatchId(minibatch)) {
            Err(ClientError::Broken { .. }) => Ok(()),
            other => other,
        })
    }

    /// The node's counters as JSON text.
    fn statistics(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, Client::statistics)
    }

    /// Whether this process opened the connection.
    fn is_own(&self) -> bool {
        self.shared.pid == std::process::id()
    }
}

impl Connection {
    /// Uses the connection without the interpreter's lock.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Client) -> Result<R, ClientError> + Send,
    ) -> PyResult<R> {
        py.detach(|| self.shared.with(work)).map_err(|refused| self.shared.exception(py, &refused))
    }

    fn pinned(&self, ready: Ready) -> ReadyRows {
        ReadyRows::new(Arc::new(Pin::new(self.shared.clone(), ready)))
    }

    /// Appends ids as the trainer gave them, checked and as rows of the dataset.
    fn append_rows(&self, table: TableId, ids: &[i64], to: &mut Vec<u32>) -> Result<(), Refused> {
        let Some(&rows) = self.rows.get(table.index()) else {
            return Err(Refused::Row(format!("the dataset has no table {table}")));
        };
        let map = self.id_maps.get(&table.0).map(Input::slice);
        let limit = map.map_or(rows, |map| map.len() as u64);
        let start = to.len();
        if all_below(ids, limit) {
            match map {
                None => to.extend(ids.iter().map(|&id| id as u32)),
                Some(map) => to.extend(ids.iter().map(|&id| map[id as usize])),
            }
            if map.is_none() || to[start..].iter().all(|&row| u64::from(row) < rows) {
                return Ok(());
            }
        }
        Err(Refused::Row(self.first_wrong(table, ids, limit)))
    }

    /// Names the id that is none of the table's.
    fn first_wrong(&self, table: TableId, ids: &[i64], limit: u64) -> String {
        let map = self.id_maps.get(&table.0).map(Input::slice);
        let rows = self.rows.get(table.index()).copied().unwrap_or(0);
        let wrong = |&id: &i64| {
            let known = u64::try_from(id).is_ok_and(|id| id < limit);
            !known || map.is_some_and(|map| u64::from(map[id as usize]) >= rows)
        };
        match ids.iter().position(wrong) {
            Some(at) => {
                let (id, last) = (ids[at], limit as i64 - 1);
                format!("id {id} at position {at} of table {table}: ids are 0 to {last}")
            }
            None => format!("the ids of table {table} changed while they were announced"),
        }
    }
}

/// Whether all ids are 0 to below `limit`, without a branch an id.
fn all_below(ids: &[i64], limit: u64) -> bool {
    let Some(last) = i64::try_from(limit).ok().and_then(|limit| limit.checked_sub(1)) else {
        return false;
    };
    // An id below 0 is negative itself; one beyond the last makes the difference negative.
    ids.iter().fold(0, |sign, &id| sign | id | last.wrapping_sub(id)) >= 0
}

fn patience(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

/// A node that still believes in the process before this one, or is stopping, is asked again.
fn connect(
    py: Python<'_>,
    socket: &std::path::Path,
    options: &ConnectOptions,
    signals: &Signals,
    time_out: Duration,
) -> PyResult<Client> {
    let start = Instant::now();
    loop {
        match py.detach(|| Client::connect(socket, options)) {
            Ok(client) => return Ok(client),
            Err(
                ClientError::Refused { refusal: Refusal::RankInUse | Refusal::Stopping, .. }
                | ClientError::Broken { .. },
            ) if start.elapsed() < time_out => {
                py.check_signals()?;
                py.detach(|| std::thread::park_timeout(GLANCE / 4));
            }
            Err(error) => return Err(signals.take().unwrap_or_else(|| of_client(py, &error))),
        }
    }
}
