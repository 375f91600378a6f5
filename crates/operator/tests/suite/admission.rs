//! Admission webhooks: the handlers alone, the rendered configurations, and kubectl on a real API server that calls the
//! operator's process.

mod client_ca;
mod command;
mod examples;
mod field_managers;
mod references;
mod rendered;
mod requests;
mod service;
mod unavailable;
pub mod validator;
mod versions;

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
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

use crate::certs::WebhookEnv;
use crate::command::{CommandOutput, kubectl, output_of, run, steersman_as_admin};
use crate::process::operator::OperatorProcess;
use crate::schemas::api_resource;

/// Name of the operator.
const IDENTITY: &str = "admission";

/// An operator whose webhooks the API server calls for objects of one family, and a namespace to write objects to.
struct AdmissionEnv {
    family: Family,
    namespace: Namespace,
    operator: OperatorProcess,
    webhook: WebhookEnv,
}

/// Runs the binary as an administrator.
async fn steersman(cluster: &Cluster, arguments: &[&str]) -> CommandOutput {
    run(steersman_as_admin(cluster, arguments)).await
}

impl AdmissionEnv {
    /// Starts an operator for LlamaStackDistributions and waits until its webhooks are called. None if there is no cluster.
    async fn start(prefix: &str, more: &[&str]) -> Option<Self> {
        let env = Self::start_family(Family::Llsd, prefix, more).await?;
        env.wait_until_called().await;
        Some(env)
    }

    /// Starts an operator for `family` without waiting until the API server calls its webhooks.
    async fn start_family(family: Family, prefix: &str, more: &[&str]) -> Option<Self> {
        let webhook = WebhookEnv::prepare().await?;
        remove_webhooks_and_crds(webhook.cluster);
        let (url, name) = (webhook.forwarder.url(), family.short_name());
        steersman(webhook.cluster, &["crds", "--apply", name, "--webhook-url", &url]).await.ok();
        steersman(webhook.cluster, &["webhooks", "--apply", name, "--webhook-url", &url]).await.ok();
        let operator = webhook.start(IDENTITY, more).await;
        operator.until_answer("/readyz", 200).await;
        let namespace = webhook.cluster.namespace(prefix).await.unwrap();
        Some(Self { family, namespace, operator, webhook })
    }

    /// API servers notice CRDs and webhook configurations with a delay; until then objects are not validated or not converted.
    async fn wait_until_called(&self) {
        let called = async || {
            for version in ["v1alpha1", "v1alpha2"] {
                self.dry_run_create(version, &minimal_object(version, "probe", "starter")).await.ok()?;
                let refused =
                    self.dry_run_create(version, &minimal_object(version, "probe", "nobody-knows")).await.err()?;
                refused.contains("Unknown distribution").then_some(())?;
            }
            Some(())
        };
        self.wait_for("the webhooks are called for objects of every version", called).await;
    }

    async fn wait_for(&self, what: &str, holds: impl AsyncFnMut() -> Option<()>) {
        let waited = wait::eventually(what, holds).await;
        waited.unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()));
    }

    /// The object as it would be stored, or why it would be refused.
    async fn dry_run_create(&self, version: &str, object: &DynamicObject) -> Result<DynamicObject, String> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        self.objects(version).create(&dry_run, object).await.map_err(|error| error.to_string())
    }

    fn cluster(&self) -> &'static Cluster {
        self.webhook.cluster
    }

    fn objects(&self, version: &str) -> Api<DynamicObject> {
        let resource = api_resource(self.family, version);
        Api::namespaced_with(self.webhook.admin.clone(), self.namespace.name(), &resource)
    }

    async fn kubectl(&self, arguments: &[&str]) -> CommandOutput {
        run(kubectl(self.cluster(), &[arguments, &["--namespace", self.namespace.name()]].concat())).await
    }

    /// Binds a new Role with these rules to the user, and waits until the API server's authorizer knows it.
    async fn grant(&self, user: &str, rules: Value) {
        let role: Role = object(json!({ "metadata": { "name": user }, "rules": rules }));
        let binding: RoleBinding = object(json!({ "metadata": { "name": user },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }] }));
        self.namespace.api::<Role>().create(&PostParams::default(), &role).await.unwrap();
        self.namespace.api::<RoleBinding>().create(&PostParams::default(), &binding).await.unwrap();
        let client = self.cluster().user(user).await.unwrap();
        let (group, plural) = (self.family.group(), self.family.plural());
        wait::until_allowed(&client, "create", group, plural, Some(self.namespace.name())).await.unwrap();
    }

    /// Runs `kubectl apply` with one manifest.
    async fn apply(&self, manifest: &Value, more: &[&str]) -> CommandOutput {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("manifest.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        self.kubectl(&[&["apply", "-f", file.to_str().unwrap()], more].concat()).await
    }
}

/// A failed test must not leave behind a webhook configuration or a CRD conversion whose server is gone.
impl Drop for AdmissionEnv {
    fn drop(&mut self) {
        remove_webhooks_and_crds(self.cluster());
    }
}

fn remove_webhooks_and_crds(cluster: &Cluster) {
    let kubectl = |arguments: &[&str]| output_of(&mut kubectl(cluster, arguments)).is_ok();
    for configuration in steersman::admission::ALL {
        kubectl(&["delete", configuration.plural(), configuration.name(), "--ignore-not-found"]);
    }
    for family in steersman::admission::FAMILIES {
        let crd = family.crd_name();
        if !kubectl(&["get", "crd", crd, "-o", "name"]) {
            continue;
        }
        let no_conversion = r#"{"spec":{"conversion":{"strategy":"None","webhook":null}}}"#;
        kubectl(&["patch", "crd", crd, "--type=merge", "-p", no_conversion]);
        kubectl(&["delete", family.plural(), "--all", "--all-namespaces", "--timeout=20s"]);
        kubectl(&["delete", "crd", crd, "--timeout=20s"]);
    }
}

/// A LlamaStackDistribution of v1alpha2.
fn manifest(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
            "metadata": { "name": name }, "spec": spec })
}

/// Posts an AdmissionReview of a change from `old` to `new` to `route` and returns the `response` of the handlers.
async fn response(family: Family, handlers: Handlers, route: &str, [new, old]: [Value; 2], operation: &str) -> Value {
    let (metrics, families) = Metrics::new(Timestamp::UNIX_EPOCH, FamilyMetrics::register);
    let routes = routes(
        steersman_api::convert::convert,
        handlers,
        Arc::new(metrics),
        families.requests,
        CancellationToken::new(),
    );
    let api_version = new["apiVersion"].as_str().and_then(|api_version| api_version.split_once('/'));
    let (group, version) = api_version.unwrap_or((family.group(), family.storage_version()));
    let object = if new.is_null() { &old } else { &new };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": operation, "userInfo": { "username": "alice" }, "namespace": "team-a",
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

/// A LlamaStackDistribution with the required fields only, in either version.
fn minimal_object(version: &str, name: &str, distribution: &str) -> DynamicObject {
    let distribution = json!({ "distribution": { "name": distribution } });
    let spec = if version == "v1alpha1" { json!({ "server": distribution }) } else { distribution };
    let api_version = format!("llamastack.io/{version}");
    object(
        json!({ "apiVersion": api_version, "kind": "LlamaStackDistribution", "metadata": { "name": name }, "spec": spec }),
    )
}
