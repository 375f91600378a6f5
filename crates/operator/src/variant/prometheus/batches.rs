//! Splits namespaces into batches, so that the size of an answer is bounded.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

/// Limit of the series of one answer, unless a single namespace has more.
pub const MAX_SERIES: u64 = 10_000;

const MAX_PERIODS: usize = 8;

/// A fleet that fits into one answer is one batch.
pub fn batches<'a>(
    namespaces: &BTreeSet<&'a str>,
    series: &BTreeMap<String, u64>,
    most: u64,
) -> Vec<BTreeSet<&'a str>> {
    let mut batches: Vec<BTreeSet<&str>> = Vec::new();
    let mut left = 0;
    for namespace in namespaces {
        let size = series.get(*namespace).copied().unwrap_or_default();
        match batches.last_mut() {
            Some(batch) if size <= left => {
                batch.insert(namespace);
                left -= size;
            }
            _ => {
                batches.push(BTreeSet::from([*namespace]));
                left = most.saturating_sub(size);
            }
        }
    }
    batches
}

/// The period to query for each requested one. If there are too many, some are extended: a model then counts as used
/// for longer than necessary, never for less.
pub fn periods(wanted: &BTreeSet<SignedDuration>) -> BTreeMap<SignedDuration, SignedDuration> {
    let all: Vec<SignedDuration> = wanted.iter().copied().collect();
    let step = all.len().div_ceil(MAX_PERIODS).max(1);
    let parts = all.chunks(step);
    parts.flat_map(|part| part.iter().filter_map(|period| Some((*period, *part.last()?)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_batched_by_series_count() {
        let sizes = |sizes: &[(&str, u64)]| sizes.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
        for (series, expected) in [
            (sizes(&[]), vec![vec!["a", "b", "c"]]),
            (sizes(&[("a", 5), ("b", 5)]), vec![vec!["a", "b", "c"]]),
            (sizes(&[("a", 5), ("b", 5), ("c", 1)]), vec![vec!["a", "b"], vec!["c"]]),
            (sizes(&[("a", 50), ("b", 1)]), vec![vec!["a"], vec!["b", "c"]]),
            (sizes(&[("a", 9), ("b", 9), ("c", 9)]), vec![vec!["a"], vec!["b"], vec!["c"]]),
        ] {
            let expected: Vec<BTreeSet<&str>> = expected.into_iter().map(BTreeSet::from_iter).collect();
            assert_eq!(batches(&BTreeSet::from(["a", "b", "c"]), &series, 10), expected, "{series:?}");
        }
        assert!(batches(&BTreeSet::new(), &BTreeMap::new(), 10).is_empty());
    }

    #[test]
    fn periods_are_grouped_and_only_rounded_up() {
        for count in [0, 1, 7, 8, 9, 100] {
            let wanted: BTreeSet<_> = (1..=count).map(|number| SignedDuration::from_secs(number * 7)).collect();
            let asked = periods(&wanted);
            assert_eq!(asked.keys().copied().collect::<BTreeSet<_>>(), wanted);
            assert!(asked.iter().all(|(period, asked)| asked >= period));
            let different: BTreeSet<_> = asked.values().collect();
            assert!(different.len() <= 8 && (count > 8 || different.len() == wanted.len()), "{count}");
        }
    }
}
