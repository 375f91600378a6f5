//! Installations with fewer rights than the shipped role: an operator of one namespace without a ClusterRole, and the roles that
//! `steersman rbac` prints for other flags. Each does its work, and misses no permission.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};
use steersman::installation::{NAME, SecretAccess};
use steersman::rbac::RbacArgs;
use steersman::settings::Switch;
use steersman_api::Family;
use steersman_testkit::{Flavour, Operator, OperatorCommand, apply, exclusive_cluster, object, wait};

use crate::installation::Installation;
use crate::schemas::{api_resource, install_crd, single_version_crd, uninstall_crd};
use crate::shell::root;

const FAMILIES: [Family; 3] = [Family::Dgdr, Family::Llsd, Family::Va];

/// The name of all objects.
const SERVED: &str = "served";

fn spec(family: Family) -> Value {
    match family {
        Family::Llsd => json!({ "distribution": { "name": "starter" } }),
        Family::Va => json!({ "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": SERVED },
                              "modelID": "m" }),
        Family::Dgdr | Family::Dgd => json!({ "model": "m", "backend": "vllm", "image": "profiler:1",
            "hardware": { "gpuSku": "h100_sxm", "numGpusPerNode": 8, "totalGpus": 8, "vramMb": 81920 } }),
    }
}

async fn install_crds(admin: &Client) {
    for family in FAMILIES {
        let version = family.storage_version();
        install_crd(admin, &single_version_crd(family, version), &api_resource(family, version)).await;
    }
}

async fn uninstall_crds(admin: &Client) {
    for family in FAMILIES {
        uninstall_crd(admin, family).await;
    }
}

/// Creates an object of the family, and waits until the operator has done its work: a Deployment for a server, a Job for a
/// request, and a scale target for a variant.
async fn use_family(admin: &Client, namespace: &str, family: Family, operator: &Operator) {
    let resource = api_resource(family, family.storage_version());
    let objects: Api<DynamicObject> = Api::namespaced_with(admin.clone(), namespace, &resource);
    let created: DynamicObject = object(json!({ "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": { "name": SERVED }, "spec": spec(family) }));
    objects.create(&PostParams::default(), &created).await.unwrap();
    let worked = async || match family {
        Family::Llsd => {
            let servers: Api<Deployment> = Api::namespaced(admin.clone(), namespace);
            servers.get_opt(SERVED).await.ok()?.map(drop)
        }
        Family::Va => {
            let found = objects.get(SERVED).await.ok()?;
            let resolved = |condition: &Value| condition["type"] == "TargetResolved" && condition["status"] == "True";
            found.data["status"]["conditions"].as_array()?.iter().any(resolved).then_some(())
        }
        Family::Dgdr | Family::Dgd => {
            let jobs: Api<Job> = Api::namespaced(admin.clone(), namespace);
            jobs.get_opt("profile-served").await.ok()?.map(drop)
        }
    };
    let reached = wait::eventually(&format!("the {family} has its effect"), worked).await;
    reached.unwrap_or_else(|error| panic!("{error}\n{}", operator.log().text()));
}

#[track_caller]
fn assert_nothing_forbidden(operator: &Operator) {
    assert!(!operator.log().text().to_lowercase().contains("forbidden"), "{}", operator.log().text());
}

/// The overlay of Kustomize, with the arguments of its Deployment.
#[tokio::test]
async fn single_namespace_needs_no_cluster_role() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let cluster = exclusive.cluster;
    let admin = cluster.admin().await.unwrap();
    install_crds(&admin).await;
    // The account is in this namespace too, so that it has no rights from other tests.
    let namespace = cluster.namespace("alone").await.unwrap();
    let name = namespace.name();
    let installation = Installation::new(cluster, name).await;
    let overlay = root().join("deploy/kustomize/overlays/namespaced").display().to_string();
    let rendered = installation.kubectl(&["kustomize", &overlay]).ok().replace("team-a", name);
    apply::apply_manifests(&admin, None, &rendered).await.unwrap();
    let account = cluster.service_account(name, NAME).await.unwrap();
    wait::until_allowed(&account, "list", "llmd.ai", "variantautoscalings", Some(name)).await.unwrap();
    let log = tempfile::tempdir().unwrap();
    let operator = installation.start_operator("alone", log.path()).await;
    // The variant scales the Deployment of the server.
    for family in [Family::Llsd, Family::Dgdr, Family::Va] {
        use_family(&admin, name, family, &operator).await;
    }
    assert_nothing_forbidden(&operator);
    let job: Job = namespace.api().get("profile-served").await.unwrap();
    let account = job.spec.unwrap().template.spec.unwrap().service_account_name;
    assert_eq!(account.as_deref(), Some("dgdr-profiling-job"), "the manifests contain it");
    drop(operator);
    uninstall_crds(&admin).await;
}

/// Roles that the flags make smaller, and the flags of the operator that runs with them.
fn smaller_roles() -> [(RbacArgs, Vec<&'static str>); 4] {
    let only = |family| RbacArgs { controllers: vec![family], ..RbacArgs::default() };
    [
        (only(Family::Llsd), vec!["--controllers", "llsd"]),
        (only(Family::Dgdr), vec!["--controllers", "dgdr"]),
        (RbacArgs { webhooks: Switch::Off, ..only(Family::Va) }, vec!["--controllers", "va", "--webhooks", "off"]),
        (RbacArgs { secrets: SecretAccess::None, ..RbacArgs::default() }, vec!["--secrets", "none"]),
    ]
}

#[tokio::test]
async fn smaller_roles_suffice_for_their_flags() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let cluster = exclusive.cluster;
    let admin = cluster.admin().await.unwrap();
    install_crds(&admin).await;
    for (index, (args, flags)) in smaller_roles().into_iter().enumerate() {
        // An account of its own, so that rights of the last one do not count.
        let namespace = cluster.namespace("smaller").await.unwrap();
        let name = namespace.name();
        let families = if args.controllers.is_empty() { FAMILIES.to_vec() } else { args.controllers.clone() };
        let manifests = RbacArgs { namespace: name.to_owned(), ..args }.manifests().unwrap();
        apply::apply_manifests(&admin, None, &manifests).await.unwrap();
        let account = cluster.service_account(name, NAME).await.unwrap();
        let (group, plural) = (families[0].group(), families[0].plural());
        wait::until_allowed(&account, "list", group, plural, None).await.unwrap();
        let kubeconfig = cluster.service_account_kubeconfig(name, NAME).await.unwrap();
        let log = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
        let command = OperatorCommand::new(program, &kubeconfig, &format!("smaller-{index}")).args(&flags);
        let command = command.args(&["--namespace", name, "--operator-image", "steersman:1"]);
        let operator = command.start(log.path()).unwrap();
        if !families.contains(&Family::Llsd) {
            let target: Deployment = object(json!({ "metadata": { "name": SERVED }, "spec": {
                "selector": { "matchLabels": { "app": SERVED } },
                "template": { "metadata": { "labels": { "app": SERVED } },
                              "spec": { "containers": [{ "name": "engine", "image": "engine:1" }] } } } }));
            namespace.api().create(&PostParams::default(), &target).await.unwrap();
        }
        for family in [Family::Llsd, Family::Dgdr, Family::Va].iter().filter(|family| families.contains(family)) {
            use_family(&admin, name, *family, &operator).await;
        }
        assert_nothing_forbidden(&operator);
    }
    uninstall_crds(&admin).await;
}
