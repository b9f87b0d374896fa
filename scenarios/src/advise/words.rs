//! What the numbers say, in sentences. Pure: the same advice gives the same words.

use super::{Advice, Bottleneck, CacheCase};
use crate::arm::Arm;
use crate::record::{Outcome, fastest};
use rudder_topology::Bytes;

/// Arms this close to each other are level.
pub(super) const LEVEL: f64 = 0.01;

/// The advice in sentences, the most important first.
pub(super) fn words(advice: &Advice) -> Vec<String> {
    let Some(best) = advice.arms.first() else { return vec!["No arm was simulated.".to_owned()] };
    if advice.bottleneck == Bottleneck::NothingRemote {
        return vec![
            "Nothing is fetched: every part of the dataset lies on the compute nodes' own machines, where trainers read \
             it in place. No policy can help, and none is needed."
                .to_owned(),
        ];
    }
    let mut sentences = vec![winner(advice, best)];
    sentences.extend(rudders_place(advice, best));
    sentences.extend(room_above(advice, best));
    sentences.push(holding_up(advice, best));
    sentences.extend(more_cache(advice, best));
    sentences.extend(more_bandwidth(advice, best));
    sentences
}

/// The fastest and those level with it.
fn level<'a>(advice: &'a Advice, best: &Outcome) -> Vec<&'a Outcome> {
    let least = best.minibatches_per_s * (1.0 - LEVEL);
    advice.arms.iter().filter(|arm| arm.minibatches_per_s >= least).collect()
}

fn winner(advice: &Advice, best: &Outcome) -> String {
    let level = level(advice, best);
    let rate = format!("{:.2} minibatches a second of a trainer", best.minibatches_per_s);
    let waits = format!("a trainer waits for data {} of its time", percent(best.wait_share));
    let none = advice.arms.iter().find(|arm| arm.arm == Arm::None && arm.arm != best.arm);
    if level.len() > 1 {
        let names: Vec<&str> = level.iter().map(|arm| arm.arm.name()).collect();
        let all = if level.len() == advice.arms.len() { "all arms" } else { "these" };
        return format!(
            "No clear winner: {} are within 1 % of each other, {all} at about {rate}; with {}, {waits}.",
            listed(&names),
            best.arm.name()
        );
    }
    let mut sentence = format!("{} wins: {rate}; {waits}", best.arm.name());
    if let Some(none) = none {
        sentence += &format!(
            ", instead of {} without a cache or look-ahead ({}, which is {} as fast)",
            percent(none.wait_share),
            none.arm.name(),
            times(none.minibatches_per_s / best.minibatches_per_s)
        );
    }
    sentence.push('.');
    if let Some(next) = advice.arms.get(1) {
        sentence += &format!(
            " That is {} the next best ({}, {:.2}).",
            times(best.minibatches_per_s / next.minibatches_per_s.max(1e-9)),
            next.arm.name(),
            next.minibatches_per_s
        );
    }
    sentence
}

/// Said where the product is not the one to choose.
fn rudders_place(advice: &Advice, best: &Outcome) -> Option<String> {
    let rudder = advice.arms.iter().find(|arm| arm.arm == Arm::Rudder)?;
    let behind = 1.0 - rudder.minibatches_per_s / best.minibatches_per_s.max(1e-9);
    (behind > LEVEL)
        .then(|| format!("rudder is {} behind it ({:.2}).", percent(behind), rudder.minibatches_per_s))
}

fn room_above(advice: &Advice, best: &Outcome) -> Option<String> {
    let bound = advice.bound.minibatches_per_s;
    let reduce = if advice.facts.allreduce_bytes > 0 { "compute and all-reduce" } else { "compute" };
    let oracle = advice.oracle.map_or(String::new(), |oracle| {
        format!(", and perfect knowledge would reach {}", percent(oracle.minibatches_per_s / bound.max(1e-9)))
    });
    (bound > 0.0).then(|| {
        format!(
            "With {reduce} alone it would be {bound:.2}: {} reaches {} of that{}.",
            best.arm.name(),
            percent(best.minibatches_per_s / bound),
            oracle
        )
    })
}

fn holding_up(advice: &Advice, best: &Outcome) -> String {
    let facts = &advice.facts;
    let busiest = advice.links.first();
    let busy = |before: &str| {
        busiest.map_or(String::new(), |link| {
            format!("{before}{} is busy {} of the time", link.name, percent(link.busy))
        })
    };
    match &advice.bottleneck {
        Bottleneck::NothingRemote => "Nothing is fetched.".to_owned(),
        Bottleneck::CacheTooSmall => format!(
            "The bottleneck is the cache: {} has no room for the largest minibatch, which takes {} in whole blocks, so \
             minibatches come past the cache in pieces, and nothing can be fetched ahead. Give it at least {} (two \
             minibatches of each trainer).",
            Bytes(facts.cache_bytes),
            Bytes(facts.minibatch_cache_bytes),
            Bytes(2 * facts.minibatch_cache_bytes * u64::from(facts.trainers_per_node))
        ),
        Bottleneck::Compute => {
            let none = advice.arms.iter().find(|arm| arm.arm == Arm::None);
            let without = none.is_some_and(|none| level(advice, best).iter().any(|arm| arm.arm == none.arm));
            if without {
                format!("The bottleneck is compute: no policy will help, your links are idle{}.", busy("; "))
            } else {
                format!(
                    "With {} the bottleneck is compute: all that is fetched hides behind it{}.",
                    best.arm.name(),
                    busy("; ")
                )
            }
        }
        Bottleneck::AllReduce => format!(
            "The bottleneck is the all-reduce of {} a minibatch: rows hide behind compute, gradients do not{}. Faster \
             links or fewer gradient bytes help; another policy does not.",
            Bytes(facts.allreduce_bytes),
            busy("; ")
        ),
        Bottleneck::Link { name, busy } => {
            format!(
                "The bottleneck is {name}: with {} it is busy {} of the time.",
                best.arm.name(),
                percent(*busy)
            )
        }
        Bottleneck::Cache => format!(
            "The bottleneck is the cache: with {} rows come more than once because {} cannot keep them{}.",
            best.arm.name(),
            Bytes(facts.cache_bytes),
            busy("; ")
        ),
        Bottleneck::Window => {
            let gain =
                advice.window.as_ref().map_or(1.0, |twice| twice.minibatches_per_s / best.minibatches_per_s);
            format!(
                "The bottleneck is the window: announcing {} minibatches ahead (credits = {} in the topology) would \
                 bring {}.",
                2 * facts.window,
                2 * facts.window + 2,
                times(gain)
            )
        }
        Bottleneck::Requests => format!(
            "Neither compute, cache, links nor window hold it up much: what is left is each request's own time (latency, \
             sampling, handling){}.",
            busy("; ")
        ),
    }
}

fn more_cache(advice: &Advice, best: &Outcome) -> Option<String> {
    let rate = |case: &CacheCase| fastest(&case.arms).map_or(0.0, |arm| arm.minibatches_per_s);
    let size = |case: &CacheCase| {
        format!("{} of the remote bytes ({} a node)", percent(case.share), Bytes(case.cache_bytes))
    };
    let now = best.minibatches_per_s;
    let own = advice.cache.iter().position(|case| case.is_topologys)?;
    let (smaller, larger) = (&advice.cache[..own], &advice.cache[own + 1..]);
    let most = larger.iter().map(rate).fold(0.0, f64::max);
    let up = if larger.is_empty() {
        "The cache holds all remote bytes already.".to_owned()
    } else if most < now * (1.0 + LEVEL) {
        "More cache would bring nothing.".to_owned()
    } else {
        let enough = larger.iter().find(|case| rate(case) >= most * (1.0 - LEVEL))?;
        let more = if enough.share < 1.0 { "; more than that brings nothing" } else { "" };
        format!("A cache of {} would bring {}{more}.", size(enough), times(rate(enough) / now))
    };
    let less = smaller.iter().find(|case| rate(case) >= now * (1.0 - LEVEL));
    let down = match (less, smaller.last()) {
        (Some(less), _) => format!(" {} would do as well.", size(less)),
        (None, Some(next)) => format!(" {} would leave {}.", size(next), times(rate(next) / now)),
        (None, None) => String::new(),
    };
    Some(up + &down)
}

fn more_bandwidth(advice: &Advice, best: &Outcome) -> Option<String> {
    let rate = |factor: f64| {
        let case = advice.bandwidth.iter().find(|case| case.factor == factor)?;
        fastest(&case.arms).map(|arm| arm.minibatches_per_s / best.minibatches_per_s.max(1e-9))
    };
    let (half, twice, four) = (rate(0.5)?, rate(2.0)?, rate(4.0)?);
    let up = if four < 1.0 + LEVEL {
        "More bandwidth would bring nothing".to_owned()
    } else {
        format!("Twice the bandwidth would bring {}, four times {}", times(twice), times(four))
    };
    let down = if half > 1.0 - LEVEL {
        "half of it would do as well".to_owned()
    } else {
        format!("half of it would leave {}", times(half))
    };
    Some(format!("{up}; {down}."))
}

/// What to keep in mind when believing this.
pub(super) fn caveats(advice: &Advice) -> Vec<String> {
    let facts = &advice.facts;
    let mut lines = vec![
        "Simulated: the product's policies and limits in virtual time, on links as the topology states them. Nothing \
         was measured on your machines."
            .to_owned(),
        format!(
            "Trainers are assumed to sample neighbours uniformly ({} seeds, fanout {:?}); another sampler asks for other rows.",
            facts.seeds, facts.fanout
        ),
        format!(
            "The compute time of {} ms a minibatch is what you stated, the same every time; sampling and handling cost \
             what they cost on the machine that the simulation was calibrated on.",
            facts.compute_ms
        ),
        format!(
            "{} minibatches of each trainer ({:.2} epochs) from an empty cache{}.",
            facts.minibatches,
            facts.epochs,
            if facts.epochs < 1.0 {
                ": a long training profits more from what a cache keeps (--minibatches)"
            } else {
                ""
            }
        ),
    ];
    if let Some(announced) = facts.announced_max {
        lines.push(format!(
            "credits = {} in the topology let a trainer announce {announced} minibatches ahead, not {}: raise credits to {}.",
            announced + 1,
            facts.window,
            facts.window + 2
        ));
    }
    if advice.arms.len() > advice.bandwidth.first().map_or(0, |case| case.arms.len()) {
        lines.push("Other caches and bandwidths: rudder and the best other arms only.".to_owned());
    }
    lines
}

pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

pub(super) fn times(factor: f64) -> String {
    format!("{factor:.2}x")
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
