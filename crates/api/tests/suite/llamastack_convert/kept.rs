//! What is kept beside an object: when it returns, when it does not, and what is told where it cannot be kept.

use serde_json::{Value, json};

use super::{NEW, NEW_FIELDS, OLD, OLD_FIELDS, bare, held, is_ours, object, turned, whole};

const CHANGED: &str = "was dropped, because the fields of v1alpha1 say otherwise now";

/// A v1alpha2 object that a client of v1alpha1 reads, changes and writes.
#[test]
fn a_change_in_the_older_version_wins_and_the_rest_stays() {
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
    // The change, the object of v1alpha2 afterwards, what is dropped.
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
        let mut read = whole(&object(NEW, &stored));
        change(&mut read["spec"]);
        let written = turned(&read);
        assert_eq!(written.object["spec"], expected, "{name}");
        assert_eq!(written.object["metadata"]["annotations"][NEW_FIELDS], Value::Null, "{name}");
        let told: Vec<_> =
            dropped.iter().map(|path| format!("metadata.annotations[{NEW_FIELDS}]: its {path} {CHANGED}")).collect();
        assert_eq!(written.lost, told, "{name}");
        assert_eq!(turned(&written.object).object["spec"], read["spec"], "{name}: what they wrote is what they read");
    }
}

/// A v1alpha1 object that a client of v1alpha2 reads, changes and writes.
#[test]
fn a_change_in_the_newer_version_wins_and_the_rest_stays() {
    let given = json!({ "server": {
        "containerSpec": { "name": "mine", "port": 9000 },
        "userConfig": { "configMapName": "own", "configMapNamespace": "shared" },
    } });
    let read = whole(&object(OLD, &given));
    type Change = fn(&mut Value);
    let cases: [(&str, Change, Value, usize); 4] = [
        ("nothing", |_| {}, given.clone(), 0),
        (
            "the port removed: the name of the container stays",
            |spec| drop(spec.as_object_mut().unwrap().remove("networking")),
            json!({ "server": { "containerSpec": { "name": "mine" }, "userConfig": given["server"]["userConfig"] } }),
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
        let back = turned(&changed);
        assert_eq!(back.object["spec"], expected, "{name}");
        assert_eq!(back.lost.len(), dropped, "{name}: {:?}", back.lost);
        for line in back.lost {
            let told = "its spec.server.userConfig was dropped, because the fields of v1alpha2 say otherwise now";
            assert_eq!(line, format!("metadata.annotations[{OLD_FIELDS}.spec.server.userConfig]: {told}"), "{name}");
        }
    }
}

#[test]
fn a_section_does_not_come_back_for_fields_that_do_not() {
    let mut read = whole(&object(NEW, &json!({ "networking": { "expose": { "hostname": "h" } } })));
    read["spec"] = json!({});
    let written = turned(&read);
    assert_eq!(written.object, object(NEW, &json!({})));
    assert_eq!(written.lost, [format!("metadata.annotations[{NEW_FIELDS}]: its spec.networking.expose {CHANGED}")]);
}

#[test]
fn a_field_removed_in_the_newer_version_does_not_return_through_the_older_one() {
    let stored =
        object(NEW, &json!({ "providers": { "inference": { "provider": "vllm" } }, "workload": { "replicas": 1 } }));
    let mut cleared = stored.clone();
    cleared["spec"].as_object_mut().unwrap().remove("providers");
    // A copy of the annotation that an earlier conversion wrote is no field of v1alpha2.
    let annotation = whole(&stored)["metadata"]["annotations"].clone();
    cleared["metadata"]["annotations"] = annotation;
    let read = turned(&cleared);
    assert_eq!(read.object["metadata"], json!({ "name": "stack" }));
    let told = "it has no place on an object of v1alpha2 itself";
    assert_eq!(read.lost, [format!("metadata.annotations[{NEW_FIELDS}]: {told}")]);
    assert_eq!(whole(&read.object)["spec"], json!({ "workload": { "replicas": 1 } }));
}

/// Server-side apply takes or leaves whole annotations. A field of v1alpha1 that its owner gives up must not stay because
/// another one is kept beside it.
#[test]
fn each_field_of_the_older_version_is_kept_by_itself() {
    let server = json!({
        "containerSpec": { "name": "mine", "port": 0 }, "podOverrides": {}, "no name for an annotation": 1,
        "userConfig": { "configMapName": "own", "configMapNamespace": "shared" },
    });
    let mut given = object(OLD, &json!({ "server": server }));
    given["status"] = json!({ "configGeneration": "none of v1alpha1" });
    let out = whole(&given);
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
        let text = annotations.remove(&format!("{OLD_FIELDS}{path}")).unwrap_or_else(|| panic!("{path}"));
        assert_eq!(text, piece.to_string());
    }
    assert_eq!(annotations, serde_json::Map::new());
    assert_eq!(whole(&out), given);
}

/// Server-side apply sends what a client owns, at times without metadata. An annotation there would become a field that the
/// client never set, and a field that the other version does not know would fail the request.
#[test]
fn without_metadata_nothing_is_kept_and_each_loss_is_told() {
    let why = "cannot say this, and there is no metadata to keep it in";
    let given = bare(
        NEW,
        &json!({ "providers": {}, "networking": { "port": 1, "expose": { "hostname": "h" }, "tls": { "enabled": true } } }),
    );
    let out = turned(&given);
    let old = json!({ "server": { "containerSpec": { "port": 1 } }, "network": { "exposeRoute": true } });
    assert_eq!(out.object, bare(OLD, &old));
    let paths = ["spec.networking.expose", "spec.networking.tls.enabled", "spec.providers"];
    assert_eq!(out.lost, paths.map(|path| format!("{path}: v1alpha1 {why}")));

    let out = turned(&bare(OLD, &json!({ "server": { "containerSpec": { "name": "c", "port": 1 }, "novelty": [] } })));
    assert_eq!(out.object, bare(NEW, &json!({ "networking": { "port": 1 } })));
    let paths = ["spec.server.containerSpec.name", "spec.server.novelty"];
    assert_eq!(out.lost, paths.map(|path| format!("{path}: v1alpha2 {why}")));

    for metadata in [json!(null), json!("x"), json!([])] {
        let mut odd = given.clone();
        odd["metadata"] = metadata.clone();
        let out = turned(&odd);
        assert_eq!(out.object["metadata"], metadata);
        assert_eq!(out.lost.len(), 3);
    }
    let mut odd = given;
    odd["metadata"] = json!({ "annotations": "x" });
    let out = turned(&odd);
    assert_eq!(out.object["metadata"], odd["metadata"]);
    assert!(
        out.lost[0].ends_with("v1alpha1 cannot say this, and metadata.annotations is not a map that could keep it")
    );
}

#[test]
fn of_the_metadata_only_annotations_change_and_come_back_as_they_were() {
    let full = json!({
        "name": "stack", "namespace": "chat", "uid": "u", "resourceVersion": "7", "generation": 3, "labels": { "a": "b" },
        "managedFields": [{ "manager": "kubectl", "apiVersion": NEW, "fieldsV1": { "f:spec": { "f:providers": {} } } }],
        "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{\"spec\":{\"providers\":{}}}" },
        "finalizers": ["f"], "ownerReferences": [{ "uid": "o" }], "novelty": 1,
    });
    for metadata in [full, json!({}), json!({ "annotations": {} }), json!({ "annotations": null })] {
        for (version, spec) in [(NEW, json!({ "providers": {} })), (OLD, json!({ "server": { "novelty": 1 } }))] {
            let mut given = object(version, &spec);
            given["metadata"] = metadata.clone();
            let mut out = whole(&given);
            assert_eq!(whole(&out), given, "{metadata}");
            let fields = if version == NEW { NEW_FIELDS } else { OLD_FIELDS };
            assert_eq!(held(&out, fields)["spec"], spec, "{metadata}");
            let annotations = out["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.retain(|name, _| !is_ours(name, fields));
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

/// A user who edits the annotation and makes a mistake finds it where it was, and can repair it.
#[test]
fn an_annotation_that_cannot_be_read_stays() {
    let texts = [json!("{\"spec\":"), json!("[]"), json!("{\"spec\":7}"), json!("{\"other\":{}}"), json!(7)];
    for text in texts {
        let mut given = object(OLD, &json!({ "replicas": 1 }));
        given["metadata"]["annotations"] = json!({ NEW_FIELDS: text });
        let out = turned(&given);
        assert_eq!(out.object["metadata"], given["metadata"], "{text}");
        assert_eq!(out.object["spec"], json!({ "workload": { "replicas": 1 } }), "{text}");
        let told = "nothing was restored from it, because it is not what the conversion writes; repair or remove it";
        assert_eq!(out.lost, [format!("metadata.annotations[{NEW_FIELDS}]: {told}")], "{text}");
        assert_eq!(whole(&out.object), given, "{text}");

        let mut stored = out.object;
        stored["spec"]["providers"] = json!({});
        let read = turned(&stored);
        assert_eq!(held(&read.object, NEW_FIELDS), json!({ "spec": { "providers": {} } }));
        let told = "replaced, because it was not what the conversion writes";
        assert_eq!(read.lost, [format!("metadata.annotations[{NEW_FIELDS}]: {told}")], "{text}");
    }
}

/// Whoever may write the object may write its annotation, but not say two things at once with it.
#[test]
fn an_annotation_changes_nothing_that_the_fields_say() {
    let forged = json!({
        "spec": {
            "distribution": { "name": "other" }, "workload": { "replicas": 99, "workers": 3 },
            "networking": { "expose": false, "port": 1 }, "overrideConfig": { "configMapName": "other" },
        },
        "status": { "phase": "Ready" },
    });
    let mut given = object(
        OLD,
        &json!({ "replicas": 1, "server": { "distribution": { "name": "starter" } }, "network": { "exposeRoute": true } }),
    );
    given["status"] = json!({ "phase": "Failed" });
    let honest = whole(&given);
    given["metadata"]["annotations"] = json!({ NEW_FIELDS: forged.to_string() });
    let out = turned(&given);
    assert_eq!(out.object, honest);
    assert_eq!(out.lost.len(), 7, "{:?}", out.lost);
}

#[test]
fn without_a_spec_a_kept_field_has_no_place() {
    let read = whole(&object(NEW, &json!({ "providers": {} })));
    let part = json!({ "apiVersion": OLD, "kind": "LlamaStackDistribution", "metadata": read["metadata"] });
    let out = turned(&part);
    assert_eq!(
        out.object,
        json!({ "apiVersion": NEW, "kind": "LlamaStackDistribution", "metadata": { "name": "stack" } })
    );
    let told = "its spec.providers was dropped, because the object has no such part";
    assert_eq!(out.lost, [format!("metadata.annotations[{NEW_FIELDS}]: {told}")]);
}

#[test]
fn annotations_of_earlier_builds_are_read_and_removed() {
    let extras = json!({
        "providers": { "inference": [{ "provider": "vllm" }] }, "resources": { "tools": ["t"] }, "storage": {},
        "disabled": ["eval"], "externalProviders": {}, "exposeHostname": "h", "novelty": 1,
    });
    let mut given = object(OLD, &json!({ "network": { "exposeRoute": true } }));
    given["metadata"]["annotations"] = json!({ "llamastack.io/v1alpha2-extras": extras.to_string(), "mine": "1" });
    let out = turned(&given);
    let mut spec = extras.clone();
    spec.as_object_mut().unwrap().remove("exposeHostname");
    spec.as_object_mut().unwrap().remove("novelty");
    spec["networking"] = json!({ "expose": { "hostname": "h" } });
    assert_eq!(out.object["spec"], spec);
    assert_eq!(out.object["metadata"]["annotations"], json!({ "mine": "1" }));
    let told = "its novelty was dropped, because no field has this name";
    assert_eq!(out.lost, [format!("metadata.annotations[llamastack.io/v1alpha2-extras]: {told}")]);

    given["spec"]["network"]["exposeRoute"] = json!(false);
    assert_eq!(turned(&given).object["spec"]["networking"], json!({ "expose": false }));

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
        let mut given = object(NEW, &spec);
        given["metadata"]["annotations"] = annotations.clone();
        let out = whole(&given);
        assert_eq!(out["metadata"], json!({ "name": "stack" }), "{annotations}");
        let server = json!({
            "containerSpec": { "name": "mine" },
            "podOverrides": { "terminationGracePeriodSeconds": 5 },
            "userConfig": { "configMapName": "own", "configMapNamespace": "shared" },
            "tlsConfig": { "caBundle": { "configMapName": "ca", "configMapNamespace": "shared", "configMapKeys": ["live"] } },
        });
        assert_eq!(out["spec"], json!({ "server": server }), "{annotations}");

        // The ConfigMaps that they are about are gone.
        let mut given = object(NEW, &json!({}));
        given["metadata"]["annotations"] = annotations.clone();
        let server =
            json!({ "containerSpec": { "name": "mine" }, "podOverrides": { "terminationGracePeriodSeconds": 5 } });
        assert_eq!(whole(&given)["spec"], json!({ "server": server }), "{annotations}");
    }
}
