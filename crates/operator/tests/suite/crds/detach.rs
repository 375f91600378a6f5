//! `crds --detach` on a real API server: objects stay usable without the operator.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use steersman_api::Family;
use steersman_testkit::object;

use super::env::CrdEnv;

const NAMES: [&str; 3] = ["a", "b", "c"];

async fn attach_with_old_requests(env: &CrdEnv, namespace: &str) {
    env.install_first_version(Family::Dgdr).await;
    for name in NAMES {
        env.create_request(namespace, name, json!({})).await;
    }
    env.attach(&["dgdr"]).ok_without_stderr();
}

#[tokio::test]
async fn detached_objects_are_usable_without_an_operator() {
    let Some(env) = CrdEnv::start().await else { return };
    let namespace = env.cluster.namespace("detached").await.unwrap();
    attach_with_old_requests(&env, namespace.name()).await;
    // NVIDIA's operator has added its finalizer to one of the requests.
    let finalizers = json!({ "metadata": { "finalizers": ["nvidia.com/finalizer", "example.com/own"] } });
    let newest = env.objects(Family::Dgdr, "v1beta1", namespace.name());
    newest.patch("b", &PatchParams::default(), &Patch::Merge(finalizers)).await.unwrap();
    env.attach(&["llsd", "va"]).ok_without_stderr();
    let llsd: DynamicObject = object(json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
        "metadata": { "name": "stack" }, "spec": { "distribution": { "name": "starter" } } }));
    env.objects(Family::Llsd, "v1alpha2", namespace.name()).create(&PostParams::default(), &llsd).await.unwrap();

    let output = env.steersman(&["--detach"]).ok_without_stderr();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(
        lines,
        [
            "variantautoscalings.llmd.ai: has no conversion webhook; nothing to detach",
            "dynamographdeploymentrequests.nvidia.com: 3 objects are stored as v1beta1, none as v1alpha1",
            "dynamographdeploymentrequests.nvidia.com: removed the finalizer nvidia.com/finalizer from 1 objects",
            "dynamographdeploymentrequests.nvidia.com: detached; served as v1beta1 only, no longer as v1alpha1",
            "llamastackdistributions.llamastack.io: detached; served as v1alpha2 only, no longer as v1alpha1",
        ]
    );
    env.converter.set_down(true);
    let second = env.steersman(&["--detach"]).ok_without_stderr();
    assert_eq!(second.matches("has no conversion webhook; nothing to detach").count(), 3, "{second}");
    let crd = env.crd(Family::Dgdr).await;
    assert_eq!(crd["spec"]["conversion"], json!({ "strategy": "None" }));
    assert_eq!(crd["status"]["storedVersions"], json!(["v1beta1"]));

    let listed = env.kubectl(&["get", "dgdr,llsd", "-n", namespace.name(), "-o", "name"]).ok_without_stderr();
    assert_eq!(listed.lines().count(), 4, "{listed}");
    let request = newest.get("b").await.unwrap();
    assert_eq!(
        request.metadata.finalizers,
        Some(vec!["example.com/own".to_owned()]),
        "only the finalizer that no controller removes is taken off"
    );
    let no_finalizers = json!({ "metadata": { "finalizers": null } });
    newest.patch("b", &PatchParams::default(), &Patch::Merge(no_finalizers)).await.unwrap();
    let deleted =
        env.kubectl(&["delete", "dgdr,llsd", "--all", "-n", namespace.name(), "--timeout=30s"]).ok_without_stderr();
    assert_eq!(deleted.lines().count(), 4, "{deleted}");

    env.converter.set_down(false);
    let output = env.attach(&["dgdr"]).ok_without_stderr();
    assert!(output.contains("changed, converted by https://127.0.0.1:"), "{output}");
    env.create_request(namespace.name(), "again", json!({})).await;
    assert_eq!(
        env.objects(Family::Dgdr, "v1beta1", namespace.name()).get("again").await.unwrap().data["spec"]["model"],
        "m"
    );
    env.remove_crds().await;
}

#[tokio::test]
async fn detach_fails_while_no_converter_answers() {
    let Some(env) = CrdEnv::start().await else { return };
    let namespace = env.cluster.namespace("down").await.unwrap();
    attach_with_old_requests(&env, namespace.name()).await;
    env.attach(&["llsd"]).ok_without_stderr();
    env.converter.set_down(true);
    let before = [env.crd(Family::Dgdr).await, env.crd(Family::Llsd).await];
    let output = env.steersman(&["--detach"]).one_line_failure();
    assert!(output.contains("the converter is down"), "{output}");
    assert!(
        output.contains("start it, wait until it is ready, and run this command again; no CRD was detached"),
        "{output}"
    );
    assert_eq!([env.crd(Family::Dgdr).await, env.crd(Family::Llsd).await], before);
    // Objects can still be read in the version in which they are stored.
    let old = "dynamographdeploymentrequests.v1alpha1.nvidia.com";
    let listed = env.kubectl(&["get", old, "-n", namespace.name(), "-o", "name"]);
    assert_eq!(listed.stdout.lines().count(), NAMES.len(), "{}{}", listed.stdout, listed.stderr);

    env.converter.set_down(false);
    assert!(env.steersman(&["--detach", "dgdr"]).ok_without_stderr().contains("detached; served as v1beta1 only"));
    env.remove_crds().await;
}

#[tokio::test]
async fn detach_skips_crds_with_another_converter() {
    let Some(env) = CrdEnv::start().await else { return };
    env.steersman(&["dgdr", "--apply"]).ok_without_stderr();
    let foreign_service = json!({ "spec": { "conversion": { "webhook": { "clientConfig":
        { "service": { "namespace": "dynamo-system", "name": "dynamo-operator-webhook-service" } } } } } });
    let helm = PatchParams { field_manager: Some("helm".to_owned()), ..PatchParams::default() };
    env.crds().patch(Family::Dgdr.crd_name(), &helm, &Patch::Merge(foreign_service)).await.unwrap();
    let before = env.crd(Family::Dgdr).await;
    let output = env.steersman(&["dgdr", "--detach"]).ok_without_stderr();
    assert!(
        output.contains("skipped: its conversion webhook is Service dynamo-system/dynamo-operator-webhook-service"),
        "{output}"
    );
    assert_eq!(env.crd(Family::Dgdr).await, before);
    let output = env.steersman(&["dgdr", "--apply"]).ok_without_stderr();
    assert!(
        output.contains("converted by Service steersman-system/steersman-webhook, previously by Service dynamo-system"),
        "{output}"
    );
    env.remove_crds().await;
}
