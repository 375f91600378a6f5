//! The Helm chart, with the real helm: every documented values file is valid, renders the rules of the code, and is accepted by
//! a real API server.

mod alerts;
mod lifecycle;
mod switches;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use steersman::install;
use steersman::installation::NAMESPACE;
use steersman::rbac::RbacArgs;
use steersman_plan::llamastack::config::base;
use steersman_plan::oci::ImageReference;
use steersman_testkit::binaries::HELM;
use steersman_testkit::skip;

use crate::command::{CommandOutput, output_of, steersman};

/// The values files of `deploy/chart/ci`, which docs/install.md explains.
const VALUES_FILES: [&str; 6] =
    ["default", "single-family", "namespaced", "private-registry", "monitoring", "production"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart")
}

fn values_file(name: &str) -> String {
    folder().join(format!("ci/{name}-values.yaml")).display().to_string()
}

/// A helm command without the environment of this machine. `None` after reporting a skip if helm is not built.
fn helm(home: &Path, arguments: &[&str]) -> Option<Command> {
    let Some(binaries) = HELM.find().unwrap() else {
        skip::skip(
            std::thread::current().name().unwrap_or("a test"),
            "helm is not built; `cargo xtask test` builds it",
        );
        return None;
    };
    let mut command = Command::new(binaries.path("helm"));
    command.args(arguments).env_clear().env("HOME", home);
    Some(command)
}

fn run_helm(arguments: &[&str]) -> Option<CommandOutput> {
    let home = tempfile::tempdir().unwrap();
    helm(home.path(), arguments).map(|mut command| output_of(&mut command))
}

/// The objects that helm renders with these further arguments, hooks included.
pub fn render(arguments: &[&str]) -> Option<Vec<Value>> {
    let chart = folder();
    let template = ["template", "steersman", chart.to_str().unwrap(), "--namespace", NAMESPACE];
    let text = run_helm(&[&template, arguments].concat())?.ok();
    Some(documents(&text))
}

fn documents(text: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    all.into_iter().filter(|document| !document.is_null()).collect()
}

fn is_hook(object: &Value) -> bool {
    object["metadata"]["annotations"]["helm.sh/hook"].is_string()
}

#[track_caller]
fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

#[test]
fn documented_values_files_are_complete_and_linted() {
    let mut files: Vec<String> = std::fs::read_dir(folder().join("ci"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap().replace("-values.yaml", ""))
        .collect();
    files.sort();
    let mut known = VALUES_FILES.map(str::to_owned);
    known.sort();
    assert_eq!(files, known);
    for name in VALUES_FILES {
        let chart = folder();
        let Some(linted) = run_helm(&["lint", "--strict", chart.to_str().unwrap(), "-f", &values_file(name)]) else {
            return;
        };
        let output = linted.ok();
        assert!(output.contains("1 chart(s) linted, 0 chart(s) failed"), "{name}: {output}");
    }
}

#[test]
fn invalid_values_are_rejected_with_their_path() {
    let chart = folder();
    for (set, expected) in [
        ("secrets=list", "/secrets"),
        ("controllers.wva=true", "controllers"),
        ("image.digest=sha256:abc", "/image/digest"),
        ("webhooks.failurePolicy=Retry", "/webhooks/failurePolicy"),
        ("replicas=two", "/replicas"),
        ("controllers.dgdr=false,controllers.llsd=false,controllers.va=false", "enable at least one"),
        ("webhooks.enabled=false", "crds.apply=false"),
        ("watchNamespace=team-a,metrics.serviceMonitor.enabled=true", "rbac.clusterRole=true"),
    ] {
        let Some(output) = run_helm(&["template", "steersman", chart.to_str().unwrap(), "--set", set]) else { return };
        let error = output.failure();
        assert!(error.contains(expected), "{set}: {error}");
    }
}

#[test]
fn chart_has_version_of_the_operator() {
    let chart: Value = serde_saphyr::from_str(&std::fs::read_to_string(folder().join("Chart.yaml")).unwrap()).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
}

/// The rules of all roles of the operator's account in these documents, by the kind of the role and its namespace.
fn granted(objects: &[Value], account: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for binding in objects.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding")))
    {
        let subjects = binding["subjects"].as_array().unwrap();
        if is_hook(binding) || !subjects.iter().any(|subject| subject["name"] == account) {
            continue;
        }
        let (kind, name) = (binding["roleRef"]["kind"].as_str().unwrap(), &binding["roleRef"]["name"]);
        let namespace = &binding["metadata"]["namespace"];
        let role = objects
            .iter()
            .find(|role| {
                role["kind"] == kind && role["metadata"]["name"] == *name && role["metadata"]["namespace"] == *namespace
            })
            .unwrap_or_else(|| panic!("{kind} {name} is missing"));
        let rules = role["rules"].as_array().unwrap();
        all.extend(rules.iter().map(|rule| format!("{kind} {namespace}: {}", sorted(rule))));
    }
    assert!(!all.is_empty());
    all
}

/// The rule with its keys in a fixed order.
fn sorted(rule: &Value) -> String {
    ["apiGroups", "resources", "resourceNames", "verbs"].map(|key| rule[key].to_string()).join(" ")
}

#[test]
fn chart_grants_exactly_the_rules_of_the_command() {
    let cases: [(&[&str], &[&str]); 7] = [
        (&[], &[]),
        (&["secrets=none"], &["--secrets", "none"]),
        (&["secrets=watch"], &["--secrets", "watch"]),
        (&["controllers.dgdr=false", "controllers.va=false"], &["--controllers", "llsd"]),
        (
            &["controllers.dgdr=false", "controllers.llsd=false", "webhooks.enabled=false"],
            &["--controllers", "va", "--webhooks", "off"],
        ),
        (&["watchNamespace=team-a"], &["--watch-namespace", "team-a"]),
        (
            &["watchNamespace=steersman-system", "rbac.clusterRole=true", "secrets=watch"],
            &["--watch-namespace", NAMESPACE, "--webhooks", "off", "--cluster-role", "--secrets", "watch"],
        ),
    ];
    for (values, flags) in cases {
        let set: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
        let Some(rendered) = render(&set) else { return };
        let printed = documents(&output_of(&mut steersman(&[&["rbac"], flags].concat())).ok());
        assert_eq!(granted(&rendered, "steersman"), granted(&printed, "steersman"), "{values:?}");
        let profiling = |objects: &[Value]| -> Vec<String> {
            let of_jobs = |object: &&Value| {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                name.starts_with("steersman-profiling-job") && object["rules"].is_array()
            };
            let rules = objects.iter().filter(of_jobs).flat_map(|role| role["rules"].as_array().unwrap());
            rules.map(sorted).collect()
        };
        assert_eq!(profiling(&rendered), profiling(&printed), "{values:?}");
    }
}

/// The namespaced installation works for somebody who may not write any cluster-wide object.
#[test]
fn namespaced_installation_has_no_cluster_wide_objects() {
    let Some(rendered) = render(&["-f", &values_file("namespaced")]) else { return };
    let kinds: BTreeSet<&str> = rendered.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    let expected = ["Deployment", "NetworkPolicy", "Role", "RoleBinding", "ServiceAccount"];
    assert_eq!(kinds, BTreeSet::from(expected));
}

#[test]
fn default_chart_equals_the_install_file() {
    let Some(rendered) = render(&[]) else { return };
    let file = documents(&install::file().unwrap());
    // The chart has labels of its own, and selects by the release as well.
    let without_labels = |mut value: Value| {
        value["metadata"] = json!({ "name": value["metadata"]["name"], "namespace": value["metadata"]["namespace"] });
        let spec = value["spec"].clone();
        for pointer in ["/spec/selector", "/spec/podSelector", "/spec/template/metadata"] {
            if let Some(part) = value.pointer_mut(pointer) {
                *part = Value::Null;
            }
        }
        if let Some(spread) = value.pointer_mut("/spec/template/spec/topologySpreadConstraints/0/labelSelector") {
            *spread = Value::Null;
        }
        (value, spec)
    };
    for (kind, name) in [
        ("Deployment", "steersman"),
        ("PodDisruptionBudget", "steersman"),
        ("NetworkPolicy", "steersman"),
        ("Service", "steersman-webhook"),
    ] {
        let (mut chart, _) = without_labels(find(&rendered, kind, name).clone());
        let (installed, _) = without_labels(find(&file, kind, name).clone());
        if kind == "Deployment" {
            // The default of Kubernetes for an image with a tag.
            let container = &mut chart["spec"]["template"]["spec"]["containers"][0];
            assert_eq!(container["imagePullPolicy"].take(), "IfNotPresent");
            container.as_object_mut().unwrap().remove("imagePullPolicy");
        }
        assert_eq!(chart, installed, "{kind}");
    }
    let webhooks = |objects: &[Value]| -> Vec<Value> {
        objects.iter().filter(|object| !object["webhooks"].is_null()).map(|object| object["webhooks"].clone()).collect()
    };
    let key = |value: &Value| value[0]["name"].to_string();
    let (mut chart, mut installed) = (webhooks(&rendered), webhooks(&file));
    chart.sort_by_key(key);
    installed.sort_by_key(key);
    assert_eq!(chart, installed);
}

#[test]
fn every_image_comes_from_the_chosen_registry() {
    let Some(rendered) = render(&["-f", &values_file("private-registry")]) else { return };
    let text = serde_json::to_string(&rendered).unwrap();
    let digest = "registry.example.com/platform/steersman@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let pods: Vec<&Value> =
        rendered.iter().map(|object| &object["spec"]["template"]["spec"]).filter(|pod| !pod.is_null()).collect();
    assert_eq!(pods.len(), 3, "the operator and two hooks");
    for pod in pods {
        assert_eq!(pod["containers"][0]["image"], digest);
        assert_eq!(pod["imagePullSecrets"], json!([{ "name": "platform-registry" }]));
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    }
    let deployment = find(&rendered, "Deployment", "steersman");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let variable = container["env"].as_array().unwrap().iter().find(|variable| variable["name"] == "OPERATOR_IMAGE");
    assert_eq!(variable.unwrap()["value"], digest);
    let of_registry = |image: &str| {
        let digest = image.strip_prefix("registry.example.com/platform/").and_then(|name| name.split_once("@sha256:"));
        digest.is_some_and(|(_, digest)| digest.len() == 64)
    };
    let arguments = container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    let profiler = arguments.filter_map(|argument| argument.strip_prefix("--dgdr-default-image=")).next().unwrap();
    assert!(of_registry(profiler), "{profiler}");
    let images = &find(&rendered, "ConfigMap", "llama-stack-operator-config")["data"]["image-overrides"];
    let images: BTreeMap<String, String> = serde_saphyr::from_str(images.as_str().unwrap()).unwrap();
    let known: BTreeSet<&str> = base::names().collect();
    assert_eq!(images.keys().map(String::as_str).collect::<BTreeSet<_>>(), known, "every built-in distribution");
    for (name, image) in &images {
        assert!(of_registry(image), "{name}: {image}");
        assert!(ImageReference::parse(image).is_ok(), "{name}: {image}");
    }
    assert!(!text.contains("\"steersman:"), "an image without a registry");
}

/// The operator accepts the arguments that the chart gives it.
#[test]
fn operator_accepts_arguments_of_every_values_file() {
    use clap::Parser;
    for name in VALUES_FILES {
        let Some(rendered) = render(&["-f", &values_file(name)]) else { return };
        for object in rendered.iter().filter(|object| !object["spec"]["template"].is_null()) {
            let arguments = object["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
            let arguments = arguments.iter().map(|argument| argument.as_str().unwrap());
            let parsed = steersman::cli::Cli::try_parse_from(std::iter::once("steersman").chain(arguments));
            assert!(parsed.is_ok(), "{name}: {}", parsed.unwrap_err());
        }
    }
}

#[test]
fn smaller_installations_have_smaller_roles() {
    let count = |args: &RbacArgs| args.rules().len() + args.own_rules().len();
    let all = RbacArgs::default();
    for smaller in [
        RbacArgs { secrets: steersman::installation::SecretAccess::None, ..all.clone() },
        RbacArgs { controllers: vec![steersman_api::Family::Va], ..all.clone() },
        RbacArgs { webhooks: steersman::settings::Switch::Off, ..all.clone() },
        RbacArgs { watch_namespace: Some("team-a".to_owned()), ..all.clone() },
    ] {
        assert!(count(&smaller) < count(&all), "{smaller:?}");
    }
}
