//! One saturation map: ConfigMap `…-saturation-scaling-config` of the operator's or of a user's namespace.
//! Comes in: its entries, and the choices that are made once for the whole fleet; goes out: entries that hold together, and
//! the thresholds of any model.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use steersman_reconcile::NamespacedName;

use super::note::{Notes, entries, unknown_fields};
use super::thresholds::{self, Entry, Thresholds};
use super::{ConfigFinding, Data};
use crate::variant::{Mode, names};

/// Entries of one model that are compared with each other: a map may have thousands.
const MOST_COMPARED: usize = 50;

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
                let merged = laid(&base, own.into_iter().map(|(_, entry)| entry));
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

/// Entries over what holds for every model, the narrowest last.
fn laid<'a>(base: &Thresholds, entries: impl Iterator<Item = &'a Entry>) -> Thresholds {
    entries.fold(base.clone(), |below, entry| below.with(entry)).under(base)
}

fn sound(thresholds: &Thresholds) -> Result<(), String> {
    let thresholds = thresholds.clone().filled();
    thresholds.validate()?;
    thresholds.always_saturated().map_or(Ok(()), Err)
}

/// `fleet`: what the operator's own map says, where this is a map of a user's namespace. What is bad is taken from `last`.
pub fn read(
    map: Option<(NamespacedName, &Data)>,
    fleet: Option<&Thresholds>,
    mode: Mode,
    last: &Saturation,
    findings: &mut Vec<ConfigFinding>,
) -> Saturation {
    let Some((map, data)) = map else { return Saturation::default() };
    let home = fleet.map(|_| map.namespace.clone());
    let mut notes = Notes { map: Some(map), findings };
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
    tell_clashes(&read, home.as_deref(), &base, &mut notes);
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

/// By key, of how narrowly they speak of a model.
type Ranked<'a> = BTreeMap<(u8, &'a str), &'a Entry>;

/// Entries of one model that go with the common one each and not with each other. `home`: where a map of a user's holds.
fn tell_clashes(read: &Saturation, home: Option<&str>, base: &Thresholds, notes: &mut Notes<'_>) {
    let mut models: BTreeMap<(&str, &str), Ranked<'_>> = BTreeMap::new();
    for (key, entry) in &read.entries {
        let given = entry.namespace.as_deref().unwrap_or_default();
        let places = [entry.model_id.as_deref().map(|model| (model, given)), key.split_once('#')];
        for (model, namespace) in places.into_iter().flatten() {
            if let Some(rank) = rank(key, entry, namespace, model) {
                models.entry((model, namespace)).or_default().insert((rank, key), entry);
            }
        }
    }
    for ((model, namespace), own) in &models {
        if home.is_some_and(|home| !namespace.is_empty() && *namespace != home) {
            continue;
        }
        let mut all = own.clone();
        // Those that hold in every namespace hold here too, and are told of once where they clash by themselves.
        if let Some(everywhere) = models.get(&(*model, "")).filter(|_| !namespace.is_empty()) {
            if sound(&laid(base, everywhere.values().copied())).is_err() {
                continue;
            }
            let own: BTreeSet<&str> = own.keys().map(|(_, key)| *key).collect();
            all.extend(everywhere.iter().filter(|((_, key), _)| !own.contains(key)));
        }
        if let Err(why) = sound(&laid(base, all.values().copied())) {
            let (keys, why) = pair(base, &all).unwrap_or_else(|| (all.keys().map(|(_, key)| *key).collect(), why));
            notes.clash(&keys, model, namespace, &why);
        }
    }
}

/// The first two that do not go together, and why: nobody reads more than that.
fn pair<'a>(base: &Thresholds, all: &Ranked<'a>) -> Option<(Vec<&'a str>, String)> {
    let few: Vec<_> = all.iter().take(MOST_COMPARED).collect();
    few.iter().enumerate().find_map(|(at, ((_, wide), below))| {
        few[at + 1..].iter().find_map(|((_, narrow), entry)| {
            let why = sound(&laid(base, [**below, **entry].into_iter())).err()?;
            Some((vec![*wide, *narrow], why))
        })
    })
}
