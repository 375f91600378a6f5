//! The shipped `install.yaml`: API servers reach the webhooks through the Service that `clientConfig` names.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::Api;
use serde_json::{Value, json};
use steersman::install;
use steersman::installation::NAMESPACE;
use steersman_api::Family;

use super::{AdmissionEnv, minimal_object, remove_webhooks_and_crds};
use crate::certs::WebhookEnv;
use crate::command::{kubectl, output_of};

const SERVICE: &str = "steersman-webhook";

/// The shipped installation without its Service, and with this port of it.
fn shipped(port: u16) -> String {
    let text = install::file().unwrap();
    let documents: Vec<&str> = text.split("---\n").filter(|document| !document.contains("\nkind: Service\n")).collect();
    let text = documents.join("---\n");
    assert!(text.contains(&format!("name: {SERVICE}")) && text.contains("port: 443\n"));
    text.replace("port: 443\n", &format!("port: {port}\n"))
}

/// The local cluster has no kube-proxy, which makes the address of a Service reachable. API servers resolve a Service of type
/// ExternalName themselves: to its host, and to the port of `clientConfig`.
#[tokio::test]
async fn shipped_manifests_reach_webhooks_through_service() {
    let Some(webhook) = WebhookEnv::prepare().await else { return };
    remove_webhooks_and_crds(webhook.cluster);
    let folder = tempfile::tempdir().unwrap();
    let apply = |name: &str, manifest: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, manifest).unwrap();
        output_of(&mut kubectl(webhook.cluster, &["apply", "--server-side", "-f", file.to_str().unwrap()])).ok();
    };
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": SERVICE, "namespace": NAMESPACE },
                          "spec": { "type": "ExternalName", "externalName": "localhost" } });
    apply("service.json", &service.to_string());
    apply("install.yaml", &shipped(webhook.forwarder.port()));
    let operator = webhook.start_behind_service("service", &[]).await;
    operator.until_answer("/readyz", 200).await;
    let namespace = webhook.cluster.namespace("service").await.unwrap();
    let mut env = AdmissionEnv { family: Family::Llsd, namespace, operator, webhook };

    // Objects of both versions are validated, and those of the older one converted, for their storage and back.
    env.wait_until_called().await;
    env.apply(&json!(minimal_object("v1alpha1", "stack", "starter")), &[]).await.ok();
    let stored: Value = serde_json::from_str(
        &env.kubectl(&["get", "llamastackdistributions.v1alpha2.llamastack.io", "stack", "-o", "json"]).await.ok(),
    )
    .unwrap();
    assert_eq!(stored["spec"]["distribution"]["name"], "starter", "{stored}");
    let older: Value = serde_json::from_str(
        &env.kubectl(&["get", "llamastackdistributions.v1alpha1.llamastack.io", "stack", "-o", "json"]).await.ok(),
    )
    .unwrap();
    assert_eq!(older["spec"]["server"]["distribution"]["name"], "starter", "{older}");

    // The mutating webhook adds the default image.
    env.family = Family::Dgdr;
    let request = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest",
                          "metadata": { "name": "request" }, "spec": { "model": "m", "backend": "vllm" } });
    let request = serde_json::from_value(request).unwrap();
    let defaulted = async || {
        let created = env.dry_run_create("v1beta1", &request).await.ok()?;
        created.data["spec"]["image"].as_str().is_some_and(|image| !image.is_empty()).then_some(())
    };
    env.wait_for("the mutating webhook sets the image", defaulted).await;

    // All of this went through the Service, with the CA of the operator.
    assert!(env.webhook.forwarder.connections()[0] > 0);
    let bundle = env.webhook.ca_bundle().await;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(env.webhook.admin.clone());
    let installed = configurations.get("steersman-llsd").await.unwrap().webhooks.unwrap().remove(0).client_config;
    let crd = env.webhook.crds().get(Family::Llsd.crd_name()).await.unwrap().spec.conversion.unwrap().webhook.unwrap();
    let conversion = crd.client_config.unwrap();
    assert_eq!((installed.url, conversion.url), (None, None));
    assert_eq!((installed.ca_bundle.as_ref(), conversion.ca_bundle.as_ref()), (Some(&bundle), Some(&bundle)));
    for (service, path) in
        [(json!(installed.service.unwrap()), "/validate/llsd"), (json!(conversion.service.unwrap()), "/convert")]
    {
        let expected =
            json!({ "name": SERVICE, "namespace": NAMESPACE, "path": path, "port": env.webhook.forwarder.port() });
        assert_eq!(service, expected);
    }
    // Other tests of this cluster install the rest themselves.
    let own = ["delete", "--namespace", NAMESPACE, "service/steersman-webhook", "deployment.apps/steersman"];
    kubectl(env.cluster(), &own).output().unwrap();
    kubectl(env.cluster(), &["delete", "crd", Family::Va.crd_name()]).output().unwrap();
}
