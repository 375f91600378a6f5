//! A cluster whose CRDs one test has for itself, with a conversion webhook and the binary run as an administrator.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_runtime::client::Server;
use steersman_testkit::{Cluster, ExclusiveCluster, Flavour, exclusive_cluster, object, wait};

use super::converter::Converter;
use crate::command::{self, CommandOutput, output_of};
use crate::schemas::{self, api_resource, uninstall_crd};
use crate::server::server;

pub struct CrdEnv {
    pub cluster: &'static Cluster,
    pub admin: Client,
    pub converter: Converter,
    folder: tempfile::TempDir,
    _exclusive: ExclusiveCluster,
}

impl CrdEnv {
    /// Waits for exclusive use of the cluster and removes our CRDs. None if there is no cluster.
    pub async fn start() -> Option<Self> {
        let exclusive = exclusive_cluster(Flavour::Bare).await?;
        let cluster = exclusive.cluster;
        let admin = cluster.admin().await.unwrap();
        let converter = Converter::start();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), &converter.authority).unwrap();
        let env = Self { cluster, admin, converter, folder, _exclusive: exclusive };
        env.remove_crds().await;
        Some(env)
    }

    /// Removes our CRDs. Conversion is switched off first, because the API server reads all objects before it deletes a CRD.
    pub async fn remove_crds(&self) {
        for family in steersman_api::crds::FAMILIES {
            if self.crds().get_opt(family.crd_name()).await.unwrap().is_none() {
                continue;
            }
            let no_conversion = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
            self.crds().patch(family.crd_name(), &PatchParams::default(), &Patch::Merge(no_conversion)).await.unwrap();
            self.delete_objects(family).await;
            uninstall_crd(&self.admin, family).await;
        }
    }

    /// Deletes all objects and their finalizers. If the API server deletes them together with the CRD, it takes seconds.
    pub async fn delete_objects(&self, family: Family) {
        let crd = self.crd(family).await;
        let versions = crd["spec"]["versions"].as_array().unwrap();
        let storage = versions.iter().find(|version| version["storage"] == true).unwrap()["name"].as_str().unwrap();
        let all: Api<DynamicObject> = Api::all_with(self.admin.clone(), &api_resource(family, storage));
        // The API server takes a moment to notice that conversion is switched off.
        let listed = wait::eventually("objects are listed", async || all.list(&ListParams::default()).await.ok());
        let mut namespaces = BTreeSet::new();
        for object in &listed.await.unwrap().items {
            let namespace = object.namespace().unwrap();
            if !object.finalizers().is_empty() {
                let no_finalizers = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                let api = self.objects(family, storage, &namespace);
                api.patch(&object.name_any(), &PatchParams::default(), &no_finalizers).await.unwrap();
            }
            namespaces.insert(namespace);
        }
        for namespace in namespaces {
            let api = self.objects(family, storage, &namespace);
            api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        }
    }

    pub fn crds(&self) -> Api<DynamicObject> {
        let kind = kube::api::ApiResource::erase::<CustomResourceDefinition>(&());
        Api::all_with(self.admin.clone(), &kind)
    }

    pub async fn crd(&self, family: Family) -> Value {
        serde_json::to_value(self.crds().get(family.crd_name()).await.unwrap()).unwrap()
    }

    pub async fn stored_versions(&self, family: Family) -> Vec<String> {
        serde_json::from_value(self.crd(family).await["status"]["storedVersions"].clone()).unwrap()
    }

    pub fn server(&self, client: Client) -> Server {
        server(self.cluster, client)
    }

    /// Runs `steersman crds` with these arguments as the administrator.
    pub fn steersman(&self, arguments: &[&str]) -> CommandOutput {
        self.steersman_as(&self.cluster.admin_kubeconfig(), arguments)
    }

    pub fn steersman_as(&self, kubeconfig: &std::path::Path, arguments: &[&str]) -> CommandOutput {
        output_of(&mut command::steersman_as(kubeconfig, &[&["crds"], arguments].concat()))
    }

    /// Runs `crds --apply` with the converter of this test.
    pub fn attach(&self, families: &[&str]) -> CommandOutput {
        let authority = self.folder.path().join("ca.pem");
        let flags = ["--apply", "--webhook-url", &self.converter.url, "--webhook-ca", authority.to_str().unwrap()];
        self.steersman(&[families, &flags].concat())
    }

    pub fn kubectl(&self, arguments: &[&str]) -> CommandOutput {
        output_of(&mut command::kubectl(self.cluster, arguments))
    }

    /// Installs the CRD with v1alpha1 only.
    pub async fn install_first_version(&self, family: Family) {
        let old = schemas::single_version_crd(family, "v1alpha1");
        schemas::install_crd(&self.admin, &old, &api_resource(family, "v1alpha1")).await;
    }

    pub fn objects(&self, family: Family, version: &str, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), namespace, &api_resource(family, version))
    }

    /// Creates a request of v1alpha1.
    pub async fn create_request(&self, namespace: &str, name: &str, annotations: Value) -> DynamicObject {
        let request: DynamicObject = object(json!({
            "apiVersion": "nvidia.com/v1alpha1",
            "kind": "DynamoGraphDeploymentRequest",
            "metadata": { "name": name, "annotations": annotations, "labels": { "team": "search" } },
            "spec": {
                "model": "m",
                "backend": "vllm",
                "profilingConfig": { "profilerImage": "i", "config": { "engine": { "extra": ["a", 1, 2.5] } } },
            },
        }));
        let api = self.objects(Family::Dgdr, "v1alpha1", namespace);
        // The API server serves a version a moment after the CRD has it.
        let created = async || match api.create(&PostParams::default(), &request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            answer => Some(answer.unwrap()),
        };
        wait::eventually("v1alpha1 is served", created).await.unwrap()
    }

    /// Reads the objects in the storage version while the converter is down, which fails for objects stored in another version.
    pub async fn read_without_conversion(&self, family: Family, namespace: &str, names: &[&str]) -> Vec<DynamicObject> {
        self.converter.set_down(true);
        let api = self.objects(family, family.storage_version(), namespace);
        let mut objects = Vec::new();
        for name in names {
            objects.push(
                api.get(name)
                    .await
                    .unwrap_or_else(|error| panic!("{name} is not stored in the storage version: {error}")),
            );
        }
        self.converter.set_down(false);
        objects
    }
}
