//! What a compute node says of itself every few seconds: counters that only grow, and a few bounded lists.

use super::state::{BlockOf, Group};
use rudder_topology::{JobId, NodeId};
use serde::{Deserialize, Serialize};

/// Jobs, links, groups and blocks in a sample at most; the ones that matter most.
pub const JOBS_MAX: usize = 16;
pub const LINKS_MAX: usize = 64;
pub const GROUPS_MAX: usize = 8;
pub const BLOCKS_MAX: usize = 8;

/// A job's trainers on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSample {
    pub job: JobId,
    pub trainers: u32,
    /// Nanoseconds that they waited since the node's start, together.
    pub wait_ns: u64,
    /// Nanoseconds that they used minibatches since then, together: from when each was served to when the next was
    /// wanted. And how many those were.
    pub used_ns: u64,
    pub used_minibatches: u64,
    /// Minibatches announced and not released, of the trainer that has most.
    pub ahead: u32,
}

/// The link from a storage node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkSample {
    pub storage: NodeId,
    pub up: bool,
    /// Payload bytes that arrived since the node's start.
    pub arrived_bytes: u64,
    /// Bytes per second that rows came with lately while any were under way; 0 where that is not known.
    pub rate_bytes_s: u64,
    /// Of its permits, those that are out.
    pub permits_used: f32,
}

/// A compute node's sample, all its datasets together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComputeSample {
    pub jobs: Vec<JobSample>,
    pub links: Vec<LinkSample>,
    pub rows_wanted: u64,
    pub rows_resident: u64,
    /// Bytes of the distinct remote rows of each minibatch, resident or not.
    pub bytes_wanted: u64,
    pub bytes_demand: u64,
    pub bytes_prefetch: u64,
    pub minibatches_released: u64,
    /// Of all slots.
    pub cache_free: f32,
    /// Of all slots, those that an announced minibatch takes, on average.
    pub minibatch_share: f32,
    /// Of the blocks that other nodes store, those that the slots can hold; at most 1.
    pub holds_share: f32,
    /// Of all slots, those that all announced minibatches take, each for itself.
    pub window_share: f32,
    /// The mean of the machine's devices, 0 to 1; `None` where none says it.
    pub gpu_use: Option<f32>,
    /// Minibatches that are ready, all trainers together.
    pub ready: u32,
    /// Remote groups by the rows that announced minibatches want of them, most wanted first.
    pub wants: Vec<(Group, u64)>,
    /// Blocks that the oldest minibatches lack.
    pub next: Vec<BlockOf>,
}

impl ComputeSample {
    /// Adds another dataset of the same node.
    pub fn add(&mut self, other: ComputeSample) {
        for job in other.jobs {
            match self.jobs.iter_mut().find(|known| known.job == job.job) {
                Some(known) => {
                    known.trainers += job.trainers;
                    known.wait_ns += job.wait_ns;
                    known.used_ns += job.used_ns;
                    known.used_minibatches += job.used_minibatches;
                    known.ahead = known.ahead.max(job.ahead);
                }
                None => self.jobs.push(job),
            }
        }
        for link in other.links {
            match self.links.iter_mut().find(|known| known.storage == link.storage) {
                Some(known) => {
                    known.arrived_bytes += link.arrived_bytes;
                    // Datasets share the link: who has most of it shows what it carries.
                    known.rate_bytes_s = known.rate_bytes_s.max(link.rate_bytes_s);
                    known.permits_used = known.permits_used.max(link.permits_used);
                    known.up &= link.up;
                }
                None => self.links.push(link),
            }
        }
        self.rows_wanted += other.rows_wanted;
        self.rows_resident += other.rows_resident;
        self.bytes_wanted += other.bytes_wanted;
        self.bytes_demand += other.bytes_demand;
        self.bytes_prefetch += other.bytes_prefetch;
        self.minibatches_released += other.minibatches_released;
        self.cache_free = self.cache_free.min(other.cache_free);
        self.minibatch_share = self.minibatch_share.max(other.minibatch_share);
        self.holds_share = self.holds_share.min(other.holds_share);
        self.window_share = self.window_share.max(other.window_share);
        self.gpu_use = self.gpu_use.or(other.gpu_use);
        self.ready += other.ready;
        self.wants.extend(other.wants);
        self.next.extend(other.next);
        self.bound();
    }

    /// Keeps what matters most of each list.
    pub fn bound(&mut self) {
        self.jobs.sort_by_key(|job| (std::cmp::Reverse(job.wait_ns), job.job));
        self.jobs.truncate(JOBS_MAX);
        self.links.sort_by_key(|link| (std::cmp::Reverse(link.arrived_bytes), link.storage));
        self.links.truncate(LINKS_MAX);
        self.wants.sort_by_key(|&(group, rows)| (std::cmp::Reverse(rows), group));
        self.wants.truncate(GROUPS_MAX);
        self.next.truncate(BLOCKS_MAX);
    }

    /// Whether every list is within its bounds; what came from elsewhere may be anything.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.jobs.len() <= JOBS_MAX
            && self.links.len() <= LINKS_MAX
            && self.wants.len() <= GROUPS_MAX
            && self.next.len() <= BLOCKS_MAX
    }
}
