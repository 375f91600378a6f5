//! Migration from earlier CRDs and their operators to Steersman and back: objects keep their content both ways.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use rustix::process::Signal;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_reconcile::ADOPTED_LABEL;
use steersman_testkit::{condition_parts, object, skip, wait};

use crate::certs::WebhookEnv;
use crate::command::{run, steersman_as_admin};
use crate::llamastack::adoption::{assert_taken_over, go_operator_children, go_operator_objects, write_go_child};
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
            let deployments: Api<Deployment> = namespace.api();
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

/// The status that the Go operator writes for a running server.
fn go_operator_status(name: &str, namespace: &str) -> Value {
    let ready = |type_: &str, reason: &str, message: &str| {
        json!({ "type": type_, "status": "True", "reason": reason,
        "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    let provider = json!({ "api": "inference", "provider_id": "vllm", "provider_type": "remote::vllm", "config": {},
        "health": { "status": "OK", "message": "" } });
    json!({
        "phase": "Ready", "availableReplicas": 1,
        "version": { "operatorVersion": "0.6.0", "llamaStackServerVersion": "0.6.0", "lastUpdated": "2026-01-01T00:00:00Z" },
        "distributionConfig": { "activeDistribution": "starter", "providers": [provider],
            "availableDistributions": { "starter": "docker.io/llamastack/distribution-starter:0.6.0" } },
        "serviceURL": format!("http://{name}-service.{namespace}.svc.cluster.local:8321"),
        "conditions": [
            ready("DeploymentReady", "DeploymentReady", "Deployment is ready"),
            ready("HealthCheck", "HealthCheckPassed", "Health check passed"),
            ready("StorageReady", "StorageReady", "Storage is ready"),
        ],
    })
}

/// The whole way of an installation: the published CRD, objects with status and children as the Go operator writes them, our
/// CRD, a running operator, and the migration of the stored version, which adds the defaults of v1alpha2.
#[tokio::test]
async fn go_operator_servers_survive_migration() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    let Some(crd) = published_crd() else {
        return skip::skip("the take-over of servers from the Go operator", "no upstream files");
    };
    install_crd(&env.admin, &crd, &api_resource(Family::Llsd, "v1alpha1")).await;
    let namespace = env.cluster.namespace("go-servers").await.unwrap();
    let objects = |version: &str| -> Api<DynamicObject> {
        Api::namespaced_with(env.admin.clone(), namespace.name(), &api_resource(Family::Llsd, version))
    };
    let authorities = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem();
    for (name, data) in
        [("mine", json!({ "config.yaml": "version: 2" })), ("authorities", json!({ "ca-bundle.crt": authorities }))]
    {
        let map: ConfigMap = object(json!({ "metadata": { "name": name }, "data": data }));
        namespace.api::<ConfigMap>().create(&PostParams::default(), &map).await.unwrap();
    }
    let deployments: Api<Deployment> = namespace.api();
    let manager = PatchParams { field_manager: Some("manager".into()), ..PatchParams::default() };
    let mut before = Vec::new();
    for (name, spec) in go_operator_objects() {
        let manifest = json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
            "metadata": { "name": name }, "spec": spec });
        let own = objects("v1alpha1").create(&PostParams::default(), &object(manifest)).await.unwrap();
        let children = go_operator_children(name, &spec, &own, &authorities);
        for child in &children {
            write_go_child(&env.admin, namespace.name(), name, child).await;
        }
        let status = Patch::Merge(json!({ "status": go_operator_status(name, namespace.name()) }));
        objects("v1alpha1").patch_status(name, &manager, &status).await.unwrap();
        before.push((name, own, children, deployments.get(name).await.unwrap()));
    }

    let url = env.forwarder.url();
    run(steersman_as_admin(env.cluster, &["crds", "--apply", "llsd", "--webhook-url", &url])).await.ok();
    let mut operator = env.start("go-servers", &["--controllers", "llsd"]).await;
    let stored = async || {
        let crd = env.crds().get(Family::Llsd.crd_name()).await.ok()?;
        (crd.status?.stored_versions == Some(vec!["v1alpha2".to_owned()])).then_some(())
    };
    let migrated = wait::eventually("all objects are stored as v1alpha2", stored).await;
    migrated.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    let labels = |deployment: &Deployment| deployment.metadata.labels.clone().unwrap_or_default();
    for (name, ..) in &before {
        let adopted = wait::until(deployments.clone(), name, "is adopted", wait::TIMEOUT, |live| {
            labels(live).contains_key(ADOPTED_LABEL)
        });
        adopted.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    }
    for (name, _, _, deployment) in &before {
        assert_eq!(deployments.get(name).await.unwrap().spec, deployment.spec, "{name}: adoption changes nothing");
    }
    // The stored objects have the defaults of v1alpha2 by now. A restored label shows that they were reconciled again.
    for (name, ..) in &before {
        let edited = json!({ "metadata": { "labels": { "app.kubernetes.io/part-of": "edited" } } });
        deployments.patch(name, &PatchParams::default(), &Patch::Merge(edited)).await.unwrap();
        let restored = wait::until(deployments.clone(), name, "has its label again", wait::TIMEOUT, |live| {
            labels(live).get("app.kubernetes.io/part-of").is_some_and(|value| value != "edited")
        });
        restored.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    }
    for (name, own, children, deployment) in &before {
        let live = deployments.get(name).await.unwrap();
        assert_eq!(live.metadata.uid, deployment.metadata.uid, "{name}");
        assert_eq!(live.spec, deployment.spec, "{name}");
        assert_eq!(live.metadata.generation, deployment.metadata.generation, "{name}: nothing rolls out");
        for child in children {
            assert_taken_over(&env.admin, namespace.name(), own, child).await;
        }
        let status = objects("v1alpha2").get(name).await.unwrap().data["status"].clone();
        assert_eq!(
            status["resolvedDistribution"]["image"], "docker.io/llamastack/distribution-starter:0.6.0",
            "{name}"
        );
        assert_eq!(condition_parts(&status, "SpecAccepted").0, "True", "{name}: {status:#}");
    }
    run(steersman_as_admin(env.cluster, &["crds", "--detach"])).await.ok();
    operator.signal(Signal::TERM);
    assert_eq!(operator.exit_code().await, Some(0));
    objects("v1alpha2").delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
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
