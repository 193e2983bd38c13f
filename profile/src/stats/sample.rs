//! Mean, standard deviation and median of a few figures.

/// The arithmetic mean; `None` for no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard deviation of a sample, over n − 1; `None` for fewer than two values.
pub fn std_dev(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The middle value, or the mean of the two; `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let odd = sorted.len() % 2 == 1;
    // Halving first is exact and can't overflow.
    Some(if odd { upper } else { sorted[sorted.len() / 2 - 1] / 2.0 + upper / 2.0 })
}

/// The middle time; of an even number the earlier of the two, which is one that was measured. `None` for no times.
pub fn median_ns(mut times: Vec<u64>) -> Option<u64> {
    let middle = times.len().checked_sub(1)? / 2;
    Some(*times.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_figures_have_what_they_can_have() {
        assert_eq!((mean(&[]), std_dev(&[]), median(&[])), (None, None, None));
        assert_eq!((mean(&[4.0]), std_dev(&[4.0]), median(&[4.0])), (Some(4.0), None, Some(4.0)));
        let values = [9.0, 1.0, 2.0, 4.0];
        assert_eq!((mean(&values), median(&values)), (Some(4.0), Some(3.0)));
        // 25 + 9 + 4 + 0 over 3.
        assert_eq!(std_dev(&values), Some((38.0_f64 / 3.0).sqrt()));
        assert_eq!(median(&[f64::MAX, f64::MAX]), Some(f64::MAX));
        assert_eq!([vec![], vec![3], vec![9, 1, 4, 2]].map(median_ns), [None, Some(3), Some(2)]);
    }
}
