//! What blocks cost to bring, by the link they come over: a block behind a slow link is worth more than one that is as
//! likely and quickly here again. Cost is time a byte; blocks of one table have one size, and only these compete.

use super::frequency::STEPS_PER_DOUBLING;
use crate::view::View;
use rudder_topology::{BlockId, PartId, TableId};

/// Links that differ by less are alike: measured rates vary.
const ALIKE: f64 = 1.5;

/// Steps by which the blocks of each part are worth more than those that come fastest. A step is that of
/// [`super::frequency::Frequency::step`], so that both add up.
#[derive(Debug, Default)]
pub(super) struct Dearness {
    /// First block and steps, for each part of each table; empty where all links are alike.
    parts: Vec<(u32, u32)>,
}

impl Dearness {
    /// By the rate at which rows came lately, where any did, else as the topology states; over the fastest way to
    /// a part.
    pub fn renew(&mut self, view: &View) {
        let rate = |part| {
            let links = view.links.sources(part).iter().filter_map(|&link| view.links.link(link));
            let rates = links
                .map(|link| link.rate.last_bytes_per_s().unwrap_or(link.cost.bandwidth.0 as f64).max(1.0));
            rates.max_by(f64::total_cmp)
        };
        let rates: Vec<Option<f64>> = (0..view.book.parts()).map(|part| rate(PartId(part as u16))).collect();
        self.parts.clear();
        let Some(steps) = steps_of(&rates) else { return };
        for table in (0..view.book.tables()).map(|table| TableId(table as u16)) {
            for (part, &steps) in steps.iter().enumerate() {
                let blocks = view.book.part_blocks(table, PartId(part as u16));
                self.parts.push((blocks.start, steps));
            }
        }
    }

    #[inline]
    pub fn steps(&self, block: BlockId) -> u32 {
        if self.parts.is_empty() {
            return 0;
        }
        let at = self.parts.partition_point(|&(first, _)| first <= block.0);
        at.checked_sub(1).map_or(0, |at| self.parts[at].1)
    }
}

/// For each part, by the rate at which it comes; a part that is co-located has none, and no worth. `None`: all links are
/// alike.
fn steps_of(rates: &[Option<f64>]) -> Option<Vec<u32>> {
    let fastest = rates.iter().flatten().copied().max_by(f64::total_cmp)?;
    let differs = |rate: f64| fastest >= ALIKE * rate;
    if !rates.iter().flatten().any(|&rate| differs(rate)) {
        return None;
    }
    let steps = |rate: &Option<f64>| match rate {
        Some(rate) if differs(*rate) => {
            ((fastest / rate).log2() * f64::from(STEPS_PER_DOUBLING)).round() as u32
        }
        _ => 0,
    };
    Some(rates.iter().map(steps).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_slowly_is_worth_as_many_uses_more() {
        // Four times as slow: worth four times as many uses, two doublings.
        let rates = [Some(4e6), None, Some(1e6), Some(3.9e6)];
        assert_eq!(steps_of(&rates), Some(vec![0, 0, 2 * STEPS_PER_DOUBLING, 0]));
        assert_eq!(steps_of(&[Some(1e6), Some(1.4e6)]), None, "measured rates vary");
        assert_eq!(steps_of(&[None, None]), None);
        assert_eq!(steps_of(&[]), None);
        // No link is so slow that worth overflows.
        assert!(steps_of(&[Some(1.0), Some(1e18)]).unwrap()[0] < 1000);
    }
}
