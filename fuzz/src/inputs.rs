//! The inputs of a run without libFuzzer: all seeds of a target, then seeds with a few changes. They are the same in every run.

use anyhow::Result;

use crate::random::Random;
use crate::{MAX_INPUT_BYTES, Target, byte_mutator, json_mutator, seeds};

/// Most changes of one seed.
const MAX_CHANGES: u64 = 6;

/// The seeds and `changed` changed ones.
pub fn inputs(target: Target, changed: u32) -> Result<impl Iterator<Item = Vec<u8>>> {
    let seeds = seeds::seeds(target.name)?;
    let originals = seeds.clone();
    let changed = (1..=changed).map(move |number| change(&seeds, target.is_json, &mut Random::new(number)));
    Ok(originals.into_iter().chain(changed))
}

fn change(seeds: &[Vec<u8>], is_json: bool, random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.index(seeds.len())].clone();
    let other = &seeds[random.index(seeds.len())];
    for _ in 0..=random.below(MAX_CHANGES) {
        if is_json {
            input = json_mutator::change_document(&input, random).unwrap_or(input);
        } else {
            byte_mutator::mutate(&mut input, other, random);
        }
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::TARGETS;

    #[test]
    fn inputs_repeat_and_differ_from_seeds() {
        for target in TARGETS {
            let run = || inputs(target, 200).unwrap().collect::<Vec<_>>();
            let first = run();
            assert_eq!(first, run(), "{}", target.name);
            let (seeds, changed) = first.split_at(first.len() - 200);
            let distinct: BTreeSet<_> = changed.iter().filter(|input| !seeds.contains(input)).collect();
            assert!(distinct.len() > 150, "{}: {} of 200 inputs are new", target.name, distinct.len());
        }
    }
}
