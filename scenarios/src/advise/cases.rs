//! The simulations behind an advice.

use super::bottleneck::{Evidence, bottleneck};
use super::perfect::perfect;
use super::question::{minibatches, minibatches_max};
use super::whatif::{Ground, WhatIf};
use super::{Advice, AdviseError, BandwidthCase, CacheCase, Facts, LinkFact, Question, words};
use crate::arm::Arm;
use crate::parallel::in_parallel;
use crate::progress::steps_bar;
use crate::record::{Outcome, Run, fastest};
use crate::report::{Reference, bound};
use crate::run::TABLE;
use crate::sim::{LinkUse, Load, SimError, SimSpec, UntilStopped, Variation, run_measured};
use crate::stop::Stop;
use crate::workload::{Workload, WorldTrace};
use indicatif::ProgressBar;
use rudder_client::dataset::Dataset;
use rudder_topology::{Cluster, MinibatchId, TrainerRank};

/// Of the remote bytes.
const CACHE_SHARES: [f64; 5] = [0.05, 0.1, 0.25, 0.5, 1.0];
const BANDWIDTH_FACTORS: [f64; 3] = [0.5, 2.0, 4.0];
/// Arms beside `rudder` that are simulated in changed clusters: the fastest as things are.
const OTHERS: usize = 4;

/// Simulates, compares, and says what it means.
pub fn advise(
    cluster: &Cluster,
    dataset: &Dataset,
    question: &Question,
    stop: &Stop,
) -> Result<Advice, AdviseError> {
    let stage = Stage::new(cluster, dataset, question, stop)?;
    let AsThingsAre { mut arms, bound, oracle, links } = stage.as_things_are()?;
    arms.sort_by(|a, b| b.minibatches_per_s.total_cmp(&a.minibatches_per_s));
    let mut finalists = vec![Arm::Rudder];
    finalists.extend(arms.iter().map(|outcome| outcome.arm).filter(|&arm| arm != Arm::Rudder).take(OTHERS));
    finalists.retain(|arm| question.arms.contains(arm));
    let changed = stage.changed(&finalists, arms.first().map(|outcome| outcome.arm))?;
    stage.bar.finish_and_clear();
    Ok(stage.advice(arms, (bound, oracle), &links, &changed))
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
    run: Run,
}

/// The cluster as it is.
struct AsThingsAre {
    arms: Vec<Outcome>,
    bound: Reference,
    oracle: Option<Reference>,
    /// With the fastest arm.
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
    ground: Ground<'a>,
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
        let mut ground = Ground::new(cluster, dataset, question)?;
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
            replay: false,
        };
        ground.study(&question.arms, &load, question.seed);
        let finalists = question.arms.len().min(OTHERS + 1);
        let changes = CACHE_SHARES.len() * finalists + BANDWIDTH_FACTORS.len() * (finalists + 1) + 1;
        let runs = (question.arms.len() + 1 + changes) as u64;
        let bar = steps_bar(format!("{} arms", question.arms.len()), 0);
        bar.set_length(runs * u64::from(trainers) * world.minibatches);
        let workload = Workload::sample_world(&world, dataset);
        Ok(Stage { ground, question, stop, load, epoch, workload, bar })
    }

    fn as_things_are(&self) -> Result<AsThingsAre, AdviseError> {
        let pieces: Vec<_> = std::iter::once(None)
            .chain(self.question.arms.iter().copied().map(Some))
            .map(|arm| (WhatIf::AsIs, arm))
            .collect();
        let answers = self.simulate_all(&pieces)?;
        let nothing = Reference { minibatches_per_s: 0.0, wait_share: 0.0, bytes_moved: 0 };
        let bound = answers.iter().find_map(|answer| answer.bound).unwrap_or(nothing);
        let arms: Vec<Outcome> = answers.iter().filter_map(|answer| answer.outcome.clone()).collect();
        let best = fastest(&arms).map(|outcome| outcome.arm);
        let of_best = answers.into_iter().find(|answer| best.is_some() && answer.run.arm == best);
        let spec = self.spec(WhatIf::AsIs, None).ok();
        let oracle = of_best.as_ref().zip(spec);
        let oracle = oracle.map(|(best, spec)| perfect(&spec, &best.run, &self.workload, &bound));
        let links = of_best.map(|answer| answer.links).unwrap_or_default();
        Ok(AsThingsAre { arms, bound, oracle, links })
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
        Ok(Answer { outcome: Outcome::of(&run), bound, links, run })
    }

    fn advice(
        &self,
        arms: Vec<Outcome>,
        (bound, oracle): (Reference, Option<Reference>),
        links: &[LinkUse],
        changed: &Changed,
    ) -> Advice {
        let mut links: Vec<LinkFact> =
            links.iter().filter(|link| link.bytes.0 > 0).map(|link| self.ground.link(link)).collect();
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
            dataset: self.ground.dataset.manifest().name.to_string(),
            topology: self.ground.cluster.file.display().to_string(),
            facts,
            arms,
            bound,
            oracle,
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

    fn spec(&self, what: WhatIf, arm: Option<Arm>) -> Result<SimSpec, SimError> {
        self.ground.spec(what, arm, &self.load, self.question.seed)
    }

    /// The least cache of a compute node.
    fn cache_bytes(&self, what: WhatIf) -> u64 {
        let spec = self.spec(what, None).ok();
        let caches = spec.iter().flat_map(|spec| spec.compute_nodes().map(|(_, compute)| compute.cache.0));
        caches.min().unwrap_or(0)
    }

    /// The facts, and the cache's share of the remote bytes where that is least.
    fn facts(&self) -> (Facts, f64) {
        let (question, book, manifest) =
            (self.question, self.ground.dataset.book(), self.ground.dataset.manifest());
        let spec = self.spec(WhatIf::AsIs, None).ok();
        let of_nodes: Vec<(u64, u64, u32)> = spec
            .iter()
            .flat_map(|spec| {
                spec.compute_nodes().map(|(node, compute)| {
                    (compute.cache.0, self.ground.remote_bytes(spec, node), compute.credits)
                })
            })
            .collect();
        let share = of_nodes.iter().map(|&(cache, remote, _)| (cache as f64 / remote.max(1) as f64).min(1.0));
        let credits = of_nodes.iter().map(|&(_, _, credits)| credits).min().unwrap_or(0);
        let announced = credits.saturating_sub(1);
        let facts = Facts {
            compute_nodes: of_nodes.len() as u32,
            storage_nodes: self.ground.cluster.nodes.iter().filter(|node| node.roles.storage).count() as u32,
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
}
