//! Storage version migration by the leader, with the shipped account.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use steersman::crds::migrate::{MigrateError, Migration, keep, migrate};
use steersman::{installation, rbac};
use steersman_api::Family;
use steersman_testkit::fault_injection::{CallFault, FaultInjector};
use steersman_testkit::{apply, object, skip, wait};
use tokio_util::sync::CancellationToken;

use super::converter::BROKEN_ANNOTATION;
use super::env::CrdEnv;
use crate::schemas::{self, api_resource};

/// A client with the rights of the shipped manifests only.
async fn account(env: &CrdEnv) -> Client {
    apply::apply_manifests(&env.admin, None, &rbac::manifests().unwrap()).await.unwrap();
    let client = env.cluster.service_account(installation::NAMESPACE, installation::NAME).await.unwrap();
    for family in [Family::Llsd, Family::Dgdr] {
        let status = format!("{}/status", family.plural());
        wait::until_allowed(&client, "patch", family.group(), &status, None).await.unwrap();
    }
    client
}

/// Everything that a migration must not change: the user's content and the owners of fields. Annotations of the conversion
/// may be added.
fn identity(object: &DynamicObject) -> (Option<String>, Option<i64>, Value) {
    let metadata = &object.metadata;
    let content = json!([metadata.labels, object.annotations()["own"], metadata.managed_fields, object.data["spec"]]);
    (object.uid(), metadata.generation, content)
}

async fn wait_for_one_stored_version(env: &CrdEnv, family: Family) {
    let crds: Api<CustomResourceDefinition> = Api::all(env.admin.clone());
    let one = |crd: &CustomResourceDefinition| {
        let stored = crd.status.as_ref().and_then(|status| status.stored_versions.clone());
        stored.as_deref() == Some(&[family.storage_version().to_owned()])
    };
    wait::until(crds, family.crd_name(), "stores one version", wait::TIMEOUT, one).await.unwrap();
}

/// The user starts with the CRD that the upstream project publishes.
#[tokio::test]
async fn leader_migrates_objects_of_published_crd() {
    let Some(crd) = schemas::published_crd() else {
        return skip::skip("the move from the published CRD", "no upstream files");
    };
    let Some(env) = CrdEnv::start().await else { return };
    let namespace = env.cluster.namespace("published").await.unwrap();
    let (old, family) = (api_resource(Family::Llsd, "v1alpha1"), Family::Llsd);
    schemas::install_crd(&env.admin, &crd, &old).await;
    let names = ["a", "b", "c"];
    for name in names {
        let stack: DynamicObject = object(json!({ "apiVersion": "llamastack.io/v1alpha1",
            "kind": "LlamaStackDistribution", "metadata": { "name": name, "annotations": { "own": "kept" } },
            "spec": { "replicas": 2, "server": { "distribution": { "name": "starter" } } } }));
        env.objects(family, "v1alpha1", namespace.name()).create(&PostParams::default(), &stack).await.unwrap();
    }

    // The leader starts first and waits for our CRD.
    let stop = CancellationToken::new();
    let leader = tokio::spawn(keep(env.server(account(&env).await), &Family::ALL, stop.clone()));
    let output = env.attach(&["llsd"]).ok_without_stderr();
    assert!(output.contains("changed, converted by https://127.0.0.1:"), "{output}");
    assert!(
        output.contains("note: objects stored as v1alpha1 can be read only while the operator converts them"),
        "{output}"
    );
    wait_for_one_stored_version(&env, family).await;
    let after = env.read_without_conversion(family, namespace.name(), &names).await;
    for object in &after {
        assert_eq!(object.metadata.generation, Some(1), "{object:?}");
        assert_eq!(object.annotations()["own"], "kept");
    }
    let listed = env.objects(family, "v1alpha1", namespace.name()).list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), names.len(), "the old version is still served");
    stop.cancel();
    leader.await.unwrap();
    env.remove_crds().await;
}

#[tokio::test]
async fn migration_of_many_objects_changes_none() {
    const OBJECT_COUNT: usize = 1200;
    let Some(env) = CrdEnv::start().await else { return };
    let (family, namespace) = (Family::Dgdr, env.cluster.namespace("many").await.unwrap());
    env.install_first_version(family).await;
    let names: Vec<String> = (0..OBJECT_COUNT).map(|index| format!("r-{index}")).collect();
    for chunk in names.chunks(50) {
        let create = chunk.iter().map(|name| env.create_request(namespace.name(), name, json!({ "own": name })));
        futures::future::join_all(create).await;
    }
    env.attach(&["dgdr"]).ok_without_stderr();
    assert_eq!(env.stored_versions(family).await, ["v1alpha1", "v1beta1"]);
    let samples = ["r-0", "r-517", "r-1199"];
    let old_version = env.objects(family, "v1alpha1", namespace.name());
    let mut before = Vec::new();
    for name in samples {
        before.push(old_version.get(name).await.unwrap());
    }

    // The list expires (410) at its second page, after one call for the CRD, one for the first page and 100 for its objects.
    // The migration starts it again.
    let injector = FaultInjector::fail_call(1 + 1 + 100 + 1, CallFault::Status(410)).include_reads();
    let server = env.server(injector.wrap(&account(&env).await));
    let migrated = migrate(&server, family).await.unwrap();
    assert!(matches!(migrated, Migration::Done { objects: OBJECT_COUNT, .. }), "{migrated:?}");
    assert!(injector.has_fired());
    assert_eq!(
        injector.call_count(),
        1 + 1 + 100 + 1 + 12 + OBJECT_COUNT + 2,
        "all pages again, then the CRD is read and its status written"
    );
    assert_eq!(env.stored_versions(family).await, ["v1beta1"]);
    env.read_without_conversion(family, namespace.name(), &samples).await;
    for before in before {
        let after = old_version.get(&before.name_any()).await.unwrap();
        assert_eq!(identity(&before), identity(&after));
        assert_eq!(after.data["spec"]["profilingConfig"]["config"]["engine"]["extra"], json!(["a", 1, 2.5]));
        assert_ne!(before.resource_version(), after.resource_version(), "the object was written");
    }

    let counter = FaultInjector::without_fault();
    let settled = migrate(&env.server(counter.wrap(&env.admin)), family).await.unwrap();
    assert!(matches!(settled, Migration::NotNeeded), "{settled:?}");
    assert_eq!(counter.call_count(), 0, "a settled migration makes no call");
    env.remove_crds().await;
}

#[tokio::test]
async fn unconvertible_object_is_reported_others_are_migrated() {
    let Some(env) = CrdEnv::start().await else { return };
    let (family, namespace) = (Family::Dgdr, env.cluster.namespace("broken").await.unwrap());
    env.install_first_version(family).await;
    for name in ["a", "b", "c"] {
        let annotations = if name == "b" { json!({ BROKEN_ANNOTATION: "yes" }) } else { json!({}) };
        env.create_request(namespace.name(), name, annotations).await;
    }
    env.attach(&["dgdr"]).ok_without_stderr();
    let server = env.server(account(&env).await);
    let Migration::Incomplete(left) = migrate(&server, family).await.unwrap() else { panic!("object b was converted") };
    assert_eq!(left.count, 1, "{left}");
    assert_eq!(left.examples[0].object, format!("{}/b", namespace.name()));
    assert!(left.to_string().contains("\"b\" is broken"), "{left}");
    assert_eq!(env.stored_versions(family).await, ["v1alpha1", "v1beta1"], "b may still be stored as v1alpha1");
    env.read_without_conversion(family, namespace.name(), &["a", "c"]).await;

    // The leader retries by itself.
    let stop = CancellationToken::new();
    let leader = tokio::spawn(keep(server, &Family::ALL, stop.clone()));
    env.converter.convert_broken_objects();
    wait_for_one_stored_version(&env, family).await;
    stop.cancel();
    leader.await.unwrap();
    env.remove_crds().await;
}

#[tokio::test]
async fn migration_without_a_converter_is_refused() {
    let Some(env) = CrdEnv::start().await else { return };
    let (family, namespace) = (Family::Dgdr, env.cluster.namespace("unconverted").await.unwrap());
    env.install_first_version(family).await;
    let created = env.create_request(namespace.name(), "a", json!({})).await;
    env.attach(&["dgdr"]).ok_without_stderr();
    let no_conversion = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
    env.crds().patch(family.crd_name(), &PatchParams::default(), &Patch::Merge(no_conversion)).await.unwrap();
    let counter = FaultInjector::without_fault();
    let refused = migrate(&env.server(counter.wrap(&env.admin)), family).await.unwrap_err();
    assert!(matches!(refused, MigrateError::NotConverted { .. }), "{refused}");
    assert!(refused.to_string().contains("attach the webhook with `steersman crds --apply`"), "{refused}");
    assert_eq!(counter.call_count(), 0);
    let current = env.objects(family, "v1alpha1", namespace.name()).get("a").await.unwrap();
    assert_eq!(current.resource_version(), created.resource_version());
    env.remove_crds().await;
}
