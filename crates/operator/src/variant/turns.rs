//! Lets namespaces take turns.

use std::collections::BTreeMap;

/// Orders items: the first of each namespace, then the second of each, and so on.
pub fn by_turns<T, N: Ord>(items: impl IntoIterator<Item = T>, namespace: impl Fn(&T) -> N) -> Vec<T> {
    let mut turns: BTreeMap<N, usize> = BTreeMap::new();
    let numbered = items.into_iter().map(|item| {
        let turn = turns.entry(namespace(&item)).or_default();
        *turn += 1;
        (*turn, item)
    });
    let mut ordered: Vec<(usize, T)> = numbered.collect();
    ordered.sort_by_key(|(turn, _)| *turn);
    ordered.into_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_take_turns() {
        let items = [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("c", 6)];
        let numbers: Vec<i32> = by_turns(items, |item| item.0).into_iter().map(|(_, number)| number).collect();
        assert_eq!(numbers, [1, 4, 5, 2, 6, 3]);
        assert!(by_turns(Vec::<(&str, i32)>::new(), |item| item.0).is_empty());
    }
}
