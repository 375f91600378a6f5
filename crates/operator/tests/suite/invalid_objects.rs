//! Objects that cannot be decoded, for example because they were stored under another schema: an event on the object
//! reports the field.

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use steersman::dynamo::{Dynamo, RequestOptions};
use steersman::installation::Installation;
use steersman::llamastack::LlamaStack;
use steersman_api::Family;
use steersman_runtime::controller::{ReconcileContext, ReconcileError, ReconcileOutcome, Reconciler, reconcile};
use steersman_testkit::fault_injection::FaultInjector;
use steersman_testkit::{Cluster, Flavour, Namespace, exclusive_cluster, object, wait};

use crate::process::operator::TestInstallation;
use crate::schemas::{api_resource, install_crd, single_version_crd, uninstall_crd};
use crate::server::server;

/// The CRD with a schema that accepts any value of one field.
fn crd_accepting_any(family: Family, field: &str) -> CustomResourceDefinition {
    let mut crd = json!(single_version_crd(family, family.storage_version()));
    let path = format!("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{field}");
    *crd.pointer_mut(&path).unwrap() = json!({ "x-kubernetes-preserve-unknown-fields": true });
    object(crd)
}

async fn events(namespace: &Namespace) -> Vec<Event> {
    namespace.api::<Event>().list(&ListParams::default()).await.unwrap().items
}

/// Reconciles the object as the controller does.
async fn reconcile_object<R: Reconciler>(
    reconciler: &R,
    context: &ReconcileContext,
    objects: &Api<DynamicObject>,
) -> Result<ReconcileOutcome, ReconcileError> {
    reconcile(reconciler, context, &objects.get("odd").await.unwrap()).await
}

/// Stores an object with an invalid field, reconciles it twice, changes another field, and corrects the invalid one.
async fn assert_reported_once_per_version<R: Reconciler>(
    cluster: &Cluster,
    admin: &Client,
    reconciler: R,
    (field, wrong, right): (&str, Value, Value),
    spec: Value,
    cause: &str,
) {
    let api: Family = reconciler.resource().short_name.parse().unwrap();
    let version = api.storage_version();
    install_crd(admin, &crd_accepting_any(api, field), &api_resource(api, version)).await;
    let namespace = cluster.namespace(&format!("unreadable-{api}")).await.unwrap();
    let objects: Api<DynamicObject> =
        Api::namespaced_with(admin.clone(), namespace.name(), &api_resource(api, version));
    let mut odd = json!({ "apiVersion": format!("{}/{version}", api.group()), "kind": api.kind(),
        "metadata": { "name": "odd" }, "spec": spec });
    odd["spec"][field] = wrong;
    objects.create(&PostParams::default(), &object(odd)).await.unwrap();
    let counter = FaultInjector::without_fault();
    let context = ReconcileContext::new(&reconciler, server(cluster, counter.wrap(admin)), "test");

    let error = reconcile_object(&reconciler, &context, &objects).await.unwrap_err();
    let expected = format!("cannot decode {} {}/odd: {cause}", api.kind(), namespace.name());
    assert_eq!((error.to_string(), error.is_transient()), (expected, false));
    assert_eq!(counter.call_count(), 1, "only the event may be written");
    reconcile_object(&reconciler, &context, &objects).await.unwrap_err();
    assert_eq!(counter.call_count(), 1, "the event must not be repeated");
    let published = events(&namespace).await;
    assert_eq!(published.len(), 1, "{published:?}");
    let stored = objects.get("odd").await.unwrap();
    let regarding = published[0].regarding.as_ref().unwrap();
    assert_eq!((&regarding.uid, regarding.kind.as_deref()), (&stored.uid(), Some(api.kind())));
    assert_eq!(
        (published[0].type_.as_deref(), published[0].reason.as_deref()),
        (Some("Warning"), Some("SpecUnreadable"))
    );
    let note = format!(
        "Cannot decode {cause}. The object is not reconciled until this is fixed; see `kubectl explain {api}.spec`."
    );
    assert_eq!(published[0].note.as_ref(), Some(&note));
    assert_eq!(stored.data["status"], Value::Null, "an invalid object must not be changed");

    let change = async |patch: Value| {
        objects.patch("odd", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    change(json!({ "metadata": { "labels": { "team": "a" } } })).await;
    reconcile_object(&reconciler, &context, &objects).await.unwrap_err();
    assert_eq!(counter.call_count(), 2, "another version of the object is reported again");
    change(json!({ "spec": { field: right } })).await;
    reconcile_object(&reconciler, &context, &objects).await.unwrap();
    assert_ne!(objects.get("odd").await.unwrap().data["status"], Value::Null, "a corrected object must be reconciled");
    uninstall_crd(admin, api).await;
}

#[tokio::test]
async fn invalid_distribution_is_reported_once_per_version() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let admin = exclusive.cluster.admin().await.unwrap();
    let wrong = json!({ "replicas": "hush" });
    let cause = "spec.workload.replicas: invalid type: string (a value), expected i32";
    let spec = json!({ "distribution": { "name": "starter" } });
    let field = ("workload", wrong, json!({ "replicas": 1 }));
    assert_reported_once_per_version(exclusive.cluster, &admin, LlamaStack::shipped(), field, spec, cause).await;
}

/// The finalizer of an earlier operator would block the deletion forever.
#[tokio::test]
async fn invalid_request_can_be_deleted() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let (cluster, api) = (exclusive.cluster, Family::Dgdr);
    let admin = cluster.admin().await.unwrap();
    let kind = api_resource(api, api.storage_version());
    install_crd(&admin, &crd_accepting_any(api, "sla"), &kind).await;
    let namespace = cluster.namespace("unreadable-leaves").await.unwrap();
    let objects: Api<DynamicObject> = Api::namespaced_with(admin.clone(), namespace.name(), &kind);
    let odd = json!({ "apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": { "name": "odd", "finalizers": ["nvidia.com/finalizer"] },
        "spec": { "model": "Qwen/Qwen3-0.6B", "image": "planner:1.4.0", "sla": { "ttft": { "odd": 1 } } } });
    objects.create(&PostParams::default(), &object(odd)).await.unwrap();
    objects.delete("odd", &DeleteParams::default()).await.unwrap();
    let reconciler = Dynamo::new(&Installation::default(), &RequestOptions::default());
    let context = ReconcileContext::new(&reconciler, server(cluster, admin.clone()), "test");
    reconcile_object(&reconciler, &context, &objects).await.unwrap();
    assert!(objects.get_opt("odd").await.unwrap().is_none(), "the object must be deleted");
    uninstall_crd(&admin, api).await;
}

#[tokio::test]
async fn invalid_request_is_reported_once_per_version() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let admin = exclusive.cluster.admin().await.unwrap();
    let wrong = json!({ "ttft": { "hush": 1 } });
    let cause = "spec.sla.ttft: invalid type: map, expected a JSON number";
    let spec = json!({ "model": "Qwen/Qwen3-0.6B", "image": "planner:1.4.0" });
    let field = ("sla", wrong, json!({ "ttft": null }));
    let reconciler = Dynamo::new(
        &Installation { operator_image: Some("steersman:1".to_owned()), ..Installation::default() },
        &RequestOptions::default(),
    );
    assert_reported_once_per_version(exclusive.cluster, &admin, reconciler, field, spec, cause).await;
}

#[tokio::test]
async fn running_operator_reports_invalid_objects_until_corrected() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let (cluster, admin) = (exclusive.cluster, exclusive.cluster.admin().await.unwrap());
    let installation = TestInstallation::create(cluster).await;
    let namespace = cluster.namespace("unreadable").await.unwrap();
    let odd = [
        (Family::Dgdr, "sla", json!({ "model": "m", "image": "planner:1.4.0", "sla": { "ttft": {} } })),
        (Family::Llsd, "workload", json!({ "distribution": { "name": "starter" }, "workload": { "replicas": "x" } })),
    ];
    let objects = |api: Family| -> Api<DynamicObject> {
        Api::namespaced_with(admin.clone(), namespace.name(), &api_resource(api, api.storage_version()))
    };
    for (api, field, spec) in &odd {
        install_crd(&admin, &crd_accepting_any(*api, field), &api_resource(*api, api.storage_version())).await;
        let object: DynamicObject = object(json!({ "apiVersion": format!("{}/{}", api.group(), api.storage_version()),
            "kind": api.kind(), "metadata": { "name": "odd" }, "spec": spec }));
        objects(*api).create(&PostParams::default(), &object).await.unwrap();
    }
    let operator =
        installation.start("unreadable", &["--controllers", "dgdr,llsd", "--operator-image", "steersman:1"]).await;
    let reported = async || (events(&namespace).await.len() >= odd.len()).then_some(());
    wait::eventually("both objects are reported", reported)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    for (api, field, _) in &odd {
        let line = format!("cannot decode a {}; it is not reconciled", api.kind());
        assert_eq!(operator.log().matches(&line).count(), 1, "{}", operator.log());
        let remove_field = Patch::Merge(json!({ "spec": { *field: null } }));
        objects(*api).patch("odd", &PatchParams::default(), &remove_field).await.unwrap();
        let reconciled = async || {
            let object = objects(*api).get("odd").await.ok()?;
            object.data["status"]["conditions"].is_array().then_some(())
        };
        let reconciled = wait::eventually("the corrected object is reconciled", reconciled).await;
        reconciled.unwrap_or_else(|error| panic!("{api}: {error}\n{}", operator.log()));
    }
    let retry_line = |line: &&str| line.contains("reconcile failed") && line.contains("cannot decode");
    assert_eq!(
        operator.log().lines().find(retry_line),
        None,
        "an invalid object must wait for a change instead of being retried"
    );
    drop(operator);
    for (api, ..) in odd {
        uninstall_crd(&admin, api).await;
    }
}
