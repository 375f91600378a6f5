//! Reads which models may be scaled to zero and after which time, from ConfigMaps `model-scale-to-zero-config` and
//! `wva-model-scale-to-zero-config`.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::duration;
use super::note::{Notes, entries, unknown_fields, yaml};
use crate::yaml::Budget;

/// Default retention period.
pub const RETENTION: SignedDuration = SignedDuration::from_mins(10);
const LONG: SignedDuration = SignedDuration::from_hours(24);
const SHORT: SignedDuration = SignedDuration::from_mins(1);

/// Fields of an entry in both spellings.
pub const FIELDS: [&str; 7] = [
    "modelID",
    "namespace",
    "enableScaleToZero",
    "retentionPeriod",
    "model_id",
    "enable_scale_to_zero",
    "retention_period",
];

/// The two formats of the ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Keys `__defaults__` and `model.*`, fields in camelCase.
    Camel,
    /// Key `default` and any other, fields in `snake_case`.
    Snake,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleToZeroEntry {
    #[serde(rename = "modelID", alias = "model_id")]
    pub model_id: Option<String>,
    pub namespace: Option<String>,
    #[serde(rename = "enableScaleToZero", alias = "enable_scale_to_zero")]
    pub enabled: Option<bool>,
    #[serde(rename = "retentionPeriod", alias = "retention_period")]
    pub retention: Option<String>,
}

/// Settings of one level. An absent one is taken from the next level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Level {
    pub enabled: Option<bool>,
    pub retention: Option<SignedDuration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScaleToZeroConfig {
    pub defaults: Level,
    /// By namespace, empty for any, and model.
    #[serde(skip)]
    pub models: BTreeMap<(String, String), Level>,
    /// Value of `WVA_SCALE_TO_ZERO`.
    pub environment: bool,
    /// The source of these settings by key, including the valid parts of invalid entries.
    pub entries: BTreeMap<String, ScaleToZeroEntry>,
    /// Keys of entries that could never be read, with their model if it is known. Such an entry may forbid scale to
    /// zero.
    pub unread: BTreeMap<String, Option<String>>,
}

/// The model of an entry.
#[derive(Deserialize)]
struct Whom {
    #[serde(rename = "modelID", alias = "model_id")]
    model_id: Option<String>,
}

impl ScaleToZeroConfig {
    pub fn enabled(&self, namespace: &str, model: &str) -> bool {
        self.first(namespace, model, |level| level.enabled).unwrap_or(self.environment)
    }

    pub fn retention(&self, namespace: &str, model: &str) -> SignedDuration {
        self.first(namespace, model, |level| level.retention).unwrap_or(RETENTION)
    }

    /// The key of an unreadable entry that may be about the model.
    pub fn unknown(&self, model: &str) -> Option<&str> {
        let about = |whom: &Option<String>| whom.as_deref().is_none_or(|whom| whom == model);
        self.unread.iter().find(|(_, whom)| about(whom)).map(|(key, _)| key.as_str())
    }

    fn first<T>(&self, namespace: &str, model: &str, setting: impl Fn(&Level) -> Option<T>) -> Option<T> {
        let level = |namespace: &str| self.models.get(&(namespace.to_owned(), model.to_owned()));
        let own = level(namespace).filter(|_| !namespace.is_empty());
        [own, level(""), Some(&self.defaults)].into_iter().flatten().find_map(setting)
    }
}

/// Invalid entries keep their value in `last`, by key.
pub fn read(
    data: &BTreeMap<String, String>,
    spelling: Spelling,
    last: &ScaleToZeroConfig,
    notes: &mut Notes<'_>,
) -> ScaleToZeroConfig {
    let defaults_key = if spelling == Spelling::Camel { "__defaults__" } else { "default" };
    let speaks = |key: &str| spelling == Spelling::Snake || key == defaults_key || key.starts_with("model.");
    tell_ignored(data, &speaks, notes);
    let entries = entries(data, speaks, &last.entries, notes, |key, entry: &mut ScaleToZeroEntry, before, notes| {
        if key != defaults_key && entry.model_id.as_deref().unwrap_or_default().is_empty() {
            return Err("modelID is missing (model_id in wva-model-scale-to-zero-config)".to_owned());
        }
        if let Err(why) = retention(entry, key, notes) {
            notes.bad(key, &why);
            entry.retention = before.and_then(|before| before.retention.clone());
        }
        Ok(())
    });
    let mut read = ScaleToZeroConfig { environment: last.environment, ..ScaleToZeroConfig::default() };
    for (key, entry) in &entries {
        let period = entry.retention.as_deref().and_then(|text| duration::parse(text).ok());
        let level = Level { enabled: entry.enabled, retention: period };
        let namespace = entry.namespace.clone().unwrap_or_default();
        match entry.model_id.clone() {
            _ if key == defaults_key => read.defaults = level,
            None => {}
            Some(model) if read.models.contains_key(&(namespace.clone(), model.clone())) => {
                notes.duplicate(key, &model)
            }
            Some(model) => drop(read.models.insert((namespace, model), level)),
        }
    }
    let (mut of_entries, mut of_models) = (Budget::default(), Budget::default());
    for (key, text) in data.iter().filter(|(key, _)| speaks(key.as_str())) {
        // Every entry counts, as above, so that the same ones are beyond the limits.
        let is_read = yaml::<ScaleToZeroEntry>(&mut of_entries, text).is_ok();
        if !is_read && !entries.contains_key(key) {
            let whom = yaml::<Whom>(&mut of_models, text).ok().and_then(|whom| whom.model_id);
            read.unread.insert(key.clone(), whom);
        }
    }
    read.entries = entries;
    read
}

/// Reports entries in the format of the newer map under the name of the older one. They are ignored, so a model would
/// be scaled to zero although they forbid it.
fn tell_ignored(data: &BTreeMap<String, String>, speaks: &impl Fn(&str) -> bool, notes: &mut Notes<'_>) {
    let (read, passed_over): (BTreeMap<_, _>, BTreeMap<_, _>) =
        data.iter().map(|(key, text)| (key.clone(), text.clone())).partition(|(key, _)| speaks(key));
    let mut budget = Budget::default();
    for (key, text) in passed_over {
        let means = |entry: ScaleToZeroEntry| entry.enabled.is_some() || entry.retention.is_some();
        if yaml::<ScaleToZeroEntry>(&mut budget, &text).is_ok_and(means) {
            notes.ignored(
                &key,
                "keys of this ConfigMap must be __defaults__ or begin with \"model.\"",
                "It has no effect. Rename the key.",
            );
        }
    }
    unknown_fields(&read, &FIELDS, notes);
}

fn retention(entry: &ScaleToZeroEntry, key: &str, notes: &mut Notes<'_>) -> Result<(), String> {
    let Some(text) = entry.retention.as_deref().filter(|text| !text.is_empty()) else { return Ok(()) };
    match duration::parse(text) {
        Ok(period) if period > LONG => {
            notes.odd(key, &format!("retention period {text} is longer than 24h"));
            Ok(())
        }
        Ok(period) if period > SignedDuration::ZERO && period < SHORT => {
            let why = "unless Prometheus scrapes at least twice in that time, requests cannot be counted and the model is never \
                       scaled to zero";
            notes.odd(key, &format!("retention period {text} is shorter than 1m: {why}"));
            Ok(())
        }
        Ok(period) if period > SignedDuration::ZERO => Ok(()),
        Ok(_) => Err(format!("retention period {text} is not greater than zero")),
        Err(why) => Err(format!("retention period {why}")),
    }
}
