//! Tables of wanted and live objects, and the difference that counts between them.

use serde_json::json;

use super::*;

const OURS: &str = "steersman/llsd";
/// No `managedFields` entry from an earlier apply of ours.
const NONE: Value = Value::Null;

fn object(mut value: Value, owned: Option<Value>) -> DynamicObject {
    value["apiVersion"] = "apps/v1".into();
    value["kind"] = "Deployment".into();
    if let Some(owned) = owned {
        let entry = json!({ "manager": OURS, "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": owned });
        let other = json!({ "manager": "kubectl", "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": {
            "f:spec": { "f:paused": {} } } });
        value["metadata"]["managedFields"] = json!([other, entry]);
    }
    serde_json::from_value(value).unwrap()
}

/// The difference between two pod specs, of which we own `owned`.
fn pods(wanted: Value, live: Value, owned: Value) -> Option<String> {
    spec(
        json!({ "template": { "spec": wanted } }),
        json!({ "template": { "spec": live } }),
        json!({ "f:template": { "f:spec": owned } }),
    )
}

fn spec(wanted: Value, live: Value, owned: Value) -> Option<String> {
    let live = object(json!({ "metadata": {}, "spec": live }), Some(json!({ "f:spec": owned })));
    diff(&object(json!({ "metadata": {}, "spec": wanted }), None), &live, OURS).map(|found| found.to_string())
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn never_applied_object_differs() {
    let object = |manager: &str, operation: &str, version: &str| -> DynamicObject {
        let entry = json!({ "manager": manager, "operation": operation, "apiVersion": version, "fieldsV1": {} });
        serde_json::from_value(json!({ "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "a", "managedFields": [entry] } }))
        .unwrap()
    };
    let wanted = object("nobody", "Apply", "v1");
    let found = |live| diff(&wanted, &live, OURS).map(|found| found.to_string());
    assert_eq!(found(object(OURS, "Apply", "v1")), None);
    assert_eq!(found(object(OURS, "Update", "v1")), some("Steersman has not applied it before"));
    assert_eq!(found(object("other", "Apply", "v1")), some("Steersman has not applied it before"));
    assert!(found(object(OURS, "Apply", "v1beta1")).is_some(), "fields of another version are renamed by an apply");
}

#[test]
fn foreign_additions_are_no_difference() {
    let owned = json!({ "f:containers": { "k:{\"name\":\"server\"}": { ".": {}, "f:name": {}, "f:image": {},
        "f:ports": { "k:{\"containerPort\":8321,\"protocol\":\"TCP\"}": { "f:containerPort": {} } } } } });
    let wanted = json!({ "containers": [{ "name": "server", "image": "a", "ports": [{ "containerPort": 8321 }] }] });
    let live = json!({
        "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
        "containers": [
            { "name": "injected", "image": "proxy" },
            { "name": "server", "image": "a", "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/log",
              "ports": [{ "containerPort": 9000, "protocol": "TCP" }, { "containerPort": 8321, "protocol": "TCP" }] },
        ],
    });
    assert_eq!(pods(wanted, live, owned), None);
}

#[test]
fn difference_has_path_of_value() {
    let owned = json!({ "f:containers": { "k:{\"name\":\"server\"}": { "f:name": {}, "f:image": {} } } });
    let wanted = json!({ "containers": [{ "name": "server", "image": "b" }] });
    let live = |containers: Value| json!({ "containers": containers });
    assert_eq!(
        pods(wanted.clone(), live(json!([{ "name": "server", "image": "a" }])), owned.clone()),
        some("spec.template.spec.containers[server].image has another value")
    );
    assert_eq!(
        pods(wanted.clone(), live(json!([{ "name": "other", "image": "b" }])), owned.clone()),
        some("spec.template.spec.containers[server] is missing")
    );
    assert_eq!(
        pods(wanted, live(json!([{ "name": "server" }])), owned),
        some("spec.template.spec.containers[server].image is missing")
    );
}

#[test]
fn owned_field_no_longer_wanted_differs() {
    let env = |names: &[&str]| -> Value { names.iter().map(|name| json!({ "name": name, "value": "1" })).collect() };
    let owned = json!({ "f:containers": { "k:{\"name\":\"server\"}": { ".": {}, "f:name": {}, "f:env": {
        "k:{\"name\":\"A\"}": { ".": {}, "f:name": {}, "f:value": {} },
        "k:{\"name\":\"B\"}": { ".": {}, "f:name": {}, "f:value": {} },
    } } } });
    let spec = |names: &[&str]| json!({ "containers": [{ "name": "server", "env": env(names) }] });
    assert_eq!(pods(spec(&["A", "B"]), spec(&["A", "B", "THEIRS"]), owned.clone()), None);
    assert_eq!(
        pods(spec(&["A"]), spec(&["A", "B"]), owned.clone()),
        some("spec.template.spec.containers[server].env[B] is no longer wanted")
    );
    let none = json!({ "containers": [{ "name": "server" }] });
    assert_eq!(
        pods(none, spec(&["A", "B"]), owned),
        some("spec.template.spec.containers[server].env is no longer wanted")
    );
    assert_eq!(
        super::unwanted::unwanted(&json!({ "f:a": { "v:\"x\"": {}, "v:\"y\"": {} } }), &json!({ "a": ["x", "y"] })),
        None
    );
    assert!(
        super::unwanted::unwanted(&json!({ "f:a": { "v:\"x\"": {}, "v:\"y\"": {} } }), &json!({ "a": ["x"] }))
            .is_some()
    );
}

#[test]
fn order_matters_for_env_not_for_volumes() {
    let named = |names: &[&str]| -> Value { names.iter().map(|name| json!({ "name": name })).collect() };
    let container = |env: &[&str]| json!({ "containers": [{ "name": "server", "env": named(env) }] });
    assert_eq!(pods(container(&["A", "B"]), container(&["A", "X", "B"]), NONE), None);
    assert_eq!(
        pods(container(&["A", "B"]), container(&["B", "A"]), NONE),
        some("spec.template.spec.containers[server].env[B] is in another order")
    );
    let volumes = |names: &[&str]| json!({ "volumes": named(names) });
    assert_eq!(pods(volumes(&["a", "b"]), volumes(&["b", "a"]), NONE), None);
}

#[test]
fn quantities_compare_by_value() {
    let resources = |cpu: Value| json!({ "resources": { "requests": { "cpu": cpu } } });
    assert_eq!(pods(resources(json!("1000m")), resources(json!("1")), NONE), None);
    assert_eq!(pods(resources(json!(1)), resources(json!("1")), NONE), None);
    assert!(pods(resources(json!("2")), resources(json!("1")), NONE).is_some());
    let volume = |size: &str| json!({ "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": size } }] });
    assert_eq!(pods(volume("1024Mi"), volume("1Gi"), NONE), None);
    let env = |value: &str| json!({ "containers": [{ "name": "c", "env": [{ "name": "A", "value": value }] }] });
    assert!(pods(env("1000m"), env("1"), NONE).is_some(), "a variable is a text");
    let port = |port: Value| json!({ "ports": [{ "port": 80, "targetPort": port }] });
    assert_eq!(spec(port(json!(8321)), port(json!(8321)), NONE), None);
    assert!(spec(port(json!("http")), port(json!(8321)), NONE).is_some());
    assert!(spec(port(json!("8321")), port(json!(8321)), NONE).is_some(), "a name of digits is no number");
}

#[test]
fn ports_are_found_by_number_and_protocol() {
    let ports = |ports: Value| json!({ "containers": [{ "name": "c", "ports": ports }] });
    let tcp = json!({ "containerPort": 53, "protocol": "TCP" });
    let udp = json!({ "containerPort": 53, "protocol": "UDP" });
    assert_eq!(pods(ports(json!([{ "containerPort": 53 }])), ports(json!([udp, tcp])), NONE), None);
    assert!(pods(ports(json!([{ "containerPort": 53 }])), ports(json!([udp])), NONE).is_some());
    let service = |port: Value| json!({ "ports": [port] });
    let live = json!({ "name": "http", "port": 8321, "targetPort": 8321, "protocol": "TCP" });
    assert_eq!(spec(service(json!({ "name": "http", "port": 8321, "targetPort": 8321 })), service(live), NONE), None);
}

#[test]
fn empty_value_may_be_absent() {
    for nothing in [json!(""), json!([]), json!({}), json!(null), json!({ "a": {}, "b": null })] {
        assert_eq!(pods(json!({ "x": nothing }), json!({}), NONE), None, "{nothing}");
    }
    for zero in [json!(false), json!(0)] {
        assert_eq!(pods(json!({ "x": zero }), json!({}), json!({ "f:x": {} })), None, "the server dropped it");
        assert!(pods(json!({ "x": zero }), json!({}), NONE).is_some(), "somebody removed it");
    }
    let volume = |source: Value| json!({ "volumes": [source] });
    let found = pods(volume(json!({ "name": "v", "emptyDir": {} })), volume(json!({ "name": "v" })), NONE);
    assert_eq!(found, some("spec.template.spec.volumes[v].emptyDir is missing"));
    assert!(pods(json!({ "x": ["a"] }), json!({}), NONE).is_some());
}

#[test]
fn atomic_value_has_no_extra_content() {
    let rules = |rules: Value| json!({ "ingress": rules });
    let owned = json!({ "f:ingress": {} });
    let narrow = json!([{ "from": [{ "podSelector": {} }], "ports": [{ "port": 8321 }] }]);
    let live = json!([{ "from": [{ "podSelector": {} }], "ports": [{ "port": 8321, "protocol": "TCP" }] }]);
    assert_eq!(spec(rules(narrow), rules(live.clone()), owned.clone()), None);
    let wide = json!([{ "ports": [{ "port": 8321 }] }]);
    assert_eq!(spec(rules(wide), rules(live.clone()), owned.clone()), some("spec.ingress[0].from is not wanted"));
    assert!(spec(rules(json!([])), rules(live.clone()), owned.clone()).is_some());
    let two = json!([live[0], live[0]]);
    assert!(spec(rules(live), rules(two), owned).is_some());
    let selector = |labels: Value| json!({ "selector": labels });
    assert_eq!(
        spec(
            selector(json!({ "app": "a" })),
            selector(json!({ "app": "a", "tier": "b" })),
            json!({ "f:selector": {} })
        ),
        some("spec.selector.tier is not wanted")
    );
    assert!(
        spec(json!({ "podSelector": {} }), json!({ "podSelector": { "matchLabels": { "a": "b" } } }), NONE).is_some()
    );
    let key = |key: Value| json!({ "containers": [{ "name": "c", "env": [{ "name": "A", "valueFrom": { "secretKeyRef": key } }] }] });
    let optional = json!({ "name": "s", "key": "k", "optional": true });
    assert!(pods(key(json!({ "name": "s", "key": "k" })), key(optional), NONE).is_some());
    let args = |args: &[&str]| json!({ "containers": [{ "name": "c", "args": args }] });
    assert_eq!(pods(args(&["a", "b"]), args(&["a", "b"]), NONE), None);
    assert!(pods(args(&["a", "b"]), args(&["b", "a"]), NONE).is_some());
    assert!(pods(args(&["a"]), args(&["a", "b"]), NONE).is_some());
}

#[test]
fn metadata_compares_labels_annotations_and_owners() {
    let reference = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true }]);
    let wanted =
        object(json!({ "metadata": { "name": "a", "labels": { "x": "1" }, "ownerReferences": reference } }), None);
    let owned =
        json!({ "f:metadata": { "f:labels": { "f:x": {} }, "f:ownerReferences": { "k:{\"uid\":\"u\"}": {} } } });
    let live =
        |metadata: Value| object(json!({ "metadata": metadata, "status": { "replicas": 3 } }), Some(owned.clone()));
    let found = |metadata| diff(&wanted, &live(metadata), OURS).map(|found| found.to_string());
    let all = json!({ "name": "a", "uid": "7", "resourceVersion": "1", "generation": 4, "ownerReferences": reference,
        "labels": { "x": "1", "theirs": "2" }, "annotations": { "deployment.kubernetes.io/revision": "1" } });
    assert_eq!(found(all), None);
    let relabelled = json!({ "labels": { "x": "2" }, "ownerReferences": reference });
    assert_eq!(found(relabelled), some("metadata.labels.x has another value"));
    assert_eq!(found(json!({ "labels": { "x": "1" } })), some("metadata.ownerReferences is missing"));
}
