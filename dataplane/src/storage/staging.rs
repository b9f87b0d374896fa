//! What a storage mover needs to serve blocks that other nodes own, and what it asks of its actor.

use rudder_topology::{Bytes, DatasetName, NodeId, PartId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How blocks of other nodes are served.
#[derive(Clone, Debug)]
pub struct StagingConfig {
    /// Memory for the copies of one dataset's blocks.
    pub bytes_max: Bytes,
    /// `owners[dataset][part]`: the nodes that store it, cheapest first. Empty where this node is one of them: it is
    /// asked by others then, and asks nobody.
    pub owners: HashMap<DatasetName, Vec<Vec<NodeId>>>,
    /// Rows that have not come after so long are given up: as long as compute nodes wait.
    pub request_timeout: Duration,
    /// An owner of which nothing was heard for so long is lost.
    pub peer_timeout: Duration,
    pub on_owner: OnOwner,
}

/// Called on the mover's thread: it sends a message and returns.
#[derive(Clone)]
pub struct OnOwner(pub Arc<dyn Fn(OwnerEvent) + Send + Sync>);

impl std::fmt::Debug for OnOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnOwner(..)")
    }
}

/// A dataset's relayed requests from when it is served until it is pushed anew. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayId(pub(super) u64);

/// An owner that is to be dialed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub relay: RelayId,
    pub node: NodeId,
    pub dataset: DatasetName,
    /// The manifest's digest; another one there is another dataset.
    pub digest: String,
    /// What is asked of it.
    pub parts: Vec<PartId>,
}

/// What the actor of a storage mover is told.
#[derive(Debug)]
pub enum OwnerEvent {
    /// Dial it and keep it connected, each time with [`crate::StorageHandle::owner_up`]; where that fails, say
    /// [`crate::StorageHandle::owner_down`] and go on. Said once for each.
    Wanted(Owner),
    /// Its connection ended: dial again.
    Lost(RelayId, crate::transfer::PeerLost),
    /// None of its owners is wanted any more.
    Ended(RelayId),
}
