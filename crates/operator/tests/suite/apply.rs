//! The applier on a real API server: what it writes, what it leaves alone, and what is left after a crash anywhere.

mod adopt;
mod crash;
mod events;
mod free;
mod status;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use steersman_reconcile::{ObjectId, Outcome, Plan, Write, WriteOp};
use steersman_runtime::apply::{Legacy, Live, Owner, apply};
use steersman_testkit::cut::Cutter;
use steersman_testkit::{Cluster, Flavour, Namespace, object, shared};

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

/// A user's object. Which kind it is does not matter to the applier.
async fn owner(namespace: &Namespace) -> Owner {
    let wish: ConfigMap = object(json!({ "metadata": { "name": "starter" } }));
    let made = namespace.all::<ConfigMap>().create(&PostParams::default(), &wish).await.unwrap();
    Owner {
        kind: GroupVersionKind::gvk("", "v1", "ConfigMap"),
        namespace: namespace.name().to_owned(),
        name: made.name_any(),
        uid: made.uid().unwrap(),
        legacy: Some(Legacy {
            managed_by: "llama-stack-operator".into(),
            managers: vec!["manager".into(), "starter".into()],
        }),
    }
}

/// The children as a cache would have them.
async fn live(client: &Client, namespace: &Namespace) -> Live {
    let mut live = Live::default();
    for kind in kinds() {
        for child in all(client, namespace, &kind).await {
            live.insert(&kind, child);
        }
    }
    live
}

async fn all(client: &Client, namespace: &Namespace, kind: &GroupVersionKind) -> Vec<DynamicObject> {
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

/// Much like the real one, with amounts, zeros and empty things that the server writes in its own way.
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

fn plan_of(env: Value) -> Plan<()> {
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

async fn pass(cluster: &Cluster, namespace: &Namespace, owner: &Owner, plan: &Plan<()>) -> Outcome {
    let client = cluster.admin().await.unwrap();
    let live = live(&client, namespace).await;
    apply(&server(cluster, client), MANAGER, owner, plan, &live).await.outcome
}

fn written(outcome: Outcome) -> usize {
    assert_eq!(outcome.failure, None);
    outcome.written
}

#[tokio::test]
async fn nothing_is_sent_when_all_is_as_it_should_be() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("settled").await.unwrap();
    let owner = owner(&namespace).await;
    assert_eq!(written(pass(cluster, &namespace, &owner, &plan_of(env())).await), 4);
    let made = namespace.all::<Deployment>().get("starter").await.unwrap();
    assert_eq!(made.owner_references()[0].uid, owner.uid, "the applier makes children ours");

    // What controllers do all day: the status changes, and an annotation appears.
    let status = Patch::Merge(json!({ "status": { "replicas": 1, "observedGeneration": 1 } }));
    namespace.all::<Deployment>().patch_status("starter", &PatchParams::default(), &status).await.unwrap();
    let noted = Patch::Merge(json!({ "metadata": { "annotations": { "deployment.kubernetes.io/revision": "1" } } }));
    namespace.all::<Deployment>().patch("starter", &PatchParams::default(), &noted).await.unwrap();

    let admin = cluster.admin().await.unwrap();
    let counter = Cutter::counting().with_reads();
    let counted = server(cluster, counter.around(&admin));
    let outcome = apply(&counted, MANAGER, &owner, &plan_of(env()), &live(&admin, &namespace).await).await.outcome;
    assert_eq!(outcome, Outcome::default());
    assert_eq!(counter.calls(), 0, "neither writes nor reads");
}

#[tokio::test]
async fn a_stale_cache_costs_a_call_and_no_harm() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("stale").await.unwrap();
    let owner = owner(&namespace).await;
    assert_eq!(written(pass(cluster, &namespace, &owner, &plan_of(env())).await), 4);
    let admin = cluster.admin().await.unwrap();
    let outcome =
        apply(&server(cluster, admin.clone()), MANAGER, &owner, &plan_of(env()), &Live::default()).await.outcome;
    assert_eq!(outcome, Outcome::default(), "what the cache does not know yet is there and equal");

    // A cache from before somebody replaced the object: the object that was judged is gone.
    let old = live(&admin, &namespace).await;
    namespace.all::<ServiceAccount>().delete("starter-sa", &Default::default()).await.unwrap();
    let foreign: ServiceAccount = object(json!({ "metadata": { "name": "starter-sa" } }));
    namespace.all::<ServiceAccount>().create(&PostParams::default(), &foreign).await.unwrap();
    let mut changed = account("starter-sa");
    changed["metadata"]["labels"]["more"] = "1".into();
    let plan: Plan<()> = Plan { writes: vec![WriteOp::Owned(Write::Apply(object(changed)))], ..Plan::default() };
    let failure = apply(&server(cluster, admin), MANAGER, &owner, &plan, &old).await.outcome.failure.unwrap();
    assert!(failure.transient && failure.message.contains("409"), "{failure:?}");
    let left = namespace.all::<ServiceAccount>().get("starter-sa").await.unwrap();
    assert!(left.labels().is_empty(), "the foreign one is untouched");
}

#[tokio::test]
async fn a_removed_field_goes_and_the_fields_of_others_stay() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("fields").await.unwrap();
    let owner = owner(&namespace).await;
    pass(cluster, &namespace, &owner, &plan_of(env())).await;
    let theirs = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "starter", "annotations": { "team": "a" } }, "spec": { "minReadySeconds": 7 } });
    let params = PatchParams::apply("somebody");
    namespace.all::<Deployment>().patch("starter", &params, &Patch::Apply(theirs)).await.unwrap();

    let less = json!([{ "name": "HF_HOME", "value": "/.llama" }]);
    assert_eq!(written(pass(cluster, &namespace, &owner, &plan_of(less.clone())).await), 1, "only the Deployment");
    let left = namespace.all::<Deployment>().get("starter").await.unwrap();
    assert_eq!(left.annotations()["team"], "a");
    let spec = left.spec.unwrap();
    assert_eq!(spec.min_ready_seconds, Some(7));
    let names: Vec<_> =
        spec.template.spec.unwrap().containers[0].env.iter().flatten().map(|var| var.name.clone()).collect();
    assert_eq!(names, ["HF_HOME"]);
    assert_eq!(written(pass(cluster, &namespace, &owner, &plan_of(less)).await), 0);

    // Another order is applied and then settled too.
    let mut turned = env();
    turned.as_array_mut().unwrap().reverse();
    assert_eq!(written(pass(cluster, &namespace, &owner, &plan_of(env())).await), 1);
    assert_eq!(written(pass(cluster, &namespace, &owner, &plan_of(turned.clone())).await), 1);
    assert_eq!(written(pass(cluster, &namespace, &owner, &plan_of(turned)).await), 0);

    // What others change of ours is set right.
    let meddled = Patch::Merge(json!({ "spec": { "ports": [{ "name": "http", "port": 8321, "targetPort": 9 }] } }));
    namespace.all::<Service>().patch("starter-service", &PatchParams::default(), &meddled).await.unwrap();
    let mut turned = env();
    turned.as_array_mut().unwrap().reverse();
    assert_eq!(written(pass(cluster, &namespace, &owner, &plan_of(turned)).await), 1);
    let ports = namespace.all::<Service>().get("starter-service").await.unwrap().spec.unwrap().ports.unwrap();
    assert_eq!(ports.len(), 1);
    assert_eq!(ports[0].target_port, Some(IntOrString::Int(8321)));
}

#[tokio::test]
async fn what_is_not_ours_is_refused_and_nothing_after_it_is_written() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("foreign").await.unwrap();
    let owner = owner(&namespace).await;
    let mut theirs = service("starter-service");
    theirs["metadata"]["labels"] = json!({ "app.kubernetes.io/managed-by": "Helm" });
    let theirs: Service = object(theirs);
    namespace.all::<Service>().create(&PostParams::default(), &theirs).await.unwrap();
    let before = namespace.all::<Service>().get("starter-service").await.unwrap();

    let outcome = pass(cluster, &namespace, &owner, &plan_of(env())).await;
    assert_eq!(outcome.written, 2, "the account and the claim come before the Service");
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.object, ObjectId::new("Service", namespace.name(), "starter-service"));
    assert!(!failure.transient && failure.message.contains("was not made for ConfigMap"), "{failure:?}");
    assert_eq!(namespace.all::<Service>().get("starter-service").await.unwrap(), before);
    assert!(namespace.all::<Deployment>().get_opt("starter").await.unwrap().is_none(), "nothing after a failure");

    // The same if the cache does not know of it yet.
    let admin = cluster.admin().await.unwrap();
    let blind = apply(&server(cluster, admin), MANAGER, &owner, &plan_of(env()), &Live::default()).await.outcome;
    assert_eq!(blind.failure.unwrap().message, failure.message);
    assert_eq!(namespace.all::<Service>().get("starter-service").await.unwrap(), before);

    let reference =
        json!([{ "apiVersion": "v1", "kind": "Secret", "name": "other", "uid": "u-9", "controller": true }]);
    let controlled = Patch::Merge(json!({ "metadata": { "ownerReferences": reference } }));
    namespace.all::<Service>().patch("starter-service", &PatchParams::default(), &controlled).await.unwrap();
    let failure = pass(cluster, &namespace, &owner, &plan_of(env())).await.failure.unwrap();
    assert!(failure.message.contains(&format!("controlled by Secret {}/other", namespace.name())), "{failure:?}");
}

#[tokio::test]
async fn a_sweep_removes_only_what_is_ours_and_never_a_claim() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("sweep").await.unwrap();
    let owner = owner(&namespace).await;
    let mut plan = plan_of(env());
    plan.writes.push(WriteOp::Owned(Write::Apply(object(service("starter-old")))));
    plan.writes.push(WriteOp::Owned(Write::CreateOnce(object(claim("starter-old")))));
    assert_eq!(written(pass(cluster, &namespace, &owner, &plan).await), 6);
    let theirs: Service = object(service("theirs"));
    namespace.all::<Service>().create(&PostParams::default(), &theirs).await.unwrap();

    let mut swept = plan_of(env());
    swept.prune = kinds()[..3].to_vec();
    let mut blocked = swept.clone();
    let mut wrong = service("starter-service");
    wrong["spec"]["ports"][0]["port"] = json!(123_456);
    blocked.writes[2] = WriteOp::Owned(Write::Apply(object(wrong)));
    let failure = pass(cluster, &namespace, &owner, &blocked).await.failure.unwrap();
    assert!(!failure.transient && failure.message.contains("422"), "{failure:?}");
    assert!(namespace.all::<Service>().get_opt("starter-old").await.unwrap().is_some(), "not while a write failed");

    assert_eq!(written(pass(cluster, &namespace, &owner, &swept).await), 1);
    let names = |items: Vec<DynamicObject>| items.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    let admin = cluster.admin().await.unwrap();
    assert_eq!(names(all(&admin, &namespace, &kinds()[2]).await), ["starter-service", "theirs"]);
    let claims = namespace.all::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap();
    assert_eq!(claims.items.len(), 2, "claims hold data");
    assert_eq!(written(pass(cluster, &namespace, &owner, &swept).await), 0);
}
