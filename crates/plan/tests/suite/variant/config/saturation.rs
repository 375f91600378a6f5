//! Thresholds of users' namespaces and of single models, laid over those of the fleet.

use proptest::prelude::*;

use super::*;

const BY_TOKENS: &str = "analyzerName: saturation";
const BY_PERCENTAGE: &str = "analyzerName: percentage";

/// With a map of the operator's own and one of namespace `team`.
fn two(own: &[(&str, &str)], team: &[(&str, &str)]) -> ConfigSources {
    let mut seen = seen(&[(SYSTEM, SATURATION, own), ("team", SATURATION, team)]);
    seen.local.insert("team".into());
    seen
}

fn told(seen: &ConfigSources, last: &Config) -> (Config, Vec<String>) {
    let (config, findings) = read(seen, last);
    (config, findings.iter().map(|finding| format!("{} {finding}", finding.reason)).collect())
}

fn team(config: &Config) -> Thresholds {
    config.thresholds("team", "m")
}

#[test]
fn a_namespaces_thresholds_are_judged_by_the_engine_that_will_read_them() {
    for (entry, why) in [
        ("scaleUpThreshold: 0.6", "scaleUpThreshold (0.60) must be > scaleDownBoundary (0.70)"),
        ("scaleDownBoundary: -0.5", "scaleDownBoundary must be in (0, 1], got -0.50"),
    ] {
        // Measured demand, the default engine, has the same boundaries.
        let (_, default_engine) = told(&two(&[("default", entry)], &[]), &Config::default());
        assert!(default_engine.iter().any(|text| text.contains(why)), "{default_engine:?}");
        let seen = two(&[("default", BY_TOKENS)], &[("default", entry), ("mine", &format!("model_id: m\n{entry}"))]);
        let (config, told) = told(&seen, &Config::default());
        let place = |key: &str| format!("ConfigValueInvalid ConfigMap team/{SATURATION}, key {key}: {why}.");
        assert!(told.len() == 2 && told[0].starts_with(&place("default")), "{told:?}");
        assert!(told[1].starts_with(&place("mine")), "{told:?}");
        assert_eq!((team(&config).scale_up, team(&config).scale_down), (0.85, 0.70), "{entry}");
        let seen = two(&[("default", BY_PERCENTAGE)], &[("default", entry)]);
        assert_eq!(read(&seen, &Config::default()).1, [], "nobody reads it");
    }
}

#[test]
fn analyzer_name_selects_the_engine() {
    for (name, engine) in
        [("", Analyzer::Demand), ("percentage", Analyzer::Percentage), ("saturation", Analyzer::Tokens)]
    {
        let entry = format!("analyzerName: {name:?}");
        let (config, findings) = told(&two(&[("default", &entry)], &[]), &Config::default());
        assert_eq!((team(&config).analyzer, findings.len()), (engine, 0), "{name}");
    }
    assert_eq!(team(&Config::default()).analyzer, Analyzer::Demand, "without a ConfigMap");
}

#[test]
fn another_engine_judges_anew_what_was_good_before() {
    let own = &[("default", "scaleUpThreshold: 0.6\nkvCacheThreshold: 0.7")];
    let (last, findings) = told(&two(&[("default", BY_PERCENTAGE)], own), &Config::default());
    assert_eq!((findings.len(), team(&last).kv_cache), (0, 0.7));
    let (config, findings) = told(&two(&[("default", BY_TOKENS)], own), &last);
    assert_eq!((findings.len(), team(&config).analyzer, team(&config).scale_up), (1, Analyzer::Tokens, 0.85));
}

#[test]
fn a_choice_that_is_made_for_the_whole_fleet_is_told_where_it_is_made_elsewhere() {
    let both = "analyzerName: saturation\nenableLimiter: true";
    let (config, findings) = told(&two(&[], &[("default", both)]), &Config::default());
    assert_eq!((team(&config).analyzer, team(&config).limiter), (Analyzer::Demand, false));
    let starts = [
        format!("ConfigValueIgnored ConfigMap team/{SATURATION}, key default: analyzerName applies to the whole fleet"),
        format!(
            "ConfigValueIgnored ConfigMap team/{SATURATION}, key default: enableLimiter applies to the whole fleet"
        ),
    ];
    assert!(findings.iter().zip(&starts).all(|(told, start)| told.starts_with(start)), "{findings:?}");
    assert_eq!(findings.len(), 2, "{findings:?}");
    let (_, findings) = told(&two(&[("default", both)], &[("default", both)]), &Config::default());
    assert_eq!(findings, [""; 0], "where it is the same, it has its effect");
    let own = &[("default", BY_TOKENS), ("mine", "model_id: m\nanalyzerName: \"\"")];
    let (config, findings) = told(&two(own, &[]), &Config::default());
    assert!(
        findings.len() == 1 && findings[0].contains("key mine: analyzerName applies to the whole fleet"),
        "{findings:?}"
    );
    assert_eq!(config.thresholds("ns", "m").analyzer, Analyzer::Tokens);
}

#[test]
fn an_entry_for_a_model_is_judged_as_it_lies_over_the_common_one() {
    let short = "model_id: m\nqueueLengthThreshold: 2";
    let config = config(&[(SYSTEM, SATURATION, &[("default", "queueSpareTrigger: 1"), ("mine", short)])]);
    assert_eq!(config.thresholds("ns", "m").queue_length, 2.0);
    let (config, findings) = told(&seen(&[(SYSTEM, SATURATION, &[("mine", short)])]), &Config::default());
    assert_eq!(config.thresholds("ns", "m"), Thresholds::default());
    assert!(
        findings[0].contains("key mine: queueLengthThreshold (2.0) is below queueSpareTrigger (3.0)"),
        "{findings:?}"
    );
}

#[test]
fn an_idle_replica_has_room_between_both_shares_of_its_cache() {
    for (share, spare, engine, good) in [
        ("0.8", "0.8", "", false),
        ("0.105", "0.1", "", false),
        ("0.11", "0.1", "", true),
        ("0.8", "0.8", "percentage", false),
        ("0.8", "0.8", "saturation", true),
    ] {
        let entry = format!("kvCacheThreshold: {share}\nkvSpareTrigger: {spare}\nanalyzerName: {engine:?}");
        let (_, findings) = told(&seen(&[(SYSTEM, SATURATION, &[("default", &entry)])]), &Config::default());
        assert_eq!(findings.is_empty(), good, "{entry}: {findings:?}");
        let words = "is less than 0.01 above kvSpareTrigger (0.";
        assert!(good || findings[0].contains(words), "{findings:?}");
    }
}

#[test]
fn an_entry_for_a_model_that_turns_bad_is_what_it_last_was() {
    let with = |spare: &str, share: &str| {
        let (common, mine) = (format!("kvSpareTrigger: {spare}"), format!("model_id: m\nkvCacheThreshold: {share}"));
        seen(&[(SYSTEM, SATURATION, &[("default", &common), ("mine", &mine)])])
    };
    let kv = |config: &Config| config.thresholds("ns", "m").kv_cache;
    let (last, findings) = told(&with("0.3", "0.5"), &Config::default());
    assert_eq!((findings.len(), kv(&last)), (0, 0.5));
    let (now, findings) = told(&with("0.3", "0.2"), &last);
    assert_eq!((findings.len(), kv(&now)), (1, 0.5));
    let (now, findings) = told(&with("0.6", "0.2"), &last);
    assert_eq!((findings.len(), kv(&now)), (1, 0.8), "the last one does not go with the common one either");
}

#[test]
fn an_entry_that_speaks_of_no_model_is_told() {
    let data = &[("spare", "kvCacheThreshold: 0.5"), ("mine", "model_id: m\nkvCacheThreshold: 0.6"), ("note", "")];
    let (_, findings) = told(&seen(&[(SYSTEM, SATURATION, data)]), &Config::default());
    assert!(findings.len() == 1 && findings[0].contains("key spare: it applies to no model."), "{findings:?}");
}

#[test]
fn entries_that_are_good_one_by_one_and_not_together_are_named_and_the_common_one_holds() {
    let wide = "model_id: m\nkvSpareTrigger: 0.5";
    let narrow = "model_id: m\nnamespace: ns\nkvCacheThreshold: 0.3";
    let own = &[("all", wide), ("here", narrow), ("there", "model_id: m\nnamespace: other\nqueueLengthThreshold: 7")];
    let (config, findings) = told(&two(own, &[]), &Config::default());
    let expected = format!(
        "ConfigEntriesClash ConfigMap {SYSTEM}/{SATURATION}, keys all and here contradict each other for model m in \
         namespace ns: kvCacheThreshold (0.30) should be >= kvSpareTrigger (0.50). Change one of the entries. Until then \
         entry default applies to the model."
    );
    assert_eq!(findings, [expected]);
    assert_eq!(config.thresholds("ns", "m"), Thresholds::default());
    let other = config.thresholds("other", "m");
    assert_eq!((other.kv_spare, other.queue_length), (0.5, 7.0), "elsewhere they hold");
    let mended = &[("all", wide), ("here", "model_id: m\nnamespace: ns\nkvCacheThreshold: 0.6")];
    assert_eq!(told(&two(mended, &[]), &config).1, [""; 0]);
}

#[test]
fn entries_that_clash_everywhere_are_told_once_and_those_that_hold_nowhere_not_at_all() {
    let own = &[
        ("a", "model_id: m\nkvSpareTrigger: 0.5"),
        ("b", "model_id: m\nkvCacheThreshold: 0.3"),
        ("c", "model_id: m\nnamespace: ns\nqueueLengthThreshold: 7"),
        ("d", "model_id: m\nnamespace: other\nqueueLengthThreshold: 8"),
    ];
    let (_, findings) = told(&two(own, &[]), &Config::default());
    assert!(
        findings.len() == 1 && findings[0].contains("keys a and b contradict each other for model m: kvCache"),
        "{findings:?}"
    );
    let elsewhere = &[
        ("x", "model_id: m\nnamespace: ns\nkvCacheThreshold: 0.3"),
        ("y", "model_id: m\nnamespace: ns\nkvSpareTrigger: 0.5"),
    ];
    assert_eq!(told(&two(&[], elsewhere), &Config::default()).1, [""; 0], "a team's map holds for its namespace alone");
    let here =
        &[("a", "model_id: m\nnamespace: team\nkvSpareTrigger: 0.5"), ("x", "model_id: m\nkvCacheThreshold: 0.3")];
    let (_, findings) = told(&two(&[], here), &Config::default());
    assert!(findings.len() == 1 && findings[0].contains("ConfigMap team/"), "{findings:?}");
    assert!(findings[0].contains("keys x and a contradict each other for model m in namespace team: "), "{findings:?}");
}

fn an_entry() -> impl Strategy<Value = String> {
    let number = prop::sample::select(vec!["-0.5", "0", "0.05", "0.3", "0.6", "0.72", "0.9", "1", "2", "8"]);
    let field = prop::sample::select(vec![
        "kvCacheThreshold",
        "queueLengthThreshold",
        "kvSpareTrigger",
        "queueSpareTrigger",
        "scaleUpThreshold",
        "scaleDownBoundary",
    ]);
    let figures = prop::collection::btree_map(field, number, 0..4);
    let engine = prop::sample::select(vec!["", "analyzerName: saturation\n", "analyzerName: \"\"\n"]);
    (figures, engine).prop_map(|(figures, engine)| {
        let figures: String = figures.into_iter().map(|(field, value)| format!("{field}: {value}\n")).collect();
        format!("{engine}{figures}")
    })
}

proptest! {
    /// Whatever stands in the maps and stood there before, the engine that reads the thresholds can work with them.
    #[test]
    fn thresholds_always_hold_together(entries in prop::collection::vec(an_entry(), 8)) {
        let maps = |of: &[String]| {
            let mine = format!("model_id: m\n{}", of[3]);
            let own = format!("model_id: m\n{}", of[1]);
            two(&[("default", &of[0]), ("mine", &own)], &[("default", &of[2]), ("mine", &mine)])
        };
        let (last, _) = told(&maps(&entries[4..]), &Config::default());
        let (now, _) = told(&maps(&entries[..4]), &last);
        for (namespace, model) in [("team", "m"), ("team", "n"), ("ns", "m"), ("ns", "n")] {
            let thresholds = now.thresholds(namespace, model);
            prop_assert_eq!(thresholds.validate(), Ok(()), "{}/{}", namespace, model);
            prop_assert_eq!(thresholds.always_saturated(), None, "{}/{}", namespace, model);
            prop_assert_eq!(thresholds.analyzer, now.saturation.common().analyzer);
        }
    }

    /// Settings without effect on a model are reported.
    #[test]
    fn no_entry_is_passed_over_in_silence(entries in prop::collection::vec(an_entry(), 4)) {
        let of = |number: usize, namespace: &str| format!("model_id: m\n{namespace}{}", entries[number]);
        let (a, b, c, d) = (of(0, ""), of(1, ""), of(2, "namespace: ns\n"), of(3, "namespace: ns\n"));
        let data = &[("a", a.as_str()), ("b", &b), ("c", &c), ("d", &d)];
        let (config, findings) = told(&two(data, &[]), &Config::default());
        let clash = findings.iter().any(|told| told.starts_with("ConfigEntriesClash"));
        let all = config.saturation.entries.values();
        let fleet = config.saturation.common();
        let merged = all.fold(fleet.clone(), |below, entry| below.with(entry)).under(&fleet).filled();
        let given = config.thresholds("ns", "m");
        prop_assert!(clash || given == merged, "{findings:?}\n{given:?}\n{merged:?}");
    }
}
