//! Decides whether pods of an earlier operator keep their template. A template that differs in spelling alone would
//! restart them.

use serde_json::{Value, json};
use steersman_reconcile::{ADOPTED_LABEL, Finding};

use super::container::CONTAINER;
use crate::content_hash;
use crate::llamastack::config::external_providers;
use crate::llamastack::operator_config::Images;
use crate::llamastack::resolution::Setup;
use crate::llamastack::snapshot::{ObservedDeployment, Snapshot};
use crate::llamastack::{fields, names, secret_change};

/// A Deployment that keeps the pod template of an earlier operator.
pub struct AdoptedTemplate<'a> {
    pub live: &'a ObservedDeployment,
    /// Value of the label `steersman.dev/adopted`.
    pub label: String,
}

/// Keeps the template from the adoption until the inputs of the pods change.
pub fn adopted_template<'a>(snapshot: &'a Snapshot, setup: &Setup) -> Option<AdoptedTemplate<'a>> {
    let live = snapshot.deployment.as_ref().filter(|live| live.template.is_object())?;
    // Which image the name stands for is unknown, so that no change of it can be observed.
    let image_unknown = snapshot.settings.operator_config.images == Images::Unknown
        && fields::distribution(&snapshot.object.spec).is_some();
    if let Some(label) = live.adopted.clone().filter(|_| image_unknown) {
        return Some(AdoptedTemplate { live, label });
    }
    let several = fields::replicas(&snapshot.object.spec) > 1;
    let server = server_inputs(&snapshot.object.v1alpha1.server);
    // Both labels are accepted, so that scaling does not restart adopted pods.
    for several in [several, !several] {
        let label = label(snapshot, setup, &server, several);
        let known = |adopted: &String| {
            // Steersman 0.1 counted defaults.
            let counted = without_scaling(&snapshot.object.v1alpha1.server);
            *adopted == label || *adopted == self::label(snapshot, setup, &counted, several)
        };
        if live.legacy || live.adopted.as_ref().is_some_and(known) {
            return Some(AdoptedTemplate { live, label });
        }
    }
    None
}

/// Value of the label: a hash of the inputs of the pods. The template itself is not hashed, because a newer version may
/// render it differently, which is no reason for a restart. The spec is hashed in its v1alpha1 form, from which earlier
/// operators made the pods, with the v1alpha2 inputs that are present. `several`: whether the spec had more than one
/// replica at the adoption, which made earlier operators add scheduling rules to the pods.
fn label(snapshot: &Snapshot, setup: &Setup, server: &Value, several: bool) -> String {
    let object = &snapshot.object;
    let mut inputs = json!({ "server": server, "image": setup.image, "several": several });
    let external = external_providers(&object.spec);
    let v1alpha2_inputs = [
        ("config", setup.config.as_ref().map(|config| json!(config.hash))),
        ("trust", setup.bundle.as_ref().map(|bundle| json!(bundle.hash))),
        ("certificate", fields::certificate(&object.spec).map(|secret| json!(secret))),
        ("secrets", setup.generated.as_ref().map(|generated| json!(generated.env))),
        ("secretVersions", secret_change::pod_annotation(snapshot).map(|versions| json!(versions))),
        ("external", (!external.is_empty()).then(|| json!(external))),
    ];
    for (name, value) in v1alpha2_inputs {
        if let Some(value) = value {
            inputs[name] = value;
        }
    }
    content_hash::hex(&content_hash::sorted(&inputs).to_string())[..16].to_owned()
}

/// The fields of `spec.server` that affect a pod. Defaults do not count: the API server adds those of v1alpha2 when it
/// stores an object of v1alpha1 in the new version.
fn server_inputs(server: &Value) -> Value {
    let mut server = without_scaling(server);
    let defaults = [
        ("containerSpec", "name", [json!(""), json!(CONTAINER)]),
        ("containerSpec", "port", [json!(0), json!(fields::PORT)]),
        ("storage", "mountPath", [json!(""), json!(fields::MOUNT_PATH)]),
    ];
    for (section, field, values) in defaults {
        if let Some(Value::Object(section)) = server.get_mut(section)
            && section.get(field).is_some_and(|value| values.contains(value))
        {
            section.remove(field);
        }
    }
    // An empty section means nothing, except for `storage`, which requests a claim.
    if let Some(server) = server.as_object_mut() {
        server.retain(|name, value| name == "storage" || !is_nothing(value));
    }
    server
}

/// Without the fields that affect no pod.
fn without_scaling(server: &Value) -> Value {
    let mut server = server.clone();
    for path in ["autoscaling", "podDisruptionBudget"] {
        server.as_object_mut().map(|server| server.remove(path));
    }
    if let Some(Value::Object(storage)) = server.get_mut("storage") {
        storage.remove("size");
    }
    server
}

/// Reports where the adopted template differs from the one that this version would write: the spec may have changed while
/// no operator was running.
pub fn finding(adopted: &AdoptedTemplate<'_>, object: &str, template: &Value) -> Option<Finding> {
    let mut template = template.clone();
    // Operators hash the same content differently; the adoption hash already covers it.
    let live = adopted.live.template.pointer("/metadata/annotations").and_then(Value::as_object);
    let wanted = template.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    for (name, value) in wanted.into_iter().flatten() {
        if let Some(theirs) = live.and_then(|live| live.get(name)) {
            value.clone_from(theirs);
        }
    }
    let mut places = Vec::new();
    differences(&template, &adopted.live.template, "spec.template", &mut places);
    let shown = match places.len() {
        0 => return None,
        more if more > SHOWN => format!("{} and {} more", places[..SHOWN].join(", "), more - SHOWN),
        _ => places.join(", "),
    };
    let deployment = names::deployment(object);
    Some(Finding::info(
        "AdoptedPodsKept",
        format!(
            "Deployment {deployment} was created by an earlier operator. Its pods are not restarted, although \
             Steersman would set {shown} differently."
        ),
        format!(
            "The pods are updated with the next change that affects them. To update them now, which restarts the \
             server: kubectl label deployment {deployment} {ADOPTED_LABEL}-"
        ),
    ))
}

/// Number of differing paths in the message.
const SHOWN: usize = 5;

/// Collects the paths of wanted values that the live template lacks. Values that the API server or the earlier operator
/// added do not count.
fn differences(wanted: &Value, live: &Value, path: &str, found: &mut Vec<String>) {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            for (key, value) in wanted {
                match live.get(key) {
                    Some(live) => differences(value, live, &format!("{path}.{key}"), found),
                    None if !is_nothing(value) => found.push(format!("{path}.{key}")),
                    None => {}
                }
            }
        }
        (Value::Array(wanted), Value::Array(live)) if wanted.len() == live.len() => {
            for (place, (wanted, live)) in wanted.iter().zip(live).enumerate() {
                differences(wanted, live, &format!("{path}[{place}]"), found);
            }
        }
        _ if wanted != live => found.push(path.to_owned()),
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
