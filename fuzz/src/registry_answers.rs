//! Answers of a registry. The first byte chooses: `c` challenges, one per line; `t` a token; `l` the labels of an image as
//! JSON; `b` a layer; `m` a manifest or an index, and after a line `===` the configuration of the image.

use std::collections::BTreeMap;

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue, Uri};
use serde_json::{Value, json};
use steersman::llamastack::oci::registry::auth::{self, Access, Challenge};
use steersman::llamastack::oci::registry::image::{ImageConfig, LAYER_LIMIT, Manifest};
use steersman::llamastack::oci::registry::layer;
use steersman_plan::llamastack::config::base::{LAYER_FILE_LIMIT, LayerFile, from_labels, layer_file};
use steersman_plan::oci::is_digest;

/// Longest message about an image, in bytes. It may quote a path of 1,024 bytes, of which each may be escaped.
const MAX_MESSAGE_BYTES: usize = 8 * 1024;

pub fn check(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind {
        b'c' => check_challenges(rest),
        b't' => check_token(rest),
        b'l' => check_labels(rest),
        b'b' => check_layer(rest),
        b'm' => check_manifest(rest),
        _ => {}
    }
}

/// A token is requested from the host that the realm names.
fn check_challenges(lines: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(WWW_AUTHENTICATE, value);
        }
    }
    match auth::challenge(&headers) {
        Ok(Challenge::Bearer { realm, service }) => {
            let authority = realm.authority().expect("a realm has a host");
            assert!(realm.scheme().is_some());
            let joint = if realm.query().is_some() { '&' } else { '?' };
            let url = format!("{realm}{joint}{}", auth::token_query(service.as_deref(), "a/b", Access::Pull));
            if let Ok(url) = url.parse::<Uri>() {
                assert_eq!(url.authority(), Some(authority), "the token is requested elsewhere");
                assert!(url.query().is_some_and(|query| query.contains("scope=repository%3Aa%2Fb%3Apull")), "{url}");
            }
        }
        Ok(Challenge::Basic) => {}
        Err(message) => assert!(message.len() <= 100, "{message}"),
    }
}

fn check_token(body: &[u8]) {
    let Some(token) = auth::token(body) else { return };
    assert!(!token.reveal().is_empty());
    if token.reveal().len() >= 12 {
        assert!(!format!("{token:?}").contains(token.reveal().as_str()), "the token is printed");
    }
    if let Some(header) = auth::bearer(&token) {
        assert!(header.is_sensitive());
    }
    let form = auth::identity_form(Some("s"), "a/b", Access::Pull, &token);
    assert!(form.contains("grant_type=refresh_token") && !form.contains([' ', '\n', '\r']));
}

/// A path never leads out of the layer.
fn check_labels(text: &[u8]) {
    let Ok(labels) = serde_json::from_slice::<BTreeMap<String, String>>(text) else { return };
    match layer_file(&labels) {
        Ok(Some(file)) => {
            assert!(is_digest(&file.digest));
            assert!(!file.path.is_empty() && file.path.split('/').all(|part| !["", ".", ".."].contains(&part)));
        }
        Ok(None) => {}
        Err(error) => check_message(&error.to_string()),
    }
    if let Err(error) = from_labels("", "", &labels, |_| Ok(b"providers: {}".to_vec())) {
        check_message(&error.to_string());
    }
}

/// Only content that the manifest lists is read, and no layer beyond the limit.
fn check_manifest(data: &[u8]) {
    let (text, config) = crate::two_parts(std::str::from_utf8(data).unwrap_or_default());
    let Some(manifest) = Manifest::read(text.as_bytes()) else { return };
    // A field that is not read may have a number that no `Value` can hold.
    let Ok(document) = serde_json::from_str::<Value>(text) else { return };
    if let Some(chosen) = manifest.platform_image() {
        let listed = document["manifests"].as_array().expect("an index has a list");
        let digests: Vec<&Value> = listed.iter().map(|image| &image["digest"]).collect();
        assert!(chosen.is_err() || chosen.is_ok_and(|chosen| digests.contains(&&json!(chosen))), "{chosen:?}");
    }
    if let Some(described) = manifest.config() {
        assert_eq!(document["config"]["digest"], described.digest);
    }
    let Some(config) = ImageConfig::read(config.as_bytes()) else { return };
    let labels = config.labels();
    let Ok(Some(file)) = layer_file(&labels) else { return };
    match manifest.layer(&file, &config) {
        Ok(layer) => {
            assert!(layer.size <= LAYER_LIMIT as u64);
            let listed = document["layers"].as_array().expect("the layer is listed");
            assert!(listed.iter().any(|known| known["digest"] == layer.digest), "{}", layer.digest);
        }
        Err(error) => check_message(&error.to_string()),
    }
}

fn check_layer(blob: &[u8]) {
    let wanted = LayerFile { digest: format!("sha256:{}", "0".repeat(64)), path: "config.yaml".to_owned() };
    match layer::file(&wanted, blob) {
        Ok(content) => assert!(content.len() <= LAYER_FILE_LIMIT),
        Err(error) => check_message(&error.to_string()),
    }
}

fn check_message(message: &str) {
    assert!(message.len() <= MAX_MESSAGE_BYTES, "a message of {} bytes", message.len());
}
