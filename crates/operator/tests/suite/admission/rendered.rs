//! The rendered webhook configurations: which requests they match, and above all which they must not match.

use k8s_openapi::api::admissionregistration::v1::{RuleWithOperations, ValidatingWebhookConfiguration};
use serde_json::{Value, json};
use steersman::admission::{ALL, FAMILIES, file, name};
use steersman::webhooks::admission::Route;
use steersman_api::Family;

use crate::command::{output_of, steersman};

fn print_configurations(arguments: &[&str]) -> String {
    output_of(steersman(&["webhooks"]).args(arguments)).ok()
}

fn shipped_configurations() -> Vec<Value> {
    file().unwrap().split("---\n").map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

#[test]
fn webhooks_match_only_own_new_or_changed_objects() {
    assert_eq!(shipped_configurations().len(), ALL.len());
    for (webhook_kind, mut configuration) in ALL.into_iter().zip(shipped_configurations()) {
        let family = webhook_kind.family;
        assert_eq!(
            (&configuration["kind"], &configuration["metadata"]["name"]),
            (&webhook_kind.kind().into(), &webhook_kind.name().into())
        );
        // Mutating and validating configurations have the same fields here, so one type decodes both.
        configuration["kind"] = json!("ValidatingWebhookConfiguration");
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(configuration).unwrap();
        let [webhook] = &configuration.webhooks.unwrap()[..] else { panic!("one webhook expected") };
        let rules = webhook.rules.clone().unwrap();
        // Kinds that the operator needs to start, subresources and deletions must not match: they would lock the cluster out.
        for rule in &rules {
            assert_eq!(rule.api_groups, Some(vec![family.group().to_owned()]));
            assert_eq!(rule.resources, Some(vec![family.plural().to_owned()]));
            assert_eq!(rule.scope.as_deref(), Some("Namespaced"));
        }
        assert_eq!(webhook.failure_policy.as_deref(), Some("Fail"));
        assert_eq!(webhook.match_policy.as_deref(), Some("Equivalent"), "older versions are converted first");
        assert_eq!((webhook.side_effects.as_str(), webhook.timeout_seconds), ("None", Some(10)));
        let (served, stored) = (family.served_versions(), &[family.storage_version()][..]);
        let (expected, conditions): (&[(&str, &[&str])], &[&str]) = match webhook_kind.route {
            // The condition compares specs in the stored version, because one of its fields may be an annotation in another.
            Route::Validate => (&[("CREATE", served), ("UPDATE", stored)], &["not-being-deleted", "new-or-changed"]),
            Route::Mutate => (&[("CREATE", stored)], &["without-an-image"]),
        };
        let operations = |rule: RuleWithOperations| (rule.operations.unwrap(), rule.api_versions.unwrap());
        let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = expected.iter().map(|(operation, versions)| (owned(&[operation]), owned(versions)));
        assert_eq!(rules.into_iter().map(operations).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        let found = webhook.match_conditions.clone().unwrap();
        assert_eq!(found.iter().map(|condition| condition.name.as_str()).collect::<Vec<_>>(), conditions);
        assert_eq!(webhook.client_config.ca_bundle, None, "the running operator adds it");
        let service = webhook.client_config.service.clone().unwrap();
        assert_eq!(service.path, Some(webhook_kind.path()));
        assert_eq!(
            webhook_kind.path(),
            format!("/{}/{family}", if webhook_kind.route == Route::Mutate { "mutate" } else { "validate" })
        );
    }
}

#[test]
fn output_formats_agree_and_flags_set_the_server() {
    let list: Value = serde_json::from_str(&print_configurations(&["-o", "json"])).unwrap();
    assert_eq!(list["items"], json!(shipped_configurations()));
    let client = |arguments: &[&str]| {
        let read: ValidatingWebhookConfiguration = serde_saphyr::from_str(&print_configurations(arguments)).unwrap();
        read.webhooks.unwrap().remove(0)
    };
    let service = client(&["llsd", "--webhook-namespace", "models", "--webhook-service", "own"]).client_config.service;
    let service = service.unwrap();
    assert_eq!((service.namespace.as_str(), service.name.as_str()), ("models", "own"));
    for url in ["https://10.0.0.1:9443", "https://10.0.0.1:9443/", "https://10.0.0.1:9443/convert"] {
        let client_config = client(&["llsd", "--webhook-url", url]).client_config;
        assert_eq!(client_config.url.as_deref(), Some("https://10.0.0.1:9443/validate/llsd"));
        assert_eq!(client_config.service, None);
    }
    assert_eq!(client(&["llsd", "--failure-policy", "ignore"]).failure_policy.as_deref(), Some("Ignore"));
}

#[test]
fn wrong_usage_of_webhooks_is_refused() {
    let cases: [(&[&str], &str); 4] = [
        (&["va"], "[possible values: dgdr, llsd]"),
        (&["--apply", "--remove"], "cannot be used with"),
        (&["--webhook-url", "https://a", "--webhook-service", "b"], "cannot be used with"),
        (&["--webhook-url", "http://a"], "such as https://127.0.0.1:9443"),
    ];
    for (arguments, expected) in cases {
        let error = output_of(steersman(&["webhooks"]).args(arguments)).failure();
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn every_admission_family_has_a_validating_webhook() {
    for family in FAMILIES {
        assert!(
            ALL.iter().any(|webhook_kind| webhook_kind.route == Route::Validate && webhook_kind.family == family),
            "{family}"
        );
    }
    assert!(ALL.iter().all(|webhook_kind| FAMILIES.contains(&webhook_kind.family)));
}

#[test]
fn configuration_names_are_unique_per_family() {
    let names: std::collections::BTreeSet<_> = Family::ALL.map(name).into();
    assert_eq!(names.len(), Family::ALL.len());
}
