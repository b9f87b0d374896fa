//! Movers: threads that move feature bytes, and the memory and files they move them between.
//!
//! The only door for actors; nothing here knows of actors. A mover is one thread, bound by hwloc where the topology
//! reserves cores, with an io_uring or a pread backend under the same code. Handles are cheap to clone, never block,
//! and talk to the thread by channels.
//!
//! ```text
//! storage node                                         compute node
//! StorageMover::start(StorageConfig)                   ComputeMover::start(ComputeConfig, on_completion, on_peer_lost)
//!   -> StorageHandle                                     -> ComputeHandle
//! handshake::accept(stream, .., |hello, peer|          handshake::dial(..) -> Dialed { stream, session, welcome }
//!     handle.welcome(hello, peer))                     handle.attach(node, welcome.generation, stream, session)
//! handle.accept(stream, session)                       handle.submit(TransferRequest { id, node, class, items })
//!                                                      .. on the mover's thread: on_completion(Completion)
//! handle.serve(BlockFiles)  adds or replaces           handle.cancel(id), handle.detach(node)
//! handle.stats(), handle.stop(within)                  handle.stats(), handle.stop(within)
//! ```
//!
//! Rules that hold for callers: a `TransferId` is never reused; every submitted request has exactly one completion;
//! before it the slots named in the request belong to the mover, after it never again. Callbacks run on the mover's
//! thread: they send a message and return.
//!
//! Reading order: transfer, cache_memory, backend, cores, block_files, storage, compute, probe.

// Mappings, memfd and O_DIRECT buffers need it; each use says why it is sound.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod transfer;

pub mod backend;
pub mod cache_memory;
pub mod cores;

pub mod block_files;
mod reader;
mod receive;
pub mod storage;

pub mod compute;
pub mod probe;

#[cfg(test)]
#[path = "../tests/support/data.rs"]
mod test_data;

pub use backend::{Backend, BackendChoice, DirectReads, StartError, StopTimeout};
pub use block_files::{BlockFiles, OpenError};
pub use cache_memory::{CacheMemory, CacheMemoryError, PageChoice, Pages};
pub use compute::{ComputeConfig, ComputeHandle, ComputeMover, ComputeStats};
pub use cores::{Placement, PlacementError, place_control};
pub use storage::{
    HotLevel, OnOwner, Owner, OwnerEvent, RelayId, StagingConfig, StorageConfig, StorageHandle, StorageMover,
    StorageStats,
};
pub use transfer::{
    Arrived, Completion, Destination, InvalidRequest, LossReason, PeerLost, ProtocolError, Stopped,
    TransferError, TransferItem, TransferRequest,
};
