//! Whether prefetching pays: what every minibatch cost its trainer, beside what it would have cost under demand caching.

use super::Engine;
use crate::geometry::Geometry;
use crate::guard::{Guard, Prefetching, Served};
use crate::links::LinkId;
use crate::shadow::Shadow;
use crate::view::Facts;
use crate::window::{EntryId, Phase};
use rudder_topology::{Bytes, TableId};
use rustc_hash::FxHashMap;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Benefit {
    /// One for each table.
    shadows: Vec<Shadow>,
    guard: Guard,
    /// Of minibatches that are waited for: what the wait would be under demand caching, in nanoseconds.
    demand_wait_ns: FxHashMap<EntryId, u64>,
    /// Rows that the demand arm would have missed, from the sample.
    pub rows_missed: f64,
}

impl Benefit {
    pub fn new(geometry: &Geometry) -> Self {
        let slots = |t| geometry.class_slots(TableId(t as u16)).len() as u32;
        Benefit {
            shadows: (0..geometry.classes()).map(|t| Shadow::new(slots(t))).collect(),
            guard: Guard::default(),
            demand_wait_ns: FxHashMap::default(),
            rows_missed: 0.0,
        }
    }

    /// The cache has so many slots for a table now.
    pub fn resize(&mut self, table: TableId, slots: u32) {
        if let Some(shadow) = self.shadows.get_mut(table.index()) {
            shadow.resize(slots);
        }
    }

    pub fn switches(&self) -> u32 {
        self.guard.switches()
    }

    pub fn forget(&mut self, id: EntryId) {
        self.demand_wait_ns.remove(&id);
    }

    /// A trainer asks for a minibatch: lets the demand arm in miniature fetch it. What it misses comes over its links
    /// side by side, at the rates at which rows come now.
    fn asked(&mut self, id: EntryId, facts: &Facts, now_ns: u64) {
        let Some(entry) = facts.window.entry(id) else { return };
        let mut on_link: FxHashMap<LinkId, f64> = FxHashMap::default();
        for segment in &entry.segments {
            let Some(shadow) = self.shadows.get_mut(segment.table.index()) else { continue };
            let blocks = &entry.blocks[segment.start as usize..segment.end as usize];
            let missed: u32 = blocks.iter().filter_map(|&rows| shadow.used(rows)).map(u64::count_ones).sum();
            let rows = f64::from(missed) / shadow.share().max(f64::MIN_POSITIVE);
            self.rows_missed += rows;
            let Some(first) = blocks.first() else { continue };
            if let Some((id, _)) = facts.links.good_sources(segment.part, first.block).next() {
                let row_bytes = f64::from(facts.book.row_bytes(segment.table).unwrap_or(0));
                *on_link.entry(id).or_default() += rows * row_bytes;
            }
        }
        let time_ns = |(id, bytes): (LinkId, f64)| {
            let link = facts.links.link(id)?;
            (bytes > 0.0).then(|| {
                link.bandwidth(now_ns).time_for(Bytes(bytes as u64)).0.saturating_add(link.cost.latency.0)
            })
        };
        let slowest_ns = on_link.into_iter().filter_map(time_ns).max().unwrap_or(0);
        self.demand_wait_ns.insert(id, slowest_ns);
    }

    fn served(&mut self, id: EntryId, wait_ns: u64, step_ns: f64) -> Option<Prefetching> {
        let demand_wait_ns = self.demand_wait_ns.remove(&id)?;
        Some(self.guard.served(Served { wait_ns, demand_wait_ns, step_ns: step_ns as u64 }))
    }
}

impl Engine {
    /// A trainer began to wait, or found its minibatch ready.
    pub(super) fn note_asked(&mut self, id: EntryId, now_ns: u64) {
        let Some(benefit) = &mut self.benefit else { return };
        benefit.asked(id, &self.facts, now_ns);
        if self.facts.window.entry(id).is_some_and(|entry| entry.phase == Phase::Ready) {
            self.note_served(id, 0);
        }
    }

    /// A trainer got its minibatch after this wait.
    pub(super) fn note_served(&mut self, id: EntryId, wait_ns: u64) {
        let Some(benefit) = &mut self.benefit else { return };
        let Some(entry) = self.facts.window.entry(id) else { return };
        let step_ns = self.facts.window.step_ns(entry.trainer);
        if let Some(prefetching) = benefit.served(id, wait_ns, step_ns) {
            self.facts.prefetching = prefetching;
        }
        self.statistics.rows_missed_by_demand = benefit.rows_missed as u64;
        self.statistics.guard_switches = u64::from(benefit.switches());
    }
}
