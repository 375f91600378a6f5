//! Configures the API server to send a client certificate to admission webhooks that request one.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::pki::Authority;

pub(super) const CONFIG_FILE: &str = "admission.json";
const KUBECONFIG_FILE: &str = "admission.kubeconfig";

pub(super) fn prepare(authority: &Authority, folder: &Path) -> Result<()> {
    let files = json!({ "client-certificate": authority.file("webhook-client.pem"),
                        "client-key": authority.file("webhook-client-key.pem") });
    // The user is found by the host name of the webhook.
    let kubeconfig = json!({ "apiVersion": "v1", "kind": "Config", "users": [{ "name": "*", "user": files }] });
    let plugin = |name: &str| {
        let configuration = json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
                                    "kubeConfigFile": folder.join(KUBECONFIG_FILE) });
        json!({ "name": name, "configuration": configuration })
    };
    let config = json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
                         "plugins": [plugin("ValidatingAdmissionWebhook"), plugin("MutatingAdmissionWebhook")] });
    for (name, content) in [(KUBECONFIG_FILE, kubeconfig), (CONFIG_FILE, config)] {
        let path = folder.join(name);
        std::fs::write(&path, content.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
