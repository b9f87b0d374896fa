//! Dataset ids: part by part, and within a part the order that was chosen.

use crate::csc::zeros;
use crate::error::ImportError;

/// Both id maps. Dataset ids are positions in `original`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbering {
    /// `part_offsets[p] .. part_offsets[p + 1]` are the dataset ids of part p.
    pub part_offsets: Vec<u64>,
    /// Dataset id -> original id.
    pub original: Vec<u32>,
    /// Original id -> dataset id.
    pub dataset: Vec<u32>,
}

impl Numbering {
    /// `part[v]` is the part of original id v; within a part, higher `heat` comes first, then the lower original id.
    pub(crate) fn new(part: &[u16], parts: u32, heat: &[f64]) -> Result<Numbering, ImportError> {
        let mut part_offsets = vec![0_u64; parts as usize + 1];
        part.iter().for_each(|&p| part_offsets[p as usize + 1] += 1);
        for p in 0..parts as usize {
            part_offsets[p + 1] += part_offsets[p];
        }
        let mut next = part_offsets.clone();
        let mut original: Vec<u32> = zeros("the id map", part.len() as u64)?;
        for (v, &p) in part.iter().enumerate() {
            original[next[p as usize] as usize] = v as u32;
            next[p as usize] += 1;
        }
        for range in part_offsets.windows(2) {
            original[range[0] as usize..range[1] as usize]
                .sort_unstable_by(|&a, &b| heat[b as usize].total_cmp(&heat[a as usize]).then(a.cmp(&b)));
        }
        let mut dataset: Vec<u32> = zeros("the id map", part.len() as u64)?;
        original.iter().enumerate().for_each(|(id, &v)| dataset[v as usize] = id as u32);
        Ok(Numbering { part_offsets, original, dataset })
    }

    /// Dataset ids of original ids, ascending.
    pub(crate) fn renumber(&self, originals: &[u32]) -> Vec<u32> {
        let mut ids: Vec<u32> = originals.iter().map(|&v| self.dataset[v as usize]).collect();
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_follow_each_other_and_hot_rows_lead() {
        let numbering = Numbering::new(&[2, 0, 2, 0, 2], 3, &[0.1, 0.0, 0.9, 0.5, 0.1]).unwrap();
        assert_eq!(numbering.part_offsets, [0, 2, 2, 5]);
        assert_eq!(numbering.original, [3, 1, 2, 0, 4]);
        assert_eq!(numbering.dataset, [3, 1, 2, 0, 4]);
        assert_eq!(numbering.renumber(&[0, 2, 4]), [2, 3, 4]);
        let empty = Numbering::new(&[], 2, &[]).unwrap();
        assert_eq!(empty.part_offsets, [0, 0, 0]);
    }

    proptest! {
        #[test]
        fn the_maps_are_inverse(vertices in prop::collection::vec((0_u16..5, any::<f64>()), 0..100)) {
            let (part, heat): (Vec<u16>, Vec<f64>) = vertices.into_iter().unzip();
            let numbering = Numbering::new(&part, 5, &heat).unwrap();
            for (id, &v) in numbering.original.iter().enumerate() {
                prop_assert_eq!(numbering.dataset[v as usize], id as u32);
                let p = part[v as usize] as usize;
                prop_assert!((numbering.part_offsets[p]..numbering.part_offsets[p + 1]).contains(&(id as u64)));
            }
        }
    }
}
