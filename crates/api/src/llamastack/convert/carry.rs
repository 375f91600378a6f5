//! Moves the fields of a spec between the versions, and restores fields that were kept in annotations.

use serde_json::Value;

use super::fields::{GENERATED, Node, PAIRS, Turn, Version, node};
use crate::convert::tree::{Object, at, remove};

pub(super) type Fields = Object;

/// Moves the fields of `given` to `out`, a spec of the other version. Returns the rest: fields that the other version does
/// not have, values that would return changed, and empty sections.
pub(super) fn carry(from: Version, given: Fields, out: &mut Fields) -> Fields {
    // No valid object has both. They are kept together to record that they were written together.
    let both = from == Version::V1alpha2 && GENERATED.iter().any(|name| given.contains_key(*name));
    let config = given.get("overrideConfig").filter(|_| both).cloned();
    let mut rest = carry_section(from, given, &mut Vec::new(), out);
    if let Some(config) = config {
        rest.insert("overrideConfig".to_owned(), config);
    }
    rest
}

fn carry_section(from: Version, given: Fields, section: &mut Vec<&'static str>, out: &mut Fields) -> Fields {
    let mut rest = Fields::new();
    for (name, value) in given {
        match (node(from, section, &name), value) {
            (Node::Section(step), Value::Object(inner)) if !inner.is_empty() => {
                section.push(step);
                let inner = carry_section(from, inner, section, out);
                section.pop();
                if !inner.is_empty() {
                    rest.insert(name, Value::Object(inner));
                }
            }
            (Node::Field(pair), value) if pair.turn == Turn::Same => put(out, pair.path(from.other()), value),
            (Node::Field(pair), value) => {
                let said = pair.said(from, &value);
                if pair.returned(from, &value).as_ref() != Some(&value) {
                    rest.insert(name, value);
                }
                if let Some(said) = said {
                    put(out, pair.path(from.other()), said);
                }
            }
            (Node::Section(_) | Node::Alone, value) => {
                rest.insert(name, value);
            }
        }
    }
    rest
}

pub(super) fn put(out: &mut Fields, path: &[&str], value: Value) {
    match path {
        [] => {}
        [name] => {
            out.insert((*name).to_owned(), value);
        }
        [name, below @ ..] => {
            let section = out.entry(*name).or_insert_with(|| Value::Object(Fields::new()));
            if let Value::Object(section) = section {
                put(section, below, value);
            }
        }
    }
}

/// Restores kept fields in `live`, a converted spec of `version`. A kept value returns only if it does not change the value
/// of the other version; the paths of all others are added to `dropped`.
pub(super) fn restore(version: Version, kept: Fields, live: &mut Fields, dropped: &mut Vec<String>) {
    let overruled = version == Version::V1alpha2 && live.contains_key("overrideConfig") && {
        let known = kept.get("overrideConfig");
        let known = known.and_then(|config| match node(version, &[], "overrideConfig") {
            Node::Field(pair) => pair.returned(version, config),
            _ => None,
        });
        live.get("overrideConfig") != known.as_ref()
    };
    let (kept, excluded): (Fields, Fields) =
        kept.into_iter().partition(|(name, _)| !(overruled && GENERATED.contains(&&**name)));
    dropped.extend(paths(version, excluded));
    restore_section(version, kept, &mut Vec::new(), live, dropped);
}

fn restore_section(
    version: Version,
    kept: Fields,
    section: &mut Vec<&'static str>,
    live: &mut Fields,
    dropped: &mut Vec<String>,
) {
    for (name, value) in kept {
        let here = live.get(&name);
        let (returns, value) = match (node(version, section, &name), value) {
            (Node::Section(step), Value::Object(inner)) if !inner.is_empty() => {
                section.push(step);
                match live.get_mut(&name) {
                    Some(Value::Object(there)) => restore_section(version, inner, section, there, dropped),
                    Some(_) => dropped.push(spelled(section, None)),
                    None => {
                        // A section returns only with a field in it.
                        let mut there = Fields::new();
                        restore_section(version, inner, section, &mut there, dropped);
                        if !there.is_empty() {
                            live.insert(name, Value::Object(there));
                        }
                    }
                }
                section.pop();
                continue;
            }
            // An empty section does not replace an existing one.
            (Node::Section(_), Value::Object(_)) if here.is_some_and(Value::is_object) => continue,
            (Node::Section(_) | Node::Alone, value) => (here.is_none(), value),
            (Node::Field(pair), value) => (here == pair.returned(version, &value).as_ref(), value),
        };
        if returns {
            live.insert(name, value);
        } else if here != Some(&value) {
            dropped.push(spelled(section, Some(&name)));
        }
    }
}

/// Removes values from `rest` that `out` has after the restore.
pub(super) fn settle(from: Version, rest: &mut Fields, out: &Fields) {
    let together = from == Version::V1alpha2 && GENERATED.iter().any(|name| rest.contains_key(*name));
    for pair in PAIRS.iter().filter(|pair| !(pair.turn == Turn::Same || together && pair.turn == Turn::Config)) {
        let Some(value) = at(rest, pair.path(from)) else { continue };
        let said = at(out, pair.path(from.other())).and_then(|there| pair.said(from.other(), there));
        if said.as_ref() == Some(value) {
            remove(rest, pair.path(from));
        }
    }
}

/// The single fields of a spec of `version`, with their paths.
pub(super) fn pieces(version: Version, fields: Fields) -> Vec<(String, Fields)> {
    fn below(version: Version, fields: Fields, section: &mut Vec<&'static str>, found: &mut Vec<(String, Fields)>) {
        for (name, value) in fields {
            match (node(version, section, &name), value) {
                (Node::Section(step), Value::Object(inner)) if !inner.is_empty() => {
                    section.push(step);
                    below(version, inner, section, found);
                    section.pop();
                }
                (_, value) => {
                    let path = spelled(section, Some(&name));
                    let field = Fields::from_iter([(name, value)]);
                    let above = |field: Fields, step: &&str| Fields::from_iter([((*step).to_owned(), field.into())]);
                    found.push((path, section.iter().rev().fold(field, above)));
                }
            }
        }
    }
    let mut found = Vec::new();
    below(version, fields, &mut Vec::new(), &mut found);
    found
}

pub(super) fn paths(version: Version, fields: Fields) -> impl Iterator<Item = String> {
    pieces(version, fields).into_iter().map(|(path, _)| path)
}

pub(super) fn spelled(section: &[&str], name: Option<&str>) -> String {
    let steps = ["spec"].into_iter().chain(section.iter().copied()).chain(name);
    steps.collect::<Vec<_>>().join(".")
}
