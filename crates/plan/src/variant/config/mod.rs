//! Reads the settings from ConfigMaps of both generations and from the environment. The result is always usable;
//! invalid values become findings.

pub mod classes;
pub mod costs;
pub mod duration;
mod finding;
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
pub use self::finding::{ConfigFinding, first_per_map, is_stored};
use self::note::Notes;
use self::prometheus::{PrometheusConfig, PrometheusConfigError};
pub use self::saturation::Saturation;
use self::thresholds::Thresholds;
use self::zero::{ScaleToZeroConfig, Spelling};
use super::names;

pub type ConfigData = BTreeMap<String, String>;

/// Most bytes of keys and values of a ConfigMap in a user's namespace: room for 2,000 models.
pub const MAX_LOCAL_BYTES: usize = 256 * 1024;

/// Placeholder for all keys of a ConfigMap that is not read.
const ANY_KEY: &str = "*";

/// Key of the interval between two decisions on the fleet.
const INTERVAL_KEY: &str = "GLOBAL_OPT_INTERVAL";
const DEFAULT_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// Outside of this range a finding is reported.
const SHORT_INTERVAL: SignedDuration = SignedDuration::from_secs(10);
const LONG_INTERVAL: SignedDuration = SignedDuration::from_mins(10);

/// All sources of settings.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConfigSources {
    /// Namespace of the settings for the whole fleet.
    pub namespace: String,
    /// By namespace and name.
    pub maps: BTreeMap<(String, String), ConfigData>,
    /// ConfigMaps of users' namespaces that are too large to be read. `maps` has them without data.
    pub too_large: BTreeSet<(String, String)>,
    /// Namespaces whose own ConfigMaps apply: they have a `VariantAutoscaling` or the label, and are not excluded.
    pub local: BTreeSet<String>,
    pub environment: BTreeMap<String, String>,
    /// Prometheus may be queried without TLS.
    pub allow_http: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    pub interval: SignedDuration,
    /// `None` if Prometheus is not configured.
    #[serde(skip)]
    pub prometheus: Option<PrometheusConfig>,
    pub costs: Costs,
    pub classes: Classes,
    pub zero: ScaleToZeroConfig,
    pub saturation: Saturation,
    /// By namespace. They replace the operator's own ConfigMaps.
    pub local_zero: BTreeMap<String, ScaleToZeroConfig>,
    pub local_saturation: BTreeMap<String, Saturation>,
    /// The ConfigMaps in use, as `namespace/name`.
    pub sources: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: DEFAULT_INTERVAL,
            prometheus: None,
            costs: Costs::default(),
            classes: Classes::default(),
            zero: ScaleToZeroConfig::default(),
            saturation: Saturation::default(),
            local_zero: BTreeMap::new(),
            local_saturation: BTreeMap::new(),
            sources: Vec::new(),
        }
    }
}

impl Config {
    pub fn zero(&self, namespace: &str) -> &ScaleToZeroConfig {
        self.local_zero.get(namespace).unwrap_or(&self.zero)
    }

    /// The thresholds of a model.
    pub fn thresholds(&self, namespace: &str, model: &str) -> Thresholds {
        let map = self.local_saturation.get(namespace).unwrap_or(&self.saturation);
        // Engine and limiter are chosen once for the whole fleet.
        map.of(&self.saturation.common(), namespace, model)
    }
}

/// Keys of the main ConfigMap. Environment variables may have the same names.
pub fn main_keys() -> impl Iterator<Item = &'static str> {
    [INTERVAL_KEY].into_iter().chain(prometheus::KEYS)
}

/// Total: the result is usable whatever the ConfigMaps hold. If a ConfigMap could not be read, the caller keeps `last`
/// and does not call this.
pub fn read(seen: &ConfigSources, last: &Config) -> (Config, Vec<ConfigFinding>) {
    let mut findings = Vec::new();
    let empty = ConfigData::new();
    let own = |candidates: &[String]| found(seen, &seen.namespace, candidates);
    let of = |map: &Option<(NamespacedName, &ConfigData)>| map.as_ref().map(|(name, _)| name.clone());

    let main = own(&names::main_maps(&seen.environment));
    let data = main.as_ref().map_or(&empty, |(_, data)| *data);
    let text = data.get(INTERVAL_KEY).or_else(|| seen.environment.get(INTERVAL_KEY)).map(String::as_str);
    let interval_map = of(&main).filter(|_| data.contains_key(INTERVAL_KEY));
    let interval = read_interval(text, last.interval, &mut Notes { map: interval_map, findings: &mut findings });
    let mut notes = Notes { map: of(&main), findings: &mut findings };
    let from_environment = prometheus::has_address(&seen.environment);
    let prometheus = match prometheus::read(&seen.environment, data, seen.allow_http) {
        Ok(prometheus) => Some(prometheus),
        Err(PrometheusConfigError { key, why }) if from_environment => {
            Notes { map: None, findings: &mut findings }.bad(key, &why);
            last.prometheus.clone()
        }
        Err(PrometheusConfigError { key, why }) if prometheus::has_address(data) => {
            notes.bad(key, &why);
            last.prometheus.clone()
        }
        // A removed address is not an invalid value: metrics are no longer wanted from there.
        Err(PrometheusConfigError { key, why }) => {
            let remedy = format!(
                "Set PROMETHEUS_BASE_URL to the address of Prometheus, which begins with https://, in ConfigMap {} in \
                 namespace {}. Until then the load is unknown and replicas stay as they are.",
                main.as_ref().map_or(names::MAIN[0], |(map, _)| map.name.as_str()),
                seen.namespace
            );
            notes.absent(key, &why, &remedy);
            None
        }
    };

    let costs_map = own(&[names::COSTS.to_owned()]);
    let data = costs_map.as_ref().map_or(&empty, |(_, data)| *data);
    let costs = costs::read(data, &last.costs, &mut Notes { map: of(&costs_map), findings: &mut findings });

    let classes_map = own(&[names::CLASSES.to_owned()]);
    let data = classes_map.as_ref().map_or(&empty, |(_, data)| *data);
    let mut notes = Notes { map: of(&classes_map), findings: &mut findings };
    let classes = classes::read(data, &last.classes, &mut notes);

    let switch = seen.environment.get(names::ZERO_VARIABLE).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let read_zero =
        |map: Option<(NamespacedName, &ConfigData)>, last: &ScaleToZeroConfig, findings: &mut Vec<ConfigFinding>| {
            let last = ScaleToZeroConfig { environment: switch, ..last.clone() };
            let (map, data) = map.map_or((None, &empty), |(map, data)| (Some(map), data));
            let camel = map.as_ref().is_some_and(|map| map.name == names::ZERO_CAMEL);
            let spelling = if camel { Spelling::Camel } else { Spelling::Snake };
            zero::read(data, spelling, &last, &mut Notes { map, findings })
        };
    let zero_names = [names::ZERO_CAMEL.to_owned(), names::ZERO_SNAKE.to_owned()];
    let zero_map = own(&zero_names);
    let zero = read_zero(zero_map.clone(), &last.zero, &mut findings);

    let saturation_names = names::saturation_maps(&seen.environment);
    let saturation_map = own(&saturation_names);
    let saturation = saturation::read(saturation_map.clone(), None, &last.saturation, &mut findings);
    let fleet = saturation.common();

    let is_large = |map: &NamespacedName| seen.too_large.contains(&(map.namespace.clone(), map.name.clone()));
    let mut local_zero = BTreeMap::new();
    let mut local_saturation = BTreeMap::new();
    for namespace in seen.local.iter().filter(|namespace| **namespace != seen.namespace) {
        let last_zero = last.local_zero.get(namespace).cloned().unwrap_or_default();
        if let Some(map) = found(seen, namespace, &zero_names) {
            let own = if is_large(&map.0) {
                let unread = BTreeMap::from([(ANY_KEY.to_owned(), None)]);
                Notes { map: Some(map.0), findings: &mut findings }.too_large();
                ScaleToZeroConfig { unread, ..last_zero }
            } else {
                read_zero(Some(map), &last_zero, &mut findings)
            };
            // A map without a valid entry replaces nothing, unless it has entries that cannot be read.
            let own = match (own.entries.is_empty(), own.unread.is_empty()) {
                (false, _) => Some(own),
                (true, false) => {
                    Some(ScaleToZeroConfig { unread: own.unread, entries: BTreeMap::new(), ..zero.clone() })
                }
                (true, true) => None,
            };
            local_zero.extend(own.map(|own| (namespace.clone(), own)));
        }
        let last_saturation = last.local_saturation.get(namespace).cloned().unwrap_or_default();
        if let Some(map) = found(seen, namespace, &saturation_names) {
            let own = if is_large(&map.0) {
                Notes { map: Some(map.0), findings: &mut findings }.too_large();
                last_saturation
            } else {
                saturation::read(Some(map), Some(&fleet), &last_saturation, &mut findings)
            };
            local_saturation.extend((!own.entries.is_empty()).then(|| (namespace.clone(), own)));
        }
    }
    findings.sort_by_key(|finding| finding.severity);
    let all = [main, costs_map, classes_map, zero_map, saturation_map].into_iter().flatten();
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

fn read_interval(text: Option<&str>, last: SignedDuration, notes: &mut Notes<'_>) -> SignedDuration {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return DEFAULT_INTERVAL };
    match duration::parse(text) {
        Ok(interval) if interval <= SignedDuration::ZERO => {
            notes.bad(INTERVAL_KEY, &format!("{text} is not greater than zero"));
            last
        }
        Ok(interval) if interval < MIN_INTERVAL => {
            notes.bent(INTERVAL_KEY, &format!("{text} is below the minimum; 1s is used"));
            MIN_INTERVAL
        }
        Ok(interval) => {
            if !(SHORT_INTERVAL..=LONG_INTERVAL).contains(&interval) {
                let effect = if interval < SHORT_INTERVAL {
                    "metrics do not change that often"
                } else {
                    "changes of the load are noticed late"
                };
                notes.odd(INTERVAL_KEY, &format!("{text} is outside the recommended range of 10s to 10m: {effect}"));
            }
            interval
        }
        Err(why) => {
            notes.bad(INTERVAL_KEY, &why.to_string());
            last
        }
    }
}

/// Whether a finding applies to objects of the namespace. ConfigMaps of other users' namespaces do not.
pub fn concerns(finding: &ConfigFinding, seen: &ConfigSources, namespace: &str) -> bool {
    finding.config_map.as_ref().is_none_or(|map| map.namespace == namespace || map.namespace == seen.namespace)
}

fn found<'a>(
    seen: &'a ConfigSources,
    namespace: &str,
    candidates: &[String],
) -> Option<(NamespacedName, &'a ConfigData)> {
    candidates.iter().find_map(|name| {
        let data = seen.maps.get(&(namespace.to_owned(), name.clone()))?;
        Some((NamespacedName::new(namespace, name), data))
    })
}
