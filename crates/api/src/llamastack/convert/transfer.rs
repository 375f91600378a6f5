//! Moves the fields of a spec between the versions, and restores fields that were preserved in annotations.

use serde_json::Value;

use super::fields::{FIELD_PAIRS, GENERATED_SECTIONS, LlsdVersion, SHORT_NAMES, SpecNode, ValueConversion, node_at};
use crate::convert::tree::{JsonObject, remove, value_at};

pub(super) type Fields = JsonObject;

/// Moves the fields of `source` to `target`, a spec of the other version. Returns the rest: fields that the other
/// version does not have, values that a round trip would change, and empty sections.
pub(super) fn transfer(from: LlsdVersion, source: Fields, target: &mut Fields) -> Fields {
    // No valid object has both. They are preserved together to record that they were written together.
    let both = from == LlsdVersion::V1alpha2 && GENERATED_SECTIONS.iter().any(|name| source.contains_key(*name));
    let config = source.get("overrideConfig").filter(|_| both).cloned();
    let short = if from == LlsdVersion::V1alpha2 { short_fields(&source) } else { Vec::new() };
    let mut rest = transfer_section(from, source, &mut Vec::new(), target);
    // The short name itself is among the rest.
    for (_, name, value) in short {
        insert_at(target, &["server", name], value);
    }
    if let Some(config) = config {
        rest.insert("overrideConfig".to_owned(), config);
    }
    rest
}

/// The fields of `workload` that are written under their short name alone: short name, name and value.
fn short_fields(spec: &Fields) -> Vec<(&'static str, &'static str, Value)> {
    let Some(Value::Object(workload)) = spec.get("workload") else { return Vec::new() };
    let written = SHORT_NAMES.into_iter().filter(|(_, name)| !workload.contains_key(*name));
    written.filter_map(|(short, name)| Some((short, name, workload.get(short)?.clone()))).collect()
}

fn transfer_section(from: LlsdVersion, source: Fields, section: &mut Vec<&'static str>, target: &mut Fields) -> Fields {
    let mut rest = Fields::new();
    for (name, value) in source {
        match (node_at(from, section, &name), value) {
            (SpecNode::Section(step), Value::Object(inner)) if !inner.is_empty() => {
                section.push(step);
                let inner = transfer_section(from, inner, section, target);
                section.pop();
                if !inner.is_empty() {
                    rest.insert(name, Value::Object(inner));
                }
            }
            (SpecNode::Field(pair), value) if pair.conversion == ValueConversion::Same => {
                insert_at(target, pair.path(from.other()), value);
            }
            (SpecNode::Field(pair), value) => {
                let converted = pair.convert_value(from, &value);
                if pair.round_trip(from, &value).as_ref() != Some(&value) {
                    rest.insert(name, value);
                }
                if let Some(converted) = converted {
                    insert_at(target, pair.path(from.other()), converted);
                }
            }
            (SpecNode::Section(_) | SpecNode::Unpaired, value) => {
                rest.insert(name, value);
            }
        }
    }
    rest
}

pub(super) fn insert_at(fields: &mut Fields, path: &[&str], value: Value) {
    match path {
        [] => {}
        [name] => {
            fields.insert((*name).to_owned(), value);
        }
        [name, below @ ..] => {
            let section = fields.entry(*name).or_insert_with(|| Value::Object(Fields::new()));
            if let Value::Object(section) = section {
                insert_at(section, below, value);
            }
        }
    }
}

/// Restores preserved fields in `live`, a converted spec of `version`. A preserved value is restored only if it does
/// not change the value of the other version; the paths of all others are added to `not_restored`.
pub(super) fn restore(version: LlsdVersion, preserved: Fields, live: &mut Fields, not_restored: &mut Vec<String>) {
    let overruled = version == LlsdVersion::V1alpha2 && live.contains_key("overrideConfig") && {
        let known = preserved.get("overrideConfig");
        let known = known.and_then(|config| match node_at(version, &[], "overrideConfig") {
            SpecNode::Field(pair) => pair.round_trip(version, config),
            _ => None,
        });
        live.get("overrideConfig") != known.as_ref()
    };
    let (preserved, excluded): (Fields, Fields) =
        preserved.into_iter().partition(|(name, _)| !(overruled && GENERATED_SECTIONS.contains(&&**name)));
    not_restored.extend(paths(version, excluded));
    let mut preserved = preserved;
    if version == LlsdVersion::V1alpha2 {
        restore_short_names(&mut preserved, live, not_restored);
    }
    restore_section(version, preserved, &mut Vec::new(), live, not_restored);
}

/// Prepares the restore of a short name: the field that it means is removed from `live`. A field that has changed since
/// keeps its value and its full name.
fn restore_short_names(preserved: &mut Fields, live: &mut Fields, not_restored: &mut Vec<String>) {
    for (short, name, value) in short_fields(preserved) {
        let live_value = live.get("workload").and_then(|workload| workload.get(name));
        let unchanged = live_value == Some(&value);
        let section = if unchanged { live.get_mut("workload") } else { preserved.get_mut("workload") };
        if let Some(Value::Object(section)) = section {
            section.remove(if unchanged { name } else { short });
        }
        if !unchanged {
            not_restored.push(field_path(&["workload"], Some(short)));
            // An empty section would be restored.
            if preserved.get("workload").is_some_and(|left| left.as_object().is_some_and(Fields::is_empty)) {
                preserved.remove("workload");
            }
        }
    }
}

fn restore_section(
    version: LlsdVersion,
    preserved: Fields,
    section: &mut Vec<&'static str>,
    live: &mut Fields,
    not_restored: &mut Vec<String>,
) {
    for (name, value) in preserved {
        let live_value = live.get(&name);
        let (restores, value) = match (node_at(version, section, &name), value) {
            (SpecNode::Section(step), Value::Object(inner)) if !inner.is_empty() => {
                section.push(step);
                match live.get_mut(&name) {
                    Some(Value::Object(live_inner)) => {
                        restore_section(version, inner, section, live_inner, not_restored);
                    }
                    Some(_) => not_restored.push(field_path(section, None)),
                    None => {
                        // A section is restored only with a field in it.
                        let mut live_inner = Fields::new();
                        restore_section(version, inner, section, &mut live_inner, not_restored);
                        if !live_inner.is_empty() {
                            live.insert(name, Value::Object(live_inner));
                        }
                    }
                }
                section.pop();
                continue;
            }
            // An empty section does not replace an existing one.
            (SpecNode::Section(_), Value::Object(_)) if live_value.is_some_and(Value::is_object) => continue,
            (SpecNode::Section(_) | SpecNode::Unpaired, value) => (live_value.is_none(), value),
            (SpecNode::Field(pair), value) => (live_value == pair.round_trip(version, &value).as_ref(), value),
        };
        if restores {
            live.insert(name, value);
        } else if live_value != Some(&value) {
            not_restored.push(field_path(section, Some(&name)));
        }
    }
}

/// Removes values from `rest` that follow from `target` after the restore.
pub(super) fn remove_derived(from: LlsdVersion, rest: &mut Fields, target: &Fields) {
    let together = from == LlsdVersion::V1alpha2 && GENERATED_SECTIONS.iter().any(|name| rest.contains_key(*name));
    for pair in &FIELD_PAIRS {
        if pair.conversion == ValueConversion::Same || together && pair.conversion == ValueConversion::Config {
            continue;
        }
        let Some(value) = value_at(rest, pair.path(from)) else { continue };
        let converted = value_at(target, pair.path(from.other())).and_then(|it| pair.convert_value(from.other(), it));
        if converted.as_ref() == Some(value) {
            remove(rest, pair.path(from));
        }
    }
}

/// Splits a spec of `version` into specs with one field each, with the paths of the fields.
pub(super) fn single_fields(version: LlsdVersion, fields: Fields) -> Vec<(String, Fields)> {
    fn collect(
        version: LlsdVersion,
        fields: Fields,
        section: &mut Vec<&'static str>,
        found: &mut Vec<(String, Fields)>,
    ) {
        for (name, value) in fields {
            match (node_at(version, section, &name), value) {
                (SpecNode::Section(step), Value::Object(inner)) if !inner.is_empty() => {
                    section.push(step);
                    collect(version, inner, section, found);
                    section.pop();
                }
                (_, value) => {
                    let path = field_path(section, Some(&name));
                    let field = Fields::from_iter([(name, value)]);
                    let nest = |inner: Fields, step: &&str| Fields::from_iter([((*step).to_owned(), inner.into())]);
                    found.push((path, section.iter().rev().fold(field, nest)));
                }
            }
        }
    }
    let mut found = Vec::new();
    collect(version, fields, &mut Vec::new(), &mut found);
    found
}

pub(super) fn paths(version: LlsdVersion, fields: Fields) -> impl Iterator<Item = String> {
    single_fields(version, fields).into_iter().map(|(path, _)| path)
}

fn field_path(section: &[&str], name: Option<&str>) -> String {
    let steps = ["spec"].into_iter().chain(section.iter().copied()).chain(name);
    steps.collect::<Vec<_>>().join(".")
}
