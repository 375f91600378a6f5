//! Parts of LlamaStackDistribution specs, valid and invalid, from which tests combine objects: the tests of all places that
//! judge an object use the same ones.

use serde_json::{Value, json};

/// Keys of the ConfigMap with CA certificates. The second one is no file name.
pub const BUNDLE_KEYS: [&str; 2] = ["ca-bundle.crt", "../etc/passwd"];

/// A part of a spec, and whether an object with no other part is valid.
#[derive(Clone, Debug)]
pub struct Part {
    pub fields: Value,
    pub valid: bool,
}

fn valid(fields: Value) -> Part {
    Part { fields, valid: true }
}

fn invalid(fields: Value) -> Part {
    Part { fields, valid: false }
}

/// Groups of alternatives. Null removes a field of the object. The first of each group is empty.
pub fn groups() -> Vec<Vec<Part>> {
    let workload = |fields: Value| json!({ "workload": fields });
    let overrides = |fields: Value| workload(json!({ "overrides": fields }));
    let volume = |name: &str| overrides(json!({ "volumes": [{ "name": name, "emptyDir": {} }] }));
    let mount = |path: &str| overrides(json!({ "volumeMounts": [{ "name": "lls-storage", "mountPath": path }] }));
    let resources =
        |requests: Value, limits: Value| workload(json!({ "resources": { "requests": requests, "limits": limits } }));
    let networking = |fields: Value| json!({ "networking": fields });
    let hostname = |name: &str| networking(json!({ "expose": { "hostname": name } }));
    let bundle =
        |key: &str| networking(json!({ "tls": { "caBundle": { "configMapName": "ca", "configMapKeys": [key] } } }));
    let inference = |provider: Value| json!({ "providers": { "inference": provider } });
    let external =
        |image: &str| json!({ "externalProviders": { "inference": [{ "providerId": "own", "image": image }] } });
    let image = |image: &str| json!({ "distribution": { "name": null, "image": image } });
    let spread = |second: &str| {
        let constraint = |key: &str| json!({ "topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule" });
        workload(json!({ "topologySpreadConstraints": [constraint("zone"), constraint(second)] }))
    };
    let none = || valid(json!({}));
    vec![
        vec![
            none(),
            valid(inference(json!({ "provider": "vllm", "endpoint": "http://x" }))),
            invalid(inference(json!({ "provider": "vlm" }))),
            valid(inference(json!({ "provider": "remote::own" }))),
            invalid(inference(json!({ "id": "sentence-transformers", "provider": "vllm", "endpoint": "http://x" }))),
            invalid(json!({ "providers": { "vectorIo": { "provider": "oci" } } })),
            invalid(json!({ "providers": { "inference": { "id": "a", "provider": "vllm", "endpoint": "http://x" },
                "telemetry": { "id": "a", "provider": "x" } } })),
            valid(json!({ "overrideConfig": { "configMapName": "mine" } })),
            valid(image("registry.example/x:1")),
            invalid(image("registry.example/X Y")),
            valid(json!({ "distribution": { "name": "remote-vllm" } })),
            invalid(json!({ "distribution": { "name": "nobody" } })),
            valid(
                json!({ "storage": { "sql": { "type": "postgres", "connectionString": { "name": "s", "key": "k" } } } }),
            ),
        ],
        vec![none(), valid(external("reg/own:1")), invalid(external("Not An Image"))],
        vec![none(), valid(workload(json!({ "replicas": 2 }))), invalid(workload(json!({ "replicas": -1 })))],
        vec![
            none(),
            valid(workload(json!({ "autoscaling": { "maxReplicas": 3 } }))),
            invalid(workload(json!({ "autoscaling": { "maxReplicas": 1, "minReplicas": 2 } }))),
            invalid(workload(json!({ "autoscaling": { "maxReplicas": 3, "targetCPUUtilizationPercentage": 0 } }))),
        ],
        vec![
            none(),
            valid(workload(json!({ "pdb": { "minAvailable": 1 } }))),
            invalid(workload(json!({ "podDisruptionBudget": { "minAvailable": 1, "maxUnavailable": 1 } }))),
            invalid(workload(json!({ "pdb": { "minAvailable": 1 }, "podDisruptionBudget": {} }))),
        ],
        vec![
            none(),
            valid(volume("own")),
            invalid(volume("lls-storage")),
            valid(volume("user-config")),
            valid(volume("ca-bundle")),
            valid(volume("server-certificate")),
            valid(volume("final-config")),
            valid(volume("storage-env")),
        ],
        vec![
            none(),
            valid(mount("/own")),
            invalid(mount("/.llama")),
            valid(mount("/etc/llama-stack")),
            valid(mount("/etc/ssl/certs/ca-bundle")),
        ],
        vec![
            none(),
            valid(overrides(json!({ "env": [{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }] }))),
            invalid(overrides(json!({ "terminationGracePeriodSeconds": -1 }))),
        ],
        vec![
            none(),
            valid(resources(json!({ "cpu": "1" }), json!({ "cpu": "2" }))),
            invalid(resources(json!({ "cpu": "3" }), json!({ "cpu": "2" }))),
            valid(resources(json!({}), json!({ "memory": "512Mi" }))),
            invalid(resources(json!({ "nvidia.com/gpu": "1" }), json!({}))),
            invalid(resources(json!({ "nvidia.com/gpu": "1" }), json!({ "nvidia.com/gpu": "2" }))),
        ],
        vec![
            none(),
            valid(hostname("llama.example.com")),
            invalid(hostname("Llama_example")),
            invalid(hostname("1.2.3.4")),
        ],
        vec![none(), valid(networking(json!({ "port": 9000 }))), invalid(networking(json!({ "port": 70_000 })))],
        vec![
            none(),
            valid(networking(json!({ "tls": { "enabled": true, "secretName": "cert" } }))),
            invalid(networking(json!({ "tls": { "enabled": true } }))),
        ],
        vec![none(), valid(bundle(BUNDLE_KEYS[0])), invalid(bundle(BUNDLE_KEYS[1]))],
        vec![
            none(),
            valid(workload(json!({ "storage": { "size": "1Gi" } }))),
            invalid(workload(json!({ "storage": { "size": "0" } }))),
        ],
        vec![none(), valid(spread("host")), invalid(spread("zone"))],
    ]
}

/// Names of objects, and whether each is valid.
pub fn names() -> [(String, bool); 4] {
    [("starter".into(), true), ("a".repeat(48), true), ("a".repeat(49), false), ("with.dot".into(), false)]
}

/// An object of v1alpha2 in namespace `team-a` with these parts.
pub fn object<'a>(name: &str, parts: impl IntoIterator<Item = &'a Part>) -> Value {
    let mut spec = json!({ "distribution": { "name": "starter" } });
    parts.into_iter().for_each(|part| merge(&mut spec, &part.fields));
    json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
        "metadata": { "name": name, "namespace": "team-a" }, "spec": spec })
}

fn merge(into: &mut Value, part: &Value) {
    match (into, part) {
        (Value::Object(into), Value::Object(part)) => {
            for (name, value) in part {
                if value.is_null() {
                    into.remove(name);
                } else {
                    merge(into.entry(name.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, part) => *into = part.clone(),
    }
}

/// Whether the labels of an image decide about the object. The controller alone reads them, so that other places cannot
/// judge a configuration for an image.
pub fn needs_labels(object: &Value) -> bool {
    let spec = &object["spec"];
    spec["distribution"]["image"].is_string()
        && spec["overrideConfig"].is_null()
        && (!spec["externalProviders"].is_null() || spec["networking"]["tls"]["enabled"] == true)
}
