//! An image reference, and after a line `===` a pull secret whose logins are chosen for it.

use std::collections::BTreeMap;

use http::Uri;
use k8s_openapi::ByteString;
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

/// No value of a pull secret is printed, and the refusal of a damaged one is the same for all of them.
fn check_logins(reference: &ImageReference, secret: &str) {
    for (type_, key) in [(TYPE_DOCKERCONFIGJSON, ".dockerconfigjson"), (TYPE_DOCKERCFG, ".dockercfg")] {
        let read = |text: &str| {
            let data = BTreeMap::from([(key.to_owned(), ByteString(text.as_bytes().to_vec()))]);
            let mut credentials = Credentials::default();
            credentials.add("name", type_, &data).map(|()| credentials)
        };
        match read(secret) {
            Ok(credentials) => {
                let logins = credentials.logins(reference);
                assert!(logins.is_empty() || !credentials.is_empty());
                let shown = PRINTED_LOGINS.iter().fold(format!("{logins:?}"), |text, form| text.replace(form, ""));
                assert!(shown.chars().all(|letter| "[, ]".contains(letter)), "{logins:?}");
            }
            Err(error) => assert_eq!(Some(error), read("{").err()),
        }
    }
}

/// All that is printed of a login.
const PRINTED_LOGINS: [&str; 3] =
    ["Password { user: (secret), password: (secret) }", "Identity((secret))", "Token((secret))"];
