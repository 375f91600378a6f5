//! `steersman webhooks` on a real API server: what it writes, what it leaves alone, and what the operator puts in.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use steersman::certs::SECRET;
use steersman::installation::NAMESPACE;
use steersman_testkit::wait;

use super::{CommandOutput, clear, steersman};
use crate::certs::Site;
use crate::command;

const NAME: &str = "steersman-llsd";

fn configurations(site: &Site) -> Api<ValidatingWebhookConfiguration> {
    Api::all(site.admin.clone())
}

async fn client(site: &Site) -> k8s_openapi::api::admissionregistration::v1::WebhookClientConfig {
    configurations(site).get(NAME).await.unwrap().webhooks.unwrap().remove(0).client_config
}

#[tokio::test]
async fn configurations_are_applied_retargeted_and_removed() {
    let Some(site) = Site::prepared().await else { return };
    clear(site.cluster);
    let webhooks = async |more: &[&str]| -> CommandOutput {
        steersman(site.cluster, &[&["webhooks", "llsd"], more].concat()).await
    };
    let usual = "asks Service steersman-system/steersman-webhook\n";
    assert_eq!(webhooks(&["--apply"]).await.ok(), format!("{NAME}: created, {usual}"));
    assert_eq!(webhooks(&["--apply"]).await.ok(), format!("{NAME}: unchanged, {usual}"));

    // A bundle that was given stays, and goes with the server that it vouches for.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let certificate = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem();
    std::fs::write(&file, &certificate).unwrap();
    let given = Some(ByteString(certificate.into_bytes()));
    webhooks(&["--apply", "--webhook-ca", file.to_str().unwrap()]).await.ok();
    assert_eq!(client(&site).await.ca_bundle, given);
    assert_eq!(webhooks(&["--apply"]).await.ok(), format!("{NAME}: unchanged, {usual}"));
    assert_eq!(client(&site).await.ca_bundle, given);
    let said = webhooks(&["--apply", "--webhook-url", "https://127.0.0.1:1"]).await.ok();
    assert_eq!(said, format!("{NAME}: changed, asks https://127.0.0.1:1/validate/llsd\n"));
    let asked = client(&site).await;
    assert_eq!((asked.service, asked.ca_bundle), (None, None));
    let said = webhooks(&["--apply"]).await.ok();
    assert_eq!(said, format!("{NAME}: unchanged, asks https://127.0.0.1:1/validate/llsd\n"), "the choice stands");
    let said = webhooks(&["--apply", "--webhook-namespace", "models", "--failure-policy", "ignore"]).await.ok();
    assert_eq!(said, format!("{NAME}: changed, asks Service models/steersman-webhook\n"));
    let live = configurations(&site).get(NAME).await.unwrap();
    assert_eq!(live.webhooks.unwrap()[0].failure_policy.as_deref(), Some("Ignore"));

    assert_eq!(webhooks(&["--remove"]).await.ok(), format!("{NAME}: removed\n"));
    assert_eq!(webhooks(&["--remove"]).await.ok(), format!("{NAME}: not there\n"));
    let nobody = site.cluster.user_kubeconfig("visitor").unwrap();
    for verb in ["--apply", "--remove"] {
        let mut command = command::steersman(&["webhooks", "llsd", verb, "--kubeconfig"]);
        let error = command::output_of(command.arg(&nobody)).failure();
        assert!(error.contains("cannot get resource \"validatingwebhookconfigurations\""), "{error}");
        assert!(error.contains("this needs the right to get, create, patch and delete"), "{error}");
    }
}

/// Both kinds, in the order in which they are asked, and only those of the families named.
#[tokio::test]
async fn a_family_with_defaults_has_two_configurations() {
    let Some(site) = Site::prepared().await else { return };
    clear(site.cluster);
    let webhooks = async |more: &[&str]| steersman(site.cluster, &[&["webhooks"], more].concat()).await.ok();
    let usual = "created, asks Service steersman-system/steersman-webhook";
    let said = webhooks(&["--apply", "dgdr"]).await;
    assert_eq!(said, format!("steersman-dgdr (defaults): {usual}\nsteersman-dgdr: {usual}\n"));
    let said = webhooks(&["--apply", "--webhook-url", "https://127.0.0.1:1"]).await;
    let asks = "asks https://127.0.0.1:1";
    assert_eq!(
        said,
        format!(
            "steersman-dgdr (defaults): changed, {asks}/mutate/dgdr\nsteersman-dgdr: changed, {asks}/validate/dgdr\n\
             {NAME}: created, {asks}/validate/llsd\n"
        )
    );
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(site.admin.clone());
    let live = mutating.get("steersman-dgdr").await.unwrap().webhooks.unwrap().remove(0);
    assert_eq!((live.name.as_str(), live.client_config.service), ("default.dgdr.steersman.dev", None));
    let said = webhooks(&["--remove"]).await;
    assert_eq!(said, format!("steersman-dgdr (defaults): removed\nsteersman-dgdr: removed\n{NAME}: removed\n"));
}

#[tokio::test]
async fn the_operator_vouches_for_itself_where_it_is_named_and_nowhere_else() {
    let Some(site) = Site::prepared().await else { return };
    clear(site.cluster);
    let url = site.forwarder.url();
    // Somebody else's server under our name: not ours to touch, and nothing to wait for.
    steersman(site.cluster, &["webhooks", "--apply", "llsd", "--webhook-url", "https://127.0.0.1:1"]).await.ok();
    let before = configurations(&site).get(NAME).await.unwrap();
    let operator = site.start("alone", &[]).await;
    operator.until_answer("/readyz", 200).await;
    assert_eq!(configurations(&site).get(NAME).await.unwrap(), before);

    let vouched = async || {
        let held = client(&site).await.ca_bundle?;
        let secrets: Api<Secret> = Api::namespaced(site.admin.clone(), NAMESPACE);
        let kept = secrets.get(SECRET).await.ok()?.data?.remove("ca.crt")?;
        (held == kept).then_some(held)
    };
    steersman(site.cluster, &["webhooks", "--apply", "llsd", "--webhook-url", &url]).await.ok();
    let first = wait::eventually("the configuration holds the bundle", vouched).await.unwrap();
    // An apply of the same leaves it there, and one who takes it away does not get far.
    let said = steersman(site.cluster, &["webhooks", "--apply", "llsd"]).await.ok();
    assert_eq!(said, format!("{NAME}: unchanged, asks {url}/validate/llsd\n"));
    assert_eq!(client(&site).await.ca_bundle, Some(first));
    let emptied = json!([{ "op": "remove", "path": "/webhooks/0/clientConfig/caBundle" }]);
    let emptied: Patch<()> = Patch::Json(serde_json::from_value(emptied).unwrap());
    configurations(&site).patch(NAME, &PatchParams::default(), &emptied).await.unwrap();
    wait::eventually("the bundle is back", vouched).await.unwrap();
    steersman(site.cluster, &["webhooks", "--remove", "llsd"]).await.ok();
    operator.assert_log_is_json();
}
