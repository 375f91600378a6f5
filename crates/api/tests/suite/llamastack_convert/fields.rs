//! Every field of each version, by itself: where it stands in the other version, and how it comes back.

use serde_json::{Value, json};
use steersman_api::convert::{ConvertError, answer, convert};

use super::{NEW, NEW_FIELDS, OLD, OLD_FIELDS, bare, held, object, turned, whole};

#[test]
fn each_field_has_its_counterpart() {
    let cases = [
        (json!({}), json!({})),
        (json!({ "replicas": 3 }), json!({ "workload": { "replicas": 3 } })),
        // Scaled to nothing is not the same as not said.
        (json!({ "replicas": 0 }), json!({ "workload": { "replicas": 0 } })),
        (
            json!({ "server": { "distribution": { "name": "starter" } } }),
            json!({ "distribution": { "name": "starter" } }),
        ),
        (json!({ "server": { "distribution": {} } }), json!({ "distribution": {} })),
        (json!({ "server": { "containerSpec": { "port": 9000 } } }), json!({ "networking": { "port": 9000 } })),
        (
            json!({ "server": { "containerSpec": { "resources": { "claims": [{ "name": "gpu" }] } } } }),
            json!({ "workload": { "resources": { "claims": [{ "name": "gpu" }] } } }),
        ),
        (json!({ "server": { "containerSpec": { "resources": {} } } }), json!({ "workload": { "resources": {} } })),
        (
            json!({ "server": { "containerSpec": { "env": [{ "name": "A", "value": "1" }] } } }),
            json!({ "workload": { "overrides": { "env": [{ "name": "A", "value": "1" }] } } }),
        ),
        (
            json!({ "server": { "containerSpec": { "command": ["sh"], "args": [] } } }),
            json!({ "workload": { "overrides": { "command": ["sh"], "args": [] } } }),
        ),
        (
            json!({ "server": { "userConfig": { "configMapName": "own" } } }),
            json!({ "overrideConfig": { "configMapName": "own" } }),
        ),
        (json!({ "server": { "storage": {} } }), json!({ "workload": { "storage": {} } })),
        (
            json!({ "server": { "storage": { "size": "20Gi", "mountPath": "/data" } } }),
            json!({ "workload": { "storage": { "size": "20Gi", "mountPath": "/data" } } }),
        ),
        (
            json!({ "server": { "tlsConfig": { "caBundle": {
                "configMapName": "ca", "configMapNamespace": "shared", "configMapKeys": ["a", "b"],
            } } } }),
            json!({ "networking": { "tls": { "caBundle": {
                "configMapName": "ca", "configMapNamespace": "shared", "configMapKeys": ["a", "b"],
            } } } }),
        ),
        (
            json!({ "server": { "autoscaling": { "maxReplicas": 4, "targetCPUUtilizationPercentage": 0 } } }),
            json!({ "workload": { "autoscaling": { "maxReplicas": 4, "targetCPUUtilizationPercentage": 0 } } }),
        ),
        (json!({ "server": { "workers": 2 } }), json!({ "workload": { "workers": 2 } })),
        (json!({ "server": { "podDisruptionBudget": {} } }), json!({ "workload": { "podDisruptionBudget": {} } })),
        (
            json!({ "server": { "podDisruptionBudget": { "minAvailable": "50%" } } }),
            json!({ "workload": { "podDisruptionBudget": { "minAvailable": "50%" } } }),
        ),
        (
            json!({ "server": { "topologySpreadConstraints": [{ "maxSkew": 1 }] } }),
            json!({ "workload": { "topologySpreadConstraints": [{ "maxSkew": 1 }] } }),
        ),
        (
            json!({ "server": { "podOverrides": {
                "serviceAccountName": "runner", "terminationGracePeriodSeconds": 0,
                "volumes": [{ "name": "v" }], "volumeMounts": [{ "name": "v" }],
            } } }),
            json!({ "workload": { "overrides": {
                "serviceAccountName": "runner", "terminationGracePeriodSeconds": 0,
                "volumes": [{ "name": "v" }], "volumeMounts": [{ "name": "v" }],
            } } }),
        ),
        (json!({ "network": { "exposeRoute": true } }), json!({ "networking": { "expose": true } })),
        (json!({ "network": { "exposeRoute": false } }), json!({ "networking": { "expose": false } })),
        (
            json!({ "network": { "allowedFrom": { "namespaces": ["*"], "labels": ["team"] } } }),
            json!({ "networking": { "allowedFrom": { "namespaces": ["*"], "labels": ["team"] } } }),
        ),
        // What is wrong in one version is wrong in the other, where it is found and named.
        (json!({ "replicas": "three" }), json!({ "workload": { "replicas": "three" } })),
        (json!({ "server": { "storage": [1, 2] } }), json!({ "workload": { "storage": [1, 2] } })),
        (json!({ "server": { "distribution": null } }), json!({ "distribution": null })),
        (json!({ "server": { "containerSpec": { "port": "http" } } }), json!({ "networking": { "port": "http" } })),
    ];
    for (old, new) in cases {
        for made in [object, bare] {
            assert_eq!(whole(&made(OLD, &old)), made(NEW, &new));
            assert_eq!(whole(&made(NEW, &new)), made(OLD, &old));
        }
    }
}

/// What v1alpha2 has no field for stands in an annotation, as it would stand in a v1alpha1 object.
#[test]
fn what_only_the_older_version_says_is_kept_beside() {
    let server = |server: Value| json!({ "server": server });
    // Given, what v1alpha2 makes of it, what is kept.
    let cases = [
        // v1alpha1 sets the name by default wherever there is a container: that, too, has to come back.
        (server(json!({ "containerSpec": { "name": "llama-stack" } })), json!({}), None),
        (
            server(json!({ "containerSpec": { "name": "mine", "port": 9000 } })),
            json!({ "networking": { "port": 9000 } }),
            Some(server(json!({ "containerSpec": { "name": "mine" } }))),
        ),
        (server(json!({ "containerSpec": { "port": 0 } })), json!({}), None),
        (server(json!({ "containerSpec": { "port": -1 } })), json!({}), None),
        (
            server(json!({ "userConfig": { "configMapName": "own", "configMapNamespace": "shared" } })),
            json!({ "overrideConfig": { "configMapName": "own" } }),
            None,
        ),
        (server(json!({ "userConfig": { "configMapName": "" } })), json!({}), None),
        (server(json!({ "userConfig": { "configMapName": "", "configMapNamespace": "shared" } })), json!({}), None),
        (server(json!({ "userConfig": { "configMapNamespace": "shared" } })), json!({}), None),
        (server(json!({ "userConfig": "own" })), json!({}), None),
        // Sections without content, which v1alpha2 would fill with defaults.
        (json!({ "network": {} }), json!({}), None),
        (server(json!({ "containerSpec": {}, "podOverrides": {}, "tlsConfig": {} })), json!({}), None),
        (server(json!({})), json!({}), None),
        // A section that is none.
        (json!({ "server": 7 }), json!({}), None),
        (json!({ "network": null }), json!({}), None),
        (json!({ "network": { "exposeRoute": "yes" } }), json!({}), None),
        // Fields that no version has, and fields that have a meaning only in the other one.
        (server(json!({ "externalProviders": { "inference": [] } })), json!({}), None),
        (json!({ "providers": { "inference": "x" }, "workload": { "replicas": 9 } }), json!({}), None),
    ];
    for (old, new, kept) in cases {
        let given = object(OLD, &old);
        let out = whole(&given);
        assert_eq!(out["spec"], new, "{old}");
        assert_eq!(held(&out, OLD_FIELDS), json!({ "spec": kept.unwrap_or(old) }));
        assert_eq!(whole(&out), given);
    }
}

/// What v1alpha1 has no field for stands in an annotation, as it would stand in a v1alpha2 object, in the form it was given.
#[test]
fn what_only_the_newer_version_says_is_kept_beside() {
    let network = |network: Value| json!({ "networking": network });
    // Given, what v1alpha1 makes of it, what is kept.
    let cases = [
        (json!({ "providers": { "inference": { "provider": "vllm" } } }), json!({}), None),
        (json!({ "providers": { "inference": [{ "provider": "vllm", "endpont": "typo" }] } }), json!({}), None),
        (
            json!({ "providers": { "safety": { "provider": "p", "apiKey": { "name": "s", "key": "k" } } } }),
            json!({}),
            None,
        ),
        (
            json!({ "providers": { "vectorIo": { "provider": "p", "apiKey": { "secretKeyRef": { "name": "s", "key": "k" } } } } }),
            json!({}),
            None,
        ),
        (
            json!({ "providers": { "inference": { "provider": "p", "settings": { "t": 0.300_000_000_000_000_04 } } } }),
            json!({}),
            None,
        ),
        (json!({ "resources": { "models": ["a", { "name": "b" }], "tools": ["t"], "shields": [] } }), json!({}), None),
        (json!({ "storage": { "kv": { "type": "redis", "endpoint": "redis://r" }, "sql": {} } }), json!({}), None),
        (json!({ "disabled": ["postTraining", "tool_runtime"] }), json!({}), None),
        (json!({ "externalProviders": { "inference": [{ "providerId": "p", "image": "i" }] } }), json!({}), None),
        (network(json!({ "expose": {} })), json!({ "network": { "exposeRoute": true } }), None),
        (network(json!({ "expose": { "enabled": true } })), json!({ "network": { "exposeRoute": true } }), None),
        (network(json!({ "expose": { "enabled": false } })), json!({ "network": { "exposeRoute": false } }), None),
        (network(json!({ "expose": { "hostname": "h" } })), json!({ "network": { "exposeRoute": true } }), None),
        (
            network(json!({ "expose": { "enabled": false, "hostname": "h" } })),
            json!({ "network": { "exposeRoute": false } }),
            None,
        ),
        (network(json!({ "expose": "yes" })), json!({}), None),
        (network(json!({ "expose": { "enabled": "yes" } })), json!({}), None),
        (network(json!({ "tls": { "enabled": true, "secretName": "s" } })), json!({}), None),
        (
            network(
                json!({ "port": 8443, "tls": { "enabled": true, "secretName": "s", "caBundle": { "configMapName": "ca" } } }),
            ),
            json!({ "server": {
                "containerSpec": { "port": 8443 }, "tlsConfig": { "caBundle": { "configMapName": "ca" } },
            } }),
            Some(network(json!({ "tls": { "enabled": true, "secretName": "s" } }))),
        ),
        (network(json!({ "port": 0 })), json!({}), None),
        (network(json!({})), json!({}), None),
        (json!({ "workload": {} }), json!({}), None),
        (json!({ "workload": { "overrides": {} } }), json!({}), None),
        (json!({ "networking": [] }), json!({}), None),
        (json!({ "overrideConfig": {} }), json!({}), None),
        (json!({ "overrideConfig": { "configMapName": "" } }), json!({}), None),
        (
            json!({ "overrideConfig": { "configMapName": "own", "key": "c" } }),
            json!({ "server": { "userConfig": { "configMapName": "own" } } }),
            None,
        ),
        // Refused by the schema, yet not for the conversion to judge.
        (
            json!({ "overrideConfig": { "configMapName": "own" }, "disabled": ["eval"] }),
            json!({ "server": { "userConfig": { "configMapName": "own" } } }),
            None,
        ),
        (json!({ "server": { "workers": 2 }, "replicas": 3 }), json!({}), None),
    ];
    for (new, old, kept) in cases {
        let given = object(NEW, &new);
        let out = whole(&given);
        assert_eq!(out["spec"], old, "{new}");
        assert_eq!(held(&out, NEW_FIELDS), json!({ "spec": kept.unwrap_or(new) }));
        assert_eq!(whole(&out), given);
    }
}

#[test]
fn the_status_keeps_its_fields_and_what_only_one_version_has() {
    let both = json!({
        "phase": "Ready", "version": { "operatorVersion": "0.1.0" }, "distributionConfig": { "activeDistribution": "starter" },
        "conditions": [{ "type": "Ready" }], "availableReplicas": 1, "serviceURL": "http://s", "routeURL": "", "own": [1],
    });
    let mut old = object(OLD, &json!({}));
    old["status"] = both.clone();
    let mut new = object(NEW, &json!({}));
    new["status"] = both;
    assert_eq!(whole(&old), new);
    assert_eq!(whole(&new), old);

    let more = json!({
        "resolvedDistribution": { "image": "i" }, "configGeneration": { "providerCount": 7 },
        "findings": [{ "severity": "Blocker", "reason": "PortInvalid", "field": "spec.networking.port" }],
        "deployedConfigMapName": "starter-config-1",
        "podProblem": { "reason": "CrashLoopBackOff", "container": "llama-stack", "exitCode": 3, "message": "why" },
    });
    new["status"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let out = whole(&new);
    assert_eq!(out["status"], old["status"]);
    assert_eq!(held(&out, NEW_FIELDS), json!({ "status": more }));
    assert_eq!(whole(&out), new);

    // The operator of v1alpha1 writes a status: it wins, and the rest of v1alpha2 stays.
    let mut written = out;
    written["status"] = json!({ "phase": "Failed" });
    let back = whole(&written);
    assert_eq!(back["status"]["phase"], "Failed");
    assert_eq!(back["status"]["configGeneration"], more["configGeneration"]);
    assert_eq!(back["status"]["availableReplicas"], Value::Null);

    for status in [json!(null), json!("Ready"), json!({})] {
        old["status"] = status.clone();
        new["status"] = status;
        assert_eq!(whole(&old), new);
        assert_eq!(whole(&new), old);
    }
}

#[test]
fn what_cannot_be_converted_is_told() {
    let given = object(OLD, &json!({ "replicas": 1 }));
    let error = convert(given.clone(), "llamastack.io/v1").unwrap_err().to_string();
    assert_eq!(
        error,
        r#"LlamaStackDistribution has no version "llamastack.io/v1"; its versions are v1alpha1, v1alpha2"#
    );
    let error = convert(given.clone(), "nvidia.com/v1alpha1").unwrap_err().to_string();
    assert!(error.starts_with(r#"LlamaStackDistribution has no version "nvidia.com/v1alpha1""#), "{error}");
    for nothing in
        [json!(null), json!([]), json!({}), json!({ "apiVersion": OLD }), json!({ "apiVersion": OLD, "kind": 7 })]
    {
        assert_eq!(convert(nothing, NEW), Err(ConvertError::NotAnObject));
    }
    let error = convert(json!({ "apiVersion": OLD, "kind": "LlamaStack" }), NEW).unwrap_err().to_string();
    assert!(error.starts_with("there is no conversion for LlamaStack of llamastack.io/v1alpha1"), "{error}");
}

#[test]
fn the_api_server_gets_metadata_even_where_it_asks_without() {
    for version in [OLD, NEW] {
        let spec = json!({});
        let answered = answer(bare(version, &spec), super::other(version)).unwrap().object;
        assert_eq!(answered["metadata"], json!({}));
        let whole = object(version, &spec);
        assert_eq!(answer(whole.clone(), super::other(version)), convert(whole, super::other(version)));
    }
}

#[test]
fn the_same_version_changes_nothing() {
    for version in [OLD, NEW] {
        let mut given = object(version, &json!({ "server": 7, "networking": [], "novelty": null }));
        given["metadata"]["annotations"] = json!({ NEW_FIELDS: "{}", OLD_FIELDS: "no JSON" });
        let out = convert(given.clone(), version).unwrap();
        assert_eq!((out.object, out.lost), (given, vec![]));
    }
}

#[test]
fn a_spec_that_is_none_is_left_as_it_is() {
    for spec in [json!(null), json!("x"), json!([1])] {
        for version in [OLD, NEW] {
            let given = object(version, &spec);
            let out = turned(&given);
            assert_eq!(out.object["spec"], spec);
            assert_eq!(whole(&out.object), given);
        }
    }
}
