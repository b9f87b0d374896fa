//! Medians and extremes over few repeats.

/// The middle of a few values and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub middle: f64,
    pub low: f64,
    pub high: f64,
}

pub(super) fn spread(values: Vec<f64>) -> Spread {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match median(values) {
        Some(middle) => Spread { middle, low, high },
        None => Spread { middle: 0.0, low: 0.0, high: 0.0 },
    }
}

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
}

/// The middle count; of two, the mean rounded down.
pub(super) fn median_of(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    let middle = values.len() / 2;
    match values.get(middle) {
        None => 0,
        Some(&upper) if values.len() % 2 == 1 => upper,
        Some(&upper) => values[middle - 1].midpoint(upper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_values() {
        let cases: [(&[f64], Option<f64>); 5] = [
            (&[], None),
            (&[2.0], Some(2.0)),
            (&[3.0, 1.0], Some(2.0)),
            (&[5.0, 1.0, 2.0], Some(2.0)),
            (&[4.0, 1.0, 3.0, 2.0], Some(2.5)),
        ];
        for (values, middle) in cases {
            assert_eq!(median(values.to_vec()), middle, "{values:?}");
            if let Some(middle) = middle {
                let counts = values.iter().map(|&value| value as u64).collect();
                assert_eq!(median_of(counts), middle as u64, "{values:?}");
            }
        }
        assert_eq!(median_of(vec![]), 0);
        assert_eq!(median_of(vec![u64::MAX, u64::MAX]), u64::MAX);
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), Spread { middle: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(spread(vec![]), Spread { middle: 0.0, low: 0.0, high: 0.0 });
    }
}
