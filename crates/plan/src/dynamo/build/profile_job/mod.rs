//! The profiling Job. It is built as JSON, because its overrides are, and typed objects would lose fields newer than
//! k8s-openapi.

pub mod overrides;

use serde_json::{Map, Value, json};
use steersman_api::Family;
use steersman_api::dynamo::v1beta1::DynamoGraphDeploymentRequestSpec;

use crate::dynamo::names;
use crate::dynamo::request::{self, AlphaFields};
use crate::dynamo::snapshot::{ObservedObject, Snapshot};

pub const PROFILER: &str = "profiler";
pub const COPIER: &str = "output-copier";
pub const INSTALLER: &str = "dgd-override-installer";
pub const OUTPUT_VOLUME: &str = "profiling-output";
pub const OUTPUT_PATH: &str = "/data";
pub const CACHE_VOLUME: &str = "model-cache";
pub const CACHE_PATH: &str = "/opt/model-cache";
pub const CONFIG_VOLUME: &str = "profiling-config";
pub const CONFIG_PATH: &str = "/config";
pub const TOKEN_VOLUME: &str = "output-copier-kube-api-access";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
pub const TOOL_VOLUME: &str = "dgd-override-tool";
const TOOL_PATH: &str = "/opt/dynamo/bin";
const TOOL: &str = "/opt/dynamo/bin/dgd-apply-overrides";
const TOOL_VARIABLE: &str = "DYNAMO_DGD_APPLY_OVERRIDES_BIN";

/// The Job is created once and never changed: its pod template is immutable.
pub fn job(snapshot: &Snapshot, image: &str) -> Value {
    let object = &snapshot.object;
    let labels = json!({ "labels": { names::LABEL_PROFILED: object.name } });
    let mut spec = json!({
        "backoffLimit": 0,
        // A drained, preempted or evicted pod says nothing about the profiler: it is replaced and not counted.
        "podFailurePolicy": {
            "rules": [{ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }],
        },
        "template": { "metadata": labels, "spec": pod(snapshot, image) },
    });
    if let Some(wanted) = object.spec.overrides.as_ref().and_then(|overrides| overrides.profiling_job.as_ref()) {
        overrides::merge(&mut spec, wanted);
    }
    if let Some(pod) = spec["template"]["spec"].as_object_mut() {
        token(pod);
        if request::graph_override(&object.spec).is_some() {
            install(pod, snapshot);
        }
    }
    let mut annotations = json!({ names::ACCEPTED_SPEC: request::spec_hash(&object.spec) });
    if let Some(retry) = request::last_retry(object) {
        annotations[names::RETRY] = retry.into();
    }
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names::profiling_job(&object.name),
            "namespace": object.namespace,
            "labels": names::job_labels(&object.name),
            "annotations": annotations,
            "ownerReferences": [reference(&object.name, &object.uid)],
        },
        "spec": spec,
    })
}

/// The owner reference to a request. The sidecar sets it on the output.
pub fn reference(request: &str, uid: &str) -> Value {
    json!({
        "apiVersion": format!("{}/v1beta1", Family::Dgdr.group()),
        "kind": Family::Dgdr.kind(),
        "name": request,
        "uid": uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn pod(snapshot: &Snapshot, image: &str) -> Value {
    let object = &snapshot.object;
    let alpha = request::alpha_fields(object);
    json!({
        "restartPolicy": "Never",
        "serviceAccountName": names::SERVICE_ACCOUNT,
        "imagePullSecrets": [{ "name": names::PULL_SECRET }],
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000 },
        "containers": [profiler(snapshot, &alpha, image), copier(snapshot)],
        "volumes": volumes(object, &alpha),
    })
}

fn profiler(snapshot: &Snapshot, alpha: &AlphaFields, image: &str) -> Value {
    let object = &snapshot.object;
    let mut mounts = vec![json!({ "name": OUTPUT_VOLUME, "mountPath": OUTPUT_PATH })];
    if request::model_cache(&object.spec).is_some() {
        mounts.push(json!({ "name": CACHE_VOLUME, "mountPath": cache_path(object), "readOnly": true }));
    }
    if alpha.config_map.is_some() {
        mounts.push(json!({ "name": CONFIG_VOLUME, "mountPath": CONFIG_PATH, "readOnly": true }));
    }
    json!({
        "name": PROFILER,
        "image": image,
        "command": ["python", "-m", "dynamo.profiler"],
        "args": ["--config", config(&object.spec, image), "--output-dir", OUTPUT_PATH],
        "workingDir": "/workspace",
        "env": env(snapshot),
        "volumeMounts": mounts,
    })
}

/// The spec with its effective image, which the profiler requires.
pub fn config(spec: &DynamoGraphDeploymentRequestSpec, image: &str) -> String {
    let mut spec = json!(spec);
    spec["image"] = image.into();
    spec.to_string()
}

/// Names are unique and in a fixed order.
fn env(snapshot: &Snapshot) -> Vec<Value> {
    let object = &snapshot.object;
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    let mut env = vec![
        variable("DGDR_NAME", &object.name),
        variable("DGDR_NAMESPACE", &object.namespace),
        variable("DGDR_UID", &object.uid),
    ];
    let infrastructure = snapshot.settings.infrastructure.iter().filter(|(_, value)| !value.is_empty());
    env.extend(infrastructure.map(|(name, value)| variable(name, value)));
    // Many models need no token, and a pod that waits for a Secret reports nothing.
    let token = json!({ "name": names::TOKEN_SECRET, "key": names::TOKEN_KEY, "optional": true });
    env.push(json!({ "name": "HUGGING_FACE_HUB_TOKEN", "valueFrom": { "secretKeyRef": token } }));
    env.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    env.dedup_by(|a, b| a["name"] == b["name"]);
    env
}

/// The sidecar: `steersman relay` follows the profiler and writes the output ConfigMap.
fn copier(snapshot: &Snapshot) -> Value {
    let object = &snapshot.object;
    let mut container = json!({
        "name": COPIER,
        "image": snapshot.settings.operator_image,
        "command": ["steersman", "relay"],
        "args": [
            "--name", object.name,
            "--namespace", object.namespace,
            "--uid", object.uid,
            "--container", PROFILER,
            "--directory", OUTPUT_PATH,
        ],
        "env": [{ "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
        // The last line of the log explains a failed delivery, and the operator reads it from the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        // Namespaces with restricted pod security require this, and no override reaches this container. It runs as the
        // pod's user, to read the profiler's files.
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "volumeMounts": [{ "name": OUTPUT_VOLUME, "mountPath": OUTPUT_PATH, "readOnly": true }],
    });
    pull_policy(&mut container, snapshot);
    container
}

fn pull_policy(container: &mut Value, snapshot: &Snapshot) {
    if let Some(policy) = request::non_empty(snapshot.settings.operator_image_pull_policy.as_deref()) {
        container["imagePullPolicy"] = policy.into();
    }
}

fn volumes(object: &ObservedObject, alpha: &AlphaFields) -> Vec<Value> {
    let output = match &alpha.output_claim {
        Some(claim) => json!({ "name": OUTPUT_VOLUME, "persistentVolumeClaim": { "claimName": claim } }),
        None => json!({ "name": OUTPUT_VOLUME, "emptyDir": {} }),
    };
    let cache = request::model_cache(&object.spec).map(
        |claim| json!({ "name": CACHE_VOLUME, "persistentVolumeClaim": { "claimName": claim, "readOnly": true } }),
    );
    let config = alpha.config_map.as_ref().map(|(name, key)| {
        let items = json!([{ "key": key, "path": request::CONFIG_KEY }]);
        json!({ "name": CONFIG_VOLUME, "configMap": { "name": name, "items": items } })
    });
    [Some(output), cache, config].into_iter().flatten().collect()
}

fn cache_path(object: &ObservedObject) -> &str {
    let path = object.spec.model_cache.as_ref().and_then(|cache| request::non_empty(cache.pvc_mount_path.as_deref()));
    path.unwrap_or(CACHE_PATH)
}

/// The sidecar needs a token even if the profiler gets none.
fn token(pod: &mut Map<String, Value>) {
    if pod.get("automountServiceAccountToken") != Some(&Value::Bool(false)) {
        return;
    }
    let sources = json!([
        { "serviceAccountToken": { "path": "token", "expirationSeconds": 3600 } },
        { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
        { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "fieldPath": "metadata.namespace" } }] } },
    ]);
    put(pod, "volumes", json!({ "name": TOKEN_VOLUME, "projected": { "sources": sources } }));
    let mount = json!({ "name": TOKEN_VOLUME, "mountPath": TOKEN_PATH, "readOnly": true });
    if let Some(container) = container(pod, COPIER) {
        put(container, "volumeMounts", mount);
    }
}

/// Installs our program for merging `overrides.dgd`, which the profiler runs for each graph that it writes. It comes
/// after the user's overrides and replaces entries that collide with it.
fn install(pod: &mut Map<String, Value>, snapshot: &Snapshot) {
    let mut installer = json!({
        "name": INSTALLER,
        "image": snapshot.settings.operator_image,
        "command": ["steersman", "dgd-apply-overrides"],
        "args": ["--install-to", TOOL],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "volumeMounts": [{ "name": TOOL_VOLUME, "mountPath": TOOL_PATH }],
    });
    pull_policy(&mut installer, snapshot);
    put(pod, "volumes", json!({ "name": TOOL_VOLUME, "emptyDir": {} }));
    put(pod, "initContainers", installer);
    if let Some(container) = container(pod, PROFILER) {
        if let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
            mounts.retain(|mount| mount["mountPath"] != TOOL_PATH);
        }
        put(container, "volumeMounts", json!({ "name": TOOL_VOLUME, "mountPath": TOOL_PATH, "readOnly": true }));
        put(container, "env", json!({ "name": TOOL_VARIABLE, "value": TOOL }));
        overrides::sort_env(container);
    }
}

fn container<'a>(pod: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    let all = pod.get_mut("containers")?.as_array_mut()?;
    all.iter_mut().find(|container| container["name"] == name)?.as_object_mut()
}

/// Replaces the entry with the same name, or appends.
fn put(of: &mut Map<String, Value>, list: &str, entry: Value) {
    let Value::Array(items) = of.entry(list).or_insert_with(|| json!([])) else { return };
    match items.iter_mut().find(|item| item["name"] == entry["name"]) {
        Some(item) => *item = entry,
        None => items.push(entry),
    }
}
