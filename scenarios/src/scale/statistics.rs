//! A graph too large to hold, as statistics: how many vertices, of what degrees, reached in how many hops.
//!
//! Spatial sampling as in SHARDS (Waldspurger, Park, Garthwaite and Ahmad, FAST 2015): of the vertices one in `rate`
//! is looked at, in every minibatch the same ones; so reuse, popularity and the cache's share of the rows stay what
//! they are, and everything that is counted in rows is `rate` times smaller. A sampled row stands for `rate` rows and
//! is as many bytes.

use crate::workload::Tables;
use rudder_graph::manifest::FORMAT_VERSION;
use rudder_graph::random::Key;
use rudder_graph::{Dtype, Manifest, PartitionBook, TableSpec};
use rudder_topology::{DatasetName, TableId, TableName, TrainerRank};
use std::str::FromStr;

/// `powerlaw:vertices=100000000,degree=16,exponent=2.2,row_bytes=512,rate=1000`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    pub vertices: u64,
    /// Mean degree.
    pub degree: f64,
    /// Of the degrees' power law: P(degree >= d) falls with d^(1 - exponent).
    pub exponent: f64,
    pub row_bytes: u32,
    /// One vertex in so many is looked at.
    pub rate: u32,
}

impl FromStr for Statistics {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "powerlaw:vertices=100000000,degree=16,exponent=2.2,row_bytes=512,rate=1000";
        let pairs = text.strip_prefix("powerlaw:").ok_or_else(|| format!("write {example}"))?;
        let mut read = Statistics { vertices: 0, degree: 16.0, exponent: 2.2, row_bytes: 512, rate: 1000 };
        for pair in pairs.split(',') {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| format!("`{pair}` is no key=value; write {example}"))?;
            let bad = || format!("`{value}` is no value of `{key}`; write {example}");
            match key.trim() {
                "vertices" => read.vertices = value.trim().parse().map_err(|_| bad())?,
                "degree" => read.degree = value.trim().parse().map_err(|_| bad())?,
                "exponent" => read.exponent = value.trim().parse().map_err(|_| bad())?,
                "row_bytes" => read.row_bytes = value.trim().parse().map_err(|_| bad())?,
                "rate" => read.rate = value.trim().parse().map_err(|_| bad())?,
                other => return Err(format!("there is no `{other}`; write {example}")),
            }
        }
        read.check().map(|()| read)
    }
}

impl Statistics {
    fn check(&self) -> Result<(), String> {
        let sampled = self.vertices / u64::from(self.rate.max(1));
        if self.rate == 0 || !(1_000..=10_000_000).contains(&sampled) {
            return Err(format!("vertices / rate is {sampled}; it lies between 1000 and 10000000"));
        }
        if !(1.0..=10_000.0).contains(&self.degree) || !(2.05..=10.0).contains(&self.exponent) {
            return Err("degree lies between 1 and 10000, exponent between 2.05 and 10".to_owned());
        }
        let row = u64::from(self.row_bytes) * u64::from(self.rate);
        if !self.row_bytes.is_multiple_of(4) || row == 0 || row > 64 << 20 {
            return Err("row_bytes is a multiple of 4, and row_bytes x rate at most 64 MiB".to_owned());
        }
        Ok(())
    }

    /// Vertices that are looked at.
    #[must_use]
    pub fn sampled(&self) -> u32 {
        (self.vertices / u64::from(self.rate)) as u32
    }

    /// The sampled rows, as large as the rows that they stand for, in equal parts.
    #[must_use]
    pub fn book(&self, parts: u32) -> PartitionBook {
        let rows = u64::from(self.sampled());
        let offsets: Vec<u64> = (0..=u64::from(parts)).map(|part| rows * part / u64::from(parts)).collect();
        PartitionBook::new(&Manifest {
            format: FORMAT_VERSION,
            name: DatasetName::new("statistics").expect("letters"),
            vertices: rows,
            edges: 0,
            digest: String::new(),
            part_offsets: offsets.clone(),
            graphs: Vec::new(),
            tables: vec![TableSpec {
                name: TableName::new("features").expect("letters"),
                dim: self.row_bytes / 4 * self.rate,
                dtype: Dtype::F32,
                rows_per_block: 1,
                row_offsets: offsets,
            }],
            files: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// Degrees of the sampled vertices: the power law's quantiles, scaled to the mean.
    fn degrees(&self) -> Vec<f64> {
        let sampled = f64::from(self.sampled());
        let slope = -1.0 / (self.exponent - 1.0);
        // No vertex of a graph has more neighbours than there are vertices.
        let most = self.vertices as f64;
        let quantile = |at: u32| (1.0 - (f64::from(at) + 0.5) / sampled).powf(slope).min(most);
        let mut degrees: Vec<f64> = (0..self.sampled()).map(quantile).collect();
        let factor = self.degree * sampled / degrees.iter().sum::<f64>();
        degrees.iter_mut().for_each(|degree| *degree = (*degree * factor).max(1.0));
        degrees
    }
}

/// Draws minibatches.
#[derive(Debug)]
pub struct Minibatches {
    rows: u32,
    step: u32,
    by_degree: Alias,
    /// Expected sampled picks: of the seeds, and of all hops together.
    seeds: f64,
    neighbours: f64,
}

impl Minibatches {
    /// Of `seeds` seeds and `fanout` neighbours a hop. The seeds are any vertices; a neighbour is a vertex in
    /// proportion to its degree, as where edges are drawn at random between given degrees.
    #[must_use]
    pub fn new(statistics: &Statistics, seeds: u32, fanout: &[u32]) -> Self {
        let degrees = statistics.degrees();
        let (sum, count) = (degrees.iter().sum::<f64>(), degrees.len() as f64);
        let mean_of = |fanout: u32, weight: &dyn Fn(f64) -> f64| {
            degrees.iter().map(|&degree| weight(degree) * degree.min(f64::from(fanout))).sum::<f64>()
        };
        let (mut frontier, mut neighbours) = (f64::from(seeds), 0.0);
        for (hop, &fanout) in fanout.iter().enumerate() {
            // Seeds are as all vertices; whoever is reached over an edge has a degree in proportion to it.
            let picks = if hop == 0 {
                mean_of(fanout, &|_| 1.0 / count)
            } else {
                mean_of(fanout, &|degree| degree / sum)
            };
            frontier *= picks;
            neighbours += frontier;
        }
        let rate = f64::from(statistics.rate);
        let rows = statistics.sampled();
        Minibatches {
            rows,
            step: coprime_step(rows),
            by_degree: Alias::new(&degrees),
            seeds: f64::from(seeds) / rate,
            neighbours: neighbours / rate,
        }
    }

    /// The distinct sampled rows of a minibatch. Counts are Poisson, so that each vertex is in it or not
    /// independently of the others, as in SHARDS each block is sampled by its own hash.
    #[must_use]
    pub fn draw(&self, seed: u64, rank: TrainerRank, minibatch: u64) -> Tables {
        let key = Key::new(seed).with(0x5CA1E).with(u64::from(rank.0)).with(minibatch);
        let mut rows = Vec::new();
        let seeds = key.with(0);
        for pick in 0..poisson(self.seeds, seeds) {
            rows.push(self.place(seeds.below(1_000_000 + pick, u64::from(self.rows)) as u32));
        }
        let neighbours = key.with(1);
        for pick in 0..poisson(self.neighbours, neighbours) {
            rows.push(self.place(self.by_degree.draw(neighbours.with(2), pick)));
        }
        rows.sort_unstable();
        rows.dedup();
        [(TableId(0), rows)]
    }

    /// Popular vertices lie all over the parts.
    fn place(&self, vertex: u32) -> u32 {
        (u64::from(vertex) * u64::from(self.step) % u64::from(self.rows)) as u32
    }
}

/// A step through `rows` positions that visits each once.
fn coprime_step(rows: u32) -> u32 {
    let gcd = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (f64::from(rows) * 0.618) as u32;
    (golden.max(1)..).find(|&step| gcd(step, rows) == 1).unwrap_or(1)
}

/// Knuth's product of uniform draws, in logarithms.
fn poisson(mean: f64, key: Key) -> u64 {
    let (mut sum, mut count) = (0.0, 0);
    loop {
        sum -= (1.0 - key.unit(count)).ln();
        if sum > mean {
            return count;
        }
        count += 1;
    }
}

/// Draws from given weights in constant time (Walker 1977, built as by Vose 1991).
#[derive(Debug)]
struct Alias {
    keep: Vec<f32>,
    other: Vec<u32>,
}

impl Alias {
    fn new(weights: &[f64]) -> Self {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut left: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..weights.len() as u32).partition(|&at| left[at as usize] < 1.0);
        let mut alias = Alias { keep: vec![1.0; weights.len()], other: (0..weights.len() as u32).collect() };
        while let (Some(&from), Some(to)) = (large.last(), small.pop()) {
            alias.keep[to as usize] = left[to as usize] as f32;
            alias.other[to as usize] = from;
            left[from as usize] -= 1.0 - left[to as usize];
            if left[from as usize] < 1.0 {
                large.pop();
                small.push(from);
            }
        }
        alias
    }

    fn draw(&self, key: Key, number: u64) -> u32 {
        let at = key.below(2 * number, self.keep.len() as u64) as usize;
        if key.unit(2 * number + 1) < f64::from(self.keep[at]) { at as u32 } else { self.other[at] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "powerlaw:vertices=2000000,degree=16,exponent=2.2,row_bytes=512,rate=100";

    #[test]
    fn statistics_are_read_and_what_is_wrong_is_said() {
        let read: Statistics = TEXT.parse().unwrap();
        assert_eq!((read.vertices, read.rate, read.sampled()), (2_000_000, 100, 20_000));
        for wrong in [
            "",
            "powerlaw:",
            "powerlaw:vertices=10",
            "powerlaw:vertices=x",
            "powerlaw:speed=1",
            "powerlaw:vertices=2000000,rate=0",
            "powerlaw:vertices=2000000,exponent=1",
        ] {
            assert!(wrong.parse::<Statistics>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn degrees_have_their_mean_and_their_tail() {
        let statistics: Statistics = TEXT.parse().unwrap();
        let degrees = statistics.degrees();
        let mean = degrees.iter().sum::<f64>() / degrees.len() as f64;
        assert!((mean / 16.0 - 1.0).abs() < 0.1, "{mean}");
        let above = |least: f64| degrees.iter().filter(|&&degree| degree >= least).count() as f64;
        // Ten times the degree is 10^1.2 times as rare.
        let ratio = above(20.0) / above(200.0);
        assert!((ratio / 10_f64.powf(1.2) - 1.0).abs() < 0.1, "{ratio}");
    }

    #[test]
    fn a_sampled_minibatch_is_as_many_times_smaller() {
        let at = |rate: u32| {
            let text = format!("powerlaw:vertices=2000000,degree=16,exponent=2.2,row_bytes=512,rate={rate}");
            let minibatches = Minibatches::new(&text.parse().unwrap(), 1000, &[10, 5]);
            let rows = |m| minibatches.draw(1, TrainerRank(0), m)[0].1.len() as f64;
            (0..40).map(rows).sum::<f64>() / 40.0 * f64::from(rate)
        };
        let (fine, coarse) = (at(20), at(400));
        assert!((fine / coarse - 1.0).abs() < 0.12, "{fine} {coarse}");
        let minibatches = Minibatches::new(&TEXT.parse().unwrap(), 1000, &[10, 5]);
        assert_eq!(minibatches.draw(1, TrainerRank(3), 7), minibatches.draw(1, TrainerRank(3), 7));
        assert_ne!(minibatches.draw(1, TrainerRank(3), 7), minibatches.draw(1, TrainerRank(4), 7));
    }

    #[test]
    fn an_alias_table_draws_by_weight() {
        let alias = Alias::new(&[1.0, 2.0, 3.0, 4.0]);
        let mut drawn = [0_u32; 4];
        for number in 0..100_000 {
            drawn[alias.draw(Key::new(3), number) as usize] += 1;
        }
        for (weight, &count) in (1..).zip(&drawn) {
            // Standard deviation below 160.
            assert!((i64::from(count) - weight * 10_000).abs() < 1000, "{drawn:?}");
        }
        let step = coprime_step(1000);
        let places: std::collections::BTreeSet<u64> =
            (0..1000).map(|at| at * u64::from(step) % 1000).collect();
        assert_eq!(places.len(), 1000);
    }
}
