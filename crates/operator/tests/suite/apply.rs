//! The applier on a real API server: which objects it writes, which it leaves alone, and how it recovers from a crash at any
//! call.

mod adopt;
mod crash;
mod events;
mod status;
mod unowned;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use steersman_reconcile::{ObjectId, Outcome, Plan, Write, WriteOp};
use steersman_runtime::apply::{Legacy, Live, Owner, apply};
use steersman_testkit::fault_injection::FaultInjector;
use steersman_testkit::{Cluster, Flavour, Namespace, object, shared_cluster};

use crate::server::server;

const MANAGER: &str = "steersman/llsd";

fn kinds() -> [GroupVersionKind; 5] {
    [
        GroupVersionKind::gvk("", "v1", "ServiceAccount"),
        GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim"),
        GroupVersionKind::gvk("", "v1", "Service"),
        GroupVersionKind::gvk("apps", "v1", "Deployment"),
        GroupVersionKind::gvk("", "v1", "ConfigMap"),
    ]
}

/// A user's object. The applier accepts any kind; a ConfigMap needs no CRD.
async fn owner(namespace: &Namespace) -> Owner {
    let config_map: ConfigMap = object(json!({ "metadata": { "name": "starter" } }));
    let created = namespace.api::<ConfigMap>().create(&PostParams::default(), &config_map).await.unwrap();
    Owner {
        kind: GroupVersionKind::gvk("", "v1", "ConfigMap"),
        namespace: namespace.name().to_owned(),
        name: created.name_any(),
        uid: created.uid().unwrap(),
        legacy: Some(Legacy {
            managed_by: "llama-stack-operator".into(),
            managers: vec!["manager".into(), "starter".into()],
        }),
    }
}

/// The children as a cache would hold them.
async fn live(client: &Client, namespace: &Namespace) -> Live {
    let mut live = Live::default();
    for kind in kinds() {
        for child in list(client, namespace, &kind).await {
            live.insert(&kind, child);
        }
    }
    live
}

async fn list(client: &Client, namespace: &Namespace, kind: &GroupVersionKind) -> Vec<DynamicObject> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace.name(), &ApiResource::from_gvk(kind));
    api.list(&ListParams::default()).await.unwrap().items
}

fn labels() -> Value {
    json!({ "app.kubernetes.io/managed-by": "llama-stack-operator", "app.kubernetes.io/part-of": "llama-stack" })
}

fn selector() -> Value {
    json!({ "app": "llama-stack", "app.kubernetes.io/instance": "starter" })
}

fn account(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "labels": labels() } })
}

fn claim(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "labels": labels() },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "10Gi" } } } })
}

fn service(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "labels": labels() },
        "spec": { "type": "ClusterIP", "selector": selector(),
            "ports": [{ "name": "http", "port": 8321, "targetPort": 8321 }] } })
}

/// A Deployment like the real one, with quantities, zeros and empty values that the API server normalizes.
fn deployment(env: Value) -> Value {
    let container = json!({
        "name": "llama-stack", "image": "docker.io/llamastack/distribution-starter:0.7.1", "env": env,
        "ports": [{ "containerPort": 8321 }],
        "resources": { "requests": { "cpu": "1000m", "memory": "1024Mi" }, "limits": {} },
        "startupProbe": { "httpGet": { "path": "/v1/health", "port": 8321 }, "initialDelaySeconds": 15,
            "timeoutSeconds": 30, "failureThreshold": 3, "successThreshold": 1 },
        "volumeMounts": [{ "name": "lls-storage", "mountPath": "/.llama", "readOnly": false }],
    });
    let pod = json!({
        "serviceAccountName": "starter-sa", "securityContext": { "fsGroup": 1001 }, "containers": [container],
        "volumes": [{ "name": "lls-storage", "persistentVolumeClaim": { "claimName": "starter-pvc" } },
            { "name": "scratch", "emptyDir": {} }],
        "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": { "matchLabels": selector() } }],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "starter", "labels": labels() },
        "spec": { "replicas": 1, "strategy": { "type": "Recreate" }, "selector": { "matchLabels": selector() },
            "template": { "metadata": { "labels": selector() }, "spec": pod } },
    })
}

fn env() -> Value {
    json!([{ "name": "HF_HOME", "value": "/.llama" }, { "name": "EMPTY", "value": "" },
        { "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
        { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "token", "key": "token" } } }])
}

fn stack_plan(env: Value) -> Plan<()> {
    Plan {
        writes: vec![
            WriteOp::Owned(Write::Apply(object(account("starter-sa")))),
            WriteOp::Owned(Write::CreateOnce(object(claim("starter-pvc")))),
            WriteOp::Owned(Write::Apply(object(service("starter-service")))),
            WriteOp::Owned(Write::Apply(object(deployment(env)))),
        ],
        ..Plan::default()
    }
}

async fn reconcile(cluster: &Cluster, namespace: &Namespace, owner: &Owner, plan: &Plan<()>) -> Outcome {
    let client = cluster.admin().await.unwrap();
    let live = live(&client, namespace).await;
    apply(&server(cluster, client), MANAGER, owner, plan, &live).await.outcome
}

fn write_count(outcome: Outcome) -> usize {
    assert_eq!(outcome.failure, None);
    outcome.written
}

#[tokio::test]
async fn settled_plan_sends_no_requests() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("settled").await.unwrap();
    let owner = owner(&namespace).await;
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &stack_plan(env())).await), 4);
    let created = namespace.api::<Deployment>().get("starter").await.unwrap();
    assert_eq!(created.owner_references()[0].uid, owner.uid, "the applier sets the owner reference");

    // Other controllers change the status and add an annotation.
    let status = Patch::Merge(json!({ "status": { "replicas": 1, "observedGeneration": 1 } }));
    namespace.api::<Deployment>().patch_status("starter", &PatchParams::default(), &status).await.unwrap();
    let annotation =
        Patch::Merge(json!({ "metadata": { "annotations": { "deployment.kubernetes.io/revision": "1" } } }));
    namespace.api::<Deployment>().patch("starter", &PatchParams::default(), &annotation).await.unwrap();

    let admin = cluster.admin().await.unwrap();
    let counter = FaultInjector::without_fault().include_reads();
    let counted = server(cluster, counter.wrap(&admin));
    let outcome = apply(&counted, MANAGER, &owner, &stack_plan(env()), &live(&admin, &namespace).await).await.outcome;
    assert_eq!(outcome, Outcome::default());
    assert_eq!(counter.call_count(), 0, "neither writes nor reads");
}

#[tokio::test]
async fn stale_cache_causes_no_wrong_write() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("stale").await.unwrap();
    let owner = owner(&namespace).await;
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &stack_plan(env())).await), 4);
    let admin = cluster.admin().await.unwrap();
    let outcome =
        apply(&server(cluster, admin.clone()), MANAGER, &owner, &stack_plan(env()), &Live::default()).await.outcome;
    assert_eq!(outcome, Outcome::default(), "the object that the cache misses exists and is equal");

    // The cache is older than a replacement of the object, so the applier checks an object that is gone.
    let old = live(&admin, &namespace).await;
    namespace.api::<ServiceAccount>().delete("starter-sa", &Default::default()).await.unwrap();
    let foreign: ServiceAccount = object(json!({ "metadata": { "name": "starter-sa" } }));
    namespace.api::<ServiceAccount>().create(&PostParams::default(), &foreign).await.unwrap();
    let mut changed = account("starter-sa");
    changed["metadata"]["labels"]["more"] = "1".into();
    let plan: Plan<()> = Plan { writes: vec![WriteOp::Owned(Write::Apply(object(changed)))], ..Plan::default() };
    let failure = apply(&server(cluster, admin), MANAGER, &owner, &plan, &old).await.outcome.failure.unwrap();
    assert!(failure.transient && failure.message.contains("409"), "{failure:?}");
    let left = namespace.api::<ServiceAccount>().get("starter-sa").await.unwrap();
    assert!(left.labels().is_empty(), "the foreign object is unchanged");
}

#[tokio::test]
async fn removed_field_is_pruned_foreign_fields_stay() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("fields").await.unwrap();
    let owner = owner(&namespace).await;
    reconcile(cluster, &namespace, &owner, &stack_plan(env())).await;
    let theirs = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "starter", "annotations": { "team": "a" } }, "spec": { "minReadySeconds": 7 } });
    let params = PatchParams::apply("other-manager");
    namespace.api::<Deployment>().patch("starter", &params, &Patch::Apply(theirs)).await.unwrap();

    let fewer = json!([{ "name": "HF_HOME", "value": "/.llama" }]);
    assert_eq!(
        write_count(reconcile(cluster, &namespace, &owner, &stack_plan(fewer.clone())).await),
        1,
        "only the Deployment"
    );
    let left = namespace.api::<Deployment>().get("starter").await.unwrap();
    assert_eq!(left.annotations()["team"], "a");
    let spec = left.spec.unwrap();
    assert_eq!(spec.min_ready_seconds, Some(7));
    let names: Vec<_> =
        spec.template.spec.unwrap().containers[0].env.iter().flatten().map(|var| var.name.clone()).collect();
    assert_eq!(names, ["HF_HOME"]);
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &stack_plan(fewer)).await), 0);

    // Another order of the variables is one write and then settled.
    let mut reversed = env();
    reversed.as_array_mut().unwrap().reverse();
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &stack_plan(env())).await), 1);
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &stack_plan(reversed.clone())).await), 1);
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &stack_plan(reversed)).await), 0);

    // A change of our fields by another writer is reverted.
    let foreign_port =
        Patch::Merge(json!({ "spec": { "ports": [{ "name": "http", "port": 8321, "targetPort": 9 }] } }));
    namespace.api::<Service>().patch("starter-service", &PatchParams::default(), &foreign_port).await.unwrap();
    let mut reversed = env();
    reversed.as_array_mut().unwrap().reverse();
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &stack_plan(reversed)).await), 1);
    let ports = namespace.api::<Service>().get("starter-service").await.unwrap().spec.unwrap().ports.unwrap();
    assert_eq!(ports.len(), 1);
    assert_eq!(ports[0].target_port, Some(IntOrString::Int(8321)));
}

/// Another manager gave our port another number, and added a variable. The server rejects our port as a second one of the same
/// name: the list of ports becomes ours, and the variable stays with its manager.
#[tokio::test]
async fn rejected_list_leaves_other_lists_to_their_managers() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("lists").await.unwrap();
    let owner = owner(&namespace).await;
    let mut ours = deployment(env());
    ours["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 8321, "name": "http" }]);
    let plan: Plan<()> = Plan { writes: vec![WriteOp::Owned(Write::Apply(object(ours)))], ..Plan::default() };
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &plan).await), 1);
    let deployments = namespace.api::<Deployment>();
    let theirs = Patch::Json::<()>(
        serde_json::from_value(json!([
            { "op": "replace", "path": "/spec/template/spec/containers/0/ports/0/containerPort", "value": 9999 },
            { "op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": { "name": "THEIRS", "value": "1" } },
        ]))
        .unwrap(),
    );
    let editor = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
    deployments.patch("starter", &editor, &theirs).await.unwrap();

    for written in [1, 0] {
        assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &plan).await), written);
        let left = deployments.get("starter").await.unwrap();
        let owners: Vec<String> = left
            .managed_fields()
            .iter()
            .filter(|entry| json!(entry.fields_v1).to_string().contains("THEIRS"))
            .filter_map(|entry| entry.manager.clone())
            .collect();
        assert_eq!(owners, ["kubectl-edit"]);
        let container = &left.spec.unwrap().template.spec.unwrap().containers[0];
        let ports: Vec<i32> = container.ports.iter().flatten().map(|port| port.container_port).collect();
        assert_eq!(ports, [8321]);
        assert!(container.env.iter().flatten().any(|variable| variable.name == "THEIRS"), "{:?}", container.env);
    }
}

#[tokio::test]
async fn foreign_object_is_refused_and_ends_the_plan() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("foreign").await.unwrap();
    let owner = owner(&namespace).await;
    let mut theirs = service("starter-service");
    theirs["metadata"]["labels"] = json!({ "app.kubernetes.io/managed-by": "Helm" });
    let theirs: Service = object(theirs);
    namespace.api::<Service>().create(&PostParams::default(), &theirs).await.unwrap();
    let before = namespace.api::<Service>().get("starter-service").await.unwrap();

    let outcome = reconcile(cluster, &namespace, &owner, &stack_plan(env())).await;
    assert_eq!(outcome.written, 2, "the account and the claim are written before the Service");
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.object, ObjectId::new("Service", namespace.name(), "starter-service"));
    assert!(!failure.transient && failure.message.contains("was not created for ConfigMap"), "{failure:?}");
    assert_eq!(namespace.api::<Service>().get("starter-service").await.unwrap(), before);
    assert!(
        namespace.api::<Deployment>().get_opt("starter").await.unwrap().is_none(),
        "nothing is written after a failure"
    );

    // The refusal is the same if the cache misses the object.
    let admin = cluster.admin().await.unwrap();
    let uncached = apply(&server(cluster, admin), MANAGER, &owner, &stack_plan(env()), &Live::default()).await.outcome;
    assert_eq!(uncached.failure.unwrap().message, failure.message);
    assert_eq!(namespace.api::<Service>().get("starter-service").await.unwrap(), before);

    let reference =
        json!([{ "apiVersion": "v1", "kind": "Secret", "name": "other", "uid": "u-9", "controller": true }]);
    let controlled = Patch::Merge(json!({ "metadata": { "ownerReferences": reference } }));
    namespace.api::<Service>().patch("starter-service", &PatchParams::default(), &controlled).await.unwrap();
    let failure = reconcile(cluster, &namespace, &owner, &stack_plan(env())).await.failure.unwrap();
    assert!(failure.message.contains(&format!("controlled by Secret {}/other", namespace.name())), "{failure:?}");
}

#[tokio::test]
async fn prune_deletes_only_owned_objects_never_claims() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("sweep").await.unwrap();
    let owner = owner(&namespace).await;
    let mut plan = stack_plan(env());
    plan.writes.push(WriteOp::Owned(Write::Apply(object(service("starter-old")))));
    plan.writes.push(WriteOp::Owned(Write::CreateOnce(object(claim("starter-old")))));
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &plan).await), 6);
    let theirs: Service = object(service("theirs"));
    namespace.api::<Service>().create(&PostParams::default(), &theirs).await.unwrap();

    let mut pruned = stack_plan(env());
    pruned.prune = kinds()[..3].to_vec();
    let mut blocked = pruned.clone();
    let mut wrong = service("starter-service");
    wrong["spec"]["ports"][0]["port"] = json!(123_456);
    blocked.writes[2] = WriteOp::Owned(Write::Apply(object(wrong)));
    let failure = reconcile(cluster, &namespace, &owner, &blocked).await.failure.unwrap();
    assert!(!failure.transient && failure.message.contains("422"), "{failure:?}");
    assert!(
        namespace.api::<Service>().get_opt("starter-old").await.unwrap().is_some(),
        "nothing is pruned while a write fails"
    );

    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &pruned).await), 1);
    let names = |items: Vec<DynamicObject>| items.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    let admin = cluster.admin().await.unwrap();
    assert_eq!(names(list(&admin, &namespace, &kinds()[2]).await), ["starter-service", "theirs"]);
    let claims = namespace.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap();
    assert_eq!(claims.items.len(), 2, "claims hold data and are never pruned");
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &pruned).await), 0);
}
