//! Collects findings about one ConfigMap, and parses its entries.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, IgnoredAny};
use steersman_reconcile::{Finding, NamespacedName, Severity};

use super::{ConfigFinding, MAX_LOCAL_BYTES};
use crate::yaml::{Budget, YamlError};

/// Limits of the unknown fields that a finding names.
const MOST_FIELDS: usize = 3;
const LONGEST_FIELD: usize = 40;

/// The Go operator's wording.
const DUPLICATE: &str = "Duplicate modelID found in scale-to-zero ConfigMap - first key wins (lexicographic order)";

pub struct Notes<'a> {
    /// `None` for the environment.
    pub map: Option<NamespacedName>,
    pub findings: &'a mut Vec<ConfigFinding>,
}

impl Notes<'_> {
    pub fn bad(&mut self, key: &str, why: &str) {
        let remedy = "Correct the value. Until then the last valid value is used, or the default if there is none.";
        self.add(Severity::Warning, "ConfigValueInvalid", key, why, remedy);
    }

    /// The whole ConfigMap is not read.
    pub fn too_large(&mut self) {
        let remedy = "Remove entries or comments. Until then the last valid values are used, or the defaults if there are \
                      none, and no model of this namespace is scaled to zero.";
        let text = format!("it is too large to be read; at most {MAX_LOCAL_BYTES} bytes of keys and values are");
        self.push(Severity::Warning, "ConfigMapTooLarge", &[], &text, remedy);
    }

    /// A value that is replaced by a valid one.
    pub fn bent(&mut self, key: &str, why: &str) {
        self.add(Severity::Warning, "ConfigValueOutOfRange", key, why, "Correct the value.");
    }

    /// A required setting that is missing.
    pub fn absent(&mut self, key: &str, why: &str, remedy: &str) {
        self.add(Severity::Warning, "ConfigValueMissing", key, why, remedy);
    }

    /// A setting without effect.
    pub fn ignored(&mut self, key: &str, why: &str, remedy: &str) {
        self.add(Severity::Warning, "ConfigValueIgnored", key, why, remedy);
    }

    pub fn odd(&mut self, key: &str, why: &str) {
        self.add(Severity::Info, "ConfigValueUnusual", key, why, "Check that this is intended.");
    }

    pub fn duplicate(&mut self, key: &str, model: &str) {
        let why = format!("{DUPLICATE}: {model}");
        self.add(Severity::Warning, "ConfigEntryDuplicate", key, &why, "Keep one entry per model and namespace.");
    }

    /// Entries that are valid alone but not together.
    pub fn clash(&mut self, keys: &[&str], model: &str, namespace: &str, why: &str) {
        let more = keys.len().saturating_sub(MOST_FIELDS);
        let named: Vec<&str> = keys.iter().take(MOST_FIELDS).copied().collect();
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
        let text = format!("keys {}{rest} contradict each other for model {model}{place}: {why}", named.join(" and "));
        let remedy = "Change one of the entries. Until then entry default applies to the model.";
        self.push(Severity::Warning, "ConfigEntriesClash", &named, &text, remedy);
    }

    fn add(&mut self, severity: Severity, reason: &'static str, key: &str, why: &str, remedy: &str) {
        self.push(severity, reason, &[key], &format!("key {key}: {why}"), remedy);
    }

    fn push(&mut self, severity: Severity, reason: &'static str, keys: &[&str], text: &str, remedy: &str) {
        let place = self.map.as_ref().map_or_else(|| "Environment".to_owned(), |map| format!("ConfigMap {map}"));
        let finding = Finding { severity, reason, message: format!("{place}, {text}."), remedy: remedy.to_owned() };
        let keys = keys.iter().map(ToString::to_string).collect();
        self.findings.push(ConfigFinding { finding, config_map: self.map.clone(), keys });
    }
}

/// The entries of a ConfigMap with YAML or JSON values. An invalid entry keeps its last valid value.
pub fn entries<T: DeserializeOwned + Clone>(
    data: &BTreeMap<String, String>,
    speaks: impl Fn(&str) -> bool,
    last: &BTreeMap<String, T>,
    notes: &mut Notes<'_>,
    check: impl Fn(&str, &mut T, Option<&T>, &mut Notes<'_>) -> Result<(), String>,
) -> BTreeMap<String, T> {
    let mut read = BTreeMap::new();
    let mut budget = Budget::default();
    for (key, text) in data.iter().filter(|(key, _)| speaks(key)) {
        let before = last.get(key);
        let entry =
            yaml::<T>(&mut budget, text).and_then(|mut entry| check(key, &mut entry, before, notes).map(|()| entry));
        let entry = entry.map_err(|why| notes.bad(key, &why)).ok().or_else(|| before.cloned());
        read.extend(entry.map(|entry| (key.clone(), entry)));
    }
    read
}

/// Reports unknown fields, which are mostly typing errors. Values are never shown.
pub fn unknown_fields(data: &BTreeMap<String, String>, known: &[&str], notes: &mut Notes<'_>) {
    let mut budget = Budget::default();
    for (key, text) in data {
        let Ok(fields) = yaml::<BTreeMap<String, IgnoredAny>>(&mut budget, text) else { continue };
        let unknown = fields.into_keys().filter(|field| !known.contains(&field.as_str())).take(MOST_FIELDS);
        let unknown: Vec<String> = unknown.map(|field| format!("{:?}", shortened(&field))).collect();
        if !unknown.is_empty() {
            let why = format!("unknown field {}", unknown.join(", "));
            notes.ignored(key, &why, &format!("It has no effect. Known fields: {}.", known.join(", ")));
        }
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_FIELD)]
}

/// The message names the limit or the position, and never the content. The budget holds for all entries of a ConfigMap.
pub fn yaml<T: DeserializeOwned>(budget: &mut Budget, text: &str) -> Result<T, String> {
    budget.parse(text).map_err(|error| match error {
        YamlError::Limit(limit) => {
            format!("the ConfigMap has {limit}, so that this entry and those after it are not read")
        }
        YamlError::Invalid { .. } => error.without_content("invalid YAML or a wrong type"),
    })
}
