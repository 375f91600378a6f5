//! Objects of an older version, stored anew by the leader under the account that is shipped.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use steersman::crds::migrate::{MigrateError, Migrated, keep, migrate};
use steersman::{installation, rbac};
use steersman_api::Family;
use steersman_testkit::cut::{Cut, Cutter};
use steersman_testkit::{apply, object, skip, wait};
use tokio_util::sync::CancellationToken;

use super::converter::BROKEN;
use super::place::Place;
use crate::schemas::{self, resource};

/// A client with the rights that the manifests give, and no others.
async fn account(place: &Place) -> Client {
    apply::manifests(&place.admin, None, &rbac::manifests().unwrap()).await.unwrap();
    let client = place.cluster.service_account(installation::NAMESPACE, installation::NAME).await.unwrap();
    for family in [Family::Llsd, Family::Dgdr] {
        let status = format!("{}/status", family.plural());
        wait::until_allowed(&client, "patch", family.group(), &status, None).await.unwrap();
    }
    client
}

/// What must not change: all that the user wrote, and who owns which field. Annotations of the conversion may come.
fn identity(object: &DynamicObject) -> (Option<String>, Option<i64>, Value) {
    let metadata = &object.metadata;
    let kept = json!([metadata.labels, object.annotations()["own"], metadata.managed_fields, object.data["spec"]]);
    (object.uid(), metadata.generation, kept)
}

async fn only_one_is_stored(place: &Place, family: Family) {
    let crds: Api<CustomResourceDefinition> = Api::all(place.admin.clone());
    let one = |crd: &CustomResourceDefinition| {
        let stored = crd.status.as_ref().and_then(|status| status.stored_versions.clone());
        stored.as_deref() == Some(&[family.storage_version().to_owned()])
    };
    wait::until(crds, family.crd_name(), "stores one version", wait::LIMIT, one).await.unwrap();
}

/// From the CRD that its project publishes, as a user comes to us.
#[tokio::test]
async fn objects_of_the_published_crd_are_stored_anew_by_the_leader() {
    let Some(crd) = schemas::published() else {
        return skip::skip("the move from the published CRD", "no upstream files");
    };
    let Some(place) = Place::take().await else { return };
    let namespace = place.cluster.namespace("published").await.unwrap();
    let (old, family) = (resource(Family::Llsd, "v1alpha1"), Family::Llsd);
    schemas::install(&place.admin, &crd, &old).await;
    let names = ["a", "b", "c"];
    for name in names {
        let wish: DynamicObject = object(json!({ "apiVersion": "llamastack.io/v1alpha1",
            "kind": "LlamaStackDistribution", "metadata": { "name": name, "annotations": { "own": "kept" } },
            "spec": { "replicas": 2, "server": { "distribution": { "name": "starter" } } } }));
        place.objects(family, "v1alpha1", namespace.name()).create(&PostParams::default(), &wish).await.unwrap();
    }

    // The leader is there first: it waits for a CRD of ours.
    let stop = CancellationToken::new();
    let leader = tokio::spawn(keep(place.server(account(&place).await), stop.clone()));
    let said = place.attach(&["llsd"]).ok_without_stderr();
    assert!(said.contains("changed, converted by https://127.0.0.1:"), "{said}");
    assert!(
        said.contains("note: objects stored as v1alpha1 can be read again once the operator converts them"),
        "{said}"
    );
    only_one_is_stored(&place, family).await;
    let after = place.without_conversion(family, namespace.name(), &names).await;
    for object in &after {
        assert_eq!(object.metadata.generation, Some(1), "{object:?}");
        assert_eq!(object.annotations()["own"], "kept");
    }
    let listed = place.objects(family, "v1alpha1", namespace.name()).list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), names.len(), "the old version is still served");
    stop.cancel();
    leader.await.unwrap();
    place.clear().await;
}

#[tokio::test]
async fn many_objects_are_stored_anew_and_none_is_changed() {
    const MANY: usize = 1200;
    let Some(place) = Place::take().await else { return };
    let (family, namespace) = (Family::Dgdr, place.cluster.namespace("many").await.unwrap());
    place.install_old(family).await;
    let names: Vec<String> = (0..MANY).map(|index| format!("r-{index}")).collect();
    for some in names.chunks(50) {
        let create = some.iter().map(|name| place.create_request(namespace.name(), name, json!({ "own": name })));
        futures::future::join_all(create).await;
    }
    place.attach(&["dgdr"]).ok_without_stderr();
    assert_eq!(place.stored(family).await, ["v1alpha1", "v1beta1"]);
    let looked_at = ["r-0", "r-517", "r-1199"];
    let as_written = place.objects(family, "v1alpha1", namespace.name());
    let mut before = Vec::new();
    for name in looked_at {
        before.push(as_written.get(name).await.unwrap());
    }

    // The list runs out of date at its second page, after the CRD, the first page and its hundred objects: it is begun again.
    let cutter = Cutter::at(1 + 1 + 100 + 1, Cut::Status(410)).with_reads();
    let server = place.server(cutter.around(&account(&place).await));
    let migrated = migrate(&server, family).await.unwrap();
    assert!(matches!(migrated, Migrated::Done { objects: MANY, .. }), "{migrated:?}");
    assert!(cutter.hit());
    assert_eq!(cutter.calls(), 1 + 1 + 100 + 1 + 12 + MANY + 2, "all pages once more, then the CRD is read and told");
    assert_eq!(place.stored(family).await, ["v1beta1"]);
    place.without_conversion(family, namespace.name(), &looked_at).await;
    for before in before {
        let after = as_written.get(&before.name_any()).await.unwrap();
        assert_eq!(identity(&before), identity(&after));
        assert_eq!(after.data["spec"]["profilingConfig"]["config"]["engine"]["extra"], json!(["a", 1, 2.5]));
        assert_ne!(before.resource_version(), after.resource_version(), "it was written");
    }

    let counter = Cutter::counting();
    let settled = migrate(&place.server(counter.around(&place.admin)), family).await.unwrap();
    assert!(matches!(settled, Migrated::Settled), "{settled:?}");
    assert_eq!(counter.calls(), 0, "settled means silent");
    place.clear().await;
}

#[tokio::test]
async fn an_object_that_cannot_be_converted_is_named_and_does_not_stop_the_others() {
    let Some(place) = Place::take().await else { return };
    let (family, namespace) = (Family::Dgdr, place.cluster.namespace("broken").await.unwrap());
    place.install_old(family).await;
    for name in ["a", "b", "c"] {
        let annotations = if name == "b" { json!({ BROKEN: "yes" }) } else { json!({}) };
        place.create_request(namespace.name(), name, annotations).await;
    }
    place.attach(&["dgdr"]).ok_without_stderr();
    let server = place.server(account(&place).await);
    let Migrated::Left(left) = migrate(&server, family).await.unwrap() else { panic!("b cannot be converted") };
    assert_eq!(left.count, 1, "{left}");
    assert_eq!(left.named[0].object, format!("{}/b", namespace.name()));
    assert!(left.to_string().contains("\"b\" is broken"), "{left}");
    assert_eq!(place.stored(family).await, ["v1alpha1", "v1beta1"], "b may still be stored as v1alpha1");
    place.without_conversion(family, namespace.name(), &["a", "c"]).await;

    // The leader comes back to it by itself.
    let stop = CancellationToken::new();
    let leader = tokio::spawn(keep(server, stop.clone()));
    place.converter.mend();
    only_one_is_stored(&place, family).await;
    stop.cancel();
    leader.await.unwrap();
    place.clear().await;
}

#[tokio::test]
async fn without_a_converter_nothing_is_stored_anew() {
    let Some(place) = Place::take().await else { return };
    let (family, namespace) = (Family::Dgdr, place.cluster.namespace("unconverted").await.unwrap());
    place.install_old(family).await;
    let created = place.create_request(namespace.name(), "a", json!({})).await;
    place.attach(&["dgdr"]).ok_without_stderr();
    let none = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
    place.crds().patch(family.crd_name(), &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
    let counter = Cutter::counting();
    let refused = migrate(&place.server(counter.around(&place.admin)), family).await.unwrap_err();
    assert!(matches!(refused, MigrateError::NotConverted { .. }), "{refused}");
    assert!(refused.to_string().contains("attach the conversion with `steersman crds --apply`"), "{refused}");
    assert_eq!(counter.calls(), 0);
    let still = place.objects(family, "v1alpha1", namespace.name()).get("a").await.unwrap();
    assert_eq!(still.resource_version(), created.resource_version());
    place.clear().await;
}
