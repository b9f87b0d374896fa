//! The transfer table: what is in flight, and the only place that writes slots.

use super::Counters;
use crate::cache_memory::CacheMemory;
use crate::transfer::{
    Arrived, Completion, Destination, InvalidRequest, ProtocolError, TransferError, TransferItem,
    TransferRequest,
};
use rudder_client::frames::{FETCH_ITEMS_MAX, FailReason, Header, Last, PAYLOAD_BYTES_MAX};
use rudder_graph::{BlockPlace, Class, PartitionBook};
use rudder_topology::{Bytes, Generation, NodeId, TransferId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One connection of this mover's life; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId(pub(super) u64);

/// Where a transfer is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Via {
    pub(super) connection: ConnectionId,
    pub(super) node: NodeId,
    pub(super) generation: Generation,
}

pub(crate) struct Table {
    cache: Arc<CacheMemory>,
    book: Arc<PartitionBook>,
    bytes_max: u64,
    in_flight: HashMap<TransferId, InFlight>,
    counters: Arc<Counters>,
}

struct InFlight {
    via: Via,
    class: Class,
    items: Vec<TransferItem>,
    /// Items before this one have arrived.
    next: usize,
    private: Option<Vec<u8>>,
    bytes: u64,
}

impl InFlight {
    fn completion(self, transfer: TransferId, result: Result<(), TransferError>) -> Completion {
        Completion {
            transfer,
            node: self.via.node,
            generation: Some(self.via.generation),
            result: result.map(|()| Arrived { private: self.private }),
            bytes: self.bytes,
        }
    }
}

impl Table {
    pub(crate) fn new(
        cache: Arc<CacheMemory>,
        book: Arc<PartitionBook>,
        bytes_max: Bytes,
        counters: Arc<Counters>,
    ) -> Self {
        Table { cache, book, bytes_max: bytes_max.0, in_flight: HashMap::new(), counters }
    }

    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Checks a request against dataset and cache; returns its payload bytes to the caller's buffers.
    fn check(&self, request: &TransferRequest) -> Result<u64, InvalidRequest> {
        if request.items.is_empty() {
            return Err(InvalidRequest::Empty);
        }
        if self.in_flight.contains_key(&request.id) {
            return Err(InvalidRequest::DuplicateId);
        }
        let too_large = InvalidRequest::TooLarge { bytes_max: self.bytes_max };
        if request.items.len() > FETCH_ITEMS_MAX {
            return Err(too_large);
        }
        let mut bytes = 0_u64;
        for (number, item) in request.items.iter().enumerate() {
            let number = number as u32;
            let place = self
                .book
                .block(item.rows.block)
                .filter(|place| item.rows.mask != 0 && item.rows.mask & !place.full_mask() == 0)
                .ok_or(InvalidRequest::UnknownRows { item: number })?;
            let item_bytes = u64::from(item.rows.rows()) * u64::from(place.row_bytes);
            if item_bytes > PAYLOAD_BYTES_MAX as u64 {
                return Err(InvalidRequest::TooLarge { bytes_max: PAYLOAD_BYTES_MAX as u64 });
            }
            bytes += item_bytes;
            let rows_end = (64 - item.rows.mask.leading_zeros()) as usize;
            if let Destination::Slot { chunk, offset } = item.to
                && !self.cache.contains(chunk, offset, rows_end * place.row_bytes as usize)
            {
                return Err(InvalidRequest::SlotOutside { item: number });
            }
        }
        if bytes > self.bytes_max { Err(too_large) } else { Ok(bytes) }
    }

    /// Takes a request on, or says how it ended right away.
    pub(super) fn admit(&mut self, request: TransferRequest, via: Via) -> Result<(), Completion> {
        let bytes = match self.check(&request) {
            Ok(bytes) => bytes,
            Err(error) => {
                let generation = Some(via.generation);
                return Err(refused(&request, generation, error.into()));
            }
        };
        let wants_private = request.items.iter().any(|item| item.to == Destination::Private);
        let private = wants_private.then(|| Vec::with_capacity(bytes as usize));
        let TransferRequest { id, class, items, .. } = request;
        self.in_flight.insert(id, InFlight { via, class, items, next: 0, private, bytes: 0 });
        self.counters.transfers_in_flight.store(self.in_flight.len() as u64, Relaxed);
        Ok(())
    }

    /// Puts a checked Rows payload where its request says. `None`: the transfer goes on, or has ended before.
    pub(super) fn rows(
        &mut self,
        via: Via,
        header: &Header,
        last: Last,
        payload: &[u8],
    ) -> Result<Option<Completion>, ProtocolError> {
        let Some(transfer) = self.in_flight.get_mut(&header.transfer) else {
            self.counters.frames_late.fetch_add(1, Relaxed);
            return Ok(None);
        };
        if transfer.via != via {
            // Only the node that was asked may answer.
            return Err(ProtocolError::UnexpectedFrame);
        }
        let end = transfer.next.saturating_add(header.items as usize);
        if header.first_item as usize != transfer.next || header.items == 0 || end > transfer.items.len() {
            return Err(ProtocolError::RowsOutOfOrder);
        }
        if (last == Last::Last) != (end == transfer.items.len()) {
            return Err(ProtocolError::RowsOutOfOrder);
        }
        let items = &transfer.items[transfer.next..end];
        let place = |item: &TransferItem| self.book.block(item.rows.block);
        let expected: usize = items
            .iter()
            .filter_map(|item| place(item).map(|at| item.rows.rows() as usize * at.row_bytes as usize))
            .sum();
        if expected != payload.len() {
            return Err(ProtocolError::RowsLength);
        }
        let mut rest = payload;
        for item in items {
            let Some(place) = self.book.block(item.rows.block) else { continue };
            let (rows, after) = rest.split_at(item.rows.rows() as usize * place.row_bytes as usize);
            rest = after;
            match item.to {
                Destination::Private => transfer.private.get_or_insert_default().extend_from_slice(rows),
                Destination::Slot { chunk, offset } => {
                    scatter(&self.cache, item.rows.mask, place, rows, |row_offset| {
                        (chunk, offset + row_offset)
                    });
                }
            }
        }
        transfer.next = end;
        transfer.bytes += payload.len() as u64;
        let counter = match transfer.class {
            Class::Demand => &self.counters.bytes_demand,
            Class::Prefetch => &self.counters.bytes_prefetch,
        };
        counter.fetch_add(payload.len() as u64, Relaxed);
        if end < transfer.items.len() {
            return Ok(None);
        }
        Ok(self.end(header.transfer, Ok(())))
    }

    /// What a Failed frame does to its transfer.
    pub(super) fn failed(
        &mut self,
        via: Via,
        id: TransferId,
        item: u32,
        reason: FailReason,
    ) -> Result<Option<Completion>, ProtocolError> {
        match self.in_flight.get(&id) {
            None => {
                self.counters.frames_late.fetch_add(1, Relaxed);
                Ok(None)
            }
            Some(transfer) if transfer.via != via => Err(ProtocolError::UnexpectedFrame),
            Some(transfer) if item as usize >= transfer.items.len() => Err(ProtocolError::RowsOutOfOrder),
            Some(_) => {
                let error = match reason {
                    FailReason::Corrupt => TransferError::Corrupt { item },
                    reason => TransferError::Refused { item, reason },
                };
                Ok(self.end(id, Err(error)))
            }
        }
    }

    /// Ends a transfer if it is in flight: from here on its slots are not written.
    pub(super) fn end(&mut self, id: TransferId, result: Result<(), TransferError>) -> Option<Completion> {
        let transfer = self.in_flight.remove(&id)?;
        let counters = &self.counters;
        counters.transfers_in_flight.store(self.in_flight.len() as u64, Relaxed);
        let ended = if result.is_ok() { &counters.transfers_completed } else { &counters.transfers_failed };
        ended.fetch_add(1, Relaxed);
        Some(transfer.completion(id, result))
    }

    /// The connection over which a transfer is in flight.
    pub(super) fn via(&self, id: TransferId) -> Option<Via> {
        self.in_flight.get(&id).map(|transfer| transfer.via)
    }

    /// Ends everything that is in flight over a connection.
    pub(super) fn end_all(&mut self, connection: ConnectionId, error: &TransferError) -> Vec<Completion> {
        let mut ids: Vec<TransferId> = self
            .in_flight
            .iter()
            .filter(|(_, transfer)| transfer.via.connection == connection)
            .map(|(&id, _)| id)
            .collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| self.end(id, Err(error.clone()))).collect()
    }
}

/// The completion of a request that never was in flight.
pub(super) fn refused(
    request: &TransferRequest,
    generation: Option<Generation>,
    error: TransferError,
) -> Completion {
    Completion { transfer: request.id, node: request.node, generation, result: Err(error), bytes: 0 }
}

fn scatter(
    cache: &CacheMemory,
    mask: u64,
    place: BlockPlace,
    rows: &[u8],
    to: impl Fn(u64) -> (rudder_topology::ChunkId, u64),
) {
    let row_bytes = place.row_bytes as usize;
    let mut left = mask;
    let mut from = 0;
    while left != 0 {
        // Runs of neighbouring rows are copied in one go.
        let first = left.trailing_zeros();
        let run = (left >> first).trailing_ones();
        let bytes = run as usize * row_bytes;
        let (chunk, offset) = to(u64::from(first) * row_bytes as u64);
        // SAFETY: the transfer is in the table, so the slot is reserved for it and none of these rows is published
        // (contract of `Destination::Slot`); this thread is the only one that writes.
        let written = unsafe { cache.write_row(chunk, offset, &rows[from..from + bytes]) };
        debug_assert!(written.is_ok(), "the slot was checked when the request was admitted");
        from += bytes;
        left = if first + run == 64 { 0 } else { left & (u64::MAX << (first + run)) };
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
