//! What to expect on one's own data and cluster: all arms simulated as things are, then with other caches, other
//! bandwidths and a longer window, and what the numbers say in plain words.
//!
//! Reading order: question, errors, whatif, perfect, cases, bottleneck, words, table, page.

mod bottleneck;
mod cases;
mod errors;
pub mod page;
mod perfect;
mod question;
pub mod table;
mod whatif;
mod words;

pub use bottleneck::Bottleneck;
pub use cases::advise;
pub use errors::AdviseError;
pub use question::Question;

use crate::record::Outcome;
use crate::report::Reference;
use serde::Serialize;

/// Everything that is printed and written. Shares and gains are fractions.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The dataset's name.
    pub dataset: String,
    /// The topology's file.
    pub topology: String,
    pub facts: Facts,
    /// As things are; the fastest first.
    pub arms: Vec<Outcome>,
    /// Compute and all-reduce alone.
    pub bound: Reference,
    /// Perfect knowledge and perfect overlap, with the same cache, blocks and links.
    pub oracle: Option<Reference>,
    /// With the fastest arm; the busiest first.
    pub links: Vec<LinkFact>,
    pub bottleneck: Bottleneck,
    /// By size. What the topology says is among them.
    pub cache: Vec<CacheCase>,
    /// By factor. 1 is among them.
    pub bandwidth: Vec<BandwidthCase>,
    /// Twice the minibatches announced ahead; `None` where the fastest arm does not look ahead.
    pub window: Option<Outcome>,
    /// The advice in sentences.
    pub words: Vec<String>,
    /// What to keep in mind.
    pub caveats: Vec<String>,
}

/// What was simulated.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    pub compute_nodes: u32,
    pub storage_nodes: u32,
    pub trainers_per_node: u32,
    pub seeds: u32,
    pub fanout: Vec<u32>,
    pub window: u32,
    pub compute_ms: f64,
    pub allreduce_bytes: u64,
    /// Of each trainer, and how many epochs that is.
    pub minibatches: u64,
    pub epochs: f64,
    pub seed: u64,
    pub vertices: u64,
    pub edges: u64,
    pub row_bytes: u64,
    pub rows_per_block: u32,
    /// Distinct rows of a minibatch: the mean.
    pub rows_per_minibatch: f64,
    /// Cache that the largest minibatch needs, in whole blocks.
    pub minibatch_cache_bytes: u64,
    /// Of the compute node that has least of it.
    pub cache_bytes: u64,
    /// Bytes of features that a compute node has to fetch from others, of the node that has most of them.
    pub remote_bytes: u64,
    /// What limits how far trainers announce ahead, where that is less than the window.
    pub announced_max: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkFact {
    /// Such as "the uplink of storage node s0".
    pub name: String,
    pub mbit_per_s: f64,
    /// Share of the time that it carries something at its full rate.
    pub busy: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct CacheCase {
    /// Of the remote bytes of each compute node.
    pub share: f64,
    /// Of the compute node that has least of it.
    pub cache_bytes: u64,
    /// Whether this is what the topology says.
    pub is_topologys: bool,
    pub arms: Vec<Outcome>,
}

#[derive(Clone, Debug, Serialize)]
pub struct BandwidthCase {
    /// Of every link's.
    pub factor: f64,
    pub bound: Reference,
    pub arms: Vec<Outcome>,
}

#[cfg(test)]
mod tests;
