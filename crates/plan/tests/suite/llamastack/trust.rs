//! The certificates that a server trusts beside those of its image.

use serde_json::json;
use steersman_plan::llamastack::plan;
use steersman_reconcile::Severity;

use super::configured::{container, env, found, template};
use super::{an_object, written};

pub const CA_KEY: &str = "ca-bundle.crt";
pub const CERTIFICATE: &str = include_str!("../../fixtures/llamastack/certificate.pem");

#[test]
fn trusted_certificates_are_joined_into_a_config_map_of_our_own() {
    let spec = "{distribution: {name: starter}, networking: {tls: {caBundle: {configMapName: ca}}}}";
    let data = |text: &str| Some([(CA_KEY.to_owned(), text.to_owned())].into());
    let mut seen = found(an_object(spec));
    seen.trust.named = data(&format!("noise\n{CERTIFICATE}"));
    let map = written(&plan(&seen), "ConfigMap").unwrap();
    assert_eq!((&map["metadata"]["name"], &map["data"][CA_KEY]), (&json!("starter-ca-bundle"), &json!(CERTIFICATE)));
    assert_eq!(env(&seen, "SSL_CERT_FILE")["value"], "/etc/ssl/certs/ca-bundle/ca-bundle.crt");
    let mount = json!({ "name": "ca-bundle", "mountPath": "/etc/ssl/certs/ca-bundle", "readOnly": true });
    assert_eq!(container(&seen)["volumeMounts"][1], mount);
    assert!(template(&seen)["metadata"]["annotations"]["configmap.hash/ca-bundle"].is_string());
    assert_eq!(container(&seen).get("command"), None, "the image's own configuration runs");

    seen.trust.cluster = data(CERTIFICATE);
    let both = written(&plan(&seen), "ConfigMap").unwrap();
    assert_eq!(both["data"][CA_KEY], format!("{CERTIFICATE}\n{CERTIFICATE}"));

    let mut alone = an_object("{distribution: {name: starter}}");
    alone.trust.cluster = Some([("a".to_owned(), "   ".to_owned()), ("b".to_owned(), "broken".to_owned())].into());
    assert_eq!(written(&plan(&alone), "ConfigMap"), None, "what the cluster offers is no reason to refuse");
}

#[test]
fn certificates_that_cannot_be_used_are_refused_with_the_key() {
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
        let mut seen = found(an_object(&spec(keys)));
        seen.trust.named = Some([(CA_KEY.to_owned(), text.to_owned())].into());
        let told = plan(&seen).findings;
        assert_eq!((told.len(), told[0].severity), (1, Severity::Blocker), "{told:?}");
        assert!(told[0].message.ends_with(expected), "{}", told[0].message);
    }
}
