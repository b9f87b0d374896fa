//! A split for graphs that come without one.

use crate::source::Split;
use rudder_graph::random::Key;

/// 60 % of the labelled vertices (of all, where there are no labels) to train on, 20 % to validate on, the rest to
/// test on, drawn by the seed.
pub(crate) fn seeded(vertices: u64, labels: Option<&[i64]>, seed: u64) -> Split {
    let labelled = |v: &u32| labels.is_none_or(|labels| labels[*v as usize] >= 0);
    let mut drawn: Vec<u32> = (0..vertices as u32).filter(labelled).collect();
    let key = Key::new(seed).with(SPLIT_STREAM);
    drawn.sort_by_cached_key(|&v| (key.draw(u64::from(v)), v));
    let (train_end, valid_end) = (drawn.len() * 6 / 10, drawn.len() * 8 / 10);
    let ascending = |ids: &[u32]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    Split {
        train: ascending(&drawn[..train_end]),
        valid: ascending(&drawn[train_end..valid_end]),
        test: ascending(&drawn[valid_end..]),
    }
}

/// Names the draws of splits among all that the seed is used for.
const SPLIT_STREAM: u64 = 0x5917;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_covers_what_is_labelled_once() {
        let labels: Vec<i64> = (0..1000).map(|v| if v % 10 == 0 { -1 } else { v % 7 }).collect();
        let split = seeded(1000, Some(&labels), 5);
        assert_eq!((split.train.len(), split.valid.len(), split.test.len()), (540, 180, 180));
        let mut all = [split.train.clone(), split.valid.clone(), split.test.clone()].concat();
        assert!(split.train.is_sorted() && split.valid.is_sorted() && split.test.is_sorted());
        all.sort_unstable();
        assert_eq!(all, (0..1000).filter(|v| v % 10 != 0).collect::<Vec<u32>>());
        assert_eq!(split, seeded(1000, Some(&labels), 5));
        assert_ne!(split, seeded(1000, Some(&labels), 6));
        assert_eq!(seeded(1000, None, 5).train.len(), 600);
        assert_eq!(seeded(0, None, 5), Split::default());
    }
}
