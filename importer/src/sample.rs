//! Minibatches sampled from the graph as a trainer would, to weigh block sizes.

use crate::block_size::{TradeOff, WINDOW};
use crate::csc::Adjacency;
use crate::error::ImportError;
use crate::numbering::Numbering;
use crate::options::ImportOptions;
use crate::progress::{Phase, Run, Total};
use rudder_graph::random::Key;
use rudder_graph::sampler::{SampleKey, Sampler};
use rudder_topology::VertexId;

/// Windows that are sampled at most.
const WINDOWS_MAX: usize = 8;

/// Samples windows of minibatches over `train` (original ids; over all vertices if it is empty) and weighs all block
/// sizes over them.
pub(crate) fn weigh(
    graph: &Adjacency,
    numbering: &Numbering,
    train: &[u32],
    row_bytes: u64,
    options: &ImportOptions,
    run: &mut Run<'_>,
) -> Result<TradeOff, ImportError> {
    let csc = graph.csc()?;
    let mut trade_off = TradeOff::new(row_bytes);
    let seeds = match train {
        [] => shuffled(&numbering.original, options),
        train => shuffled(train, options),
    };
    let minibatches: Vec<&[VertexId]> =
        seeds.chunks(options.seeds as usize).take(WINDOWS_MAX * WINDOW).collect();
    let mut sampler = Sampler::new(options.fanout.clone());
    run.begin(Phase::BlockSize, Total::Items(minibatches.len() as u64));
    for (window, minibatches) in minibatches.chunks(WINDOW).enumerate() {
        let mut rows = Vec::new();
        for (position, seeds) in minibatches.iter().enumerate() {
            let minibatch = (window * WINDOW + position) as u64;
            let key = SampleKey { seed: options.seed, epoch: 0, minibatch };
            rows.extend(sampler.sample(csc, key, seeds).iter().map(|v| numbering.dataset[v.index()]));
            run.advance(1)?;
        }
        rows.sort_unstable();
        rows.dedup();
        trade_off.add(minibatches.len() as u64, &rows, &numbering.part_offsets);
    }
    run.end(Phase::BlockSize);
    Ok(trade_off)
}

/// The first seeds of an epoch: as many as the windows take, drawn without repeats.
fn shuffled(train: &[u32], options: &ImportOptions) -> Vec<VertexId> {
    let key = Key::new(options.seed).with(SHUFFLE_STREAM);
    let mut drawn: Vec<(u64, u32)> = train.iter().map(|&v| (key.draw(u64::from(v)), v)).collect();
    let count = drawn.len().min(WINDOWS_MAX * WINDOW * options.seeds as usize);
    if count > 0 && count < drawn.len() {
        drawn.select_nth_unstable(count);
    }
    drawn.truncate(count);
    drawn.sort_unstable();
    drawn.into_iter().map(|(_, v)| VertexId(v)).collect()
}

/// Names the draws of shuffles among all that the seed is used for.
const SHUFFLE_STREAM: u64 = 0x5e3d;
