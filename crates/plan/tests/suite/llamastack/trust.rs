//! Additional CA certificates that a server trusts.

use serde_json::json;
use steersman_plan::llamastack::plan;
use steersman_reconcile::Severity;

use super::configuration::{container, env_variable, template, with_references};
use super::{planned_object, v1alpha2_snapshot};

pub const CA_KEY: &str = "ca-bundle.crt";
pub const CERTIFICATE: &str = include_str!("../../fixtures/llamastack/certificate.pem");

#[test]
fn trusted_certificates_are_merged_into_config_map() {
    let spec = "{distribution: {name: starter}, networking: {tls: {caBundle: {configMapName: ca}}}}";
    let data = |text: &str| Some([(CA_KEY.to_owned(), text.to_owned())].into());
    let mut snapshot = with_references(v1alpha2_snapshot(spec));
    snapshot.trust.named = data(&format!("noise\n{CERTIFICATE}"));
    let map = planned_object(&plan(&snapshot), "ConfigMap").unwrap();
    assert_eq!((&map["metadata"]["name"], &map["data"][CA_KEY]), (&json!("starter-ca-bundle"), &json!(CERTIFICATE)));
    assert_eq!(env_variable(&snapshot, "SSL_CERT_FILE")["value"], "/etc/ssl/certs/ca-bundle/ca-bundle.crt");
    let mount = json!({ "name": "ca-bundle", "mountPath": "/etc/ssl/certs/ca-bundle", "readOnly": true });
    assert_eq!(container(&snapshot)["volumeMounts"][1], mount);
    assert!(template(&snapshot)["metadata"]["annotations"]["configmap.hash/ca-bundle"].is_string());
    assert_eq!(container(&snapshot).get("command"), None, "the server starts with the image's configuration");

    snapshot.trust.cluster = data(CERTIFICATE);
    let both = planned_object(&plan(&snapshot), "ConfigMap").unwrap();
    assert_eq!(both["data"][CA_KEY], format!("{CERTIFICATE}\n{CERTIFICATE}"));

    let mut without_bundle = v1alpha2_snapshot("{distribution: {name: starter}}");
    without_bundle.trust.cluster =
        Some([("a".to_owned(), "   ".to_owned()), ("b".to_owned(), "broken".to_owned())].into());
    assert_eq!(
        planned_object(&plan(&without_bundle), "ConfigMap"),
        None,
        "an invalid cluster bundle does not block the object"
    );
}

#[test]
fn invalid_certificates_are_rejected_with_key() {
    let spec = |keys: &str| {
        format!("{{distribution: {{name: starter}}, networking: {{tls: {{caBundle: {{configMapName: ca{keys}}}}}}}}}")
    };
    let broken = CERTIFICATE.replace("MIIB", "AAAA");
    for (keys, text, expected) in [
        ("", "nothing", "failed to find valid certificates in CA bundle key 'ca-bundle.crt'"),
        ("", " ", "failed to find valid certificates in CA bundle ConfigMaps"),
        ("", &broken, "failed to parse X.509 certificate from key 'ca-bundle.crt': certificate 1"),
        (
            ", configMapKeys: ['a/b']",
            "",
            "failed to validate CA bundle ConfigMap keys: failed to validate ConfigMap key 'a/b': contains invalid path \
             characters",
        ),
        (", configMapKeys: ['']", "", "failed to validate CA bundle ConfigMap keys: ConfigMap key cannot be empty"),
    ] {
        let mut snapshot = with_references(v1alpha2_snapshot(&spec(keys)));
        snapshot.trust.named = Some([(CA_KEY.to_owned(), text.to_owned())].into());
        let findings = plan(&snapshot).findings;
        assert_eq!((findings.len(), findings[0].severity), (1, Severity::Blocker), "{findings:?}");
        assert!(findings[0].message.ends_with(expected), "{}", findings[0].message);
    }
}
