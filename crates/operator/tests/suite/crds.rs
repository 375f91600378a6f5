//! `steersman crds`: printing CRDs as YAML and JSON, and installing, migrating and detaching them on a cluster.

mod apply;
mod converter;
mod crash;
mod detach;
mod env;
mod migrate;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use steersman_api::Family;
use steersman_api::crds::{self, FAMILIES};

use crate::command::{output_of, steersman};

fn print_crds(args: &[&str]) -> String {
    output_of(steersman(&["crds"]).args(args)).ok()
}

fn from_yaml(text: &str) -> Vec<CustomResourceDefinition> {
    // A CRD exceeds the parser's default budget, which protects servers from hostile input.
    let parse = |text| serde_saphyr::from_str_with_options(text, serde_saphyr::options! { budget: None }).unwrap();
    text.split("---\n").map(parse).collect()
}

#[test]
fn yaml_and_json_hold_all_crds() {
    let all = crds::all(&steersman::crds::options()).unwrap();
    assert_eq!(from_yaml(&print_crds(&[])), all);
    let list: Value = serde_json::from_str(&print_crds(&["-o", "json"])).unwrap();
    assert_eq!((list["apiVersion"].as_str(), list["kind"].as_str()), (Some("v1"), Some("List")));
    let items: Vec<CustomResourceDefinition> = serde_json::from_value(list["items"].clone()).unwrap();
    assert_eq!(items, all);
}

#[test]
fn families_are_printed_as_named_on_command_line() {
    let names =
        |crds: &[CustomResourceDefinition]| crds.iter().map(|crd| crd.metadata.name.clone()).collect::<Vec<_>>();
    let wanted = [Family::Va, Family::Dgdr].map(|family| Some(family.crd_name().to_owned()));
    assert_eq!(names(&from_yaml(&print_crds(&["va", "dgdr"]))), wanted);
}

#[test]
fn flags_set_the_conversion_server() {
    let client = |args: &[&str]| {
        let [crd] = &from_yaml(&print_crds(args))[..] else { panic!("one CRD expected") };
        let webhook = crd.spec.conversion.as_ref().unwrap().webhook.as_ref().unwrap();
        webhook.client_config.clone().unwrap()
    };
    let service = client(&["llsd", "--webhook-namespace", "models", "--webhook-service", "own"]).service.unwrap();
    assert_eq!(
        (service.namespace.as_str(), service.name.as_str(), service.path.as_deref()),
        ("models", "own", Some("/convert"))
    );
    let client_config = client(&["dgdr", "--webhook-url", "https://10.0.0.1:9443/convert"]);
    assert_eq!((client_config.url.as_deref(), client_config.service), (Some("https://10.0.0.1:9443/convert"), None));
}

#[test]
fn conflicting_flags_are_wrong_usage() {
    let cases: [(&[&str], &str); 5] = [
        (&["--apply", "--detach"], "cannot be used with"),
        (&["--apply", "-o", "json"], "cannot be used with"),
        (&["--webhook-url", "https://a", "--webhook-service", "b"], "cannot be used with"),
        (&["--webhook-url", "http://a"], "give a URL that begins with https://"),
        (&["--wait", "5"], "--apply"),
    ];
    for (args, expected) in cases {
        let output = output_of(steersman(&["crds"]).args(args));
        assert_eq!(output.code, Some(2), "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{args:?}: {}", output.stderr);
    }
}

#[test]
fn crd_files_are_marked_as_generated() {
    for family in FAMILIES {
        let file = steersman::crds::file(family).unwrap();
        assert!(file.starts_with("# Generated from the types in crates/api by `steersman crds`; do not edit."));
        assert_eq!(from_yaml(&file), [crds::crd(family, &steersman::crds::options()).unwrap()]);
    }
}
