//! Admission: by the judge alone, by the configurations as they are rendered, and with kubectl
//! on a real API server that asks the real process.

mod command;
mod down;
mod examples;
mod judge;
mod moved;
mod references;
mod rendered;
mod requests;
mod versions;

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};
use steersman::metrics::FamilyMetrics;
use steersman::webhooks::admission::Handlers;
use steersman::webhooks::routes;
use steersman_api::Family;
use steersman_runtime::telemetry::metrics::Metrics;
use steersman_testkit::{Cluster, Namespace, object, wait};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::certs::Site;
use crate::command::{CommandOutput, kubectl, output_of, run, steersman_as_admin};
use crate::process::operator::Operator;
use crate::schemas::resource;

/// An operator that converts and handlers, reached by the API server, and a namespace to write to.
struct Court {
    family: Family,
    namespace: Namespace,
    operator: Operator,
    site: Site,
}

/// The binary, as an administrator.
async fn steersman(cluster: &Cluster, arguments: &[&str]) -> CommandOutput {
    run(steersman_as_admin(cluster, arguments)).await
}

impl Court {
    /// Of LlamaStackDistributions. None (after saying so) where no cluster is to be had.
    async fn open(prefix: &str, more: &[&str]) -> Option<Self> {
        let court = Self::of(Family::Llsd, prefix, more).await?;
        court.until_asked().await;
        Some(court)
    }

    /// Of any family, before API servers know of it.
    async fn of(family: Family, prefix: &str, more: &[&str]) -> Option<Self> {
        let site = Site::prepared().await?;
        clear(site.cluster);
        let (url, name) = (site.forwarder.url(), family.short_name());
        steersman(site.cluster, &["crds", "--apply", name, "--webhook-url", &url]).await.ok();
        steersman(site.cluster, &["webhooks", "--apply", name, "--webhook-url", &url]).await.ok();
        let operator = site.start("court", more).await;
        operator.until_answer("/readyz", 200).await;
        let namespace = site.cluster.namespace(prefix).await.unwrap();
        Some(Self { family, namespace, operator, site })
    }

    /// API servers follow CRDs and configurations in their own time: until then objects slip past, or cannot be converted.
    async fn until_asked(&self) {
        let asked = async || {
            for version in ["v1alpha1", "v1alpha2"] {
                self.would_be(version, &named(version, "probe", "starter")).await.ok()?;
                let refused = self.would_be(version, &named(version, "probe", "nobody-knows")).await.err()?;
                refused.contains("Unknown distribution").then_some(())?;
            }
            Some(())
        };
        self.until("the operator is asked about every object", asked).await;
    }

    async fn until(&self, what: &str, holds: impl AsyncFnMut() -> Option<()>) {
        let held = wait::eventually(what, holds).await;
        held.unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()));
    }

    /// The object as it would be stored, or why it would not be.
    async fn would_be(&self, version: &str, object: &DynamicObject) -> Result<DynamicObject, String> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        self.objects(version).create(&dry_run, object).await.map_err(|error| error.to_string())
    }

    fn cluster(&self) -> &'static Cluster {
        self.site.cluster
    }

    fn objects(&self, version: &str) -> Api<DynamicObject> {
        let resource = resource(self.family, version);
        Api::namespaced_with(self.site.admin.clone(), self.namespace.name(), &resource)
    }

    async fn kubectl(&self, arguments: &[&str]) -> CommandOutput {
        run(kubectl(self.cluster(), &[arguments, &["--namespace", self.namespace.name()]].concat())).await
    }

    /// `kubectl apply` of one manifest.
    async fn apply(&self, manifest: &Value, more: &[&str]) -> CommandOutput {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("manifest.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        self.kubectl(&[&["apply", "-f", file.to_str().unwrap()], more].concat()).await
    }
}

/// A failed test must not leave others with a configuration that nobody answers, or with a CRD that nobody converts.
impl Drop for Court {
    fn drop(&mut self) {
        clear(self.cluster());
    }
}

/// Of every family that is judged.
fn clear(cluster: &Cluster) {
    let kubectl = |arguments: &[&str]| output_of(&mut kubectl(cluster, arguments)).is_ok();
    for of in steersman::admission::ALL {
        kubectl(&["delete", of.plural(), of.name(), "--ignore-not-found"]);
    }
    for family in steersman::admission::FAMILIES {
        let crd = family.crd_name();
        if !kubectl(&["get", "crd", crd, "-o", "name"]) {
            continue;
        }
        let none = r#"{"spec":{"conversion":{"strategy":"None","webhook":null}}}"#;
        kubectl(&["patch", "crd", crd, "--type=merge", "-p", none]);
        kubectl(&["delete", family.plural(), "--all", "--all-namespaces", "--timeout=20s"]);
        kubectl(&["delete", "crd", crd, "--timeout=20s"]);
    }
}

/// A manifest of v1alpha2.
fn manifest(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
            "metadata": { "name": name }, "spec": spec })
}

/// The `response` of these handlers to a request about a change from `old` to `new`, by the route that an API server posts to.
async fn response(family: Family, handlers: Handlers, route: &str, [new, old]: [Value; 2], operation: &str) -> Value {
    let (metrics, families) = Metrics::new(Timestamp::UNIX_EPOCH, FamilyMetrics::register);
    let routes = routes(
        steersman_api::convert::convert,
        handlers,
        Arc::new(metrics),
        families.requests,
        CancellationToken::new(),
    );
    let named = new["apiVersion"].as_str().and_then(|named| named.split_once('/'));
    let (group, version) = named.unwrap_or((family.group(), family.storage_version()));
    let object = if new.is_null() { &old } else { &new };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": operation, "userInfo": {}, "namespace": "team-a",
            "name": object["metadata"]["name"],
            "kind": { "group": group, "version": version, "kind": family.kind() },
            "resource": { "group": group, "version": version, "resource": family.plural() },
            "object": new, "oldObject": old,
        },
    });
    let request = Request::post(route).body(Body::from(review.to_string())).unwrap();
    let answer = routes.oneshot(request).await.unwrap();
    let bytes = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    serde_json::from_slice::<Value>(&bytes).unwrap()["response"].clone()
}

/// The least object, in either version.
fn named(version: &str, name: &str, distribution: &str) -> DynamicObject {
    let distribution = json!({ "distribution": { "name": distribution } });
    let spec = if version == "v1alpha1" { json!({ "server": distribution }) } else { distribution };
    let api_version = format!("llamastack.io/{version}");
    object(
        json!({ "apiVersion": api_version, "kind": "LlamaStackDistribution", "metadata": { "name": name }, "spec": spec }),
    )
}
