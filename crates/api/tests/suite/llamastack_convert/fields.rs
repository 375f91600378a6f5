//! Conversion of single fields, in both directions.

use serde_json::{Value, json};
use steersman_api::convert::{ConvertError, convert, convert_for_review};

use super::{
    V1ALPHA1, V1ALPHA1_FIELDS, V1ALPHA2, V1ALPHA2_FIELDS, annotated_fields, convert_losslessly, convert_to_other,
    object, without_metadata,
};

#[test]
fn common_fields_convert_both_ways() {
    let cases = [
        (json!({}), json!({})),
        (json!({ "replicas": 3 }), json!({ "workload": { "replicas": 3 } })),
        // Zero replicas differ from absent replicas.
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
        // A wrong value stays wrong, so that the validation of the other version reports it.
        (json!({ "replicas": "three" }), json!({ "workload": { "replicas": "three" } })),
        (json!({ "server": { "storage": [1, 2] } }), json!({ "workload": { "storage": [1, 2] } })),
        (json!({ "server": { "distribution": null } }), json!({ "distribution": null })),
        (json!({ "server": { "containerSpec": { "port": "http" } } }), json!({ "networking": { "port": "http" } })),
    ];
    for (old, new) in cases {
        for make in [object, without_metadata] {
            assert_eq!(convert_losslessly(&make(V1ALPHA1, &old)), make(V1ALPHA2, &new));
            assert_eq!(convert_losslessly(&make(V1ALPHA2, &new)), make(V1ALPHA1, &old));
        }
    }
}

/// Fields that v1alpha2 lacks go to an annotation, in the structure of a v1alpha1 object.
#[test]
fn short_names_convert_as_their_fields() {
    for (short, name, value, other) in [
        ("pdb", "podDisruptionBudget", json!({ "minAvailable": 1 }), json!({ "maxUnavailable": 1 })),
        ("topologySpread", "topologySpreadConstraints", json!([{ "maxSkew": 1 }]), json!([{ "maxSkew": 2 }])),
    ] {
        let written = object(V1ALPHA2, &json!({ "workload": { short: value } }));
        let converted = convert(written.clone(), V1ALPHA1).unwrap().object;
        assert_eq!(converted["spec"], json!({ "server": { name: value } }));
        let back = convert(converted.clone(), V1ALPHA2).unwrap();
        assert_eq!((&back.object, &back.lost), (&written, &vec![]));
        // A change or a removal in v1alpha1 counts.
        for (change, expected) in [(json!(other), json!({ "workload": { name: other } })), (json!(null), json!({}))] {
            let mut changed = converted.clone();
            let server = changed["spec"]["server"].as_object_mut().unwrap();
            server.remove(name);
            if !change.is_null() {
                server.insert(name.into(), change);
            }
            let back = convert(changed, V1ALPHA2).unwrap();
            assert_eq!(back.object["spec"], expected);
            assert_eq!(back.lost.len(), 1, "{:?}", back.lost);
        }
    }
}

#[test]
fn v1alpha1_only_fields_go_to_annotations() {
    let server = |server: Value| json!({ "server": server });
    // v1alpha1 spec, v1alpha2 spec, and the annotated fields if they are not the whole spec.
    let cases = [
        // v1alpha1 sets the name of a container by default. The default must be restored too.
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
        // Empty sections, in which v1alpha2 would set defaults.
        (json!({ "network": {} }), json!({}), None),
        (server(json!({ "containerSpec": {}, "podOverrides": {}, "tlsConfig": {} })), json!({}), None),
        (server(json!({})), json!({}), None),
        // Sections that are no objects.
        (json!({ "server": 7 }), json!({}), None),
        (json!({ "network": null }), json!({}), None),
        (json!({ "network": { "exposeRoute": "yes" } }), json!({}), None),
        // Fields that no version has, and fields that only v1alpha2 has.
        (server(json!({ "externalProviders": { "inference": [] } })), json!({}), None),
        (json!({ "providers": { "inference": "x" }, "workload": { "replicas": 9 } }), json!({}), None),
    ];
    for (old, new, kept) in cases {
        let original = object(V1ALPHA1, &old);
        let out = convert_losslessly(&original);
        assert_eq!(out["spec"], new, "{old}");
        assert_eq!(annotated_fields(&out, V1ALPHA1_FIELDS), json!({ "spec": kept.unwrap_or(old) }));
        assert_eq!(convert_losslessly(&out), original);
    }
}

/// Fields that v1alpha1 lacks go to an annotation, in the structure of a v1alpha2 object.
#[test]
fn v1alpha2_only_fields_go_to_annotations() {
    let network = |network: Value| json!({ "networking": network });
    // v1alpha2 spec, v1alpha1 spec, and the annotated fields if they are not the whole spec.
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
        // The schema rejects this combination; the conversion does not validate.
        (
            json!({ "overrideConfig": { "configMapName": "own" }, "disabled": ["eval"] }),
            json!({ "server": { "userConfig": { "configMapName": "own" } } }),
            None,
        ),
        (json!({ "server": { "workers": 2 }, "replicas": 3 }), json!({}), None),
    ];
    for (new, old, kept) in cases {
        let original = object(V1ALPHA2, &new);
        let out = convert_losslessly(&original);
        assert_eq!(out["spec"], old, "{new}");
        assert_eq!(annotated_fields(&out, V1ALPHA2_FIELDS), json!({ "spec": kept.unwrap_or(new) }));
        assert_eq!(convert_losslessly(&out), original);
    }
}

#[test]
fn status_fields_survive_both_versions() {
    let both = json!({
        "phase": "Ready", "version": { "operatorVersion": "0.1.0" }, "distributionConfig": { "activeDistribution": "starter" },
        "conditions": [{ "type": "Ready" }], "availableReplicas": 1, "serviceURL": "http://s", "routeURL": "", "own": [1],
    });
    let mut old = object(V1ALPHA1, &json!({}));
    old["status"] = both.clone();
    let mut new = object(V1ALPHA2, &json!({}));
    new["status"] = both;
    assert_eq!(convert_losslessly(&old), new);
    assert_eq!(convert_losslessly(&new), old);

    let more = json!({
        "resolvedDistribution": { "image": "i" }, "configGeneration": { "providerCount": 7 },
        "findings": [{ "severity": "Blocker", "reason": "PortInvalid", "field": "spec.networking.port" }],
        "deployedConfigMapName": "starter-config-1",
        "podProblem": { "reason": "CrashLoopBackOff", "container": "llama-stack", "exitCode": 3, "message": "why" },
    });
    new["status"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let out = convert_losslessly(&new);
    assert_eq!(out["status"], old["status"]);
    assert_eq!(annotated_fields(&out, V1ALPHA2_FIELDS), json!({ "status": more }));
    assert_eq!(convert_losslessly(&out), new);

    // A v1alpha1 client writes the status: its fields win, and the fields that only v1alpha2 has stay.
    let mut written = out;
    written["status"] = json!({ "phase": "Failed" });
    let back = convert_losslessly(&written);
    assert_eq!(back["status"]["phase"], "Failed");
    assert_eq!(back["status"]["configGeneration"], more["configGeneration"]);
    assert_eq!(back["status"]["availableReplicas"], Value::Null);

    for status in [json!(null), json!("Ready"), json!({})] {
        old["status"] = status.clone();
        new["status"] = status;
        assert_eq!(convert_losslessly(&old), new);
        assert_eq!(convert_losslessly(&new), old);
    }
}

#[test]
fn inconvertible_object_is_an_error() {
    let original = object(V1ALPHA1, &json!({ "replicas": 1 }));
    let error = convert(original.clone(), "llamastack.io/v1").unwrap_err().to_string();
    assert_eq!(
        error,
        r#"LlamaStackDistribution has no version "llamastack.io/v1"; its versions are v1alpha1, v1alpha2"#
    );
    let error = convert(original.clone(), "nvidia.com/v1alpha1").unwrap_err().to_string();
    assert!(error.starts_with(r#"LlamaStackDistribution has no version "nvidia.com/v1alpha1""#), "{error}");
    for nothing in [
        json!(null),
        json!([]),
        json!({}),
        json!({ "apiVersion": V1ALPHA1 }),
        json!({ "apiVersion": V1ALPHA1, "kind": 7 }),
    ] {
        assert_eq!(convert(nothing, V1ALPHA2), Err(ConvertError::NotAnObject));
    }
    let error = convert(json!({ "apiVersion": V1ALPHA1, "kind": "LlamaStack" }), V1ALPHA2).unwrap_err().to_string();
    assert!(error.starts_with("there is no conversion for LlamaStack of llamastack.io/v1alpha1"), "{error}");
}

#[test]
fn review_response_has_metadata() {
    for version in [V1ALPHA1, V1ALPHA2] {
        let spec = json!({});
        let answered =
            convert_for_review(without_metadata(version, &spec), super::other_version(version)).unwrap().object;
        assert_eq!(answered["metadata"], json!({}));
        let whole = object(version, &spec);
        assert_eq!(
            convert_for_review(whole.clone(), super::other_version(version)),
            convert(whole, super::other_version(version))
        );
    }
}

#[test]
fn same_version_changes_nothing() {
    for version in [V1ALPHA1, V1ALPHA2] {
        let mut original = object(version, &json!({ "server": 7, "networking": [], "novelty": null }));
        original["metadata"]["annotations"] = json!({ V1ALPHA2_FIELDS: "{}", V1ALPHA1_FIELDS: "no JSON" });
        let out = convert(original.clone(), version).unwrap();
        assert_eq!((out.object, out.lost), (original, vec![]));
    }
}

#[test]
fn non_object_spec_is_unchanged() {
    for spec in [json!(null), json!("x"), json!([1])] {
        for version in [V1ALPHA1, V1ALPHA2] {
            let original = object(version, &spec);
            let out = convert_to_other(&original);
            assert_eq!(out.object["spec"], spec);
            assert_eq!(convert_losslessly(&out.object), original);
        }
    }
}
