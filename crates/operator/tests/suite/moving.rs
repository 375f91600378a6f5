//! A user moves from the published CRD and its operator to Steersman, and leaves again: nothing is lost on either way.

use kube::api::{Api, DynamicObject, PostParams};
use rustix::process::Signal;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::{object, skip, wait};

use crate::certs::Site;
use crate::command::{run, steersman_as_admin};
use crate::schemas::{install, published, resource, uninstall};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A manifest of old, with a field that only the old version has.
fn old(name: &str) -> Value {
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
async fn objects_of_old_are_migrated_served_and_left_readable() {
    let Some(site) = Site::prepared().await else { return };
    let Some(crd) = published() else {
        return skip::skip("the move from the published CRD", "no upstream files");
    };
    install(&site.admin, &crd, &resource(Family::Llsd, "v1alpha1")).await;
    let namespace = site.cluster.namespace("moving").await.unwrap();
    let objects = |version: &str| -> Api<DynamicObject> {
        Api::namespaced_with(site.admin.clone(), namespace.name(), &resource(Family::Llsd, version))
    };
    let mut before = Vec::new();
    for name in NAMES {
        before.push(objects("v1alpha1").create(&PostParams::default(), &object(old(name))).await.unwrap());
    }

    // The new CRD is there first, as a chart would have it: from now on nothing can be converted until we are ready.
    let url = site.forwarder.url();
    let said = run(steersman_as_admin(site.cluster, &["crds", "--apply", "llsd", "--webhook-url", &url])).await.ok();
    assert!(said.contains("llamastackdistributions.llamastack.io: changed"), "{said}");
    assert!(objects("v1alpha2").get("a").await.is_err(), "nobody converts yet");

    // A Service sends nothing to a pod that is not ready. Were readiness to wait for objects, it would wait for ever.
    let flags = ["--webhooks", "on", "--webhook-address", "127.0.0.1:0", "--webhook-url", &url];
    let mut operator = site.place.start("mover", &flags).await;
    operator.until_answer("/readyz", 200).await;
    site.route_to(&operator).await;

    let stored = async || {
        let crd = site.crds().get(Family::Llsd.crd_name()).await.ok()?;
        (crd.status?.stored_versions == Some(vec!["v1alpha2".to_owned()])).then_some(())
    };
    let migrated = wait::eventually("all objects are stored as v1alpha2", stored).await;
    migrated.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    for before in &before {
        let name = before.metadata.name.as_deref().unwrap();
        let seen = objects("v1alpha1").get(name).await.unwrap();
        assert_eq!(seen.metadata.uid, before.metadata.uid);
        assert_eq!(seen.metadata.labels, before.metadata.labels);
        assert_eq!(seen.metadata.generation, before.metadata.generation, "nobody changed anything");
        assert_eq!(seen.data["spec"]["server"]["containerSpec"]["name"], "own-name", "what v1alpha2 cannot say");
        assert_eq!(seen.data["spec"]["server"]["storage"]["size"], "20Gi");
        let newer = objects("v1alpha2").get(name).await.unwrap();
        assert_eq!(newer.data["spec"]["workload"]["storage"]["size"], "20Gi");
        // And they are acted on, under the name that only the old version has for the container.
        let acted = async || {
            let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = namespace.all();
            let container = deployments.get_opt(name).await.ok()??.spec?.template.spec?.containers.remove(0);
            (container.name == "own-name").then_some(())
        };
        let acted = wait::eventually("its Deployment is there", acted).await;
        acted.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    }
    let shown = site.cluster.kubectl(&["get", "llsd", "-n", namespace.name()]).unwrap();
    assert_eq!(shown.lines().count(), 1 + NAMES.len(), "{shown}");

    // The way out: detach while the operator runs, then stop it for good.
    let said = run(steersman_as_admin(site.cluster, &["crds", "--detach"])).await.ok();
    assert!(said.contains("llamastackdistributions.llamastack.io: detached; served as v1alpha2 only"), "{said}");
    operator.signal(Signal::TERM);
    assert_eq!(operator.exit_code().await, Some(0));
    let shown = site.cluster.kubectl(&["get", "llsd", "-n", namespace.name(), "-o", "name"]).unwrap();
    assert_eq!(shown.lines().count(), NAMES.len(), "{shown}");
    let arguments = ["delete", "llsd", "--all", "-n", namespace.name(), "--timeout=120s"];
    let gone = site.cluster.kubectl(&arguments).unwrap();
    assert_eq!(gone.lines().count(), NAMES.len(), "{gone}");
    operator.assert_log_is_json();
    uninstall(&site.admin, Family::Llsd).await;
}
