//! What an administrator has set: ConfigMaps of two generations, of the operator's namespace and of users' own.
//! Comes in: the maps and the environment, with what held before; goes out: settings that are always usable, and findings
//! for whatever was not.

pub mod classes;
pub mod costs;
pub mod duration;
mod finding;
mod interval;
mod note;
pub mod prometheus;
mod saturation;
pub mod thresholds;
pub mod zero;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::Serialize;
use steersman_reconcile::NamespacedName;

use self::classes::Classes;
use self::costs::Costs;
pub use self::finding::ConfigFinding;
use self::note::Notes;
use self::prometheus::{Prometheus, Refused};
pub use self::saturation::Saturation;
use self::thresholds::Thresholds;
use self::zero::{ScaleToZero, Spelling};
use super::{Mode, names};

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
        // Which engine and whether the limiter runs is one choice for the whole fleet.
        map.of(&self.saturation.common(), namespace, model, mode)
    }
}

/// What the main ConfigMap has keys for; the environment may have variables of the same names.
pub fn main_keys() -> impl Iterator<Item = &'static str> {
    [interval::KEY].into_iter().chain(prometheus::KEYS)
}

/// Total: whatever the maps hold, the outcome can be worked with. A map that could not be read is not "no map": then keep
/// `last` and do not ask.
pub fn read(seen: &ConfigSeen, last: &Config, mode: Mode) -> (Config, Vec<ConfigFinding>) {
    let mut findings = Vec::new();
    let empty = Data::new();
    let own = |candidates: &[String]| -> Option<(NamespacedName, &Data)> {
        seen.namespaces.iter().find_map(|namespace| found(seen, namespace, candidates))
    };
    let of = |map: &Option<(NamespacedName, &Data)>| map.as_ref().map(|(name, _)| name.clone());

    let main = own(&names::main_maps(&seen.environment));
    let data = main.as_ref().map_or(&empty, |(_, data)| *data);
    let mut notes = Notes { map: of(&main), findings: &mut findings };
    let text = data.get(interval::KEY).or_else(|| seen.environment.get(interval::KEY)).map(String::as_str);
    let interval = interval::read(text, last.interval, &mut notes);
    let from_environment = prometheus::has_address(&seen.environment);
    let prometheus = match prometheus::read(&seen.environment, data, seen.allow_http) {
        Ok(prometheus) => Some(prometheus),
        Err(Refused { key, why }) if from_environment => {
            Notes { map: None, findings: &mut findings }.bad(key, &why);
            last.prometheus.clone()
        }
        Err(Refused { key, why }) if prometheus::has_address(data) => {
            notes.bad(key, &why);
            last.prometheus.clone()
        }
        // An address that was taken away is no bad value: whoever took it does not want it asked.
        Err(Refused { key, why }) => {
            let own = seen.namespaces.first().map_or("Steersman's own", String::as_str);
            let remedy = format!(
                "Give its address, which begins with https://, in ConfigMap {} of namespace {own}; until then no load is \
                 known, and replicas stay as they are.",
                main.as_ref().map_or(names::MAIN[0], |(map, _)| map.name.as_str())
            );
            notes.absent(key, &why, &remedy);
            None
        }
    };

    let map = own(&[names::COSTS.to_owned()]);
    let data = map.as_ref().map_or(&empty, |(_, data)| *data);
    let costs = costs::read(data, mode, &last.costs, &mut Notes { map: of(&map), findings: &mut findings });

    let map = own(&[names::CLASSES.to_owned()]);
    let data = map.as_ref().map_or(&empty, |(_, data)| *data);
    let classes = classes::read(data, mode, &last.classes, &mut Notes { map: of(&map), findings: &mut findings });

    let switch = seen.environment.get(names::ZERO_VARIABLE).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let read_zero = |map: Option<(NamespacedName, &Data)>, last: &ScaleToZero, findings: &mut Vec<ConfigFinding>| {
        let last = ScaleToZero { environment: switch, ..last.clone() };
        let (map, data) = map.map_or((None, &empty), |(map, data)| (Some(map), data));
        let camel = map.as_ref().is_some_and(|map| map.name == names::ZERO_CAMEL);
        let spelling = if camel { Spelling::Camel } else { Spelling::Snake };
        zero::read(data, spelling, mode, &last, &mut Notes { map, findings })
    };
    let zero_names = [names::ZERO_CAMEL.to_owned(), names::ZERO_SNAKE.to_owned()];
    let zero = read_zero(own(&zero_names), &last.zero, &mut findings);

    let saturation_names = names::saturation_maps(&seen.environment);
    let saturation = saturation::read(own(&saturation_names), None, mode, &last.saturation, &mut findings);
    let fleet = saturation.common();

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
            let own = saturation::read(Some(map), Some(&fleet), mode, &last_saturation, &mut findings);
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
    let sources = all.chain(locals).map(|(map, _)| map.to_string()).collect();
    let config =
        Config { interval, prometheus, costs, classes, zero, saturation, local_zero, local_saturation, sources };
    (config, findings)
}

/// Whether what was found in the configuration holds for objects of the namespace: maps of other users' namespaces do not.
pub fn concerns(finding: &ConfigFinding, seen: &ConfigSeen, namespace: &str) -> bool {
    finding.config_map.as_ref().is_none_or(|map| map.namespace == namespace || seen.namespaces.contains(&map.namespace))
}

fn found<'a>(seen: &'a ConfigSeen, namespace: &str, candidates: &[String]) -> Option<(NamespacedName, &'a Data)> {
    candidates.iter().find_map(|name| {
        let data = seen.maps.get(&(namespace.to_owned(), name.clone()))?;
        Some((NamespacedName::new(namespace, name), data))
    })
}
