//! Settings: where they come from, which hold, and what becomes of bad ones.

mod page;
mod prometheus;
mod saturation;

use std::collections::BTreeMap;

use jiff::SignedDuration;
use steersman_plan::variant::config::prometheus as address;
use steersman_plan::variant::config::thresholds::{Analyzer, Thresholds};
use steersman_plan::variant::config::{Config, ConfigSources, concerns, duration, read};
use steersman_plan::variant::names;

pub const SYSTEM: &str = "steersman-system";
/// Default namespace of the earlier operator. Any user of the cluster may be able to create it.
const LEGACY: &str = "workload-variant-autoscaler-system";
const MAIN: &str = "workload-variant-autoscaler-variantautoscaling-config";
pub const SATURATION: &str = "wva-saturation-scaling-config";

/// Namespace, name and data.
pub type Map<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

pub fn seen(maps: &[Map<'_>]) -> ConfigSources {
    let own = |text: &str| text.to_owned();
    let map = |(namespace, name, data): &Map<'_>| {
        let data: BTreeMap<String, String> = data.iter().map(|(key, value)| (own(key), own(value))).collect();
        ((own(namespace), own(name)), data)
    };
    ConfigSources {
        namespace: SYSTEM.into(),
        maps: maps.iter().map(map).collect(),
        environment: BTreeMap::from([(own("PROMETHEUS_BASE_URL"), own("https://prometheus:9090"))]),
        ..ConfigSources::default()
    }
}

fn config(maps: &[Map<'_>]) -> Config {
    let (config, findings) = read(&seen(maps), &Config::default());
    assert_eq!(findings, [], "{maps:?}");
    config
}

#[test]
fn durations_are_those_of_go() {
    for (text, seconds) in [
        ("30s", 30.0),
        ("1m", 60.0),
        ("2m30s", 150.0),
        ("1h", 3600.0),
        ("1.5h", 5400.0),
        ("-5m", -300.0),
        ("0", 0.0),
        ("200ms", 0.2),
        (".5s", 0.5),
        ("+1s", 1.0),
    ] {
        assert_eq!(duration::parse(text).unwrap().as_secs_f64(), seconds, "{text}");
    }
    for text in ["", "-", "5", "m", "1x", "1 m", "abc", "1.2.3s", "99999999999h", ".s"] {
        assert!(duration::parse(text).is_err(), "{text}");
    }
    for (text, go) in
        [("90s", "1m30s"), ("60m", "1h0m0s"), ("1500ms", "1.5s"), ("1500us", "1.5ms"), ("0", "0s"), ("-90s", "-1m30s")]
    {
        assert_eq!(duration::go(duration::parse(text).unwrap()), go, "{text}");
    }
}

#[test]
fn settings_come_from_one_namespace_only() {
    let maps =
        |name: &'static str, namespace: &'static str| config(&[(namespace, name, &[("GLOBAL_OPT_INTERVAL", "45s")])]);
    for name in [MAIN, "variantautoscaling-config", "wva-variantautoscaling-config"] {
        assert_eq!(maps(name, SYSTEM).interval, SignedDuration::from_secs(45), "{name}");
        assert_eq!(maps(name, LEGACY).interval, SignedDuration::from_secs(60), "{name}");
    }
    let both: &[Map<'_>] = &[
        (SYSTEM, "wva-variantautoscaling-config", &[("GLOBAL_OPT_INTERVAL", "45s")]),
        (SYSTEM, "variantautoscaling-config", &[("GLOBAL_OPT_INTERVAL", "30s")]),
    ];
    assert_eq!(config(both).interval, SignedDuration::from_secs(30));
    assert_eq!(config(both).sources, [format!("{SYSTEM}/variantautoscaling-config")]);
}

#[test]
fn a_bad_interval_keeps_the_last_good_one_and_says_so() {
    let last = config(&[(SYSTEM, MAIN, &[("GLOBAL_OPT_INTERVAL", "45s")])]);
    for bad in ["soon", "0s", "-1m"] {
        let (now, findings) = read(&seen(&[(SYSTEM, MAIN, &[("GLOBAL_OPT_INTERVAL", bad)])]), &last);
        assert_eq!(now.interval, SignedDuration::from_secs(45), "{bad}");
        assert!(findings[0].message.starts_with(&format!("ConfigMap {SYSTEM}/{MAIN}, key GLOBAL_OPT_INTERVAL: ")));
        assert_eq!(findings[0].reason, "ConfigValueInvalid");
    }
    let (now, findings) = read(&seen(&[(SYSTEM, MAIN, &[("GLOBAL_OPT_INTERVAL", "5ms")])]), &last);
    assert_eq!((now.interval, findings.len()), (SignedDuration::from_secs(1), 1));
    let told = findings[0].to_string();
    assert!(told.ends_with("5ms is below the minimum; 1s is used. Correct the value."), "{told}");
    let (now, findings) = read(&seen(&[(SYSTEM, MAIN, &[("GLOBAL_OPT_INTERVAL", "20m")])]), &last);
    assert_eq!((now.interval, findings[0].reason), (SignedDuration::from_mins(20), "ConfigValueUnusual"));
    assert!(findings[0].message.contains("20m is outside the recommended range of 10s to 10m"), "{findings:?}");
}

#[test]
fn an_entry_that_turns_bad_is_what_it_last_was() {
    let good: &[(&str, &str)] = &[("default", "kvCacheThreshold: 0.7"), ("mine", "model_id: m\nkvCacheThreshold: 0.6")];
    let last = config(&[(SYSTEM, SATURATION, good)]);
    let bad: &[(&str, &str)] = &[("default", "kvCacheThreshold: 7"), ("mine", "{{{")];
    let (now, findings) = read(&seen(&[(SYSTEM, SATURATION, bad)]), &last);
    assert_eq!(now.saturation, last.saturation);
    let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
    let wanted =
        format!("ConfigMap {SYSTEM}/{SATURATION}, key default: kvCacheThreshold must be between 0 and 1, got 7.00.");
    assert_eq!(messages[0], wanted);
    assert!(messages[1].contains("key mine: invalid YAML or a wrong type"), "{messages:?}");
    let (gone, _) = read(&seen(&[]), &last);
    assert_eq!(gone.saturation.entries.len(), 0, "a map that was removed is no bad value");
}

#[test]
fn thresholds_with_which_an_idle_replica_is_saturated_are_refused() {
    for entry in [
        "kvCacheThreshold: 0\nkvSpareTrigger: 0",
        "queueLengthThreshold: 0\nqueueSpareTrigger: 0",
        "queueLengthThreshold: 2",
        "analyzerName: saturation\nqueueLengthThreshold: 0.5\nqueueSpareTrigger: 0",
    ] {
        let (config, findings) = read(&seen(&[(SYSTEM, SATURATION, &[("default", entry)])]), &Config::default());
        assert_eq!(config.thresholds("ns", "m"), Thresholds::default(), "{entry}");
        assert_eq!(findings.len(), 1, "{entry}");
    }
}

#[test]
fn thresholds_are_merged_from_wide_to_narrow() {
    let config = config(&[(
        SYSTEM,
        SATURATION,
        &[
            ("default", "kvCacheThreshold: 0.7\nanalyzerName: saturation"),
            ("any", "model_id: m\nqueueLengthThreshold: 8"),
            ("mine", "model_id: m\nnamespace: ns\nqueueLengthThreshold: 9"),
            ("org", "model_id: org/m\nnamespace: ns\nscaleUpThreshold: 0.9"),
        ],
    )]);
    let of = |namespace: &str, model: &str| config.thresholds(namespace, model);
    assert_eq!((of("ns", "m").queue_length, of("x", "m").queue_length, of("ns", "n").queue_length), (9.0, 8.0, 5.0));
    assert_eq!((of("ns", "m").kv_cache, of("ns", "org/m").scale_up, of("x", "org/m").scale_up), (0.7, 0.9, 0.85));
    assert_eq!(of("ns", "m").analyzer, Analyzer::Tokens);
}

#[test]
fn an_entry_that_contradicts_the_common_one_is_left_out_and_named() {
    let data: &[(&str, &str)] = &[("default", "kvSpareTrigger: 0.3"), ("mine", "model_id: m\nkvCacheThreshold: 0.2")];
    let (config, findings) = read(&seen(&[(SYSTEM, SATURATION, data)]), &Config::default());
    assert_eq!(config.thresholds("ns", "m").kv_cache, 0.8);
    let message = &findings[0].message;
    assert!(
        message.ends_with("together with entry default, kvCacheThreshold (0.20) should be >= kvSpareTrigger (0.30).")
    );
}

#[test]
fn a_namespace_with_maps_of_its_own_is_left_to_them() {
    let mut seen = seen(&[
        (SYSTEM, SATURATION, &[("default", "kvCacheThreshold: 0.7\nanalyzerName: saturation")]),
        ("team", SATURATION, &[("default", "kvCacheThreshold: 0.6\nenableLimiter: true")]),
        (SYSTEM, names::ZERO_SNAKE, &[("default", "enable_scale_to_zero: true")]),
        ("team", names::ZERO_SNAKE, &[("m", "model_id: m\nretention_period: 3m")]),
        ("broken", names::ZERO_SNAKE, &[("m", "{{{")]),
    ]);
    let read_it = |seen: &ConfigSources| read(seen, &Config::default()).0;
    let without = read_it(&seen);
    assert_eq!(without.thresholds("team", "m").kv_cache, 0.7, "nobody allowed it");
    seen.local = ["team".to_owned(), "broken".to_owned()].into();
    let config = read_it(&seen);
    let team = config.thresholds("team", "m");
    assert_eq!((team.kv_cache, team.analyzer, team.limiter), (0.6, Analyzer::Tokens, false), "two choices are global");
    assert!(!config.zero("team").enabled("team", "m"), "replaced, not merged");
    assert_eq!(config.zero("team").retention("team", "m"), SignedDuration::from_mins(3));
    assert!(config.zero("broken").enabled("broken", "m"), "a map without one good entry replaces nothing");
}

#[test]
fn one_model_may_sleep_in_one_namespace_and_not_in_another() {
    let data: &[(&str, &str)] = &[
        ("model.a", "modelID: m\nnamespace: dev\nenableScaleToZero: true\nretentionPeriod: 1m"),
        ("model.b", "modelID: m\nnamespace: prod\nenableScaleToZero: false"),
        ("model.c", "modelID: m\nretentionPeriod: 7m"),
        ("readme", "ignored: [key"),
    ];
    let config = config(&[(SYSTEM, names::ZERO_CAMEL, data)]);
    let zero = config.zero("dev");
    assert!(zero.enabled("dev", "m") && !zero.enabled("prod", "m") && !zero.enabled("test", "m"));
    assert_eq!(zero.retention("dev", "m"), SignedDuration::from_mins(1));
    assert_eq!(zero.retention("prod", "m"), SignedDuration::from_mins(7));
    assert_eq!(zero.retention("test", "other"), SignedDuration::from_mins(10));
    let mut seen = seen(&[(SYSTEM, names::ZERO_CAMEL, data)]);
    seen.environment.insert("WVA_SCALE_TO_ZERO".into(), "True".into());
    let (config, _) = read(&seen, &Config::default());
    assert!(config.zero("test").enabled("test", "m") && !config.zero("prod").enabled("prod", "m"));
}

#[test]
fn a_bad_price_takes_no_other_with_it() {
    let good = "{\"device\": \"NVIDIA-A100-PCIE-80GB\", \"cost\": \"40.00\"}";
    let last = config(&[(SYSTEM, names::COSTS, &[("A100", good), ("G2", "{\"cost\": \"23\"}")])]);
    assert_eq!((last.costs.cents["A100"], last.costs.cents["G2"]), (40.0, 23.0));
    let now = seen(&[(SYSTEM, names::COSTS, &[("A100", "{\"cost\": \"41\"}"), ("G2", "{\"cost\": \"cheap\"}")])]);
    let (now, findings) = read(&now, &last);
    assert_eq!((now.costs.cents["A100"], now.costs.cents["G2"]), (41.0, 23.0));
    assert_eq!(
        findings[0].message,
        format!(
            "ConfigMap {SYSTEM}/accelerator-unit-costs, key G2: cost \"cheap\" must be a number of cents, 0 or more."
        )
    );
}

#[test]
fn the_class_that_an_object_names_is_asked_first() {
    let class = |name: &str, tpot: u32| {
        format!("name: {name}\npriority: 1\ndata:\n- model: m\n  slo-tpot: {tpot}\n  slo-ttft: 500\n")
    };
    let (a, b) = (class("Premium", 24), class("Freemium", 200));
    let config = config(&[(SYSTEM, names::CLASSES, &[("a.yaml", &a), ("b.yaml", &b)])]);
    let tpot = |key: Option<&str>| config.classes.find("ns", "m", key).unwrap().target.tpot;
    assert_eq!((tpot(None), tpot(Some("b.yaml")), tpot(Some("gone.yaml"))), (24.0, 200.0, 24.0));
    let error = config.classes.find("ns", "x", Some("a.yaml")).unwrap_err().to_string();
    assert_eq!(
        error,
        "model \"x\" in namespace \"ns\" not found in any service class and default/default fallback not found"
    );
}

#[test]
fn prometheus_is_asked_by_https_and_its_token_is_never_shown() {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let token = [("PROMETHEUS_BASE_URL", "https://p"), ("PROMETHEUS_BEARER_TOKEN", "s3cret")];
    let read = |environment: &[(&str, &str)], data: &[(&str, &str)], http| {
        address::read(&map(environment), &map(data), http).map_err(|refused| refused.why)
    };
    let found = read(&[], &token, false).unwrap();
    assert_eq!(found.bearer_token.as_ref().unwrap().reveal(), "s3cret");
    assert!(!format!("{found:?}").contains("s3cret"));
    let both = read(&[("PROMETHEUS_BASE_URL", "https://env")], &token, false).unwrap();
    assert_eq!((both.base_url.as_str(), both.bearer_token), ("https://env", None), "one source for all of it");
    let refused = read(&[], &[("PROMETHEUS_BASE_URL", "http://user:s3cret@p:9090/x")], false).unwrap_err();
    assert_eq!(refused, "HTTPS is required - URL must use https:// scheme: http://…@p:9090/x");
    assert!(read(&[], &[("PROMETHEUS_BASE_URL", "http://p")], true).is_ok());
    let with_password = read(&[], &[("PROMETHEUS_BASE_URL", "https://user:s3cret@p")], false).unwrap();
    assert!(!format!("{with_password:?}").contains("s3cret"));
    assert!(read(&[], &[], false).unwrap_err().starts_with("no Prometheus configuration found."));
}

#[test]
fn faults_of_a_users_own_map_are_nobody_elses() {
    let bad = ("default", "kvCacheThreshold: 7");
    let bad_here = ("team-a", SATURATION, &[bad][..]);
    let bad_everywhere = (SYSTEM, MAIN, &[("GLOBAL_OPT_INTERVAL", "soon")][..]);
    let mut maps = seen(&[bad_here, bad_everywhere]);
    maps.local.insert("team-a".into());
    let (_, findings) = read(&maps, &Config::default());
    let of = |namespace: &str| findings.iter().filter(|finding| concerns(finding, &maps, namespace)).count();
    assert_eq!((findings.len(), of("team-a"), of("team-b")), (2, 2, 1), "{findings:?}");
}

#[test]
fn without_a_map_a_fault_is_one_of_the_environment() {
    let mut none = seen(&[]);
    none.environment.clear();
    let (_, findings) = read(&none, &Config::default());
    assert!(findings[0].message.starts_with("Environment, key PROMETHEUS_BASE_URL: no Prometheus"), "{findings:?}");
    assert!(concerns(&findings[0], &none, "team-a"));
    let told = findings[0].to_string();
    let remedy = "Set PROMETHEUS_BASE_URL to the address of Prometheus, which begins with https://, in ConfigMap \
                  workload-variant-autoscaler-variantautoscaling-config in namespace";
    assert!(told.contains(remedy) && told.ends_with("replicas stay as they are."), "{told}");
    let mut given = seen(&[(SYSTEM, MAIN, &[("PROMETHEUS_BASE_URL", "http://p")])]);
    given.environment.clear();
    let (_, findings) = read(&given, &Config::default());
    let told = findings[0].to_string();
    assert!(told.contains("HTTPS is required") && told.contains("Correct the value"), "{told}");
}

#[test]
fn an_address_that_is_none_does_not_take_the_place_of_a_good_one() {
    let with = |url: &'static str| ConfigSources {
        environment: BTreeMap::new(),
        ..seen(&[(SYSTEM, MAIN, &[("PROMETHEUS_BASE_URL", url)])])
    };
    let good = "https://user:pa%40ss@prometheus.monitoring.svc:9090/path?x=1";
    let (last, findings) = read(&with(good), &Config::default());
    assert_eq!(findings, []);
    for bad in [
        "https://",
        "https:///path",
        "https://a b",
        "https://:9090",
        "https://a:port",
        "https://se cret@a",
        "https://\u{e4}",
    ] {
        let (now, findings) = read(&with(bad), &last);
        assert_eq!(now.prometheus, last.prometheus, "{bad}");
        let told = findings[0].to_string();
        assert!(told.contains("key PROMETHEUS_BASE_URL: it is not a URL such as") && !told.contains("cret"), "{told}");
    }
    for good in ["https://10.0.0.1", "https://[fd00::1]:9090", "https://[fd00::1]", "https://a_b.c:1/"] {
        assert_eq!(read(&with(good), &last).1, [], "{good}");
    }
}

#[test]
fn what_is_written_and_has_no_effect_is_told() {
    let told = |name: &str, data: &[(&str, &str)]| -> Vec<String> {
        let (_, findings) = read(&seen(&[(SYSTEM, name, data)]), &Config::default());
        findings.iter().map(|finding| format!("{} {finding}", finding.reason)).collect()
    };
    let slip = told(SATURATION, &[("default", "kvCacheTreshold: 0.5"), ("note", "")]);
    let expected = "key default: unknown field \"kvCacheTreshold\". It has no effect. Known fields: model_id,";
    assert!(slip.len() == 1 && slip[0].contains(expected), "{slip:?}");
    let engine = told(SATURATION, &[("default", "analyzerName: saturation-v2")]);
    let known = "analyzerName must be \"percentage\", \"saturation\", \"queueing\" or empty";
    assert!(engine.len() == 1 && engine[0].contains(known), "{engine:?}");
    assert_eq!(told(SATURATION, &[("default", "analyzerName: \"\"")]), [""; 0]);
    let newer: &[(&str, &str)] = &[("default", "enable_scale_to_zero: false"), ("readme", "words: [")];
    let passed_over = told(names::ZERO_CAMEL, newer);
    assert!(passed_over.len() == 1 && passed_over[0].starts_with("ConfigValueIgnored "), "{passed_over:?}");
    assert!(
        passed_over[0].contains("key default: keys of this ConfigMap must be __defaults__ or begin with"),
        "{passed_over:?}"
    );
    assert_eq!(told(names::ZERO_SNAKE, newer).len(), 1, "only the other key is bad there");
    let slip = told(names::ZERO_CAMEL, &[("__defaults__", "enableScaleToZero: true\nretention: 5m")]);
    assert!(slip.len() == 1 && slip[0].contains("unknown field \"retention\""), "{slip:?}");
    let short = told(names::ZERO_CAMEL, &[("__defaults__", "enableScaleToZero: true\nretentionPeriod: 20s")]);
    assert!(short.len() == 1 && short[0].starts_with("ConfigValueUnusual "), "{short:?}");
}

#[test]
fn an_entry_that_was_never_read_may_forbid_what_the_others_allow() {
    let good: &[(&str, &str)] =
        &[("__defaults__", "enableScaleToZero: true"), ("model.m", "modelID: m\nenableScaleToZero: false")];
    let slip: &[(&str, &str)] =
        &[("__defaults__", "enableScaleToZero: true"), ("model.m", "modelID: m\nenableScaleToZero: flase")];
    let torn: &[(&str, &str)] = &[("__defaults__", "enableScaleToZero: true"), ("model.m", "{{{")];
    let zero = |data: &[(&str, &str)], last: &Config| read(&seen(&[(SYSTEM, names::ZERO_CAMEL, data)]), last).0.zero;
    let fresh = Config::default();
    assert_eq!(zero(good, &fresh).unknown("m"), None);
    assert_eq!((zero(slip, &fresh).unknown("m"), zero(slip, &fresh).unknown("n")), (Some("model.m"), None));
    assert_eq!((zero(torn, &fresh).unknown("m"), zero(torn, &fresh).unknown("n")), (Some("model.m"), Some("model.m")));
    // Whoever has read it before knows.
    let last = config(&[(SYSTEM, names::ZERO_CAMEL, good)]);
    assert_eq!((zero(torn, &last).unknown("m"), zero(torn, &last).enabled("ns", "m")), (None, false));
    let mut own = seen(&[
        (SYSTEM, names::ZERO_CAMEL, &[("__defaults__", "enableScaleToZero: true")]),
        ("team", names::ZERO_SNAKE, &[("default", "enable_scale_to_zero: flase")]),
    ]);
    own.local = ["team".to_owned()].into();
    let (config, _) = read(&own, &fresh);
    assert_eq!((config.zero("team").unknown("m"), config.zero("other").unknown("m")), (Some("default"), None));
    let (again, _) = read(&own, &config);
    assert_eq!(
        again.zero("team"),
        config.zero("team"),
        "the operator's entries are not what the namespace's last were"
    );
}

/// Few bytes that expand to 9^4 nodes.
fn alias_bomb() -> String {
    let mut text = "modelID: m\na0: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (above, level) in ["a", "b", "c"].into_iter().zip(["b", "c", "d"]) {
        text.push_str(&format!("{level}0: &{level} [{}]\n", [format!("*{above}").as_str(); 9].join(",")));
    }
    text
}

#[test]
fn alias_bombs_of_tenant_are_reported() {
    let bomb = alias_bomb();
    let keys: Vec<String> = (0..1_000).map(|place| format!("model.{place:04}")).collect();
    let mut data: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), bomb.as_str())).collect();
    data.push(("model.z", "modelID: z\nenableScaleToZero: false"));
    let mut sources = seen(&[("team", names::ZERO_CAMEL, &data)]);
    sources.local.insert("team".to_owned());
    let (config, findings) = read(&sources, &Config::default());
    let last = findings.iter().rfind(|finding| finding.reason == "ConfigValueInvalid").unwrap();
    let message = "key model.z: the ConfigMap has more than 100000 YAML nodes after aliases are expanded, so that this entry \
                   and those after it are not read.";
    assert_eq!(last.message, format!("ConfigMap team/{}, {message}", names::ZERO_CAMEL));
    assert!(config.zero("team").unread.contains_key("model.z"), "an entry that is not read may forbid scale to zero");
    let (again, same) = read(&sources, &config);
    assert_eq!((again, same), (config, findings), "unchanged sources need not be read again");
}

#[test]
fn large_map_of_tenant_is_reported() {
    let entry = [("__defaults__", "enableScaleToZero: true"), ("model.m", "modelID: m\nenableScaleToZero: true")];
    let mut sources = seen(&[("team", names::ZERO_CAMEL, &entry)]);
    sources.local.insert("team".to_owned());
    let (known, _) = read(&sources, &Config::default());
    let place = ("team".to_owned(), names::ZERO_CAMEL.to_owned());
    sources.maps.insert(place.clone(), BTreeMap::new());
    sources.too_large.insert(place);
    for last in [Config::default(), known] {
        let (config, findings) = read(&sources, &last);
        let finding = findings.iter().find(|finding| finding.reason == "ConfigMapTooLarge").unwrap();
        let message = "it is too large to be read; at most 262144 bytes of keys and values are.";
        assert_eq!(finding.message, format!("ConfigMap team/{}, {message}", names::ZERO_CAMEL));
        assert!(config.zero("team").unknown("m").is_some(), "the map may forbid scale to zero");
        assert_eq!(config.zero("team").enabled("team", "m"), last.zero("team").enabled("team", "m"));
    }
}
