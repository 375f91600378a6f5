//! An image reference, and after a line `===` a pull secret whose logins are chosen for it.

use std::collections::BTreeMap;

use http::Uri;
use serde_json::Value;
use steersman_plan::oci::{Credentials, ImageReference, TYPE_DOCKERCFG, TYPE_DOCKERCONFIGJSON};

/// Longest message about a reference, in bytes: it quotes at most 255 characters.
const MAX_MESSAGE_BYTES: usize = 4096;

pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (image, secret) = crate::two_parts(text);
    let reference = match ImageReference::parse(image) {
        Ok(reference) => reference,
        Err(error) => return assert!(error.to_string().len() <= MAX_MESSAGE_BYTES),
    };
    let again = ImageReference::parse(&reference.to_string()).expect("a printed reference can be parsed");
    assert_eq!(
        (&again.registry, &again.repository, again.version()),
        (&reference.registry, &reference.repository, reference.version())
    );
    check_url(&reference);
    check_logins(&reference, secret);
}

/// The request goes to the registry of the reference and stays below its repository.
fn check_url(reference: &ImageReference) {
    let path = format!("/v2/{}/manifests/{}", reference.repository, reference.version());
    let url: Uri = format!("https://{}{path}", reference.host()).parse().expect("the URL is valid");
    let authority = url.authority().expect("the URL has a host");
    assert_eq!(authority.as_str(), reference.host(), "the URL leads to another host");
    assert_eq!((url.path(), url.query()), (path.as_str(), None));
    assert!(!url.path().split('/').any(|part| part == ".." || part == "."), "{url}");
}

/// No value of a pull secret is printed, and a damaged one is refused without quoting it.
fn check_logins(reference: &ImageReference, secret: &str) {
    for (type_, key) in [(TYPE_DOCKERCONFIGJSON, ".dockerconfigjson"), (TYPE_DOCKERCFG, ".dockercfg")] {
        let data: BTreeMap<String, _> =
            BTreeMap::from([(key.to_owned(), k8s_openapi::ByteString(secret.as_bytes().to_vec()))]);
        let mut credentials = Credentials::default();
        let shown = match credentials.add("name", type_, &data) {
            Ok(()) => {
                let logins = credentials.logins(reference);
                assert!(logins.is_empty() || !credentials.is_empty());
                format!("{logins:?}")
            }
            Err(error) => error.to_string(),
        };
        for value in secret_values(secret) {
            assert!(!shown.contains(&value), "{shown} quotes {value:?}");
        }
    }
}

/// Values of the fields that hold a secret.
fn secret_values(secret: &str) -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        let Value::Object(fields) = value else { return };
        for (name, value) in fields {
            let is_secret = ["auth", "password", "identitytoken", "registrytoken"].contains(&name.as_str());
            match value {
                Value::String(text) if is_secret && text.len() >= 12 => found.push(text.clone()),
                other => collect(other, found),
            }
        }
    }
    let mut found = Vec::new();
    if let Ok(value) = serde_json::from_str(secret) {
        collect(&value, &mut found);
    }
    // Words of our own messages are no secrets.
    found.retain(|value| !"Password Identity Token Sensitive user password login".contains(value.as_str()));
    found
}
