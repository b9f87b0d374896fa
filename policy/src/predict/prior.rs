//! What can be said of blocks before any was used: from the graph and the training set alone.

use super::{Certainty, Horizon, Predictor};
use rudder_graph::demand::{Demand, DemandMapper};
use rudder_graph::trace::{Trace, TraceSpec};
use rudder_graph::{Csc, PartitionBook, vip};
use rudder_topology::{BlockId, MinibatchId, TableId, TrainerRank, VertexId};
use std::sync::Arc;

/// Minibatches that are sampled to learn how many blocks one uses, where a prior knows the order of blocks only.
const SCALE_MINIBATCHES: u64 = 8;

/// How a prior is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorKind {
    /// In-degree (PaGraph, Quiver): a block weighs the sum of its vertices' in-degrees, w; its expected uses are
    /// 1 - exp(-c w), with c such that they sum to the blocks of a sampled minibatch.
    Degree,
    /// Visit counts over `epochs` epochs, sampled with a seed of their own (GNNLab's PreSC#K, K = 1 there).
    Presc { epochs: u32 },
    /// 1 - prod over the block's vertices of (1 - p_0(v)) (1 - VIP(v)), VIP as in SALIENT++. There, seeds are of the
    /// trainer's own part and cost nothing; here they are dealt from all parts, so p_0 counts.
    Vip,
}

/// What is trained, as far as it decides which vertices minibatches touch.
#[derive(Clone, Copy, Debug)]
pub struct Training<'a> {
    pub graph: Csc<'a>,
    pub book: &'a PartitionBook,
    /// The feature table whose rows are the graph's vertices; blocks of other tables get 0.
    pub table: TableId,
    /// Training vertices; empty for every vertex.
    pub train_ids: &'a [VertexId],
    /// Neighbours sampled per hop, hop 1 first.
    pub fanout: &'a [u32],
    /// Seeds of one minibatch of one trainer; 0 counts as 1.
    pub seeds_per_minibatch: u32,
    /// For what is sampled; need not be the trainers' seed.
    pub seed: u64,
}

impl<'a> Training<'a> {
    fn trace(&self) -> Trace<'a> {
        let spec = TraceSpec {
            seed: self.seed,
            rank: TrainerRank(0),
            world: 1,
            seeds: self.seeds_per_minibatch,
            fanout: self.fanout.to_vec(),
        };
        Trace::new(spec, self.graph, self.train_ids.to_vec())
    }
}

/// Expected uses per minibatch of every block, by index. The same arguments give the same answer.
///
/// Cost: `Degree` O(blocks + vertices), `Vip` O(hops x edges), `Presc` that of sampling its epochs.
#[must_use]
pub fn prior(kind: PriorKind, training: &Training<'_>) -> Arc<[f32]> {
    match kind {
        PriorKind::Degree => degree(training),
        PriorKind::Presc { epochs } => visits(training, u64::from(epochs)),
        PriorKind::Vip => inclusion(training),
    }
}

/// Adds each vertex's weight to its block's.
fn by_block(training: &Training<'_>, weight: impl Fn(VertexId) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; training.book.blocks() as usize];
    for vertex in 0..training.graph.vertices() {
        if let Some(place) = training.book.locate(training.table, vertex) {
            sums[place.block.index()] += weight(VertexId(vertex as u32));
        }
    }
    sums
}

fn degree(training: &Training<'_>) -> Arc<[f32]> {
    let weights = by_block(training, |vertex| training.graph.in_degree(vertex) as f64);
    let mut counts = Counts::new(training);
    let mut trace = training.trace();
    let minibatches = trace.epoch_minibatches().min(SCALE_MINIBATCHES);
    (0..minibatches).for_each(|m| counts.add(trace.rows(MinibatchId(m))));
    let target = counts.uses.iter().map(|&uses| f64::from(uses)).sum::<f64>() / minibatches.max(1) as f64;
    let total = |scale: f64| weights.iter().map(|w| -(-scale * w).exp_m1()).sum::<f64>();
    // No more blocks can be used than have any weight; doubling, then halving the interval, ends at either.
    let (mut low, mut high) = (0.0, 1.0 / weights.iter().sum::<f64>().max(1.0));
    while total(high) < target && high < 1e3 {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if total(middle) < target { low = middle } else { high = middle }
    }
    weights.iter().map(|w| -(-high * w).exp_m1() as f32).collect()
}

fn inclusion(training: &Training<'_>) -> Arc<[f32]> {
    let all: Vec<VertexId>;
    let train_ids = if training.train_ids.is_empty() {
        all = (0..training.graph.vertices() as u32).map(VertexId).collect();
        &all
    } else {
        training.train_ids
    };
    let batch = training.seeds_per_minibatch.max(1) as usize;
    let reached = vip::inclusion(training.graph, train_ids, batch, training.fanout);
    let p_seed = (batch as f64 / train_ids.len().max(1) as f64).min(1.0);
    let mut is_seed = vec![false; reached.len()];
    for vertex in train_ids {
        if let Some(seed) = is_seed.get_mut(vertex.index()) {
            *seed = true;
        }
    }
    let missed = by_block(training, |vertex| {
        let p_seed = if is_seed[vertex.index()] { p_seed } else { 0.0 };
        (-reached[vertex.index()]).ln_1p() + (-p_seed).ln_1p()
    });
    missed.into_iter().map(|log| -log.exp_m1() as f32).collect()
}

fn visits(training: &Training<'_>, epochs: u64) -> Arc<[f32]> {
    let mut counts = Counts::new(training);
    let mut trace = training.trace();
    let minibatches = trace.epoch_minibatches().saturating_mul(epochs);
    (0..minibatches).for_each(|m| counts.add(trace.rows(MinibatchId(m))));
    counts.per_minibatch()
}

/// In how many minibatches each block was used.
pub(super) struct Counts<'a> {
    book: &'a PartitionBook,
    table: TableId,
    mapper: DemandMapper,
    demand: Demand,
    uses: Vec<u32>,
    minibatches: u64,
}

impl<'a> Counts<'a> {
    pub fn new(training: &Training<'a>) -> Self {
        Counts {
            book: training.book,
            table: training.table,
            mapper: DemandMapper::default(),
            demand: Demand::default(),
            uses: vec![0; training.book.blocks() as usize],
            minibatches: 0,
        }
    }

    /// One minibatch reads these vertices. Those that the table has no row for are not counted.
    pub fn add(&mut self, rows: &[u32]) {
        self.minibatches += 1;
        if self.mapper.map_into(self.book, self.table, rows, &mut self.demand).is_ok() {
            for rows in &self.demand.blocks {
                self.uses[rows.block.index()] += 1;
            }
        }
    }

    pub fn per_minibatch(&self) -> Arc<[f32]> {
        let minibatches = self.minibatches.max(1) as f64;
        self.uses.iter().map(|&uses| (f64::from(uses) / minibatches) as f32).collect()
    }
}

/// A prior as a predictor.
#[derive(Clone, Debug)]
pub struct Prior {
    kind: PriorKind,
    uses: Arc<[f32]>,
}

impl Prior {
    #[must_use]
    pub fn new(kind: PriorKind, training: &Training<'_>) -> Self {
        Prior { kind, uses: prior(kind, training) }
    }
}

impl Predictor for Prior {
    fn horizon(&self) -> Horizon {
        match self.kind {
            PriorKind::Degree => Horizon::Endless,
            PriorKind::Presc { .. } | PriorKind::Vip => Horizon::Epoch,
        }
    }

    fn certainty(&self) -> Certainty {
        Certainty::Likelihood
    }

    fn expected_uses(&self, block: BlockId) -> f32 {
        self.uses.get(block.index()).copied().unwrap_or(0.0)
    }
}
