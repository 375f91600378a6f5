//! What an administrator has set: ConfigMaps of two generations, of the operator's namespace and of users' own.
//! Comes in: the maps and the environment, with what held before; goes out: settings that are always usable, and findings
//! for whatever was not.

pub mod classes;
pub mod costs;
pub mod duration;
pub mod interval;
mod note;
pub mod prometheus;
pub mod thresholds;
pub mod zero;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::Serialize;

use self::classes::Classes;
use self::costs::Costs;
use self::note::{Notes, entries, unknown_fields};
use self::prometheus::Prometheus;
use self::thresholds::{Entry, Thresholds};
use self::zero::{ScaleToZero, Spelling};
use super::{Mode, names};
use crate::Finding;

/// The data of a ConfigMap.
pub type Data = BTreeMap<String, String>;

/// Everything that is configured somewhere.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConfigSeen {
    /// Where the operator's own maps may lie, the first that has one wins.
    pub namespaces: Vec<String>,
    /// By namespace and name.
    pub maps: BTreeMap<(String, String), Data>,
    /// Namespaces whose own maps count: they hold a `VariantAutoscaling` or are labelled for it, and are not excluded.
    pub local: BTreeSet<String>,
    /// The operator's environment.
    pub environment: BTreeMap<String, String>,
    /// Prometheus may be asked without TLS.
    pub allow_http: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    pub interval: SignedDuration,
    /// None: metrics cannot be asked for.
    #[serde(skip)]
    pub prometheus: Option<Prometheus>,
    pub costs: Costs,
    pub classes: Classes,
    pub zero: ScaleToZero,
    pub saturation: Saturation,
    /// Of namespaces with maps of their own, which replace the operator's.
    pub local_zero: BTreeMap<String, ScaleToZero>,
    pub local_saturation: BTreeMap<String, Saturation>,
    /// The maps that all this comes from, as `namespace/name`: of several names the first that exists counts.
    pub sources: Vec<String>,
}

/// One saturation map.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Saturation {
    /// By key; `default` holds for every model.
    pub entries: BTreeMap<String, Entry>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: interval::USUAL,
            prometheus: None,
            costs: Costs::default(),
            classes: Classes::default(),
            zero: ScaleToZero::default(),
            saturation: Saturation::default(),
            local_zero: BTreeMap::new(),
            local_saturation: BTreeMap::new(),
            sources: Vec::new(),
        }
    }
}

impl Config {
    pub fn zero(&self, namespace: &str) -> &ScaleToZero {
        self.local_zero.get(namespace).unwrap_or(&self.zero)
    }

    /// The thresholds of a model. None, in upstream's way only: none are set, and the model is left alone.
    pub fn thresholds(&self, namespace: &str, model: &str, mode: Mode) -> Option<Thresholds> {
        let map = self.local_saturation.get(namespace).unwrap_or(&self.saturation);
        let common = map.entries.get(names::DEFAULT_ENTRY);
        let mut thresholds = match mode {
            Mode::Upstream => Thresholds::read(common?, mode).filled(),
            Mode::Steersman => {
                let base = Thresholds::default().with(&common.cloned().unwrap_or_default());
                let own =
                    map.entries.iter().filter_map(|(key, entry)| Some((rank(key, entry, namespace, model)?, entry)));
                let mut own: Vec<_> = own.collect();
                own.sort_by_key(|(rank, _)| *rank);
                let merged = own.iter().fold(base.clone(), |merged, (_, entry)| merged.with(entry));
                // Entries that are good alone may not be together; then the common one holds.
                if sound(&merged).is_ok() { merged } else { base }
            }
        };
        // Which engine and whether the limiter runs is one choice for the whole fleet.
        let global = self.saturation.entries.get(names::DEFAULT_ENTRY).cloned().unwrap_or_default();
        let global = Thresholds::default().with(&global);
        thresholds.analyzer = global.analyzer;
        thresholds.limiter = global.limiter;
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
    thresholds.validate()?;
    thresholds.always_saturated().map_or(Ok(()), Err)
}

/// Total: whatever the maps hold, the outcome can be worked with. A map that could not be read is not "no map": then keep
/// `last` and do not ask.
pub fn read(seen: &ConfigSeen, last: &Config, mode: Mode) -> (Config, Vec<Finding>) {
    let mut findings = Vec::new();
    let empty = Data::new();
    let own = |candidates: &[String]| -> Option<(String, &Data)> {
        seen.namespaces.iter().find_map(|namespace| found(seen, namespace, candidates))
    };
    let of = |map: &Option<(String, &Data)>| map.as_ref().map_or_else(String::new, |(name, _)| name.clone());

    let main = own(&names::main_maps(&seen.environment));
    let data = main.as_ref().map_or(&empty, |(_, data)| *data);
    let mut notes = Notes { map: of(&main), findings: &mut findings };
    let from_environment = seen.environment.get(interval::KEY).map(String::as_str);
    let text = data.get(interval::KEY).map(String::as_str).or(from_environment);
    let interval = interval::read(text, last.interval, &mut notes);
    let prometheus = match prometheus::read(&seen.environment, data, seen.allow_http) {
        Ok(prometheus) => Some(prometheus),
        Err(why) if prometheus::is_given(&seen.environment, data) => {
            notes.bad(prometheus::BASE_URL, &why);
            last.prometheus.clone()
        }
        Err(why) => {
            let own = seen.namespaces.first().map_or("Steersman's own", String::as_str);
            let remedy = format!(
                "Give its address, which begins with https://, in ConfigMap {} of namespace {own}; until then no load is \
                 known, and replicas stay as they are.",
                main.as_ref().and_then(|(name, _)| name.split_once('/')).map_or(names::MAIN[0], |(_, name)| name)
            );
            notes.absent(prometheus::BASE_URL, &why, &remedy);
            last.prometheus.clone()
        }
    };

    let map = own(&[names::COSTS.to_owned()]);
    let data = map.as_ref().map_or(&empty, |(_, data)| *data);
    let costs = costs::read(data, mode, &last.costs, &mut Notes { map: of(&map), findings: &mut findings });

    let map = own(&[names::CLASSES.to_owned()]);
    let data = map.as_ref().map_or(&empty, |(_, data)| *data);
    let classes = classes::read(data, mode, &last.classes, &mut Notes { map: of(&map), findings: &mut findings });

    let switch = seen.environment.get("WVA_SCALE_TO_ZERO").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let read_zero = |map: Option<(String, &Data)>, last: &ScaleToZero, findings: &mut Vec<Finding>| {
        let last = ScaleToZero { environment: switch, ..last.clone() };
        let (name, data) = map.unwrap_or((String::new(), &empty));
        let camel = name.ends_with(&format!("/{}", names::ZERO_CAMEL));
        let spelling = if camel { Spelling::Camel } else { Spelling::Snake };
        zero::read(data, spelling, mode, &last, &mut Notes { map: name, findings })
    };
    let zero_names = [names::ZERO_CAMEL.to_owned(), names::ZERO_SNAKE.to_owned()];
    let zero = read_zero(own(&zero_names), &last.zero, &mut findings);

    let saturation_names = names::saturation_maps(&seen.environment);
    let saturation = read_saturation(own(&saturation_names), mode, &last.saturation, &mut findings);

    let mut local_zero = BTreeMap::new();
    let mut local_saturation = BTreeMap::new();
    for namespace in seen.local.iter().filter(|namespace| !seen.namespaces.contains(namespace)) {
        let last_zero = last.local_zero.get(namespace).cloned().unwrap_or_default();
        if let Some(map) = found(seen, namespace, &zero_names) {
            let own = read_zero(Some(map), &last_zero, &mut findings);
            // A map without one good entry replaces nothing, and is not nothing where it cannot be read.
            let own = match (own.entries.is_empty(), own.unread.is_empty()) {
                (false, _) => Some(own),
                (true, false) => Some(ScaleToZero { unread: own.unread, entries: BTreeMap::new(), ..zero.clone() }),
                (true, true) => None,
            };
            local_zero.extend(own.map(|own| (namespace.clone(), own)));
        }
        let last_saturation = last.local_saturation.get(namespace).cloned().unwrap_or_default();
        if let Some(map) = found(seen, namespace, &saturation_names) {
            let own = read_saturation(Some(map), mode, &last_saturation, &mut findings);
            local_saturation.extend((!own.entries.is_empty()).then(|| (namespace.clone(), own)));
        }
    }
    findings.sort_by_key(|finding| finding.severity);
    let costs_names = [names::COSTS.to_owned()];
    let classes_names = [names::CLASSES.to_owned()];
    let all = [own(&names::main_maps(&seen.environment)), own(&costs_names), own(&classes_names), own(&zero_names)];
    let all = all.into_iter().chain([own(&saturation_names)]).flatten();
    let locals = seen.local.iter().flat_map(|namespace| {
        let zero = found(seen, namespace, &zero_names).filter(|_| local_zero.contains_key(namespace));
        let saturation = found(seen, namespace, &saturation_names).filter(|_| local_saturation.contains_key(namespace));
        [zero, saturation].into_iter().flatten()
    });
    let sources = all.chain(locals).map(|(name, _)| name).collect();
    let config =
        Config { interval, prometheus, costs, classes, zero, saturation, local_zero, local_saturation, sources };
    (config, findings)
}

/// Whether what was found in the configuration holds for objects of the namespace: maps of other users' namespaces do not.
pub fn concerns(finding: &Finding, seen: &ConfigSeen, namespace: &str) -> bool {
    let map = finding.message.strip_prefix("ConfigMap ").and_then(|rest| rest.split_once('/'));
    map.is_none_or(|(of, _)| of == namespace || seen.namespaces.iter().any(|own| own == of))
}

fn found<'a>(seen: &'a ConfigSeen, namespace: &str, candidates: &[String]) -> Option<(String, &'a Data)> {
    candidates.iter().find_map(|name| {
        let data = seen.maps.get(&(namespace.to_owned(), name.clone()))?;
        Some((format!("{namespace}/{name}"), data))
    })
}

fn read_saturation(
    map: Option<(String, &Data)>,
    mode: Mode,
    last: &Saturation,
    findings: &mut Vec<Finding>,
) -> Saturation {
    let Some((name, data)) = map else { return Saturation::default() };
    let mut notes = Notes { map: name, findings };
    let mut entries = entries(
        data,
        |_| true,
        &last.entries,
        mode,
        &mut notes,
        |_, entry: &mut Entry, _, _| match mode {
            Mode::Upstream => Thresholds::read(entry, mode).validate(),
            Mode::Steersman => {
                thresholds::known_analyzer(entry).and_then(|()| sound(&Thresholds::read(entry, mode).filled()))
            }
        },
    );
    if mode == Mode::Steersman {
        unknown_fields(data, &thresholds::FIELDS, &mut notes);
        // An entry that is good alone may contradict the one that it is laid over.
        let common = Thresholds::default().with(&entries.get(names::DEFAULT_ENTRY).cloned().unwrap_or_default());
        entries.retain(|key, entry| {
            let together = sound(&common.with(entry).filled());
            together.map_err(|why| notes.bad(key, &format!("together with entry default, {why}"))).is_ok()
        });
    }
    Saturation { entries }
}
