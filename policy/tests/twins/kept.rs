//! Caches of a chosen set: besides the set, only the minibatch in use is resident. Where it lacks room, members yield.

use crate::play::{Case, Known, Play, Rows, Twin, add, agree, case, case_with};
use proptest::prelude::*;
use rudder_topology::{ControllerSpec, MassiveGnnSpec, PolicySpec, Sampling, Share, WindowStaticSpec};
use std::collections::{BTreeMap, BTreeSet};

/// Members and what is resident of them.
#[derive(Default)]
struct Set {
    slots: usize,
    full: u64,
    members: BTreeSet<u32>,
    held: Rows,
}

impl Set {
    fn new(case: &Case) -> Set {
        Set { slots: case.slots as usize, full: case.full_mask(), ..Set::default() }
    }

    /// Brings members in whole.
    fn fill(&mut self) -> Rows {
        let mut fetched = Rows::new();
        for &block in &self.members {
            let held = self.held.entry(block).or_default();
            if *held != self.full {
                fetched.insert(block, self.full & !*held);
                *held = self.full;
            }
        }
        assert!(self.held.len() <= self.slots);
        fetched
    }

    /// How many members have to yield to a minibatch.
    fn lacking(&self, wanted: &Rows) -> usize {
        let missing = wanted.keys().filter(|block| !self.held.contains_key(block)).count();
        (self.held.len() + missing).saturating_sub(self.slots)
    }

    fn drop_member(&mut self, block: u32) {
        assert!(self.members.remove(&block) && self.held.remove(&block).is_some());
    }

    fn fetch(&mut self, wanted: &Rows) -> Rows {
        let mut fetched = Rows::new();
        for (&block, &mask) in wanted {
            let held = self.held.entry(block).or_default();
            if mask & !*held != 0 {
                fetched.insert(block, mask & !*held);
            }
            *held |= mask;
        }
        fetched
    }

    fn drop_others(&mut self) {
        self.held.retain(|block, _| self.members.contains(block));
    }
}

/// Blocks with a prior, highest first.
fn ranked(case: &Case) -> Vec<u32> {
    let mut blocks: Vec<u32> = (0..case.blocks).filter(|&block| case.prior[block as usize] > 0.0).collect();
    blocks.sort_by_key(|&block| (-case.prior[block as usize] as i64, block));
    blocks
}

struct Fixed {
    set: Set,
    /// Best first.
    ranked: Vec<u32>,
}

impl Fixed {
    fn new(case: &Case) -> Fixed {
        let mut ranked = ranked(case);
        ranked.truncate(case.slots as usize);
        let mut set = Set::new(case);
        set.members = ranked.iter().copied().collect();
        Fixed { set, ranked }
    }
}

impl Twin for Fixed {
    fn begin(&mut self) -> Rows {
        self.set.fill()
    }

    fn minibatch(&mut self, wanted: &Rows) -> Rows {
        for _ in 0..self.set.lacking(wanted) {
            let worst =
                self.ranked.iter().rposition(|block| !wanted.contains_key(block)).expect("one yields");
            self.set.drop_member(self.ranked.remove(worst));
        }
        let fetched = self.set.fetch(wanted);
        self.set.drop_others();
        fetched
    }

    fn resident(&self) -> Rows {
        self.set.held.clone()
    }
}

struct MassiveGnn {
    set: Set,
    alpha: f64,
    delta: u32,
    halo: BTreeSet<u32>,
    eviction: BTreeMap<u32, f64>,
    /// In single precision, as published.
    access: BTreeMap<u32, f32>,
    minibatches: u32,
    /// Whether the n-th minibatch replaces, counted from 1.
    replaces: fn(u32, u32) -> bool,
}

impl MassiveGnn {
    fn new(case: &Case, spec: MassiveGnnSpec, replaces: fn(u32, u32) -> bool) -> MassiveGnn {
        let ranked = ranked(case);
        let size = (ranked.len() as f64 * spec.fraction.as_f64()).floor() as usize;
        let mut set = Set::new(case);
        set.members = ranked.iter().take(size.min(case.slots as usize)).copied().collect();
        MassiveGnn {
            eviction: set.members.iter().map(|&block| (block, 1.0)).collect(),
            set,
            alpha: spec.alpha.as_f64(),
            delta: spec.delta,
            halo: ranked.into_iter().collect(),
            access: BTreeMap::new(),
            minibatches: 0,
            replaces,
        }
    }

    fn replace(&mut self) {
        let threshold = (0..self.delta).fold(1.0, |score, _| score * (1.0 - self.alpha));
        let stale: Vec<u32> = self
            .eviction
            .iter()
            .filter(|(_, score)| **score <= threshold * (1.0 + 1e-7))
            .map(|(&b, _)| b)
            .collect();
        let mut best: Vec<(u32, f32)> = self.access.iter().map(|(&b, &score)| (b, score)).collect();
        best.retain(|(_, score)| *score > 0.0);
        best.sort_by(|a, b| b.1.partial_cmp(&a.1).expect("numbers").then(a.0.cmp(&b.0)));
        for (out, (into, score)) in stale.into_iter().zip(best) {
            let former = self.eviction.remove(&out).expect("a member");
            self.access.remove(&into);
            self.access.insert(out, former as f32);
            self.eviction.insert(into, f64::from(score));
        }
        self.set.members = self.eviction.keys().copied().collect();
    }
}

impl Twin for MassiveGnn {
    fn begin(&mut self) -> Rows {
        self.set.fill()
    }

    fn minibatch(&mut self, wanted: &Rows) -> Rows {
        for _ in 0..self.set.lacking(wanted) {
            let may = self.eviction.iter().filter(|(block, _)| !wanted.contains_key(block));
            let order = |a: &(&u32, &f64), b: &(&u32, &f64)| {
                (*a.1 as f32).partial_cmp(&(*b.1 as f32)).expect("numbers").then(b.0.cmp(a.0))
            };
            let (block, score) = may.min_by(order).map(|(&b, &s)| (b, s)).expect("one yields");
            self.eviction.remove(&block);
            self.access.insert(block, score as f32);
            self.set.drop_member(block);
        }
        let mut fetched = self.set.fetch(wanted);
        self.minibatches += 1;
        for (block, score) in &mut self.eviction {
            if !wanted.contains_key(block) {
                *score *= 1.0 - self.alpha;
            }
        }
        let missed =
            wanted.keys().filter(|block| self.halo.contains(block) && !self.eviction.contains_key(block));
        let missed: Vec<u32> = missed.copied().collect();
        if (self.replaces)(self.minibatches, self.delta) {
            self.replace();
        }
        for block in missed.into_iter().filter(|block| !self.eviction.contains_key(block)) {
            *self.access.entry(block).or_default() += 1.0;
        }
        self.set.drop_others();
        add(&mut fetched, &self.set.fill());
        fetched
    }

    fn resident(&self) -> Rows {
        self.set.held.clone()
    }
}

/// Powers of 1 - α that floats have exactly, so that equal scores are equal on both sides.
fn scoring() -> impl Strategy<Value = MassiveGnnSpec> {
    let alpha = prop_oneof![Just(500_000), Just(750_000)];
    (alpha, 1_u32..5, 0_u32..=10).prop_map(|(alpha, delta, tenths)| MassiveGnnSpec {
        alpha: Share::from_millionths(alpha),
        delta,
        fraction: Share::from_millionths(tenths * 100_000),
    })
}

/// What RapidGNN keeps, with two windows announced ahead.
fn window_static(case: &Case, spec: WindowStaticSpec, how: Known) -> Result<(), TestCaseError> {
    let length = spec.minibatches as usize;
    let size = (spec.cache.as_f64() * f64::from(case.slots)).floor() as usize;
    let windows: Vec<&[Rows]> = case.trace.chunks(length).collect();
    let chosen = |window: usize| -> BTreeSet<u32> {
        let mut uses: BTreeMap<u32, i32> = BTreeMap::new();
        for block in
            windows.get(window).into_iter().flat_map(|window| window.iter()).flat_map(|rows| rows.keys())
        {
            *uses.entry(*block).or_default() += 1;
        }
        let mut blocks: Vec<u32> = uses.keys().copied().collect();
        blocks.sort_by_key(|block| (-uses[block], *block));
        blocks.into_iter().take(size).collect()
    };
    let is_whole = |window: usize| windows.get(window).is_some_and(|rows| rows.len() == length);
    let mut play = Play::new(case, PolicySpec::WindowStatic(spec));
    let mut set = Set::new(case);
    for (n, wanted) in case.trace.iter().enumerate() {
        play.look_ahead(&case.trace, n + 2 * length, how);
        let window = n / length;
        let mut fetched = play.arrive();
        let mut expected = Rows::new();
        let both = |window: usize| {
            let next = if is_whole(window + 1) { chosen(window + 1) } else { BTreeSet::new() };
            chosen(window).union(&next).copied().collect::<BTreeSet<u32>>()
        };
        if is_whole(window) {
            set.members = both(window);
            set.drop_others();
            expected = set.fill();
        } else if n % length == 0 {
            // The last window is not whole: it is chosen when it is waited for.
            set.members = chosen(window);
            set.drop_others();
            expected = set.fill();
        }
        add(&mut fetched, &play.serve());
        add(&mut expected, &set.fetch(wanted));
        let switches = (n + 1) % length == 0 && n + 1 < case.trace.len();
        if switches && is_whole(window + 1) {
            set.members = chosen(window + 1);
        }
        set.drop_others();
        prop_assert_eq!(fetched, expected, "fetched for minibatch {}", n);
        prop_assert_eq!(play.resident(), set.held.clone(), "resident after minibatch {}", n);
    }
    Ok(())
}

proptest! {
    #[test]
    fn fixed(case in prop_oneof![case(1), case(4)]) {
        agree(&case, PolicySpec::Degree, &mut Fixed::new(&case))?;
        agree(&case, PolicySpec::Vip { sampling: Sampling::PUBLISHED }, &mut Fixed::new(&case))?;
    }

    #[test]
    fn massivegnn(case in prop_oneof![case(1), case(4)], spec in scoring()) {
        let twin = || MassiveGnn::new(&case, spec, |n, delta| n % delta == 0);
        agree(&case, PolicySpec::MassiveGnn(spec), &mut twin())?;
        let every = ControllerSpec::Every { minibatches: spec.delta };
        agree(&case, PolicySpec::RudderPaper { scoring: spec, controller: every }, &mut twin())?;
    }

    #[test]
    fn rudder_paper(case in prop_oneof![case(1), case(4)], spec in scoring()) {
        let random = |probability| ControllerSpec::Random { probability };
        for (controller, replaces) in [
            (ControllerSpec::Always, (|_, _| true) as fn(u32, u32) -> bool),
            (random(Share::ONE), |_, _| true),
            (ControllerSpec::Never, |_, _| false),
            (random(Share::default()), |_, _| false),
            (ControllerSpec::Every { minibatches: 3 }, |n, _| n % 3 == 0),
        ] {
            let policy = PolicySpec::RudderPaper { scoring: spec, controller };
            agree(&case, policy, &mut MassiveGnn::new(&case, spec, replaces))?;
        }
    }

    #[test]
    fn window_by_window(
        // Two buffers of 3 tenths leave room for any minibatch, so that nobody yields.
        case in prop_oneof![case_with(1, 5..15, |slots| slots * 4 / 10), case_with(4, 5..15, |slots| slots * 4 / 10)],
        minibatches in 1_u32..5,
    ) {
        let cache = Share::from_millionths(300_000);
        for how in [Known::Announced, Known::Foreseen] {
            window_static(&case, WindowStaticSpec { minibatches, cache }, how)?;
        }
    }
}
