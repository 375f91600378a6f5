//! Reads ConfigMap `…-saturation-scaling-config`, of the operator or of a user's namespace. The thresholds of each
//! model are consistent.

use std::collections::BTreeMap;

use serde::Serialize;
use steersman_reconcile::NamespacedName;

use super::note::{Notes, entries, unknown_fields};
use super::thresholds::{self, SaturationEntry, Thresholds};
use super::{ConfigData, ConfigFinding};
use crate::variant::names;

/// Entries of one model that are compared with each other. A map may have thousands.
const MOST_COMPARED: usize = 50;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Saturation {
    /// By key. Entry `default` applies to every model.
    pub entries: BTreeMap<String, SaturationEntry>,
}

impl Saturation {
    /// Thresholds of models without an entry of their own.
    pub fn common(&self) -> Thresholds {
        match self.entries.get(names::DEFAULT_ENTRY) {
            Some(entry) => Thresholds::default().with(entry),
            None => Thresholds::default(),
        }
    }

    /// Thresholds of one model. `fleet`: those of the operator's own map.
    pub fn of(&self, fleet: &Thresholds, namespace: &str, model: &str) -> Thresholds {
        let base = self.common().under(fleet);
        let own = self.entries.iter().filter_map(|(key, entry)| Some((rank(key, entry, namespace, model)?, entry)));
        let mut own: Vec<_> = own.collect();
        own.sort_by_key(|(rank, _)| *rank);
        let merged = laid(&base, own.into_iter().map(|(_, entry)| entry));
        // Entries that are each consistent with `default` may contradict each other; then `default` applies.
        let thresholds = if sound(&merged).is_ok() { merged } else { base };
        thresholds.filled()
    }
}

/// Specificity of an entry for the model: the most specific entry wins. `None` if it is about other models.
fn rank(key: &str, entry: &SaturationEntry, namespace: &str, model: &str) -> Option<u8> {
    if key == names::DEFAULT_ENTRY {
        return None;
    }
    let of_model = entry.model_id.as_deref() == Some(model);
    match entry.namespace.as_deref().filter(|given| !given.is_empty()) {
        None if of_model => Some(0),
        Some(given) if of_model && given == namespace => Some(1),
        _ => None,
    }
}

/// Applies the entries to `base`, the most specific last.
fn laid<'a>(base: &Thresholds, entries: impl Iterator<Item = &'a SaturationEntry>) -> Thresholds {
    entries.fold(base.clone(), |below, entry| below.with(entry)).under(base)
}

fn sound(thresholds: &Thresholds) -> Result<(), String> {
    let thresholds = thresholds.clone().filled();
    thresholds.validate()?;
    thresholds.always_saturated().map_or(Ok(()), Err)
}

/// `fleet`: thresholds of the operator's own map, if this is a map of a user's namespace. Invalid entries keep their
/// value in `last`.
pub fn read(
    map: Option<(NamespacedName, &ConfigData)>,
    fleet: Option<&Thresholds>,
    last: &Saturation,
    findings: &mut Vec<ConfigFinding>,
) -> Saturation {
    let Some((map, data)) = map else { return Saturation::default() };
    let home = fleet.map(|_| map.namespace.clone());
    let mut notes = Notes { map: Some(map), findings };
    // An entry is validated after it is merged, because the engine reads the merged thresholds.
    let over = |below: &Thresholds, entry: &SaturationEntry| {
        let own = below.with(entry);
        if let Some(fleet) = fleet { own.under(fleet) } else { own }
    };
    let is_common = |key: &str| key == names::DEFAULT_ENTRY;
    let shipped = Thresholds::default();
    let common = entries(data, is_common, &last.entries, &mut notes, |_, entry: &mut SaturationEntry, _, _| {
        thresholds::known_analyzer(entry).and_then(|()| sound(&over(&shipped, entry)))
    });
    let mut read = Saturation { entries: common };
    // Entries in `last` may be invalid for another engine.
    read.entries.retain(|_, entry| sound(&over(&shipped, entry)).is_ok());
    let base = over(&read.common(), &SaturationEntry::default());
    let together = |entry: &SaturationEntry| sound(&base.with(entry).under(&base));
    let own = entries(
        data,
        |key| !is_common(key),
        &last.entries,
        &mut notes,
        |_, entry: &mut SaturationEntry, _, _| {
            thresholds::known_analyzer(entry)?;
            let alone = sound(&shipped.with(entry).under(&base)).err();
            together(entry).map_err(|why| {
                if alone.as_ref() == Some(&why) { why } else { format!("together with entry default, {why}") }
            })
        },
    );
    read.entries.extend(own.into_iter().filter(|(_, entry)| together(entry).is_ok()));
    unknown_fields(data, &thresholds::FIELDS, &mut notes);
    tell_ignored(&read, fleet.is_some(), &base, &mut notes);
    tell_clashes(&read, home.as_deref(), &base, &mut notes);
    read
}

/// Reports entries without a model, and settings that only the operator's `default` can have: one fleet has one engine.
fn tell_ignored(read: &Saturation, local: bool, base: &Thresholds, notes: &mut Notes<'_>) {
    for (key, entry) in &read.entries {
        let is_common = key == names::DEFAULT_ENTRY;
        if !is_common && entry.model_id.is_none() && *entry != SaturationEntry::default() {
            notes.ignored(key, "it applies to no model", "It has no effect. Set model_id.");
        }
        let own = base.with(entry);
        let chosen = [("analyzerName", own.analyzer != base.analyzer), ("enableLimiter", own.limiter != base.limiter)];
        for (field, _) in chosen.into_iter().filter(|(_, differs)| *differs && (local || !is_common)) {
            let why = format!("{field} applies to the whole fleet and cannot be set here");
            let remedy = "It has no effect. Set it in entry default of the ConfigMap in Steersman's namespace.";
            notes.ignored(key, &why, remedy);
        }
    }
}

/// By rank and key.
type Ranked<'a> = BTreeMap<(u8, &'a str), &'a SaturationEntry>;

/// Reports entries of one model that contradict each other. `home`: namespace of a user's map.
fn tell_clashes(read: &Saturation, home: Option<&str>, base: &Thresholds, notes: &mut Notes<'_>) {
    let mut models: BTreeMap<(&str, &str), Ranked<'_>> = BTreeMap::new();
    for (key, entry) in &read.entries {
        let given = entry.namespace.as_deref().unwrap_or_default();
        if let Some(model) = entry.model_id.as_deref()
            && let Some(rank) = rank(key, entry, given, model)
        {
            models.entry((model, given)).or_default().insert((rank, key), entry);
        }
    }
    for ((model, namespace), own) in &models {
        if home.is_some_and(|home| !namespace.is_empty() && *namespace != home) {
            continue;
        }
        let mut all = own.clone();
        // Entries without a namespace apply here too. If they contradict each other, that is reported once.
        if let Some(everywhere) = models.get(&(*model, "")).filter(|_| !namespace.is_empty()) {
            if sound(&laid(base, everywhere.values().copied())).is_err() {
                continue;
            }
            all.extend(everywhere);
        }
        if let Err(why) = sound(&laid(base, all.values().copied())) {
            let (keys, why) = pair(base, &all).unwrap_or_else(|| (all.keys().map(|(_, key)| *key).collect(), why));
            notes.clash(&keys, model, namespace, &why);
        }
    }
}

/// The first two entries that contradict each other. More would not help the reader.
fn pair<'a>(base: &Thresholds, all: &Ranked<'a>) -> Option<(Vec<&'a str>, String)> {
    let few: Vec<_> = all.iter().take(MOST_COMPARED).collect();
    few.iter().enumerate().find_map(|(at, ((_, wide), below))| {
        few[at + 1..].iter().find_map(|((_, narrow), entry)| {
            let why = sound(&laid(base, [**below, **entry].into_iter())).err()?;
            Some((vec![*wide, *narrow], why))
        })
    })
}
