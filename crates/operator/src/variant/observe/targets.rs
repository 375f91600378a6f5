//! Decodes scale targets: Deployments, StatefulSets and LeaderWorkerSets.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use serde_json::Value;
use steersman_api::variant::v1alpha1::ScaleTargetRef;
use steersman_plan::variant::ObservedTarget;
use steersman_plan::variant::analyze::engine_args::Container;
use steersman_plan::variant::target::{DEPLOYMENT, GROUPS, LEADER_WORKER_SET, STATEFUL_SET};
use steersman_reconcile::quantity;

use super::nodes;
use steersman_runtime::store::{RawObject, Record};

/// The only variable that the plan reads. Others may be secrets and are not kept.
const VARIABLE: &str = "VLLM_USE_V1";

/// The way in which a scale target is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetKind {
    Deployment,
    StatefulSet,
    LeaderWorkerSet,
    /// By its scale subresource, in each reconcile.
    Scale(GroupVersionKind),
    /// The reference is not usable, with the reason.
    Invalid(String),
}

impl TargetKind {
    pub fn of(target: &ScaleTargetRef) -> Self {
        let given = target.api_version.as_deref().unwrap_or_default();
        let (group, version) = given.split_once('/').unwrap_or(("", given));
        if let Some(why) = invalid_reference(target, given) {
            return Self::Invalid(why);
        }
        match (target.kind.as_str(), group) {
            (DEPLOYMENT, "" | "apps" | "extensions") => Self::Deployment,
            (STATEFUL_SET, "" | "apps") => Self::StatefulSet,
            (LEADER_WORKER_SET, "" | GROUPS) => Self::LeaderWorkerSet,
            (kind, _) if given.is_empty() => Self::Invalid(missing_group(kind)),
            (kind, group) => Self::Scale(GroupVersionKind::gvk(group, version, kind)),
        }
    }
}

/// Says how to correct a reference without `apiVersion` whose kind is not one of the three known ones.
fn missing_group(kind: &str) -> String {
    let watched = [DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET];
    match watched.into_iter().find(|known| known.eq_ignore_ascii_case(kind)) {
        Some(known) => format!("spec.scaleTargetRef.kind {kind} is not a kind; write {known}"),
        None => format!(
            "spec.scaleTargetRef.apiVersion is missing, and kind {kind} cannot be found without it; add it, for example \
             argoproj.io/v1alpha1"
        ),
    }
}

/// Why a reference is invalid. Its parts become parts of a URL path, so they must not lead to another namespace, or to
/// the same scale target under another name.
fn invalid_reference(target: &ScaleTargetRef, api_version: &str) -> Option<String> {
    let letters =
        |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)) && !text.contains("..");
    if target.kind.is_empty() || !letters(&target.kind) {
        return Some(format!(
            "spec.scaleTargetRef.kind {:?} is not a kind; write a kind such as Deployment",
            target.kind
        ));
    }
    if !letters(&target.name) {
        return Some(format!(
            "spec.scaleTargetRef.name {:?} is not the name of an object; write only the name of the workload",
            target.name
        ));
    }
    (!letters(&api_version.replacen('/', "", 1))).then(|| {
        format!("spec.scaleTargetRef.apiVersion {api_version:?} is not a group and version; write them as in apps/v1")
    })
}

/// A watched scale target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    pub uid: String,
    pub observed: ObservedTarget,
}

impl Record for TargetRecord {}

impl TargetRecord {
    /// Whether the change triggers a reconcile. The progress of a rollout does not.
    pub fn is_trigger(before: Option<&Self>, after: Option<&Self>) -> bool {
        before.map(Self::facts) != after.map(Self::facts)
    }

    /// Uid and `spec.replicas`, a change of which makes a decision stale.
    pub fn facts(&self) -> (String, Option<i32>) {
        (self.uid.clone(), self.observed.replicas)
    }
}

pub fn raw_workload(object: &RawObject) -> Option<TargetRecord> {
    workload(&object.parse()?)
}

pub fn raw_group(object: &RawObject) -> Option<TargetRecord> {
    group(&object.parse()?)
}

pub fn workload(object: &DynamicObject) -> Option<TargetRecord> {
    let template = &object.data["spec"]["template"]["spec"];
    Some(target_record(object, gpus(template), containers(template)))
}

/// A replica is a whole group: the leader and its workers.
pub fn group(object: &DynamicObject) -> Option<TargetRecord> {
    let group = &object.data["spec"]["leaderWorkerTemplate"];
    let worker = &group["workerTemplate"]["spec"];
    let leader = group.pointer("/leaderTemplate/spec").filter(|leader| !leader.is_null()).unwrap_or(worker);
    let workers = number(&group["size"]).unwrap_or(1).saturating_sub(1).max(0);
    let all = gpus(leader).saturating_add(workers.saturating_mul(gpus(worker)));
    Some(target_record(object, all, containers(leader)))
}

fn target_record(object: &DynamicObject, gpus: i32, containers: Vec<Container>) -> TargetRecord {
    let status = &object.data["status"];
    let generation_observed = status["observedGeneration"].as_i64().is_some_and(|generation| generation > 0);
    // LeaderWorkerSets have no `observedGeneration`.
    let has_status = generation_observed || status["replicas"].is_i64();
    let observed = ObservedTarget {
        replicas: number(&object.data["spec"]["replicas"]),
        status_replicas: has_status.then(|| number(&status["replicas"]).unwrap_or_default()),
        ready: number(&status["readyReplicas"]).unwrap_or_default(),
        gpus,
        containers,
        ..ObservedTarget::default()
    };
    TargetRecord { uid: object.uid().unwrap_or_default(), observed }
}

fn number(value: &Value) -> Option<i32> {
    value.as_i64().map(|value| i32::try_from(value).unwrap_or(i32::MAX))
}

/// Sum over the containers of a pod.
pub fn gpus(pod: &Value) -> i32 {
    let containers = pod["containers"].as_array().into_iter().flatten();
    let of_container = |container: &Value| {
        let amount = |resource: &str| {
            let resources = &container["resources"];
            let given = [&resources["requests"][resource], &resources["limits"][resource]];
            given.into_iter().find(|value| !value.is_null()).map_or(0, amount)
        };
        nodes::resources().map(amount).fold(0_i32, i32::saturating_add)
    };
    containers.map(of_container).fold(0, i32::saturating_add)
}

/// Amounts are strings, or numbers if a manifest has them unquoted.
fn amount(value: &Value) -> i32 {
    value.as_str().map_or_else(|| number(value).unwrap_or_default(), whole)
}

/// Whole GPUs; a fraction counts as none.
pub fn whole(amount: &str) -> i32 {
    let whole = quantity::billionths(amount).unwrap_or_default() / 1_000_000_000;
    i32::try_from(whole.max(0)).unwrap_or(i32::MAX)
}

fn containers(pod: &Value) -> Vec<Container> {
    let texts = |value: &Value| {
        let words = value.as_array().into_iter().flatten();
        words.filter_map(|word| word.as_str().map(ToOwned::to_owned)).collect()
    };
    let container = |container: &Value| {
        let variables = container["env"].as_array().into_iter().flatten();
        let known = variables.filter(|variable| variable["name"] == VARIABLE);
        let env: BTreeMap<String, String> =
            known.filter_map(|known| Some((VARIABLE.to_owned(), known["value"].as_str()?.to_owned()))).collect();
        Container { command: texts(&container["command"]), args: texts(&container["args"]), env }
    };
    pod["containers"].as_array().into_iter().flatten().map(container).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(api_version: Option<&str>, kind: &str) -> ScaleTargetRef {
        let api_version = api_version.map(ToOwned::to_owned);
        ScaleTargetRef { api_version, kind: kind.to_owned(), name: "w".to_owned() }
    }

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn kinds_are_resolved_by_group() {
        for (given, kind, expected) in [
            (None, "Deployment", TargetKind::Deployment),
            (Some(""), "Deployment", TargetKind::Deployment),
            (Some("apps/v1"), "Deployment", TargetKind::Deployment),
            (Some("apps/v1"), "StatefulSet", TargetKind::StatefulSet),
            (None, "LeaderWorkerSet", TargetKind::LeaderWorkerSet),
            (Some("a.io/v1"), "Deployment", TargetKind::Scale(GroupVersionKind::gvk("a.io", "v1", "Deployment"))),
            (
                Some("v1"),
                "ReplicationController",
                TargetKind::Scale(GroupVersionKind::gvk("", "v1", "ReplicationController")),
            ),
        ] {
            assert_eq!(TargetKind::of(&target(given, kind)), expected, "{given:?} {kind}");
        }
        let TargetKind::Invalid(why) = TargetKind::of(&target(None, "Rollout")) else { panic!() };
        assert!(why.starts_with("spec.scaleTargetRef.apiVersion is missing"), "{why}");
        for (kind, meant) in [("deployment", DEPLOYMENT), ("Statefulset", STATEFUL_SET)] {
            let TargetKind::Invalid(why) = TargetKind::of(&target(None, kind)) else { panic!() };
            assert_eq!(why, format!("spec.scaleTargetRef.kind {kind} is not a kind; write {meant}"));
        }
    }

    #[test]
    fn reference_cannot_escape_its_api_path() {
        let named = |name: &str| ScaleTargetRef { name: name.to_owned(), ..target(Some("a.io/v1"), "Widget") };
        for (reference, field) in [
            (named("../../../namespaces/b/widgets/w"), "name"),
            (named("w/scale?x="), "name"),
            (named("w%2f"), "name"),
            (named(".."), "name"),
            (named("a b"), "name"),
            (target(Some("a.io/v1/namespaces/b/widgets"), "Widget"), "apiVersion"),
            (target(Some("a.io/.."), "Widget"), "apiVersion"),
            (target(Some("a.io/v1"), ""), "kind"),
            (target(None, ""), "kind"),
            (target(Some("a.io/v1"), "Widget/status"), "kind"),
            (ScaleTargetRef { name: "a/b".to_owned(), ..target(None, "Deployment") }, "name"),
        ] {
            let TargetKind::Invalid(why) = TargetKind::of(&reference) else { panic!("{reference:?}") };
            assert!(why.starts_with(&format!("spec.scaleTargetRef.{field} ")), "{why}");
        }
        assert!(matches!(TargetKind::of(&named("llama-3.1")), TargetKind::Scale(_)));
    }

    fn pod(gpus: i32) -> Value {
        json!({ "spec": { "containers": [
            { "args": ["--max-num-seqs=64"], "resources": { "limits": { "nvidia.com/gpu": gpus.to_string() } },
              "env": [{ "name": "VLLM_USE_V1", "value": "0" }, { "name": "HF_TOKEN", "value": "secret" }] },
            { "command": ["sidecar"], "resources": { "requests": { "cpu": "1" } } },
        ] } })
    }

    #[test]
    fn workload_record_holds_no_secret() {
        let found = workload(&object(json!({
            "metadata": { "uid": "u" }, "spec": { "replicas": 3, "template": pod(4) },
            "status": { "observedGeneration": 1, "replicas": 2, "readyReplicas": 1 },
        })));
        let observed = found.unwrap().observed;
        assert_eq!(
            (observed.replicas, observed.status_replicas, observed.ready, observed.gpus),
            (Some(3), Some(2), 1, 4)
        );
        assert_eq!(observed.containers[0].args, ["--max-num-seqs=64"]);
        assert_eq!(observed.containers[0].env, BTreeMap::from([(VARIABLE.to_owned(), "0".to_owned())]));
        let new = workload(&object(json!({ "metadata": { "uid": "u" }, "spec": { "template": pod(1) } }))).unwrap();
        assert_eq!((new.observed.replicas, new.observed.status_replicas), (None, None));
    }

    #[test]
    fn group_sums_gpus_of_leader_and_workers() {
        let of = |leader: Value| {
            let template = json!({ "size": 4, "leaderTemplate": leader, "workerTemplate": pod(8) });
            group(&object(json!({ "metadata": {}, "spec": { "replicas": 2, "leaderWorkerTemplate": template },
                "status": { "replicas": 2, "readyReplicas": 1 } })))
            .unwrap()
            .observed
        };
        assert_eq!((of(pod(1)).gpus, of(pod(1)).status_replicas, of(pod(1)).ready), (25, Some(2), 1));
        assert_eq!(of(Value::Null).gpus, 32, "without a template of its own, the leader is like its workers");
    }

    #[test]
    fn only_changed_replicas_trigger_a_reconcile() {
        let workload = |uid: &str, replicas, ready| TargetRecord {
            uid: uid.to_owned(),
            observed: ObservedTarget { replicas: Some(replicas), ready, ..ObservedTarget::default() },
        };
        let now = workload("u", 2, 1);
        assert!(!TargetRecord::is_trigger(Some(&now), Some(&workload("u", 2, 2))));
        assert!(TargetRecord::is_trigger(Some(&now), Some(&workload("u", 3, 1))));
        assert!(TargetRecord::is_trigger(Some(&now), Some(&workload("other", 2, 1))));
        assert!(TargetRecord::is_trigger(None, Some(&now)) && TargetRecord::is_trigger(Some(&now), None));
    }
}
