//! The simulations behind an advice.

use super::bottleneck::{Evidence, bottleneck};
use super::question::{minibatches, minibatches_max};
use super::{Advice, AdviseError, BandwidthCase, CacheCase, Facts, LinkFact, Question, words};
use crate::arm::Arm;
use crate::parallel::in_parallel;
use crate::progress::steps_bar;
use crate::record::{Outcome, fastest};
use crate::report::{Reference, bound};
use crate::run::TABLE;
use crate::sim::{Change, LinkUse, Load, Sharing, SimSpec, UntilStopped, Variation, Way, run_measured};
use crate::stop::Stop;
use crate::workload::{Workload, WorldTrace};
use indicatif::ProgressBar;
use rudder_client::dataset::Dataset;
use rudder_topology::{
    Bytes, BytesPerSecond, Cluster, MinibatchId, NodeId, PartId, PolicySpec, TableId, TrainerRank,
};

/// Of the remote bytes.
const CACHE_SHARES: [f64; 5] = [0.05, 0.1, 0.25, 0.5, 1.0];
const BANDWIDTH_FACTORS: [f64; 3] = [0.5, 2.0, 4.0];
/// Arms beside `rudder` that are simulated in changed clusters: the fastest as things are.
const OTHERS: usize = 4;
/// Clusters of more nodes share links more coarsely, every so often.
const EXACT_NODES_MAX: usize = 64;
const QUANTUM_NS: u64 = 500_000;

/// Simulates, compares, and says what it means.
pub fn advise(
    cluster: &Cluster,
    dataset: &Dataset,
    question: &Question,
    stop: &Stop,
) -> Result<Advice, AdviseError> {
    let stage = Stage::new(cluster, dataset, question, stop)?;
    let (mut arms, bound, links) = stage.as_things_are()?;
    arms.sort_by(|a, b| b.minibatches_per_s.total_cmp(&a.minibatches_per_s));
    let mut finalists = vec![Arm::Rudder];
    finalists.extend(arms.iter().map(|outcome| outcome.arm).filter(|&arm| arm != Arm::Rudder).take(OTHERS));
    finalists.retain(|arm| question.arms.contains(arm));
    let changed = stage.changed(&finalists, arms.first().map(|outcome| outcome.arm))?;
    stage.bar.finish_and_clear();
    Ok(stage.advice(arms, bound, &links, changed))
}

/// One change to the cluster as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WhatIf {
    AsIs,
    /// Of each compute node's remote bytes.
    Cache(f64),
    /// Of every link's.
    Bandwidth(f64),
    TwiceTheWindow,
}

/// What was simulated beside the cluster as it is.
struct Changed {
    runs: Vec<(WhatIf, Option<Arm>, Answer)>,
}

/// Of one simulation: the outcome of an arm, or the bound.
#[derive(Clone, Debug)]
struct Answer {
    outcome: Option<Outcome>,
    bound: Option<Reference>,
    links: Vec<LinkUse>,
}

impl Changed {
    fn arms(&self, what: WhatIf) -> Vec<Outcome> {
        let of = self.runs.iter().filter(|(changed, _, _)| *changed == what);
        of.filter_map(|(_, _, answer)| answer.outcome.clone()).collect()
    }

    fn bound(&self, what: WhatIf) -> Option<Reference> {
        self.runs.iter().find(|(changed, arm, _)| *changed == what && arm.is_none())?.2.bound
    }
}

struct Stage<'a> {
    cluster: &'a Cluster,
    placed: &'a rudder_topology::Dataset,
    dataset: &'a Dataset,
    question: &'a Question,
    stop: &'a Stop,
    load: Load,
    epoch: u64,
    workload: Workload,
    bar: ProgressBar,
}

impl<'a> Stage<'a> {
    fn new(
        cluster: &'a Cluster,
        dataset: &'a Dataset,
        question: &'a Question,
        stop: &'a Stop,
    ) -> Result<Stage<'a>, AdviseError> {
        let placed = placed(cluster, dataset)?;
        if question.arms.is_empty() {
            return Err(AdviseError::NoArms);
        }
        let compute_nodes = cluster.nodes.iter().filter(|node| node.compute.is_some()).count();
        let trainers = compute_nodes as u32 * question.trainers_per_node;
        let mut world = WorldTrace {
            seed: question.seed,
            trainers,
            seeds: question.seeds,
            fanout: question.fanout.clone(),
            minibatches: 0,
        };
        let no_graph = || AdviseError::NoGraph { directory: dataset.directory().to_owned() };
        let mut trace = world.trace(dataset, TrainerRank(0)).ok_or_else(no_graph)?;
        let epoch = trace.epoch_minibatches();
        let rows = trace.rows(MinibatchId(0)).len() as f64;
        let most = minibatches_max(trainers, rows);
        world.minibatches =
            question.minibatches.unwrap_or_else(|| minibatches(epoch, trainers, rows).min(most));
        if world.minibatches > most {
            return Err(AdviseError::Minibatches { wanted: world.minibatches, trainers, most });
        }
        let load = Load {
            trainers_per_node: question.trainers_per_node,
            window: question.window,
            minibatches: world.minibatches,
            compute: question.compute,
            variation: Variation::default(),
            allreduce: question.allreduce,
        };
        let finalists = question.arms.len().min(OTHERS + 1);
        let changes = CACHE_SHARES.len() * finalists + BANDWIDTH_FACTORS.len() * (finalists + 1) + 1;
        let runs = (question.arms.len() + 1 + changes) as u64;
        let bar = steps_bar(format!("{} arms", question.arms.len()), 0);
        bar.set_length(runs * u64::from(trainers) * world.minibatches);
        let workload = Workload::sample_world(&world, dataset);
        Ok(Stage { cluster, placed, dataset, question, stop, load, epoch, workload, bar })
    }

    /// All arms and the bound; the links with the fastest arm.
    fn as_things_are(&self) -> Result<(Vec<Outcome>, Reference, Vec<LinkUse>), AdviseError> {
        let pieces: Vec<_> = std::iter::once(None)
            .chain(self.question.arms.iter().copied().map(Some))
            .map(|arm| (WhatIf::AsIs, arm))
            .collect();
        let answers = self.simulate_all(&pieces)?;
        let bound = answers.iter().find_map(|answer| answer.bound);
        let nothing = Reference { minibatches_per_s: 0.0, wait_share: 0.0, bytes_moved: 0 };
        let outcomes: Vec<Outcome> = answers.iter().filter_map(|answer| answer.outcome.clone()).collect();
        let best = fastest(&outcomes).cloned();
        let of_best = answers.into_iter().find(|answer| answer.outcome.is_some() && answer.outcome == best);
        let links = of_best.map(|answer| answer.links).unwrap_or_default();
        Ok((outcomes, bound.unwrap_or(nothing), links))
    }

    fn changed(&self, finalists: &[Arm], best: Option<Arm>) -> Result<Changed, AdviseError> {
        let arms = || finalists.iter().copied().map(Some);
        let mut pieces = Vec::new();
        for share in CACHE_SHARES {
            pieces.extend(arms().map(|arm| (WhatIf::Cache(share), arm)));
        }
        for factor in BANDWIDTH_FACTORS {
            let runs = std::iter::once(None).chain(arms());
            pieces.extend(runs.map(|arm| (WhatIf::Bandwidth(factor), arm)));
        }
        if let Some(best) = best.filter(|arm| arm.prefetches()) {
            pieces.push((WhatIf::TwiceTheWindow, Some(best)));
        }
        let answers = self.simulate_all(&pieces)?;
        let runs = pieces.into_iter().zip(answers).map(|((what, arm), answer)| (what, arm, answer));
        Ok(Changed { runs: runs.collect() })
    }

    fn simulate_all(&self, pieces: &[(WhatIf, Option<Arm>)]) -> Result<Vec<Answer>, AdviseError> {
        let answers = in_parallel(pieces, |&(what, arm)| self.simulate(what, arm));
        if self.stop.is_raised() {
            self.bar.finish_and_clear();
            return Err(AdviseError::Stopped);
        }
        answers.into_iter().collect()
    }

    fn simulate(&self, what: WhatIf, arm: Option<Arm>) -> Result<Answer, AdviseError> {
        let name = arm.map_or("the bound", Arm::name);
        let failed = |source| {
            let change = match what {
                WhatIf::AsIs => String::new(),
                WhatIf::Cache(share) => format!(" with a cache of {:.0} %", share * 100.0),
                WhatIf::Bandwidth(factor) => format!(" with {factor} times the bandwidth"),
                WhatIf::TwiceTheWindow => " with twice the window".to_owned(),
            };
            AdviseError::Simulation { what: format!("{name}{change}"), source }
        };
        let spec = self.spec(what, arm).map_err(failed)?;
        let mut on_step = |_: &_| self.bar.inc(1);
        let watch = &mut UntilStopped(self.stop);
        let (run, links) =
            run_measured(&spec, arm, &self.workload, &mut on_step, Some(watch)).map_err(failed)?;
        let bound = if arm.is_none() { bound(&[&run]) } else { None };
        Ok(Answer { outcome: Outcome::of(&run), bound, links })
    }

    fn spec(&self, what: WhatIf, arm: Option<Arm>) -> Result<SimSpec, crate::sim::SimError> {
        let book = self.dataset.book().clone();
        let mut load = self.load.clone();
        if what == WhatIf::TwiceTheWindow {
            load.window = load.window.saturating_mul(2);
        }
        let mut spec = SimSpec::of_cluster(self.cluster, self.placed, book, load, self.question.seed)?;
        spec.policy = policy(arm.unwrap_or(Arm::None), self.question.window);
        if spec.nodes.len() > EXACT_NODES_MAX {
            spec.sharing = Sharing::EqualShares { quantum_ns: QUANTUM_NS };
        }
        match what {
            WhatIf::AsIs => {}
            WhatIf::Cache(share) => {
                for node in 0..spec.nodes.len() {
                    let remote = self.remote_bytes(&spec, NodeId(node as u16));
                    if let Some(compute) = &mut spec.nodes[node].compute {
                        compute.cache = Bytes((remote as f64 * share) as u64).max(self.block_max());
                    }
                }
            }
            WhatIf::Bandwidth(factor) => scale(&mut spec, factor),
            WhatIf::TwiceTheWindow => {
                let credits = spec.load.window.saturating_add(2);
                for compute in spec.nodes.iter_mut().filter_map(|node| node.compute.as_mut()) {
                    compute.credits = compute.credits.max(credits);
                }
            }
        }
        Ok(spec)
    }

    fn tables(&self) -> impl Iterator<Item = TableId> {
        (0..self.dataset.book().tables()).map(|table| TableId(table as u16))
    }

    /// Enough for a block of each table.
    fn block_max(&self) -> Bytes {
        let book = self.dataset.book();
        let blocks = self.tables().map(|table| u64::from(book.block_bytes(table).unwrap_or(0)));
        Bytes(blocks.max().unwrap_or(0) * book.tables() as u64)
    }

    /// What a compute node has to fetch from others.
    fn remote_bytes(&self, spec: &SimSpec, node: NodeId) -> u64 {
        let Some(compute) = &spec.nodes[node.index()].compute else { return 0 };
        let remote =
            |part: &PartId| compute.replicas.get(part.index()).is_some_and(|replicas| !replicas.is_empty());
        let rows_of = |part: PartId| {
            let tables = self.dataset.manifest().tables.iter().zip(self.tables());
            tables.map(move |(table, id)| {
                let rows = table.row_offsets[part.index() + 1] - table.row_offsets[part.index()];
                rows * u64::from(self.dataset.book().row_bytes(id).unwrap_or(0))
            })
        };
        (0..compute.replicas.len()).map(|part| PartId(part as u16)).filter(remote).flat_map(rows_of).sum()
    }

    fn advice(&self, arms: Vec<Outcome>, bound: Reference, links: &[LinkUse], changed: Changed) -> Advice {
        let mut links: Vec<LinkFact> =
            links.iter().filter(|link| link.bytes.0 > 0).map(|link| self.link(link)).collect();
        links.sort_by(|a, b| b.busy.total_cmp(&a.busy));
        let (facts, own_share) = self.facts();
        let mut cache: Vec<CacheCase> = CACHE_SHARES
            .into_iter()
            .map(|share| CacheCase {
                share,
                cache_bytes: self.cache_bytes(WhatIf::Cache(share)),
                is_topologys: false,
                arms: changed.arms(WhatIf::Cache(share)),
            })
            .collect();
        let finalists: Vec<Outcome> = {
            let cases = changed.arms(WhatIf::Bandwidth(BANDWIDTH_FACTORS[0]));
            arms.iter().filter(|arm| cases.iter().any(|case| case.arm == arm.arm)).cloned().collect()
        };
        cache.push(CacheCase {
            share: own_share,
            cache_bytes: facts.cache_bytes,
            is_topologys: true,
            arms: finalists.clone(),
        });
        cache.sort_by(|a, b| a.share.total_cmp(&b.share));
        let mut bandwidth: Vec<BandwidthCase> = BANDWIDTH_FACTORS
            .into_iter()
            .map(|factor| BandwidthCase {
                factor,
                bound: changed.bound(WhatIf::Bandwidth(factor)).unwrap_or(bound),
                arms: changed.arms(WhatIf::Bandwidth(factor)),
            })
            .collect();
        bandwidth.push(BandwidthCase { factor: 1.0, bound, arms: finalists });
        bandwidth.sort_by(|a, b| a.factor.total_cmp(&b.factor));
        let window = changed.arms(WhatIf::TwiceTheWindow).pop();
        let best = arms.first().map_or(0.0, |best| best.minibatches_per_s);
        let gain = |of: &[Outcome]| {
            fastest(of).map_or(0.0, |outcome| outcome.minibatches_per_s / best.max(1e-9) - 1.0)
        };
        let evidence = Evidence {
            remote_bytes: facts.remote_bytes,
            cache_bytes: facts.cache_bytes,
            minibatch_cache_bytes: facts.minibatch_cache_bytes,
            fastest: best,
            bound: bound.minibatches_per_s,
            compute: 1000.0 / facts.compute_ms.max(1e-6),
            busiest: links.first().map(|link| (link.name.clone(), link.busy)),
            with_twice_the_bandwidth: gain(&changed.arms(WhatIf::Bandwidth(2.0))),
            with_all_cached: gain(&changed.arms(WhatIf::Cache(1.0))),
            with_twice_the_window: gain(window.as_slice()),
        };
        let mut advice = Advice {
            dataset: self.dataset.manifest().name.to_string(),
            topology: self.cluster.file.display().to_string(),
            facts,
            arms,
            bound,
            links,
            bottleneck: bottleneck(&evidence),
            cache,
            bandwidth,
            window,
            words: Vec::new(),
            caveats: Vec::new(),
        };
        advice.words = words::words(&advice);
        advice.caveats = words::caveats(&advice);
        advice
    }

    /// The least cache of a compute node.
    fn cache_bytes(&self, what: WhatIf) -> u64 {
        let spec = self.spec(what, None).ok();
        let caches = spec.iter().flat_map(|spec| spec.compute_nodes().map(|(_, compute)| compute.cache.0));
        caches.min().unwrap_or(0)
    }

    /// The facts, and the cache's share of the remote bytes where that is least.
    fn facts(&self) -> (Facts, f64) {
        let (question, book, manifest) = (self.question, self.dataset.book(), self.dataset.manifest());
        let spec = self.spec(WhatIf::AsIs, None).ok();
        let of_nodes: Vec<(u64, u64, u32)> = spec
            .iter()
            .flat_map(|spec| {
                spec.compute_nodes()
                    .map(|(node, compute)| (compute.cache.0, self.remote_bytes(spec, node), compute.credits))
            })
            .collect();
        let share = of_nodes.iter().map(|&(cache, remote, _)| (cache as f64 / remote.max(1) as f64).min(1.0));
        let credits = of_nodes.iter().map(|&(_, _, credits)| credits).min().unwrap_or(0);
        let announced = credits.saturating_sub(1);
        let facts = Facts {
            compute_nodes: of_nodes.len() as u32,
            storage_nodes: self.cluster.nodes.iter().filter(|node| node.roles.storage).count() as u32,
            trainers_per_node: question.trainers_per_node,
            seeds: question.seeds,
            fanout: question.fanout.clone(),
            window: question.window,
            compute_ms: question.compute.as_secs_f64() * 1e3,
            allreduce_bytes: question.allreduce.0,
            minibatches: self.load.minibatches,
            epochs: self.load.minibatches as f64 / self.epoch.max(1) as f64,
            seed: question.seed,
            vertices: manifest.vertices,
            edges: manifest.edges,
            row_bytes: u64::from(book.row_bytes(TABLE).unwrap_or_default()),
            rows_per_block: book.rows_per_block(TABLE).unwrap_or_default(),
            rows_per_minibatch: self.workload.rows_per_minibatch,
            minibatch_cache_bytes: self.workload.blocks_max(book) as u64
                * u64::from(book.block_bytes(TABLE).unwrap_or_default()),
            cache_bytes: of_nodes.iter().map(|&(cache, _, _)| cache).min().unwrap_or(0),
            remote_bytes: of_nodes.iter().map(|&(_, remote, _)| remote).max().unwrap_or(0),
            announced_max: (announced < question.window).then_some(announced),
        };
        (facts, share.fold(1.0, f64::min))
    }

    fn link(&self, link: &LinkUse) -> LinkFact {
        let name = |node: NodeId| {
            let node = self.cluster.node(node);
            let role = match (node.roles.storage, node.roles.compute) {
                (true, false) => "storage node ",
                (false, true) => "compute node ",
                _ => "node ",
            };
            format!("{role}{}", node.name)
        };
        let name = match link.way {
            Way::OutOf(node) => format!("the uplink of {}", name(node)),
            Way::Into(node) => format!("the downlink of {}", name(node)),
            Way::Between(from, to) => format!("the link from {} to {}", name(from), name(to)),
        };
        LinkFact { name, mbit_per_s: link.rate.0 as f64 * 8.0 / 1e6, busy: link.busy }
    }
}

/// Where the topology places the dataset; everything that can be wrong between the two is found here.
fn placed<'c>(cluster: &'c Cluster, dataset: &Dataset) -> Result<&'c rudder_topology::Dataset, AdviseError> {
    let file = || cluster.file.clone();
    let manifest = dataset.manifest();
    if !cluster.nodes.iter().any(|node| node.compute.is_some()) {
        return Err(AdviseError::NoCompute { file: file() });
    }
    let Some(placed) = cluster.dataset_named(&manifest.name) else {
        let known: Vec<String> =
            cluster.datasets.iter().map(|dataset| format!("`{}`", dataset.name)).collect();
        let known = if known.is_empty() { "none at all".to_owned() } else { known.join(", ") };
        return Err(AdviseError::UnknownDataset { file: file(), dataset: manifest.name.clone(), known });
    };
    let (found, parts) = (dataset.book().parts(), placed.replicas.len());
    if found != parts {
        return Err(AdviseError::Parts {
            file: file(),
            dataset: manifest.name.clone(),
            found,
            placed: parts,
        });
    }
    Ok(placed)
}

/// Trainers' windows are what the user states, and so is that of the arm which has one of its own.
fn policy(arm: Arm, window: u32) -> PolicySpec {
    match arm {
        Arm::FixedWindow => PolicySpec::FixedWindow { minibatches: window.max(1) },
        arm => PolicySpec::named(arm.name()).unwrap_or(PolicySpec::None),
    }
}

/// Every link carries `factor` times as much, and the product's own rate limiter lets that through.
fn scale(spec: &mut SimSpec, factor: f64) {
    let times = |rate: BytesPerSecond| BytesPerSecond((rate.0 as f64 * factor).max(1.0) as u64);
    for node in &mut spec.nodes {
        (node.up, node.down) = (times(node.up), times(node.down));
        let replicas = node.compute.iter_mut().flat_map(|compute| compute.replicas.iter_mut().flatten());
        replicas.for_each(|(_, cost)| cost.bandwidth = times(cost.bandwidth));
    }
    for event in &mut spec.events {
        if let Change::Link { rate, .. } | Change::Interface { rate, .. } = &mut event.what {
            *rate = times(*rate);
        }
    }
    spec.limits.link_rate_max = spec.limits.link_rate_max.map(times);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_has_its_policy() {
        for arm in Arm::ALL {
            assert_eq!(policy(arm, 5).name(), arm.name());
        }
        assert_eq!(policy(Arm::FixedWindow, 5), PolicySpec::FixedWindow { minibatches: 5 });
    }
}
