//! Settings from ConfigMaps, and the precedence between them.

use std::collections::BTreeMap;

use serde::Deserialize;
use steersman_plan::variant::config::thresholds::{SaturationEntry, Thresholds};
use steersman_plan::variant::config::{Config, ConfigSources, duration, read};
use steersman_plan::variant::names;

use crate::file::load_vectors;

/// A configuration with one map, in the operator's namespace.
fn config_with_map(name: &str, data: &[(&str, &str)]) -> ConfigSources {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ConfigSources {
        namespace: "system".into(),
        maps: BTreeMap::from([(("system".to_owned(), name.to_owned()), data)]),
        ..ConfigSources::default()
    }
}

fn config(config_maps: &ConfigSources) -> Config {
    read(config_maps, &Config::default()).0
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LookupVectors {
    scale_to_zero: Vec<ScaleToZeroCase>,
    slo: Vec<SloCase>,
    slo_config: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ScaleToZeroCase {
    config: Option<String>,
    enabled: bool,
    model: String,
    #[serde(default)]
    namespace: String,
    retention: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SloCase {
    config: Option<String>,
    error: Option<String>,
    model: String,
    namespace: String,
    #[serde(default)]
    class: String,
    #[serde(default)]
    matched_model: String,
    #[serde(default)]
    matched_namespace: String,
    #[serde(default)]
    tpot: f64,
    #[serde(default)]
    ttft: f64,
}

#[test]
fn older_generation_lookups_match_upstream() {
    let Some(file) = load_vectors::<LookupVectors>("config-lookups.json") else { return };
    let zero = config_with_map(
        names::ZERO_CAMEL,
        &[
            ("__defaults__", "enableScaleToZero: true\nretentionPeriod: 15m"),
            ("model.m1", "modelID: m1\nenableScaleToZero: false"),
            ("model.m2", "modelID: m2\nretentionPeriod: 5m"),
            ("model.m3", "modelID: m3\nnamespace: prod\nenableScaleToZero: false\nretentionPeriod: 1h"),
            ("model.m4", "modelID: m4\nretentionPeriod: -5m"),
            ("model.m5", "modelID: m5\nenableScaleToZero: true\nretentionPeriod: abc"),
        ],
    );
    for ScaleToZeroCase { config: explicit_config, enabled, model, namespace, retention } in file.scale_to_zero {
        let config = if explicit_config.is_some() { Config::default() } else { config(&zero) };
        let found = config.zero(&namespace);
        let period = duration::go(found.retention(&namespace, &model));
        assert_eq!((found.enabled(&namespace, &model), period), (enabled, retention), "{model}@{namespace}");
    }
    let classes = ConfigSources {
        maps: BTreeMap::from([(("system".to_owned(), names::CLASSES.to_owned()), file.slo_config)]),
        ..config_with_map("none", &[])
    };
    for slo in file.slo {
        let config = if slo.config.is_some() { Config::default() } else { config(&classes) };
        match (config.classes.find(&slo.namespace, &slo.model, None), slo.error) {
            (Ok(found), None) => {
                let (class, target) = (found.class, found.target);
                assert_eq!((&class.name, &target.model), (&slo.class, &slo.matched_model));
                assert_eq!((&target.namespace, target.tpot, target.ttft), (&slo.matched_namespace, slo.tpot, slo.ttft));
            }
            (Err(why), Some(error)) => assert_eq!(why.to_string(), error),
            (found, error) => panic!("{found:?}, not {error:?}"),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadVectors {
    prometheus_duration: Vec<DurationCase>,
    saturation_validation: Vec<ValidationCase>,
    scale_to_zero_data: BTreeMap<String, String>,
    scale_to_zero_parsed_keys: Vec<String>,
    scale_to_zero_queries: Vec<ScaleToZeroCase>,
}

#[derive(Deserialize)]
struct DurationCase {
    go: String,
    prometheus: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ValidationCase {
    config: GoThresholds,
    validate_error: String,
    validate_error_after_defaults: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GoThresholds {
    kv_cache_threshold: f64,
    queue_length_threshold: f64,
    kv_spare_trigger: f64,
    queue_spare_trigger: f64,
    analyzer_name: String,
    scale_up_threshold: f64,
    scale_down_boundary: f64,
}

#[test]
fn newer_generation_settings_match_upstream() {
    let Some(file) = load_vectors::<HeadVectors>("config-head.json") else { return };
    for DurationCase { go, prometheus } in file.prometheus_duration {
        let parsed = duration::parse(&go).unwrap();
        assert_eq!((duration::go(parsed), duration::prometheus(parsed)), (go, prometheus));
    }
    for ValidationCase { config, validate_error, validate_error_after_defaults } in file.saturation_validation {
        let entry = SaturationEntry {
            kv_cache_threshold: Some(config.kv_cache_threshold),
            queue_length_threshold: Some(config.queue_length_threshold),
            kv_spare_trigger: Some(config.kv_spare_trigger),
            queue_spare_trigger: Some(config.queue_spare_trigger),
            // Upstream's first engine has no name there.
            analyzer_name: Some(config.analyzer_name).filter(|name| !name.is_empty()).or(Some("percentage".into())),
            scale_up_threshold: Some(config.scale_up_threshold),
            scale_down_boundary: Some(config.scale_down_boundary),
            ..SaturationEntry::default()
        };
        let thresholds = Thresholds::default().with(&entry);
        let validation_error = |thresholds: &Thresholds| thresholds.validate().err().unwrap_or_default();
        assert_eq!(validation_error(&thresholds), validate_error);
        assert_eq!(validation_error(&thresholds.filled()), validate_error_after_defaults);
    }
    let config_maps = ConfigSources {
        maps: BTreeMap::from([(("system".to_owned(), names::ZERO_SNAKE.to_owned()), file.scale_to_zero_data)]),
        ..config_with_map("none", &[])
    };
    let config = config(&config_maps);
    let mut keys: Vec<String> = config.zero.models.keys().map(|(_, model)| model.clone()).collect();
    keys.insert(0, "default".to_owned());
    assert_eq!(keys, file.scale_to_zero_parsed_keys);
    for ScaleToZeroCase { enabled, model, namespace, retention, .. } in file.scale_to_zero_queries {
        let period = duration::go(config.zero(&namespace).retention(&namespace, &model));
        assert_eq!((config.zero(&namespace).enabled(&namespace, &model), period), (enabled, retention), "{model}");
    }
}
