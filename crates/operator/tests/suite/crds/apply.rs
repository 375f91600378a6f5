//! `crds --apply` on a real API server.

use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use steersman_api::Family;
use steersman_testkit::object;

use super::place::Place;
use crate::schemas::{self, resource};

#[tokio::test]
async fn all_crds_are_installed_and_a_second_time_nothing_changes() {
    let Some(place) = Place::take().await else { return };
    let first = place.steersman(&["--apply"]).ok_without_stderr();
    assert_eq!(
        first,
        "dynamographdeploymentrequests.nvidia.com: created, converted by Service steersman-system/steersman-webhook\n\
         llamastackdistributions.llamastack.io: created, converted by Service steersman-system/steersman-webhook\n\
         variantautoscalings.llmd.ai: created\n"
    );
    for family in steersman_api::crds::FAMILIES {
        let conditions = place.crd(family).await["status"]["conditions"].to_string();
        assert!(conditions.contains("Established") && !conditions.contains("NonStructuralSchema"), "{conditions}");
    }
    let again = place.steersman(&["--apply", "--wait"]).ok_without_stderr();
    assert_eq!(again, first.replace(": created", ": unchanged"));
    let one = place.steersman(&["va", "--apply", "--wait", "0"]).ok_without_stderr();
    assert_eq!(one, "variantautoscalings.llmd.ai: unchanged\n");
    place.clear().await;
}

#[tokio::test]
async fn the_choice_of_a_converter_and_an_injected_bundle_survive_the_next_apply() {
    let Some(place) = Place::take().await else { return };
    let client = async || {
        let crd = place.crd(Family::Llsd).await;
        crd["spec"]["conversion"]["webhook"]["clientConfig"].clone()
    };
    let other = ["llsd", "--apply", "--webhook-namespace", "models"];
    assert!(
        place.steersman(&other).ok_without_stderr().contains("created, converted by Service models/steersman-webhook")
    );
    let injected = json!(ByteString(place.converter.authority.clone().into_bytes()));
    // As the operator does it, under a name of its own.
    let bundle = json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": injected } } } } });
    let operator = PatchParams { field_manager: Some("steersman/certs".to_owned()), ..PatchParams::default() };
    place.crds().patch(Family::Llsd.crd_name(), &operator, &Patch::Merge(bundle)).await.unwrap();
    for flags in [&other[..2], &other[..]] {
        let said = place.steersman(flags).ok_without_stderr();
        assert!(said.contains("unchanged, converted by Service models/steersman-webhook"), "{said}");
        assert_eq!(client().await["caBundle"], injected);
    }

    // Another server: what vouched for the first says nothing about it.
    let said =
        place.steersman(&["llsd", "--apply", "--webhook-url", "https://127.0.0.1:1/convert"]).ok_without_stderr();
    assert!(said.contains("changed, converted by https://127.0.0.1:1/convert, before by Service models/"), "{said}");
    assert_eq!(client().await, json!({ "url": "https://127.0.0.1:1/convert" }));
    // A bundle that was applied stays too.
    place.attach(&["llsd"]).ok_without_stderr();
    let attached = client().await;
    assert!(attached["caBundle"].is_string(), "{attached}");
    assert!(place.steersman(&["llsd", "--apply"]).ok_without_stderr().contains("unchanged"));
    assert_eq!(client().await, attached);
    let said = place.steersman(&["llsd", "--apply", "--webhook-service", "steersman-webhook"]).ok_without_stderr();
    assert!(
        said.contains("changed, converted by Service steersman-system/steersman-webhook, before by http"),
        "{said}"
    );
    let back = client().await;
    assert_eq!((&back["url"], &back["caBundle"], &back["service"]["port"]), (&json!(null), &json!(null), &json!(443)));
    place.clear().await;
}

#[tokio::test]
async fn who_may_not_is_told_what_it_needs() {
    let Some(place) = Place::take().await else { return };
    let nobody = place.cluster.user_kubeconfig("visitor").unwrap();
    for verb in ["--apply", "--detach"] {
        let said = place.steersman_as(&nobody, &[verb]).one_line_failure();
        assert!(said.contains("User \"visitor\" cannot get resource \"customresourcedefinitions\""), "{said}");
        assert!(said.contains("this needs the right to get"), "{said}");
        assert!(said.contains("customresourcedefinitions of apiextensions.k8s.io") || verb == "--detach", "{said}");
    }
}

#[tokio::test]
async fn objects_of_an_unknown_version_are_not_made_unreadable() {
    let Some(place) = Place::take().await else { return };
    let mut foreign = schemas::only(Family::Llsd, "v1alpha1");
    foreign.spec.versions[0].name = "v1".to_owned();
    schemas::install(&place.admin, &foreign, &resource(Family::Llsd, "v1")).await;
    let before = place.crd(Family::Llsd).await;
    let said = place.steersman(&["llsd", "--apply"]).one_line_failure();
    assert!(said.contains("may hold objects stored as v1, a version that Steersman does not know"), "{said}");
    assert!(said.contains("store those objects in one of v1alpha1, v1alpha2"), "{said}");
    assert_eq!(place.crd(Family::Llsd).await, before);
    place.clear().await;
}

/// A CRD of the first generation's shape, kept by Helm, with an object in it.
#[tokio::test]
async fn a_crd_of_another_tool_and_objects_of_the_first_generation_are_pointed_out() {
    let Some(place) = Place::take().await else { return };
    let namespace = place.cluster.namespace("generation-a").await.unwrap();
    let mut first = serde_json::to_value(schemas::only(Family::Va, "v1alpha1")).unwrap();
    first["metadata"]["annotations"] =
        json!({ "meta.helm.sh/release-name": "wva", "meta.helm.sh/release-namespace": "autoscaler" });
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    first["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = open;
    let first: CustomResourceDefinition = object(first);
    let served = resource(Family::Va, "v1alpha1");
    schemas::install(&place.admin, &first, &served).await;
    let profile = json!({ "accelerators": [{ "acc": "A100", "accCount": 1, "maxBatchSize": 8 }] });
    let old: DynamicObject = object(json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": { "name": "old" },
        "spec": { "modelID": "m", "sloClassRef": { "name": "n", "key": "k" }, "modelProfile": profile } }));
    let api: Api<DynamicObject> = Api::namespaced_with(place.admin.clone(), namespace.name(), &served);
    api.create(&PostParams::default(), &old).await.unwrap();

    let said = place.steersman(&["--apply", "va"]).ok_without_stderr();
    assert!(said.starts_with("variantautoscalings.llmd.ai: changed\n  note: "), "{said}");
    assert!(said.contains("the CRD belongs to the Helm release autoscaler/wva"), "{said}");
    assert!(
        said.contains(&format!("{}/old are of the first generation (spec.modelProfile)", namespace.name())),
        "{said}"
    );
    let kept = api.get("old").await.unwrap();
    assert_eq!(kept.data["spec"]["modelProfile"], profile, "what it says stays readable");
    assert!(place.kubectl(&["delete", "va", "old", "-n", namespace.name()]).ok_without_stderr().contains("deleted"));
    place.clear().await;
}
