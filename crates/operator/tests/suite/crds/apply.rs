//! `crds --apply` on a real API server.

use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use steersman_api::Family;
use steersman_testkit::object;

use super::env::CrdEnv;
use crate::schemas::{self, api_resource};

#[tokio::test]
async fn crds_apply_is_idempotent() {
    let Some(env) = CrdEnv::start().await else { return };
    let first = env.steersman(&["--apply"]).ok_without_stderr();
    assert_eq!(
        first,
        "dynamographdeploymentrequests.nvidia.com: created, converted by Service steersman-system/steersman-webhook\n\
         llamastackdistributions.llamastack.io: created, converted by Service steersman-system/steersman-webhook\n\
         variantautoscalings.llmd.ai: created\n"
    );
    for family in steersman_api::crds::FAMILIES {
        let conditions = env.crd(family).await["status"]["conditions"].to_string();
        assert!(conditions.contains("Established") && !conditions.contains("NonStructuralSchema"), "{conditions}");
    }
    let second = env.steersman(&["--apply", "--wait"]).ok_without_stderr();
    assert_eq!(second, first.replace(": created", ": unchanged"));
    let one = env.steersman(&["va", "--apply", "--wait", "0"]).ok_without_stderr();
    assert_eq!(one, "variantautoscalings.llmd.ai: unchanged\n");
    env.remove_crds().await;
}

#[tokio::test]
async fn converter_and_bundle_survive_the_next_apply() {
    let Some(env) = CrdEnv::start().await else { return };
    let client = async || {
        let crd = env.crd(Family::Llsd).await;
        crd["spec"]["conversion"]["webhook"]["clientConfig"].clone()
    };
    let other = ["llsd", "--apply", "--webhook-namespace", "models"];
    assert!(
        env.steersman(&other).ok_without_stderr().contains("created, converted by Service models/steersman-webhook")
    );
    let injected = json!(ByteString(env.converter.authority.clone().into_bytes()));
    // The operator injects the bundle with its own field manager.
    let bundle = json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": injected } } } } });
    let operator = PatchParams { field_manager: Some("steersman/certs".to_owned()), ..PatchParams::default() };
    env.crds().patch(Family::Llsd.crd_name(), &operator, &Patch::Merge(bundle)).await.unwrap();
    for flags in [&other[..2], &other[..]] {
        let output = env.steersman(flags).ok_without_stderr();
        assert!(output.contains("unchanged, converted by Service models/steersman-webhook"), "{output}");
        assert_eq!(client().await["caBundle"], injected);
    }

    // The bundle belongs to the first server, so it is dropped with another one.
    let output =
        env.steersman(&["llsd", "--apply", "--webhook-url", "https://127.0.0.1:1/convert"]).ok_without_stderr();
    assert!(
        output.contains("changed, converted by https://127.0.0.1:1/convert, previously by Service models/"),
        "{output}"
    );
    assert_eq!(client().await, json!({ "url": "https://127.0.0.1:1/convert" }));
    // A bundle that was given by flag is kept as well.
    env.attach(&["llsd"]).ok_without_stderr();
    let attached = client().await;
    assert!(attached["caBundle"].is_string(), "{attached}");
    assert!(env.steersman(&["llsd", "--apply"]).ok_without_stderr().contains("unchanged"));
    assert_eq!(client().await, attached);
    let output = env.steersman(&["llsd", "--apply", "--webhook-service", "steersman-webhook"]).ok_without_stderr();
    assert!(
        output.contains("changed, converted by Service steersman-system/steersman-webhook, previously by http"),
        "{output}"
    );
    let back = client().await;
    assert_eq!((&back["url"], &back["caBundle"], &back["service"]["port"]), (&json!(null), &json!(null), &json!(443)));
    env.remove_crds().await;
}

#[tokio::test]
async fn missing_rights_are_listed() {
    let Some(env) = CrdEnv::start().await else { return };
    let visitor = env.cluster.user_kubeconfig("visitor").unwrap();
    for verb in ["--apply", "--detach"] {
        let output = env.steersman_as(&visitor, &[verb]).one_line_failure();
        assert!(output.contains("User \"visitor\" cannot get resource \"customresourcedefinitions\""), "{output}");
        assert!(output.contains("this command needs permission to get"), "{output}");
        assert!(output.contains("customresourcedefinitions of apiextensions.k8s.io") || verb == "--detach", "{output}");
    }
}

#[tokio::test]
async fn unknown_stored_version_blocks_the_apply() {
    let Some(env) = CrdEnv::start().await else { return };
    let mut foreign = schemas::single_version_crd(Family::Llsd, "v1alpha1");
    foreign.spec.versions[0].name = "v1".to_owned();
    schemas::install_crd(&env.admin, &foreign, &api_resource(Family::Llsd, "v1")).await;
    let before = env.crd(Family::Llsd).await;
    let output = env.steersman(&["llsd", "--apply"]).one_line_failure();
    assert!(output.contains("may have objects stored as v1, a version that Steersman does not support"), "{output}");
    assert!(output.contains("Store those objects as one of v1alpha1, v1alpha2"), "{output}");
    assert_eq!(env.crd(Family::Llsd).await, before);
    env.remove_crds().await;
}

/// The CRD has the first generation's schema and Helm's annotations, and holds one object.
#[tokio::test]
async fn helm_crd_and_first_generation_objects_are_noted() {
    let Some(env) = CrdEnv::start().await else { return };
    let namespace = env.cluster.namespace("generation-a").await.unwrap();
    let mut first = serde_json::to_value(schemas::single_version_crd(Family::Va, "v1alpha1")).unwrap();
    first["metadata"]["annotations"] =
        json!({ "meta.helm.sh/release-name": "wva", "meta.helm.sh/release-namespace": "autoscaler" });
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    first["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = open;
    let first: CustomResourceDefinition = object(first);
    let served = api_resource(Family::Va, "v1alpha1");
    schemas::install_crd(&env.admin, &first, &served).await;
    let profile = json!({ "accelerators": [{ "acc": "A100", "accCount": 1, "maxBatchSize": 8 }] });
    let old: DynamicObject = object(json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": { "name": "old" },
        "spec": { "modelID": "m", "sloClassRef": { "name": "n", "key": "k" }, "modelProfile": profile } }));
    let api: Api<DynamicObject> = Api::namespaced_with(env.admin.clone(), namespace.name(), &served);
    api.create(&PostParams::default(), &old).await.unwrap();

    let output = env.steersman(&["--apply", "va"]).ok_without_stderr();
    assert!(output.starts_with("variantautoscalings.llmd.ai: changed\n  note: "), "{output}");
    assert!(output.contains("the CRD is managed by the Helm release autoscaler/wva"), "{output}");
    assert!(
        output.contains(&format!("first-generation objects (spec.modelProfile): {}/old", namespace.name())),
        "{output}"
    );
    let stored = api.get("old").await.unwrap();
    assert_eq!(stored.data["spec"]["modelProfile"], profile, "its old fields stay readable");
    assert!(env.kubectl(&["delete", "va", "old", "-n", namespace.name()]).ok_without_stderr().contains("deleted"));
    env.remove_crds().await;
}
