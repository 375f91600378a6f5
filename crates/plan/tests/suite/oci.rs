//! Image references, pull secrets, and the base that counts while a registry is asked.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_plan::llamastack::config::base::{Base, LabelError, Source};
use steersman_plan::oci::{
    Choice, Credentials, LabelsSeen, Login, Reference, TYPE_DOCKERCFG, TYPE_DOCKERCONFIGJSON, choose,
};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn references_mean_what_container_engines_take_them_for() {
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
        let read = Reference::parse(text).unwrap();
        let found = (read.registry.as_str(), read.host(), read.repository.as_str(), read.version());
        assert_eq!(found, (registry, host, repository, version), "{text}");
    }
}

#[test]
fn what_is_no_reference_is_refused_with_the_part_that_is_wrong() {
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
        ("user@quay.io/a", "what follows the @"),
        ("quay.io/a@sha256:abc", "what follows the @"),
        ("quay.io:port/a", "what precedes the first slash"),
        ("quay..io/a", "what precedes the first slash"),
        ("https://quay.io/a", "what precedes the first slash"),
        ("[zz]/a", "what precedes the first slash"),
    ] {
        let error = Reference::parse(text).unwrap_err();
        assert!(error.why.starts_with(part), "{text}: {error}");
        assert!(error.to_string().contains("write it as registry/repository:tag"), "{error}");
    }
}

proptest! {
    #[test]
    fn what_is_read_can_stand_in_an_address_and_is_read_the_same_again(text in "\\PC{0,40}|[a-zA-Z0-9.:/@_\\[\\]-]{0,60}") {
        if let Ok(read) = Reference::parse(&text) {
            let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:[]".contains(c));
            prop_assert!(plain(&read.registry) && plain(&read.repository) && plain(read.version()));
            prop_assert!(!read.repository.split('/').any(|part| part.is_empty() || part.starts_with('.')));
            let again = Reference::parse(&read.to_string()).unwrap();
            prop_assert_eq!((again.registry, again.repository), (read.registry.clone(), read.repository.clone()));
            prop_assert_eq!(again.digest.or(again.tag), read.digest.or(read.tag));
        }
    }

    #[test]
    fn no_pull_secret_can_break_us_and_none_is_quoted(text in "\\PC{0,80}") {
        let mut credentials = Credentials::default();
        let data = secret(".dockerconfigjson", text.clone().into_bytes());
        if let Err(error) = credentials.add("pull", TYPE_DOCKERCONFIGJSON, &data) {
            let said = error.to_string();
            prop_assert!(text.len() < 20 || !said.contains(&text));
        }
    }
}

fn secret(key: &str, content: Vec<u8>) -> BTreeMap<String, ByteString> {
    BTreeMap::from([(key.to_owned(), ByteString(content))])
}

fn read(auths: Value) -> Credentials {
    let mut credentials = Credentials::default();
    let data = secret(".dockerconfigjson", json!({ "auths": auths }).to_string().into_bytes());
    credentials.add("pull", TYPE_DOCKERCONFIGJSON, &data).unwrap();
    credentials
}

/// What would be sent for an image, in order.
fn logins(credentials: &Credentials, image: &str) -> Vec<String> {
    let text = |login: &Login| match login {
        Login::Password { user, password } => format!("{}:{}", user.reveal(), password.reveal()),
        Login::Identity(token) => format!("identity {}", token.reveal()),
        Login::Token(token) => format!("token {}", token.reveal()),
    };
    credentials.logins(&Reference::parse(image).unwrap()).into_iter().map(text).collect()
}

#[test]
fn each_form_of_a_login_is_read() {
    let credentials = read(json!({
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
    let mut old = Credentials::default();
    let data = secret(".dockercfg", json!({ "a.test": { "auth": "dTpw" } }).to_string().into_bytes());
    old.add("pull", TYPE_DOCKERCFG, &data).unwrap();
    assert_eq!(logins(&old, "a.test/x"), ["u:p"]);
}

#[test]
fn a_login_is_shown_only_to_the_place_that_it_is_for() {
    for (place, image, shown) in [
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
        let credentials = read(json!({ place: { "auth": "dTpw" } }));
        assert_eq!(!logins(&credentials, image).is_empty(), shown, "{place} for {image}");
    }
}

#[test]
fn the_nearest_place_comes_first_and_then_the_order_of_the_secrets() {
    let mut credentials = read(json!({ "quay.io": { "auth": "ZmFyOnA=" }, "quay.io/a": { "auth": "bmVhcjpw" } }));
    let later = json!({ "auths": { "quay.io": { "auth": "bGF0ZXI6cA==" } } }).to_string().into_bytes();
    credentials.add("later", TYPE_DOCKERCONFIGJSON, &secret(".dockerconfigjson", later)).unwrap();
    assert_eq!(logins(&credentials, "quay.io/a/b"), ["near:p", "far:p", "later:p"]);
}

#[test]
fn a_secret_that_is_no_pull_secret_is_told_without_its_content_and_adds_nothing() {
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
        let error = credentials.add("pull", type_, &secret(key, content.into())).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("kubectl create secret docker-registry"), "{error}");
        assert!(!error.contains("HIDDEN"), "{error}");
        assert!(credentials.is_empty());
    }
}

#[test]
fn credentials_are_mute() {
    let credentials = read(json!({ "a.test": { "auth": "dXNlcjpwYXNz" }, "b.test": { "identitytoken": "hidden" } }));
    let dump = format!("{credentials:?}");
    assert!(dump.contains("(secret)"), "{dump}");
    for secret in ["dXNlcjpwYXNz", "user", "pass\"", "hidden"] {
        assert!(!dump.replace("user: (", "").contains(secret), "{secret} in {dump}");
    }
}

fn found(base: Result<Option<Base>, LabelError>, remark: Option<&str>) -> LabelsSeen {
    LabelsSeen::Found { digest: DIGEST.to_owned(), base, remark: remark.map(str::to_owned) }
}

#[test]
fn a_registry_that_is_silent_moves_nothing_that_runs() {
    let labelled = Base { name: "x".to_owned(), server_version: String::new(), config: json!({ "providers": {} }) };
    let silent = LabelsSeen::Silent { remark: "it is down".to_owned() };
    let (label, embedded) = (Some(Source::OciLabel), Some(Source::Embedded));
    let named = Some("starter");
    // (name, seen, running) -> the source, or what is said instead.
    for (name, seen, running, expected) in [
        (named, LabelsSeen::NotAsked, None, Ok((Source::Embedded, None))),
        (None, LabelsSeen::NotAsked, None, Err("Direct image references require")),
        (named, LabelsSeen::Awaited, None, Err("the labels of the image are being read")),
        (named, LabelsSeen::Awaited, label, Err("the labels of the image are being read")),
        (named, silent.clone(), None, Ok((Source::Embedded, Some("it is down")))),
        (named, silent.clone(), embedded, Ok((Source::Embedded, Some("it is down")))),
        (named, silent.clone(), label, Err("it is down. The server keeps the configuration")),
        (None, silent.clone(), label, Err("it is down. The server keeps the configuration")),
        (None, silent, None, Err("it is down. Nothing can be generated until the registry answers")),
        (named, found(Ok(Some(labelled.clone())), None), embedded, Ok((Source::OciLabel, None))),
        (None, found(Ok(Some(labelled.clone())), None), None, Ok((Source::OciLabel, None))),
        (named, found(Ok(Some(labelled)), Some("old")), label, Ok((Source::OciLabel, Some("old")))),
        (named, found(Ok(None), None), label, Ok((Source::Embedded, None))),
        (named, found(Err(LabelError::NotBase64), None), None, Ok((Source::Embedded, None))),
        (None, found(Ok(None), None), None, Err("Direct image references require")),
        (None, found(Err(LabelError::NotBase64), None), None, Err("Direct image references require")),
    ] {
        let case = format!("{name:?} {seen:?} {running:?}");
        match (choose(name, &seen, running), expected) {
            (Choice::Use { resolved, remark }, Ok(expected)) => {
                assert_eq!((resolved.source, remark.as_deref()), expected, "{case}");
            }
            (Choice::Wait(said), Err(expected)) => assert!(said.starts_with(expected), "{case}: {said}"),
            (Choice::Nothing(none), Err(expected)) => assert!(none.to_string().starts_with(expected), "{case}: {none}"),
            (choice, _) => panic!("{case}: {choice:?}"),
        }
    }
}
