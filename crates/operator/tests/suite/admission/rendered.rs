//! The configurations as they are rendered: what they match, and above all what they do not.

use k8s_openapi::api::admissionregistration::v1::{RuleWithOperations, ValidatingWebhookConfiguration};
use serde_json::{Value, json};
use steersman::admission::{ALL, FAMILIES, file, name};
use steersman::webhooks::admission::Route;
use steersman_api::Family;

use crate::command::{output_of, steersman};

fn printed(arguments: &[&str]) -> String {
    output_of(steersman(&["webhooks"]).args(arguments)).ok()
}

fn shipped() -> Vec<Value> {
    file().unwrap().split("---\n").map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

#[test]
fn only_new_and_changed_objects_of_ours_are_asked_about() {
    assert_eq!(shipped().len(), ALL.len());
    for (of, mut configuration) in ALL.into_iter().zip(shipped()) {
        let family = of.family;
        assert_eq!(
            (&configuration["kind"], &configuration["metadata"]["name"]),
            (&of.kind().into(), &of.name().into())
        );
        // The kinds have the same fields here.
        configuration["kind"] = json!("ValidatingWebhookConfiguration");
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(configuration).unwrap();
        let [webhook] = &configuration.webhooks.unwrap()[..] else { panic!("one webhook expected") };
        let rules = webhook.rules.clone().unwrap();
        // Neither a kind that the operator needs to start, nor a subresource, nor a deletion: nothing can lock itself out.
        for rule in &rules {
            assert_eq!(rule.api_groups, Some(vec![family.group().to_owned()]));
            assert_eq!(rule.resources, Some(vec![family.plural().to_owned()]));
            assert_eq!(rule.scope.as_deref(), Some("Namespaced"));
        }
        assert_eq!(webhook.failure_policy.as_deref(), Some("Fail"));
        assert_eq!(webhook.match_policy.as_deref(), Some("Equivalent"), "older versions are converted first");
        assert_eq!((webhook.side_effects.as_str(), webhook.timeout_seconds), ("None", Some(10)));
        let (served, stored) = (family.served_versions(), &[family.storage_version()][..]);
        let (expected, conditions): (&[(&str, &[&str])], &[&str]) = match of.route {
            // The condition compares specs of the stored version: a field of it may be an annotation in another one.
            Route::Validate => (&[("CREATE", served), ("UPDATE", stored)], &["not-being-deleted", "new-or-changed"]),
            Route::Mutate => (&[("CREATE", stored)], &["without-an-image"]),
        };
        let asked = |rule: RuleWithOperations| (rule.operations.unwrap(), rule.api_versions.unwrap());
        let words = |given: &[&str]| given.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = expected.iter().map(|(operation, versions)| (words(&[operation]), words(versions)));
        assert_eq!(rules.into_iter().map(asked).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        let found = webhook.match_conditions.clone().unwrap();
        assert_eq!(found.iter().map(|condition| condition.name.as_str()).collect::<Vec<_>>(), conditions);
        assert_eq!(webhook.client_config.ca_bundle, None, "that is the running operator's");
        let service = webhook.client_config.service.clone().unwrap();
        assert_eq!(service.path, Some(of.path()));
        assert_eq!(of.path(), format!("/{}/{family}", if of.route == Route::Mutate { "mutate" } else { "validate" }));
    }
}

#[test]
fn both_forms_hold_the_same_and_flags_say_who_is_asked() {
    let list: Value = serde_json::from_str(&printed(&["-o", "json"])).unwrap();
    assert_eq!(list["items"], json!(shipped()));
    let client = |arguments: &[&str]| {
        let read: ValidatingWebhookConfiguration = serde_saphyr::from_str(&printed(arguments)).unwrap();
        read.webhooks.unwrap().remove(0)
    };
    let named = client(&["llsd", "--webhook-namespace", "models", "--webhook-service", "own"]).client_config.service;
    let named = named.unwrap();
    assert_eq!((named.namespace.as_str(), named.name.as_str()), ("models", "own"));
    for url in ["https://10.0.0.1:9443", "https://10.0.0.1:9443/", "https://10.0.0.1:9443/convert"] {
        let outside = client(&["llsd", "--webhook-url", url]).client_config;
        assert_eq!(outside.url.as_deref(), Some("https://10.0.0.1:9443/validate/llsd"));
        assert_eq!(outside.service, None);
    }
    assert_eq!(client(&["llsd", "--failure-policy", "ignore"]).failure_policy.as_deref(), Some("Ignore"));
}

#[test]
fn wrong_usage_is_said() {
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
fn every_family_that_is_judged_has_a_configuration_that_says_yes_or_no() {
    for family in FAMILIES {
        assert!(ALL.iter().any(|of| of.route == Route::Validate && of.family == family), "{family}");
    }
    assert!(ALL.iter().all(|of| FAMILIES.contains(&of.family)));
}

#[test]
fn every_family_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = Family::ALL.map(name).into();
    assert_eq!(names.len(), Family::ALL.len());
}
