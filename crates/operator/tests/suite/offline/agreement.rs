//! Admission, `steersman validate` and `steersman render`, which runs the controller's plan, accept the same objects.

use serde_json::{Value, json};

use super::Workspace;
use crate::admission::validator::review;

/// Parts of specs. About half of them are invalid.
fn parts() -> Vec<Value> {
    let workload = |workload: Value| json!({ "workload": workload });
    let overrides = |overrides: Value| json!({ "workload": { "overrides": overrides } });
    let networking = |networking: Value| json!({ "networking": networking });
    let inference = |provider: Value| json!({ "providers": { "inference": provider } });
    vec![
        json!({}),
        workload(json!({ "replicas": 2 })),
        workload(json!({ "replicas": -1 })),
        workload(json!({ "autoscaling": { "maxReplicas": 3, "minReplicas": 2 } })),
        workload(json!({ "autoscaling": { "maxReplicas": 1, "minReplicas": 2 } })),
        workload(json!({ "pdb": { "minAvailable": 1 } })),
        workload(json!({ "podDisruptionBudget": { "minAvailable": 1, "maxUnavailable": 1 } })),
        workload(json!({ "pdb": {}, "podDisruptionBudget": {} })),
        workload(json!({ "resources": { "limits": { "memory": "512Mi" } } })),
        workload(json!({ "resources": { "requests": { "cpu": "2" }, "limits": { "cpu": "1" } } })),
        workload(json!({ "storage": { "size": "0" } })),
        overrides(json!({ "volumes": [{ "name": "own", "emptyDir": {} }] })),
        overrides(json!({ "volumes": [{ "name": "lls-storage", "emptyDir": {} }] })),
        overrides(json!({ "volumes": [{ "name": "user-config", "emptyDir": {} }] })),
        overrides(json!({ "env": [{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }] })),
        networking(json!({ "expose": { "hostname": "llama.example.com" } })),
        networking(json!({ "expose": { "hostname": "Not_A_Host" } })),
        networking(json!({ "port": 70000 })),
        networking(json!({ "tls": { "caBundle": { "configMapName": "ca", "configMapKeys": ["../etc/passwd"] } } })),
        inference(json!({ "provider": "vllm", "endpoint": "http://vllm" })),
        inference(json!({ "provider": "vlm" })),
        inference(json!({ "provider": "remote::own" })),
        inference(json!({ "id": "sentence-transformers", "provider": "vllm" })),
        json!({ "providers": { "vectorIo": { "provider": "oci" } } }),
        json!({ "providers": { "inference": { "id": "a", "provider": "vllm" }, "telemetry": { "id": "a", "provider": "x" } } }),
        json!({ "externalProviders": { "inference": [{ "providerId": "own", "image": "Not An Image" }] } }),
    ]
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

/// Every part alone, and pairs of parts.
fn objects() -> Vec<Value> {
    let parts = parts();
    let count = parts.len();
    let pairs = (0..count).map(|first| (first, (first * 7 + 3) % count));
    let alone = (0..count).map(|only| (only, 0));
    let mut objects: Vec<Value> = alone
        .chain(pairs)
        .map(|(first, second)| {
            let mut spec = json!({ "distribution": { "name": "starter" } });
            merge(&mut spec, &parts[first]);
            merge(&mut spec, &parts[second]);
            object("stack", spec)
        })
        .collect();
    let minimal = json!({ "distribution": { "name": "starter" } });
    objects.extend(["a".repeat(48), "a".repeat(49), "with.dot".into()].map(|name| object(&name, minimal.clone())));
    let image = |image: &str| object("stack", json!({ "distribution": { "image": image } }));
    objects.extend([image("registry.example/x:1"), image("registry.example/X Y")]);
    objects
}

fn object(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
            "metadata": { "name": name, "namespace": "team-a" }, "spec": spec })
}

#[tokio::test]
async fn admission_and_commands_accept_the_same_objects() {
    let (mut accepted, mut refused) = (0, 0);
    for object in objects() {
        let workspace = Workspace::with_files(&[("cr.json", &object.to_string())]);
        let validated = workspace.run(&["validate", "-f", "cr.json"]);
        let rendered = workspace.run(&["render", "-f", "cr.json"]);
        let admitted = review("CREATE", object.clone(), Value::Null).await;
        let judgements = [admitted["allowed"] == true, validated.status == Some(0), rendered.status == Some(0)];
        let texts = format!("{object:#}\n{admitted:#}\n{}\n{}", validated.err, rendered.err);
        assert!(judgements.iter().all(|one| *one == judgements[0]), "{judgements:?}\n{texts}");
        *(if judgements[0] { &mut accepted } else { &mut refused }) += 1;
    }
    assert!(accepted >= 10 && refused >= 10, "{accepted} accepted, {refused} refused");
}

#[test]
fn render_prints_each_warning_once() {
    let object = object(
        "stack",
        json!({ "distribution": { "name": "starter" }, "storage": { "kv": { "type": "sqlite", "endpoint": "x" } },
                "workload": { "autoscaling": { "maxReplicas": 0 } } }),
    );
    let run = Workspace::with_files(&[("cr.json", &object.to_string())]).run(&["render", "-f", "cr.json"]);
    run.assert_success();
    let warnings: Vec<&str> = run.err.lines().filter(|line| line.contains("warning: ")).collect();
    let [autoscaling, storage] = &warnings[..] else { panic!("{}", run.err) };
    assert!(
        autoscaling.contains("maxReplicas is 0, so no HorizontalPodAutoscaler is created. Set it"),
        "{autoscaling}"
    );
    assert!(storage.contains("endpoint is only valid when type is redis") && storage.contains(". "), "{storage}");
}
