//! `steersman webhooks` on a real API server, and the CA bundle that the operator adds to the configurations.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use steersman::certs::SECRET;
use steersman::installation::NAMESPACE;
use steersman_testkit::wait;

use super::{CommandOutput, remove_webhooks_and_crds, steersman};
use crate::certs::WebhookEnv;
use crate::command;

const NAME: &str = "steersman-llsd";

fn configurations(env: &WebhookEnv) -> Api<ValidatingWebhookConfiguration> {
    Api::all(env.admin.clone())
}

async fn client(env: &WebhookEnv) -> k8s_openapi::api::admissionregistration::v1::WebhookClientConfig {
    configurations(env).get(NAME).await.unwrap().webhooks.unwrap().remove(0).client_config
}

#[tokio::test]
async fn webhook_configurations_are_applied_changed_removed() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    remove_webhooks_and_crds(env.cluster);
    let webhooks = async |more: &[&str]| -> CommandOutput {
        steersman(env.cluster, &[&["webhooks", "llsd"], more].concat()).await
    };
    let default_target = "calls Service steersman-system/steersman-webhook\n";
    assert_eq!(webhooks(&["--apply"]).await.ok(), format!("{NAME}: created, {default_target}"));
    assert_eq!(webhooks(&["--apply"]).await.ok(), format!("{NAME}: unchanged, {default_target}"));

    // A bundle given by flag survives the next apply, and is dropped when the configuration names another server.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let certificate = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem();
    std::fs::write(&file, &certificate).unwrap();
    let bundle = Some(ByteString(certificate.into_bytes()));
    webhooks(&["--apply", "--webhook-ca", file.to_str().unwrap()]).await.ok();
    assert_eq!(client(&env).await.ca_bundle, bundle);
    assert_eq!(webhooks(&["--apply"]).await.ok(), format!("{NAME}: unchanged, {default_target}"));
    assert_eq!(client(&env).await.ca_bundle, bundle);
    let output = webhooks(&["--apply", "--webhook-url", "https://127.0.0.1:1"]).await.ok();
    assert_eq!(output, format!("{NAME}: changed, calls https://127.0.0.1:1/validate/llsd\n"));
    let client_config = client(&env).await;
    assert_eq!((client_config.service, client_config.ca_bundle), (None, None));
    let output = webhooks(&["--apply"]).await.ok();
    assert_eq!(output, format!("{NAME}: unchanged, calls https://127.0.0.1:1/validate/llsd\n"), "the URL is kept");
    let output = webhooks(&["--apply", "--webhook-namespace", "models", "--failure-policy", "ignore"]).await.ok();
    assert_eq!(output, format!("{NAME}: changed, calls Service models/steersman-webhook\n"));
    let live = configurations(&env).get(NAME).await.unwrap();
    assert_eq!(live.webhooks.unwrap()[0].failure_policy.as_deref(), Some("Ignore"));

    assert_eq!(webhooks(&["--remove"]).await.ok(), format!("{NAME}: removed\n"));
    assert_eq!(webhooks(&["--remove"]).await.ok(), format!("{NAME}: not installed\n"));
    let visitor = env.cluster.user_kubeconfig("visitor").unwrap();
    for verb in ["--apply", "--remove"] {
        let mut command = command::steersman(&["webhooks", "llsd", verb, "--kubeconfig"]);
        let error = command::output_of(command.arg(&visitor)).failure();
        assert!(error.contains("cannot get resource \"validatingwebhookconfigurations\""), "{error}");
        assert!(error.contains("this command needs permission to get, create, patch and delete"), "{error}");
    }
}

/// The mutating configuration comes first, because mutating webhooks are called first.
#[tokio::test]
async fn family_with_defaults_has_two_configurations() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    remove_webhooks_and_crds(env.cluster);
    let webhooks = async |more: &[&str]| steersman(env.cluster, &[&["webhooks"], more].concat()).await.ok();
    let default_target = "created, calls Service steersman-system/steersman-webhook";
    let output = webhooks(&["--apply", "dgdr"]).await;
    assert_eq!(output, format!("steersman-dgdr (defaults): {default_target}\nsteersman-dgdr: {default_target}\n"));
    let output = webhooks(&["--apply", "--webhook-url", "https://127.0.0.1:1"]).await;
    let asks = "calls https://127.0.0.1:1";
    assert_eq!(
        output,
        format!(
            "steersman-dgdr (defaults): changed, {asks}/mutate/dgdr\nsteersman-dgdr: changed, {asks}/validate/dgdr\n\
             {NAME}: created, {asks}/validate/llsd\n"
        )
    );
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(env.admin.clone());
    let live = mutating.get("steersman-dgdr").await.unwrap().webhooks.unwrap().remove(0);
    assert_eq!((live.name.as_str(), live.client_config.service), ("default.dgdr.steersman.dev", None));
    let output = webhooks(&["--remove"]).await;
    assert_eq!(output, format!("steersman-dgdr (defaults): removed\nsteersman-dgdr: removed\n{NAME}: removed\n"));
}

#[tokio::test]
async fn ca_bundle_is_added_to_own_configurations_only() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    remove_webhooks_and_crds(env.cluster);
    let url = env.forwarder.url();
    // A configuration of our name for another server is left unchanged and does not delay readiness.
    steersman(env.cluster, &["webhooks", "--apply", "llsd", "--webhook-url", "https://127.0.0.1:1"]).await.ok();
    let before = configurations(&env).get(NAME).await.unwrap();
    let operator = env.start("alone", &[]).await;
    operator.until_answer("/readyz", 200).await;
    assert_eq!(configurations(&env).get(NAME).await.unwrap(), before);

    let bundle_installed = async || {
        let installed = client(&env).await.ca_bundle?;
        let secrets: Api<Secret> = Api::namespaced(env.admin.clone(), NAMESPACE);
        let stored = secrets.get(SECRET).await.ok()?.data?.remove("ca.crt")?;
        (installed == stored).then_some(installed)
    };
    steersman(env.cluster, &["webhooks", "--apply", "llsd", "--webhook-url", &url]).await.ok();
    let first = wait::eventually("the configuration holds the bundle", bundle_installed).await.unwrap();
    // The bundle survives the next apply, and the operator restores it after it was removed.
    let output = steersman(env.cluster, &["webhooks", "--apply", "llsd"]).await.ok();
    assert_eq!(output, format!("{NAME}: unchanged, calls {url}/validate/llsd\n"));
    assert_eq!(client(&env).await.ca_bundle, Some(first));
    let emptied = json!([{ "op": "remove", "path": "/webhooks/0/clientConfig/caBundle" }]);
    let emptied: Patch<()> = Patch::Json(serde_json::from_value(emptied).unwrap());
    configurations(&env).patch(NAME, &PatchParams::default(), &emptied).await.unwrap();
    wait::eventually("the bundle is back", bundle_installed).await.unwrap();
    steersman(env.cluster, &["webhooks", "--remove", "llsd"]).await.ok();
    operator.assert_log_is_json();
}
