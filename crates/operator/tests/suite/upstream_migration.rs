//! Migration from earlier CRDs and their operators to Steersman and back: objects keep their content both ways.

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use rustix::process::Signal;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::{condition_parts, object, skip, wait};

use crate::certs::WebhookEnv;
use crate::command::{run, steersman_as_admin};
use crate::schemas::{api_resource, install_crd, published_crd, single_version_crd, uninstall_crd};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A v1alpha1 manifest with a field that v1alpha2 does not have.
fn old_manifest(name: &str) -> Value {
    json!({
        "apiVersion": "llamastack.io/v1alpha1",
        "kind": "LlamaStackDistribution",
        "metadata": { "name": name, "labels": { "team": "search" } },
        "spec": { "replicas": 1, "server": {
            "distribution": { "name": "starter" },
            "containerSpec": { "name": "own-name", "port": 8321, "env": [{ "name": "A", "value": "b" }] },
            "storage": { "size": "20Gi" },
        } },
    })
}

#[tokio::test]
async fn old_objects_are_migrated_and_stay_readable() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    let Some(crd) = published_crd() else {
        return skip::skip("the move from the published CRD", "no upstream files");
    };
    install_crd(&env.admin, &crd, &api_resource(Family::Llsd, "v1alpha1")).await;
    let namespace = env.cluster.namespace("moving").await.unwrap();
    let objects = |version: &str| -> Api<DynamicObject> {
        Api::namespaced_with(env.admin.clone(), namespace.name(), &api_resource(Family::Llsd, version))
    };
    let mut before = Vec::new();
    for name in NAMES {
        before.push(objects("v1alpha1").create(&PostParams::default(), &object(old_manifest(name))).await.unwrap());
    }

    // Like a Helm chart, the test installs the CRD first. Nothing can be converted until the operator is ready.
    let url = env.forwarder.url();
    let output = run(steersman_as_admin(env.cluster, &["crds", "--apply", "llsd", "--webhook-url", &url])).await.ok();
    assert!(output.contains("llamastackdistributions.llamastack.io: changed"), "{output}");
    assert!(objects("v1alpha2").get("a").await.is_err(), "no operator converts yet");

    // A Service sends nothing to a pod that is not ready, so readiness must not wait for objects that need conversion.
    let flags = ["--webhooks", "on", "--webhook-address", "127.0.0.1:0", "--webhook-url", &url];
    let mut operator = env.installation.start("mover", &flags).await;
    operator.until_answer("/readyz", 200).await;
    env.route_to(&operator).await;

    let stored = async || {
        let crd = env.crds().get(Family::Llsd.crd_name()).await.ok()?;
        (crd.status?.stored_versions == Some(vec!["v1alpha2".to_owned()])).then_some(())
    };
    let migrated = wait::eventually("all objects are stored as v1alpha2", stored).await;
    migrated.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    for before in &before {
        let name = before.metadata.name.as_deref().unwrap();
        let older = objects("v1alpha1").get(name).await.unwrap();
        assert_eq!(older.metadata.uid, before.metadata.uid);
        assert_eq!(older.metadata.labels, before.metadata.labels);
        assert_eq!(older.metadata.generation, before.metadata.generation, "the migration is no change of the spec");
        assert_eq!(
            older.data["spec"]["server"]["containerSpec"]["name"], "own-name",
            "a field that v1alpha2 does not have"
        );
        assert_eq!(older.data["spec"]["server"]["storage"]["size"], "20Gi");
        let newer = objects("v1alpha2").get(name).await.unwrap();
        assert_eq!(newer.data["spec"]["workload"]["storage"]["size"], "20Gi");
        // The objects are reconciled, with the container name that only v1alpha1 can set.
        let deployed = async || {
            let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = namespace.api();
            let container = deployments.get_opt(name).await.ok()??.spec?.template.spec?.containers.remove(0);
            (container.name == "own-name").then_some(())
        };
        let waited = wait::eventually("its Deployment exists", deployed).await;
        waited.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    }
    let shown = env.cluster.kubectl(&["get", "llsd", "-n", namespace.name()]).unwrap();
    assert_eq!(shown.lines().count(), 1 + NAMES.len(), "{shown}");

    // Uninstallation: detach the CRDs while the operator runs, then stop it.
    let output = run(steersman_as_admin(env.cluster, &["crds", "--detach"])).await.ok();
    assert!(output.contains("llamastackdistributions.llamastack.io: detached; served as v1alpha2 only"), "{output}");
    operator.signal(Signal::TERM);
    assert_eq!(operator.exit_code().await, Some(0));
    let shown = env.cluster.kubectl(&["get", "llsd", "-n", namespace.name(), "-o", "name"]).unwrap();
    assert_eq!(shown.lines().count(), NAMES.len(), "{shown}");
    let arguments = ["delete", "llsd", "--all", "-n", namespace.name(), "--timeout=120s"];
    let deleted = env.cluster.kubectl(&arguments).unwrap();
    assert_eq!(deleted.lines().count(), NAMES.len(), "{deleted}");
    operator.assert_log_is_json();
    uninstall_crd(&env.admin, Family::Llsd).await;
}

/// Earlier schemas accepted any configuration. The API server fails the whole list if one object cannot be converted.
#[tokio::test]
async fn request_with_wrong_configuration_hides_no_other() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    let family = Family::Dgdr;
    let mut crd = json!(single_version_crd(family, "v1alpha1"));
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let config = crd.pointer_mut(&format!("{spec}/profilingConfig/properties/config")).unwrap();
    *config = json!({ "x-kubernetes-preserve-unknown-fields": true });
    install_crd(&env.admin, &object(crd), &api_resource(family, "v1alpha1")).await;
    let namespace = env.cluster.namespace("odd-config").await.unwrap();
    let objects = |version: &str| -> Api<DynamicObject> {
        Api::namespaced_with(env.admin.clone(), namespace.name(), &api_resource(family, version))
    };
    let names = ["good", "odd"];
    for (name, config) in names.into_iter().zip([json!({ "engine": {} }), json!("sla: fast")]) {
        let profiling = json!({ "profilerImage": "planner:1.4.0", "outputPVC": "results", "config": config });
        let request = json!({ "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest",
            "metadata": { "name": name }, "spec": { "model": "m", "backend": "vllm", "profilingConfig": profiling } });
        objects("v1alpha1").create(&PostParams::default(), &object(request)).await.unwrap();
    }
    let url = env.forwarder.url();
    run(steersman_as_admin(env.cluster, &["crds", "--apply", "dgdr", "--webhook-url", &url])).await.ok();
    let flags = ["--controllers", "dgdr", "--operator-image", "steersman:1", "--webhook-url", &url];
    let mut operator = env.start_behind_service("odd-config", &flags).await;

    let reconciled = async || {
        let listed = objects("v1beta1").list(&ListParams::default()).await.ok()?.items;
        let all =
            names.len() == listed.len() && listed.iter().all(|object| object.data["status"]["phase"] == "Pending");
        all.then_some(listed)
    };
    let listed = wait::eventually("all requests are reconciled", reconciled).await;
    let listed = listed.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    let odd = listed.iter().find(|object| object.name_any() == "odd").unwrap();
    let remark = condition_parts(&odd.data["status"], "SpecAccepted");
    assert_eq!(remark.1, "FieldIgnored");
    assert!(remark.2.starts_with("Fields of v1alpha1 without effect: spec.profilingConfig.config."), "{}", remark.2);
    let older = objects("v1alpha1").get("odd").await.unwrap();
    assert_eq!(older.data["spec"]["profilingConfig"]["config"], "sla: fast", "the value is kept");
    assert!(
        operator.log().contains("failed to parse ProfilingConfig.Config: expected an object"),
        "{}",
        operator.log()
    );

    let stored = async || {
        let crd = env.crds().get(family.crd_name()).await.ok()?;
        (crd.status?.stored_versions == Some(vec!["v1beta1".to_owned()])).then_some(())
    };
    let migrated = wait::eventually("all requests are stored as v1beta1", stored).await;
    migrated.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    run(steersman_as_admin(env.cluster, &["crds", "--detach"])).await.ok();
    operator.signal(Signal::TERM);
    assert_eq!(operator.exit_code().await, Some(0));
    // NVIDIA's operator from 1.4 on reads this annotation only.
    for (name, config) in names.into_iter().zip([json!({ "engine": {} }), json!("sla: fast")]) {
        let stored = objects("v1beta1").get(name).await.unwrap();
        let envelope: Value = serde_json::from_str(&stored.annotations()["nvidia.com/dgdr-spec"]).unwrap();
        let profiling = &envelope["spec"]["profilingConfig"];
        assert_eq!((&profiling["outputPVC"], &profiling["config"]), (&json!("results"), &config), "{name}");
    }
    objects("v1beta1").delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    uninstall_crd(&env.admin, family).await;
}
