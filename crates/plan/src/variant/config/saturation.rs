//! One saturation map: ConfigMap `…-saturation-scaling-config` of the operator's or of a user's namespace.
//! Comes in: its entries, and the choices that are made once for the whole fleet; goes out: entries that hold together, and
//! the thresholds of any model.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::{Mode, names};
use super::Data;
use super::note::{Notes, entries, unknown_fields};
use super::thresholds::{self, Entry, Thresholds};
use crate::Finding;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Saturation {
    /// By key; `default` holds for every model.
    pub entries: BTreeMap<String, Entry>,
}

impl Saturation {
    /// What holds for every model that no other entry speaks of.
    pub fn common(&self) -> Thresholds {
        self.entries.get(names::DEFAULT_ENTRY).map_or_else(Thresholds::default, |entry| {
            let shipped = Thresholds::default();
            shipped.with(entry)
        })
    }

    /// Of one model. `fleet`: of the operator's own map. None, in upstream's way only: none are set.
    pub fn of(&self, fleet: &Thresholds, namespace: &str, model: &str, mode: Mode) -> Option<Thresholds> {
        let thresholds = match mode {
            Mode::Upstream => Thresholds::read(self.entries.get(names::DEFAULT_ENTRY)?, mode).under(fleet),
            Mode::Steersman => {
                let base = self.common().under(fleet);
                let own =
                    self.entries.iter().filter_map(|(key, entry)| Some((rank(key, entry, namespace, model)?, entry)));
                let mut own: Vec<_> = own.collect();
                own.sort_by_key(|(rank, _)| *rank);
                let merged = own.iter().fold(base.clone(), |merged, (_, entry)| merged.with(entry)).under(fleet);
                // Entries of which each goes with the common one may not go together; then the common one holds.
                if sound(&merged).is_ok() { merged } else { base }
            }
        };
        Some(thresholds.filled())
    }
}

/// How narrowly an entry speaks of the model: narrower entries win. None: it speaks of others.
fn rank(key: &str, entry: &Entry, namespace: &str, model: &str) -> Option<u8> {
    if key == names::DEFAULT_ENTRY {
        return None;
    }
    if key.split_once('#') == Some((model, namespace)) {
        return Some(2);
    }
    let of_model = entry.model_id.as_deref() == Some(model);
    match entry.namespace.as_deref().filter(|given| !given.is_empty()) {
        None if of_model => Some(0),
        Some(given) if of_model && given == namespace => Some(1),
        _ => None,
    }
}

fn sound(thresholds: &Thresholds) -> Result<(), String> {
    let thresholds = thresholds.clone().filled();
    thresholds.validate()?;
    thresholds.always_saturated().map_or(Ok(()), Err)
}

/// `fleet`: what the operator's own map says, where this is a map of a user's namespace. What is bad is taken from `last`.
pub fn read(
    map: Option<(String, &Data)>,
    fleet: Option<&Thresholds>,
    mode: Mode,
    last: &Saturation,
    findings: &mut Vec<Finding>,
) -> Saturation {
    let Some((name, data)) = map else { return Saturation::default() };
    let mut notes = Notes { map: name, findings };
    if mode == Mode::Upstream {
        let alone =
            |_: &str, entry: &mut Entry, _: Option<&Entry>, _: &mut Notes<'_>| Thresholds::read(entry, mode).validate();
        return Saturation { entries: entries(data, |_| true, &last.entries, mode, &mut notes, alone) };
    }
    // An entry is laid over the one below it, and is judged as it then is: by the engine that will read it.
    let over = |below: &Thresholds, entry: &Entry| {
        let own = below.with(entry);
        if let Some(fleet) = fleet { own.under(fleet) } else { own }
    };
    let is_common = |key: &str| key == names::DEFAULT_ENTRY;
    let shipped = Thresholds::default();
    let common = entries(data, is_common, &last.entries, mode, &mut notes, |_, entry: &mut Entry, _, _| {
        thresholds::known_analyzer(entry).and_then(|()| sound(&over(&shipped, entry)))
    });
    let mut read = Saturation { entries: common };
    // What was good before may not be with another engine.
    read.entries.retain(|_, entry| sound(&over(&shipped, entry)).is_ok());
    let base = over(&read.common(), &Entry::default());
    let together = |entry: &Entry| sound(&base.with(entry).under(&base));
    let own = entries(
        data,
        |key| !is_common(key),
        &last.entries,
        mode,
        &mut notes,
        |_, entry: &mut Entry, _, _| {
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
    read
}

/// Entries that speak of no model, and choices that are not theirs: both engines cannot decide on one fleet of accelerators.
fn tell_ignored(read: &Saturation, local: bool, base: &Thresholds, notes: &mut Notes<'_>) {
    for (key, entry) in &read.entries {
        let is_common = key == names::DEFAULT_ENTRY;
        if !is_common && entry.model_id.is_none() && !key.contains('#') && *entry != Entry::default() {
            let remedy = "It has no effect. Set model_id, or call the key MODEL#NAMESPACE.";
            notes.ignored(key, "it speaks of no model", remedy);
        }
        let own = base.with(entry);
        let chosen = [("analyzerName", own.analyzer != base.analyzer), ("enableLimiter", own.limiter != base.limiter)];
        for (field, _) in chosen.into_iter().filter(|(_, differs)| *differs && (local || !is_common)) {
            let why = format!("{field} is one choice for the whole fleet, and made elsewhere");
            let remedy = "It has no effect. Set it in the entry default of the map in the operator's own namespace.";
            notes.ignored(key, &why, remedy);
        }
    }
}
