//! An operator of one namespace, with the Roles that `steersman rbac --watch-namespace` prints and no ClusterRole.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};
use steersman::installation::NAME;
use steersman::rbac::RbacArgs;
use steersman_api::Family;
use steersman_testkit::{Flavour, apply, exclusive_cluster, object, wait};

use crate::process::operator::OperatorProcess;
use crate::schemas::{api_resource, install_crd, single_version_crd, uninstall_crd};

const FAMILIES: [Family; 3] = [Family::Dgdr, Family::Llsd, Family::Va];

fn spec(family: Family) -> Value {
    match family {
        Family::Llsd => json!({ "distribution": { "name": "starter" } }),
        Family::Va => json!({ "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "served" },
                              "modelID": "m" }),
        Family::Dgdr | Family::Dgd => json!({ "model": "m", "backend": "vllm", "image": "profiler:1",
            "hardware": { "gpuSku": "h100_sxm", "numGpusPerNode": 8, "totalGpus": 8, "vramMb": 81920 } }),
    }
}

#[tokio::test]
async fn single_namespace_needs_no_cluster_role() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let cluster = exclusive.cluster;
    let admin = cluster.admin().await.unwrap();
    for family in FAMILIES {
        let version = family.storage_version();
        install_crd(&admin, &single_version_crd(family, version), &api_resource(family, version)).await;
    }
    // The account is in this namespace too, so that it has no rights from other tests.
    let namespace = cluster.namespace("alone").await.unwrap();
    let name = namespace.name();
    let args = RbacArgs { namespace: name.to_owned(), watch_namespace: Some(name.to_owned()), ..RbacArgs::default() };
    apply::apply_manifests(&admin, None, &args.manifests().unwrap()).await.unwrap();
    let account = cluster.service_account(name, NAME).await.unwrap();
    wait::until_allowed(&account, "list", "llmd.ai", "variantautoscalings", Some(name)).await.unwrap();
    let kubeconfig = cluster.service_account_kubeconfig(name, NAME).await.unwrap();
    let flags =
        ["--namespace", name, "--watch-namespace", name, "--dgdr-profiling-cluster-role=", "--gpu-discovery=off"];
    let operator =
        OperatorProcess::spawn(&kubeconfig, "alone", &[&flags[..], &["--operator-image", "steersman:1"]].concat());
    for family in FAMILIES {
        let resource = api_resource(family, family.storage_version());
        let objects: Api<DynamicObject> = Api::namespaced_with(admin.clone(), name, &resource);
        let created: DynamicObject = object(json!({ "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": { "name": "served" }, "spec": spec(family) }));
        objects.create(&PostParams::default(), &created).await.unwrap();
        let reconciled = async || {
            let found = objects.get("served").await.ok()?;
            (!found.data["status"]["conditions"].as_array()?.is_empty()).then_some(())
        };
        let reached = wait::eventually(&format!("the {family} has conditions"), reconciled).await;
        reached.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    }
    wait::until(namespace.api::<Deployment>(), "served", "exists", wait::TIMEOUT, |_| true).await.unwrap();
    let job = wait::until(namespace.api::<Job>(), "profile-served", "exists", wait::TIMEOUT, |_| true).await.unwrap();
    let account = job.spec.unwrap().template.spec.unwrap().service_account_name;
    assert_eq!(account.as_deref(), Some("dgdr-profiling-job"), "the manifests contain it");
    drop(operator);
    for family in FAMILIES {
        uninstall_crd(&admin, family).await;
    }
}
