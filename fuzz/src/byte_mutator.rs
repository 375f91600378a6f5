//! Changes the bytes of an input without knowledge of its format, for runs without libFuzzer.

use std::ops::Range;

use crate::random::Random;

/// Most bytes that one change copies or removes.
const MAX_CHANGED_BYTES: usize = 256;

/// Makes one change. `other` is another input of the same target, from which bytes are copied.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    match random.below(7) {
        0 => {
            let place = random.index(input.len());
            if let Some(byte) = input.get_mut(place) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => drop(input.drain(range(input, random))),
        2 => {
            let copy = input[range(input, random)].to_vec();
            insert(input, &copy, random);
        }
        3 => insert(input, &other[range(other, random)], random),
        4 => {
            let place = range(input, random);
            drop(input.splice(place, other[range(other, random)].iter().copied()));
        }
        5 => insert(input, TOKENS[random.index(TOKENS.len())], random),
        _ => {
            let place = range(input, random);
            drop(input.splice(place, TOKENS[random.index(TOKENS.len())].iter().copied()));
        }
    }
}

fn insert(input: &mut Vec<u8>, bytes: &[u8], random: &mut Random) {
    let place = random.index(input.len() + 1);
    drop(input.splice(place..place, bytes.iter().copied()));
}

/// A part of the bytes, mostly a short one.
fn range(bytes: &[u8], random: &mut Random) -> Range<usize> {
    let start = random.index(bytes.len() + 1);
    let longest = if random.below(4) == 0 { MAX_CHANGED_BYTES } else { 8 };
    start..start + random.index(longest.min(bytes.len() - start) + 1)
}

/// Syntax of the formats that the targets read, and values at limits.
const TOKENS: [&[u8]; 32] = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b"\"",
    b"'",
    b"\\",
    b"\\u0000",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b": ",
    b",",
    b"=",
    b"/",
    b"..",
    b"@sha256:",
    b"#",
    b"\n---\n",
    b"\n===\n",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!binary ",
    b"-1",
    b"18446744073709551616",
    b"1e999",
    b"NaN",
    b"\xff",
];
