//! Admission and the controller accept the same objects.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_plan::llamastack::config::base;
use steersman_plan::llamastack::validate::{Facts, Missing, validate};
use steersman_plan::llamastack::{Snapshot, plan};
use steersman_reconcile::Severity;

use super::configuration::with_references;
use super::snapshot_from_stored;
use super::trust::CERTIFICATE;

const BUNDLE_KEYS: [&str; 2] = ["ca-bundle.crt", "../etc/passwd"];

fn object(name: &str, parts: &[Value]) -> Value {
    let mut spec = json!({ "distribution": { "name": "starter" } });
    parts.iter().for_each(|part| merge(&mut spec, part));
    json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
        "metadata": { "name": name, "namespace": "team-a" }, "spec": spec })
}

fn merge(into: &mut Value, part: &Value) {
    match (into, part) {
        (Value::Object(into), Value::Object(part)) => {
            for (name, value) in part {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, part) => *into = part.clone(),
    }
}

fn admission_errors(object: &Value) -> Vec<String> {
    let name = object["spec"]["distribution"]["name"].as_str();
    let distributions: Vec<&str> = base::names().collect();
    let resolved = base::resolve(name, Ok(None)).ok();
    let facts = Facts {
        namespace: "team-a",
        distributions: &distributions,
        base: resolved.as_ref().map(|resolved| &*resolved.base),
        always_mounted: name.and_then(base::distribution).is_some_and(|known| known.mounts_always),
        config_namespace: None,
        found: &BTreeMap::new(),
        missing: Missing::Refuse,
    };
    validate(object, None, &facts).errors.iter().map(|error| error.text().to_string()).collect()
}

/// The object in a cluster that has everything it refers to.
fn snapshot(object: &Value) -> Snapshot {
    let mut snapshot = with_references(snapshot_from_stored(object.clone()));
    snapshot.object.name = object["metadata"]["name"].as_str().unwrap().to_owned();
    snapshot.settings.distributions = base::images();
    snapshot.trust.named = Some(BUNDLE_KEYS.map(|key| (key.to_owned(), CERTIFICATE.to_owned())).into());
    snapshot
}

fn blockers(snapshot: &Snapshot) -> Vec<String> {
    let findings = plan(snapshot).findings;
    findings.iter().filter(|found| found.severity == Severity::Blocker).map(ToString::to_string).collect()
}

/// Parts of specs: the first of each group is valid, some of the others are not.
fn groups() -> Vec<Vec<Value>> {
    let volume = |name: &str| json!({ "workload": { "overrides": { "volumes": [{ "name": name, "emptyDir": {} }] } } });
    let mount = |path: &str| json!({ "workload": { "overrides": { "volumeMounts": [{ "name": "lls-storage", "mountPath": path }] } } });
    let resources = |requests: Value, limits: Value| json!({ "workload": { "resources": { "requests": requests, "limits": limits } } });
    vec![
        vec![
            json!({}),
            json!({ "providers": { "inference": { "provider": "vllm", "endpoint": "http://x" } } }),
            json!({ "providers": { "inference": { "provider": "vlm" } } }),
            json!({ "providers": { "inference": { "id": "sentence-transformers", "provider": "vllm" } } }),
            json!({ "overrideConfig": { "configMapName": "mine" } }),
            json!({ "distribution": { "name": null, "image": "registry.example/x:1" } }),
            json!({ "distribution": { "name": null, "image": "registry.example/X Y" } }),
            json!({ "distribution": { "name": "remote-vllm" } }),
            json!({ "distribution": { "name": "nobody" } }),
            json!({ "storage": { "sql": { "type": "postgres", "connectionString": { "name": "s", "key": "k" } } } }),
        ],
        vec![
            json!({}),
            json!({ "externalProviders": { "inference": [{ "providerId": "own", "image": "reg/own:1" }] } }),
            json!({ "externalProviders": { "inference": [{ "providerId": "own", "image": "Not An Image" }] } }),
        ],
        vec![json!({}), json!({ "workload": { "replicas": 2 } }), json!({ "workload": { "replicas": -1 } })],
        vec![
            json!({}),
            json!({ "workload": { "autoscaling": { "maxReplicas": 3 } } }),
            json!({ "workload": { "autoscaling": { "maxReplicas": 1, "minReplicas": 2 } } }),
            json!({ "workload": { "autoscaling": { "maxReplicas": 3, "targetCPUUtilizationPercentage": 0 } } }),
        ],
        vec![
            json!({}),
            json!({ "workload": { "pdb": { "minAvailable": 1 } } }),
            json!({ "workload": { "podDisruptionBudget": { "minAvailable": 1, "maxUnavailable": 1 } } }),
            json!({ "workload": { "pdb": { "minAvailable": 1 }, "podDisruptionBudget": {} } }),
        ],
        vec![
            json!({}),
            volume("own"),
            volume("lls-storage"),
            volume("user-config"),
            volume("ca-bundle"),
            volume("server-certificate"),
            volume("final-config"),
            volume("storage-env"),
        ],
        vec![json!({}), mount("/own"), mount("/.llama"), mount("/etc/llama-stack"), mount("/etc/ssl/certs/ca-bundle")],
        vec![
            json!({}),
            resources(json!({ "cpu": "1" }), json!({ "cpu": "2" })),
            resources(json!({ "cpu": "3" }), json!({ "cpu": "2" })),
            resources(json!({}), json!({ "memory": "512Mi" })),
            resources(json!({ "nvidia.com/gpu": "1" }), json!({})),
        ],
        vec![
            json!({}),
            json!({ "networking": { "expose": { "hostname": "llama.example.com" } } }),
            json!({ "networking": { "expose": { "hostname": "Llama_example" } } }),
            json!({ "networking": { "expose": { "hostname": "1.2.3.4" } } }),
        ],
        vec![json!({}), json!({ "networking": { "port": 9000 } }), json!({ "networking": { "port": 70000 } })],
        vec![
            json!({}),
            json!({ "networking": { "tls": { "enabled": true, "secretName": "cert" } } }),
            json!({ "networking": { "tls": { "enabled": true } } }),
        ],
        vec![
            json!({}),
            json!({ "networking": { "tls": { "caBundle": { "configMapName": "ca", "configMapKeys": [BUNDLE_KEYS[0]] } } } }),
            json!({ "networking": { "tls": { "caBundle": { "configMapName": "ca", "configMapKeys": [BUNDLE_KEYS[1]] } } } }),
        ],
        vec![
            json!({}),
            json!({ "workload": { "storage": { "size": "1Gi" } } }),
            json!({ "workload": { "storage": { "size": "0" } } }),
            json!({ "workload": { "overrides": { "terminationGracePeriodSeconds": -1 } } }),
        ],
    ]
}

fn names() -> [String; 4] {
    ["starter".into(), "a".repeat(48), "a".repeat(49), "with.dot".into()]
}

/// Labels of an image are read by the controller alone, so a configuration for an image is not judged here.
fn needs_labels(object: &Value) -> bool {
    let spec = &object["spec"];
    spec["distribution"]["image"].is_string()
        && spec["overrideConfig"].is_null()
        && (!spec["externalProviders"].is_null() || spec["networking"]["tls"]["enabled"] == true)
}

#[test]
fn each_part_is_judged_alike() {
    for part in groups().concat() {
        let object = object("starter", std::slice::from_ref(&part));
        let (admission, controller) = (admission_errors(&object), blockers(&snapshot(&object)));
        assert_eq!(admission.is_empty(), controller.is_empty(), "{part}\n{admission:#?}\n{controller:#?}");
    }
    for name in names() {
        let object = object(&name, &[]);
        let (admission, controller) = (admission_errors(&object), blockers(&snapshot(&object)));
        let valid = name.len() <= 48 && !name.contains('.');
        assert_eq!((admission.is_empty(), controller.is_empty()), (valid, valid), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn generated_objects_are_judged_alike(
        parts in groups().into_iter().map(prop::sample::select).collect::<Vec<_>>(),
        kept in prop::collection::vec(prop::bool::weighted(0.35), groups().len()),
        name in prop::sample::select(names().to_vec()),
    ) {
        let parts: Vec<Value> = parts.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(part, _)| part).collect();
        let object = object(&name, &parts);
        prop_assume!(!needs_labels(&object));
        let (admission, controller) = (admission_errors(&object), blockers(&snapshot(&object)));
        prop_assert_eq!(admission.is_empty(), controller.is_empty(), "{:#}\n{:#?}\n{:#?}", object, admission, controller);
    }
}
