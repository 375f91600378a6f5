//! Base configurations in image labels, read from a registry that runs in the test's process.

mod auth;
mod bases;
pub mod fake;
mod labels;
mod limits;
mod pull_secrets;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use steersman::llamastack::oci::registry::ImageLabels;
use steersman_plan::llamastack::config::base::Base;
use steersman_plan::oci::{Credentials, TYPE_DOCKERCONFIGJSON};

/// A configuration with this distribution name.
fn config(name: &str) -> String {
    format!("version: 2\ndistro_name: {name}\nproviders: {{}}\n")
}

/// Image labels that hold the configuration of this name.
pub fn in_label(name: &str) -> Value {
    json!({ "io.llamastack.config.base64": STANDARD.encode(config(name)) })
}

pub fn docker_config(place: &str, user: &str, password: &str) -> BTreeMap<String, ByteString> {
    let auth = STANDARD.encode(format!("{user}:{password}"));
    let text = json!({ "auths": { place: { "auth": auth } } }).to_string();
    BTreeMap::from([(".dockerconfigjson".to_owned(), ByteString(text.into_bytes()))])
}

fn credentials(place: &str, user: &str, password: &str) -> Credentials {
    let mut credentials = Credentials::default();
    credentials.add("pull", TYPE_DOCKERCONFIGJSON, &docker_config(place, user, password)).unwrap();
    credentials
}

fn base(labelled: &ImageLabels) -> &Base {
    labelled.base.as_ref().unwrap().as_ref().expect("the image has a base")
}

fn distro(labelled: &ImageLabels) -> &str {
    base(labelled).config["distro_name"].as_str().unwrap()
}
