//! Image references, pull secrets, and the base that applies while a registry is being queried.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_plan::llamastack::config::base::{Base, BaseSource, LabelError};
use steersman_plan::oci::{
    Choice, Credentials, ImageReference, Login, ObservedLabels, TYPE_DOCKERCFG, TYPE_DOCKERCONFIGJSON, choose,
};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn references_parse_like_container_engines() {
    let pinned = format!("@{DIGEST}");
    for (text, registry, host, repository, version) in [
        ("nginx", "docker.io", "registry-1.docker.io", "library/nginx", "latest"),
        ("nginx:1.2", "docker.io", "registry-1.docker.io", "library/nginx", "1.2"),
        ("llamastack/starter:0.7.1", "docker.io", "registry-1.docker.io", "llamastack/starter", "0.7.1"),
        ("docker.io/nginx", "docker.io", "registry-1.docker.io", "library/nginx", "latest"),
        ("index.docker.io/a/b", "docker.io", "registry-1.docker.io", "a/b", "latest"),
        ("quay.io/a/b/c:x_1.2-3", "quay.io", "quay.io", "a/b/c", "x_1.2-3"),
        ("localhost/a", "localhost", "localhost", "a", "latest"),
        ("host:5000/a:1", "host:5000", "host:5000", "a", "1"),
        ("[::1]:5000/a", "[::1]:5000", "[::1]:5000", "a", "latest"),
        ("Quay.IO/a__b/c--d", "quay.io", "quay.io", "a__b/c--d", "latest"),
        ("Harbor/a", "Harbor", "Harbor", "a", "latest"),
        (&format!("quay.io/a/b{pinned}"), "quay.io", "quay.io", "a/b", DIGEST),
        (&format!("quay.io/a/b:1{pinned}"), "quay.io", "quay.io", "a/b", DIGEST),
    ] {
        let read = ImageReference::parse(text).unwrap();
        let found = (read.registry.as_str(), read.host(), read.repository.as_str(), read.version());
        assert_eq!(found, (registry, host, repository, version), "{text}");
    }
}

#[test]
fn invalid_reference_names_wrong_part() {
    for (text, part) in [
        ("", "the repository"),
        ("a b", "the repository"),
        ("quay.io/", "the repository"),
        ("quay.io/../a", "the repository"),
        ("quay.io//a", "the repository"),
        ("quay.io/A", "the repository"),
        ("quay.io/a%2f", "the repository"),
        ("quay.io/a:", "the tag"),
        ("quay.io/a:b?c", "the tag"),
        ("quay.io/a:-b", "the tag"),
        ("user@quay.io/a", "the part after @"),
        ("quay.io/a@sha256:abc", "the part after @"),
        ("quay.io:port/a", "the part before the first slash"),
        ("quay..io/a", "the part before the first slash"),
        ("https://quay.io/a", "the part before the first slash"),
        ("[zz]/a", "the part before the first slash"),
    ] {
        let error = ImageReference::parse(text).unwrap_err();
        assert!(error.why.starts_with(part), "{text}: {error}");
        assert!(error.to_string().contains("write it as registry/repository:tag"), "{error}");
    }
}

proptest! {
    #[test]
    fn parsed_reference_is_safe_and_round_trips(text in "\\PC{0,40}|[a-zA-Z0-9.:/@_\\[\\]-]{0,60}") {
        if let Ok(read) = ImageReference::parse(&text) {
            let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:[]".contains(c));
            prop_assert!(plain(&read.registry) && plain(&read.repository) && plain(read.version()));
            prop_assert!(!read.repository.split('/').any(|part| part.is_empty() || part.starts_with('.')));
            let reparsed = ImageReference::parse(&read.to_string()).unwrap();
            prop_assert_eq!((reparsed.registry, reparsed.repository), (read.registry.clone(), read.repository.clone()));
            prop_assert_eq!(reparsed.digest.or(reparsed.tag), read.digest.or(read.tag));
        }
    }

    #[test]
    fn any_pull_secret_is_handled_unquoted(text in "\\PC{0,80}") {
        let mut credentials = Credentials::default();
        let data = secret_data(".dockerconfigjson", text.clone().into_bytes());
        if let Err(error) = credentials.add("pull", TYPE_DOCKERCONFIGJSON, &data) {
            let message = error.to_string();
            prop_assert!(text.len() < 20 || !message.contains(&text));
        }
    }
}

fn secret_data(key: &str, content: Vec<u8>) -> BTreeMap<String, ByteString> {
    BTreeMap::from([(key.to_owned(), ByteString(content))])
}

fn credentials_from(auths: Value) -> Credentials {
    let mut credentials = Credentials::default();
    let data = secret_data(".dockerconfigjson", json!({ "auths": auths }).to_string().into_bytes());
    credentials.add("pull", TYPE_DOCKERCONFIGJSON, &data).unwrap();
    credentials
}

/// The logins for an image, in the order in which they are tried.
fn logins(credentials: &Credentials, image: &str) -> Vec<String> {
    let text = |login: &Login| match login {
        Login::Password { user, password } => format!("{}:{}", user.reveal(), password.reveal()),
        Login::Identity(token) => format!("identity {}", token.reveal()),
        Login::Token(token) => format!("token {}", token.reveal()),
    };
    credentials.logins(&ImageReference::parse(image).unwrap()).into_iter().map(text).collect()
}

#[test]
fn all_login_forms_are_read() {
    let credentials = credentials_from(json!({
        "a.test": { "auth": "dTpwOnE=" },
        "b.test": { "username": "u", "password": "p" },
        "c.test": { "auth": "dTpw", "identitytoken": "i" },
        "d.test": { "registrytoken": "t" },
        "e.test": {},
        "f.test": { "auth": "dTpwAAA=" },
        "g.test": { "username": "u" },
    }));
    for (host, expected) in [
        ("a", vec!["u:p:q"]),
        ("b", vec!["u:p"]),
        ("c", vec!["identity i"]),
        ("d", vec!["token t"]),
        ("e", vec![]),
        ("f", vec!["u:p"]),
        ("g", vec![]),
    ] {
        assert_eq!(logins(&credentials, &format!("{host}.test/x")), expected, "{host}");
    }
    let mut legacy_credentials = Credentials::default();
    let data = secret_data(".dockercfg", json!({ "a.test": { "auth": "dTpw" } }).to_string().into_bytes());
    legacy_credentials.add("pull", TYPE_DOCKERCFG, &data).unwrap();
    assert_eq!(logins(&legacy_credentials, "a.test/x"), ["u:p"]);
}

#[test]
fn login_is_sent_only_to_its_registry() {
    for (registry_path, image, is_sent) in [
        ("quay.io", "quay.io/a/b", true),
        ("https://quay.io", "quay.io/a/b", true),
        ("https://quay.io/v2/", "quay.io/a/b", true),
        ("quay.io/a", "quay.io/a/b", true),
        ("quay.io/v1/a", "quay.io/a/b", true),
        ("quay.io/c", "quay.io/a/b", false),
        ("quay.io", "evil-quay.io/a", false),
        ("quay.io", "quay.io.evil/a", false),
        ("quay.io", "quay.io:5000/a", false),
        ("quay.io:5000", "quay.io:5000/a", true),
        ("*.registry.io", "eu.registry.io/a", true),
        ("*.registry.io", "a.eu.registry.io/a", false),
        ("*.registry.io", "registry.io/a", false),
        ("e*-1?.registry.io", "eu-west-12.registry.io/a", true),
        ("e*-1?.registry.io", "eu-west-21.registry.io/a", false),
        ("https://index.docker.io/v1/", "nginx", true),
        ("docker.io", "docker.io/a/b", true),
        ("index.docker.io", "quay.io/a", false),
    ] {
        let credentials = credentials_from(json!({ registry_path: { "auth": "dTpw" } }));
        assert_eq!(!logins(&credentials, image).is_empty(), is_sent, "{registry_path} for {image}");
    }
}

#[test]
fn logins_are_ordered_by_path_then_secret() {
    let mut credentials =
        credentials_from(json!({ "quay.io": { "auth": "ZmFyOnA=" }, "quay.io/a": { "auth": "bmVhcjpw" } }));
    let later = json!({ "auths": { "quay.io": { "auth": "bGF0ZXI6cA==" } } }).to_string().into_bytes();
    credentials.add("later", TYPE_DOCKERCONFIGJSON, &secret_data(".dockerconfigjson", later)).unwrap();
    assert_eq!(logins(&credentials, "quay.io/a/b"), ["near:p", "far:p", "later:p"]);
}

#[test]
fn invalid_pull_secret_is_reported_unquoted() {
    let bad_auth = json!({ "auths": { "a.test": { "auth": "dTpw" }, "b.test": { "auth": "HIDDEN!" } } }).to_string();
    for (type_, key, content, expected) in [
        ("Opaque", ".dockerconfigjson", "{}", "has the type \"Opaque\""),
        (TYPE_DOCKERCONFIGJSON, "password", "HIDDEN", "has no key \".dockerconfigjson\""),
        (TYPE_DOCKERCFG, ".dockerconfigjson", "HIDDEN", "has no key \".dockercfg\""),
        (TYPE_DOCKERCONFIGJSON, ".dockerconfigjson", "HIDDEN", "is not a Docker configuration"),
        (TYPE_DOCKERCONFIGJSON, ".dockerconfigjson", r#"{"auths": "HIDDEN"}"#, "is not a Docker configuration"),
        (TYPE_DOCKERCONFIGJSON, ".dockerconfigjson", &bad_auth, "is not a Docker configuration"),
    ] {
        let mut credentials = Credentials::default();
        let error = credentials.add("pull", type_, &secret_data(key, content.into())).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("kubectl create secret docker-registry"), "{error}");
        assert!(!error.contains("HIDDEN"), "{error}");
        assert!(credentials.is_empty());
    }
}

#[test]
fn credentials_are_redacted_in_debug() {
    let credentials =
        credentials_from(json!({ "a.test": { "auth": "dXNlcjpwYXNz" }, "b.test": { "identitytoken": "hidden" } }));
    let dump = format!("{credentials:?}");
    assert!(dump.contains("(secret)"), "{dump}");
    for secret in ["dXNlcjpwYXNz", "user", "pass\"", "hidden"] {
        assert!(!dump.replace("user: (", "").contains(secret), "{secret} in {dump}");
    }
}

fn read_labels(base: Result<Option<Base>, LabelError>, remark: Option<&str>) -> ObservedLabels {
    ObservedLabels::Found { digest: DIGEST.to_owned(), base, remark: remark.map(str::to_owned) }
}

#[test]
fn unreachable_registry_keeps_running_configuration() {
    let label_base = Base { name: "x".to_owned(), server_version: String::new(), config: json!({ "providers": {} }) };
    let unreachable = ObservedLabels::Unavailable { remark: "it is down".to_owned() };
    let (label, embedded) = (Some(BaseSource::OciLabel), Some(BaseSource::Embedded));
    let starter_name = Some("starter");
    // (name, labels, running source) -> the chosen source, or the reason for none.
    for (name, labels, running, expected) in [
        (starter_name, ObservedLabels::NotRead, None, Ok((BaseSource::Embedded, None))),
        (None, ObservedLabels::NotRead, None, Err("Direct image references require")),
        (starter_name, ObservedLabels::Pending, None, Err("the labels of the image are being read")),
        (starter_name, ObservedLabels::Pending, label, Err("the labels of the image are being read")),
        (starter_name, unreachable.clone(), None, Ok((BaseSource::Embedded, Some("it is down")))),
        (starter_name, unreachable.clone(), embedded, Ok((BaseSource::Embedded, Some("it is down")))),
        (starter_name, unreachable.clone(), label, Err("it is down. The server keeps its current configuration")),
        (None, unreachable.clone(), label, Err("it is down. The server keeps its current configuration")),
        (None, unreachable, None, Err("it is down. No configuration can be generated until the registry answers")),
        (starter_name, read_labels(Ok(Some(label_base.clone())), None), embedded, Ok((BaseSource::OciLabel, None))),
        (None, read_labels(Ok(Some(label_base.clone())), None), None, Ok((BaseSource::OciLabel, None))),
        (starter_name, read_labels(Ok(Some(label_base)), Some("old")), label, Ok((BaseSource::OciLabel, Some("old")))),
        (starter_name, read_labels(Ok(None), None), label, Ok((BaseSource::Embedded, None))),
        (starter_name, read_labels(Err(LabelError::NotBase64), None), None, Ok((BaseSource::Embedded, None))),
        (None, read_labels(Ok(None), None), None, Err("Direct image references require")),
        (None, read_labels(Err(LabelError::NotBase64), None), None, Err("Direct image references require")),
    ] {
        let case = format!("{name:?} {labels:?} {running:?}");
        match (choose(name, &labels, running), expected) {
            (Choice::Use { resolved, remark }, Ok(expected)) => {
                assert_eq!((resolved.source, remark.as_deref()), expected, "{case}");
            }
            (Choice::Wait(message), Err(expected)) => assert!(message.starts_with(expected), "{case}: {message}"),
            (Choice::Nothing(none), Err(expected)) => assert!(none.to_string().starts_with(expected), "{case}: {none}"),
            (choice, _) => panic!("{case}: {choice:?}"),
        }
    }
}
