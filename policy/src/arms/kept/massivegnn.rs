//! MassiveGNN (Sarkar et al., 2024): a buffer of halo blocks, those of highest in-degree at first, in which what is not
//! hit any more is replaced from time to time by what was missed most.
//!
//! As published, in units of blocks (with one row a block, of vertices): the buffer holds ⌊f·|halo|⌋ blocks. A member's
//! eviction score S_E begins at 1 and is multiplied by 1 - α with each minibatch that does not hit it; the access
//! score S_A of a halo block outside rises by 1 with each minibatch that misses it. When a controller says so (every Δ
//! minibatches, for MassiveGNN itself), members with S_E at or below (1 - α)^Δ, in order of ids, make room for the
//! blocks of highest S_A above 0. A newcomer's S_E is its S_A, an evicted block's S_A is its S_E.
//!
//! Choices: the published code rounds (1 - α)^Δ to three digits and compares by `<`, so that whether a member that was
//! never hit in Δ minibatches goes depends on α; here it goes. It does not count the misses of the minibatch at
//! which it replaces; here they count, after the replacement. One buffer serves all trainers of the node (published:
//! one a trainer), and a minibatch counts when it is released. Tables have a buffer each.

use super::{Choice, Ground, Members};
use crate::arms::controller::{Controller, Measured};
use rudder_graph::BlockRows;
use rudder_topology::{BlockId, MassiveGnnSpec, TableId};

pub(in super::super) struct MassiveGnn {
    /// ln(1 - α), below 0.
    decay: f64,
    /// ln of the score at or below which a member is stale.
    stale: f64,
    controller: Box<dyn Controller>,
    /// Table of each halo block, [`OUTSIDE`] for all others.
    halo: Vec<u16>,
    /// S_A of blocks outside; of members the score they joined with.
    scores: Vec<f32>,
    /// Of members: minibatches before the joining plus hits since. What is left to the number of minibatches are those
    /// that did not hit it.
    spared: Vec<u32>,
    /// Members and missed blocks by table.
    buffers: Vec<Buffer>,
    minibatches: u32,
    last_replacement: u32,
}

#[derive(Default)]
struct Buffer {
    members: Vec<BlockId>,
    /// Blocks outside with S_A above 0.
    missed: Vec<BlockId>,
}

const OUTSIDE: u16 = u16::MAX;
/// Scores that should be equal differ by rounding.
const TOLERANCE: f64 = 1e-9;

impl MassiveGnn {
    pub fn new(
        spec: MassiveGnnSpec,
        controller: Box<dyn Controller>,
        ground: &Ground,
        members: &mut Members,
    ) -> Self {
        let blocks = ground.book.blocks() as usize;
        let decay = (1.0 - spec.alpha.as_f64()).ln();
        let mut choice = MassiveGnn {
            decay,
            stale: decay * f64::from(spec.delta),
            controller,
            halo: vec![OUTSIDE; blocks],
            scores: vec![0.0; blocks],
            spared: vec![0; blocks],
            buffers: vec![],
            minibatches: 0,
            last_replacement: 0,
        };
        for table in ground.tables() {
            let mut ranked = ground.ranked(table);
            for block in &ranked {
                choice.halo[block.index()] = table.0;
            }
            let size = (spec.fraction.as_f64() * ranked.len() as f64) as usize;
            ranked.truncate(size.min(ground.slots(table)));
            for &block in &ranked {
                choice.scores[block.index()] = 1.0;
                members.join(block, table);
            }
            ranked.sort_unstable();
            choice.buffers.push(Buffer { members: ranked, missed: vec![] });
        }
        choice
    }

    /// ln S_E of a member.
    fn eviction_score(&self, block: BlockId) -> f64 {
        let idle = self.minibatches - self.spared[block.index()];
        f64::from(self.scores[block.index()]).ln() + f64::from(idle) * self.decay
    }

    /// S_E of a member in single precision, as published: equal scores stay equal whichever way they came about.
    fn rounded(&self, block: BlockId) -> f32 {
        self.eviction_score(block).exp() as f32
    }

    fn replace(&mut self, table: usize, members: &mut Members) {
        let mut buffer = std::mem::take(&mut self.buffers[table]);
        buffer.members.retain(|&block| members.contains(block));
        let stale = buffer.members.iter().copied();
        let mut stale: Vec<_> =
            stale.filter(|&block| self.eviction_score(block) <= self.stale + TOLERANCE).collect();
        let score = |block: &BlockId| self.scores[block.index()];
        buffer.missed.retain(|block| !members.contains(*block) && score(block) > 0.0);
        buffer.missed.sort_by(|a, b| score(b).total_cmp(&score(a)).then(a.cmp(b)));
        buffer.missed.dedup();
        stale.truncate(buffer.missed.len());
        let newcomers: Vec<_> = buffer.missed.drain(..stale.len()).collect();
        for &block in &stale {
            self.scores[block.index()] = self.rounded(block);
            buffer.missed.push(block);
            members.leave(block);
        }
        for &block in &newcomers {
            self.spared[block.index()] = self.minibatches;
            members.join(block, TableId(table as u16));
        }
        buffer.members.retain(|&block| members.contains(block));
        buffer.members.extend(newcomers);
        buffer.members.sort_unstable();
        self.buffers[table] = buffer;
    }
}

impl Choice for MassiveGnn {
    fn used(&mut self, blocks: &[BlockRows], members: &mut Members) {
        self.minibatches += 1;
        let halo = blocks.iter().map(|rows| rows.block).filter(|block| self.halo[block.index()] != OUTSIDE);
        let (hits, misses): (Vec<_>, Vec<_>) = halo.partition(|&block| members.contains(block));
        for block in &hits {
            self.spared[block.index()] += 1;
        }
        let measured = Measured {
            minibatch: u64::from(self.minibatches),
            hits: hits.len() as u32,
            misses: misses.len() as u32,
            since_replacement: self.minibatches - self.last_replacement,
        };
        if self.controller.replaces(&measured) {
            self.last_replacement = self.minibatches;
            for table in 0..self.buffers.len() {
                self.replace(table, members);
            }
        }
        for block in misses {
            if members.contains(block) {
                continue;
            }
            let score = &mut self.scores[block.index()];
            if *score == 0.0 {
                self.buffers[usize::from(self.halo[block.index()])].missed.push(block);
            }
            *score += 1.0;
        }
    }

    /// As one that is evicted, without a newcomer: the buffer has a place less.
    fn yielded(&mut self, block: BlockId) {
        self.scores[block.index()] = self.rounded(block);
        self.buffers[usize::from(self.halo[block.index()])].missed.push(block);
    }

    fn returned(&mut self, block: BlockId) {
        self.spared[block.index()] = self.minibatches;
    }

    fn by_value(&self, table: TableId, members: &Members) -> Vec<BlockId> {
        let all = self.buffers.get(table.index()).into_iter().flat_map(|buffer| &buffer.members);
        let mut all: Vec<_> = all.copied().filter(|&block| members.contains(block)).collect();
        all.sort_by(|&a, &b| self.rounded(b).total_cmp(&self.rounded(a)).then(a.cmp(&b)));
        all
    }

    fn memory_bytes(&self) -> usize {
        let listed: usize = self.buffers.iter().map(|b| b.members.capacity() + b.missed.capacity()).sum();
        let scores = self.scores.capacity() * (size_of::<f32>() + size_of::<u32>() + size_of::<u16>());
        scores + listed * size_of::<BlockId>()
    }
}
