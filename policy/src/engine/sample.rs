//! What the slow loop is told of an engine.

use super::Engine;
use crate::advice::sample::{BLOCKS_MAX, ComputeSample, JobSample, LinkSample};
use crate::advice::state::{BlockOf, DatasetIndex, Group, GroupSet};
use crate::links::LinkId;
use crate::window::Phase;
use rudder_topology::{JobId, PartId, TableId};
use std::collections::BTreeMap;

/// Blocks looked at for those that a minibatch lacks.
const LOOK_MAX: usize = 4096;

impl Engine {
    /// A sample of this engine, which is of that dataset. Its cost does not grow with blocks or slots.
    #[must_use]
    pub fn sample(&self, dataset: DatasetIndex) -> ComputeSample {
        let (window, cache, links) = (&self.facts.window, &self.facts.cache, &self.facts.links);
        let tables = (0..self.facts.book.tables()).map(|table| TableId(table as u16));
        let (mut slots, mut free) = (0, 0);
        for table in tables.clone() {
            slots += cache.slots(table);
            free += cache.free_slots(table);
        }
        let parts = (0..self.facts.book.parts()).map(|part| PartId(part as u16));
        let remote = parts.filter(|&part| !links.replicas(part).is_empty());
        let remote: usize = remote
            .map(|part| {
                tables.clone().map(|table| self.facts.book.part_blocks(table, part).len()).sum::<usize>()
            })
            .sum();
        let staged = |node| links.link(LinkId { node, staged: true });
        let own = links.links().filter(|(id, _)| !id.staged);
        let links = own.map(|(id, link)| LinkSample {
            storage: id.node,
            up: link.up.is_some(),
            arrived_bytes: link.arrived_bytes + staged(id.node).map_or(0, |staged| staged.arrived_bytes),
            rate_bytes_s: link.rate.last_bytes_per_s().map_or(0, |rate| rate as u64),
            permits_used: link.in_flight_bytes as f32 / link.window.in_flight_max.max(1) as f32,
        });
        let entries = || window.trainers().flat_map(|t| window.queue(t)).filter_map(|id| window.entry(id));
        let (announced, blocks) = entries().fold((0, 0), |(n, blocks), e| (n + 1, blocks + e.blocks.len()));
        let mut sample = ComputeSample {
            jobs: self.job_samples(),
            links: links.collect(),
            rows_wanted: self.statistics.rows_wanted,
            rows_resident: self.statistics.rows_resident,
            bytes_wanted: self.statistics.distinct_bytes_wanted,
            bytes_demand: self.statistics.bytes_demand,
            bytes_prefetch: self.statistics.bytes_prefetch,
            minibatches_released: self.statistics.minibatches_released,
            cache_free: free as f32 / slots.max(1) as f32,
            holds_share: (slots as f32 / remote.max(1) as f32).min(1.0),
            minibatch_share: blocks as f32 / announced.max(1) as f32 / slots.max(1) as f32,
            window_share: blocks as f32 / slots.max(1) as f32,
            // A device belongs to the machine, not to an engine.
            gpu_use: None,
            ready: entries().filter(|entry| entry.phase == Phase::Ready).count() as u32,
            wants: self.wanted_parts(dataset),
            next: self.lacking(dataset),
        };
        sample.bound();
        sample
    }

    fn job_samples(&self) -> Vec<JobSample> {
        let mut jobs: BTreeMap<JobId, JobSample> = BTreeMap::new();
        for trainer in self.facts.window.trainers() {
            let times = self.times.of(trainer.job);
            let job = jobs.entry(trainer.job).or_insert(JobSample {
                job: trainer.job,
                trainers: 0,
                wait_ns: times.wait_ns,
                used_ns: times.used_ns,
                used_minibatches: times.used,
                ahead: 0,
            });
            job.trainers += 1;
            job.ahead = job.ahead.max(self.facts.window.queued(trainer) as u32);
        }
        jobs.into_values().collect()
    }

    /// Rows that announced minibatches want of each part's hot blocks' part, by blocks: segments tell it without a
    /// look at any block.
    fn wanted_parts(&self, dataset: DatasetIndex) -> Vec<(Group, u64)> {
        let window = &self.facts.window;
        let mut parts: BTreeMap<PartId, u64> = BTreeMap::new();
        for trainer in window.trainers() {
            for entry in window.queue(trainer).filter_map(|id| window.entry(id)) {
                for segment in &entry.segments {
                    *parts.entry(segment.part).or_default() += u64::from(segment.end - segment.start);
                }
            }
        }
        parts.into_iter().map(|(part, rows)| (Group { dataset, part, set: GroupSet::Hot }, rows)).collect()
    }

    /// Some blocks that the trainers' oldest minibatches lack.
    fn lacking(&self, dataset: DatasetIndex) -> Vec<BlockOf> {
        let window = &self.facts.window;
        let oldest = window.trainers().filter_map(|trainer| window.entry(window.queue(trainer).next()?));
        let blocks = oldest.flat_map(|entry| entry.blocks.iter()).take(LOOK_MAX);
        let lacking = blocks.filter(|rows| rows.mask & !self.facts.cache.valid(rows.block) != 0);
        lacking.take(BLOCKS_MAX).map(|rows| BlockOf { dataset, block: rows.block }).collect()
    }
}
