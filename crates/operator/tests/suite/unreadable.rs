//! Objects that nobody can read, as one of another version may have stored them: whoever looks at such an object is told by
//! an event on it, whichever family it is of.

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use steersman::dynamo::{Dynamo, RequestOptions};
use steersman::installation::Installation;
use steersman::llamastack::LlamaStack;
use steersman_api::Family;
use steersman_runtime::controller::{
    ReconcileContext, ReconcileError, ReconcileOutcome, Reconciler as Driven, reconcile,
};
use steersman_testkit::cut::Cutter;
use steersman_testkit::{Cluster, Flavour, Namespace, object, turn, wait};

use crate::process::operator::Place;
use crate::schemas::{install, only, resource, uninstall};
use crate::server::server;

/// The CRD, but that one field takes whatever there is.
fn loosened(family: Family, field: &str) -> CustomResourceDefinition {
    let mut crd = json!(only(family, family.storage_version()));
    let path = format!("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{field}");
    *crd.pointer_mut(&path).unwrap() = json!({ "x-kubernetes-preserve-unknown-fields": true });
    object(crd)
}

async fn events(namespace: &Namespace) -> Vec<Event> {
    namespace.all::<Event>().list(&ListParams::default()).await.unwrap().items
}

/// As the controller makes it, but for what it waits for.
async fn pass_over<F: Driven>(
    family: &F,
    context: &ReconcileContext,
    objects: &Api<DynamicObject>,
) -> Result<ReconcileOutcome, ReconcileError> {
    reconcile(family, context, &objects.get("odd").await.unwrap()).await
}

/// Stored with a field that cannot be read, looked at twice, changed beside the field, and corrected.
async fn is_told_once_for_each_version<F: Driven>(
    cluster: &Cluster,
    admin: &Client,
    family: F,
    (field, wrong, right): (&str, Value, Value),
    spec: Value,
    said: &str,
) {
    let api: Family = family.resource().short_name.parse().unwrap();
    let version = api.storage_version();
    install(admin, &loosened(api, field), &resource(api, version)).await;
    let namespace = cluster.namespace(&format!("unreadable-{api}")).await.unwrap();
    let objects: Api<DynamicObject> = Api::namespaced_with(admin.clone(), namespace.name(), &resource(api, version));
    let mut odd = json!({ "apiVersion": format!("{}/{version}", api.group()), "kind": api.kind(),
        "metadata": { "name": "odd" }, "spec": spec });
    odd["spec"][field] = wrong;
    objects.create(&PostParams::default(), &object(odd)).await.unwrap();
    let counter = Cutter::counting();
    let context = ReconcileContext::new(&family, server(cluster, counter.around(admin)), "test");

    let error = pass_over(&family, &context, &objects).await.unwrap_err();
    let wanted = format!("{} {}/odd cannot be read: {said}", api.kind(), namespace.name());
    assert_eq!((error.to_string(), error.is_transient()), (wanted, false));
    assert_eq!(counter.calls(), 1, "nothing but the event is written");
    pass_over(&family, &context, &objects).await.unwrap_err();
    assert_eq!(counter.calls(), 1, "it was told");
    let told = events(&namespace).await;
    assert_eq!(told.len(), 1, "{told:?}");
    let stored = objects.get("odd").await.unwrap();
    let regarding = told[0].regarding.as_ref().unwrap();
    assert_eq!((&regarding.uid, regarding.kind.as_deref()), (&stored.uid(), Some(api.kind())));
    assert_eq!((told[0].type_.as_deref(), told[0].reason.as_deref()), (Some("Warning"), Some("SpecUnreadable")));
    let note = format!(
        "The spec cannot be read, so that nothing is done: {said}. Correct that field; `kubectl explain {api}.spec` says what \
         it takes"
    );
    assert_eq!(told[0].note.as_ref(), Some(&note));
    assert_eq!(stored.data["status"], Value::Null, "it is left alone");

    let change = async |patch: Value| {
        objects.patch("odd", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    change(json!({ "metadata": { "labels": { "team": "a" } } })).await;
    pass_over(&family, &context, &objects).await.unwrap_err();
    assert_eq!(counter.calls(), 2, "it is another version, of which nobody was told");
    change(json!({ "spec": { field: right } })).await;
    pass_over(&family, &context, &objects).await.unwrap();
    assert_ne!(objects.get("odd").await.unwrap().data["status"], Value::Null, "it goes on once it can be read");
    uninstall(admin, api).await;
}

#[tokio::test]
async fn a_distribution_that_cannot_be_read_is_told_of_once_for_each_version_of_it() {
    let Some(turn) = turn(Flavour::Bare).await else { return };
    let admin = turn.cluster.admin().await.unwrap();
    let wrong = json!({ "replicas": "hush" });
    let said = "spec.workload.replicas: invalid type: string (a value), expected i32";
    let spec = json!({ "distribution": { "name": "starter" } });
    let field = ("workload", wrong, json!({ "replicas": 1 }));
    is_told_once_for_each_version(turn.cluster, &admin, LlamaStack::shipped(), field, spec, said).await;
}

/// Which an earlier operator's mark would hold for ever.
#[tokio::test]
async fn a_request_that_cannot_be_read_can_be_deleted() {
    let Some(turn) = turn(Flavour::Bare).await else { return };
    let (cluster, api) = (turn.cluster, Family::Dgdr);
    let admin = cluster.admin().await.unwrap();
    let kind = resource(api, api.storage_version());
    install(&admin, &loosened(api, "sla"), &kind).await;
    let namespace = cluster.namespace("unreadable-leaves").await.unwrap();
    let objects: Api<DynamicObject> = Api::namespaced_with(admin.clone(), namespace.name(), &kind);
    let odd = json!({ "apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": { "name": "odd", "finalizers": ["nvidia.com/finalizer"] },
        "spec": { "model": "Qwen/Qwen3-0.6B", "image": "planner:1.4.0", "sla": { "ttft": { "odd": 1 } } } });
    objects.create(&PostParams::default(), &object(odd)).await.unwrap();
    objects.delete("odd", &DeleteParams::default()).await.unwrap();
    let family = Dynamo::new(&Installation::default(), &RequestOptions::default());
    let context = ReconcileContext::new(&family, server(cluster, admin.clone()), "test");
    pass_over(&family, &context, &objects).await.unwrap();
    assert!(objects.get_opt("odd").await.unwrap().is_none(), "it is gone");
    uninstall(&admin, api).await;
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_told_of_once_for_each_version_of_it() {
    let Some(turn) = turn(Flavour::Bare).await else { return };
    let admin = turn.cluster.admin().await.unwrap();
    let wrong = json!({ "ttft": { "hush": 1 } });
    let said = "spec.sla.ttft: invalid type: map, expected a JSON number";
    let spec = json!({ "model": "Qwen/Qwen3-0.6B", "image": "planner:1.4.0" });
    let field = ("sla", wrong, json!({ "ttft": null }));
    let family = Dynamo::new(
        &Installation { operator_image: Some("steersman:1".to_owned()), ..Installation::default() },
        &RequestOptions::default(),
    );
    is_told_once_for_each_version(turn.cluster, &admin, family, field, spec, said).await;
}

#[tokio::test]
async fn a_running_operator_tells_of_each_once_and_goes_on_when_it_is_corrected() {
    let Some(turn) = turn(Flavour::Bare).await else { return };
    let (cluster, admin) = (turn.cluster, turn.cluster.admin().await.unwrap());
    let place = Place::of(cluster).await;
    let namespace = cluster.namespace("unreadable").await.unwrap();
    let odd = [
        (Family::Dgdr, "sla", json!({ "model": "m", "image": "planner:1.4.0", "sla": { "ttft": {} } })),
        (Family::Llsd, "workload", json!({ "distribution": { "name": "starter" }, "workload": { "replicas": "x" } })),
    ];
    let objects = |api: Family| -> Api<DynamicObject> {
        Api::namespaced_with(admin.clone(), namespace.name(), &resource(api, api.storage_version()))
    };
    for (api, field, spec) in &odd {
        install(&admin, &loosened(*api, field), &resource(*api, api.storage_version())).await;
        let object: DynamicObject = object(json!({ "apiVersion": format!("{}/{}", api.group(), api.storage_version()),
            "kind": api.kind(), "metadata": { "name": "odd" }, "spec": spec }));
        objects(*api).create(&PostParams::default(), &object).await.unwrap();
    }
    let operator = place.start("unreadable", &["--controllers", "dgdr,llsd", "--operator-image", "steersman:1"]).await;
    let told = async || (events(&namespace).await.len() >= odd.len()).then_some(());
    wait::eventually("both are told of", told).await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    for (api, field, _) in &odd {
        let line = format!("a {} cannot be read and is left alone", api.kind());
        assert_eq!(operator.log().matches(&line).count(), 1, "{}", operator.log());
        let without = Patch::Merge(json!({ "spec": { *field: null } }));
        objects(*api).patch("odd", &PatchParams::default(), &without).await.unwrap();
        let goes_on = async || {
            let object = objects(*api).get("odd").await.ok()?;
            object.data["status"]["conditions"].is_array().then_some(())
        };
        let goes_on = wait::eventually("it goes on", goes_on).await;
        goes_on.unwrap_or_else(|error| panic!("{api}: {error}\n{}", operator.log()));
    }
    let again = |line: &&str| line.contains("a pass failed") && line.contains("cannot be read");
    assert_eq!(operator.log().lines().find(again), None, "it is awaited, not tried again");
    drop(operator);
    for (api, ..) in odd {
        uninstall(&admin, api).await;
    }
}
