//! Migration from the published CRD and its operator to Steersman and back: objects keep their content both ways.

use kube::api::{Api, DynamicObject, PostParams};
use rustix::process::Signal;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::{object, skip, wait};

use crate::certs::WebhookEnv;
use crate::command::{run, steersman_as_admin};
use crate::schemas::{api_resource, install_crd, published_crd, uninstall_crd};

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
