//! The CRDs on a real API server: they accept the valid fixtures, refuse the invalid ones with the documented messages, and
//! show the documented columns.

use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{self, Options};
use steersman_testkit::{Flavour, apply, exclusive_cluster, wait};

struct Fixture {
    name: String,
    object: Value,
    /// The expected message of the API server. None for a valid fixture.
    refused: Option<String>,
}

impl Fixture {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let refused = text.lines().next().and_then(|line| line.strip_prefix("# refused: ")).map(str::to_owned);
        let mut object: Value =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // Tests use their own namespaces.
        object["metadata"].as_object_mut().unwrap().remove("namespace");
        Self { name: path.display().to_string(), object, refused }
    }

    fn version(&self) -> &str {
        self.object["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap()
    }
}

fn fixtures(family: Family, kind: &str) -> Vec<Fixture> {
    let folder = match family {
        Family::Dgdr | Family::Dgd => "dynamo",
        Family::Llsd => "llamastack",
        Family::Va => "variant",
    };
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../api/tests/fixtures", folder, kind].iter().collect();
    if !folder.is_dir() {
        return Vec::new();
    }
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|path| Fixture::read(path)).collect()
}

/// The CRD with this version alone, so that no conversion is needed.
pub fn single_version_crd(family: Family, version: &str) -> CustomResourceDefinition {
    let mut crd = crds::crd(family, &Options::default()).unwrap();
    crd.spec.versions.retain(|candidate| candidate.name == version);
    crd.spec.versions[0].storage = true;
    crd
}

/// The CRD that the llama-stack project publishes. None if the upstream files are missing.
pub fn published_crd() -> Option<CustomResourceDefinition> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../../shared/upstream/llamastack"].iter().collect();
    let text = std::fs::read_to_string(folder.join("crd-v1alpha1.yaml")).ok()?;
    Some(serde_saphyr::from_str_with_options(&text, serde_saphyr::options! { budget: None }).unwrap())
}

pub fn api_resource(family: Family, version: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk(family.group(), version, family.kind());
    ApiResource::from_gvk_with_plural(&kind, family.plural())
}

/// Installs a CRD and waits until its objects can be listed and discovery shows it. A CRD of a failed test is removed first.
pub async fn install_crd(client: &Client, crd: &CustomResourceDefinition, served: &ApiResource) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    if crds.delete(&crd.name_any(), &DeleteParams::default()).await.is_ok() {
        wait::until_gone(crds.clone(), &crd.name_any()).await.unwrap();
    }
    crds.create(&PostParams::default(), crd).await.unwrap();
    let is = |crd: &CustomResourceDefinition, type_: &str| {
        let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == type_ && condition.status == "True")
    };
    let name = crd.name_any();
    let established = wait::until(crds, &name, "is established", wait::TIMEOUT, |crd| is(crd, "Established"));
    let installed = established.await.unwrap();
    assert!(!is(&installed, "NonStructuralSchema"), "{:?}", installed.status);
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), served);
    let listed = async || objects.list(&ListParams::default()).await.ok().map(|_| ());
    wait::eventually(&format!("{name} is served"), listed).await.unwrap();
    // Discovery shows a new kind later than its objects can be listed.
    let discovered = async || {
        let group = client.list_api_group_resources(&served.api_version).await.ok()?;
        group.resources.iter().any(|resource| resource.name == served.plural).then_some(())
    };
    wait::eventually(&format!("{name} is discovered"), discovered).await.unwrap();
}

pub async fn uninstall_crd(client: &Client, family: Family) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.delete(family.crd_name(), &DeleteParams::default()).await.unwrap();
    wait::until_gone(crds, family.crd_name()).await.unwrap();
}

fn assert_response(fixture: &Fixture, response: kube::Result<DynamicObject>) {
    match (&fixture.refused, response) {
        (None, Ok(_)) => {}
        (None, Err(error)) => panic!("{} is refused: {error}", fixture.name),
        (Some(text), Ok(_)) => panic!("{} is accepted, but should be refused with: {text}", fixture.name),
        (Some(text), Err(kube::Error::Api(status))) => {
            assert!(status.message.contains(text), "{}: expected {text:?} in {:?}", fixture.name, status.message);
        }
        (Some(_), Err(error)) => panic!("{}: the API server did not answer: {error}", fixture.name),
    }
}

/// Creates every fixture of the family, version by version, and compares the response with the documented one.
async fn check_fixtures(family: Family) {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let cluster = exclusive.cluster;
    let client = cluster.admin().await.unwrap();
    let namespace = cluster.namespace(family.short_name()).await.unwrap();
    for version in family.served_versions() {
        let served = api_resource(family, version);
        install_crd(&client, &single_version_crd(family, version), &served).await;
        let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace.name(), &served);
        let of_version =
            |kind: &str| fixtures(family, kind).into_iter().filter(|fixture| fixture.version() == *version);
        let mut counts = (0, 0);
        for fixture in of_version("valid").chain(of_version("invalid")) {
            let object: DynamicObject = serde_json::from_value(fixture.object.clone()).unwrap();
            let dry_run = PostParams { dry_run: true, ..PostParams::default() };
            assert_response(&fixture, objects.create(&dry_run, &object).await);
            *if fixture.refused.is_none() { &mut counts.0 } else { &mut counts.1 } += 1;
        }
        assert!(counts.0 > 0 && counts.1 > 0, "{family} {version}: {counts:?} fixtures valid and invalid");
        for (index, fixture) in of_version("valid-status").chain(of_version("invalid-status")).enumerate() {
            check_status_fixture(&objects, &fixture, &format!("status-{index}")).await;
        }
        uninstall_crd(&client, family).await;
    }
}

/// The API server drops the status of a new object, so the status is written in a second request.
async fn check_status_fixture(objects: &Api<DynamicObject>, fixture: &Fixture, name: &str) {
    let mut wanted = fixture.object.clone();
    wanted["metadata"]["name"] = json!(name);
    let created: DynamicObject = serde_json::from_value(wanted.clone()).unwrap();
    let created = objects.create(&PostParams::default(), &created).await.unwrap();
    let mut with_status = serde_json::to_value(&created).unwrap();
    with_status["status"] = wanted["status"].clone();
    let with_status: DynamicObject = serde_json::from_value(with_status).unwrap();
    assert_response(fixture, objects.replace_status(name, &PostParams::default(), &with_status).await);
}

#[tokio::test]
async fn dgdr_fixtures_match_the_schema() {
    check_fixtures(Family::Dgdr).await;
}

#[tokio::test]
async fn llsd_fixtures_match_the_schema() {
    check_fixtures(Family::Llsd).await;
}

#[tokio::test]
async fn va_fixtures_match_the_schema() {
    check_fixtures(Family::Va).await;
}

/// Installs the shipped files and compares the columns of `kubectl get` for one object of each kind.
#[tokio::test]
async fn kubectl_shows_the_documented_columns() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let cluster = exclusive.cluster;
    let client = cluster.admin().await.unwrap();
    let namespace = cluster.namespace("columns").await.unwrap();
    let cases = [
        (Family::Dgdr, "spec: {model: m}", "MODEL BACKEND PHASE PROFILING REASON MESSAGE DGD AGE", ""),
        (Family::Llsd, "spec: {distribution: {name: starter}}", "PHASE PROVIDERS AVAILABLE AGE", "DISTRIBUTION CONFIG"),
        (
            Family::Va,
            "spec: {modelID: m, scaleTargetRef: {kind: Deployment, name: d}}",
            "MODEL VARIANTID ACCELERATOR CURRENTREPLICAS OPTIMIZED METRICSREADY AGE",
            "WANTED DECIDEDBY TARGET MIN MAX REASON",
        ),
    ];
    for (family, spec, usual, only_wide) in cases {
        let shipped = format!("{}/../../deploy/crds/{}.yaml", env!("CARGO_MANIFEST_DIR"), family.crd_name());
        let text = std::fs::read_to_string(shipped).unwrap();
        let crd = serde_saphyr::from_str_with_options(&text, serde_saphyr::options! { budget: None }).unwrap();
        let version = family.storage_version();
        install_crd(&client, &crd, &api_resource(family, version)).await;
        let object = format!(
            "apiVersion: {}/{version}\nkind: {}\nmetadata: {{name: shown}}\n{spec}\n",
            family.group(),
            family.kind()
        );
        apply::apply_manifests(&client, Some(namespace.name()), &object).await.unwrap();
        let head = |output: &[&str]| {
            let arguments = [&["get", family.short_name(), "-n", namespace.name()], output].concat();
            let shown = cluster.kubectl(&arguments).unwrap();
            assert!(shown.contains("shown"), "{shown}");
            shown.lines().next().unwrap().split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(head(&[]).join(" "), usual, "{family}");
        let mut wide = head(&["-o", "wide"]);
        for column in usual.split_whitespace() {
            assert!(wide.iter().any(|shown| shown == column), "{family}: {column} is in {wide:?}");
            wide.retain(|shown| shown != column);
        }
        assert_eq!(wide.join(" "), only_wide, "{family}: columns of wide output only");
        // The API server publishes the descriptions of a new CRD with a delay.
        let path = format!("{}.spec", family.short_name());
        let explain = async || cluster.kubectl(&["explain", &path]).ok();
        let explained = wait::eventually("kubectl explains the CRD", explain).await.unwrap();
        assert!(explained.contains("DESCRIPTION") && !explained.contains("<empty>"), "{explained}");
        uninstall_crd(&client, family).await;
    }
}
