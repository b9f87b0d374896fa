//! A ready minibatch: gathered from, or read in place. It stays pinned until it and every view of it are gone.

use crate::buffer::{Int64s, Output, PinnedBytes};
use crate::connection::Shared;
use crate::error::{of_client, raise};
use crate::view::{Piece, pieces};
use pyo3::prelude::*;
use rudder_client::trainer::Ready;
use rudder_topology::TableId;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Holds a minibatch's rows where they are; released with its last holder.
pub(crate) struct Pin {
    shared: Arc<Shared>,
    ready: Ready,
    since: Instant,
}

impl Pin {
    pub(crate) fn new(shared: Arc<Shared>, ready: Ready) -> Self {
        Pin { shared, ready, since: Instant::now() }
    }

    pub(crate) fn ready(&self) -> &Ready {
        &self.ready
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shared.give_back(self.ready.minibatch());
    }
}

#[pyclass(frozen, module = "rudder._native")]
pub(crate) struct ReadyRows {
    pin: Mutex<Option<Arc<Pin>>>,
}

impl ReadyRows {
    pub(crate) fn new(pin: Arc<Pin>) -> Self {
        ReadyRows { pin: Mutex::new(Some(pin)) }
    }

    fn pin(&self, py: Python<'_>) -> PyResult<Arc<Pin>> {
        let pin = self.pin.lock().unwrap_or_else(PoisonError::into_inner).clone();
        pin.ok_or_else(|| {
            raise(py, "MinibatchError", "this minibatch is released: gather and view before the release")
        })
    }
}

/// See [`ReadyRows::pieces`].
type Place = (u16, u64, u64, u64, Int64s, Int64s);

#[pymethods]
impl ReadyRows {
    /// Copies the table's rows, in the order of the announcement, to a writable buffer of exactly their bytes.
    fn gather(&self, py: Python<'_>, table: u16, to: &Bound<'_, PyAny>) -> PyResult<()> {
        let (pin, mut to) = (self.pin(py)?, Output::new(to)?);
        let outcome = py.detach(|| pin.ready().gather(TableId(table), to.slice()));
        outcome.map_err(|error| of_client(py, &error))
    }

    /// Where the table's rows of `row_bytes` each lie: for each mapping (mapping, byte of the first row, bytes from one
    /// index to the next, indices there are, index of each row, which rows of the minibatch these are).
    fn pieces(&self, py: Python<'_>, table: u16, row_bytes: u64) -> PyResult<Vec<Place>> {
        let pin = self.pin(py)?;
        let found = py.detach(|| pin.ready().locations(TableId(table)).map(|all| pieces(all, row_bytes)));
        let found = found.map_err(|error| of_client(py, &error))?;
        let place = |piece: Piece| {
            let (index, position) = (Int64s::new(piece.index), Int64s::new(piece.position));
            (piece.mapping, piece.first, piece.stride, piece.count, index, position)
        };
        Ok(found.into_iter().map(place).collect())
    }

    /// A mapping's bytes, which pin the minibatch as long as they are looked at.
    fn mapping(&self, py: Python<'_>, mapping: u16) -> PyResult<PinnedBytes> {
        Ok(PinnedBytes::new(self.pin(py)?, mapping))
    }

    /// Whether the rows came past the cache, in pieces.
    fn is_private(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.pin(py)?.ready().is_private())
    }

    /// (holders beside this object, seconds since it became ready); the minibatch is released with the last.
    fn held(&self, py: Python<'_>) -> PyResult<(usize, f64)> {
        let pin = self.pin(py)?;
        // One is this object's own, one this call's.
        Ok((Arc::strong_count(&pin) - 2, pin.since.elapsed().as_secs_f64()))
    }

    /// Gives the minibatch back, now or with its last view. Returns how many views still hold it.
    fn release(&self, py: Python<'_>) -> usize {
        let pin = self.pin.lock().unwrap_or_else(PoisonError::into_inner).take();
        let views = pin.as_ref().map_or(0, |pin| Arc::strong_count(pin) - 1);
        py.detach(|| drop(pin));
        views
    }
}
