//! The annotations of the conversion: when their fields are restored, when they are dropped, and which losses are
//! reported.

use serde_json::{Value, json};
use steersman_api::llamastack::convert::OMITTED;

use super::{
    V1ALPHA1, V1ALPHA1_FIELDS, V1ALPHA2, V1ALPHA2_FIELDS, annotated_fields, convert_losslessly, convert_to_other,
    is_conversion_annotation, object, without_metadata,
};

const CHANGED: &str = "was not restored, because fields of v1alpha1 have changed since";

/// A v1alpha2 object that a client of v1alpha1 reads, changes and writes.
#[test]
fn v1alpha1_change_wins_and_rest_stays() {
    let stored = json!({
        "distribution": { "name": "starter" },
        "providers": { "inference": { "provider": "vllm" } },
        "disabled": ["eval"],
        "externalProviders": { "inference": [] },
        "networking": {
            "port": 8443,
            "expose": { "hostname": "h" },
            "tls": { "enabled": true, "secretName": "s", "caBundle": { "configMapName": "ca" } },
        },
        "workload": { "replicas": 2 },
    });
    let without = |paths: &[&str]| {
        let mut spec = stored.clone();
        for path in paths {
            let (above, name) = path.rsplit_once('/').unwrap();
            spec.pointer_mut(above).unwrap().as_object_mut().unwrap().remove(name).unwrap();
        }
        spec
    };
    let with = |mut spec: Value, path: &str, value: Value| {
        let (above, name) = path.rsplit_once('/').unwrap();
        spec.pointer_mut(above).unwrap()[name] = value;
        spec
    };
    type Change = fn(&mut Value);
    // Name, change of the v1alpha1 spec, resulting v1alpha2 spec, dropped fields.
    let cases: [(&str, Change, Value, Vec<&str>); 8] = [
        ("nothing", |_| {}, stored.clone(), vec![]),
        (
            "another number",
            |spec| spec["replicas"] = json!(5),
            with(stored.clone(), "/workload/replicas", json!(5)),
            vec![],
        ),
        (
            "no longer exposed",
            |spec| spec["network"]["exposeRoute"] = json!(false),
            with(stored.clone(), "/networking/expose", json!(false)),
            vec!["spec.networking.expose"],
        ),
        (
            "exposure removed",
            |spec| drop(spec.as_object_mut().unwrap().remove("network")),
            without(&["/networking/expose"]),
            vec!["spec.networking.expose"],
        ),
        (
            "trust removed, the server's own certificate stays",
            |spec| drop(spec["server"].as_object_mut().unwrap().remove("tlsConfig")),
            without(&["/networking/tls/caBundle"]),
            vec![],
        ),
        (
            "a section added",
            |spec| spec["network"]["allowedFrom"] = json!({ "namespaces": ["a"] }),
            with(stored.clone(), "/networking/allowedFrom", json!({ "namespaces": ["a"] })),
            vec![],
        ),
        (
            "a configuration of their own, which excludes a generated one",
            |spec| spec["server"]["userConfig"] = json!({ "configMapName": "own" }),
            with(without(&["/providers", "/disabled"]), "/overrideConfig", json!({ "configMapName": "own" })),
            vec!["spec.disabled", "spec.providers"],
        ),
        (
            "a configuration without a name is none",
            |spec| spec["server"]["userConfig"] = json!({ "configMapName": "" }),
            stored.clone(),
            vec![],
        ),
    ];
    for (name, change, expected, dropped) in cases {
        let mut read = convert_losslessly(&object(V1ALPHA2, &stored));
        change(&mut read["spec"]);
        let written = convert_to_other(&read);
        assert_eq!(written.object["spec"], expected, "{name}");
        assert_eq!(written.object["metadata"]["annotations"][V1ALPHA2_FIELDS], Value::Null, "{name}");
        let losses: Vec<_> =
            dropped.iter().map(|path| format!("metadata.annotations[{V1ALPHA2_FIELDS}]: {path} {CHANGED}")).collect();
        assert_eq!(written.lost, losses, "{name}");
        assert_eq!(
            convert_to_other(&written.object).object["spec"],
            read["spec"],
            "{name}: the client reads what it wrote"
        );
    }
}

/// A v1alpha1 object that a client of v1alpha2 reads, changes and writes.
#[test]
fn v1alpha2_change_wins_and_rest_stays() {
    let original = json!({ "server": {
        "containerSpec": { "name": "mine", "port": 9000 },
        "userConfig": { "configMapName": "own", "configMapNamespace": "shared" },
    } });
    let read = convert_losslessly(&object(V1ALPHA1, &original));
    type Change = fn(&mut Value);
    let cases: [(&str, Change, Value, usize); 4] = [
        ("nothing", |_| {}, original.clone(), 0),
        (
            "the port removed: the name of the container stays",
            |spec| drop(spec.as_object_mut().unwrap().remove("networking")),
            json!({ "server": { "containerSpec": { "name": "mine" }, "userConfig": original["server"]["userConfig"] } }),
            0,
        ),
        (
            "another ConfigMap: the namespace of the first one is not its own",
            |spec| spec["overrideConfig"]["configMapName"] = json!("other"),
            json!({ "server": {
                "containerSpec": { "name": "mine", "port": 9000 }, "userConfig": { "configMapName": "other" },
            } }),
            1,
        ),
        (
            "no ConfigMap",
            |spec| drop(spec.as_object_mut().unwrap().remove("overrideConfig")),
            json!({ "server": { "containerSpec": { "name": "mine", "port": 9000 } } }),
            1,
        ),
    ];
    for (name, change, expected, dropped) in cases {
        let mut changed = read.clone();
        change(&mut changed["spec"]);
        let back = convert_to_other(&changed);
        assert_eq!(back.object["spec"], expected, "{name}");
        assert_eq!(back.lost.len(), dropped, "{name}: {:?}", back.lost);
        for line in back.lost {
            let reason = "spec.server.userConfig was not restored, because fields of v1alpha2 have changed since";
            assert_eq!(
                line,
                format!("metadata.annotations[{V1ALPHA1_FIELDS}.spec.server.userConfig]: {reason}"),
                "{name}"
            );
        }
    }
}

#[test]
fn section_without_restored_fields_is_not_restored() {
    let mut read = convert_losslessly(&object(V1ALPHA2, &json!({ "networking": { "expose": { "hostname": "h" } } })));
    read["spec"] = json!({});
    let written = convert_to_other(&read);
    assert_eq!(written.object, object(V1ALPHA2, &json!({})));
    assert_eq!(written.lost, [format!("metadata.annotations[{V1ALPHA2_FIELDS}]: spec.networking.expose {CHANGED}")]);
}

#[test]
fn field_removed_in_v1alpha2_stays_removed() {
    let stored = object(
        V1ALPHA2,
        &json!({ "providers": { "inference": { "provider": "vllm" } }, "workload": { "replicas": 1 } }),
    );
    let mut cleared = stored.clone();
    cleared["spec"].as_object_mut().unwrap().remove("providers");
    // The annotation of an earlier conversion has no effect on a v1alpha2 object.
    let annotation = convert_losslessly(&stored)["metadata"]["annotations"].clone();
    cleared["metadata"]["annotations"] = annotation;
    let read = convert_to_other(&cleared);
    assert_eq!(read.object["metadata"], json!({ "name": "stack" }));
    let reason = "removed, because objects of v1alpha2 have fields for its content";
    assert_eq!(read.lost, [format!("metadata.annotations[{V1ALPHA2_FIELDS}]: {reason}")]);
    assert_eq!(convert_losslessly(&read.object)["spec"], json!({ "workload": { "replicas": 1 } }));
}

/// Server-side apply tracks ownership per annotation. With one annotation for all fields, a v1alpha1 field whose owner
/// gives it up would stay because of the others.
#[test]
fn each_v1alpha1_field_has_its_own_annotation() {
    let server = json!({
        "containerSpec": { "name": "mine", "port": 0 }, "podOverrides": {}, "no name for an annotation": 1,
        "userConfig": { "configMapName": "own", "configMapNamespace": "shared" },
    });
    let mut original = object(V1ALPHA1, &json!({ "server": server }));
    original["status"] = json!({ "configGeneration": "none of v1alpha1" });
    let out = convert_losslessly(&original);
    let mut annotations = out["metadata"]["annotations"].as_object().unwrap().clone();
    let expected = [
        ("", json!({ "spec": { "server": { "no name for an annotation": 1 } } })),
        (".spec.server.containerSpec.name", json!({ "spec": { "server": { "containerSpec": { "name": "mine" } } } })),
        (".spec.server.containerSpec.port", json!({ "spec": { "server": { "containerSpec": { "port": 0 } } } })),
        (".spec.server.podOverrides", json!({ "spec": { "server": { "podOverrides": {} } } })),
        (".spec.server.userConfig", json!({ "spec": { "server": { "userConfig": server["userConfig"] } } })),
        (".status.configGeneration", json!({ "status": { "configGeneration": "none of v1alpha1" } })),
    ];
    for (path, piece) in expected {
        let text = annotations.remove(&format!("{V1ALPHA1_FIELDS}{path}")).unwrap_or_else(|| panic!("{path}"));
        assert_eq!(text, piece.to_string());
    }
    assert_eq!(annotations, serde_json::Map::new());
    assert_eq!(convert_losslessly(&out), original);
}

/// Server-side apply sends the fields that a client owns, sometimes without metadata. An added annotation would become
/// a field that the client never set, and a field that the other version does not know would fail the request.
#[test]
fn without_metadata_each_loss_is_reported() {
    let why = "has no field for this value, and the object has no metadata to store it in an annotation";
    let original = without_metadata(
        V1ALPHA2,
        &json!({ "providers": {}, "networking": { "port": 1, "expose": { "hostname": "h" }, "tls": { "enabled": true } } }),
    );
    let out = convert_to_other(&original);
    let old = json!({ "server": { "containerSpec": { "port": 1 } }, "network": { "exposeRoute": true } });
    assert_eq!(out.object, without_metadata(V1ALPHA1, &old));
    let paths = ["spec.networking.expose", "spec.networking.tls.enabled", "spec.providers"];
    assert_eq!(out.lost, paths.map(|path| format!("{path}: v1alpha1 {why}")));

    let out = convert_to_other(&without_metadata(
        V1ALPHA1,
        &json!({ "server": { "containerSpec": { "name": "c", "port": 1 }, "novelty": [] } }),
    ));
    assert_eq!(out.object, without_metadata(V1ALPHA2, &json!({ "networking": { "port": 1 } })));
    let paths = ["spec.server.containerSpec.name", "spec.server.novelty"];
    assert_eq!(out.lost, paths.map(|path| format!("{path}: v1alpha2 {why}")));

    for metadata in [json!(null), json!("x"), json!([])] {
        let mut odd = original.clone();
        odd["metadata"] = metadata.clone();
        let out = convert_to_other(&odd);
        assert_eq!(out.object["metadata"], metadata);
        assert_eq!(out.lost.len(), 3);
    }
    let mut odd = original;
    odd["metadata"] = json!({ "annotations": "x" });
    let out = convert_to_other(&odd);
    assert_eq!(out.object["metadata"], odd["metadata"]);
    assert!(
        out.lost[0]
            .ends_with("v1alpha1 has no field for this value, and metadata.annotations is not a map that can store it")
    );
}

#[test]
fn conversion_changes_only_annotations_of_metadata() {
    let full = json!({
        "name": "stack", "namespace": "chat", "uid": "u", "resourceVersion": "7", "generation": 3, "labels": { "a": "b" },
        "managedFields": [{ "manager": "kubectl", "apiVersion": V1ALPHA2, "fieldsV1": { "f:spec": { "f:providers": {} } } }],
        "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{\"spec\":{\"providers\":{}}}" },
        "finalizers": ["f"], "ownerReferences": [{ "uid": "o" }], "novelty": 1,
    });
    for metadata in [full, json!({}), json!({ "annotations": {} }), json!({ "annotations": null })] {
        for (version, spec) in
            [(V1ALPHA2, json!({ "providers": {} })), (V1ALPHA1, json!({ "server": { "novelty": 1 } }))]
        {
            let mut original = object(version, &spec);
            original["metadata"] = metadata.clone();
            let mut out = convert_losslessly(&original);
            assert_eq!(convert_losslessly(&out), original, "{metadata}");
            let fields = if version == V1ALPHA2 { V1ALPHA2_FIELDS } else { V1ALPHA1_FIELDS };
            assert_eq!(annotated_fields(&out, fields)["spec"], spec, "{metadata}");
            let annotations = out["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.retain(|name, _| !is_conversion_annotation(name, fields));
            if annotations.is_empty() {
                out["metadata"].as_object_mut().unwrap().remove("annotations");
            }
            let mut kept = metadata.clone();
            if metadata["annotations"].as_object().is_none_or(|annotations| annotations.is_empty()) {
                kept.as_object_mut().unwrap().remove("annotations");
            }
            assert_eq!(out["metadata"], kept);
        }
    }
}

/// A user who makes a mistake in the annotation can still repair it.
#[test]
fn unreadable_annotation_stays() {
    let texts = [json!("{\"spec\":"), json!("[]"), json!("{\"spec\":7}"), json!("{\"other\":{}}"), json!(7)];
    for text in texts {
        let mut original = object(V1ALPHA1, &json!({ "replicas": 1 }));
        original["metadata"]["annotations"] = json!({ V1ALPHA2_FIELDS: text });
        let out = convert_to_other(&original);
        assert_eq!(out.object["metadata"], original["metadata"], "{text}");
        assert_eq!(out.object["spec"], json!({ "workload": { "replicas": 1 } }), "{text}");
        let reason = "cannot be parsed, so that no field was restored from it; correct or remove the annotation";
        assert_eq!(out.lost, [format!("metadata.annotations[{V1ALPHA2_FIELDS}]: {reason}")], "{text}");
        assert_eq!(convert_losslessly(&out.object), original, "{text}");

        let mut stored = out.object;
        stored["spec"]["providers"] = json!({});
        let read = convert_to_other(&stored);
        assert_eq!(annotated_fields(&read.object, V1ALPHA2_FIELDS), json!({ "spec": { "providers": {} } }));
        let reason = "replaced, because its value could not be parsed";
        assert_eq!(read.lost, [format!("metadata.annotations[{V1ALPHA2_FIELDS}]: {reason}")], "{text}");
    }
}

/// Users can write the annotation, but it must not contradict the fields.
#[test]
fn annotation_cannot_override_fields() {
    let forged = json!({
        "spec": {
            "distribution": { "name": "other" }, "workload": { "replicas": 99, "workers": 3 },
            "networking": { "expose": false, "port": 1 }, "overrideConfig": { "configMapName": "other" },
        },
        "status": { "phase": "Ready" },
    });
    let mut original = object(
        V1ALPHA1,
        &json!({ "replicas": 1, "server": { "distribution": { "name": "starter" } }, "network": { "exposeRoute": true } }),
    );
    original["status"] = json!({ "phase": "Failed" });
    let honest = convert_losslessly(&original);
    original["metadata"]["annotations"] = json!({ V1ALPHA2_FIELDS: forged.to_string() });
    let out = convert_to_other(&original);
    assert_eq!(out.object, honest);
    assert_eq!(out.lost.len(), 7, "{:?}", out.lost);
}

#[test]
fn kept_field_without_spec_is_dropped() {
    let read = convert_losslessly(&object(V1ALPHA2, &json!({ "providers": {} })));
    let part = json!({ "apiVersion": V1ALPHA1, "kind": "LlamaStackDistribution", "metadata": read["metadata"] });
    let out = convert_to_other(&part);
    assert_eq!(
        out.object,
        json!({ "apiVersion": V1ALPHA2, "kind": "LlamaStackDistribution", "metadata": { "name": "stack" } })
    );
    let reason = "spec.providers was not restored, because the object has no spec";
    assert_eq!(out.lost, [format!("metadata.annotations[{V1ALPHA2_FIELDS}]: {reason}")]);
}

#[test]
fn annotations_of_earlier_builds_are_migrated() {
    let extras = json!({
        "providers": { "inference": [{ "provider": "vllm" }] }, "resources": { "tools": ["t"] }, "storage": {},
        "disabled": ["eval"], "externalProviders": {}, "exposeHostname": "h", "novelty": 1,
    });
    let mut original = object(V1ALPHA1, &json!({ "network": { "exposeRoute": true } }));
    original["metadata"]["annotations"] = json!({ "llamastack.io/v1alpha2-extras": extras.to_string(), "mine": "1" });
    let out = convert_to_other(&original);
    let mut spec = extras.clone();
    spec.as_object_mut().unwrap().remove("exposeHostname");
    spec.as_object_mut().unwrap().remove("novelty");
    spec["networking"] = json!({ "expose": { "hostname": "h" } });
    assert_eq!(out.object["spec"], spec);
    assert_eq!(out.object["metadata"]["annotations"], json!({ "mine": "1" }));
    let reason = "novelty was not restored, because there is no such field";
    assert_eq!(out.lost, [format!("metadata.annotations[llamastack.io/v1alpha2-extras]: {reason}")]);

    original["spec"]["network"]["exposeRoute"] = json!(false);
    assert_eq!(convert_to_other(&original).object["spec"]["networking"], json!({ "expose": false }));

    let together = json!({ "llamastack.io/v1alpha1-extras": json!({
        "containerName": "mine", "terminationGracePeriod": 5, "userConfigNamespace": "shared",
        "caBundleNamespace": "shared", "caBundleKeys": ["a", "b"],
    }).to_string() });
    let singly = json!({
        "llamastack.io/v1alpha1-container-name": "mine", "llamastack.io/v1alpha1-termination-grace-period": "5",
        "llamastack.io/v1alpha1-user-config-namespace": "shared", "llamastack.io/v1alpha1-ca-bundle-namespace": "shared",
        "llamastack.io/v1alpha1-ca-bundle-keys": "a,b",
    });
    for annotations in [together, singly] {
        let spec = json!({
            "overrideConfig": { "configMapName": "own" },
            "networking": { "tls": { "caBundle": { "configMapName": "ca", "configMapKeys": ["live"] } } },
        });
        let mut original = object(V1ALPHA2, &spec);
        original["metadata"]["annotations"] = annotations.clone();
        let out = convert_losslessly(&original);
        assert_eq!(out["metadata"], json!({ "name": "stack" }), "{annotations}");
        let server = json!({
            "containerSpec": { "name": "mine" },
            "podOverrides": { "terminationGracePeriodSeconds": 5 },
            "userConfig": { "configMapName": "own", "configMapNamespace": "shared" },
            "tlsConfig": { "caBundle": { "configMapName": "ca", "configMapNamespace": "shared", "configMapKeys": ["live"] } },
        });
        assert_eq!(out["spec"], json!({ "server": server }), "{annotations}");

        // The namespace and keys of a ConfigMap are dropped once the object does not refer to it.
        let mut original = object(V1ALPHA2, &json!({}));
        original["metadata"]["annotations"] = annotations.clone();
        let server =
            json!({ "containerSpec": { "name": "mine" }, "podOverrides": { "terminationGracePeriodSeconds": 5 } });
        assert_eq!(convert_losslessly(&original)["spec"], json!({ "server": server }), "{annotations}");
    }
}

/// Bytes of all annotations, as the API server counts them.
fn annotation_bytes(object: &Value) -> usize {
    let annotations = object["metadata"]["annotations"].as_object().into_iter().flatten();
    annotations.map(|(name, value)| name.len() + value.as_str().unwrap().len()).sum()
}

const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

#[test]
fn large_object_stays_readable_in_v1alpha1() {
    let spec = |bytes: usize| {
        let settings = json!({ "text": "x".repeat(bytes) });
        json!({ "distribution": { "name": "starter" }, "workload": { "replicas": 2 },
            "providers": { "inference": { "provider": "vllm", "settings": settings } } })
    };
    let small = convert_losslessly(&object(V1ALPHA2, &spec(200_000)));
    assert_eq!(small["metadata"]["annotations"].get(OMITTED), None);
    for (bytes, other) in [(300_000, 0), (1_000_000, 0), (100_000, 200_000), (100_000, MAX_ANNOTATION_BYTES - 1)] {
        let mut stored = object(V1ALPHA2, &spec(bytes));
        if other > 0 {
            stored["metadata"]["annotations"] = json!({ "a": "x".repeat(other) });
        }
        let converted = convert_to_other(&stored);
        assert!(annotation_bytes(&converted.object) <= MAX_ANNOTATION_BYTES, "{bytes} {other}");
        assert_eq!(converted.object["spec"]["replicas"], 2, "the rest is there");
        let marked = converted.object["metadata"]["annotations"].get(OMITTED).is_some();
        assert_eq!(marked, other < MAX_ANNOTATION_BYTES - 1, "{bytes} {other}");
        assert_eq!(
            converted.lost,
            [
                "spec.providers: v1alpha1 has no field for this value, and the annotations of an object have at most 256 KiB; \
              read and write it as v1alpha2"
            ]
        );
        let back = convert_to_other(&converted.object);
        assert_eq!(back.object["metadata"]["annotations"].get(OMITTED).is_some(), marked, "admission sees the mark");
    }
}

#[test]
fn large_status_is_left_out_first() {
    let spec = json!({ "distribution": { "name": "starter" }, "disabled": ["eval"] });
    let mut stored = object(V1ALPHA2, &spec);
    stored["status"] = json!({ "phase": "Ready", "podProblem": { "message": "x".repeat(300_000) } });
    let converted = convert_to_other(&stored);
    assert!(annotation_bytes(&converted.object) < 1_000);
    assert_eq!(
        converted.lost,
        ["status.podProblem: left out, because the annotations of an object have at most 256 KiB"]
    );
    assert_eq!(convert_to_other(&converted.object).object["spec"], spec);
}
